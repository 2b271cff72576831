//! Who looks after one registered resource: its prepared branches, and what became of those that it lists no more.
//!
//! Walk: [`Attendant::round`] notes which decisions have no driver · asks for the list and reads it · every branch of this
//! node is judged and told (`resolve`) · `orphans` concludes about decided branches that are not listed.
//! Deliberately absent: other resources (a dead one costs its own attendant its time, nobody else's) and threads;
//! [`crate::Agent`] runs all one after the other, [`crate::Attendance`] gives each a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use assent_ids::{Branch, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_world::{Clock, Moment};
use assent_xa::{BranchRecord, Connector, Native, Stay};

use crate::attended::{Seen, Sights};
use crate::recovery::Orphan;
use crate::rows::Rhythm;
use crate::station::Station;
use crate::{Coordinator, ResourceReport, Round, Standing, Stopped};

pub(crate) const PAUSE_IN_DOUBT: Duration = Duration::from_millis(500);
const PAUSE_AT_REST: Duration = Duration::from_secs(10);
/// So many more looks follow soon when a resource has come back: a server that was killed may list again what it had
/// answered as rolled back.
const LOOKS_AFTER_RETURN: u32 = 3;
/// And so many when it was called to look: the server of a client that has died may still be at its last words, and
/// prepare a branch seconds after the fence.
const LOOKS_AFTER_CALL: u32 = 6;

/// A prepared branch as it was seen in the last rounds.
pub(crate) struct Sight {
    pub(crate) branch: Branch,
    pub(crate) first: Moment,
    pub(crate) looks: u32,
    pub(crate) failures: u32,
    pub(crate) not_before: Moment,
    /// Nobody is known to have committed it or a sibling, and its decision may be lost: it waits for a person.
    pub(crate) is_held: bool,
    /// Why it is still there: what its resource said when it was told.
    pub(crate) trouble: Option<(Kind, Native)>,
}

/// A decided branch that was not listed, as it was missed in the last rounds.
#[derive(Default)]
pub(crate) struct Missed {
    pub(crate) looks: u32,
    pub(crate) failures: u32,
    pub(crate) not_before: Moment,
}

/// A look that has begun.
pub(crate) struct Look {
    /// Decided, durably, before the resource made its list.
    orphans: Vec<Orphan>,
    is_asked: bool,
    listing: Option<BTreeSet<Xid>>,
    stays: BTreeMap<Xid, Stay>,
}

/// The recovery of one resource.
pub struct Attendant {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) station: Station,
    registered: Arc<[ResourceId]>,
    pub(crate) sights: BTreeMap<Xid, Sight>,
    /// Branches of durably decided transactions that are not in the latest listing.
    pub(crate) missed: BTreeMap<Xid, Missed>,
    /// Of the resource's own rows.
    pub(crate) rows: Rhythm,
    /// Up to whom siblings were asked for in the last look.
    pub(crate) searched: Option<TxId>,
    is_in_doubt: bool,
    /// How often the resource had come back at the last look, and how many more are due soon since, whatever they show.
    returns: u64,
    looks_due: u32,
    has_met_rival: bool,
}

impl std::fmt::Debug for Attendant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.station.name();
        f.debug_struct("Attendant")
            .field("resource", &name)
            .field("prepared", &self.sights.len())
            .finish_non_exhaustive()
    }
}

impl Attendant {
    pub(crate) fn new(
        coordinator: Arc<Coordinator>,
        connector: Box<dyn Connector>,
        registered: Arc<[ResourceId]>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let station = Station::new(connector, coordinator.node());
        let (sights, missed) = (BTreeMap::new(), BTreeMap::new());
        Self {
            coordinator,
            clock,
            station,
            registered,
            sights,
            missed,
            rows: Rhythm::default(),
            searched: None,
            is_in_doubt: true,
            returns: 0,
            looks_due: 0,
            has_met_rival: false,
        }
    }

    /// The registered name of the resource.
    #[must_use]
    pub fn name(&self) -> &str {
        self.station.name()
    }

    /// How long to wait before the next round.
    #[must_use]
    pub fn pause(&self) -> Duration {
        match self.station.rival_until() {
            Some(until) => until.since(self.clock.now()),
            None if self.is_in_doubt || self.rows.is_busy || self.looks_due > 0 || self.coordinator.is_rivalled() => {
                PAUSE_IN_DOUBT
            }
            // Of a crowd that is searched for it answers a few in each look.
            None if !self.coordinator.questions(self.station.id).is_empty() => PAUSE_IN_DOUBT,
            None => PAUSE_AT_REST,
        }
    }

    /// Whether the resource's connection has ended while nobody asked it anything: a look is due. Costs no message.
    pub fn is_cut_off(&mut self) -> bool {
        self.station.is_cut_off()
    }

    /// Called to look, by a client that is lost or fenced: this look, and a few more soon.
    pub fn called(&mut self) {
        self.looks_due = self.looks_due.max(LOOKS_AFTER_CALL.saturating_add(1));
    }

    /// Somebody waits: what has failed is tried again in the next round, not later.
    pub fn hurry(&mut self) {
        self.station.hurry();
        self.sights.values_mut().for_each(|sight| sight.not_before = Moment(0));
        self.missed.values_mut().for_each(|missed| missed.not_before = Moment(0));
    }

    /// Connects and claims, and looks at nothing yet.
    pub fn claim(&mut self) {
        if !self.yields() {
            _ = self.station.open(self.clock.now());
        }
        self.tell_claim();
    }

    /// One look, and every action that follows.
    pub fn round(&mut self) -> Round {
        let mut look = self.ask();
        self.read(&mut look);
        self.act(look)
    }

    /// Puts the question on its way.
    pub(crate) fn ask(&mut self) -> Look {
        // Before anything is asked: decided, durably, when the resource makes its list.
        let orphans = self.coordinator.orphans(self.station.id);
        let is_asked = !self.yields() && self.station.ask(self.clock.now());
        // Whoever waits for the claims waits for no list.
        self.tell_claim();
        Look { orphans, is_asked, listing: None, stays: BTreeMap::new() }
    }

    /// Reads the answer, and tells everybody of a branch that stops all.
    pub(crate) fn read(&mut self, look: &mut Look) {
        let list = if look.is_asked { self.station.listed(self.clock.now()) } else { None };
        look.stays = self.station.stays();
        self.tell_claim();
        look.listing = list.map(BTreeSet::from_iter);
        if let Some(list) = &look.listing {
            let stranger = self.stranger(list).or_else(|| self.rows.stranger.clone());
            self.coordinator.stranger(self.station.id, stranger);
        }
    }

    /// Does what follows from it.
    pub(crate) fn act(&mut self, look: Look) -> Round {
        let mut round = Round::default();
        round.resources.push(ResourceReport {
            name: self.station.name().to_owned(),
            listed: look.listing.as_ref().map(BTreeSet::len),
            trouble: self.station.trouble().or_else(|| self.rows.trouble.clone()),
        });
        round.stopped = self.coordinator.stopped();
        if round.stopped.is_some() {
            self.missed.clear();
            self.is_in_doubt = true;
            // A row stops all until it has gone.
            if self.rows.stranger.is_some() && look.listing.is_some() {
                self.look_for_strangers();
            }
            return round;
        }
        match look.listing {
            Some(list) => {
                self.note(&list, look.stays, &mut round);
                self.resolve(&mut round);
                round.refused.extend(self.refused());
                self.conclude(look.orphans, &list, &mut round);
                // What is decided is told before anything is asked about what is not.
                self.search();
                self.keep_rows();
            }
            // A failure between two listings: the count begins anew.
            None => self.missed.clear(),
        }
        let swept = self.coordinator.sweep(&self.registered);
        if self.registered.first() == Some(&self.station.id) {
            // One of all says it.
            round.unregistered.extend(swept.unregistered);
        }
        // Rows that may not go make nobody wait: they are said, and that is all.
        let trouble = self.station.trouble().is_some();
        let open = round.branches.iter().any(|branch| branch.resolution.is_open());
        self.is_in_doubt = trouble || open || swept.open.contains(&self.station.id);
        let before = std::mem::replace(&mut self.returns, self.station.returns());
        let came_back = if before == self.returns { 0 } else { LOOKS_AFTER_RETURN };
        self.looks_due = self.looks_due.saturating_sub(1).max(came_back);
        if !self.is_in_doubt {
            self.station.rest();
        }
        round
    }

    /// Whether the claim is left to a process that has an earlier resource.
    fn yields(&mut self) -> bool {
        let Some(name) = self.coordinator.yields(self.station.id) else { return false };
        self.station.yield_to(&name, self.clock.now());
        true
    }

    fn tell_claim(&mut self) {
        self.has_met_rival |= self.coordinator.claimed(self.station.id, self.station.claim().clone());
    }

    /// Whether it has met the first rival since the last question: the others must look, and may have to step back.
    pub(crate) const fn has_met_rival(&mut self) -> bool {
        std::mem::replace(&mut self.has_met_rival, false)
    }

    /// A branch of this node that no client of ours can have begun: this folder is a copy, or an old one.
    fn stranger(&self, list: &BTreeSet<Xid>) -> Option<Stopped> {
        let node = self.coordinator.node();
        let ours = list.iter().filter_map(|xid| Some((xid, xid.branch().filter(|branch| branch.node == node)?)));
        let never = |branch: &Branch| self.coordinator.standing(branch.tx.incarnation) == Standing::Never;
        let (xid, branch) = ours.into_iter().find(|(_, branch)| never(branch))?;
        Some(Stopped { xid: *xid, tx: branch.tx, resource: self.station.name().to_owned() })
    }

    /// A branch that only a person can help, if there is one.
    fn refused(&self) -> Option<(TxId, String, Native)> {
        self.sights.values().find_map(|sight| match &sight.trouble {
            Some((Kind::Denied | Kind::Invalid, native)) => {
                Some((sight.branch.tx, self.station.name().to_owned(), native.clone()))
            }
            _ => None,
        })
    }

    /// Keeps what is prepared, and since when; tells the coordinator, which then forgets nothing of it.
    fn note(&mut self, list: &BTreeSet<Xid>, mut stays: BTreeMap<Xid, Stay>, round: &mut Round) {
        let (now, node) = (self.clock.now(), self.coordinator.node());
        let mut before = std::mem::take(&mut self.sights);
        for xid in list {
            let Some(branch) = xid.branch().filter(|branch| branch.node == node) else { continue };
            if branch.resource != self.station.id {
                // Two registered databases of one server list each other's; each is told over its own connection.
                if !self.registered.contains(&branch.resource) {
                    round.unregistered.push((branch.tx, branch.resource));
                }
                continue;
            }
            let mut sight = before.remove(xid).unwrap_or_else(|| Sight::new(branch, now));
            sight.looks = sight.looks.saturating_add(1);
            self.sights.insert(*xid, sight);
        }
        let mut sights = Sights::new();
        for (xid, sight) in &self.sights {
            let (since, records) = sights.entry(sight.branch.tx).or_insert((sight.first, Vec::new()));
            *since = sight.first.min(*since);
            records.push(Seen {
                record: sight.record(),
                stay: stays.remove(xid).unwrap_or_default(),
                trouble: sight.trouble.as_ref().map(|(_, native)| native.clone()),
                failures: sight.failures,
            });
        }
        self.coordinator.sighted(self.station.id, sights);
    }
}

impl Sight {
    const fn new(branch: Branch, first: Moment) -> Self {
        Self { branch, first, looks: 0, failures: 0, not_before: Moment(0), is_held: false, trouble: None }
    }

    const fn record(&self) -> BranchRecord {
        let Branch { resource, number, flags, mark, .. } = self.branch;
        BranchRecord { resource, number, flags, mark, witness: Vec::new() }
    }
}
