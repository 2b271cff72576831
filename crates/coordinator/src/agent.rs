//! Recovery that runs by itself: asks every registered resource for its prepared branches and finishes them as decided.
//!
//! Walk: [`Agent::round`] notes which decisions have no driver · asks all resources, then reads all answers · every
//! branch of this node is judged (`judge`) and told · a decision whose branches are all finished is forgotten.
//! A resource that is dead or slow costs its own time-out and then its own patience, nobody else's.
//! Deliberately absent: a thread; [`crate::Caretaker`] is one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use assent_ids::{Branch, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_world::stop::{self, Stop};
use assent_world::{Clock, Moment};
use assent_xa::{BranchRecord, Connector, DecideError, Heuristic, Native, Outcome, Reply, Verb};

use crate::judge::{Case, Judgement, judge};
use crate::recovery::Sights;
use crate::station::{Station, patience};
use crate::{BranchReport, Coordinator, Fate, Finish, Resolution, ResourceReport, Round, Standing, Stopped};

const PAUSE_IN_DOUBT: Duration = Duration::from_millis(500);
const PAUSE_AT_REST: Duration = Duration::from_secs(10);

/// A prepared branch as it was seen in the last rounds.
struct Sight {
    branch: Branch,
    first: Moment,
    looks: u32,
    failures: u32,
    not_before: Moment,
    heuristic: Option<(Heuristic, Native)>,
}

type Place = (usize, Xid);
/// A branch that a decision names.
type Named = (TxId, ResourceId, u16);
/// What a resource lists; `None` if it was not asked or did not answer.
type Listing = Option<BTreeSet<Xid>>;

/// The recovery agent.
pub struct Agent {
    coordinator: Arc<Coordinator>,
    clock: Arc<dyn Clock>,
    stations: Vec<Station>,
    sights: BTreeMap<Place, Sight>,
    /// Of durably decided transactions, and not in the latest listing of their resource.
    unlisted: BTreeSet<Named>,
    is_in_doubt: bool,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.stations.iter().map(Station::name).collect();
        f.debug_struct("Agent").field("resources", &names).field("prepared", &self.sights.len()).finish_non_exhaustive()
    }
}

impl Agent {
    /// An agent with its own connections to these resources.
    #[must_use]
    pub fn new(coordinator: Arc<Coordinator>, connectors: Vec<Box<dyn Connector>>, clock: Arc<dyn Clock>) -> Self {
        let stations = connectors.into_iter().map(Station::new).collect();
        Self { coordinator, clock, stations, sights: BTreeMap::new(), unlisted: BTreeSet::new(), is_in_doubt: true }
    }

    /// How long to wait before the next round.
    #[must_use]
    pub const fn pause(&self) -> Duration {
        if self.is_in_doubt { PAUSE_IN_DOUBT } else { PAUSE_AT_REST }
    }

    /// One look at every resource, and every action that follows.
    pub fn round(&mut self) -> Round {
        // Before anything is asked: decided, durably, when the resources make their lists.
        let orphans = self.coordinator.orphans();
        let mut round = Round::default();
        let listings = self.listings(&mut round);
        round.stopped = self.stranger(&listings);
        if round.stopped.is_some() {
            self.unlisted.clear();
            self.is_in_doubt = true;
            return round;
        }
        self.note(&listings, &mut round);
        let places: Vec<Place> = self.sights.keys().copied().filter(|(at, _)| is_listed(&listings, *at)).collect();
        for place in places {
            self.resolve(place, &mut round);
        }
        let left = self.settle(&orphans, &listings, &mut round);
        let trouble = round.resources.iter().any(|resource| resource.trouble.is_some());
        self.is_in_doubt = left || trouble || round.branches.iter().any(|branch| branch.resolution.is_open());
        round
    }

    /// Asks all, then reads all: their work overlaps.
    fn listings(&mut self, round: &mut Round) -> Vec<Listing> {
        let (node, clock) = (self.coordinator.node(), &self.clock);
        let asked: Vec<bool> = self.stations.iter_mut().map(|station| station.ask(node, clock.now())).collect();
        let mut listings = Vec::with_capacity(asked.len());
        for (station, asked) in self.stations.iter_mut().zip(asked) {
            let listing = if asked { station.listed(node, clock.now()) } else { None };
            let listing: Listing = listing.map(BTreeSet::from_iter);
            round.resources.push(ResourceReport {
                name: station.name().to_owned(),
                listed: listing.as_ref().map(BTreeSet::len),
                trouble: station.trouble(),
            });
            listings.push(listing);
        }
        listings
    }

    /// A branch of this node that no client of ours can have begun: this folder is a copy, or an old one.
    fn stranger(&self, listings: &[Listing]) -> Option<Stopped> {
        let ours = self.stations.iter().zip(listings).flat_map(|(station, listing)| {
            let list = listing.iter().flatten();
            list.filter_map(move |xid| Some((station, xid, xid.branch()?)))
        });
        let node = self.coordinator.node();
        let never = |branch: &Branch| {
            branch.node == node && self.coordinator.standing(branch.tx.incarnation) == Standing::Never
        };
        let (station, xid, branch) = ours.into_iter().find(|(_, _, branch)| never(branch))?;
        Some(Stopped { xid: *xid, tx: branch.tx, resource: station.name().to_owned() })
    }

    /// Keeps what is prepared, and since when; tells the coordinator, which then forgets nothing of it.
    fn note(&mut self, listings: &[Listing], round: &mut Round) {
        let now = self.clock.now();
        let node = self.coordinator.node();
        let mut before = std::mem::take(&mut self.sights);
        let known: Vec<ResourceId> = self.stations.iter().map(|station| station.id).collect();
        for (at, listing) in listings.iter().enumerate() {
            let Some(list) = listing else { continue };
            for xid in list {
                let Some(branch) = xid.branch().filter(|branch| branch.node == node) else { continue };
                if known.get(at) != Some(&branch.resource) {
                    // Two registered databases of one server list each other's; each is told over its own connection.
                    if !known.contains(&branch.resource) {
                        round.unregistered.push((branch.tx, branch.resource));
                    }
                    continue;
                }
                let mut sight = before.remove(&(at, *xid)).unwrap_or_else(|| Sight::new(branch, now));
                sight.looks = sight.looks.saturating_add(1);
                self.sights.insert((at, *xid), sight);
            }
        }
        // Not listed by a resource that was asked: finished. Not asked: still believed to be there.
        self.sights.extend(before.into_iter().filter(|((at, _), _)| !is_listed(listings, *at)));
        let mut sights = Sights::new();
        for sight in self.sights.values() {
            let (since, records) = sights.entry(sight.branch.tx).or_insert((sight.first, Vec::new()));
            *since = sight.first.min(*since);
            records.push(sight.record());
        }
        self.coordinator.sighted(sights);
    }

    fn resolve(&mut self, place: Place, round: &mut Round) {
        let Some(sight) = self.sights.get(&place) else { return };
        let branch = sight.branch;
        let resolution = match self.verdict(sight) {
            Order::Tell(outcome) => self.tell(place, outcome),
            Order::Forget(resolution) => self.forget(place, resolution),
            Order::Leave(resolution) => resolution,
        };
        self.keep(place, &branch, &resolution);
        let resource = self.stations.get(place.0).map_or("", Station::name).to_owned();
        round.branches.push(BranchReport { tx: branch.tx, xid: place.1, resource, resolution });
    }

    fn verdict(&self, sight: &Sight) -> Order {
        let now = self.clock.now();
        let Branch { tx, resource, number, .. } = sight.branch;
        if let Some((heuristic, native)) = &sight.heuristic {
            let kept = Resolution::Heuristic(*heuristic, native.clone());
            return match self.coordinator.fate(tx, resource, number) {
                Some(Fate::Cleared) => Order::Forget(Resolution::NotListed),
                _ => Order::Leave(kept),
            };
        }
        if now < sight.not_before {
            return Order::Leave(Resolution::Waiting);
        }
        let decided = match self.coordinator.decided(tx) {
            Ok(decided) => decided,
            Err(error) => return Order::Leave(retry(error)),
        };
        let case = Case {
            decided,
            client: self.coordinator.standing(tx.incarnation),
            looks: sight.looks,
            prepared: now.since(sight.first),
            prepared_max: Duration::from_millis(self.coordinator.config.prepared_ms_max),
        };
        match judge(case) {
            Judgement::Commit => Order::Tell(Outcome::Committed),
            Judgement::Rollback => Order::Tell(Outcome::RolledBack),
            Judgement::Abort(by) => {
                let same = self.sights.values().filter(|sight| sight.branch.tx == tx);
                let branches: Vec<BranchRecord> = same.map(Sight::record).collect();
                stop::about(Stop::AgentBeforeDecision, || tx);
                match self.coordinator.decide_abort(tx, by, &branches) {
                    Ok(outcome) => {
                        stop::about(Stop::AgentAfterDecision, || tx);
                        Order::Tell(outcome)
                    }
                    Err(error) => Order::Leave(retry(error)),
                }
            }
            // A stranger stopped the round before it came here.
            Judgement::Wait | Judgement::Stop => Order::Leave(Resolution::Waiting),
        }
    }

    fn tell(&mut self, place: Place, outcome: Outcome) -> Resolution {
        let now = self.clock.now();
        let (at, xid) = place;
        let verb = match outcome {
            Outcome::Committed => Verb::Commit(xid),
            Outcome::RolledBack => Verb::Rollback(xid),
        };
        let reply = self.stations.get_mut(at).and_then(|station| station.tell(verb, now));
        stop::about(Stop::AgentBetweenBranches, || xid);
        match (outcome, reply) {
            (_, None) => Resolution::Retry(Kind::Unavailable, Native::default()),
            (_, Some(Reply::Refused(kind, native))) => Resolution::Retry(kind, native),
            (_, Some(Reply::Lost(native))) => Resolution::Retry(Kind::InDoubt, native),
            (Outcome::Committed, Some(Reply::Done)) => Resolution::Committed,
            (Outcome::Committed, Some(Reply::Unknown(_))) => Resolution::CommittedInferred,
            (Outcome::Committed, Some(Reply::Heuristic(Heuristic::Committed, _))) => {
                self.forget(place, Resolution::Committed)
            }
            // It voted yes and broke its promise.
            (Outcome::Committed, Some(Reply::RolledBack(native))) => {
                Resolution::Heuristic(Heuristic::RolledBack, native)
            }
            (Outcome::RolledBack, Some(Reply::Done | Reply::Unknown(_) | Reply::RolledBack(_))) => {
                Resolution::RolledBack
            }
            (Outcome::RolledBack, Some(Reply::Heuristic(Heuristic::RolledBack, _))) => {
                self.forget(place, Resolution::RolledBack)
            }
            (_, Some(Reply::Heuristic(heuristic, native))) => Resolution::Heuristic(heuristic, native),
            (_, Some(other @ (Reply::Vote(_) | Reply::Listed(_) | Reply::Past(_)))) => misfit(&other),
        }
    }

    /// Its own outcome has been noted, or agrees: the resource need not remember it.
    fn forget(&mut self, place: Place, then: Resolution) -> Resolution {
        let now = self.clock.now();
        match self.stations.get_mut(place.0).and_then(|station| station.tell(Verb::Forget(place.1), now)) {
            Some(Reply::Done | Reply::Unknown(_)) => then,
            Some(Reply::Refused(kind, native)) => Resolution::Retry(kind, native),
            Some(Reply::Lost(native)) => Resolution::Retry(Kind::InDoubt, native),
            Some(other) => misfit(&other),
            None => Resolution::Retry(Kind::Unavailable, Native::default()),
        }
    }

    fn keep(&mut self, place: Place, branch: &Branch, resolution: &Resolution) {
        let now = self.clock.now();
        let fate = match resolution {
            Resolution::Committed => Fate::Finished(Finish::Committed),
            Resolution::CommittedInferred => Fate::Finished(Finish::CommittedInferred),
            Resolution::RolledBack => Fate::Finished(Finish::RolledBack),
            Resolution::NotListed => Fate::Finished(Finish::NotListed),
            Resolution::Heuristic(heuristic, native) => Fate::Heuristic(*heuristic, native.clone()),
            Resolution::Waiting => return,
            Resolution::Retry(..) => {
                if let Some(sight) = self.sights.get_mut(&place) {
                    sight.failures = sight.failures.saturating_add(1);
                    sight.not_before = now.after(patience(sight.failures));
                }
                return;
            }
        };
        match (&fate, self.sights.get_mut(&place)) {
            (Fate::Heuristic(heuristic, native), Some(sight)) => {
                sight.heuristic = Some((*heuristic, native.clone()));
            }
            _ => _ = self.sights.remove(&place),
        }
        self.coordinator.progress(branch.tx, branch.resource, branch.number, fate);
    }

    /// Concludes about branches that are not listed, and lets finished decisions go. Whether any is left.
    ///
    /// One listing is no evidence: it may come from a server that just lost its place (a standby, an old primary before
    /// its fail-over). Two one after the other are; a failure between them, and the count begins anew.
    fn settle(&mut self, orphans: &[(TxId, Vec<BranchRecord>)], listings: &[Listing], round: &mut Round) -> bool {
        let node = self.coordinator.node();
        let before = std::mem::take(&mut self.unlisted);
        let mut left = false;
        for (tx, branches) in orphans {
            for record in branches {
                let BranchRecord { resource, number, flags, .. } = *record;
                let at = self.stations.iter().position(|station| station.id == resource);
                let Some((station, listing)) = at.and_then(|at| self.stations.get(at).zip(listings.get(at))) else {
                    round.unregistered.push((*tx, resource));
                    continue;
                };
                let xid = Branch { node, tx: *tx, resource, number, flags }.xid();
                if listing.as_ref().is_none_or(|list| list.contains(&xid)) {
                    continue;
                }
                self.unlisted.insert((*tx, resource, number));
                let is_gone = before.contains(&(*tx, resource, number));
                let fate = Fate::Finished(Finish::NotListed);
                if is_gone && self.coordinator.progress(*tx, resource, number, fate) {
                    let resource = station.name().to_owned();
                    round.branches.push(BranchReport { tx: *tx, xid, resource, resolution: Resolution::NotListed });
                }
            }
            let open = self.coordinator.settle(*tx, branches);
            left |= open.iter().any(|resource| self.stations.iter().any(|station| station.id == *resource));
        }
        left
    }
}

/// What to do with one prepared branch.
enum Order {
    Tell(Outcome),
    Forget(Resolution),
    Leave(Resolution),
}

impl Sight {
    const fn new(branch: Branch, first: Moment) -> Self {
        Self { branch, first, looks: 0, failures: 0, not_before: Moment(0), heuristic: None }
    }

    const fn record(&self) -> BranchRecord {
        let Branch { resource, number, flags, .. } = self.branch;
        BranchRecord { resource, number, flags, witness: Vec::new() }
    }
}

fn is_listed(listings: &[Listing], at: usize) -> bool {
    listings.get(at).is_some_and(Option::is_some)
}

fn retry(error: DecideError) -> Resolution {
    Resolution::Retry(error.kind, Native { code: String::new(), message: error.message })
}

fn misfit(reply: &Reply) -> Resolution {
    let message = format!("{} does not answer that", reply.name());
    Resolution::Retry(Kind::Internal, Native { code: String::new(), message })
}
