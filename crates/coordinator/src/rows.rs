//! Decisions that are rows of a last resource: who asks for them, what follows from one, when it may go.
//!
//! Walk: a client's [`Coordinator::settles`] before it relies on this, [`Coordinator::noted`] when it has decided by a row,
//! [`Coordinator::settle`] when it does not know · whoever would presume an abort of a marked branch asks [`Coordinator::row`] first ·
//! the attendant of the resource that has the table answers in its own next look ([`Attendant::keep_rows`]) · [`Coordinator::row_stands`].
//!
//! **The log's decision is what holds; a row counts only where the log has none.** Nobody decides commit in the log and by a row: a
//! client does one of the two, and recovery adopts what a row says. Nobody decides abort of a marked branch in the log before recovery's
//! own row stands, but the client itself, which then sends no row any more. A row is written once, by whoever was first. So what stands is
//! never otherwise than what the log says, and either may be lost without the other: an unsynced note with the power, recovery's row
//! once nobody can come too late (`resources`, postgres/last.rs), the client's once all branches are finished.
//! An answer is good for ever: what stands in a row never changes.
//! Deliberately absent: a conclusion from a resource that cannot be asked, or is not registered. Its transactions are held, and say so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use assent_ids::{Branch, Mark, ResourceId, TxId};
use assent_kind::Kind;
use assent_world::Moment;
use assent_xa::{DecideError, Decision, Deviation, Heuristic, Native, Outcome, ROWS_MAX, Reply, Verb, read_votes};

use crate::coordinator::{State, check, row_of};
use crate::{Attendant, By, Coordinator, Known, Pending, Standing, Stopped};

/// So many rows are asked for in one look: each may take the quarter of a second that a client's row is waited for.
const ASKED_MAX: usize = 64;
/// So many transactions of clients that do not know wait for an answer; beyond, they wait for recovery's own time.
const DOUBTS_MAX: usize = 4_096;
/// So many rows go in one message.
const CLEARED_MAX: usize = 1_000;
/// So many such messages in one look.
const CLEARS_MAX: usize = 4;
/// All rows are looked at so often: some were left by clients that died, or by a restart of ours.
const LOOKS_APART: Duration = Duration::from_secs(60);

/// What is asked of one resource's rows, by transaction.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    list: BTreeMap<TxId, Question>,
    /// How many of them are their clients'.
    doubts: usize,
}

/// A row that is asked for.
#[derive(Clone, Debug)]
struct Question {
    mark: Mark,
    /// Its client asks, not recovery.
    is_doubt: bool,
    /// Recovery's own row stands.
    is_rolled_back: bool,
    /// What the resource said instead.
    trouble: Option<Native>,
}

/// What is known of the row that may decide a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// There is none: the log decides.
    None,
    /// Recovery's own stands: whatever the log does not know is rolled back.
    RolledBack,
    /// Not known yet, and why.
    Unknown(Native),
}

/// When an attendant looks at all rows again.
#[derive(Debug, Default)]
pub(crate) struct Rhythm {
    next: Moment,
    /// How far the look at all rows has come that is under way.
    listed: Option<TxId>,
    /// Which row was asked for last, so that each has its turn.
    asked: Option<TxId>,
    /// It keeps none at all.
    has_none: bool,
    /// Of a client that nobody here can have had: what stands there may be another transaction's, of the same name.
    pub(crate) stranger: Option<Stopped>,
    /// The one that was met in the look at all rows that is under way.
    met: Option<Stopped>,
    /// Many went in this look.
    pub(crate) is_busy: bool,
    /// Why rows that nobody needs could not be listed, or could not go.
    pub(crate) trouble: Option<(Kind, Native)>,
}

fn says(message: String) -> Native {
    Native { code: String::new(), message }
}

impl Coordinator {
    /// Whether the agent attends all of these, so that a last resource may decide over their branches; and rows go as others come.
    #[must_use]
    pub fn settles(&self, resources: &[ResourceId]) -> bool {
        let state = self.state();
        !state.table.is_clogged() && resources.iter().all(|resource| state.attended.posts.contains_key(resource))
    }

    /// A client's last resource has decided commit, durably: kept for history and recovery, and waited for by nobody. Passed over where
    /// it cannot be kept: the row tells the same. So is what no row can have said: another outcome, or branches that name none.
    pub fn noted(&self, decision: &Decision) {
        let is_a_rows = decision.outcome == Outcome::Committed && row_of(&decision.branches).is_some();
        if !is_a_rows || check(&decision.branches).is_err() {
            return;
        }
        let tx = decision.tx;
        let ruling = self.ruling(tx, Outcome::Committed, By::Client, &decision.branches);
        let mut state = self.state();
        match (state.table.get(tx).map(|entry| entry.outcome), state.clients.standing(tx.incarnation)) {
            (Some(Outcome::RolledBack), _) => {
                drop(state);
                decision.branches.first().into_iter().for_each(|last| self.contradicts(tx, last.resource));
            }
            // Recovery has seen the row.
            (Some(Outcome::Committed), _) => {}
            (None, Standing::Connected | Standing::Lost) => {
                if let Ok(pending) = self.lay(&mut state, ruling) {
                    // The next tick makes it durable.
                    state.owed = pending.ticket.or(state.owed);
                }
            }
            (None, _) => {}
        }
    }

    /// Its client does not know whether the last resource has decided: what is known, and if nothing is the row is asked for, once a
    /// branch of it is seen prepared: of any other nobody can say that it was not finished and forgotten. Asked again and again.
    ///
    /// # Errors
    /// [`DecideError`] of kind `InDoubt` where nobody here can ask for it.
    pub fn settle(&self, tx: TxId, mark: Mark) -> Result<Known, DecideError> {
        let known = self.ask(tx);
        if !matches!(known, Known::Undecided | Known::Unknown) {
            return Ok(known);
        }
        let in_doubt = |message: String| Err(DecideError { kind: Kind::InDoubt, message });
        let mut state = self.state();
        let standing = state.clients.standing(tx.incarnation);
        if !matches!(standing, Standing::Connected | Standing::Lost) {
            return in_doubt(format!("the client of {tx} is fenced or unknown: recovery asks for its row"));
        }
        if state.table.is_watched(tx) && state.table.get(tx).is_none() {
            state.doubt(tx, mark)?;
        } else {
            // It is there as soon as somebody looks, if it is.
            state.calls += 1;
        }
        Ok(Known::Undecided)
    }

    /// What is known of the row behind this mark; asks for it.
    pub(crate) fn row(&self, tx: TxId, mark: Option<Mark>) -> Row {
        let Some(mark) = mark else { return Row::None };
        let mut state = self.state();
        let Some(post) = state.attended.posts.get_mut(&mark.resource) else {
            return Row::Unknown(says(format!(
                "its decision may be a row of resource id {}, which is not registered here: register it under the name that \
                 the application gives it; nobody can decide without it",
                mark.resource
            )));
        };
        let name = post.name.clone();
        let (is_news, mut found) = (!post.rows.list.contains_key(&tx), Row::RolledBack);
        let question = post.rows.entry(tx, mark);
        if question.mark != mark {
            return Row::Unknown(says(format!("its branches name two tables of resource {name}: report this")));
        }
        if !question.is_rolled_back {
            let why = question.trouble.as_ref().map_or_else(String::new, |native| format!(": {}", native.message));
            found =
                Row::Unknown(says(format!("its decision may be a row of resource {name}, which is asked for it{why}")));
        }
        // The other attendant looks at once.
        state.calls += u64::from(is_news);
        found
    }

    /// What this resource is asked for, and has not answered: on from where the last look came to, so that each has its turn.
    fn rows_asked(&self, resource: ResourceId, behind: Option<TxId>) -> Vec<(TxId, Mark)> {
        let state = &mut *self.state();
        let Some(post) = state.attended.posts.get_mut(&resource) else { return Vec::new() };
        // Decided since, by whoever was first: nobody waits for it any more.
        post.rows.undoubt(|tx| state.table.get(tx).is_some());
        let open = post.rows.list.iter().filter(|(tx, it)| !it.is_rolled_back && state.table.get(**tx).is_none());
        let mut open: Vec<(TxId, Mark)> = open.map(|(tx, it)| (*tx, it.mark)).collect();
        let first = open.partition_point(|(tx, _)| Some(*tx) <= behind);
        open.rotate_left(first);
        open.truncate(ASKED_MAX);
        open
    }

    fn row_trouble(&self, resource: ResourceId, tx: TxId, native: Native) {
        if let Some(question) = self.state().question(resource, tx) {
            question.trouble = Some(native);
        }
    }

    /// Whether its client asks for this row. None who has been told, and had it forgotten, meanwhile.
    fn is_doubted(&self, resource: ResourceId, tx: TxId) -> bool {
        let mut state = self.state();
        state.table.is_watched(tx) && state.question(resource, tx).is_some_and(|it| it.is_doubt)
    }

    /// A row stands, for ever: the client's with its votes, or recovery's.
    fn row_stands(&self, resource: ResourceId, tx: TxId, votes: Option<&[u8]>) {
        let laid = match votes {
            Some(votes) => self.adopt(resource, tx, votes),
            // Its client asks, and is answered by the log. Whom recovery asks for, it decides as it would without a row.
            None if self.is_doubted(resource, tx) => {
                self.abort_begin(tx, By::Agent).and_then(|pending| self.decide_strictly(pending)).map(drop)
            }
            None => Ok(()),
        };
        let state = &mut *self.state();
        state.calls += 1;
        let Some(post) = state.attended.posts.get_mut(&resource) else { return };
        if laid.is_ok() {
            post.rows.undoubt(|one| one == tx);
        }
        match (post.rows.list.get_mut(&tx), laid) {
            (Some(question), Ok(())) => question.is_rolled_back = votes.is_none(),
            // Asked again in the next look.
            (Some(question), Err(error)) => question.trouble = Some(says(error.message)),
            (None, _) => {}
        }
    }

    /// Decides commit, as the row says, unless the log has decided; durable on return.
    fn adopt(&self, resource: ResourceId, tx: TxId, votes: &[u8]) -> Result<(), DecideError> {
        let begun = self.adopt_begin(resource, tx, votes)?;
        begun.map_or(Ok(()), |pending| self.decide_strictly(pending).map(drop))
    }

    /// The same, laid and not waited for.
    fn adopt_begin(&self, resource: ResourceId, tx: TxId, votes: &[u8]) -> Result<Option<Pending>, DecideError> {
        let unread = |_| DecideError { kind: Kind::Internal, message: format!("the row of {tx} cannot be read") };
        let branches = read_votes(votes).map_err(unread)?;
        check(&branches)?;
        let ruling = self.ruling(tx, Outcome::Committed, By::Client, &branches).of_recovery();
        let mut state = self.state();
        match state.table.get(tx).map(|entry| entry.outcome) {
            Some(Outcome::Committed) => Ok(None),
            Some(Outcome::RolledBack) => {
                drop(state);
                self.contradicts(tx, resource);
                Ok(None)
            }
            None => self.lay(&mut state, ruling).map(Some),
        }
    }

    /// A row says commit and the log rollback: a promise of ours is broken, or somebody has changed the table. A person must know.
    fn contradicts(&self, tx: TxId, resource: ResourceId) {
        let native = says("its row says commit, and the log rollback; report this".to_owned());
        // The last resource is the first branch.
        let last = Deviation { resource, number: 0, flags: 0, heuristic: Heuristic::Committed, native };
        self.heuristic(tx, Outcome::RolledBack, &[last]);
    }

    /// Left by clients that are fenced, and not known here: their branches are recovery's from now on. What cannot be laid now is found
    /// again.
    fn adopt_left(&self, resource: ResourceId, list: &[(TxId, Vec<u8>)]) {
        let is_left = |tx: TxId| {
            let state = self.state();
            state.clients.standing(tx.incarnation) == Standing::Fenced && state.table.get(tx).is_none()
        };
        let left = list.iter().filter(|(tx, _)| is_left(*tx));
        let laid: Vec<Pending> =
            left.filter_map(|(tx, votes)| self.adopt_begin(resource, *tx, votes).ok().flatten()).collect();
        // All are laid, now one sync is enough: the first that waits waits for all.
        for pending in laid {
            _ = self.decide_strictly(pending);
        }
    }
}

impl State {
    /// Of transactions that nobody has decided.
    pub(crate) fn rows_awaited(&self) -> u64 {
        let all = self.attended.posts.values().flat_map(|post| &post.rows.list);
        let open = all.filter(|(tx, it)| !it.is_rolled_back && self.table.get(**tx).is_none()).count();
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// Whether recovery's own row is known to stand, so that the log may say anything; else it is asked for.
    pub(crate) fn is_settled(&mut self, tx: TxId, mark: Mark) -> bool {
        let Some(post) = self.attended.posts.get_mut(&mark.resource) else { return false };
        let before = post.rows.list.len();
        let question = post.rows.entry(tx, mark);
        let is_settled = question.is_rolled_back && question.mark == mark;
        self.calls += u64::from(post.rows.list.len() > before);
        is_settled
    }

    fn question(&mut self, resource: ResourceId, tx: TxId) -> Option<&mut Question> {
        self.attended.posts.get_mut(&resource)?.rows.list.get_mut(&tx)
    }

    /// Has the row asked for, and what follows decided at once.
    pub(crate) fn doubt(&mut self, tx: TxId, mark: Mark) -> Result<(), DecideError> {
        let in_doubt = |message: String| Err(DecideError { kind: Kind::InDoubt, message });
        let posts = &mut self.attended.posts;
        let doubts: usize = posts.values().map(|post| post.rows.doubts).sum();
        let Some(post) = posts.get_mut(&mark.resource) else {
            return in_doubt(format!("{tx} is decided by a row of a resource that is not registered here"));
        };
        let is_doubt = post.rows.list.get(&tx).is_some_and(|it| it.is_doubt);
        if doubts >= DOUBTS_MAX && !is_doubt {
            return in_doubt(format!("{DOUBTS_MAX} other rows are waited for: ask again later"));
        }
        if is_doubt {
            return Ok(());
        }
        let question = post.rows.entry(tx, mark);
        question.is_doubt = true;
        // Recovery's row may stand already: what follows from that is decided in the next look.
        question.is_rolled_back = false;
        post.rows.doubts += 1;
        self.calls += 1;
        Ok(())
    }
}

impl Questions {
    fn entry(&mut self, tx: TxId, mark: Mark) -> &mut Question {
        self.list.entry(tx).or_insert(Question { mark, is_doubt: false, is_rolled_back: false, trouble: None })
    }

    /// Nobody waits for these any more.
    fn undoubt(&mut self, is_one: impl Fn(TxId) -> bool) {
        for (_, question) in self.list.iter_mut().filter(|(tx, it)| it.is_doubt && is_one(**tx)) {
            question.is_doubt = false;
            self.doubts -= 1;
        }
    }

    /// Of whom nothing is seen prepared any more nobody asks: it may be forgotten from now on, and then nothing may be decided about it.
    pub(crate) fn keep(&mut self, seen: &BTreeSet<TxId>) {
        self.undoubt(|tx| !seen.contains(&tx));
        self.list.retain(|tx, _| seen.contains(tx));
    }
}

impl Attendant {
    /// Answers what is asked of this resource's rows, and lets go of those that nobody needs.
    pub(crate) fn keep_rows(&mut self) {
        self.rows.is_busy = false;
        // Nothing is decided beside another process of this node, which may be asking, too.
        if self.coordinator.is_rivalled() {
            return;
        }
        let (node, id, now) = (self.coordinator.node(), self.station.id, self.clock.now());
        let asked = self.coordinator.rows_asked(id, self.rows.asked);
        self.rows.asked = asked.last().map(|(tx, _)| *tx);
        let is_all = asked.len() < ASKED_MAX;
        let verbs = asked.iter().map(|(tx, mark)| Verb::Settle { node, tx: *tx, mark: *mark }).collect();
        let replies = self.station.tell_all(verbs, now, |_| {});
        for ((tx, _), reply) in asked.into_iter().zip(replies) {
            match reply {
                Some(Reply::Row(votes)) => {
                    // Others may be waiting for theirs.
                    self.rows.is_busy |= !is_all;
                    self.coordinator.row_stands(id, tx, votes.as_deref());
                }
                Some(Reply::Refused(_, native) | Reply::Lost(native)) => self.coordinator.row_trouble(id, tx, native),
                Some(_) | None => {}
            }
        }
        let looks_at_all = !self.rows.has_none && now >= self.rows.next;
        if looks_at_all {
            self.rows.trouble = None;
        }
        self.clear();
        if looks_at_all {
            self.look_at_rows(now);
        }
    }

    /// Rows of finished transactions.
    fn clear(&mut self) {
        let (node, id) = (self.coordinator.node(), self.station.id);
        // So many: others finish meanwhile, and what else this look is for does not wait until nobody does.
        for _ in 0..CLEARS_MAX {
            let txs = self.coordinator.state().table.take_cleared(id, CLEARED_MAX);
            if txs.is_empty() {
                return;
            }
            self.rows.is_busy |= txs.len() == CLEARED_MAX;
            let reply = self.station.tell(Verb::Clear { node, txs: txs.clone() }, self.clock.now());
            if reply != Some(Reply::Done) {
                self.refused_rows(reply);
                self.coordinator.state().table.give_cleared(id, txs);
                return;
            }
            self.rows.trouble = None;
        }
        self.rows.is_busy = true;
    }

    fn look_at_rows(&mut self, now: Moment) {
        let (id, list) = (self.station.id, self.listed_rows(now));
        self.coordinator.adopt_left(id, &list);
    }

    /// While one of them stops everything nothing is done but to look whether it has gone.
    pub(crate) fn look_for_strangers(&mut self) {
        drop(self.listed_rows(self.clock.now()));
    }

    /// Some rows, on from where the last list ended. One of a client that was never known here stops everything.
    fn listed_rows(&mut self, now: Moment) -> Vec<(TxId, Vec<u8>)> {
        let (node, id) = (self.coordinator.node(), self.station.id);
        match self.station.tell(Verb::Rows { node, after: self.rows.listed }, now) {
            Some(Reply::Rows(list)) => {
                let never = |tx: TxId| self.coordinator.standing(tx.incarnation) == Standing::Never;
                if let Some((tx, _)) = list.iter().find(|(tx, _)| never(*tx)) {
                    let xid = Branch { node, tx: *tx, resource: id, number: 0, flags: 0, mark: None }.xid();
                    self.rows.met = Some(Stopped { xid, tx: *tx, resource: self.station.name().to_owned() });
                    self.rows.stranger.clone_from(&self.rows.met);
                }
                // A full answer has more behind it: on from there in the next look.
                self.rows.listed = list.last().map(|(tx, _)| *tx).filter(|_| list.len() >= ROWS_MAX);
                self.rows.next = if self.rows.listed.is_some() { now } else { now.after(LOOKS_APART) };
                self.rows.is_busy |= self.rows.listed.is_some();
                if self.rows.listed.is_none() {
                    // Only who has looked at all of them knows that it has gone.
                    self.rows.stranger = self.rows.met.take();
                }
                if self.rows.stranger.is_some() {
                    // At once: the next look may be far, and a client that comes before might get its name.
                    self.coordinator.stranger(id, self.rows.stranger.clone());
                    return Vec::new();
                }
                return list;
            }
            Some(reply) if reply == Reply::without_rows() => self.rows.has_none = true,
            // The table may be another application's alone. Where it is not, what is asked or goes there is refused, and said.
            Some(Reply::Refused(Kind::Denied, _)) => self.rows.next = now.after(LOOKS_APART),
            reply => {
                self.rows.next = now.after(LOOKS_APART);
                self.refused_rows(reply);
            }
        }
        Vec::new()
    }

    /// Rows that cannot be listed, or that cannot go: said with what else is wrong at this resource.
    fn refused_rows(&mut self, reply: Option<Reply>) {
        if let Some(Reply::Refused(kind, native)) = reply {
            let message = format!("rows of its last resource that nobody needs stay: {}", native.message);
            self.rows.trouble = Some((kind, Native { message, ..native }));
        }
    }
}
