//! The power is cut everywhere: what was acknowledged is there with every revision before it, the rest is wholly there or wholly
//! absent, and no reader has seen what is gone afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_docs::{At, Config, Database, Document, Edit, Look, Meta, NodeKey, Pending, Value, Versioning};
use assent_journal::Journal;
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Witness};

use super::tree::read;

/// A document has this much: its items' numbers, each with how often its digits are repeated. So a red state can be read.
type Content = BTreeMap<u64, (u64, usize)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    Made(u64),
    Dropped(u64),
    /// A revision of a document, with its content. A reader that saw it acknowledges it as much as its writer does.
    Revision(u64, u32, Content),
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

impl Store {
    fn open(disk: &SimDisk, salt: u64) -> Result<(Arc<Journal>, Database), String> {
        let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
        // Small segments and buffers, so that a commit now and then crosses both.
        let journal = assent_journal::Config {
            log_size: 5 * 4096,
            max_buffer_log_size: 2 * 4096,
            kept_until_released: true,
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

fn found(db: &Database) -> Result<BTreeMap<u64, Vec<Content>>, String> {
    let mut all = BTreeMap::new();
    for name in db.names(None, usize::MAX).map_err(text)? {
        let doc = db.document(&name).map_err(text)?;
        let revisions = 1..=doc.latest().number();
        let read = |revision| {
            let revision = doc.at(revision).map_err(text)?;
            revision.verify().map_err(text)?;
            content(&revision)
        };
        let number = name.strip_prefix("doc ").and_then(|number| number.parse().ok()).ok_or("a name of nobody")?;
        let told = doc.history(0..=u32::MAX, usize::MAX).map_err(text)?;
        if told.len() != revisions.clone().count() {
            return Err(format!("{} revisions in the history of {name}", told.len()));
        }
        all.insert(number, revisions.map(read).collect::<Result<Vec<_>, String>>()?);
    }
    Ok(all)
}

struct Run<'a> {
    db: Database,
    rng: Rng,
    witness: &'a Witness<Fact>,
    docs: BTreeMap<u64, Document>,
    next: u64,
    waiting: Vec<(Pending, Fact)>,
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
        self.docs.insert(number, doc);
        Ok(())
    }

    fn drop_one(&mut self) -> Result<(), String> {
        self.wait()?;
        let Some((number, _)) = self.docs.pop_first() else { return Ok(()) };
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

    fn commit(&mut self) -> Result<(), String> {
        let numbers: Vec<u64> = self.docs.keys().copied().collect();
        let Some(number) = numbers.get(self.rng.index(numbers.len())).copied() else { return self.make() };
        let doc = self.docs[&number].clone();
        let Ok(mut edit) = doc.edit() else { return Ok(()) };
        if self.rng.below(8) == 0 {
            let to = u32::try_from(self.rng.below(u64::from(doc.latest().number()) + 1)).map_err(text)?;
            edit.revert(&doc.at(to).map_err(text)?).map_err(text)?;
        }
        Self::change(&mut self.rng, &mut edit)?;
        if self.rng.below(8) == 0 {
            // Rolled back: what was laid before means nothing.
            return Ok(());
        }
        let fact = Fact::Revision(number, doc.latest().number() + 1, content(&edit)?);
        self.witness.attempt(fact.clone());
        let pending = edit.commit_begin(&Meta::default()).map_err(text)?;
        // Nothing had changed; else whoever looks now must not see it, for a power cut may still take it.
        if pending.lsn().is_some() {
            self.waiting.push((pending, fact));
        }
        self.look(number)
    }

    /// What a reader sees is there for ever.
    fn look(&self, number: u64) -> Result<(), String> {
        let newest = self.docs[&number].latest();
        if newest.number() > 0 {
            self.witness.acknowledge(Fact::Revision(number, newest.number(), content(&newest)?));
        }
        Ok(())
    }

    /// Waits for all that waits, in any order.
    fn wait(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let at = self.rng.index(self.waiting.len());
            let (pending, fact) = self.waiting.swap_remove(at);
            pending.wait().map_err(text)?;
            self.witness.acknowledge(fact);
            for number in self.docs.keys() {
                self.look(*number)?;
            }
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
        let made = |fact: &Fact| if let Fact::Made(number) = fact { Some(*number) } else { None };
        let next = witness.attempted().iter().filter_map(made).max().map_or(0, |last| last + 1);
        let mut docs = BTreeMap::new();
        // What a power cut left stays: from here on it is promised.
        for (number, revisions) in found(&db)? {
            witness.acknowledge(Fact::Made(number));
            for (revision, content) in (1..).zip(revisions) {
                witness.acknowledge(Fact::Revision(number, revision, content));
            }
            docs.insert(number, db.document(&name(number)).map_err(text)?);
        }
        let mut run = Run { db, rng: Rng::new(seed), witness, docs, next, waiting: Vec::new() };
        for _ in 0..run.rng.range(4..12) {
            match run.rng.below(10) {
                0 => run.make()?,
                1 => run.checkpoint()?,
                2 if run.rng.below(3) == 0 => run.drop_one()?,
                _ => run.commit()?,
            }
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
                Fact::Revision(number, revision, content) => {
                    let at = *revision as usize - 1;
                    match found.get(number).and_then(|revisions| revisions.get(at)) {
                        Some(found) if found == content => {}
                        None if gone(number) => {}
                        other => return Err(format!("{fact:?} was promised, {other:?} is there")),
                    }
                }
                Fact::Checkpoint(place) if db.stats().checkpoint.0 < *place => {
                    return Err(format!("a checkpoint at {place} was promised, it is {:?}", db.stats().checkpoint));
                }
                Fact::Made(_) | Fact::Dropped(_) | Fact::Checkpoint(_) => {}
            }
        }
        for (number, revisions) in &found {
            for (revision, content) in (1..).zip(revisions) {
                if !attempted.contains(&Fact::Revision(*number, revision, content.clone())) {
                    return Err(format!("revision {revision} of {number} was never committed: {content:?}"));
                }
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
