//! What an attendant does with the branches that its resource lists: judges each, decides what must be decided, and tells
//! them, a crowd of them over several connections.
//!
//! Walk: [`Attendant::resolve`] · `verdict` asks the coordinator and `judge` · aborts are laid together and wait for one
//! sync · `freed`: no session on its way out may have it · `tell`, and `evict` for a branch that a fenced client's session
//! still keeps · `keep` notes how it was left.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_ids::{Branch, Xid};
use assent_kind::Kind;
use assent_world::stop::{self, Stop};
use assent_xa::{DecideError, Native, Outcome, Reply, Verb};

use crate::attendant::Sight;
use crate::judge::{Case, Judgement, judge};
use crate::orphans::Question;
use crate::rows::Row;
use crate::siblings::Sibling;
use crate::station::patience;
use crate::{Attendant, BranchReport, Fate, Finish, LostDecision, Pending, Resolution, Round, Standing};

impl Attendant {
    /// Judges every branch, decides what must be decided, then tells all.
    pub(crate) fn resolve(&mut self, round: &mut Round) {
        let mut done: BTreeMap<Xid, Resolution> = BTreeMap::new();
        let (mut orders, mut laid) = (Vec::new(), Vec::new());
        let (mut cleared, mut held, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for (xid, sight) in &self.sights {
            match self.verdict(sight) {
                Order::Tell(outcome) => orders.push((*xid, outcome)),
                Order::Decided(pending) => laid.push((*xid, sight.branch.tx, pending)),
                Order::Hold => held.push(*xid),
                Order::Forget => cleared.push(*xid),
                Order::Leave(resolution) => _ = done.insert(*xid, resolution),
                Order::Ask(native) => asked.push((*xid, native)),
            }
        }
        for (xid, native) in asked {
            // What keeps it is not its resource: it is not told less often for that.
            self.sights.entry(xid).and_modify(|sight| sight.trouble = Some((Kind::Unavailable, native)));
            done.insert(xid, Resolution::Waiting);
        }
        for xid in held {
            self.sights.entry(xid).and_modify(|sight| sight.is_held = true);
            done.insert(xid, Resolution::Held);
        }
        for xid in cleared {
            let resolution = self.forget(xid, Resolution::NotListed);
            done.insert(xid, resolution);
        }
        // All are laid, now one sync is enough: the first that waits waits for all.
        for (xid, tx, pending) in laid {
            match self.coordinator.decide_strictly(pending) {
                Ok(outcome) => {
                    stop::about(Stop::AgentAfterDecision, || tx);
                    orders.push((xid, outcome));
                }
                Err(error) => _ = done.insert(xid, retry(error)),
            }
        }
        done.extend(self.tell(orders));
        for (xid, resolution) in done {
            self.keep(xid, resolution, round);
        }
    }

    /// Tells each what is decided; what they answer, and what a second question shows where that is not the end of it.
    fn tell(&mut self, orders: Vec<(Xid, Outcome)>) -> Vec<(Xid, Resolution)> {
        let (orders, mut busy, mut done) = self.freed(orders);
        let verbs = orders.iter().map(|(xid, outcome)| told(*xid, *outcome)).collect();
        let replies = self.station.tell_all(verbs, self.clock.now(), |told| {
            if let Some((xid, _)) = orders.get(told.saturating_sub(1)) {
                stop::about(Stop::AgentBetweenBranches, || xid);
            }
        });
        let mut unknown = Vec::new();
        for ((xid, outcome), reply) in orders.into_iter().zip(replies) {
            match reply {
                Some(Reply::Unknown(_)) => unknown.push((xid, outcome)),
                Some(Reply::Refused(Kind::Busy, native)) if self.is_fenced(xid) => busy.push((xid, outcome, native)),
                reply => done.push((xid, self.answered(xid, outcome, reply))),
            }
        }
        for (xid, outcome, native) in busy {
            let resolution = self.evict(xid, outcome, native);
            match resolution {
                Some(resolution) => done.push((xid, resolution)),
                None => unknown.push((xid, outcome)),
            }
        }
        let questions = unknown.into_iter().filter_map(|(xid, outcome)| {
            let Branch { tx, resource, number, .. } = self.sights.get(&xid)?.branch;
            Some(Question { xid, outcome, witness: self.coordinator.witness(tx, resource, number) })
        });
        let questions: Vec<Question> = questions.collect();
        done.extend(self.inquire(questions));
        done
    }

    /// Those that may be told now; those whose session still has to be ended; those that come again.
    fn freed(&mut self, orders: Vec<(Xid, Outcome)>) -> Sorted {
        let asked = orders.iter().filter_map(|(xid, _)| Some((*xid, self.question(*xid)?)));
        let (asked, verbs): (Vec<Xid>, Vec<Verb>) = asked.unzip();
        let replies = self.station.tell_all(verbs, self.clock.now(), |_| {});
        let mut held: BTreeMap<Xid, Option<Reply>> = asked.into_iter().zip(replies).collect();
        held.retain(|_, reply| *reply != Some(Reply::Done));
        let (mut free, mut busy, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for (xid, outcome) in orders {
            match held.remove(&xid) {
                None => free.push((xid, outcome)),
                Some(Some(Reply::Refused(Kind::Busy, native))) if self.is_fenced(xid) => {
                    busy.push((xid, outcome, native));
                }
                Some(reply) => done.push((xid, self.answered(xid, outcome, reply))),
            }
        }
        (free, busy, done)
    }

    /// What the decision keeps of the branch's vote.
    fn voter(&self, xid: Xid) -> Vec<u8> {
        let Some(sight) = self.sights.get(&xid) else { return Vec::new() };
        let Branch { tx, resource, number, .. } = sight.branch;
        self.coordinator.witness(tx, resource, number)
    }

    /// What comes before an outcome, be it commit or rollback: has the session that had the branch gone? Whose it is says the
    /// witness of the vote, else any session of a client that never decides again may be it. None where neither is known:
    /// of a client that may come back other sessions stay for as long as it likes.
    fn question(&self, xid: Xid) -> Option<Verb> {
        let witness = self.voter(xid);
        let is_over = matches!(self.standing(xid), Some(Standing::Fencing | Standing::Fenced));
        (is_over || !witness.is_empty()).then_some(Verb::Freed { xid, witness })
    }

    /// One of them.
    fn tell_one(&mut self, xid: Xid, outcome: Outcome) -> Option<Reply> {
        let now = self.clock.now();
        if let Some(question) = self.question(xid) {
            let reply = self.station.tell(question, now);
            if reply != Some(Reply::Done) {
                return reply;
            }
        }
        self.station.tell(told(xid, outcome), now)
    }

    /// A session of a client that is fenced for ever keeps the branch: it is ended, and the branch told once more. None if
    /// the branch is gone by then.
    fn evict(&mut self, xid: Xid, outcome: Outcome, busy: Native) -> Option<Resolution> {
        let now = self.clock.now();
        // Another branch of the same client may have freed this one.
        let again = match self.tell_one(xid, outcome) {
            Some(Reply::Refused(Kind::Busy, waits_for)) => match self.station.tell(Verb::Evict(xid), now) {
                // Whoever may have had it has gone, and nobody who came later can have it. Asked for any session, a client
                // that opens its own again would be found for ever.
                Some(Reply::Done) if self.voter(xid).is_empty() => self.station.tell(told(xid, outcome), now),
                Some(Reply::Done) => self.tell_one(xid, outcome),
                // Nobody knows that one of those has it, and they may stay for ever: if one has, the branch itself says so.
                Some(Reply::Refused(Kind::Denied, native)) if self.voter(xid).is_empty() => {
                    match self.station.tell(told(xid, outcome), now) {
                        Some(Reply::Refused(Kind::Busy, _)) => return Some(Resolution::Retry(Kind::Denied, native)),
                        again => again,
                    }
                }
                Some(Reply::Refused(kind, native)) => return Some(Resolution::Retry(kind, both(waits_for, native))),
                Some(_) | None => return Some(Resolution::Retry(Kind::Busy, busy)),
            },
            again => again,
        };
        match again {
            Some(Reply::Unknown(_)) => None,
            again => Some(self.answered(xid, outcome, again)),
        }
    }

    fn is_fenced(&self, xid: Xid) -> bool {
        self.standing(xid) == Some(Standing::Fenced)
    }

    fn standing(&self, xid: Xid) -> Option<Standing> {
        Some(self.coordinator.standing(self.sights.get(&xid)?.branch.tx.incarnation))
    }

    fn verdict(&self, sight: &Sight) -> Order {
        let now = self.clock.now();
        let Branch { tx, resource, number, .. } = sight.branch;
        match self.coordinator.fate(tx, resource, number) {
            Some(Fate::Cleared) => return Order::Forget,
            Some(Fate::Heuristic(heuristic, native)) => {
                return Order::Leave(Resolution::Heuristic(heuristic, native));
            }
            Some(Fate::Open | Fate::Prepared | Fate::Finished(_)) | None => {}
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
            is_rivalled: self.coordinator.is_rivalled(),
            may_be_lost: self.coordinator.may_be_lost(tx),
            is_marked: sight.branch.mark.is_some(),
            prepared_max: Duration::from_millis(self.coordinator.config.prepared_ms_max),
        };
        let mut judgement = judge(case);
        if judgement == Judgement::Settle {
            match self.coordinator.row(tx, sight.branch.mark) {
                Row::Unknown(native) => return Order::Ask(native),
                // Nobody can decide commit by it any more: what is left is the log's.
                Row::None | Row::RolledBack => judgement = judge(Case { is_marked: false, ..case }),
            }
        }
        match judgement {
            Judgement::Commit => Order::Tell(Outcome::Committed),
            Judgement::Rollback => Order::Tell(Outcome::RolledBack),
            Judgement::Abort(by) => {
                stop::about(Stop::AgentBeforeDecision, || tx);
                decided_now(self.coordinator.abort_begin(tx, by))
            }
            Judgement::Search(by) => {
                match (self.coordinator.sibling(tx, sight.branch.mark), self.coordinator.config.lost_decision) {
                    (Sibling::Committed(record), _) => decided_now(self.coordinator.restore_begin(tx, record)),
                    (Sibling::Nowhere, LostDecision::Hold) => Order::Hold,
                    (Sibling::Nowhere, LostDecision::Rollback) => decided_now(self.coordinator.abort_begin(tx, by)),
                    (Sibling::Unknown, _) if sight.is_held => Order::Leave(Resolution::Held),
                    (Sibling::Unknown, _) => Order::Leave(Resolution::Waiting),
                }
            }
            // A stranger stopped the round before it came here.
            Judgement::Wait | Judgement::Settle | Judgement::Stop => Order::Leave(Resolution::Waiting),
        }
    }

    fn answered(&mut self, xid: Xid, outcome: Outcome, reply: Option<Reply>) -> Resolution {
        use assent_xa::Heuristic as How;
        match (outcome, reply) {
            (_, None) => Resolution::Retry(Kind::Unavailable, Native::default()),
            (_, Some(Reply::Refused(kind, native))) => Resolution::Retry(kind, native),
            (_, Some(Reply::Lost(native))) => Resolution::Retry(Kind::InDoubt, native),
            (Outcome::Committed, Some(Reply::Done)) => Resolution::Committed,
            (Outcome::Committed, Some(Reply::Heuristic(How::Committed, _))) => self.forget(xid, Resolution::Committed),
            // It voted yes and broke its promise.
            (Outcome::Committed, Some(Reply::RolledBack(native))) => Resolution::Heuristic(How::RolledBack, native),
            (Outcome::RolledBack, Some(Reply::Done | Reply::RolledBack(_))) => Resolution::RolledBack,
            (Outcome::RolledBack, Some(Reply::Heuristic(How::RolledBack, _))) => {
                self.forget(xid, Resolution::RolledBack)
            }
            (_, Some(Reply::Heuristic(heuristic, native))) => Resolution::Heuristic(heuristic, native),
            // Unknown branches are asked about instead.
            (_, Some(other)) => misfit(&other),
        }
    }

    /// Its own outcome has been noted, or agrees: the resource need not remember it.
    fn forget(&mut self, xid: Xid, then: Resolution) -> Resolution {
        match self.station.tell(Verb::Forget(xid), self.clock.now()) {
            Some(Reply::Done | Reply::Unknown(_)) => then,
            Some(Reply::Refused(kind, native)) => Resolution::Retry(kind, native),
            Some(Reply::Lost(native)) => Resolution::Retry(Kind::InDoubt, native),
            Some(other) => misfit(&other),
            None => Resolution::Retry(Kind::Unavailable, Native::default()),
        }
    }

    /// Notes how a listed branch was left, for the next round, for the coordinator, and for whoever reads the round.
    fn keep(&mut self, xid: Xid, resolution: Resolution, round: &mut Round) {
        let Some(sight) = self.sights.get_mut(&xid) else { return };
        let Branch { tx, resource, number, .. } = sight.branch;
        if let Resolution::Retry(kind, native) = &resolution {
            sight.trouble = Some((*kind, native.clone()));
            sight.failures = sight.failures.saturating_add(1);
            sight.not_before = self.clock.now().after(patience(sight.failures));
        }
        let retries = sight.failures;
        if let Some(fate) = fate(&resolution) {
            if matches!(fate, Fate::Finished(_)) {
                self.sights.remove(&xid);
            }
            self.coordinator.progress(tx, resource, number, fate, retries);
        }
        round.branches.push(BranchReport { tx, xid, resource: self.station.name().to_owned(), resolution });
    }
}

/// Free, busy, done with for now.
type Sorted = (Vec<(Xid, Outcome)>, Vec<(Xid, Outcome, Native)>, Vec<(Xid, Resolution)>);

/// What to do with one prepared branch.
enum Order {
    Tell(Outcome),
    Decided(Pending),
    Hold,
    Forget,
    Leave(Resolution),
    /// Its row is asked for.
    Ask(Native),
}

/// What a branch waits for, and why that cannot be ended: neither alone explains it.
fn both(waits_for: Native, Native { code, message }: Native) -> Native {
    if waits_for.message.is_empty() || waits_for.message == message {
        return Native { code, message };
    }
    Native { code, message: format!("{}; {message}", waits_for.message) }
}

fn decided_now(laid: Result<Pending, DecideError>) -> Order {
    match laid {
        Ok(pending) => Order::Decided(pending),
        Err(error) => Order::Leave(retry(error)),
    }
}

const fn told(xid: Xid, outcome: Outcome) -> Verb {
    match outcome {
        Outcome::Committed => Verb::Commit(xid),
        Outcome::RolledBack => Verb::Rollback(xid),
    }
}

/// What the coordinator keeps of it, if there is anything new.
pub(crate) fn fate(resolution: &Resolution) -> Option<Fate> {
    Some(match resolution {
        Resolution::Committed => Fate::Finished(Finish::Committed),
        Resolution::CommittedInferred => Fate::Finished(Finish::CommittedInferred),
        Resolution::RolledBack => Fate::Finished(Finish::RolledBack),
        Resolution::NotListed => Fate::Finished(Finish::NotListed),
        Resolution::Heuristic(heuristic, native) => Fate::Heuristic(*heuristic, native.clone()),
        Resolution::Waiting | Resolution::Held | Resolution::Retry(..) => return None,
    })
}

fn retry(error: DecideError) -> Resolution {
    Resolution::Retry(error.kind, Native { code: String::new(), message: error.message })
}

pub(crate) fn misfit(reply: &Reply) -> Resolution {
    let message = format!("{} does not answer that", reply.name());
    Resolution::Retry(Kind::Internal, Native { code: String::new(), message })
}
