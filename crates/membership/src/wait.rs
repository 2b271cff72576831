//! A member that neither leads nor follows: whom it waits for, and when it asks to lead.

use crate::configuration::Configuration;
use crate::event::{Action, Standing, Why};
use crate::history::Place;
use crate::member::{Life, Member};
use crate::node::{Asked, Node, Role};
use crate::reach::Ack;
use crate::rules::Rule;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    /// It followed or led in this life, until a moment ago: whom to promote need not be found out first.
    pub(crate) running: bool,
    /// The primary does not lead any more, as far as can be seen from here.
    pub(crate) lost: bool,
    /// It has waited for the others long enough.
    pub(crate) patient: bool,
    /// The arbiter has said what it holds since the waiting began.
    pub(crate) read: bool,
    /// A person said so.
    pub(crate) forced: bool,
    /// Who else waits, in which life, with which log.
    pub(crate) heard: Vec<(Member, Life, Place)>,
}

impl Waiting {
    pub(crate) const fn started() -> Self {
        Self { running: false, lost: false, patient: false, read: false, forced: false, heard: Vec::new() }
    }

    pub(crate) const fn lost_primary() -> Self {
        Self { running: true, lost: true, patient: false, read: false, forced: false, heard: Vec::new() }
    }
}

impl Node {
    /// Asks to lead, if it should.
    pub(crate) fn campaign(&mut self, out: &mut Vec<Action>) {
        let may_ask_again = |asked: &Asked| self.asks_by_force() && self.is_asked_in_vain(asked);
        if self.pause > 0 || self.asked.as_ref().is_some_and(|asked| !may_ask_again(asked)) {
            return;
        }
        match self.candidacy() {
            Ok((expect, to)) => self.ask(expect, to, out),
            Err(Why::Unsynced) => out.push(Action::Sync),
            Err(_) => {}
        }
    }

    /// Whether a person's word goes before it: an arbiter that was set back holds something else than it was asked of. Comes it
    /// true nevertheless, or what is asked now, the other one does not: both are the next version.
    pub(crate) fn is_asked_in_vain(&self, asked: &Asked) -> bool {
        self.forgot.as_ref().is_some_and(|holds| *holds != asked.of)
    }

    /// What it asks of the arbiter, or why it asks nothing.
    fn candidacy(&self) -> Result<(u64, Configuration), Why> {
        let Role::Waiting(waiting) = &self.role else { return Err(Why::Asked) };
        if self.out {
            return Err(Why::Out);
        }
        let (me, life) = (self.setup.me, self.setup.life);
        if waiting.forced {
            return match &self.forgot {
                // What the others remember, and what it holds itself, is older than this.
                Some(holds) => {
                    let to = self.known.raised(holds).alone(me, life, true);
                    self.on_disk(to).map(|(_, to)| (holds.version, to))
                }
                None if waiting.read => self.on_disk(self.known.alone(me, life, true)),
                None => Err(Why::ArbiterUnread),
            };
        }
        if let Some(why) = self.arbiter_forgot() {
            return Err(why);
        }
        if !waiting.read {
            return Err(Why::ArbiterUnread);
        }
        if self.known.in_sync.is_empty() {
            return self.first(waiting);
        }
        let lost = waiting.lost || self.known.primary == Some(me);
        if let Some(primary) = self.known.primary.filter(|_| !lost) {
            return Err(Why::PrimaryExpected(primary));
        }
        if self.is_whole() || !self.keeps(Rule::OnlyInSync) {
            self.ranks(waiting, true)?;
            let to = self.known.promoted(me, life);
            return self.on_disk(to);
        }
        self.coldest(waiting)
    }

    /// The very first configuration: everybody is there, and nobody has anything.
    fn first(&self, waiting: &Waiting) -> Result<(u64, Configuration), Why> {
        let missing = self.missing(waiting, self.setup.members.iter().copied());
        if !missing.is_empty() {
            return Err(Why::Missing(missing));
        }
        if let Some((member, ..)) = waiting.heard.iter().find(|(.., place)| *place != Place::default()) {
            return Err(Why::Outranked(*member));
        }
        if self.place() != Place::default() {
            return Err(Why::NotInSync(Vec::new()));
        }
        if self.setup.preferred != self.setup.me {
            return Err(Why::Outranked(self.setup.preferred));
        }
        Ok((self.known.version, self.known.alone(self.setup.me, self.setup.life, false)))
    }

    /// Nobody in the set lives as it did: the memory of all is gone. If all are there, the best disk leads.
    fn coldest(&self, waiting: &Waiting) -> Result<(u64, Configuration), Why> {
        let set = &self.known.in_sync;
        let holders = || set.iter().map(|(member, _)| member).filter(|member| *member != self.setup.me).collect();
        if set.life(self.setup.me).is_none_or(|then| then.disk != self.setup.life.disk) {
            return Err(Why::NotInSync(holders()));
        }
        // A greeting from before the recorded life is an old one: that member may be up and whole. And a disk that is not
        // the recorded one is a loss that a person should know of.
        let since = |then: Life, now: &Life| then.disk == now.disk && then.memory <= now.memory;
        let current = |member: &Member| {
            waiting
                .heard
                .iter()
                .any(|(of, life, _)| of == member && set.life(*of).is_some_and(|then| since(then, life)))
        };
        let missing: Vec<Member> = set
            .iter()
            .map(|(member, _)| member)
            .filter(|member| *member != self.setup.me && !current(member))
            .collect();
        if !missing.is_empty() {
            return Err(Why::Missing(missing));
        }
        if waiting.heard.iter().any(|(member, life, _)| set.vouches(*member, *life)) {
            return Err(Why::NotInSync(holders()));
        }
        self.ranks(waiting, false)?;
        self.on_disk(self.known.alone(self.setup.me, self.setup.life, false))
    }

    /// Whether no other candidate comes first: epoch, then sequence, then the preferred one, then the lower number.
    fn ranks(&self, waiting: &Waiting, whole: bool) -> Result<(), Why> {
        let set = &self.known.in_sync;
        if waiting.patient && whole {
            return Ok(());
        }
        if !waiting.running && whole {
            let missing = self.missing(waiting, set.iter().map(|(member, _)| member));
            if !missing.is_empty() {
                return Err(Why::Missing(missing));
            }
        }
        let rank = |member: Member, place: Place| (place, member == self.setup.preferred, std::cmp::Reverse(member));
        let own = rank(self.setup.me, self.place());
        let candidates = waiting
            .heard
            .iter()
            .filter(|(member, life, _)| set.life(*member).is_some() && (!whole || set.vouches(*member, *life)));
        match candidates.map(|(member, _, place)| rank(*member, *place)).max() {
            Some(best) if best > own => Err(Why::Outranked(best.2.0)),
            _ => Ok(()),
        }
    }

    /// Alone, only the disk counts from now on: everything is there before it asks.
    fn on_disk(&self, to: Configuration) -> Result<(u64, Configuration), Why> {
        let alone = to.in_sync.is_only(self.setup.me) && self.setup.ack != Ack::None;
        if alone && self.reach.durable < self.reach.received && self.keeps(Rule::DurableAlone) {
            return Err(Why::Unsynced);
        }
        Ok((self.known.version, to))
    }

    pub(crate) fn arbiter_forgot(&self) -> Option<Why> {
        let holds = self.forgot.as_ref()?.version;
        Some(Why::ArbiterForgot { holds, seen: self.known.version })
    }

    fn missing(&self, waiting: &Waiting, of: impl Iterator<Item = Member>) -> Vec<Member> {
        of.filter(|member| *member != self.setup.me && !waiting.heard.iter().any(|(heard, ..)| heard == member))
            .collect()
    }

    pub(crate) fn waiting_standing(&self) -> Standing {
        Standing::Waits(match self.candidacy() {
            // What is asked of an arbiter that was set back is not what it waits for.
            Err(why @ Why::ArbiterForgot { .. }) => why,
            Err(why) if self.asked.is_none() => why,
            Ok(_) if self.pause > 0 => Why::ArbiterRefuses,
            _ => Why::Asked,
        })
    }
}
