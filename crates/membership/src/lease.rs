//! Reads without a round of messages: the primary's lease, and the standby's promise that it rests on.
//!
//! Walk: the primary notes when it sent a beat ([`Lease::asked`]) · whoever answers it promises not to ask for the lead for
//! that long ([`Promise::answered`]) · the answer extends the lease, counted from when the beat was *sent* · a read needs
//! [`Lease::holds`]; to call a primary silent needs [`Promise::is_over`].
//! The fence does not need it: a lease whose clocks run wilder than said shows old values, and never loses anything.
//! Deliberately absent: a clock. Times are handed in, in milliseconds of any monotonic clock of the member's own.

use std::collections::BTreeMap;

use crate::member::{InSync, Member};

const BEATS_KEPT_MAX: usize = 64;
const MILLION: u64 = 1_000_000;

/// The primary's side.
#[derive(Clone, Debug)]
pub struct Lease {
    /// What is asked of the others.
    asked_ms: u64,
    /// What may be relied on.
    length_ms: u64,
    sent: BTreeMap<u64, u64>,
    until: BTreeMap<Member, u64>,
}

impl Lease {
    /// Nothing granted. `drift_ppm`: how many millionths any clock may run faster or slower than true time.
    #[must_use]
    pub fn new(length_ms: u64, drift_ppm: u32) -> Self {
        // A slow clock here and a fast one there: both are taken off here. 2 rho covers (1 + rho) / (1 - rho).
        let off = u64::from(drift_ppm).saturating_mul(2).min(MILLION);
        let (asked_ms, length_ms) = (length_ms, length_ms.saturating_mul(MILLION - off) / MILLION);
        Self { asked_ms, length_ms, sent: BTreeMap::new(), until: BTreeMap::new() }
    }

    /// This beat is sent now.
    pub fn asked(&mut self, beat: u64, now_ms: u64) {
        self.sent.entry(beat).or_insert(now_ms);
        while self.sent.len() > BEATS_KEPT_MAX {
            self.sent.pop_first();
        }
    }

    /// This member has answered that beat, and promised so much. Less than is asked for is nothing: it was told something else.
    pub fn answered(&mut self, member: Member, beat: u64, promised_ms: u64) {
        if let Some(sent) = self.sent.get(&beat).filter(|_| promised_ms >= self.asked_ms) {
            let until = sent.saturating_add(self.length_ms);
            let known = self.until.entry(member).or_insert(0);
            *known = (*known).max(until);
        }
    }

    /// Whether nobody in the set can have been promoted by now.
    #[must_use]
    pub fn holds(&self, set: &InSync, me: Member, now_ms: u64) -> bool {
        set.iter().all(|(member, _)| member == me || self.until.get(&member).is_some_and(|until| now_ms < *until))
    }

    /// The lead is given away, or lost: nothing is granted any more.
    pub fn end(&mut self) {
        self.sent.clear();
        self.until.clear();
    }
}

/// The standby's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    length_ms: u64,
    until_ms: u64,
}

impl Promise {
    /// After a start: in an earlier life at most so much was promised at once. When is not known, so it is promised again.
    #[must_use]
    pub const fn at_start(length_ms: u64, earlier_ms: u64, now_ms: u64) -> Self {
        Self { length_ms, until_ms: now_ms.saturating_add(earlier_ms) }
    }

    /// A beat is answered now.
    pub fn answered(&mut self, now_ms: u64) {
        self.until_ms = self.until_ms.max(now_ms.saturating_add(self.length_ms));
    }

    /// Whether the lead may be asked for.
    #[must_use]
    pub const fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::member::Life;

    const A: Member = Member(0);
    const B: Member = Member(1);
    const LIFE: Life = Life { disk: 1, memory: 1 };

    fn pair() -> InSync {
        InSync::only(A, LIFE).with(B, LIFE)
    }

    #[test]
    fn a_lease_runs_from_when_its_beat_was_sent_not_from_its_answer() {
        let mut lease = Lease::new(100, 0);
        assert!(lease.holds(&InSync::only(A, LIFE), A, 0), "alone nobody else can be promoted");
        lease.asked(1, 1_000);
        assert!(!lease.holds(&pair(), A, 1_000));
        lease.answered(B, 1, 99);
        assert!(!lease.holds(&pair(), A, 1_000), "who promises less is not relied on");
        lease.answered(B, 1, 100);
        assert!(lease.holds(&pair(), A, 1_099) && !lease.holds(&pair(), A, 1_100));
        lease.answered(B, 2, 100);
        assert!(!lease.holds(&pair(), A, 1_100), "a beat that was never sent grants nothing");
        lease.end();
        assert!(!lease.holds(&pair(), A, 1_050));
    }

    #[test]
    fn a_restarted_standby_keeps_what_it_may_have_promised() {
        let mut promise = Promise::at_start(100, 100, 5_000);
        assert!(!promise.is_over(5_099) && promise.is_over(5_100));
        // Told of none now, it keeps what it promised before; told of a shorter one, the longer one once more.
        assert!(!Promise::at_start(0, 100, 5_000).is_over(5_099) && Promise::at_start(0, 0, 5_000).is_over(5_000));
        assert!(!Promise::at_start(50, 100, 5_000).is_over(5_099));
        promise.answered(5_090);
        assert!(!promise.is_over(5_189) && promise.is_over(5_190));
    }

    proptest! {
        /// True time in microseconds; each clock runs at its own rate within the drift, and messages take as long as they like.
        #[test]
        fn no_standby_may_ask_for_the_lead_while_a_lease_holds(
            drift in 0_u32..200_000,
            rates in (-1_000_i64..=1_000, -1_000_i64..=1_000),
            beats in prop::collection::vec((0_u64..500_000, 0_u64..400_000, 0_u64..400_000), 1..8),
            probe in 0_u64..3_000_000,
        ) {
            // Thousandths of the drift; milliseconds of that clock at a true time in microseconds.
            let clock = |rate: i64, at: u64| {
                let millionths = 1_000_000 + rate * i64::from(drift) / 1_000;
                at * u64::try_from(millionths).unwrap() / 1_000_000_000
            };
            let (mut lease, mut promise) = (Lease::new(300, drift), Promise { length_ms: 300, until_ms: 0 });
            let (mut now, mut answers) = (0, Vec::new());
            for (beat, (wait, there, back)) in beats.into_iter().enumerate() {
                now += wait;
                if now <= probe {
                    lease.asked(beat as u64, clock(rates.0, now));
                    answers.push((now + there, now + there + back, beat as u64));
                }
            }
            // What the standby has not said by the probe cannot have reached the primary either.
            for (said, arrived, beat) in answers {
                if said <= probe {
                    promise.answered(clock(rates.1, said));
                }
                if arrived <= probe {
                    lease.answered(B, beat, 300);
                }
            }
            // Whole milliseconds are cut off each clock, so the bound is asked one millisecond earlier.
            let holds = lease.holds(&pair(), A, clock(rates.0, probe) + 1);
            prop_assert!(!(holds && promise.is_over(clock(rates.1, probe))));
        }
    }
}
