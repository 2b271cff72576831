//! A resource that does nothing and says yes: for measuring, and for tests of those who call.
//!
//! Walk: `send` counts · `receive` waits out the delay, counted from `send` so that branches overlap, and answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_kind::Kind;
use assent_world::{Clock, Moment};
use assent_xa::{Connector, Native, Past, Reply, Resource, Verb, Vote};

/// How often each verb was sent to a dummy.
#[derive(Debug, Default)]
pub struct Calls {
    counts: [AtomicU64; 16],
}

impl Calls {
    /// How often this kind of verb was sent; its XID does not matter.
    #[must_use]
    pub fn of(&self, verb: &Verb) -> u64 {
        self.counts.get(place(verb)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// All verbs together.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

const fn place(verb: &Verb) -> usize {
    match verb {
        Verb::Start(_) => 0,
        Verb::End { .. } => 1,
        Verb::Prepare(_) => 2,
        Verb::Commit(_) => 3,
        Verb::CommitOnePhase(_) => 4,
        Verb::Rollback(_) => 5,
        Verb::Recover(_) => 6,
        Verb::Forget(_) => 7,
        Verb::Claim(_) => 8,
        Verb::Inquire { .. } => 9,
        Verb::Evict(_) => 10,
        Verb::Freed { .. } => 11,
        Verb::CommitLast { .. } => 12,
        Verb::Settle { .. } => 13,
        Verb::Rows { .. } => 14,
        Verb::Clear { .. } => 15,
    }
}

/// Says yes to everything.
#[derive(Debug)]
pub struct Dummy {
    name: String,
    vote: Vote,
    delay: Option<(Arc<dyn Clock>, Duration)>,
    calls: Arc<Calls>,
    sent: Option<(Verb, Option<Moment>)>,
}

impl Dummy {
    /// Votes yes and answers at once.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), vote: Vote::Yes, delay: None, calls: Arc::default(), sent: None }
    }

    /// Votes this from now on.
    #[must_use]
    pub fn voting(self, vote: Vote) -> Self {
        Self { vote, ..self }
    }

    /// Takes this long from `send` to the answer.
    #[must_use]
    pub fn taking(self, clock: Arc<dyn Clock>, delay: Duration) -> Self {
        Self { delay: Some((clock, delay)), ..self }
    }

    /// What it was asked, readable while somebody else drives it.
    #[must_use]
    pub fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }
}

impl Resource for Dummy {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        // A second verb before the answer is not done; the answer that is missing for it says so.
        if self.sent.is_none() {
            if let Some(count) = self.calls.counts.get(place(&verb)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let ready = self.delay.as_ref().map(|(clock, delay)| clock.now().after(*delay));
            self.sent = Some((verb, ready));
        }
    }

    fn receive(&mut self) -> Reply {
        let Some((verb, ready)) = self.sent.take() else {
            return Reply::Refused(Kind::Internal, unsent());
        };
        if let (Some((clock, _)), Some(ready)) = (&self.delay, ready) {
            clock.sleep(ready.since(clock.now()));
        }
        match verb {
            Verb::Prepare(_) => Reply::Vote(self.vote),
            Verb::Recover(_) => Reply::Listed(Vec::new()),
            Verb::Inquire { .. } => Reply::Past(Past::Forgotten),
            _ => Reply::Done,
        }
    }
}

/// What every adapter says when an answer is asked for and no verb is under way.
pub(crate) fn unsent() -> Native {
    Native { code: String::new(), message: "an answer was asked for, but no verb is under way".to_owned() }
}

/// Makes dummies that share their count.
#[derive(Debug)]
pub struct DummyConnector {
    name: String,
    calls: Arc<Calls>,
}

impl DummyConnector {
    /// Makes dummies of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), calls: Arc::default() }
    }

    /// What all of them were asked.
    #[must_use]
    pub fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }
}

impl Connector for DummyConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        Ok(Box::new(Dummy { calls: self.calls(), ..Dummy::new(&self.name) }))
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{NodeId, Xid};

    use super::*;

    #[test]
    fn it_says_yes_and_counts() {
        let xid = Xid::new(1, b"g", b"b").unwrap();
        let mut dummy = Dummy::new("nothing").voting(Vote::ReadOnly);
        assert_eq!(dummy.call(Verb::Start(xid)), Reply::Done);
        assert_eq!(dummy.call(Verb::Prepare(xid)), Reply::Vote(Vote::ReadOnly));
        assert_eq!(dummy.call(Verb::Recover(NodeId(1))), Reply::Listed(Vec::new()));
        let calls = dummy.calls();
        assert_eq!((calls.of(&Verb::Start(xid)), calls.of(&Verb::Commit(xid)), calls.all()), (1, 0, 3));
    }

    #[test]
    fn a_missing_verb_is_told_and_a_second_one_is_not_done() {
        let xid = Xid::new(1, b"g", b"b").unwrap();
        let mut dummy = Dummy::new("nothing");
        assert!(matches!(dummy.receive(), Reply::Refused(Kind::Internal, _)));
        dummy.send(Verb::Prepare(xid));
        dummy.send(Verb::Commit(xid));
        assert_eq!(dummy.receive(), Reply::Vote(Vote::Yes));
        assert!(matches!(dummy.receive(), Reply::Refused(Kind::Internal, _)));
        assert_eq!(dummy.calls().of(&Verb::Commit(xid)), 0);
    }

    /// A clock that moves only when somebody sleeps on it.
    #[derive(Debug, Default)]
    struct HandClock(AtomicU64);

    impl Clock for HandClock {
        fn now(&self) -> Moment {
            Moment(self.0.load(Ordering::Relaxed))
        }
        fn wall_ms(&self) -> u64 {
            0
        }
        fn sleep(&self, pause: Duration) {
            self.0.fetch_add(u64::try_from(pause.as_micros()).unwrap(), Ordering::Relaxed);
        }
        fn boot_id(&self) -> u128 {
            1
        }
    }

    #[test]
    fn the_delay_runs_from_the_sending_so_that_branches_overlap() {
        let clock: Arc<dyn Clock> = Arc::new(HandClock::default());
        let delay = Duration::from_millis(30);
        let mut dummies = ["a", "b", "c"].map(|name| Dummy::new(name).taking(Arc::clone(&clock), delay));
        let xid = Xid::new(1, b"g", b"b").unwrap();
        dummies.iter_mut().for_each(|dummy| dummy.send(Verb::Commit(xid)));
        assert!(dummies.iter_mut().all(|dummy| dummy.receive() == Reply::Done));
        assert_eq!(clock.now(), Moment(30_000), "sent together, waited for once");
    }
}
