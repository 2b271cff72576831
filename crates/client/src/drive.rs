//! `xa::Commit`'s commands, done: all that a round sends, then all that it receives. What stays unfinished is let go.

use assent_ids::{Mark, ResourceId, TxId};
use assent_kind::Kind;
use assent_world::stop::{self, Stop};
use assent_xa::{
    Ballot, BranchRecord, Cause, Command, Commit, DecideError, Decider, Decision, Deviation, Event, HeuristicBranch,
    Native, Outcome, Pace, Reply, Report, Resource, StepError, Task, Trust, TxReturn, Verb, Voice, Voted, lay_votes,
};

use crate::Retries;
use crate::seat::{Seat, Shared, lock};

/// One transaction's commit on its way.
pub(crate) struct Drive<'d, 'r> {
    tx: TxId,
    decider: &'d dyn Decider,
    seats: &'d [Shared<'r>],
    commit: Commit,
    /// A known outcome with unfinished branches, to be told when they are given up.
    owes_acknowledgement: bool,
    has_asked: bool,
    /// The only branch with something to commit was told so; nobody decided.
    is_one_phase: bool,
    /// Where the first branch keeps the decision, if it does.
    mark: Option<Mark>,
    /// Why the outcome is not known, if it was asked for.
    doubt: Option<DecideError>,
}

/// How it ended, and why the decision is in doubt if it is.
pub(crate) type Ended = (Report, Option<DecideError>);

impl<'d, 'r> Drive<'d, 'r> {
    pub(crate) fn new(tx: TxId, decider: &'d dyn Decider, seats: &'d [Shared<'r>], mark: Option<Mark>) -> Self {
        let commit = Commit::new(&vec![Trust::KeepsVotes; seats.len()], Pace::Together);
        let mark = mark.filter(|mark| may_settle(decider, seats, *mark));
        // It is the first one: `may_settle` has looked.
        let commit = if mark.is_some() { commit.with_last(0) } else { commit };
        Self {
            tx,
            decider,
            seats,
            commit,
            owes_acknowledgement: false,
            has_asked: false,
            is_one_phase: false,
            mark,
            doubt: None,
        }
    }

    /// From the application's word to rest, with retries for branches that could not be told.
    pub(crate) fn run(mut self, word: Event, retries: &Retries) -> Result<Ended, StepError> {
        let driven = self.rounds(word, retries);
        // What a connection that is let go knows of its branch is gone with it.
        let left = driven.as_ref().map_or_else(|_| Vec::new(), |report| self.given_up(report));
        match &driven {
            // Before recovery is told that they are its own.
            Ok(report) if !is_in_doubt(report) => report.unfinished.iter().for_each(|left| self.let_go(left.branch)),
            // Whoever voted is recovery's, and only the resource knows whether it has.
            Ok(_) | Err(_) => self.seats.iter().for_each(|seat| lock(seat).resource.let_go()),
        }
        let report = driven?;
        self.leave(&report, left);
        Ok((report, self.doubt))
    }

    fn let_go(&self, branch: u16) {
        if let Some(seat) = self.seats.get(usize::from(branch)) {
            lock(seat).resource.let_go();
        }
    }

    fn rounds(&mut self, word: Event, retries: &Retries) -> Result<Report, StepError> {
        self.round(word)?;
        let mut report = self.report()?;
        for _ in 0..retries.attempts {
            // A decision in doubt was asked for again and again by its decider: that is not repeated here.
            if report.unfinished.is_empty() || is_in_doubt(&report) {
                break;
            }
            retries.pause();
            self.round(Event::Retry)?;
            report = self.report()?;
        }
        Ok(report)
    }

    /// The branches that nobody decided about and that could not be told.
    fn given_up(&self, report: &Report) -> Vec<BranchRecord> {
        // What has committed in one phase may have something left to be forgotten, and nobody undoes it.
        let gave_up =
            report.decided.is_none() && !is_in_doubt(report) && report.verdict != assent_xa::Verdict::Committed;
        let unfinished = report.unfinished.iter().filter(|_| gave_up);
        unfinished.filter_map(|left| self.record(left.branch)).collect()
    }

    /// What stays behind is recovery's: say so.
    fn leave(&self, report: &Report, branches: Vec<BranchRecord>) {
        let gave_up = !branches.is_empty();
        if gave_up {
            // Presumed abort needs no decision, but with one recovery need not wait for this client's end. If it cannot
            // be told, recovery waits.
            let first = !self.has_asked;
            _ = self.decider.decide(&Decision { tx: self.tx, outcome: Outcome::RolledBack, first, branches });
        }
        self.report_heuristics(report);
        match (report.decided, &report.verdict) {
            (Some(Outcome::Committed), _) if self.owes_acknowledgement => self.tell_again(),
            (_, assent_xa::Verdict::RolledBack(Cause::Asked)) => {}
            (Some(Outcome::RolledBack), _) | (None, assent_xa::Verdict::RolledBack(_)) => {
                self.tell_votes(Outcome::RolledBack);
            }
            _ => {}
        }
        if gave_up || self.owes_acknowledgement {
            self.decider.acknowledged(self.tx);
        }
    }

    /// For history: a decision names only those who said yes, and where somebody said no nobody decides.
    fn tell_votes(&self, outcome: Outcome) {
        if self.commit.votes().all(|(_, voice)| voice.is_plain()) {
            return;
        }
        let voted = |(branch, voice): (u16, &Voice)| {
            let assent_ids::Branch { resource, number, .. } =
                lock(self.seats.get(usize::from(branch))?).xid.branch()?;
            Some(Voted { resource, number, voice: voice.clone() })
        };
        let votes: Vec<Voted> = self.commit.votes().filter_map(voted).collect();
        self.decider.voted(self.tx, outcome, &votes);
    }

    /// A commit that had to be told more than once: how often, and what was answered.
    fn tell_again(&self) {
        if self.commit.votes().any(|(_, voice)| voice.ballot == Ballot::Yes && !voice.is_plain()) {
            self.tell_votes(Outcome::Committed);
        }
    }

    /// Branches that ended by themselves are the operator's, who must not depend on this client's log.
    fn report_heuristics(&self, report: &Report) {
        let assent_xa::Verdict::Heuristic(list) = &report.verdict else { return };
        let deviation = |one: &HeuristicBranch| {
            let BranchRecord { resource, number, flags, .. } = self.record(one.branch)?;
            Some(Deviation { resource, number, flags, heuristic: one.heuristic, native: one.native.clone() })
        };
        let branches: Vec<Deviation> = list.iter().filter_map(deviation).collect();
        // Without a decision: the only branch was told to commit in one phase, or all were told to roll back.
        let alone = if self.is_one_phase { Outcome::Committed } else { Outcome::RolledBack };
        self.decider.heuristic(self.tx, report.decided.unwrap_or(alone), &branches);
    }

    fn report(&self) -> Result<Report, StepError> {
        let phase = self.commit.phase();
        self.commit.report().ok_or(StepError::OutOfPhase { event: "a report", phase })
    }

    /// Everything that follows from an event, until the commit rests.
    fn round(&mut self, event: Event) -> Result<(), StepError> {
        let mut commands = self.commit.step(event)?;
        while !commands.is_empty() {
            commands = match commands.first() {
                Some(Command::Decide { yes, first }) => {
                    let event = self.decide(yes, *first);
                    self.commit.step(event)?
                }
                Some(Command::Send { .. }) => self.exchange(&commands)?,
                Some(Command::Settle) => {
                    let event = self.settle();
                    self.commit.step(event)?
                }
                Some(Command::Finished) => {
                    stop::about(Stop::ClientBeforeFinished, || self.tx);
                    self.owes_acknowledgement = false;
                    self.tell_again();
                    self.decider.finished(self.tx);
                    Vec::new()
                }
                Some(Command::Acknowledged) => {
                    self.owes_acknowledgement = true;
                    Vec::new()
                }
                None => Vec::new(),
            };
        }
        Ok(())
    }

    /// Sends to all, then receives from each. The last answer brings the next round.
    fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Command>, StepError> {
        let told = commands.iter().filter_map(|command| match command {
            Command::Send { branch, task } => Some((*branch, *task, self.seats.get(usize::from(*branch))?)),
            _ => None,
        });
        let mut told: Vec<(u16, Task, &Shared<'r>)> = told.collect();
        if let [(branch, Task::CommitLast, _)] = *told
            && let Err(DecideError { kind, message }) = self.decider.may_decide(self.tx)
        {
            // It is not told, so it has not decided.
            let reply = Reply::Refused(kind, Native { code: String::new(), message });
            return self.commit.step(Event::Answer { branch, reply });
        }
        if told.iter().any(|(_, task, _)| *task == Task::Prepare) {
            stop::about(Stop::ClientBeforePrepare, || self.tx);
        }
        match told.first() {
            Some((_, Task::CommitOnePhase, _)) => self.is_one_phase = true,
            Some((_, Task::Rollback, _)) => self.is_one_phase = false,
            _ => {}
        }
        // One branch may be done on this thread while the others are under way; its answer then comes first.
        let mut deferred = None;
        for (place, (_, task, seat)) in told.iter().enumerate() {
            let mut verb = self.verb(*task, seat);
            let mut seat = lock(seat);
            if deferred.is_none() {
                let Some(back) = seat.resource.defer(verb) else {
                    deferred = Some(place);
                    continue;
                };
                verb = back;
            }
            seat.resource.send(verb);
        }
        told.rotate_left(deferred.unwrap_or(0));
        if told.first().is_some_and(|(_, task, _)| *task == Task::CommitLast) {
            stop::about(Stop::ClientAwaitsRow, || self.tx);
        }
        let mut next = Vec::new();
        for (place, (branch, task, seat)) in told.iter().enumerate() {
            if place == 1 {
                self.between(*task);
            }
            let reply = answer(&mut lock(seat), *task);
            if (*task, &reply) == (Task::CommitLast, &Reply::Done) {
                // POINT OF NO RETURN: the row is durable, and with it the decision.
                self.note(*branch);
            }
            next = self.commit.step(Event::Answer { branch: *branch, reply })?;
        }
        Ok(next)
    }

    fn between(&self, task: Task) {
        match task {
            Task::Prepare => stop::about(Stop::ClientBetweenPrepares, || self.tx),
            Task::Commit => stop::about(Stop::ClientBetweenCommits, || self.tx),
            _ => {}
        }
    }

    /// The verb of a task; of the last resource's with the votes of all that wait for it.
    fn verb(&self, task: Task, seat: &Shared<'r>) -> Verb {
        let xid = lock(seat).xid;
        if task != Task::CommitLast {
            return task.verb(xid);
        }
        stop::about(Stop::ClientBeforeDecision, || self.tx);
        self.tell_votes(Outcome::Committed);
        Verb::CommitLast { xid, votes: lay_votes(&self.waiting().collect::<Vec<_>>()) }
    }

    /// The branches that voted yes.
    fn waiting(&self) -> impl Iterator<Item = BranchRecord> + '_ {
        let yes = self.commit.votes().filter(|(_, voice)| voice.ballot == Ballot::Yes);
        yes.filter_map(|(branch, _)| self.record(branch))
    }

    /// The last resource has decided.
    fn note(&self, last: u16) {
        let branches = self.record(last).into_iter().chain(self.waiting()).collect();
        self.decider.noted(&Decision { tx: self.tx, outcome: Outcome::Committed, first: true, branches });
        stop::about(Stop::ClientAfterDecision, || self.tx);
    }

    /// Its answer is missing: what its row says. Its connection is ended first, as recovery may have to wait for that.
    fn settle(&mut self) -> Event {
        self.seats.first().into_iter().for_each(|seat| lock(seat).resource.let_go());
        let settled = match self.mark {
            Some(mark) => self.decider.settle(self.tx, mark),
            None => Err(DecideError { kind: Kind::Internal, message: "nobody keeps this decision".to_owned() }),
        };
        // That it cannot be asked now says nothing about what stands there.
        self.doubt = settled.as_ref().err().cloned();
        settled.map_or(Event::DecisionInDoubt, Event::Decided)
    }

    fn decide(&mut self, yes: &[u16], first: bool) -> Event {
        let branches = yes.iter().filter_map(|branch| self.record(*branch)).collect();
        let decision = Decision { tx: self.tx, outcome: Outcome::Committed, first, branches };
        // Before the question, in one write with it: whoever finishes this shows what was voted.
        self.tell_votes(Outcome::Committed);
        stop::about(Stop::ClientBeforeDecision, || self.tx);
        self.has_asked = true;
        let decided: Result<Outcome, DecideError> = self.decider.decide(&decision);
        if decided.is_ok() {
            stop::about(Stop::ClientAfterDecision, || self.tx);
        }
        self.doubt = decided.as_ref().err().filter(|error| error.kind == Kind::InDoubt).cloned();
        decided.into()
    }

    fn record(&self, branch: u16) -> Option<BranchRecord> {
        let seat: &Shared<'r> = self.seats.get(usize::from(branch))?;
        let mut seat = lock(seat);
        let assent_ids::Branch { resource, number, flags, mark, .. } = seat.xid.branch()?;
        Some(BranchRecord { resource, number, flags, mark, witness: seat.resource.witness() })
    }
}

/// Whether the first branch may keep the decision: all say so in their XIDs, and recovery reaches each of them.
fn may_settle(decider: &dyn Decider, seats: &[Shared<'_>], mark: Mark) -> bool {
    let branches: Option<Vec<assent_ids::Branch>> = seats.iter().map(|seat| lock(seat).xid.branch()).collect();
    let Some((last, others)) = branches.as_deref().and_then(<[_]>::split_first) else { return false };
    // So many as a decision of the log may have: recovery lays what the row says.
    let is_first = last.resource == mark.resource && last.number == 0 && seats.len() <= assent_xa::BRANCHES_MAX;
    let resources: Vec<ResourceId> = others.iter().map(|branch| branch.resource).collect();
    is_first && branches.iter().flatten().all(|branch| branch.mark == Some(mark)) && decider.settles(&resources)
}

/// A branch's answer. To a commit, "I do not know it" may mean that recovery was here before, that a person undid it, or
/// that a fail-over lost it: whoever remembers is asked at once.
fn answer<'r>(seat: &mut Seat<dyn Resource + 'r>, task: Task) -> Reply {
    match (task, seat.resource.receive()) {
        (Task::Commit, Reply::Unknown(native)) => {
            let witness = seat.resource.witness();
            seat.resource.call(Verb::Inquire { xid: seat.xid, witness }).past_of_a_commit(native)
        }
        (_, reply) => reply,
    }
}

/// Whether the outcome is open.
const fn is_in_doubt(report: &Report) -> bool {
    matches!(report.verdict, assent_xa::Verdict::InDoubt(_))
}

/// A broken promise of ours, as an error of the commit.
pub(crate) fn broken(tx: TxId, error: &StepError) -> crate::CommitError {
    crate::CommitError {
        kind: Kind::Internal,
        returned: TxReturn::Fail,
        tx,
        message: format!("transaction {tx}: {error}; report this"),
    }
}
