//! What goes wrong in a group, and that it never does more than the group's acknowledgement survives.

use assent_membership::{Ack, InSync, Member, Word};

use super::group_test::{Group, Happening, Mended};
use super::play_test::Play;
use crate::Input;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The process: what reached the kernel stays.
    Kill,
    /// The machine: what reached the disk stays.
    Power,
    /// The disk too.
    Burn,
}

impl<P: Play> Group<P> {
    /// From now on things go wrong.
    pub fn begin_faults(&mut self) {
        self.faults = true;
        self.loss = self.rng.below(60);
        self.plan(1, Happening::Fault);
    }

    /// From now on nothing goes wrong, and what did is mended.
    pub fn end_faults(&mut self) {
        self.faults = false;
        self.loss = 0;
        self.cut_links.clear();
        self.cut_arbiter.clear();
        self.paused_until_ms.fill(self.now_ms);
        for at in 0..self.seats.len() {
            self.word(at, Word::Out(false));
            if self.seats[at].up.is_none() {
                self.plan(1, Happening::Start(at));
            }
        }
    }

    /// A member sleeps for so long.
    pub fn pause(&mut self, at: usize, for_ms: u64) {
        self.paused_until_ms[at] = self.now_ms + for_ms;
    }

    /// A member's process dies, or its machine, and comes back.
    pub fn crash(&mut self, at: usize, power: Option<u64>, back_in_ms: u64) {
        self.seats[at].crash(power);
        self.plan(back_in_ms, Happening::Start(at));
    }

    /// Nobody hears of a member, and it hears of nobody, for so long.
    pub fn cut_off(&mut self, at: usize, arbiter: bool, for_ms: u64) {
        for other in (0..self.seats.len()).filter(|other| *other != at) {
            for (from, to) in [(at, other), (other, at)] {
                self.cut_links.insert((from, to));
                self.plan(for_ms, Happening::Mend(Mended::Link(from, to)));
            }
        }
        if arbiter {
            self.cut_arbiter.insert(at);
            self.plan(for_ms, Happening::Mend(Mended::Arbiter(at)));
        }
    }

    pub(super) fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let members = self.seats.len();
        let (at, other) = (self.rng.index(members), self.rng.index(members));
        match self.rng.below(18) {
            14 | 15 if at != other => {
                self.hand_overs += 1;
                self.word(at, Word::HandOver(Member(u8::try_from(other).unwrap())));
            }
            16 => {
                let out = self.rng.below(2) == 0;
                self.word(at, Word::Out(out));
            }
            17 => {
                if self.seats[at].up.is_some() && self.is_survived(at, Crash::Burn) {
                    self.burns += 1;
                    self.seats[at].burn();
                    let later = self.rng.range(1..500);
                    self.plan(later, Happening::Start(at));
                }
            }
            12 | 13 => {
                // Cut off from everybody; those that had a connection notice at once, or not.
                let length = self.rng.range(20..600);
                self.cut_off(at, self.rng.clone().below(2) == 0, length);
                if at != other && self.rng.below(2) == 0 {
                    self.lose(at, other);
                }
            }
            10 | 11 if at != other => self.lose(at, other),
            0..=2 => {
                let power = (self.rng.below(2) == 0).then(|| self.rng.roll());
                let how = if power.is_some() { Crash::Power } else { Crash::Kill };
                if self.seats[at].up.is_some() && self.is_survived(at, how) {
                    self.crashes += 1;
                    self.seats[at].crash(power);
                    let later = self.rng.range(1..500);
                    self.plan(later, Happening::Start(at));
                }
            }
            3 | 4 => {
                let length = self.rng.range(20..400);
                self.paused_until_ms[at] = self.now_ms + length;
            }
            5 | 6 if at != other => {
                for (from, to) in
                    if self.rng.below(2) == 0 { vec![(at, other)] } else { vec![(at, other), (other, at)] }
                {
                    self.cut_links.insert((from, to));
                    let later = self.rng.range(20..600);
                    self.plan(later, Happening::Mend(Mended::Link(from, to)));
                }
            }
            7 | 8 => {
                self.cut_arbiter.insert(at);
                let later = self.rng.range(20..600);
                self.plan(later, Happening::Mend(Mended::Arbiter(at)));
            }
            _ => self.loss = self.rng.below(100),
        }
        let later = self.rng.range(10..150);
        self.plan(later, Happening::Fault);
    }

    /// A connection breaks, at one end or both, although both members are well; and there is a new one.
    fn lose(&mut self, at: usize, other: usize) {
        let member = |at: usize| Member(u8::try_from(at).unwrap());
        let ends = if self.rng.below(2) == 0 { vec![(at, other)] } else { vec![(at, other), (other, at)] };
        for (end, of) in
            ends.iter().copied().filter(|(end, _)| self.paused_until_ms[*end] <= self.now_ms).collect::<Vec<_>>()
        {
            self.step(end, Input::Lost(member(of)));
            self.step(end, Input::Connected(member(of)));
        }
    }

    /// Whether the mode promises to lose nothing by this crash, after all that has gone before: by every set that counts, or may
    /// count any moment.
    fn is_survived(&self, at: usize, how: Crash) -> bool {
        let under_way = self.happenings.values().filter_map(|happening| match happening {
            Happening::Change { expect, to, .. } if *expect >= self.arbiter.version => Some(&to.in_sync),
            _ => None,
        });
        let counted =
            self.seats.iter().filter_map(|seat| seat.up.as_ref()).flat_map(|up| up.replica.membership().sets());
        std::iter::once(&self.arbiter.in_sync)
            .chain(under_way)
            .chain(counted)
            .all(|set| self.is_survived_by(at, how, set))
    }

    fn is_survived_by(&self, at: usize, how: Crash, set: &InSync) -> bool {
        let me = Member(u8::try_from(at).unwrap());
        let kept = match (self.shape.ack, how) {
            (_, Crash::Burn) => false,
            (Ack::None | Ack::Durable, _) | (Ack::Written, Crash::Kill) => true,
            _ => set.is_only(me),
        };
        kept || set.life(me).is_none()
            || set.iter().any(|(member, life)| {
                let seat = &self.seats[usize::from(member.0)];
                member != me && seat.up.is_some() && seat.life == life
            })
    }
}
