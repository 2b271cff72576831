//! A server killed by SIGKILL under 32 HTTP writers, each request with an idempotency key: what was acknowledged is done, what is
//! asked again because its answer was lost is done once, and a document and a key that belong together are there together.
//!
//! Each writer has a document of its own (a list), every eighth writes to one that four share, and counts its steps. A step appends its
//! number to the list, by a patch or an insert, or together with a key that must not be there yet, in one transaction; or it only puts such
//! a key. Done twice, a number is there twice, or a key is refused. A step whose answer is lost is sent again, byte for byte, until
//! it is answered, and the last one that was answered now and then, too.
//! `ASSENT_KILLS` kills (4), and as many more as `ASSENT_KILLS_SECONDS` give time for.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_world::{Clock as _, Dice as _, RealClock, RealDice};
use serde_json::{Value, json};

use super::assent::write;
use super::served::{Served, serve};

const WRITERS: u64 = 32;
/// How long a step may be asked for, again and again.
const PATIENCE: Duration = Duration::from_secs(120);

fn configure(folder: &Path) {
    let text = "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[docs]\nlisten = \"127.0.0.1:0\"\n\
                [coordinator]\n[kv]\nlog_size = 4194304\nmemory_bytes = 65536\n[documents]\nlog_size = 4194304\nmemory_bytes = 65536\n\
                [[resource]]\nname = \"keys\"\nkind = \"own\"\nurl = \"kv\"\n\
                [[resource]]\nname = \"documents\"\nkind = \"own\"\nurl = \"docs\"\n";
    write(&folder.join("assent.toml"), text);
}

/// One request, and what it is answered; none if the server is gone meanwhile.
fn ask(address: &str, head: &str, body: &str) -> Option<(u16, String, String)> {
    #[allow(clippy::disallowed_methods, reason = "a test is a client of its own")]
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let request = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    // An answer that was cut is none.
    let told = head.to_ascii_lowercase();
    let length =
        told.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |it| it.parse().unwrap());
    if body.len() < length {
        return None;
    }
    Some((head.split(' ').nth(1).unwrap().parse().unwrap(), told, body.to_owned()))
}

#[derive(Debug)]
struct Writer {
    number: u64,
    step: u64,
    /// The steps that were answered.
    done: Vec<u64>,
    /// How often an answer was told again.
    again: u64,
}

/// A step as it is sent: whether to the documents' listener, the head and the body.
struct Step {
    to_documents: bool,
    head: String,
    body: String,
}

impl Writer {
    fn document(&self) -> String {
        if self.number.is_multiple_of(8) { "kills/shared".to_owned() } else { format!("kills/w{}", self.number) }
    }

    /// A number that nobody else writes.
    fn value(&self, step: u64) -> u64 {
        step * 100 + self.number
    }

    fn key(&self, step: u64) -> String {
        format!("w{}/{step}", self.number)
    }

    fn step(&self, step: u64) -> Step {
        let (document, value, key) = (self.document(), self.value(step), self.key(step));
        let push = json!([{"op": "add", "path": "/-", "value": value}]);
        let name = format!("idempotency-key: {key}");
        let (to_documents, head, body) = match step % 4 {
            0 => {
                let head = format!("PATCH /{document} HTTP/1.1\r\ncontent-type: application/json-patch+json\r\n{name}");
                (true, head, push.to_string())
            }
            1 => (true, format!("POST /{document} HTTP/1.1\r\nprefer: return=minimal\r\n{name}"), value.to_string()),
            2 => {
                let put = json!({"key": key, "value": value.to_string(), "if": "absent"});
                let body = json!({"commit": true, "writes": [put, {"document": document, "patch": push}]});
                (false, format!("POST /v1/transactions HTTP/1.1\r\n{name}"), body.to_string())
            }
            _ => {
                let head = format!("PUT /v1/keys/0/{key} HTTP/1.1\r\nif-none-match: *\r\n{name}");
                (false, head, value.to_string())
            }
        };
        Step { to_documents, head, body }
    }

    /// Sends a step until it is answered; false if the server is gone.
    fn send(&mut self, step: u64, served: &Served) -> bool {
        let Step { to_documents, head, body } = self.step(step);
        let address = if to_documents { served.docs.as_ref().unwrap() } else { &served.admin };
        let until = RealClock.now().after(PATIENCE);
        loop {
            let Some((status, head, body)) = ask(address, &head, &body) else { return false };
            match status {
                200 | 201 | 204 => {
                    self.again += u64::from(head.contains("idempotency-replayed"));
                    return true;
                }
                // Somebody else has the document, the same is under way, recovery is not done yet, it waited too long.
                409 | 429 | 503 | 504 => assert!(RealClock.now() < until, "{} of {self:?}: {body}", self.key(step)),
                _ => panic!("{status} to {} of {self:?}: {body}", self.key(step)),
            }
            RealClock.sleep(Duration::from_millis(2));
        }
    }

    /// Works until the server is gone.
    fn works(&mut self, served: &Served, answers: &AtomicU64) {
        loop {
            if !self.send(self.step, served) {
                return;
            }
            self.done.push(self.step);
            answers.fetch_add(1, Ordering::Relaxed);
            self.step += 1;
            // Whoever asks once more for what he was told already.
            if self.step.is_multiple_of(5) && !self.send(self.step - 1, served) {
                return;
            }
        }
    }

    /// What is there, held against what was answered.
    fn check(&self, lists: &dyn Fn(&str) -> Vec<u64>, key: &dyn Fn(&str) -> Option<String>) {
        let list = lists(&self.document());
        for step in (0..self.step + 1).filter(|step| step % 4 < 3) {
            let many = list.iter().filter(|value| **value == self.value(step)).count();
            let is_done = self.done.contains(&step);
            assert!(
                many == 1 || (many == 0 && !is_done),
                "step {step}, answered: {is_done}, is there {many} times: {self:?}"
            );
        }
        for step in (0..self.step + 1).filter(|step| step % 4 >= 2) {
            let found = key(&self.key(step));
            let is_right = found.as_ref().is_none_or(|found| *found == self.value(step).to_string());
            assert!(is_right && (found.is_some() || !self.done.contains(&step)), "step {step}: {found:?} {self:?}");
            if step % 4 == 2 {
                assert_eq!(found.is_some(), list.contains(&self.value(step)), "half of step {step}: {self:?}");
            }
        }
        let own: Vec<u64> = list.iter().filter(|value| *value % 100 == self.number).copied().collect();
        assert!(own.iter().all(|value| value / 100 <= self.step), "what nobody sent: {self:?}");
    }
}

fn from_environment(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("{name} = {text:?}")))
}

#[test]
fn a_server_killed_under_32_http_writers_does_each_request_once() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path());
    let served = serve(folder.path());
    let docs = served.docs.clone().unwrap();
    let mut writers: Vec<Writer> =
        (0..WRITERS).map(|number| Writer { number, step: 0, done: Vec::new(), again: 0 }).collect();
    for writer in &writers {
        let made = ask(&docs, &format!("PUT /{} HTTP/1.1", writer.document()), "[]").unwrap().0;
        assert!(matches!(made, 200 | 201), "{made}");
    }
    served.stop();
    let until = RealClock.now().after(Duration::from_secs(from_environment("ASSENT_KILLS_SECONDS", 0)));
    let least = from_environment("ASSENT_KILLS", 4);
    let (mut kills, mut answered) = (0, 0);
    while kills < least || RealClock.now() < until {
        let served = serve(folder.path());
        let answers = AtomicU64::new(0);
        let enough = 20 + RealDice.roll() % 300;
        let began = RealClock.now();
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (served, answers) = (&served, &answers);
                scope.spawn(move || writer.works(served, answers));
            }
            while answers.load(Ordering::Relaxed) < enough {
                assert!(RealClock.now().since(began) < 2 * PATIENCE, "nobody is answered");
                RealClock.sleep(Duration::from_millis(1));
            }
            served.signal(rustix::process::Signal::KILL);
        });
        drop(served);
        kills += 1;
        answered += answers.load(Ordering::Relaxed);
    }
    // Everybody's last step is answered; then nothing is in doubt, and everything is there once.
    let served = serve(folder.path());
    for writer in &mut writers {
        assert!(writer.send(writer.step, &served));
        writer.done.push(writer.step);
    }
    let docs = served.docs.clone().unwrap();
    let lists = |name: &str| {
        let (_, _, body) = ask(&docs, &format!("GET /{name} HTTP/1.1"), "").unwrap();
        let list: Vec<Value> = serde_json::from_str(&body).unwrap();
        list.iter().map(|value| value.as_u64().unwrap()).collect()
    };
    let key = |name: &str| {
        let (status, _, body) = ask(&served.admin, &format!("GET /v1/keys/0/{name} HTTP/1.1"), "").unwrap();
        (status == 200).then_some(body)
    };
    writers.iter().for_each(|writer| writer.check(&lists, &key));
    let again: u64 = writers.iter().map(|writer| writer.again).sum();
    println!("{kills} kills, {answered} acknowledged requests, {again} told again");
    assert!(again > 0);
    served.stop();
}
