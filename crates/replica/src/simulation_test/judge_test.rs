//! What must never be in a group, looked for at every step; whether it is healed, and what it looks like where it is not.

use assent_membership::{Ack, Standing};

use super::group_test::Group;
use super::play_test::Play;
use super::seat_test::Seat;
use crate::{Entry, Machine as _, Mark};

impl<P: Play> Group<P> {
    /// Whether everybody is up, in sync, and has applied the same.
    pub fn is_healed(&self) -> bool {
        let mut applied = self.seats.iter().map(|seat| seat.up.as_ref().map(|up| (up.applied, up.machine.hash())));
        let first = applied.next().flatten();
        self.play.is_idle()
            && first.is_some_and(|(end, _)| end.sequence >= self.play.acknowledged().1)
            && applied.all(|other| other == first)
            && self.arbiter.in_sync.len() == self.seats.len()
            && self.seats.iter().any(|seat| seat.up.as_ref().is_some_and(|up| up.replica.standing() == Standing::Leads))
    }

    /// What clients were told is there, and every request was executed once.
    pub fn audit(&mut self) {
        for (member, up) in self.seats.iter().filter_map(|seat| Some((seat.me, seat.up.as_ref()?))) {
            if let Err(broken) = self.play.audit(member, &up.machine) {
                self.broken = Some(broken);
            }
        }
    }

    pub(super) fn applied(&mut self, at: usize, entry: &Entry, answer: &[u8], is_awaited: bool) {
        let lossy = self.shape.ack == Ack::None;
        let before = self.decided.insert(entry.sequence, entry.chain);
        if before.is_some_and(|before| before != entry.chain) && !lossy {
            self.broken = Some(format!("member {at} applies another entry {} than somebody else did", entry.sequence));
        } else if let Err(broken) = self.play.executed(self.seats[at].me, entry, answer, before.is_none()) {
            self.broken = Some(format!("entry {} at member {at}: {broken}", entry.sequence));
        }
        if is_awaited {
            self.answered(entry.mark(), &entry.payload, answer);
        }
    }

    pub(super) fn answered(&mut self, entry: Mark, command: &[u8], answer: &[u8]) {
        if !self.is_lost() {
            self.play.told(entry, command, answer);
        }
    }

    /// Every vote that was told is on the disk of everybody in the recorded set; whose disk is another one does not count.
    pub(super) fn look_at_votes(&mut self) {
        let voted = self.play.voted();
        let lacks = |seat: &Seat<P>| {
            let counts = self.arbiter.in_sync.life(seat.me).is_some_and(|life| life.disk == seat.life.disk);
            let held = seat.up.as_ref().map(|up| up.log.held().1);
            held.filter(|held| counts && *held < voted).map(|held| (seat.me, held))
        };
        if let Some((member, held)) = self.seats.iter().find_map(lacks) {
            self.broken = Some(format!("vote {voted} was told; member {member} of the set has {held} on its disk"));
        }
    }

    /// The group in a few lines, for a failed seed.
    pub fn brief(&self) -> String {
        let mut text =
            format!("{} ms; arbiter {:?}; acknowledged {:?}\n", self.now_ms, self.arbiter, self.play.acknowledged());
        for seat in &self.seats {
            let Some(up) = &seat.up else {
                text.push_str(&format!("  {} is down\n", seat.me));
                continue;
            };
            let (known, end) = (up.replica.configuration(), up.replica.end().sequence);
            text.push_str(&format!(
                "  {} unconfirmed {} life {:?} v{} e{} {:?} end {end} confirmed {} applied {} base {}\n",
                seat.me,
                up.replica.recent.unconfirmed_bytes(),
                seat.life,
                known.version,
                known.epoch,
                up.replica.standing(),
                up.replica.confirmed(),
                up.applied.sequence,
                up.shelf.base().end.sequence,
            ));
        }
        text
    }
}
