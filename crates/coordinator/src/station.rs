//! The agent's place at one registered resource: a kept connection, and patience with a dead one.

use std::time::Duration;

use assent_ids::{NodeId, ResourceId, Xid};
use assent_kind::Kind;
use assent_world::Moment;
use assent_xa::{Connector, Native, Reply, Resource, Verb};

const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long to leave something alone after so many failures in a row.
pub(crate) fn patience(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    PAUSE_MIN.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

pub(crate) type Trouble = (Kind, Native);

pub(crate) struct Station {
    pub(crate) id: ResourceId,
    connector: Box<dyn Connector>,
    link: Option<Box<dyn Resource>>,
    failures: u32,
    not_before: Moment,
    trouble: Option<Trouble>,
    /// Whether the connection is a kept one: it may have died while nobody looked.
    is_kept: bool,
}

impl Station {
    pub(crate) fn new(connector: Box<dyn Connector>) -> Self {
        let id = ResourceId::of(connector.name());
        Self { id, connector, link: None, failures: 0, not_before: Moment(0), trouble: None, is_kept: false }
    }

    pub(crate) fn name(&self) -> &str {
        self.connector.name()
    }

    /// Why it cannot be asked now.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.clone()
    }

    /// Puts the question on its way, unless the resource is left alone for now. Answered by [`Station::listed`].
    pub(crate) fn ask(&mut self, node: NodeId, now: Moment) -> bool {
        self.is_kept = self.link.is_some();
        if self.link.is_none() && (now < self.not_before || !self.connect(now)) {
            return false;
        }
        match &mut self.link {
            Some(link) => link.send(Verb::Recover(node)),
            None => return false,
        }
        true
    }

    /// What it lists.
    pub(crate) fn listed(&mut self, node: NodeId, now: Moment) -> Option<Vec<Xid>> {
        match self.link.as_mut()?.receive() {
            Reply::Listed(list) => self.well(list),
            // The connection died since the last round: that is no reason to wait.
            Reply::Lost(_) if self.is_kept && self.connect(now) => {
                match self.link.as_mut()?.call(Verb::Recover(node)) {
                    Reply::Listed(list) => self.well(list),
                    other => self.failed(other, now),
                }
            }
            other => self.failed(other, now),
        }
    }

    /// Tells a branch. `None` if there is no connection (any more).
    pub(crate) fn tell(&mut self, verb: Verb, now: Moment) -> Option<Reply> {
        let reply = self.link.as_mut()?.call(verb);
        if let Reply::Lost(native) = &reply {
            self.fail((Kind::InDoubt, native.clone()), now);
        }
        Some(reply)
    }

    fn well(&mut self, list: Vec<Xid>) -> Option<Vec<Xid>> {
        self.failures = 0;
        self.trouble = None;
        Some(list)
    }

    fn connect(&mut self, now: Moment) -> bool {
        match self.connector.connect() {
            Ok(link) => {
                self.link = Some(link);
                self.is_kept = false;
                true
            }
            Err(trouble) => {
                self.fail(trouble, now);
                false
            }
        }
    }

    fn failed(&mut self, reply: Reply, now: Moment) -> Option<Vec<Xid>> {
        let trouble = match reply {
            Reply::Refused(kind, native) => (kind, native),
            Reply::Lost(native) => (Kind::Unavailable, native),
            other => {
                let message = format!("asked for its prepared branches it answered {}", other.name());
                (Kind::Internal, Native { code: String::new(), message })
            }
        };
        self.fail(trouble, now);
        None
    }

    fn fail(&mut self, trouble: Trouble, now: Moment) {
        self.link = None;
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.after(patience(self.failures));
        self.trouble = Some(trouble);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_and_has_an_end() {
        let ms: Vec<u128> = [1, 2, 3, 7, 8, u32::MAX].iter().map(|failures| patience(*failures).as_millis()).collect();
        assert_eq!(ms, [500, 1_000, 2_000, 30_000, 30_000, 30_000]);
    }
}
