//! What a log of commands must lead to: each executed for itself, one after the other, by the plainest means.
//!
//! Walk: [`Book::execute`] takes an entry that was executed for the first time, and the answers that were laid · then it knows what each
//! request was answered, every change in its order, and where branches were prepared and ended.
//! Deliberately absent: all that the machine has for speed, and its code.

use std::collections::{BTreeMap, BTreeSet};

use assent_frame::Reader;
use assent_ids::Xid;
use assent_membership::Sequence;
use assent_replica::Entry;

use crate::command::{Command, Ops, Request, What};
use crate::engine::{KIND_COMMAND, KIND_RULES};
use crate::run::{self, Item, KIND_RUN};
use crate::{Answer, Asset, AssetId, Change, Machine, Op, Refusal, Results, SessionName};

type Write = (AssetId, Option<Asset>);

#[derive(Debug)]
struct Session {
    last: u64,
    used: Sequence,
    answers: BTreeMap<u64, Answer>,
}

/// All that is known from the log.
#[derive(Debug, Default)]
pub(super) struct Book {
    assets: BTreeMap<AssetId, Asset>,
    held: BTreeSet<AssetId>,
    prepared: BTreeMap<Xid, Vec<Write>>,
    finished: BTreeMap<Xid, bool>,
    sessions: BTreeMap<SessionName, Session>,
    sessions_max: usize,
    /// Sessions that gave way to others.
    pub(super) evicted: BTreeSet<SessionName>,
    /// Where each request was executed, and its answer.
    pub(super) requests: BTreeMap<(SessionName, u64), (Sequence, Answer)>,
    /// Where each branch was prepared, and where it ended.
    pub(super) prepared_at: BTreeMap<Xid, Sequence>,
    pub(super) ended_at: BTreeMap<Xid, Sequence>,
    /// What each branch of one asset promised it would be.
    pub(super) votes: BTreeMap<Xid, Asset>,
    /// Everything that changed, in its order.
    pub(super) changes: Vec<Change>,
    /// What was laid as answers of an entry.
    laid: BTreeMap<Sequence, Vec<u8>>,
    /// Commands that stood with others, and requests that were not executed again.
    pub(super) together: u64,
    pub(super) again: u64,
}

impl Book {
    pub(super) fn new(sessions_max: usize) -> Self {
        Self { sessions_max, ..Self::default() }
    }

    /// Every member answers the same; and whoever executes an entry first answers what each of its commands is answered alone.
    pub(super) fn execute(&mut self, entry: &Entry, answer: &[u8], is_first: bool) -> Result<(), String> {
        if !is_first {
            let same = self.laid.get(&entry.sequence).is_some_and(|laid| laid == answer);
            return if same { Ok(()) } else { Err("it is answered otherwise than elsewhere".to_owned()) };
        }
        self.laid.insert(entry.sequence, answer.to_vec());
        match entry.kind {
            KIND_RULES => Ok(()),
            KIND_COMMAND => {
                let command = Command::read(&entry.payload[8..]).map_err(|error| error.to_string())?;
                let expected = self.take(entry.sequence, &command);
                same(&command, &expected, Some(answer))
            }
            KIND_RUN => self.run(entry, answer),
            other => Err(format!("it is of kind {other}")),
        }
    }

    fn run(&mut self, entry: &Entry, answer: &[u8]) -> Result<(), String> {
        let (_, commands, items) = run::read(&entry.payload).map_err(|error| error.to_string())?;
        let (mut reader, mut told, mut whose) = (Reader::new(items), run::answers(answer), None);
        while !reader.rest().is_empty() {
            match Item::read(&mut reader).map_err(|error| error.to_string())? {
                Item::Whose(first) => whose = first,
                Item::Command(what) => {
                    let command = Command { request: whose, is_branch: false, what };
                    let expected = self.take(entry.sequence, &command);
                    same(&command, &expected, told.next())?;
                    whose = whose.map(|request| Request { number: request.number + 1, ..request });
                }
            }
        }
        self.together += u64::from(commands.saturating_sub(1));
        if told.next().is_none() { Ok(()) } else { Err("it has more answers than commands".to_owned()) }
    }

    fn take(&mut self, at: Sequence, command: &Command<'_>) -> Answer {
        let Some(request) = command.request else { return self.one(at, &command.what) };
        let Some(known) = self.sessions.get(&request.session) else { return Answer::InDoubt };
        if request.number > known.last + 1 {
            return Answer::Gap { expected: known.last + 1 };
        }
        if request.number <= known.last {
            self.again += 1;
            return known.answers.get(&request.number).cloned().unwrap_or(Answer::InDoubt);
        }
        let answer = self.one(at, &command.what);
        if let Some(known) = self.sessions.get_mut(&request.session) {
            (known.last, known.used) = (request.number, at);
            known.answers.insert(request.number, answer.clone());
            while known.answers.len() > request.window as usize {
                known.answers.pop_first();
            }
        }
        self.requests.insert((request.session, request.number), (at, answer.clone()));
        answer
    }

    fn one(&mut self, at: Sequence, what: &What<'_>) -> Answer {
        match *what {
            What::Batch(ops) => match self.tried(ops) {
                Ok((assets, writes)) => {
                    self.change(at, &writes);
                    done(assets)
                }
                Err((op, refusal)) => Answer::Refused { op, refusal },
            },
            What::Open { session } => self.open(at, session),
            What::Close { session } => {
                self.sessions.remove(&session);
                done(Vec::new())
            }
            What::Prepare { xid, ops } => self.prepare(at, xid, ops),
            What::Commit { xid } => self.end(at, xid, true),
            What::Rollback { xid } => self.end(at, xid, false),
            What::Call { .. } | What::InDoubt | What::Branch { .. } => {
                panic!("nobody asks for {what:?} by the log here")
            }
        }
    }

    fn open(&mut self, at: Sequence, session: SessionName) -> Answer {
        match self.sessions.get(&session).map(|known| known.last) {
            Some(0) => Answer::Opened(session),
            Some(_) => Answer::InDoubt,
            None => {
                while self.sessions.len() >= self.sessions_max {
                    let oldest = self.sessions.iter().min_by_key(|(name, known)| (known.used, **name));
                    let oldest = oldest.map(|(name, _)| *name).unwrap();
                    self.sessions.remove(&oldest);
                    self.evicted.insert(oldest);
                }
                self.sessions.insert(session, Session { last: 0, used: at, answers: BTreeMap::new() });
                Answer::Opened(session)
            }
        }
    }

    fn prepare(&mut self, at: Sequence, xid: Xid, ops: Ops<'_>) -> Answer {
        if self.prepared.contains_key(&xid) {
            return Answer::Refused { op: 0, refusal: Refusal::BranchKnown };
        }
        if let Some(committed) = self.finished.get(&xid).copied() {
            return Answer::Refused { op: 0, refusal: Refusal::BranchFinished { committed } };
        }
        match self.tried(ops) {
            Ok((assets, writes)) => {
                self.held.extend(writes.iter().map(|(id, _)| *id));
                self.prepared.insert(xid, writes);
                self.prepared_at.insert(xid, at);
                self.votes.extend(assets.first().map(|asset| (xid, *asset)));
                Answer::Voted(Results { assets, output: Vec::new() })
            }
            Err((op, refusal)) => Answer::Refused { op, refusal },
        }
    }

    fn end(&mut self, at: Sequence, xid: Xid, committed: bool) -> Answer {
        let Some(writes) = self.prepared.remove(&xid) else {
            return match self.finished.get(&xid).copied() {
                Some(before) if before == committed => done(Vec::new()),
                Some(committed) => Answer::Refused { op: 0, refusal: Refusal::BranchFinished { committed } },
                None => Answer::Refused { op: 0, refusal: Refusal::BranchUnknown },
            };
        };
        writes.iter().for_each(|(id, _)| _ = self.held.remove(id));
        if committed {
            self.change(at, &writes);
        }
        self.finished.insert(xid, committed);
        self.ended_at.insert(xid, at);
        done(Vec::new())
    }

    fn change(&mut self, at: Sequence, writes: &[Write]) {
        for (id, asset) in writes {
            self.changes.push(Change { sequence: at, id: *id, asset: *asset });
            match asset {
                Some(asset) => _ = self.assets.insert(*id, *asset),
                None => _ = self.assets.remove(id),
            }
        }
    }

    /// What these would lead to: their results, and each asset that is another one then, in the order of the first change.
    fn tried(&self, ops: Ops<'_>) -> Result<(Vec<Asset>, Vec<Write>), (u16, Refusal)> {
        let (mut results, mut writes): (Vec<Asset>, Vec<Write>) = (Vec::new(), Vec::new());
        for (number, op) in (0..).zip(ops.iter()) {
            let id = op.id();
            let written = writes.iter().position(|(written, _)| *written == id);
            let before = written.map_or_else(|| self.assets.get(&id).copied(), |at| writes[at].1);
            let (result, behind) = self.op(&op, before).map_err(|refusal| (number, refusal))?;
            results.push(result);
            match written {
                _ if op.is_read() => {}
                Some(at) => writes[at].1 = behind,
                None => writes.push((id, behind)),
            }
        }
        Ok((results, writes))
    }

    /// Its result, and what the asset is then.
    fn op(&self, op: &Op, before: Option<Asset>) -> Result<(Asset, Option<Asset>), Refusal> {
        let id = op.id();
        if !op.is_read() && self.held.contains(&id) {
            return Err(Refusal::Held { id });
        }
        let is = before.ok_or(Refusal::Unknown { id });
        let value = match *op {
            Op::Get { .. } => return is.map(|asset| (asset, Some(asset))),
            Op::Remove { .. } => return is.map(|asset| (asset, None)),
            Op::Create { .. } if before.is_some() => return Err(Refusal::Exists { id }),
            Op::Create { value, .. } => {
                let asset = Asset { value, updates: 0 };
                return Ok((asset, Some(asset)));
            }
            Op::Set { value, .. } => value,
            Op::CompareAndSet { expected, value, .. } => match is.clone()?.value {
                found if found == expected => value,
                value => return Err(Refusal::Differs { id, value, expected }),
            },
            Op::Add { by, .. } => is.clone()?.value + by,
            Op::AddWithin { by, min, max, .. } => match is.clone()?.value + by {
                value if value < min => return Err(Refusal::Bounds { id, value, bound: min }),
                value if value > max => return Err(Refusal::Bounds { id, value, bound: max }),
                value => value,
            },
        };
        let behind = Asset { value, updates: is?.updates + 1 };
        Ok((behind, Some(behind)))
    }

    /// What a member has at the end is what its log leads to.
    pub(super) fn audit(&self, machine: &Machine, assets: u64) -> Result<(), String> {
        for id in (0..assets).map(AssetId) {
            if machine.get(id) != self.assets.get(&id).copied() {
                return Err(format!(
                    "asset {id:?} is {:?}; the log leads to {:?}",
                    machine.get(id),
                    self.assets.get(&id)
                ));
            }
        }
        if machine.assets() != self.assets.len() || machine.sessions().0 != self.sessions.len() {
            return Err(format!("{} assets and {:?} sessions", machine.assets(), machine.sessions()));
        }
        let in_doubt: Vec<Xid> = machine.in_doubt().iter().map(|one| one.xid).collect();
        if in_doubt != self.prepared.keys().copied().collect::<Vec<_>>() {
            return Err(format!("the branches {in_doubt:?} wait; by the log {:?}", self.prepared));
        }
        // Whoever asked for a branch has ended it.
        if !in_doubt.is_empty() {
            return Err(format!("the branches {in_doubt:?} wait for ever"));
        }
        Ok(())
    }

    pub(super) fn sum(&self, ids: std::ops::Range<u64>) -> i64 {
        ids.filter_map(|id| self.assets.get(&AssetId(id))).map(|asset| asset.value).sum()
    }
}

fn same(command: &Command<'_>, expected: &Answer, laid: Option<&[u8]>) -> Result<(), String> {
    let found = laid.map(Answer::read);
    if found.as_ref().is_some_and(|found| found.as_ref() == Ok(expected)) {
        return Ok(());
    }
    Err(format!("{command:?} is answered {found:?}; alone it is answered {expected:?}"))
}

const fn done(assets: Vec<Asset>) -> Answer {
    Answer::Done(Results { assets, output: Vec::new() })
}
