//! Somebody who does at random all that can be done to documents, says before what he does and afterwards what he was promised.

use std::collections::BTreeMap;

use assent_docs::{At, Database, Document, Edit, Look, Meta, NodeKey, Pending, Value, Versioning};
use assent_sim::{Rng, Witness};
use assent_xa::Vote;

use super::story::{Content, Fact, Op, State, branch, content, name, number, text, xid};

/// What a run knows of a document.
pub(super) struct Known {
    pub(super) doc: Document,
    /// All states that it has had or may have, each with the number of what led to it; the first is as it was found.
    pub(super) states: Vec<(u64, State)>,
    /// So many of them are over.
    pub(super) over: usize,
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
pub(super) enum Waiting {
    Commit(Pending, u64, u64),
    /// Of a branch: it is done to all of these.
    Branch(assent_docs::Appended, Vec<(u64, u64)>),
}

pub(super) struct Run<'a> {
    pub(super) db: Database,
    pub(super) rng: Rng,
    pub(super) witness: &'a Witness<Fact>,
    pub(super) docs: BTreeMap<u64, Known>,
    pub(super) next: u64,
    pub(super) serial: u64,
    pub(super) waiting: Vec<Waiting>,
}

impl Run<'_> {
    pub(super) fn make(&mut self) -> Result<(), String> {
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

    pub(super) fn drop_one(&mut self) -> Result<(), String> {
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

    pub(super) fn commit(&mut self) -> Result<(), String> {
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
    pub(super) fn replace(&mut self) -> Result<(), String> {
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
    pub(super) fn prepare(&mut self) -> Result<(), String> {
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
    pub(super) fn end(&mut self) -> Result<(), String> {
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

    pub(super) fn tag(&mut self) -> Result<(), String> {
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

    pub(super) fn truncate(&mut self) -> Result<(), String> {
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
    pub(super) fn look_at_branches(&mut self) -> Result<(), String> {
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
    pub(super) fn wait(&mut self) -> Result<(), String> {
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

    pub(super) fn checkpoint(&self) -> Result<(), String> {
        self.db.checkpoint().map_err(text)?;
        self.witness.acknowledge(Fact::Checkpoint(self.db.stats().checkpoint.0));
        Ok(())
    }
}
