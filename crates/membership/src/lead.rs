//! A member that leads: what may be acknowledged, who is taken into the set and out of it, to whom the lead is given.

use std::collections::BTreeMap;

use assent_ids::Epoch;

use crate::configuration::Configuration;
use crate::event::{Action, Body, Standing, Why};
use crate::history::{History, Sequence};
use crate::member::{InSync, Life, Member};
use crate::node::{Node, Role};
use crate::reach::{Ack, Reach};
use crate::rules::Rule;
use crate::wait::Waiting;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leading {
    peers: BTreeMap<Member, Peer>,
    released: Sequence,
    /// What is to be kept: on the disk of everybody in the set.
    wanted: Sequence,
    /// How much of that was told to be.
    kept: Sequence,
    /// The own log when it began to lead. All of it counts as acknowledged: some of it may be.
    base: History,
    pub(crate) beat: u64,
    confirmed: u64,
    /// Whom it was told to give the lead to, before the arbiter has been heard again: without that one nothing can come of it, and
    /// commands would wait for nothing.
    hands_to: Option<Member>,
    /// To whom it gives the lead: new commands wait.
    pub(crate) handing: Option<Member>,
    /// To give the lead away was asked of the arbiter where it held this version, and may come true while it does.
    gave: Option<u64>,
    /// A person says that what a forced lead lost is settled.
    settled: bool,
    /// The arbiter does not answer what was asked.
    pub(crate) stuck: bool,
}

/// Another member, as its primary knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    life: Option<Life>,
    reach: Reach,
    /// How far it was, as it said, when it came with less in the same life: it counts again when it has that.
    owes: Reach,
    beat: u64,
    /// Another life than the known one, whose number is no higher, and the beat that it is asked by whether it lives.
    challenged: Option<(Life, u64)>,
    /// Its folder once went back in time: the numbers of its lives do not tell which is the later one.
    disordered: bool,
    pub(crate) silent: bool,
    /// It has said in this epoch that it holds the log, and so has cut what diverged.
    follows: bool,
    out: bool,
}

impl Peer {
    /// It lives so. In another life nothing that it confirmed counts.
    fn meet(&mut self, life: Life) {
        let Some(known) = self.life else {
            self.life = Some(life);
            return;
        };
        if known == life {
            self.challenged = None;
        } else if known.disk != life.disk || (known.memory < life.memory && !self.disordered) {
            *self = Self { life: Some(life), ..Self::default() };
        }
    }

    /// A letter of a life that is no later one by its number, while the known one is silent: an old letter, or its folder went back in
    /// time. The next beat tells. The life that has spoken last is asked: another one may have died before it answered.
    fn challenge(&mut self, life: Life, beat: &mut u64) {
        if self.silent && self.challenged.is_none_or(|(of, _)| of != life) {
            *beat = beat.saturating_add(1);
            self.challenged = Some((life, *beat));
        }
    }

    /// Who has heard a beat that was first said after the known life was last heard lives later than that.
    fn answers(&mut self, life: Life, beat: u64) {
        if self.challenged.is_some_and(|(of, asked)| of == life && beat >= asked) {
            *self = Self { life: Some(life), disordered: true, ..Self::default() };
        }
    }

    /// It follows nobody, as it says, and its log ends there.
    fn greets(&mut self, life: Life, end: Sequence, ack: Ack, beat: &mut u64) {
        self.meet(life);
        self.follows = false;
        if self.life == Some(life) {
            self.comes_with(end, ack);
        } else {
            self.challenge(life, beat);
        }
    }

    /// It is heard again, and holds so much. Where that is less than it confirmed, its folder is an older copy of what it was, and what it confirmed is not
    /// there. Or this was said before that: its next answer says so.
    fn comes_with(&mut self, end: Sequence, ack: Ack) {
        if end < self.reach.at(ack) {
            self.owes = self.owes.or_more(self.reach);
            self.reach = self.reach.cut(end);
        }
    }

    fn lacks(&self, ack: Ack) -> bool {
        self.reach.at(ack) < self.owes.at(ack) || self.reach.durable < self.owes.durable
    }
}

impl Leading {
    pub(crate) const fn settle(&mut self) {
        self.settled = true;
    }

    /// A person wants it to give the lead to that one.
    pub(crate) fn hand_to(&mut self, to: Member) {
        match &mut self.handing {
            Some(under_way) => *under_way = to,
            None => self.hands_to = Some(to),
        }
    }

    pub(crate) const fn is_to_hand(&self) -> bool {
        self.hands_to.is_some() || self.handing.is_some()
    }

    /// The arbiter answers.
    pub(crate) fn heard_arbiter(&mut self) {
        self.stuck = false;
        self.handing = self.handing.or(self.hands_to.take());
    }

    /// It answers, and has not done what was asked: nothing was given away, and commands wait for nothing.
    pub(crate) const fn was_refused(&mut self) {
        self.stuck = false;
        (self.hands_to, self.handing, self.gave) = (None, None, None);
    }

    pub(crate) fn keep(&mut self, to: Sequence) {
        self.wanted = self.wanted.max(to);
    }

    pub(crate) fn peer(&mut self, member: Member) -> &mut Peer {
        self.peers.entry(member).or_default()
    }

    pub(crate) fn knows(&self, member: Member, life: Life) -> bool {
        self.peers.get(&member).is_some_and(|peer| peer.life == Some(life))
    }

    /// A member follows nobody, as it says.
    pub(crate) fn greeted(&mut self, from: Member, life: Life, end: Sequence, ack: Ack) {
        self.peers.entry(from).or_default().greets(life, end, ack, &mut self.beat);
    }
}

impl Node {
    pub(crate) fn lead(&mut self, out: &mut Vec<Action>) {
        self.role = Role::Leading(Leading {
            peers: BTreeMap::new(),
            released: Sequence(0),
            wanted: Sequence(0),
            kept: Sequence(0),
            base: self.history.clone(),
            beat: 0,
            confirmed: 0,
            hands_to: None,
            handing: None,
            gave: None,
            settled: false,
            stuck: false,
        });
        out.push(Action::Lead(self.known.epoch));
        self.say_lead(out);
    }

    /// Somebody knows a higher epoch. What it is, the arbiter will say.
    pub(crate) fn stop_leading(&mut self, out: &mut Vec<Action>) {
        out.push(Action::Yield);
        self.wait(Waiting { running: true, ..Waiting::started() }, out);
    }

    pub(crate) fn say_lead(&self, out: &mut Vec<Action>) {
        out.extend(self.others().map(|to| self.lead_letter(to)));
    }

    pub(crate) fn lead_letter(&self, to: Member) -> Action {
        let (base, beat, aside) = match &self.role {
            Role::Leading(leading) => (leading.base.clone(), leading.beat, leading.stuck),
            _ => Default::default(),
        };
        self.letter(to, Body::Lead { configuration: self.known.clone(), base, beat, aside })
    }

    pub(crate) fn confirmed_by(&mut self, from: Member, epoch: Epoch, said: (Life, Reach, u64, bool)) {
        let current = epoch == self.known.epoch || !self.keeps(Rule::Fence);
        let ack = self.setup.ack;
        let Role::Leading(leading) = &mut self.role else { return };
        if !current {
            return;
        }
        let (life, reach, beat, told_out) = said;
        let peer = leading.peers.entry(from).or_default();
        peer.meet(life);
        peer.answers(life, beat);
        if peer.life != Some(life) {
            return peer.challenge(life, &mut leading.beat);
        }
        // It may have come back without a greeting: the lead was told to it first.
        if peer.silent {
            peer.comes_with(reach.at(ack), ack);
        }
        // Messages overtake each other; what is held grows.
        peer.reach = peer.reach.or_more(reach);
        peer.beat = peer.beat.max(beat);
        peer.silent = false;
        peer.follows = true;
        peer.out = told_out;
    }

    /// What follows from everything that is known: acknowledge, confirm reads, change the set, give the lead away.
    pub(crate) fn drive(&mut self, out: &mut Vec<Action>) {
        self.keep_lead();
        // What is asked of an arbiter that was set back is a person's to say: it counts the same versions once more.
        let may_ask = self.asked.is_none() && self.pause == 0 && self.forgot.is_none();
        if may_ask && let Some(to) = self.wish() {
            if self.may_ask(&to) {
                if let Role::Leading(leading) = &mut self.role
                    && to.epoch > self.known.epoch
                {
                    leading.gave = Some(self.known.version);
                }
                self.ask(self.known.version, to, out);
            } else {
                out.push(Action::Sync);
            }
        }
        let Role::Leading(leading) = &self.role else { return };
        let alone = self.known.in_sync.is_only(self.setup.me);
        if alone && self.setup.ack != Ack::None && self.reach.durable < self.reach.received {
            out.push(Action::Sync);
        }
        let released = self.least(|node, set| node.held_by_all(leading, set));
        let answered = self.least(|node, set| node.beaten_by_all(leading, set));
        let keeps = leading.wanted > leading.kept;
        let kept = keeps.then(|| self.least(|node, set| node.kept_by_all(leading, set)).min(leading.wanted));
        let base = leading.base.end().sequence;
        let before = (leading.released, leading.confirmed);
        let Role::Leading(leading) = &mut self.role else { return };
        if released > before.0 {
            leading.released = released;
            out.push(Action::Release(released));
        }
        if let Some(kept) = kept.filter(|kept| *kept > leading.kept) {
            leading.kept = kept;
            out.push(Action::Kept(kept));
        }
        // What an earlier primary acknowledged is in the base: a read must see it.
        if answered > before.1 && leading.released >= base {
            leading.confirmed = answered;
            out.push(Action::Confirmed(answered));
        }
    }

    /// The least over the sets that count: the recorded one, and the one that may be recorded any moment.
    fn least<T: Ord>(&self, of: impl Fn(&Self, &InSync) -> T) -> T {
        let now = of(self, &self.known.in_sync);
        match &self.asked {
            Some(asked) if self.keeps(Rule::BothSets) => now.min(of(self, &asked.to.in_sync)),
            _ => now,
        }
    }

    fn held_by_all(&self, leading: &Leading, set: &InSync) -> Sequence {
        let ack = self.setup.ack;
        let own = match ack {
            Ack::None => return self.reach.received,
            // Alone, memory is one failure away from nothing.
            _ if set.is_only(self.setup.me) => return self.reach.durable,
            Ack::Durable if !self.keeps(Rule::OwnDisk) => self.reach.received,
            _ => self.reach.at(ack),
        };
        self.peers_of(leading, set)
            .fold(own, |least, peer| least.min(peer.map_or(Sequence(0), |peer| self.grade(peer))))
    }

    /// How much everybody has on the disk.
    fn kept_by_all(&self, leading: &Leading, set: &InSync) -> Sequence {
        let own = self.reach.durable;
        if !self.keeps(Rule::KeptByAll) {
            return own;
        }
        self.peers_of(leading, set)
            .fold(own, |least, peer| least.min(peer.map_or(Sequence(0), |peer| peer.reach.durable)))
    }

    fn grade(&self, peer: &Peer) -> Sequence {
        self.counted(peer.reach)
    }

    /// How much of it counts for an acknowledgement.
    pub(crate) fn counted(&self, reach: Reach) -> Sequence {
        reach.at(if self.keeps(Rule::GradeOfAck) { self.setup.ack } else { Ack::Received })
    }

    fn beaten_by_all(&self, leading: &Leading, set: &InSync) -> u64 {
        if !self.keeps(Rule::ConfirmedReads) {
            return leading.beat;
        }
        self.peers_of(leading, set).fold(leading.beat, |least, peer| least.min(peer.map_or(0, |peer| peer.beat)))
    }

    /// The other members of a set; none for one that has not been heard, or in another life than the recorded one.
    fn peers_of<'a>(&self, leading: &'a Leading, set: &'a InSync) -> impl Iterator<Item = Option<&'a Peer>> + 'a {
        let me = self.setup.me;
        let ignored = !self.keeps(Rule::ShrinkFirst);
        let lives = self.keeps(Rule::Lives);
        set.iter().filter(move |(member, _)| *member != me).filter_map(move |(member, life)| {
            let peer = leading.peers.get(&member);
            if ignored && peer.is_some_and(|peer| peer.silent) {
                return None;
            }
            Some(peer.filter(|peer| !lives || peer.life == Some(life)))
        })
    }

    /// The configuration that should be; none if this one is right.
    fn wish(&self) -> Option<Configuration> {
        let Role::Leading(leading) = &self.role else { return None };
        let handed = |to: &Member| {
            let peer = leading.peers.get(to);
            let whole = peer.is_some_and(|peer| {
                peer.follows
                    && !peer.silent
                    && !peer.out
                    && peer.life == self.known.in_sync.life(*to)
                    && self.grade(peer) >= self.reach.received
            });
            whole.then(|| self.known.handed_to(*to))
        };
        if let Some(handed) = leading.handing.as_ref().and_then(handed) {
            return Some(handed);
        }
        let base = leading.base.end().sequence;
        let floor = leading.released.max(base);
        // How much of the base was told to be kept, an earlier primary knew.
        let kept = if self.keeps(Rule::KeptByNewcomers) { leading.kept.max(base) } else { Sequence(0) };
        // It may lead in a later life than the one that asked for it.
        let mut set = self.known.in_sync.clone().with(self.setup.me, self.setup.life);
        for member in self.others() {
            let Some(peer) = leading.peers.get(&member) else { continue };
            let recorded = self.known.in_sync.life(member);
            let replaced = self.keeps(Rule::Lives) && peer.life.is_some() && peer.life != recorded;
            let lacks = peer.lacks(self.setup.ack);
            if recorded.is_some() && (peer.silent || peer.out || replaced || lacks) {
                set = set.without(member);
            }
            let whole = (self.grade(peer) >= floor || !self.keeps(Rule::CaughtUp)) && peer.reach.durable >= kept;
            let ready = peer.follows && whole && !peer.silent && !peer.out && !lacks;
            if let Some(life) = peer.life.filter(|_| recorded.is_none() && ready) {
                set = set.with(member, life);
            }
        }
        let settles = leading.settled && self.known.forced;
        let forced = self.known.forced && !leading.settled;
        (set != self.known.in_sync || settles).then(|| Configuration { forced, ..self.known.with_set(set) })
    }

    /// Keeps the lead that it was about to give away. What was asked of the arbiter may come true all the same: so the same set goes
    /// on to count, and no lease does; whatever is asked instead, only one of the two comes true.
    pub(crate) fn keep_after_all(&mut self, out: &mut Vec<Action>) {
        let is_asked = self.asked.as_ref().is_some_and(|asked| asked.to.epoch > self.known.epoch);
        if let Role::Leading(leading) = &mut self.role {
            (leading.hands_to, leading.handing) = (None, None);
        }
        if is_asked {
            self.ask(self.known.version, self.known.with_set(self.known.in_sync.clone()), out);
        }
    }

    /// Whether another member may lead as soon as the arbiter says so, by this one's own word.
    #[must_use]
    pub fn gives_away(&self) -> bool {
        matches!(&self.role, Role::Leading(leading) if leading.gave.is_some_and(|gave| self.known.version <= gave))
    }

    /// Who will be alone needs everything that was acknowledged on its disk first.
    fn may_ask(&self, to: &Configuration) -> bool {
        let Role::Leading(leading) = &self.role else { return false };
        let floor = leading.released.max(leading.base.end().sequence);
        let alone = to.in_sync.is_only(self.setup.me) && self.setup.ack != Ack::None;
        !alone || self.reach.durable >= floor || !self.keeps(Rule::DurableAlone)
    }

    /// A lost member that was to lead cannot; the lead stays here.
    fn keep_lead(&mut self) {
        let handing_asked = self.asked.as_ref().is_some_and(|asked| asked.to.epoch > self.known.epoch);
        if let Role::Leading(leading) = &mut self.role
            && let Some(to) = leading.handing.or(leading.hands_to)
            && !handing_asked
            && (self.known.in_sync.life(to).is_none() || leading.peer(to).silent || leading.peer(to).out)
        {
            (leading.hands_to, leading.handing) = (None, None);
        }
    }

    pub(crate) fn leading_standing(&self, leading: &Leading) -> Standing {
        if leading.handing.is_some() {
            return Standing::Stalls(Why::HandingOver);
        }
        let sets = [Some(&self.known.in_sync), self.asked.as_ref().map(|asked| &asked.to.in_sync)];
        let mut missing = Vec::new();
        for (member, life) in sets.into_iter().flatten().flat_map(InSync::iter) {
            let peer = leading.peers.get(&member);
            let sound = peer.is_some_and(|peer| peer.life == Some(life) && !peer.silent);
            if member != self.setup.me && !sound && !missing.contains(&member) {
                missing.push(member);
            }
        }
        if missing.is_empty() { Standing::Leads } else { Standing::Stalls(Why::Unconfirmed(missing)) }
    }
}
