//! The processes of the scenarios over HTTP: servers, the floor's, generators. Each is this program with another verb.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assent_kind::Kind;
use assent_world::net::Address;
use serde_json::{Value, json};

use crate::BenchError;
use crate::docs::wrong;
use crate::host::without_settings;
use crate::web::{Line, Outcome, Plan};

const NAME: &str = "anna";
const PASSWORD: &str = "a password of the race";

/// Somebody who may read and write, as a configuration has him.
pub(super) struct User {
    hash: String,
}

impl User {
    pub(super) fn new(program: &Path) -> Result<Self, BenchError> {
        let told = told(Command::new(program).arg("password"), PASSWORD.as_bytes())?;
        Ok(Self { hash: String::from_utf8_lossy(&told).trim().to_owned() })
    }
}

/// A server, killed when this is dropped.
pub(super) struct Server {
    child: Child,
    program: std::path::PathBuf,
    pub(super) at: Address,
    /// What a caller sends to be known, with its line end.
    pub(super) headers: String,
    pub(super) is_floor: bool,
}

impl Server {
    /// A server of documents in that folder; with a user, callers prove who they are.
    pub(super) fn start(program: &Path, folder: &Path, user: Option<&User>) -> Result<Self, BenchError> {
        Self::with(program, folder, user, "")
    }

    /// One whose commits are answered before they are on the disk.
    pub(super) fn lazy(program: &Path, folder: &Path) -> Result<Self, BenchError> {
        Self::with(program, folder, None, "max_elapsed_sync_time = 100\n")
    }

    fn with(program: &Path, folder: &Path, user: Option<&User>, documents: &str) -> Result<Self, BenchError> {
        let making = |error: std::io::Error| BenchError::disk("making a server's folder", &error);
        std::fs::create_dir_all(folder).map_err(making)?;
        let any = "listen = \"127.0.0.1:0\"";
        let mut config =
            format!("data_dir = \"served\"\n[server]\n{any}\n[admin]\n{any}\n[documents]\n{documents}[docs]\n{any}\n");
        if let Some(User { hash }) = user {
            // It outlives the race.
            let user =
                format!("name = {NAME:?}\npassword_hash = {hash:?}\nroles = [\"view\", \"create\", \"modify\"]\n");
            config
                .push_str(&format!("[identity]\nmode = \"users\"\ntoken_seconds = 864000\n[[identity.user]]\n{user}"));
        }
        let file = folder.join("assent.toml");
        #[expect(clippy::disallowed_methods, reason = "a configuration of a process of the race, read once by it")]
        std::fs::write(&file, config).map_err(making)?;
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(&file);
        let mut server = Self::ready(program, &mut command, "docs=")?;
        if user.is_some() {
            let asked = json!({"grant_type": "password", "username": NAME, "password": PASSWORD}).to_string();
            let told =
                server.line()?.ask("POST", "/token", "Content-Type: application/json\r\n", asked.as_bytes(), 200)?;
            let told: Value = serde_json::from_slice(&told).unwrap_or_default();
            let token = told.get("access_token").and_then(Value::as_str).ok_or_else(|| wrong("no token was given"))?;
            server.headers = format!("Authorization: Bearer {token}\r\n");
        }
        Ok(server)
    }

    /// The floor: a constant answer of so many bytes.
    pub(super) fn floor(program: &Path, bytes: usize) -> Result<Self, BenchError> {
        let mut command = Command::new(program);
        let mut server = Self::ready(program, command.args(["bench", "web-floor", &bytes.to_string()]), "floor=")?;
        server.is_floor = true;
        Ok(server)
    }

    /// Starts it and waits for its line, in which `word` stands before where it listens.
    fn ready(program: &Path, command: &mut Command, word: &str) -> Result<Self, BenchError> {
        without_settings(command);
        command.env("ASSENT_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| not_started(&error))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            _ = BufReader::new(out).read_line(&mut line);
        }
        let at = line.split_whitespace().find_map(|part| part.strip_prefix(word)).and_then(|at| at.parse().ok());
        let program = program.to_owned();
        let at = at.ok_or_else(|| {
            _ = child.kill();
            _ = child.wait();
            not_started(&format!("it said {line:?}"))
        })?;
        Ok(Self { child, program, at, headers: String::new(), is_floor: false })
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn line(&self) -> Result<Line, BenchError> {
        Line::to(&self.at)
    }

    /// The head of a request to it.
    pub(super) fn head(&self, method: &str, path: &str, headers: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n{}{headers}",
            self.at, self.headers
        )
    }

    /// Runs a plan in a process of its own.
    pub(super) fn generate(&self, plan: &Plan) -> Result<Outcome, BenchError> {
        let plan = serde_json::to_vec(plan).map_err(|error| BenchError::new(Kind::Internal, error))?;
        let told = told(Command::new(&self.program).args(["bench", "web-load"]), &plan)?;
        serde_json::from_slice(&told).map_err(|error| wrong(format!("a generator said: {error}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn not_started(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("a process of the race did not start: {why}"))
}

/// Runs a program that reads this and ends; what it says.
fn told(command: &mut Command, said: &[u8]) -> Result<Vec<u8>, BenchError> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|error| not_started(&error))?;
    if let Some(mut into) = child.stdin.take() {
        // Where it does not read, it says why.
        _ = into.write_all(said);
    }
    let output = child.wait_with_output().map_err(|error| not_started(&error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().last().unwrap_or_default().trim_start_matches("assent: ").to_owned();
    Err(BenchError::new(Kind::Unavailable, format!("a generator of the race failed: {why}")))
}
