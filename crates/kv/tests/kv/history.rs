//! What many threads did to one key each, and whether one order explains it: that of the log.
//!
//! Each write knows which version it replaced and which it made. So the versions of a key are a chain, and whoever was answered
//! before somebody else asked stands before him in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_ids::Lsn;

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A write replaced that version by this one.
    Replaced(Option<Lsn>, Lsn),
    /// A read, or a condition that did not hold, found that version.
    Found(Option<Lsn>),
}

/// One call: when it was made, when it was answered, and what.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub key: u8,
    pub asked: u64,
    pub answered: u64,
    pub answer: Answer,
}

/// Orders calls of all threads.
#[derive(Debug, Default)]
pub struct Time(AtomicU64);

impl Time {
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

impl Event {
    /// The version that its key had then.
    fn version(&self) -> u64 {
        match self.answer {
            Answer::Replaced(_, made) => made.0,
            Answer::Found(found) => found.map_or(0, |lsn| lsn.0),
        }
    }
}

/// Says why no order of the log explains the history of a key that is only ever written with a condition.
pub fn check(events: &[Event]) -> Result<(), String> {
    let mut keys: BTreeMap<u8, Vec<Event>> = BTreeMap::new();
    events.iter().for_each(|event| keys.entry(event.key).or_default().push(*event));
    keys.values().try_for_each(|events| check_key(events))
}

fn check_key(events: &[Event]) -> Result<(), String> {
    let mut made: BTreeMap<u64, Event> = BTreeMap::new();
    for event in events {
        if let Answer::Replaced(_, version) = event.answer
            && let Some(other) = made.insert(version.0, *event)
        {
            return Err(format!("{event:?} and {other:?} made one version"));
        }
    }
    let mut before = None;
    for event in made.values() {
        let Answer::Replaced(replaced, version) = event.answer else { continue };
        if replaced != before {
            return Err(format!("{event:?} replaced {replaced:?}, and {before:?} was there: a lost update"));
        }
        before = Some(version);
    }
    let mut by_answer: Vec<&Event> = events.iter().collect();
    by_answer.sort_by_key(|event| event.answered);
    let mut by_question: Vec<&Event> = events.iter().collect();
    by_question.sort_by_key(|event| event.asked);
    let (mut answered, mut newest) = (by_answer.into_iter().peekable(), 0);
    for event in by_question {
        while let Some(earlier) = answered.next_if(|earlier| earlier.answered < event.asked) {
            newest = newest.max(earlier.version());
        }
        let version = event.version();
        let writes = matches!(event.answer, Answer::Replaced(..));
        if version < newest || (writes && version == newest) {
            return Err(format!("{event:?} came after version {newest} was told"));
        }
        if version > 0 {
            let maker = made.get(&version).ok_or_else(|| format!("{event:?} found what nobody wrote"))?;
            if maker.asked > event.answered {
                return Err(format!("{event:?} found {maker:?} before it was asked for"));
            }
        }
    }
    Ok(())
}

fn event(asked: u64, answered: u64, answer: Answer) -> Event {
    Event { key: 0, asked, answered, answer }
}

#[test]
fn histories_that_no_order_explains_are_told() {
    use Answer::{Found, Replaced};
    let at = |lsn| Some(Lsn(lsn));
    let good = [event(0, 3, Replaced(None, Lsn(10))), event(1, 2, Found(None)), event(4, 5, Replaced(at(10), Lsn(20)))];
    assert_eq!(check(&good), Ok(()));
    for (bad, why) in [
        (event(6, 7, Found(at(10))), "came after version 20"),
        (event(6, 7, Replaced(at(10), Lsn(30))), "a lost update"),
        (event(6, 7, Replaced(at(20), Lsn(20))), "one version"),
        (event(6, 7, Found(at(25))), "what nobody wrote"),
        (event(0, 1, Found(at(20))), "before it was asked for"),
    ] {
        let history = [good[0], good[1], good[2], bad];
        let told = check(&history).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
}
