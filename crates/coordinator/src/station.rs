//! The agent's place at one registered resource: a kept connection that holds the claim, helpers for a crowd of branches,
//! and patience with a dead one.
//!
//! Walk: [`Station::ask`] and [`Station::listed`] · [`Station::tell`] one branch · [`Station::tell_all`] many, several at
//! a time · [`Station::rest`] lets the helpers go.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_ids::{NodeId, ResourceId, Xid};
use assent_kind::Kind;
use assent_world::Moment;
use assent_xa::{Connector, Native, Reply, Resource, Stay, Verb};

use crate::attended::{Claim, rivalled};

const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A resource that comes back is noticed by then: what it held up is finished within two seconds.
const UNREACHABLE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A killed predecessor's session may linger for a moment: asked again soon, then every second.
const RIVAL_PAUSE_MIN: Duration = Duration::from_millis(50);
const RIVAL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// More branches than this are told over several connections: fewer are done before those were open.
pub(crate) const CROWD: usize = 48;
/// Connections beside the kept one, while there is a crowd.
pub(crate) const HELPERS_MAX: usize = 4;

/// How long to leave something alone after so many failures in a row.
pub(crate) fn patience(failures: u32) -> Duration {
    doubled(PAUSE_MIN, failures, PAUSE_MAX)
}

fn doubled(first: Duration, failures: u32, most: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    first.saturating_mul(1 << doublings).min(most)
}

pub(crate) type Trouble = (Kind, Native);

pub(crate) struct Station {
    pub(crate) id: ResourceId,
    node: NodeId,
    connector: Box<dyn Connector>,
    /// Holds the claim, for as long as it lives.
    link: Option<Box<dyn Resource>>,
    helpers: Vec<Box<dyn Resource>>,
    failures: u32,
    not_before: Moment,
    trouble: Option<Trouble>,
    claim: Claim,
    /// Whether the connection is a kept one: it may have died while nobody looked.
    is_kept: bool,
    /// How many connections have had the claim.
    connections: u64,
}

impl Station {
    pub(crate) fn new(connector: Box<dyn Connector>, node: NodeId) -> Self {
        Self {
            id: ResourceId::of(connector.name()),
            node,
            connector,
            link: None,
            helpers: Vec::new(),
            failures: 0,
            not_before: Moment(0),
            trouble: None,
            claim: Claim::Unasked,
            is_kept: false,
            connections: 0,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.connector.name()
    }

    /// Why it cannot be asked now.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.clone()
    }

    /// How the claim stands since the last attempt.
    pub(crate) const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// When a refused claim is asked for again.
    pub(crate) const fn rival_until(&self) -> Option<Moment> {
        if matches!(self.claim, Claim::Theirs(_)) { Some(self.not_before) } else { None }
    }

    /// Whether the connection that rests has ended.
    pub(crate) fn is_cut_off(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| link.has_ended())
    }

    /// How often the resource came back, or its connection was made anew.
    pub(crate) const fn returns(&self) -> u64 {
        self.connections.saturating_sub(1)
    }

    /// Somebody is in a hurry: it is asked again at once, whatever it has done.
    pub(crate) const fn hurry(&mut self) {
        self.not_before = Moment(0);
    }

    /// Gives the claim up, and does not ask for it before that time.
    pub(crate) fn yield_to(&mut self, name: &str, now: Moment) {
        self.drop_links();
        // What could not be asked was nobody's to leave, and is asked before anything is taken.
        let was_ours = self.claim == Claim::Ours || self.claim.is_anothers();
        self.claim = if was_ours { Claim::Left } else { Claim::Unasked };
        self.not_before = now.after(RIVAL_PAUSE_MIN);
        self.trouble = Some((Kind::Conflict, Native { code: String::new(), message: rivalled(name) }));
    }

    /// A connection with the claim, unless the resource is left alone for now.
    pub(crate) fn open(&mut self, now: Moment) -> bool {
        self.is_kept = self.link.is_some();
        self.is_kept || (now >= self.not_before && self.connect(now))
    }

    /// Puts the question on its way, unless the resource is left alone for now. Answered by [`Station::listed`].
    pub(crate) fn ask(&mut self, now: Moment) -> bool {
        if !self.open(now) {
            return false;
        }
        match &mut self.link {
            Some(link) => link.send(Verb::Recover(self.node)),
            None => return false,
        }
        true
    }

    /// What it lists.
    pub(crate) fn listed(&mut self, now: Moment) -> Option<Vec<Xid>> {
        match self.link.as_mut()?.receive() {
            Reply::Listed(list) => self.well(list),
            // The connection died since the last round: that is no reason to wait.
            Reply::Lost(_) if self.is_kept && self.connect(now) => {
                match self.link.as_mut()?.call(Verb::Recover(self.node)) {
                    Reply::Listed(list) => self.well(list),
                    other => self.failed(other, now),
                }
            }
            other => self.failed(other, now),
        }
    }

    /// What that list says of each branch beside its name.
    pub(crate) fn stays(&mut self) -> BTreeMap<Xid, Stay> {
        self.link.as_mut().map(|link| link.stays()).unwrap_or_default()
    }

    /// Tells a branch. `None` if there is no connection (any more).
    pub(crate) fn tell(&mut self, verb: Verb, now: Moment) -> Option<Reply> {
        let reply = self.link.as_mut()?.call(verb);
        if let Reply::Lost(native) = &reply {
            self.fail((Kind::InDoubt, native.clone()), now);
        }
        Some(reply)
    }

    /// Tells many, over several connections if they are a crowd: sends to all, then receives from all. The answers are in
    /// the order of the verbs; `None` for those that nobody was there for any more. When the kept connection is lost the
    /// claim is lost with it, and nothing more is told. After each turn `pass` hears how many are told.
    pub(crate) fn tell_all(&mut self, verbs: Vec<Verb>, now: Moment, pass: impl Fn(usize)) -> Vec<Option<Reply>> {
        if verbs.len() > CROWD {
            self.call_helpers();
        }
        let mut replies = Vec::with_capacity(verbs.len());
        let mut verbs = verbs.into_iter().peekable();
        while verbs.peek().is_some() && self.link.is_some() {
            let links = self.link.iter_mut().chain(&mut self.helpers);
            let sent = links.zip(&mut verbs).map(|(link, verb)| link.send(verb)).count();
            let links = self.link.iter_mut().chain(&mut self.helpers).take(sent);
            let wave: Vec<Reply> = links.map(|link| link.receive()).collect();
            let mut lost = wave.iter().map(|reply| matches!(reply, Reply::Lost(_)));
            let (first, mut lost) = (lost.next() == Some(true), lost.collect::<Vec<bool>>().into_iter());
            // A helper that lost an answer is of no more use; the others go on.
            self.helpers.retain(|_| lost.next() != Some(true));
            if first && let Some(Reply::Lost(native)) = wave.first() {
                self.fail((Kind::InDoubt, native.clone()), now);
            }
            replies.extend(wave.into_iter().map(Some));
            pass(replies.len());
        }
        replies.extend(verbs.map(|_| None));
        replies
    }

    /// Nobody waits: the helpers' connections are given back.
    pub(crate) fn rest(&mut self) {
        self.helpers.clear();
    }

    /// A resource that has no room for more connections is asked over those it gave.
    fn call_helpers(&mut self) {
        while self.helpers.len() < HELPERS_MAX {
            match self.connector.connect() {
                Ok(link) => self.helpers.push(link),
                Err(_) => return,
            }
        }
    }

    fn well(&mut self, list: Vec<Xid>) -> Option<Vec<Xid>> {
        self.failures = 0;
        self.trouble = None;
        Some(list)
    }

    /// A connection, and the claim: no branch is touched without it.
    fn connect(&mut self, now: Moment) -> bool {
        self.drop_links();
        let mut link = match self.connector.connect() {
            Ok(link) => link,
            Err(trouble) => {
                self.fail(trouble, now);
                return false;
            }
        };
        match link.call(Verb::Claim(self.node)) {
            Reply::Done => {
                self.link = Some(link);
                self.claim = Claim::Ours;
                self.is_kept = false;
                self.connections = self.connections.saturating_add(1);
                true
            }
            Reply::Refused(Kind::Conflict, native) => {
                self.rival(native, now);
                false
            }
            other => {
                _ = self.failed(other, now);
                false
            }
        }
    }

    fn rival(&mut self, native: Native, now: Moment) {
        let failures = if matches!(self.claim, Claim::Theirs(_)) { self.failures.saturating_add(1) } else { 1 };
        self.failures = failures;
        self.not_before = now.after(doubled(RIVAL_PAUSE_MIN, failures, RIVAL_PAUSE_MAX));
        let message = format!("{} ({})", rivalled(self.name()), native.message);
        self.trouble = Some((Kind::Conflict, Native { code: native.code.clone(), message }));
        self.claim = Claim::Theirs(native);
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
        self.drop_links();
        // A rival is believed to be there until the resource itself says otherwise.
        if !self.claim.is_anothers() {
            self.claim = Claim::Unknown;
        }
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.after(doubled(PAUSE_MIN, self.failures, UNREACHABLE_PAUSE_MAX));
        self.trouble = Some(trouble);
    }

    fn drop_links(&mut self) {
        self.link = None;
        self.helpers.clear();
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
