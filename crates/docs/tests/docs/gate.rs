//! The power is cut everywhere: what was acknowledged is there with every revision before it, the rest is wholly there or wholly
//! absent, no reader has seen what is gone afterwards, and a branch that voted waits for its outcome.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_docs::{At, Config, Database, Document, Edit, Look, Meta, NodeKey, Pending, Value, Versioning};
use assent_ids::Xid;
use assent_journal::Journal;
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Witness};
use assent_xa::Vote;

use super::tree::read;

/// A document has this much: its items' numbers, each with how often its digits are repeated. So a red state can be read.
type Content = BTreeMap<u64, (u64, usize)>;

/// What is done to a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Op {
    Commit(Content),
    /// Another document comes in its place, with this.
    Replace(Content),
    /// Revisions behind this one are dropped.
    Truncate(usize),
    /// By a branch.
    Prepare(u64, Content),
    /// The branch's outcome.
    End(bool),
    /// A tag is put to a revision, or taken away.
    Tag(u64, Option<usize>),
}

/// A document: its revisions, and the one that a branch has prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    revisions: Vec<Content>,
    prepared: Option<(u64, Content)>,
    tags: BTreeMap<u64, usize>,
}

impl State {
    fn after(mut self, op: &Op) -> State {
        match op {
            Op::Commit(content) => self.revisions.push(content.clone()),
            Op::Replace(content) => self = State { revisions: vec![content.clone()], ..State::default() },
            Op::Truncate(to) => {
                self.revisions.truncate(*to);
                self.tags.retain(|_, revision| *revision <= *to);
            }
            Op::Tag(tag, Some(revision)) => _ = self.tags.insert(*tag, *revision),
            Op::Tag(tag, None) => _ = self.tags.remove(tag),
            Op::Prepare(branch, content) => self.prepared = Some((*branch, content.clone())),
            Op::End(is_commit) => {
                let prepared = self.prepared.take();
                self.revisions.extend(prepared.filter(|_| *is_commit).map(|(_, content)| content));
            }
        }
        self
    }

    /// All that an outsider sees of it.
    fn seen(&self) -> Found {
        let holder = self.prepared.as_ref().map(|(branch, _)| *branch);
        Found { revisions: self.revisions.clone(), holder, tags: self.tags.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    Made(u64),
    Dropped(u64),
    /// A document as an open found it: what was done before does not count any more.
    Found(u64, State),
    /// What is done to a document, with a number that grows.
    Did(u64, u64, Op),
    /// It did nothing: nothing had changed.
    Void(u64, u64),
    /// Everything up to that number is done. A reader that saw it acknowledges it as much as its writer does.
    Done(u64, u64),
    /// A checkpoint at a place of the journal.
    Checkpoint(u64),
}

struct Store {
    lives: u32,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn name(document: u64) -> String {
    format!("doc {document}")
}

fn number(name: &str) -> Result<u64, String> {
    Ok(name.strip_prefix("doc ").and_then(|number| number.parse().ok()).ok_or("a name of nobody")?)
}

fn xid(branch: u64) -> Xid {
    Xid::new(1, &branch.to_be_bytes(), b"docs").unwrap()
}

fn branch(xid: &Xid) -> u64 {
    u64::from_be_bytes(xid.gtrid().try_into().unwrap())
}

impl Store {
    fn open(disk: &SimDisk, salt: u64) -> Result<(Arc<Journal>, Database), String> {
        let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
        // Small segments and buffers, so that a commit now and then crosses both.
        let journal = assent_journal::Config {
            log_size: 5 * 4096,
            max_buffer_log_size: 2 * 4096,
            kept_until_released: true,
            settles_late: true,
            ..Default::default()
        };
        let opened = Journal::open(Arc::new(disk.clone()), Arc::clone(&clock) as _, dice, Path::new("log"), journal);
        let (log, _) = opened.map_err(text)?;
        let config = Config { trims: true, writer_wait_ms: 0, edit_nodes_max: 3, ..Config::default() };
        let db = Database::open(Arc::clone(&log) as _, Arc::new(disk.clone()), clock, Path::new("index"), config);
        Ok((log, db.map_err(text)?))
    }
}

/// What a revision has; it is held against itself.
fn content(look: &impl Look) -> Result<Content, String> {
    let Some(tree) = read(look) else { return Ok(Content::new()) };
    let item = |item: &super::tree::Tree| {
        let Value::Number(digits) = item.value() else { return Err("an item that nobody wrote".to_owned()) };
        let (word, times) = (&digits[..3], digits.len() / 3);
        if word.repeat(times) != digits {
            return Err(format!("a number that nobody wrote: {digits}"));
        }
        Ok((item.key.0, (word.parse().map_err(text)?, times)))
    };
    tree.children().iter().map(item).collect()
}

/// A document as an outsider sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    revisions: Vec<Content>,
    /// The branch that holds it.
    holder: Option<u64>,
    tags: BTreeMap<u64, usize>,
}

/// The documents as they are.
fn found(db: &Database) -> Result<BTreeMap<u64, Found>, String> {
    let mut all = BTreeMap::new();
    for name in db.names(None, usize::MAX).map_err(text)? {
        let doc = db.document(&name).map_err(text)?;
        let revisions = 1..=doc.latest().number();
        let read = |revision| {
            let revision = doc.at(revision).map_err(text)?;
            revision.verify().map_err(text)?;
            content(&revision)
        };
        let told = doc.history(0..=u32::MAX, usize::MAX).map_err(text)?;
        if told.len() != revisions.clone().count() {
            return Err(format!("{} revisions in the history of {name}", told.len()));
        }
        doc.verify().map_err(text)?;
        let revisions = revisions.map(read).collect::<Result<Vec<_>, String>>()?;
        let mut tags = BTreeMap::new();
        for (tag, revision) in doc.tags(None, usize::MAX).map_err(text)? {
            tags.insert(tag.parse().map_err(text)?, revision as usize);
        }
        all.insert(number(&name)?, Found { revisions, holder: None, tags });
    }
    for in_doubt in db.in_doubt() {
        for (name, revision) in &in_doubt.documents {
            let Found { revisions, holder, .. } =
                all.get_mut(&number(name)?).ok_or("a branch holds what is not there")?;
            if holder.is_some() || revisions.len() + 1 != *revision as usize {
                return Err(format!("{in_doubt:?} holds a document of {} revisions", revisions.len()));
            }
            *holder = Some(branch(&in_doubt.xid));
        }
    }
    Ok(all)
}

/// A document as it was found, and all that was done to it since.
fn story(attempted: &[Fact], document: u64) -> (State, Vec<(u64, &Op)>) {
    let (mut state, mut ops) = (State::default(), Vec::new());
    for fact in attempted {
        match fact {
            Fact::Found(of, found) if *of == document => (state, ops) = (found.clone(), Vec::new()),
            Fact::Did(of, serial, op) if *of == document => ops.push((*serial, op)),
            Fact::Void(of, serial) if *of == document => ops.retain(|(of, _)| of != serial),
            _ => {}
        }
    }
    (state, ops)
}

/// What a run knows of a document.
struct Known {
    doc: Document,
    /// All states that it has had or may have, each with the number of what led to it; the first is as it was found.
    states: Vec<(u64, State)>,
    /// So many of them are over.
    over: usize,
}

impl Known {
    fn newest(&self) -> &State {
        &self.states.last().unwrap().1
    }
}

/// What its newest revision has.
fn known_before(known: &Known) -> Content {
    known.newest().revisions.last().cloned().unwrap_or_default()
}

/// Something that is appended and not yet waited for.
enum Waiting {
    Commit(Pending, u64, u64),
    /// Of a branch: it is done to all of these.
    Branch(assent_docs::Appended, Vec<(u64, u64)>),
}

struct Run<'a> {
    db: Database,
    rng: Rng,
    witness: &'a Witness<Fact>,
    docs: BTreeMap<u64, Known>,
    next: u64,
    serial: u64,
    waiting: Vec<Waiting>,
}

impl Run<'_> {
    fn make(&mut self) -> Result<(), String> {
        let versionings = [
            Versioning::Full,
            Versioning::Differential,
            Versioning::Incremental { window: 3 },
            Versioning::SlidingSnapshot { window: 3 },
        ];
        let versioning = versionings[self.rng.index(4)];
        let number = self.next;
        self.next += 1;
        self.witness.attempt(Fact::Made(number));
        let doc = self.db.create(&name(number), versioning).map_err(text)?;
        self.witness.acknowledge(Fact::Made(number));
        self.docs.insert(number, Known { doc, states: vec![(0, State::default())], over: 1 });
        Ok(())
    }

    fn drop_one(&mut self) -> Result<(), String> {
        self.wait()?;
        let free = self.docs.iter().find(|(_, known)| known.newest().prepared.is_none()).map(|(number, _)| *number);
        let Some(number) = free else { return Ok(()) };
        self.docs.remove(&number);
        self.witness.attempt(Fact::Dropped(number));
        self.db.drop_document(&name(number)).map_err(text)?;
        self.witness.acknowledge(Fact::Dropped(number));
        Ok(())
    }

    fn change(rng: &mut Rng, edit: &mut Edit) -> Result<(), String> {
        let Some(root) = edit.value() else {
            return edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array).map(drop).map_err(text);
        };
        for _ in 0..1 + rng.below(6) {
            // Now and then one that is longer than a buffer and crosses a segment.
            let times = if rng.below(20) == 0 { 4000 } else { [1, 5, 300][rng.index(3)] };
            let digits = (100 + rng.below(900)).to_string().repeat(times);
            let keys: Vec<u64> = content(edit)?.into_keys().collect();
            match keys.get(rng.index(2 * keys.len() + 2)) {
                Some(key) if rng.below(4) == 0 => edit.remove(NodeKey(*key)).map_err(text)?,
                Some(key) => edit.set(NodeKey(*key), Value::Number(&digits)).map_err(text)?,
                None => _ = edit.insert(At::First(root), None, Value::Number(&digits)).map_err(text)?,
            }
        }
        Ok(())
    }

    /// Some document with a change of it; none while a branch holds it.
    fn edit(&mut self) -> Result<Option<(u64, Edit)>, String> {
        let numbers: Vec<u64> = self.docs.keys().copied().collect();
        let Some(number) = numbers.get(self.rng.index(numbers.len())).copied() else {
            self.make()?;
            return Ok(None);
        };
        let known = &self.docs[&number];
        let doc = known.doc.clone();
        let mut edit = match doc.edit() {
            Ok(edit) if known.newest().prepared.is_none() => edit,
            Err(_) if known.newest().prepared.is_some() => return Ok(None),
            Ok(_) => return Err(format!("somebody writes document {number}, which a branch holds")),
            Err(error) => return Err(text(error)),
        };
        if self.rng.below(8) == 0 {
            let to = u32::try_from(self.rng.below(u64::from(doc.latest().number()) + 1)).map_err(text)?;
            edit.revert(&doc.at(to).map_err(text)?).map_err(text)?;
        }
        Self::change(&mut self.rng, &mut edit)?;
        Ok(Some((number, edit)))
    }

    /// Says what will be done to a document.
    fn attempt(&mut self, number: u64, op: Op) -> u64 {
        self.serial += 1;
        self.witness.attempt(Fact::Did(number, self.serial, op.clone()));
        let states = &mut self.docs.get_mut(&number).unwrap().states;
        let state = states.last().unwrap().1.clone().after(&op);
        states.push((self.serial, state));
        self.serial
    }

    /// It did nothing.
    fn void(&mut self, number: u64, serial: u64) {
        self.witness.attempt(Fact::Void(number, serial));
        self.docs.get_mut(&number).unwrap().states.retain(|(of, _)| *of != serial);
    }

    fn done(&mut self, number: u64, serial: u64) {
        self.witness.acknowledge(Fact::Done(number, serial));
        let Some(known) = self.docs.get_mut(&number) else { return };
        known.over = known.over.max(known.states.iter().take_while(|(of, _)| *of <= serial).count());
    }

    fn commit(&mut self) -> Result<(), String> {
        let Some((number, edit)) = self.edit()? else { return Ok(()) };
        if self.rng.below(8) == 0 {
            // Rolled back: what was laid before means nothing.
            return Ok(());
        }
        let serial = self.attempt(number, Op::Commit(content(&edit)?));
        let pending = edit.commit_begin(&Meta::default()).map_err(text)?;
        match pending.lsn() {
            // Whoever looks now must not see it, for a power cut may still take it.
            Some(_) => self.waiting.push(Waiting::Commit(pending, number, serial)),
            None => self.void(number, serial),
        }
        self.look(number)
    }

    /// Another document in the place of one. Before and after a power cut there is one of the two.
    fn replace(&mut self) -> Result<(), String> {
        let Some((number, edit)) = self.edit()? else { return Ok(()) };
        let mut anew = edit.anew(Versioning::SlidingSnapshot { window: 3 }).map_err(text)?;
        Self::change(&mut self.rng, &mut anew)?;
        Self::change(&mut self.rng, &mut anew)?;
        let serial = self.attempt(number, Op::Replace(content(&anew)?));
        let pending = anew.commit_begin(&Meta::default()).map_err(text)?;
        self.look(number)?;
        pending.wait().map_err(text)?;
        self.done(number, serial);
        let doc = self.db.document(&name(number)).map_err(text)?;
        self.docs.get_mut(&number).ok_or("a document of nobody")?.doc = doc;
        self.look(number)
    }

    /// A branch of one document or two.
    fn prepare(&mut self) -> Result<(), String> {
        let (mut parts, mut edits) = (Vec::new(), Vec::new());
        let branch = self.serial + 1;
        for _ in 0..[1, 2, 2][self.rng.index(3)] {
            let held: Vec<u64> = parts.iter().map(|(number, _)| *number).collect();
            let known =
                self.docs.iter().filter(|(number, known)| !held.contains(number) && known.newest().prepared.is_none());
            let free: Vec<u64> = known.map(|(number, _)| *number).collect();
            let Some(number) = free.get(self.rng.index(free.len().max(1))).copied() else { break };
            let mut edit = self.docs[&number].doc.edit().map_err(text)?;
            Self::change(&mut self.rng, &mut edit)?;
            let content = content(&edit)?;
            // What has not changed is no part of the branch.
            if content != known_before(&self.docs[&number]) {
                parts.push((number, content));
                edits.push(edit);
            }
        }
        let did = |(number, content): (u64, Content)| (number, self.attempt(number, Op::Prepare(branch, content)));
        let did: Vec<(u64, u64)> = parts.into_iter().map(did).collect();
        let voted = self.db.prepare_begin(&xid(branch), edits, &Meta::default()).map_err(text)?;
        if (voted.vote == Vote::ReadOnly) != did.is_empty() {
            return Err(format!("{voted:?} for {did:?}"));
        }
        self.waiting.push(Waiting::Branch(voted.appended, did));
        Ok(())
    }

    /// The outcome of some branch.
    fn end(&mut self) -> Result<(), String> {
        let holder = |(number, known): (&u64, &Known)| known.newest().prepared.as_ref().map(|(of, _)| (*of, *number));
        let held: Vec<(u64, u64)> = self.docs.iter().filter_map(holder).collect();
        let Some((branch, _)) = held.get(self.rng.index(held.len().max(1))).copied() else { return self.commit() };
        let is_commit = self.rng.below(3) > 0;
        let numbers = held.iter().filter(|(of, _)| *of == branch).map(|(_, number)| *number);
        let did: Vec<(u64, u64)> = numbers.map(|number| (number, self.attempt(number, Op::End(is_commit)))).collect();
        let verb = if is_commit { Database::commit_prepared_begin } else { Database::rollback_prepared_begin };
        let appended = verb(&self.db, &xid(branch)).map_err(text)?;
        self.waiting.push(Waiting::Branch(appended, did));
        Ok(())
    }

    fn tag(&mut self) -> Result<(), String> {
        let numbers: Vec<u64> = self.docs.keys().copied().collect();
        let Some(number) = numbers.get(self.rng.index(numbers.len().max(1))).copied() else { return Ok(()) };
        let doc = self.docs[&number].doc.clone();
        // Few names, so that tags are moved. Whatever else waits is durable with it.
        let tag = self.rng.below(3);
        let newest = doc.latest().number() as usize;
        let revision = if self.rng.below(4) > 0 { newest } else { self.rng.index(newest + 1) };
        let revision = Some(revision).filter(|_| self.rng.below(4) > 0);
        if revision.is_none() && !self.docs[&number].newest().tags.contains_key(&tag) {
            return Ok(());
        }
        let serial = self.attempt(number, Op::Tag(tag, revision));
        let told = match revision {
            Some(revision) => doc.tag(&tag.to_string(), u32::try_from(revision).map_err(text)?),
            None => doc.untag(&tag.to_string()),
        };
        told.map_err(text)?;
        self.done(number, serial);
        self.look(number)
    }

    fn truncate(&mut self) -> Result<(), String> {
        let free = self.docs.iter().filter(|(_, known)| known.newest().prepared.is_none());
        let numbers: Vec<u64> = free.map(|(number, _)| *number).collect();
        let Some(number) = numbers.get(self.rng.index(numbers.len().max(1))).copied() else { return Ok(()) };
        let known = &self.docs[&number];
        let revisions = known.newest().revisions.len();
        let to = revisions.saturating_sub([0, 1, 1, 2][self.rng.index(4)]);
        let doc = known.doc.clone();
        let serial = self.attempt(number, Op::Truncate(to));
        doc.truncate(u32::try_from(to).map_err(text)?).map_err(text)?;
        self.done(number, serial);
        self.look(number)
    }

    /// What a reader sees is there for ever, or until it is truncated.
    fn look(&mut self, number: u64) -> Result<(), String> {
        let Some(known) = self.docs.get(&number) else { return Ok(()) };
        let newest = known.doc.latest();
        let content = content(&newest)?;
        let is_seen = |(_, state): &&(u64, State)| {
            state.revisions.len() == newest.number() as usize
                && state.revisions.last().is_none_or(|last| *last == content)
        };
        match known.states[known.over - 1..].iter().find(is_seen) {
            Some((serial, _)) => self.done(number, *serial),
            None => return Err(format!("a reader of {number} sees revision {} of nobody", newest.number())),
        }
        Ok(())
    }

    /// A branch that is listed stays so until it has its outcome.
    fn look_at_branches(&mut self) -> Result<(), String> {
        for in_doubt in self.db.in_doubt() {
            for (name, _) in &in_doubt.documents {
                let number = number(name)?;
                let known = &self.docs[&number];
                let holds = |(_, state): &&(u64, State)| state.seen().holder == Some(branch(&in_doubt.xid));
                match known.states.iter().find(holds) {
                    Some((serial, _)) => self.done(number, *serial),
                    None => return Err(format!("a branch of nobody is listed for {number}")),
                }
            }
        }
        Ok(())
    }

    /// Waits for all that waits, in any order.
    fn wait(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let at = self.rng.index(self.waiting.len());
            match self.waiting.swap_remove(at) {
                Waiting::Commit(pending, number, serial) => {
                    pending.wait().map_err(text)?;
                    self.done(number, serial);
                }
                Waiting::Branch(appended, did) => {
                    self.db.wait(appended).map_err(text)?;
                    did.iter().for_each(|(number, serial)| self.done(*number, *serial));
                }
            }
            let numbers: Vec<u64> = self.docs.keys().copied().collect();
            numbers.into_iter().try_for_each(|number| self.look(number))?;
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), String> {
        self.db.checkpoint().map_err(text)?;
        self.witness.acknowledge(Fact::Checkpoint(self.db.stats().checkpoint.0));
        Ok(())
    }
}

impl Subject for Store {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let (_log, db) = Store::open(disk, seed)?;
        let attempted = witness.attempted();
        let made = |fact: &Fact| if let Fact::Made(number) = fact { Some(*number) } else { None };
        let did = |fact: &Fact| if let Fact::Did(_, serial, _) = fact { Some(*serial) } else { None };
        let next = attempted.iter().filter_map(made).max().map_or(0, |last| last + 1);
        let serial = attempted.iter().filter_map(did).max().unwrap_or(0);
        let mut docs = BTreeMap::new();
        // What a power cut left stays: from here on it is promised.
        for (number, seen) in found(&db)? {
            let Found { revisions, holder, tags } = seen.clone();
            let (before, ops) = story(&attempted, number);
            let earlier = before.prepared.filter(|(of, _)| Some(*of) == holder);
            let of_branch = ops.into_iter().find_map(|(_, op)| match op {
                Op::Prepare(of, content) if Some(*of) == holder => Some((*of, content.clone())),
                _ => None,
            });
            let state = State { revisions, prepared: of_branch.or(earlier), tags };
            if state.seen() != seen {
                return Err(format!("a branch of nobody holds {number}"));
            }
            witness.attempt(Fact::Found(number, state.clone()));
            witness.acknowledge(Fact::Made(number));
            let doc = db.document(&name(number)).map_err(text)?;
            docs.insert(number, Known { doc, states: vec![(0, state)], over: 1 });
        }
        let mut run = Run { db, rng: Rng::new(seed), witness, docs, next, serial, waiting: Vec::new() };
        for _ in 0..run.rng.range(5..16) {
            match run.rng.below(17) {
                // A branch of two documents needs two.
                _ if run.docs.len() < 2 => run.make()?,
                0 => run.checkpoint()?,
                1 if run.rng.below(3) == 0 => run.drop_one()?,
                2 | 3 => run.truncate()?,
                4 | 5 => run.tag()?,
                6 | 7 => run.prepare()?,
                8 | 9 => run.end()?,
                10 => run.replace()?,
                _ => run.commit()?,
            }
            run.look_at_branches()?;
            if run.rng.below(3) > 0 {
                run.wait()?;
            }
        }
        run.wait()
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let (_log, db) = Store::open(disk, disk.hash())?;
        let found = found(&db)?;
        for fact in acknowledged {
            let gone = |number: &u64| attempted.contains(&Fact::Dropped(*number));
            match fact {
                Fact::Made(number) if !found.contains_key(number) && !gone(number) => {
                    return Err(format!("document {number} was made and is not there"));
                }
                Fact::Dropped(number) if found.contains_key(number) => {
                    return Err(format!("document {number} was dropped and is there"));
                }
                Fact::Checkpoint(place) if db.stats().checkpoint.0 < *place => {
                    return Err(format!("a checkpoint at {place} was promised, it is {:?}", db.stats().checkpoint));
                }
                _ => {}
            }
        }
        let mut parts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for number in found.keys() {
            let (state, ops) = story(attempted, *number);
            let prepared = ops.iter().filter_map(|(_, op)| if let Op::Prepare(of, _) = op { Some(*of) } else { None });
            for branch in prepared.chain(state.prepared.map(|(of, _)| of)) {
                parts.entry(branch).or_default().push(*number);
            }
        }
        for (branch, numbers) in parts {
            let held = numbers.iter().filter(|number| found[number].holder == Some(branch)).count();
            if held > 0 && held < numbers.len() {
                return Err(format!("branch {branch} holds some of {numbers:?} and not the others"));
            }
        }
        for (number, seen) in &found {
            if !attempted.contains(&Fact::Made(*number)) {
                return Err(format!("document {number} was never made"));
            }
            let (mut state, ops) = story(attempted, *number);
            let done =
                |fact: &Fact| if let Fact::Done(of, serial) = fact { (of == number).then_some(*serial) } else { None };
            let done = acknowledged.iter().filter_map(done).max().unwrap_or(0);
            let mut may_be = vec![(0, state.clone())];
            for (serial, op) in ops {
                state = state.after(op);
                if serial <= done {
                    may_be.clear();
                }
                may_be.push((serial, state.clone()));
            }
            if !may_be.iter().any(|(_, state)| state.seen() == *seen) {
                return Err(format!("document {number} is {seen:?}; it may be {may_be:?}"));
            }
        }
        Ok(())
    }

    fn lives(&self) -> u32 {
        self.lives
    }
}

#[test]
fn gate_a_power_cut_takes_no_revision_that_was_seen() {
    let gate = Explore::new();
    let report = gate.run(&Store { lives: 2 }).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.states >= gate.states_max || report.took >= gate.time_max, "it ended early: {report}");
}

#[test]
fn gate_without_the_journals_sync_it_goes_red() {
    let sync = assent_journal::BARRIERS.iter().find(|barrier| barrier.label().contains("before its acknowledgement"));
    let failure =
        Explore::new().ignoring(&Store { lives: 1 }, *sync.unwrap()).unwrap_or_else(|green| panic!("{green}"));
    println!("{failure}");
}
