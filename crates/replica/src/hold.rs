//! What of the log is held for a standby that catches up, although a snapshot holds it.
//!
//! Without it each snapshot would let go what a standby is about to ask for, and one that needs longer than the time between two
//! snapshots would begin anew for ever. It is bounded: who is not heard, or does not arrive in its time, is waited for no longer.
//! Deliberately absent: the bytes. The log holds them, and `shelf` the snapshot that is being sent.

use assent_membership::{Member, Sequence};

use crate::event::Output;
use crate::replica::{Replica, Side};
use crate::rules::Rule;

/// What one standby may still need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// It has everything up to here, or gets it in a snapshot.
    pub(crate) at: Sequence,
    /// Since when it is behind the last snapshot.
    since_ms: u64,
    heard_ms: u64,
}

impl Hold {
    /// A standby goes on from there. What it holds already, it holds since then; one that is not behind the snapshot holds nothing back.
    pub(crate) fn at(hold: &mut Option<Self>, at: Sequence, base: Sequence, now_ms: u64) {
        let since_ms = hold.filter(|_| at < base).map_or(now_ms, |hold| hold.since_ms);
        *hold = Some(Self { at, since_ms, heard_ms: now_ms });
    }

    /// It was heard, and perhaps holds more.
    pub(crate) fn heard(&mut self, now_ms: u64, received: Option<Sequence>) {
        self.heard_ms = now_ms;
        self.at = self.at.max(received.unwrap_or_default());
    }

    /// Whether it has had its time.
    fn is_over(&self, now_ms: u64, hold_ms: u64) -> bool {
        let since = |then: u64| now_ms.saturating_sub(then);
        since(self.heard_ms) >= (hold_ms / 10).max(1) || since(self.since_ms) >= hold_ms
    }
}

impl Replica {
    /// Lets go what stands before the snapshot, as far as nobody is being sent it.
    pub(crate) fn trim(&mut self) {
        let mut to = self.base;
        if let Side::Primary(primary) = &self.side
            && self.keeps(Rule::Hold)
        {
            let holds = primary.peers.values().filter_map(|peer| peer.hold.map(|hold| hold.at));
            to = holds.fold(to, Sequence::min);
        }
        if to > self.trimmed {
            self.trimmed = to;
            self.out.push(Output::Trim(to));
        }
    }

    /// Nobody is sent a snapshot any more.
    pub(crate) fn unlend(&mut self) {
        let Side::Primary(primary) = &mut self.side else { return };
        for (member, peer) in &mut primary.peers {
            if std::mem::take(&mut peer.lent) {
                self.out.push(Output::Unlend(*member));
            }
        }
    }

    /// Ends what had its time.
    pub(crate) fn tick_holds(&mut self) {
        let (now, hold_ms, base) = (self.watch.now_ms, self.settings.hold_ms, self.base);
        let Side::Primary(primary) = &mut self.side else { return };
        let mut ended: Vec<Member> = Vec::new();
        for (member, peer) in &mut primary.peers {
            match &mut peer.hold {
                // It holds nothing back.
                Some(hold) if hold.at >= base => hold.since_ms = now,
                Some(hold) if hold.is_over(now, hold_ms) => {
                    peer.hold = None;
                    ended.extend(std::mem::take(&mut peer.lent).then_some(*member));
                }
                _ => {}
            }
        }
        let held = primary.peers.values().any(|peer| peer.hold.is_some_and(|hold| hold.at < base));
        self.out.extend(ended.into_iter().map(Output::Unlend));
        if !held {
            self.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lasts_as_long_as_it_was_told_and_is_heard_of() {
        let mut hold = None;
        Hold::at(&mut hold, Sequence(5), Sequence(9), 1_000);
        let mut held = hold.unwrap();
        assert!(!held.is_over(1_099, 1_000) && held.is_over(1_100, 1_000), "nothing is heard of it");
        for now in (1_050..2_000).step_by(50) {
            held.heard(now, Some(Sequence(now / 500)));
            assert!(!held.is_over(now, 1_000), "{now}");
        }
        assert_eq!(held.at, Sequence(5), "what it held before counts");
        assert!(held.is_over(2_000, 1_000), "its time is over, however often it is heard");
        // And from the beginning again, it is the same hold; once it is not behind, another one.
        hold = Some(held);
        Hold::at(&mut hold, Sequence(6), Sequence(9), 1_999);
        assert!(hold.unwrap().is_over(2_000, 1_000));
        Hold::at(&mut hold, Sequence(9), Sequence(9), 2_000);
        Hold::at(&mut hold, Sequence(9), Sequence(12), 2_500);
        assert!(!hold.unwrap().is_over(2_550, 1_000));
    }
}
