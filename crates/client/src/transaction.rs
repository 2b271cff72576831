//! One transaction of the application.

use std::sync::Arc;

use assent_ids::{Branch, Mark, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::{BRANCHES_MAX, Cause, Event, Native, Outcome, Report, Resource, TxReturn, Verdict, Voted};

use crate::drive::{Drive, Ended, broken};
use crate::seat::{Chair, Enlisted, Seat, Shared, lock};
use crate::{Client, CommitError, Committed, RolledBack, WorkError};

/// Work on several resources that commits or is undone as one. Dropped, it rolls back.
pub struct Transaction<'r> {
    client: Client,
    node: NodeId,
    tx: TxId,
    seats: Vec<Shared<'r>>,
    /// Branches that did not start, for history.
    refused: Vec<Voted>,
    /// Where the first branch may keep the decision: what the XIDs of all say. Its own, too: where it is prepared as any other, and the
    /// decision lost (RPO > 0), recovery looks for its siblings by the names that they have.
    mark: Option<Mark>,
    is_over: bool,
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, tx, seats, is_over, .. } = self;
        let (branches, node) = (seats.len(), node.to_string());
        f.debug_struct("Transaction")
            .field("node", &node)
            .field("tx", tx)
            .field("branches", &branches)
            .field("is_over", is_over)
            .finish_non_exhaustive()
    }
}

impl<'r> Transaction<'r> {
    pub(crate) const fn new(client: Client, node: NodeId, tx: TxId) -> Self {
        Self { client, node, tx, seats: Vec::new(), refused: Vec::new(), mark: None, is_over: false }
    }

    /// Its name.
    #[must_use]
    pub const fn tx(&self) -> TxId {
        self.tx
    }

    /// The coordinator that decides it.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Takes a resource in: its work belongs to this transaction from now on. Sends the start and does not wait.
    pub fn enlist<R: Resource + ?Sized + 'r>(&mut self, resource: &'r mut R) -> Enlisted<'r, R> {
        if self.seats.is_empty() {
            self.mark = self.mark_of(resource);
        }
        let xid = self.next(resource.name());
        let enlisted = Enlisted::new(self.node, self.tx, xid, resource);
        self.seats.push(enlisted.seat());
        enlisted
    }

    /// Takes a resource in and keeps it, where the work reaches its branch by the name that this returns and not by this
    /// connection: in a store of this process. The branch has started when this returns.
    ///
    /// # Errors
    /// [`WorkError`] if it has not; the transaction can only be rolled back.
    pub fn keep<R: Resource + 'r>(&mut self, mut resource: R) -> Result<Xid, WorkError> {
        if self.seats.is_empty() {
            self.mark = self.mark_of(&mut resource);
        }
        let xid = self.next(resource.name());
        let seat: Shared<'r> = Arc::new(Chair::new(Seat::begin(self.node, self.tx, xid, resource)));
        let started = lock(&seat).started();
        self.seats.push(seat);
        started.map(|()| xid)
    }

    /// The name of the next branch.
    fn next(&self, resource: &str) -> Xid {
        // More branches than two bytes count are refused at the commit.
        let number = u16::try_from(self.seats.len()).unwrap_or(u16::MAX);
        Branch { node: self.node, tx: self.tx, resource: ResourceId::of(resource), number, flags: 0, mark: self.mark }
            .xid()
    }

    /// Where this one, the first of all, may keep the decision. Whoever began before it could not say so in its XID.
    fn mark_of<R: Resource + ?Sized>(&self, resource: &mut R) -> Option<Mark> {
        let mark = Mark { resource: ResourceId::of(resource.name()), ..resource.decides()? };
        self.client.decider().settles(&[mark.resource]).then_some(mark)
    }

    /// Commits everywhere, or nowhere.
    ///
    /// # Errors
    /// [`CommitError`]: its kind says what holds now. `Invalid` while this very thread holds a [`crate::Work`] of it: then its branches are given
    /// up with their connections, which undoes them, the one that is held when its work is let go of.
    pub fn commit(mut self) -> Result<Committed, CommitError> {
        self.refuse_while_held()?;
        if let Err(error) = self.starts() {
            let undone = self.run(Event::Rollback)?;
            if !self.refused.is_empty() {
                self.client.decider().voted(self.tx, Outcome::RolledBack, &self.refused);
            }
            let returned = undone.0.returned.of_commit();
            return Err(match self.judge(&undone) {
                Err(ended) if ended.kind != Kind::RolledBack => CommitError { returned, ..ended },
                _ => {
                    let message = format!("transaction {} is rolled back: {error}{}", self.tx, self.left(&undone.0));
                    CommitError { kind: Kind::RolledBack, returned, tx: self.tx, message }
                }
            });
        }
        let ended = self.run(Event::Commit)?;
        self.judge(&ended)
    }

    /// Undoes everything. Branches that cannot be told now are named, and told by recovery.
    ///
    /// # Errors
    /// [`CommitError`] of kind `Heuristic` if a resource had committed its branch by itself; `Invalid` as for a commit.
    pub fn rollback(mut self) -> Result<RolledBack, CommitError> {
        self.refuse_while_held()?;
        // What has not started is not there to be undone.
        _ = self.starts();
        let ended = self.run(Event::Rollback)?;
        match self.judge(&ended) {
            Err(error) if error.kind != Kind::RolledBack => Err(error),
            _ => Ok(RolledBack { tx: self.tx, unfinished: self.unfinished(&ended.0) }),
        }
    }

    /// Who holds a work of it would wait for himself.
    fn refuse_while_held(&self) -> Result<(), CommitError> {
        let tx = self.tx;
        if !self.is_held() {
            return Ok(());
        }
        let message = format!("this thread still works on a resource of transaction {tx}: let go of its Work first");
        Err(CommitError { kind: Kind::Invalid, returned: TxReturn::Fail, tx, message })
    }

    fn is_held(&self) -> bool {
        self.seats.iter().any(|seat| seat.is_mine())
    }

    /// Receives the starts that nobody worked behind; branches that surely did not start are let go.
    fn starts(&mut self) -> Result<(), WorkError> {
        let mut outcome = Ok(());
        if self.seats.len() > BRANCHES_MAX {
            let message = format!("{} branches; a transaction has at most {BRANCHES_MAX}", self.seats.len());
            let native = Native { code: String::new(), message };
            let reply = assent_xa::Reply::Refused(Kind::Invalid, native);
            outcome = Err(WorkError::NotStarted { resource: "the last".to_owned(), reply });
        }
        for seat in &self.seats {
            outcome = outcome.and(lock(seat).started());
        }
        self.refused = self.seats.iter().filter_map(|seat| lock(seat).refused()).collect();
        let seats = std::mem::take(&mut self.seats);
        self.seats = seats.into_iter().filter(|seat| !lock(seat).is_empty()).collect();
        outcome
    }

    fn run(&mut self, word: Event) -> Result<Ended, CommitError> {
        self.is_over = true;
        self.seats.iter().for_each(|seat| lock(seat).leave());
        let decider = self.client.decider();
        let ended = Drive::new(self.tx, decider, &self.seats, self.mark).run(word, self.client.retries());
        ended.map_err(|error| broken(self.tx, &error))
    }

    fn name(&self, branch: u16) -> String {
        self.seats.get(usize::from(branch)).map(|seat| lock(seat).resource.name().to_owned()).unwrap_or_default()
    }

    /// The branches that recovery has to tell, and why.
    fn unfinished(&self, report: &Report) -> Vec<(String, Native)> {
        report.unfinished.iter().map(|left| (self.name(left.branch), left.native.clone())).collect()
    }

    /// The same as a clause.
    fn left(&self, report: &Report) -> String {
        let names: Vec<String> = report.unfinished.iter().map(|left| self.name(left.branch)).collect();
        if names.is_empty() { String::new() } else { format!("; recovery tells {}", names.join(", ")) }
    }

    fn judge(&self, (report, doubt): &Ended) -> Result<Committed, CommitError> {
        let (tx, left) = (self.tx, self.left(report));
        let (kind, message) = match &report.verdict {
            Verdict::Committed => {
                return Ok(Committed {
                    tx,
                    unfinished: self.unfinished(report),
                    inferred: report.inferred.iter().map(|branch| self.name(*branch)).collect(),
                });
            }
            Verdict::RolledBack(cause) => {
                (Kind::RolledBack, format!("transaction {tx} is rolled back: {}{left}", self.cause(cause)))
            }
            Verdict::InDoubt(native) => {
                let why = match doubt {
                    Some(error) => format!("{error}; ask for it by this name{left}"),
                    // One phase: the coordinator never heard of it.
                    None => format!("the only branch with work has not answered ({}); look there", native.message),
                };
                (Kind::InDoubt, format!("transaction {tx} of node {} is committed or rolled back: {why}", self.node))
            }
            Verdict::Heuristic(list) => {
                let each = list.iter().map(|it| {
                    format!("{} {:?} {} {}", self.name(it.branch), it.heuristic, it.native.code, it.native.message)
                });
                let decided = report.decided.map_or("without a decision".to_owned(), |it| format!("decided {it:?}"));
                let each = each.collect::<Vec<_>>().join("; ");
                (Kind::Heuristic, format!("transaction {tx}, {decided}, ended otherwise in part: {each}{left}"))
            }
        };
        Err(CommitError { kind, returned: report.returned, tx, message })
    }

    fn cause(&self, cause: &Cause) -> String {
        match cause {
            Cause::Asked => "as the application asked".to_owned(),
            Cause::Branch { branch, kind, native } => {
                format!(
                    "resource {:?} could not commit ({kind}): {} {}",
                    self.name(*branch),
                    native.code,
                    native.message
                )
            }
            Cause::Decided => "recovery or an operator had decided so before".to_owned(),
            Cause::NotDecided(error) => format!("no decision could be made ({}): {error}", error.kind),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.is_held() {
            self.seats.iter().for_each(|seat| seat.give_up());
            return;
        }
        _ = self.starts();
        // Nobody is there to be told; recovery finishes what cannot be done now.
        _ = self.run(Event::Rollback);
    }
}
