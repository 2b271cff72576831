//! etcd as the arbiter: one key a group, asked through the JSON gateway of its third interface.
//!
//! Walk: a read is a linearizable range · a change reads first, then puts in a transaction that compares the revision of
//! what was read · a watch asks again until the version is another one.
//! The version and the epoch are numbers inside the value; etcd's revision is only what the comparison is made with.
//! Deliberately absent: leases (the fence needs none), streamed watches, TLS and users.

use std::sync::Arc;
use std::time::Duration;

use assent_membership::Configuration;
use assent_world::Clock;
use assent_world::net::Address;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::arbiter::{Arbiter, ArbiterError, GroupName};
use crate::{http, text};

/// How far apart a watch asks.
const POLL: Duration = Duration::from_millis(50);

/// A group's configuration in etcd.
#[derive(Debug)]
pub struct Etcd {
    at: Address,
    key: String,
    clock: Arc<dyn Clock>,
    limit: Duration,
}

/// What stands under the key: the configuration, and the revision of its last change.
type Held = (Configuration, u64);

impl Etcd {
    /// Asks there, under `assent/GROUP`; one question takes at most `limit`.
    #[must_use]
    pub fn new(at: Address, group: &GroupName, clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self { at, key: format!("assent/{group}"), clock, limit }
    }

    fn range(&self) -> Result<Held, ArbiterError> {
        let asked = json!({"key": self.key()});
        match http::post(&self.at, "/v3/kv/range", &asked.to_string(), &*self.clock, self.limit) {
            Ok((200, body)) => self.held(&self.json(&body)?),
            Ok((status, body)) => Err(self.unavailable(said(status, &body))),
            Err(lost) => Err(self.unavailable(lost.why)),
        }
    }

    fn key(&self) -> String {
        STANDARD.encode(&self.key)
    }

    fn json(&self, body: &[u8]) -> Result<Value, ArbiterError> {
        serde_json::from_slice(body).map_err(|error| self.damaged(format!("an answer that is no JSON: {error}")))
    }

    /// The first key of a range's answer.
    fn held(&self, range: &Value) -> Result<Held, ArbiterError> {
        let Some(found) = range.get("kvs").and_then(|all| all.get(0)) else { return Ok(Held::default()) };
        let revision = found.get("mod_revision").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let value = found.get("value").and_then(Value::as_str).unwrap_or_default();
        let value = STANDARD.decode(value).map_err(|error| self.damaged(format!("no base64: {error}")))?;
        let revision = revision.ok_or_else(|| self.damaged("a key without a revision".to_owned()))?;
        Ok((text::read(&value).map_err(|why| self.damaged(why))?, revision))
    }

    /// It says that it has no room: before it did anything, or when it had done it all the same. It is over either way, so what it
    /// holds now tells.
    fn without_room(&self, expect: u64, to: &Configuration, why: String) -> Result<Configuration, ArbiterError> {
        let at = format!("etcd://{}", self.at);
        match self.range() {
            Ok((held, _)) if held == *to || held.version != expect => Ok(held),
            Ok(_) => Err(ArbiterError::Refused { at, why }),
            Err(_) => Err(ArbiterError::InDoubt { at, why }),
        }
    }

    fn unavailable(&self, why: String) -> ArbiterError {
        ArbiterError::Unavailable { at: format!("etcd://{}", self.at), why }
    }

    fn damaged(&self, why: String) -> ArbiterError {
        ArbiterError::Damaged { place: format!("etcd://{} {}", self.at, self.key), why }
    }
}

impl Arbiter for Etcd {
    fn read(&self) -> Result<Configuration, ArbiterError> {
        self.range().map(|(held, _)| held)
    }

    fn change(&self, expect: u64, to: &Configuration) -> Result<Configuration, ArbiterError> {
        if to.version <= expect {
            return Err(ArbiterError::Version { expect, to: to.version });
        }
        let (held, revision) = self.range()?;
        if held.version != expect || !to.can_follow(&held) {
            return Ok(held);
        }
        // A key that is not there has revision 0.
        let asked = json!({
            "compare": [{"key": self.key(), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()}],
            "success": [{"request_put": {"key": self.key(), "value": STANDARD.encode(text::write(to))}}],
            "failure": [{"request_range": {"key": self.key()}}],
        });
        let doubt = |why| ArbiterError::InDoubt { at: format!("etcd://{}", self.at), why };
        let body = match http::post(&self.at, "/v3/kv/txn", &asked.to_string(), &*self.clock, self.limit) {
            Ok((200, body)) => body,
            Ok((status, body)) if is_without_room(&body) => return self.without_room(expect, to, said(status, &body)),
            // Also a time-out inside of etcd, which may be done later.
            Ok((status, body)) => return Err(doubt(said(status, &body))),
            Err(lost) if lost.sent => return Err(doubt(lost.why)),
            Err(lost) => return Err(self.unavailable(lost.why)),
        };
        let answer: Value = serde_json::from_slice(&body).map_err(|error| doubt(format!("no JSON: {error}")))?;
        if answer.get("succeeded").and_then(Value::as_bool) == Some(true) {
            return Ok(to.clone());
        }
        let range = answer.get("responses").and_then(|all| all.get(0)).and_then(|one| one.get("response_range"));
        let range = range.ok_or_else(|| doubt("an answer that says neither yes nor no".to_owned()))?;
        self.held(range).map(|(held, _)| held)
    }

    fn watch(&self, seen: u64, at_most: Duration) -> Result<Configuration, ArbiterError> {
        let end = self.clock.now().after(at_most);
        loop {
            let held = self.read()?;
            let left = end.since(self.clock.now());
            if held.version != seen || left.is_zero() {
                return Ok(held);
            }
            self.clock.sleep(left.min(POLL));
        }
    }
}

/// The one exhausted resource that a member waits for a person with; other ones, and time-outs, say nothing of what was done.
fn is_without_room(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("database space exceeded")
}

fn said(status: u16, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    format!("status {status}: {text}")
}
