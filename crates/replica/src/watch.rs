//! When something is due: the next tick, who has been silent for how long, how long one has waited.
//!
//! Deliberately absent: a clock. Times are handed in, in milliseconds of any monotonic clock of the member's own.

use std::collections::BTreeMap;

use assent_membership::Member;

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) now_ms: u64,
    /// When the next tick is due.
    due_ms: u64,
    /// Since when its role is what it is.
    since_ms: u64,
    heard_ms: BTreeMap<Member, u64>,
}

impl Watch {
    pub(crate) const fn new(now_ms: u64) -> Self {
        Self { now_ms, due_ms: now_ms, since_ms: now_ms, heard_ms: BTreeMap::new() }
    }

    pub(crate) const fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// It is so late. Who was not asked for so long that everybody would seem silent was asleep himself: the others may
    /// have spoken, and are given their time again.
    pub(crate) fn look(&mut self, now_ms: u64, silent_ms: u64) {
        let slept = now_ms.saturating_sub(self.now_ms) >= silent_ms;
        self.now_ms = self.now_ms.max(now_ms);
        if slept {
            self.heard_ms.clear();
            self.since_ms = self.now_ms;
        }
    }

    /// Whether a tick is due; the next one is, that much later.
    pub(crate) fn tick(&mut self, tick_ms: u64) -> bool {
        let due = self.now_ms >= self.due_ms;
        if due {
            self.due_ms = self.now_ms.saturating_add(tick_ms);
        }
        due
    }

    /// Its role is another one: everybody is given time.
    pub(crate) fn begin(&mut self) {
        self.heard_ms.clear();
        self.since_ms = self.now_ms;
    }

    /// A member has said what it should.
    pub(crate) fn heard(&mut self, member: Member) {
        self.heard_ms.insert(member, self.now_ms);
    }

    /// How long a member has not said what it should.
    pub(crate) fn silence_ms(&self, member: Member) -> u64 {
        let heard = self.heard_ms.get(&member).copied().unwrap_or(0).max(self.since_ms);
        self.now_ms.saturating_sub(heard)
    }

    /// How long its role has been what it is.
    pub(crate) const fn waited_ms(&self) -> u64 {
        self.now_ms.saturating_sub(self.since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: Member = Member(1);

    #[test]
    fn silence_is_counted_from_the_last_word_and_from_the_last_change_of_role() {
        let mut watch = Watch::new(1_000);
        assert!(watch.tick(20) && !watch.tick(20));
        watch.look(1_100, 150);
        assert_eq!(watch.silence_ms(B), 100);
        watch.heard(B);
        watch.look(1_160, 150);
        assert_eq!((watch.silence_ms(B), watch.waited_ms()), (60, 160));
        watch.begin();
        assert_eq!((watch.silence_ms(B), watch.waited_ms()), (0, 0));
    }

    #[test]
    fn who_was_asleep_calls_nobody_silent() {
        let mut watch = Watch::new(0);
        watch.look(9_000, 150);
        assert_eq!(watch.silence_ms(B), 0);
        watch.look(9_149, 150);
        assert_eq!(watch.silence_ms(B), 149);
    }
}
