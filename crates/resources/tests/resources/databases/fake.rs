//! A PostgreSQL server that lets everybody in and answers what it is told to: for what a real one does once in a year.
//!
//! Source: PostgreSQL's manual, "Frontend/Backend Protocol", message formats.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What to do with a statement; the others succeed.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    /// A result with one row for each statement of the message, tabs between its columns; `NULL` is nothing.
    Rows(&'static [&'static str]),
    /// Never answer.
    Hang,
    /// An error of this severity and SQLSTATE.
    Error(&'static str, &'static str),
    /// Close the connection.
    Close,
}

/// What it lets be known of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    /// It says of every answer's end that no transaction is open.
    Nothing,
    /// Whether one is.
    Open,
    /// That, and at the greeting the process that answers: so questions are kept prepared there.
    Process,
}

/// How the question begins that a vote asks.
pub(crate) const VOTES: &str = "SELECT pg_catalog.txid_current_if_assigned(), pg_catalog.txid_current()";

/// Every way, and how what votes in it begins: in both phases and in one.
pub(crate) const WAYS: [(Tells, [&str; 2]); 3] = [
    (Tells::Nothing, ["SAVEPOINT assent_vote", "SAVEPOINT assent_vote"]),
    (Tells::Open, [VOTES, "COMMIT"]),
    (Tells::Process, ["PREPARE TRANSACTION", "COMMIT"]),
];

/// The process in its greeting.
const PROCESS: u32 = 7;

/// What a connection asks before it is used, and the answers of a primary that prepares.
const USUAL: &[(&str, Behaviour)] = &[
    ("SHOW transaction_read_only", Behaviour::Rows(&["off"])),
    ("SHOW max_prepared_transactions", Behaviour::Rows(&["10", "f\t7"])),
];

/// Starts it; a statement behaves as the first entry says whose text it begins with. Gives its URL.
pub(crate) fn postgres(behaviours: &'static [(&'static str, Behaviour)]) -> String {
    postgres_that_hears(behaviours).0
}

/// The same, and every text that it has heard.
pub(crate) fn postgres_that_hears(
    behaviours: &'static [(&'static str, Behaviour)],
) -> (String, Arc<Mutex<Vec<String>>>) {
    start(behaviours.to_vec(), Tells::Nothing)
}

/// One that tells so much.
pub(crate) fn postgres_that_tells(tells: Tells, behaviours: &[(&'static str, Behaviour)]) -> String {
    start(behaviours.to_vec(), tells).0
}

fn start(behaviours: Vec<(&'static str, Behaviour)>, tells: Tells) -> (String, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    #[allow(clippy::disallowed_methods, reason = "a server outside of what is tested")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (hears, behaviours) = (Arc::clone(&hears), behaviours.clone());
            let served = Served { stream: stream.unwrap(), behaviours, tells, status: b'I' };
            std::thread::spawn(move || served.serve(&hears));
        }
    });
    (format!("postgresql://fake:secret@127.0.0.1:{port}/fake"), heard)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &bytes.to_be_bytes(), body].concat()
}

/// A row of one statement, and what its columns are.
fn row(values: &str) -> [Vec<u8>; 2] {
    let columns: Vec<&str> = values.split('\t').collect();
    let count = u16::try_from(columns.len()).unwrap().to_be_bytes();
    let (mut kinds, mut body) = (count.to_vec(), count.to_vec());
    for column in columns {
        kinds.extend([&b"value\0"[..], &[0; 18]].concat());
        match column {
            "NULL" => body.extend([0xff; 4]),
            column => {
                body.extend(u32::try_from(column.len()).unwrap().to_be_bytes());
                body.extend(column.as_bytes());
            }
        }
    }
    [message(b'T', &kinds), message(b'D', &body)]
}

/// One connection.
struct Served {
    stream: TcpStream,
    behaviours: Vec<(&'static str, Behaviour)>,
    tells: Tells,
    /// Of the transaction.
    status: u8,
}

impl Served {
    fn serve(mut self, hears: &Mutex<Vec<String>>) -> Option<()> {
        read_body(&mut self.stream)?;
        self.say(b'R', &0_u32.to_be_bytes())?;
        if self.tells == Tells::Process {
            self.say(b'K', &[PROCESS.to_be_bytes(), [0; 4]].concat())?;
        }
        self.ready()?;
        // The text that was prepared last; and whether all is skipped up to a Sync.
        let (mut prepared, mut skips) = (String::new(), false);
        loop {
            let mut kind = [0];
            self.stream.read_exact(&mut kind).ok()?;
            let body = String::from_utf8(read_body(&mut self.stream)?).ok()?;
            match kind[0] {
                b'S' => {
                    skips = false;
                    self.ready()?;
                }
                _ if skips => {}
                b'Q' => {
                    let sql = body.trim_end_matches('\0');
                    hears.lock().unwrap().push(sql.to_owned());
                    self.answer(sql, true)?;
                    self.ready()?;
                }
                // Only who knows its process has anything prepared here.
                _ if self.tells != Tells::Process => return None,
                b'C' => self.say(b'3', b"")?,
                b'P' => {
                    body.split('\0').nth(1)?.clone_into(&mut prepared);
                    self.say(b'1', b"")?;
                }
                b'B' => self.say(b'2', b"")?,
                b'E' => {
                    hears.lock().unwrap().push(prepared.clone());
                    skips = !self.answer(&prepared, false)?;
                }
                _ => return None,
            }
        }
    }

    /// Whether it went well; nothing if that was the end.
    fn answer(&mut self, sql: &str, is_text: bool) -> Option<bool> {
        let last = sql.rsplit("; ").next().unwrap_or_default();
        let word = last.split(' ').next().unwrap_or_default();
        let tag = if last.starts_with("PREPARE TRANSACTION") { "PREPARE TRANSACTION" } else { word };
        let behaviour = self
            .behaviours
            .iter()
            .chain(USUAL)
            .find(|(beginning, _)| sql.starts_with(beginning))
            .map(|(_, behaviour)| *behaviour);
        match behaviour {
            Some(Behaviour::Rows(values)) => {
                for value in values {
                    let [columns, row] = row(value);
                    let columns = if is_text { columns } else { Vec::new() };
                    self.stream.write_all(&[columns, row, message(b'C', b"SELECT 1\0")].concat()).ok()?;
                }
            }
            Some(Behaviour::Hang) => {
                // Until the other side gives up.
                let _ = self.stream.read(&mut [0]);
                return None;
            }
            Some(Behaviour::Error(severity, state)) => {
                let fields = format!("S{severity}\0V{severity}\0C{state}\0Mas told\0\0");
                self.say(b'E', fields.as_bytes())?;
                if self.status == b'T' {
                    self.status = b'E';
                }
                return (severity == "ERROR").then_some(false);
            }
            Some(Behaviour::Close) => return None,
            None => {
                self.say(b'C', format!("{tag}\0").as_bytes())?;
                match tag {
                    "COMMIT" | "ROLLBACK" | "PREPARE TRANSACTION" => self.status = b'I',
                    _ if sql.starts_with("BEGIN") => self.status = b'T',
                    _ => {}
                }
            }
        }
        Some(true)
    }

    fn ready(&mut self) -> Option<()> {
        let status = if self.tells == Tells::Nothing { b'I' } else { self.status };
        self.say(b'Z', &[status])
    }

    fn say(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        self.stream.write_all(&message(kind, body)).ok()
    }
}

fn read_body(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).ok()?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(bytes)).ok()?.checked_sub(4)?];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}
