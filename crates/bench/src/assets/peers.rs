//! Other people's servers in the same rows: Redis with a replica that is waited for, and etcd.
//!
//! ```text
//!   redis-received   appendfsync no,     a pair: INCRBY.. and WAIT 1 for each write; alone: INCRBY
//!   redis-durable    appendfsync always, the same
//!   etcd             alone: one member; a pair: three, as it has no pairs. Its JSON gateway: one put a request. Always durable
//! ```
//! Walk: [`open`] starts a peer over an empty folder, and returns when it takes commands · [`executed`] asks it in the end what it has done.
//! Deliberately absent: tuning beyond what makes the promises the same; a network in between.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use assent_kind::Kind;
use assent_world::net::{Address, Stream};
use assent_world::{Clock as _, RealClock};

use super::load::PATIENCE;
use super::place::{Network, Process, Subject, free};
use super::speech::{Speech, base64, body, key, post, resp};
use super::{Role, failed};
use crate::BenchError;

const READY_AT_MOST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
const ETCD_MEMBERS: usize = 3;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// In the memory of both, or in its own.
    RedisReceived,
    /// On the disk of both, or on its own.
    RedisDurable,
    /// On the disks of a majority.
    Etcd,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RedisReceived, Self::RedisDurable, Self::Etcd];

    /// Its name in a report, in the place of an acknowledgement.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RedisReceived => "redis-received",
            Self::RedisDurable => "redis-durable",
            Self::Etcd => "etcd",
        }
    }

    /// The peer of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }
}

/// Starts a peer; returns when it takes commands.
pub(super) fn open(peer: Peer, network: Network, folder: &Path, role: Role) -> Result<Subject, BenchError> {
    let (speech, names): (Speech, &[&'static str]) = match (peer, role) {
        (Peer::Etcd, Role::Solo) => (Speech::Etcd, &["server"]),
        (Peer::Etcd, Role::Pair) => (Speech::Etcd, &["primary", "standby", "standby"]),
        (_, Role::Solo) => (Speech::Redis { replicas: 0 }, &["server"]),
        (_, Role::Pair) => (Speech::Redis { replicas: 1 }, &["primary", "standby"]),
    };
    let mut subject = Subject {
        ack: peer.name().to_owned(),
        at: free()?,
        nodes: Vec::new(),
        speech,
        processes: Vec::new(),
        proxies: network.proxies,
    };
    if peer == Peer::Etcd {
        etcd(&mut subject, folder, names)?
    } else {
        redis(&mut subject, peer, folder, names)?
    }
    until_ready(&mut subject)?;
    Ok(subject)
}

fn port(at: &Address) -> String {
    if let Address::Tcp { port, .. } = at { port.to_string() } else { String::new() }
}

fn spawn(name: &'static str, program: &str, words: &[String], package: &str) -> Result<Process, BenchError> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let missing = |error| failed(&format!("starting {program} (apt-get install {package})"), &error);
    Ok(Process { name, child: command.spawn().map_err(missing)?, told: Vec::new() })
}

fn make(folder: &Path) -> Result<String, BenchError> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))?;
    Ok(folder.display().to_string())
}

fn redis(subject: &mut Subject, peer: Peer, folder: &Path, names: &[&'static str]) -> Result<(), BenchError> {
    let sync = if peer == Peer::RedisDurable { "always" } else { "no" };
    let first = port(&subject.at);
    for (number, name) in names.iter().enumerate() {
        let at = if number == 0 { subject.at.clone() } else { free()? };
        let data = make(&folder.join(format!("redis-{number}")))?;
        let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", sync];
        let mut words: Vec<String> = fixed.map(str::to_owned).to_vec();
        words.extend(["--port".to_owned(), port(&at), "--dir".to_owned(), data]);
        // Without it the replica is sent the state only after five seconds.
        words.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
        if number > 0 {
            words.extend(["--replicaof".to_owned(), "127.0.0.1".to_owned(), first.clone()]);
        }
        subject.processes.push(spawn(name, "redis-server", &words, "redis-server")?);
        subject.nodes.push(at);
    }
    Ok(())
}

fn etcd(subject: &mut Subject, folder: &Path, names: &[&'static str]) -> Result<(), BenchError> {
    debug_assert!(names.len() <= ETCD_MEMBERS, "a member has a name");
    let peers = names.iter().map(|_| free()).collect::<Result<Vec<_>, _>>()?;
    let url = |at: &Address| format!("http://{at}");
    let cluster: Vec<String> = peers.iter().enumerate().map(|(number, at)| format!("m{number}={}", url(at))).collect();
    for (number, (name, peer)) in names.iter().zip(&peers).enumerate() {
        let at = if number == 0 { subject.at.clone() } else { free()? };
        let data = make(&folder.join(format!("etcd-{number}")))?;
        let words = [
            ("--name", format!("m{number}")),
            ("--data-dir", data),
            ("--listen-client-urls", url(&at)),
            ("--advertise-client-urls", url(&at)),
            ("--listen-peer-urls", url(peer)),
            ("--initial-advertise-peer-urls", url(peer)),
            ("--initial-cluster", cluster.join(",")),
        ];
        let words: Vec<String> = words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        subject.processes.push(spawn(name, "etcd", &words, "etcd-server")?);
        subject.nodes.push(at);
    }
    Ok(())
}

/// Asks once, and takes the answer as far as `whole` wants it.
fn ask<T>(at: &Address, request: &[u8], whole: impl Fn(&[u8]) -> Result<Option<T>, String>) -> Result<T, BenchError> {
    let stream = Stream::connect(at, PATIENCE).and_then(|stream| {
        stream.set_timeouts(Some(PATIENCE), Some(PATIENCE))?;
        (&stream).write_all(request)?;
        Ok(stream)
    });
    let stream = stream.map_err(|error| failed("asking a peer", &error))?;
    let (mut inbox, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match whole(&inbox) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(what) => return Err(BenchError::new(Kind::Unavailable, format!("a peer answers {what}"))),
        }
        match (&stream).read(&mut buffer).map_err(|error| failed("asking a peer", &error))? {
            0 => return Err(BenchError::new(Kind::Unavailable, "a peer closed its connection")),
            read => inbox.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// One write to something that is no asset of the race, until it is answered as the race asks.
fn until_ready(subject: &mut Subject) -> Result<(), BenchError> {
    let until = RealClock.now().after(READY_AT_MOST);
    loop {
        let tried = match subject.speech {
            Speech::Redis { replicas } => {
                let words = [resp(&["INCRBY", "ready", "1"]), resp(&["WAIT", &replicas.to_string(), "100"])].concat();
                let least = |bytes: &[u8]| {
                    let Some(first) = subject.speech.answer(bytes, false)? else { return Ok(None) };
                    subject.speech.answer(bytes.get(first.bytes..).unwrap_or_default(), true)
                };
                ask(&subject.at, &words, least).map(|_| ())
            }
            _ => {
                let put = format!(r#"{{"key":"{}","value":"MQ=="}}"#, base64("ready"));
                ask(&subject.at, &post("/v3/kv/put", &put), |bytes| body(bytes).map(|body| body.map(|_| ())))
            }
        };
        let Err(error) = tried else { return Ok(()) };
        for process in &mut subject.processes {
            if let Ok(Some(status)) = process.child.try_wait() {
                let message = format!("{} did not start: {status}", subject.ack);
                return Err(BenchError::new(Kind::Unavailable, message));
            }
        }
        if RealClock.now() >= until {
            return Err(error);
        }
        RealClock.sleep(LOOK);
    }
}

/// What a peer has done in the race: the sum of its counters, or of the versions of its keys; of a replica the same.
pub(super) fn executed(subject: &Subject, assets: u64) -> Result<u64, BenchError> {
    if subject.speech == Speech::Etcd {
        let (first, last) = (base64("asset:"), base64("asset;"));
        let range = format!(r#"{{"key":"{first}","range_end":"{last}"}}"#);
        let owned = |bytes: &[u8]| body(bytes).map(|body| body.map(|(body, _)| body));
        let found = ask(&subject.at, &post("/v3/kv/range", &range), owned)?;
        return versions(&found).ok_or_else(|| BenchError::new(Kind::Internal, "etcd lists no versions"));
    }
    let keys: Vec<String> = (0..assets).map(key).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let mut sums = Vec::new();
    for node in &subject.nodes {
        sums.push(ask(node, &resp(&words), |bytes| counters(bytes, keys.len()))?);
    }
    match sums.as_slice() {
        [sum, rest @ ..] if rest.iter().all(|other| other == sum) => Ok(*sum),
        _ => Err(BenchError::new(Kind::Corrupt, format!("the peer's nodes say {sums:?} commands"))),
    }
}

/// The sum of an array of so many numbers, if it is whole.
fn counters(bytes: &[u8], count: usize) -> Result<Option<u64>, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split_inclusive("\r\n").map(|line| line.strip_suffix("\r\n"));
    match lines.next().flatten() {
        None => return Ok(None),
        Some(head) if head == format!("*{count}") => {}
        Some(other) => return Err(format!("{other:?}")),
    }
    let mut sum = 0;
    for _ in 0..count {
        let Some(length) = lines.next().flatten() else { return Ok(None) };
        if length == "$-1" {
            continue;
        }
        let Some(number) = lines.next().flatten() else { return Ok(None) };
        sum += number.parse::<u64>().map_err(|_| format!("{number:?}"))?;
    }
    Ok(Some(sum))
}

fn versions(json: &[u8]) -> Option<u64> {
    let found: serde_json::Value = serde_json::from_slice(json).ok()?;
    let Some(keys) = found.get("kvs").and_then(|keys| keys.as_array()) else { return Some(0) };
    keys.iter().map(|key| key.get("version")?.as_str()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_has_done_is_summed_when_all_of_it_is_there() {
        assert_eq!(counters(b"*3\r\n$2\r\n40\r\n$-1\r\n$1\r\n2\r\n", 3), Ok(Some(42)));
        assert_eq!(counters(b"*3\r\n$2\r\n40\r\n$-1\r\n$1\r\n2", 3), Ok(None));
        assert!(counters(b"-ERR no\r\n", 3).is_err());
        assert_eq!(versions(br#"{"kvs":[{"key":"a","version":"40"},{"key":"b","version":"2"}]}"#), Some(42));
        assert_eq!(versions(br#"{"header":{}}"#), Some(0));
        assert!(Peer::ALL.iter().all(|peer| Peer::named(peer.name()) == Some(*peer)));
    }
}
