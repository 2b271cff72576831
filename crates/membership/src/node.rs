//! One member of a group: what it knows, and what it takes in.
//!
//! ```text
//!            a primary says so                      asked, and the arbiter holds it
//!  Waiting ────────────────────▶ Following     Waiting ────────────────────────────▶ Leading
//!     ▲                             │             ▲                                     │
//!     └──── the primary is silent ──┘             └─── somebody knows a higher epoch ───┘
//! ```
//! Walk: [`Node::start`] after each start, with what the last [`Action::Store`] made durable · [`Node::step`] takes an
//! [`Event`] · [`Node::takes_commands`] and [`Node::takes_stream`] are asked before an entry is taken in.
//! A member acts on configurations that it has read, never on what it has asked for. It leads an epoch only when it
//! learns of it for the first time, which is durable before it leads: so nobody leads one epoch twice, in no two lives.
//! Deliberately absent: clocks. How long silence and patience last is for whoever tells of them.

use assent_ids::Epoch;

use crate::configuration::Configuration;
use crate::event::{Action, Body, Event, Letter, Standing, Word, WordError};
use crate::follow::Following;
use crate::history::{History, Place, Sequence};
use crate::lead::Leading;
use crate::member::{InSync, Life, MEMBERS_MAX, Member};
use crate::reach::{Ack, Reach};
use crate::rules::Rule;
use crate::wait::Waiting;

/// What a member is told of itself at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// Its number.
    pub me: Member,
    /// Everybody's, its own too.
    pub members: Vec<Member>,
    /// Who leads where nothing else makes a difference.
    pub preferred: Member,
    /// What its confirmations live in.
    pub life: Life,
    /// What an acknowledgement means in this group.
    pub ack: Ack,
}

/// A group that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Too few or too many.
    #[error("{0} members; a group has 1 to {MEMBERS_MAX}")]
    Members(usize),
    /// The same number twice.
    #[error("member {0} is listed twice")]
    Twice(Member),
    /// A number that is not in the list.
    #[error("member {0} is not in the list of members")]
    Unknown(Member),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Waiting(Waiting),
    Following(Following),
    Leading(Leading),
}

/// What was asked of the arbiter, and may come true until it is known that it cannot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) expect: u64,
    pub(crate) to: Configuration,
    /// What it is to follow: of the version that is expected an arbiter that was set back may hold something else.
    pub(crate) of: Configuration,
}

/// How long nothing is asked of an arbiter that has refused a change: meanwhile who asked may follow.
const PAUSE_TICKS: u8 = 5;

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(crate) setup: Setup,
    /// The last configuration known; durable before anything follows from it.
    pub(crate) known: Configuration,
    pub(crate) history: History,
    pub(crate) reach: Reach,
    pub(crate) role: Role,
    pub(crate) asked: Option<Asked>,
    /// The arbiter holds this, which cannot follow what is known: it has forgotten.
    pub(crate) forgot: Option<Configuration>,
    /// A change was refused: so many ticks long nothing is asked.
    pub(crate) pause: u8,
    pub(crate) out: bool,
    #[cfg(test)]
    pub(crate) left_out: Option<Rule>,
}

impl Node {
    /// A member that has just started: the configuration that it stored last (or none), and its own log, durable.
    ///
    /// # Errors
    /// [`SetupError`] for a group that cannot be.
    pub fn start(
        setup: Setup,
        known: Configuration,
        history: History,
        out: bool,
    ) -> Result<(Self, Vec<Action>), SetupError> {
        let count = setup.members.len();
        if !(1..=MEMBERS_MAX).contains(&count) {
            return Err(SetupError::Members(count));
        }
        for (at, member) in setup.members.iter().enumerate() {
            if setup.members.iter().skip(at + 1).any(|other| other == member) {
                return Err(SetupError::Twice(*member));
            }
        }
        if let Some(unknown) = [setup.me, setup.preferred].into_iter().find(|one| !setup.members.contains(one)) {
            return Err(SetupError::Unknown(unknown));
        }
        let reach = Reach::durable(history.end().sequence);
        let node = Self {
            setup,
            known,
            history,
            reach,
            role: Role::Waiting(Waiting::started()),
            asked: None,
            forgot: None,
            pause: 0,
            out,
            #[cfg(test)]
            left_out: None,
        };
        let mut actions = node.hello();
        actions.push(Action::Read);
        Ok((node, actions))
    }

    /// Takes an event in. What it does not fit is passed over: messages are lost, late and doubled as a matter of course.
    pub fn step(&mut self, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Tick => self.tick(&mut out),
            Event::Heard(letter) => self.heard(letter, &mut out),
            Event::Arbiter(configuration) => self.told(configuration, &mut out),
            Event::ArbiterSilent => self.unanswered(&mut out),
            Event::Refused { expect, to } => self.refused(expect, &to),
            Event::Silent(member) => self.silent(member, &mut out),
            Event::Patience => {
                if let Role::Waiting(waiting) = &mut self.role {
                    waiting.patient = true;
                    waiting.lost = true;
                }
            }
            Event::Log { epoch, reach } => self.grew(epoch, reach, &mut out),
            Event::Keep(to) => {
                if let Role::Leading(leading) = &mut self.role {
                    leading.keep(to);
                }
            }
            Event::Ask => {
                if let Role::Leading(leading) = &mut self.role {
                    leading.beat = leading.beat.saturating_add(1);
                    self.say_lead(&mut out);
                }
            }
        }
        self.settle(&mut out);
        out
    }

    /// Follows a person's word.
    ///
    /// # Errors
    /// [`WordError`] where that cannot be; nothing has changed then.
    pub fn word(&mut self, word: Word) -> Result<Vec<Action>, WordError> {
        let mut out = Vec::new();
        match (word, &mut self.role) {
            // Its lead is not in question; the arbiter is told again what it forgot.
            (Word::Force, Role::Leading(_)) => match &self.forgot {
                Some(holds) => {
                    let to = self.known.raised(holds).with_set(self.known.in_sync.clone());
                    self.ask(holds.version, to, &mut out);
                }
                None => return Err(WordError::Leading),
            },
            (Word::Force, _) if self.out => return Err(WordError::Out),
            (Word::Force, Role::Waiting(waiting)) => waiting.forced = true,
            (Word::Force, Role::Following(_)) => {
                self.wait(Waiting { forced: true, ..Waiting::lost_primary() }, &mut out);
            }
            (Word::HandOver(to), Role::Leading(leading)) if to == self.setup.me => {
                if !leading.is_to_hand() {
                    return Err(WordError::Leading);
                }
                self.keep_after_all(&mut out);
            }
            (Word::Settle, Role::Leading(leading)) => leading.settle(),
            (Word::HandOver(to), Role::Leading(leading)) => {
                if self.known.in_sync.life(to).is_none() {
                    return Err(WordError::NotInSync(to));
                }
                leading.hand_to(to);
                out.push(Action::Read);
            }
            (Word::HandOver(_) | Word::Settle, _) => return Err(WordError::NotLeading),
            // Who leads gives the lead away first, or nobody would have it.
            (Word::Out(true), Role::Leading(_)) => return Err(WordError::Leading),
            (Word::Out(told), role) => {
                self.out = told;
                if let Role::Waiting(waiting) = role {
                    waiting.forced &= !told;
                }
                self.unask_lead(&mut out);
            }
        }
        if word == Word::Force {
            out.push(Action::Read);
        }
        self.pause = 0;
        self.settle(&mut out);
        Ok(out)
    }

    /// Whether a new command may be put behind the log: it leads, and is not giving the lead away.
    #[must_use]
    pub fn takes_commands(&self) -> bool {
        matches!(&self.role, Role::Leading(leading) if leading.handing.is_none())
    }

    /// Whether the arbiter's word changes what it does next. A lead that nothing is asked of needs none.
    #[must_use]
    pub const fn awaits_arbiter(&self) -> bool {
        match &self.role {
            Role::Leading(leading) => leading.is_to_hand(),
            Role::Following(_) | Role::Waiting(_) => true,
        }
    }

    /// Whether entries of this member's stream in this epoch may be put behind the log.
    #[must_use]
    pub fn takes_stream(&self, from: Member, epoch: Epoch) -> bool {
        let follows = matches!(&self.role, Role::Following(_)) && self.confirms();
        let current = epoch == self.known.epoch && self.known.primary == Some(from);
        follows && (current || !self.keeps(Rule::Fence))
    }

    /// Whether it asks to lead by a person's word, and not by what it holds.
    #[must_use]
    pub const fn asks_by_force(&self) -> bool {
        matches!(&self.role, Role::Waiting(waiting) if waiting.forced)
    }

    /// The epoch that it leads.
    #[must_use]
    pub fn leads(&self) -> Option<Epoch> {
        matches!(self.role, Role::Leading(_)).then_some(self.known.epoch)
    }

    /// Whether it leads, and takes what this member says in that life for its own: else it has not heard of that one.
    #[must_use]
    pub fn counts_on(&self, member: Member, life: Life) -> bool {
        matches!(&self.role, Role::Leading(leading) if leading.knows(member, life))
    }

    /// The last beat that it asks for, if it leads.
    #[must_use]
    pub const fn beat(&self) -> u64 {
        if let Role::Leading(leading) = &self.role { leading.beat } else { 0 }
    }

    /// Whom it follows.
    #[must_use]
    pub const fn follows(&self) -> Option<Member> {
        if let Role::Following(following) = &self.role { Some(following.primary) } else { None }
    }

    /// The sets that count: the recorded one, and the one that was asked of the arbiter and may be recorded any moment.
    pub fn sets(&self) -> impl Iterator<Item = &InSync> {
        std::iter::once(&self.known.in_sync).chain(self.asked.as_ref().map(|asked| &asked.to.in_sync))
    }

    /// The last configuration known.
    #[must_use]
    pub const fn configuration(&self) -> &Configuration {
        &self.known
    }

    /// The end of its log.
    #[must_use]
    pub fn place(&self) -> Place {
        self.history.end()
    }

    /// Where it stands, and if nothing goes on, why.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.role {
            Role::Leading(leading) => self.leading_standing(leading),
            Role::Following(_) => self.known.primary.map_or_else(|| self.waiting_standing(), Standing::Follows),
            Role::Waiting(_) => self.waiting_standing(),
        }
    }

    fn tick(&mut self, out: &mut Vec<Action>) {
        self.pause = self.pause.saturating_sub(1);
        match &self.role {
            Role::Waiting(_) => {
                out.extend(self.hello());
                out.push(Action::Read);
            }
            Role::Following(following) => {
                self.say_held(out);
                if following.aside {
                    out.push(Action::Read);
                }
            }
            Role::Leading(_) => {
                self.say_lead(out);
                // Somebody may lead a higher epoch out of earshot.
                out.push(Action::Read);
            }
        }
        // An arbiter that was set back counts the same versions once more, and would take what was asked before that.
        if let Some(asked) = self.asked.as_ref().filter(|asked| !self.is_asked_in_vain(asked)) {
            out.push(Action::Change { expect: asked.expect, to: asked.to.clone() });
        }
    }

    fn heard(&mut self, letter: Letter, out: &mut Vec<Action>) {
        let Letter { from, to, epoch, body } = letter;
        if to != self.setup.me || from == to || !self.setup.members.contains(&from) {
            return;
        }
        if let Body::Hello { version, life, place } = body {
            return self.greeted(from, epoch, (version, life, place), out);
        }
        if epoch < self.known.epoch && self.keeps(Rule::Fence) {
            // It does not know yet that its time is over.
            if matches!(body, Body::Lead { .. }) {
                out.push(self.letter(from, Body::News(self.known.clone())));
            }
            return;
        }
        if epoch > self.known.epoch && matches!(self.role, Role::Leading(_)) && self.keeps(Rule::Fence) {
            self.stop_leading(out);
        }
        match body {
            Body::Lead { configuration, base, beat, aside } => {
                self.learn(configuration, out);
                self.led(from, epoch, &base, (beat, aside), out);
            }
            Body::Held { life, reach, beat, out: told, .. } => {
                self.confirmed_by(from, epoch, (life, reach, beat, told))
            }
            // A letter may be old, and a person may have forced another since: to lead, the arbiter's own word is needed.
            Body::News(configuration) if self.would_lead(&configuration) => out.push(Action::Read),
            Body::News(configuration) => self.learn(configuration, out),
            Body::Hello { .. } => {}
        }
    }

    /// The arbiter holds this.
    fn told(&mut self, configuration: Configuration, out: &mut Vec<Action>) {
        if let Some(asked) = &self.asked {
            // It holds something newer than what was expected: what was asked has come true, or never will.
            if configuration.version > asked.expect {
                let refused = configuration != asked.to;
                let to = asked.to.clone();
                self.asked = None;
                if refused && !self.keeps(Rule::RefusedIsRefused) && self.leads().is_some() {
                    self.known = to;
                    return;
                }
            }
        }
        if self.cannot_be(&configuration) {
            // It was set back, and gave that epoch to another one: who leads is for a person to say.
            let is_given = matches!(self.role, Role::Leading(_)) && self.gave_away_lead(&configuration);
            self.forgot = Some(configuration);
            if is_given {
                self.stop_leading(out);
            }
            return;
        }
        self.forgot = None;
        self.learn(configuration, out);
        match &mut self.role {
            Role::Waiting(waiting) => waiting.read = true,
            Role::Following(following) => following.read = true,
            Role::Leading(leading) => leading.heard_arbiter(),
        }
    }

    /// Whether an arbiter that remembers what is known here cannot hold this.
    fn cannot_be(&self, configuration: &Configuration) -> bool {
        *configuration != self.known && !configuration.can_follow(&self.known)
    }

    /// Whether another one leads by this, in the epoch that is known or a later one; or in an earlier one, made since an arbiter that was set back
    /// counts as far again: a copy alone has a lower version.
    fn gave_away_lead(&self, configuration: &Configuration) -> bool {
        let (known, is_other) = (&self.known, configuration.primary != self.known.primary);
        let is_new = configuration.epoch == known.epoch || configuration.version >= known.version;
        configuration.epoch > known.epoch || (is_other && is_new)
    }

    /// Who is told to stay out, and has asked to lead, asks for what is in its place: of the two one comes true at most, and which, it learns.
    fn unask_lead(&mut self, out: &mut Vec<Action>) {
        let asked = self.asked.as_ref().filter(|asked| self.out && self.would_lead(&asked.to));
        if let Some(expect) = asked.map(|asked| asked.expect) {
            self.ask(expect, self.known.with_set(self.known.in_sync.clone()), out);
        }
    }

    /// Whether to believe it would be to lead an epoch that it does not know of.
    fn would_lead(&self, configuration: &Configuration) -> bool {
        configuration.epoch > self.known.epoch && configuration.primary == Some(self.setup.me)
    }

    /// Takes a configuration in, wherever it comes from: each was once the arbiter's.
    pub(crate) fn learn(&mut self, configuration: Configuration, out: &mut Vec<Action>) {
        if configuration.version <= self.known.version {
            return;
        }
        if self.cannot_be(&configuration) {
            if matches!(self.role, Role::Leading(_)) && self.gave_away_lead(&configuration) {
                self.stop_leading(out);
            }
            return;
        }
        if self.asked.as_ref().is_some_and(|asked| configuration.version > asked.expect) {
            self.asked = None;
        }
        let new_epoch = configuration.epoch > self.known.epoch;
        self.known = configuration;
        self.pause = 0;
        out.push(Action::Store(self.known.clone()));
        if !new_epoch {
            return;
        }
        if matches!(self.role, Role::Leading(_)) {
            out.push(Action::Yield);
        }
        if self.known.primary == Some(self.setup.me) && self.is_whole() && !self.out {
            self.lead(out);
        } else {
            let running = !matches!(self.role, Role::Waiting(Waiting { running: false, .. }));
            let heard = match &mut self.role {
                Role::Waiting(waiting) => std::mem::take(&mut waiting.heard),
                _ => Vec::new(),
            };
            // Named by the arbiter in a life that is over, or told to stay out since it asked: nobody leads this epoch.
            let lost = self.known.primary == Some(self.setup.me);
            self.wait(Waiting { running, lost, heard, ..Waiting::started() }, out);
        }
    }

    /// Holds everything that was acknowledged, as far as anybody recorded.
    pub(crate) fn is_whole(&self) -> bool {
        self.known.in_sync.vouches(self.setup.me, self.setup.life)
            || (!self.keeps(Rule::Lives) && self.known.in_sync.life(self.setup.me).is_some())
    }

    pub(crate) fn wait(&mut self, waiting: Waiting, out: &mut Vec<Action>) {
        self.role = Role::Waiting(waiting);
        out.extend(self.hello());
        out.push(Action::Read);
    }

    fn silent(&mut self, member: Member, out: &mut Vec<Action>) {
        let primary = self.known.primary == Some(member);
        match &mut self.role {
            Role::Leading(leading) => leading.peer(member).silent = true,
            Role::Following(_) if primary => self.wait(Waiting::lost_primary(), out),
            Role::Following(_) => {}
            Role::Waiting(waiting) => {
                waiting.heard.retain(|(of, ..)| *of != member);
                waiting.lost |= primary;
            }
        }
    }

    fn unanswered(&mut self, out: &mut Vec<Action>) {
        if let Role::Leading(leading) = &mut self.role {
            leading.stuck = self.asked.is_some();
            if !self.keeps(Rule::ArbiterOffThePath) {
                self.stop_leading(out);
            }
        } else if !self.keeps(Rule::NoArbiterNoChange) && self.is_whole() && matches!(self.role, Role::Waiting(_)) {
            self.learn(self.known.promoted(self.setup.me, self.setup.life), out);
        }
    }

    /// The arbiter has not done that, and nothing that was asked of it before can come true any more. It is not silent: so nobody
    /// else would be heard either.
    fn refused(&mut self, expect: u64, to: &Configuration) {
        if !self.asked.as_ref().is_some_and(|asked| asked.expect == expect && asked.to == *to) {
            return;
        }
        self.asked = None;
        self.pause = PAUSE_TICKS;
        if let Role::Leading(leading) = &mut self.role {
            leading.was_refused();
        }
    }

    fn grew(&mut self, epoch: Epoch, reach: Reach, out: &mut Vec<Action>) {
        self.history.grew(epoch, reach.received);
        let before = std::mem::replace(&mut self.reach, reach);
        // Only what the primary waits for: the rest goes with the next of those, or with the answer to a heartbeat.
        if (self.counted(reach), reach.durable) != (self.counted(before), before.durable) {
            self.say_held(out);
        }
    }

    fn settle(&mut self, out: &mut Vec<Action>) {
        match self.role {
            Role::Waiting(_) => self.campaign(out),
            Role::Following(_) => self.step_in(out),
            Role::Leading(_) => self.drive(out),
        }
    }

    /// Asks the arbiter, and keeps in mind that it was asked.
    pub(crate) fn ask(&mut self, expect: u64, to: Configuration, out: &mut Vec<Action>) {
        out.push(Action::Change { expect, to: to.clone() });
        let of = self.forgot.clone().unwrap_or_else(|| self.known.clone());
        self.asked = Some(Asked { expect, to, of });
    }

    /// Whether it may tell a primary that it holds something. Who asked to be promoted may be it any moment, with no more
    /// than it held when it asked.
    pub(crate) fn confirms(&self) -> bool {
        self.asked.is_none() || !self.keeps(Rule::SilentCandidate)
    }

    fn hello(&self) -> Vec<Action> {
        let body = Body::Hello { version: self.known.version, life: self.setup.life, place: self.history.end() };
        self.others().map(|to| self.letter(to, body.clone())).collect()
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = Member> + '_ {
        self.setup.members.iter().copied().filter(|member| *member != self.setup.me)
    }

    pub(crate) fn letter(&self, to: Member, body: Body) -> Action {
        Action::Send(Letter { from: self.setup.me, to, epoch: self.known.epoch, body })
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.reach.received
    }

    #[cfg(test)]
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "only a test leaves a rule out")]
    pub(crate) const fn keeps(&self, _: Rule) -> bool {
        true
    }
}
