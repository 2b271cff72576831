//! The power-loss gate: after any cut the map is, up to `applied`, what was written up to there, `applied` is not less than was
//! promised, and the note says what the runs hold.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_runs::{AtOnce, BARRIERS, Bulk, Config, Entry, Range, Runs, RunsError, Step};
use assent_sim::{Call, Explore, Fault, Rng, SimDisk, Subject, Witness};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

use super::accounts::Sums;
use super::beside::Beside;
use super::script::{Batch, Model, Op};
use super::{Accounts, FOLDER, open};

/// So small that a third level comes soon.
fn small() -> Config {
    Config { level1_bytes: 1 << 10, ..super::small() }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    /// It is in the owner's log.
    Batch(Batch),
    /// So much is durable in runs.
    Applied(u64),
    /// The owner's own word in the note.
    Word(u64),
}

#[derive(Default)]
struct Map {
    lives: u32,
    /// One commit a life: so the power is cut in one, and then in the next one, which writes over what the first one left.
    is_brief: bool,
    /// What its workloads did: flushes, drops, moves, merges, rebuilds, flushes in the middle of a merge, merges in the middle of
    /// a flush.
    did: [AtomicU64; 7],
}

impl Map {
    fn count(&self, at: usize) {
        self.did[at].fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether an open leaves it to the next commit to make sure of what it found.
fn is_late(attempted: &[Fact]) -> bool {
    !attempted.len().is_multiple_of(2)
}

/// Opens, and judges what is there.
fn opened(disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(Runs, Accounts, u64), String> {
    let config = Config { settles_late: is_late(attempted), ..small() };
    let (runs, opened, accounts) = open(disk, config).map_err(|error| error.to_string())?;
    let promised = acknowledged.iter().filter_map(|fact| if let Fact::Applied(seq) = fact { Some(*seq) } else { None });
    let promised = promised.max().unwrap_or(0);
    if opened.applied < promised {
        return Err(format!("{promised} was promised as applied, found is {}", opened.applied));
    }
    let word = |facts: &[Fact]| {
        facts.iter().filter_map(|fact| if let Fact::Word(word) = fact { Some(*word) } else { None }).max()
    };
    let (least, most) = (word(acknowledged).unwrap_or(0), word(attempted).unwrap_or(0));
    let found = accounts.sums().word;
    if found < least || found > most {
        return Err(format!("the note's word is {found}; promised was {least}, asked for was {most}"));
    }
    let batches = attempted.iter().filter_map(|fact| if let Fact::Batch(batch) = fact { Some(batch) } else { None });
    let model = Model::of(batches.filter(|batch| batch.seq <= opened.applied));
    model.compare(&runs.view()).map_err(|what| format!("at {}: {what}", opened.applied))?;
    accounts.agree_with(&runs.facts())?;
    let mut damage = Vec::new();
    runs.verify(&mut |error| damage.push(error.to_string()));
    if !damage.is_empty() {
        return Err(format!("damage: {damage:?}"));
    }
    let names = disk.list(FOLDER.as_ref()).map_err(|error| error.to_string())?;
    let files = names.iter().filter(|name| name.ends_with(".run")).count() as u64;
    let facts = runs.facts();
    let named = facts.levels.iter().map(|level| level.runs).sum::<u64>() + facts.runs_leaving;
    if files != named {
        return Err(format!("{files} run files; the manifests name {named}"));
    }
    Ok((runs, accounts, opened.applied))
}

struct Life<'a> {
    map: &'a Map,
    runs: Runs,
    accounts: Accounts,
    rng: Rng,
    witness: &'a Witness<Fact>,
    seq: u64,
    word: u64,
    /// What was found is durable: by the open, or by a commit since.
    is_sure: Cell<bool>,
}

impl Life<'_> {
    fn step(&self) -> Result<(), RunsError> {
        let step = self.runs.step(&self.accounts, &AtOnce)?;
        if matches!(step, Some(Step::Flushed { .. } | Step::Dropped { .. } | Step::Moved { .. } | Step::Merged { .. }))
        {
            self.is_sure.set(true);
        }
        match step {
            Some(Step::Flushed { .. }) => self.map.count(0),
            Some(Step::Dropped { .. }) => self.map.count(1),
            Some(Step::Moved { .. }) => self.map.count(2),
            Some(Step::Merged { .. }) => self.map.count(3),
            Some(Step::Stopped) | None => {}
        }
        if self.is_sure.get() {
            self.witness.acknowledge(Fact::Applied(self.runs.applied()));
        }
        Ok(())
    }

    /// A step of one lane, and in the middle of it what comes meanwhile, and a step of the other.
    fn step_both(&mut self) -> Result<(), RunsError> {
        if !self.is_sure.get() {
            self.renote()?;
        }
        let mut batches = Vec::new();
        for _ in 0..self.rng.below(3) {
            self.seq += self.rng.range(1..3);
            batches.push(Batch::roll(&mut self.rng, self.seq, 20));
        }
        batches.iter().for_each(|batch| self.witness.attempt(Fact::Batch(batch.clone())));
        let is_merge = self.rng.below(2) == 0;
        let entries = self.rng.range(1..8);
        let mut inside = Ok(());
        let beside = Beside::new(&self.accounts, entries, || {
            inside = (|| {
                for batch in &batches {
                    match batch.apply(&self.runs) {
                        Err(RunsError::Busy { .. }) => break,
                        applied => applied?,
                    }
                }
                self.runs.rotate(self.runs.seq());
                let step = if is_merge {
                    self.runs.flush(&self.accounts, &AtOnce)?
                } else {
                    self.runs.merge(&self.accounts, &AtOnce)?
                };
                if step.is_some() {
                    self.map.count(if is_merge { 5 } else { 6 });
                }
                self.witness.acknowledge(Fact::Applied(self.runs.applied()));
                Ok(())
            })();
        });
        let step = if is_merge { self.runs.merge(&beside, &AtOnce) } else { self.runs.flush(&beside, &AtOnce) };
        drop(beside);
        step?;
        inside?;
        self.witness.acknowledge(Fact::Applied(self.runs.applied()));
        // What did not come meanwhile, or found no room, comes now.
        let newest = self.runs.seq();
        batches.iter().filter(|batch| batch.seq > newest).try_for_each(|batch| self.apply(batch))
    }

    fn write(&mut self) -> Result<(), RunsError> {
        self.seq += self.rng.range(1..3);
        let mut batch = Batch::roll(&mut self.rng, self.seq, 20);
        if self.rng.below(16) == 0 {
            batch.ops.push(Op::Erase(Vec::new(), None));
        }
        self.witness.attempt(Fact::Batch(batch.clone()));
        self.apply(&batch)
    }

    fn apply(&self, batch: &Batch) -> Result<(), RunsError> {
        loop {
            match batch.apply(&self.runs) {
                Err(RunsError::Busy { .. }) => self.step()?,
                done => return done,
            }
        }
    }

    /// What its log has and the runs have not.
    fn replay(&self, applied: u64) -> Result<(), RunsError> {
        for fact in self.witness.attempted() {
            match fact {
                Fact::Batch(batch) if batch.seq > applied => self.apply(&batch)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn renote(&mut self) -> Result<(), RunsError> {
        self.word += 1;
        self.witness.attempt(Fact::Word(self.word));
        let note = self.accounts.set_word(self.word);
        self.runs.renote(|| note, || {})?;
        self.is_sure.set(true);
        self.witness.acknowledge(Fact::Word(self.word));
        Ok(())
    }

    /// The owner builds the map anew from its log.
    fn rebuild(&mut self, disk: &SimDisk) -> Result<(), RunsError> {
        let batches = self.witness.attempted();
        let batches = batches.iter().filter_map(|fact| if let Fact::Batch(batch) = fact { Some(batch) } else { None });
        let mut batches: Vec<&Batch> = batches.collect();
        let applied = self.seq;
        // Of two entries of one batch the one that is added last counts: only batches may be in disorder.
        let half = batches.len() / 2;
        batches.rotate_left(half);
        let mut bulk = Bulk::new(Arc::new(disk.clone()), FOLDER.as_ref(), small())?;
        let mut ranges = Vec::new();
        for Batch { seq, ops } in batches {
            for op in ops {
                match op {
                    Op::Put(key, value) => bulk.add(&Entry { key, seq: *seq, value: Some(value) })?,
                    Op::Delete(key) => bulk.add(&Entry { key, seq: *seq, value: None })?,
                    Op::Erase(from, to) => ranges.push(Range { from: from.clone(), to: to.clone(), seq: *seq }),
                }
            }
        }
        let word = self.accounts.sums().word;
        let accounts = Accounts::of(&Sums { entries: 0, bytes: 0, word }.lay());
        assert!(bulk.finish(&ranges, applied, &accounts, &AtOnce)?);
        let (runs, opened, accounts) = open(disk, small())?;
        assert_eq!(opened.applied, applied);
        (self.runs, self.accounts) = (runs, accounts);
        self.is_sure.set(true);
        self.witness.acknowledge(Fact::Applied(applied));
        self.map.count(4);
        Ok(())
    }

    /// A sync of a manifest fails; the next open must not believe what is only in memory.
    fn fail(&mut self, disk: &SimDisk) -> Result<(), String> {
        let sync = BARRIERS.iter().find(|barrier| barrier.label().contains("before what it says counts"));
        disk.inject(Call::at(*sync.ok_or("no such barrier")?, 1), Fault::Io);
        match self.renote() {
            Err(RunsError::Closed { .. }) => {}
            other => return Err(format!("a failed sync was answered by {other:?}")),
        }
        let words = self.witness.attempted();
        let (runs, accounts, applied) = opened(disk, &self.witness.acknowledged(), &words)?;
        (self.runs, self.accounts) = (runs, accounts);
        self.word = self.accounts.sums().word.max(self.word);
        self.is_sure.set(!is_late(&words));
        if self.is_sure.get() {
            // What such an open has shown, it has promised.
            self.witness.acknowledge(Fact::Word(self.accounts.sums().word));
            self.witness.acknowledge(Fact::Applied(applied));
        }
        self.replay(applied).map_err(|error| error.to_string())
    }
}

impl Subject for Map {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let attempted = witness.attempted();
        let (runs, accounts, applied) = opened(disk, &witness.acknowledged(), &attempted)?;
        let seqs =
            attempted.iter().filter_map(|fact| if let Fact::Batch(batch) = fact { Some(batch.seq) } else { None });
        // The mark may be behind the last change.
        let seq = seqs.max().unwrap_or(0).max(applied);
        let words = attempted.iter().filter_map(|fact| if let Fact::Word(word) = fact { Some(*word) } else { None });
        let word = words.max().unwrap_or(0);
        let is_sure = Cell::new(!is_late(&attempted));
        let mut life = Life { map: self, runs, accounts, rng: Rng::new(seed), witness, seq, word, is_sure };
        let wrap = |error: RunsError| error.to_string();
        if life.is_sure.get() {
            witness.acknowledge(Fact::Applied(applied));
        }
        life.replay(applied).map_err(wrap)?;
        if self.is_brief {
            life.write().map_err(wrap)?;
            life.runs.rotate(life.seq);
            return life.step().map_err(wrap);
        }
        // A few go on for long, so that runs come to be merged, moved and dropped.
        let most = if life.rng.below(4) == 0 { 80 } else { 24 };
        for _ in 0..life.rng.range(1..most) {
            match life.rng.below(12) {
                0 | 1 => life.renote().map_err(wrap)?,
                2 => {
                    // Now and then behind an entry of the log that is no change.
                    life.seq += life.rng.below(2);
                    life.runs.rotate(life.seq);
                }
                3 if life.rng.below(2) == 0 => life.step_both().map_err(wrap)?,
                3..=5 => life.step().map_err(wrap)?,
                6 if life.rng.below(4) == 0 => life.fail(disk)?,
                7 if life.rng.below(6) == 0 => life.rebuild(disk).map_err(wrap)?,
                _ => life.write().map_err(wrap)?,
            }
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        opened(disk, acknowledged, attempted).map(|_| ())
    }

    fn lives(&self) -> u32 {
        self.lives
    }
}

#[test]
fn gate_a_power_cut_leaves_what_was_applied_and_a_note_that_fits() {
    let gate = Explore::within(60);
    let map = Map { lives: 2, ..Map::default() };
    let report = gate.run(&map).unwrap_or_else(|failure| panic!("{failure}"));
    let did = map.did.map(AtomicU64::into_inner);
    println!("{report}flushes, drops, moves, merges, rebuilds, and in the middle of each other: {did:?}");
    assert!(did.iter().all(|count| *count > 0), "too little was done: {did:?}");
    assert!(report.states >= gate.states_max || report.took >= gate.time_max, "it ended early: {report}");
}

#[test]
fn gate_every_barrier_is_needed() {
    for barrier in BARRIERS {
        let red = |is_brief| Explore::new().ignoring(&Map { lives: 3, is_brief, ..Map::default() }, *barrier);
        let red = red(true).or_else(|_| red(false));
        let failure = red.unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {}", barrier.label(), failure.message);
    }
}

/// The number of a manifest copy, as it stands in its head.
fn number(disk: &SimDisk, name: &str) -> u64 {
    let file =
        disk.open(&std::path::Path::new(FOLDER).join(name), Open { access: Access::Read, direct: false }).unwrap();
    let mut head = [0; 24];
    read_exact_at(&*file, 0, &mut head).unwrap();
    u64::from_le_bytes(head[16..].try_into().unwrap())
}

#[test]
fn without_the_newest_manifest_the_one_before_counts_and_its_files_are_there() {
    let (mut fell_back, mut went_back) = (0, 0);
    for seed in 0..60 {
        let disk = SimDisk::new();
        let witness = Witness::new(disk.clone());
        let (runs, _, accounts) = open(&disk, small()).unwrap();
        let map = Map::default();
        let mut life = Life {
            map: &map,
            runs,
            accounts,
            rng: Rng::new(seed),
            witness: &witness,
            seq: 0,
            word: 0,
            is_sure: Cell::new(true),
        };
        for _ in 0..60 {
            life.write().unwrap();
            let stepped = life.runs.step(&life.accounts, &AtOnce).unwrap();
            if matches!(stepped, None | Some(Step::Stopped)) {
                continue;
            }
            let floor = life.runs.replay_floor();
            for other in disk.survivors(3, seed) {
                // An open in between keeps what the older one names.
                if life.rng.below(2) == 0 {
                    open(&other, small()).unwrap();
                }
                let names = ["manifest-a", "manifest-b"];
                let newest = names.into_iter().max_by_key(|name| number(&other, name)).unwrap();
                let path = std::path::Path::new(FOLDER).join(newest);
                let file = other.open(&path, Open { access: Access::Write, direct: false }).unwrap();
                write_all_at(&*file, 20, &[0xff]).unwrap();
                let (runs, opened, accounts) = open(&other, small()).unwrap();
                assert!(opened.manifest_torn.is_some());
                assert!(opened.applied >= floor, "{} was promised as the floor, found is {}", floor, opened.applied);
                went_back += u64::from(opened.applied < life.runs.applied());
                let attempted = witness.attempted();
                let batches =
                    attempted.iter().filter_map(|fact| if let Fact::Batch(batch) = fact { Some(batch) } else { None });
                let model = Model::of(batches.filter(|batch| batch.seq <= opened.applied));
                assert_eq!(model.compare(&runs.view()), Ok(()), "seed {seed}");
                assert_eq!(accounts.agree_with(&runs.facts()), Ok(()), "seed {seed}");
                fell_back += 1;
            }
        }
    }
    assert!(fell_back > 500 && went_back > 100, "{fell_back} {went_back}");
}

#[test]
fn a_flush_waits_for_the_log() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    runs.apply(7, &[assent_runs::Change::Put { key: b"k", value: b"v" }]).unwrap();
    runs.rotate(9);
    accounts.durable.store(8, Ordering::SeqCst);
    assert_eq!((runs.step(&accounts, &AtOnce), runs.applied()), (Ok(None), 0));
    accounts.durable.store(9, Ordering::SeqCst);
    assert!(matches!(runs.step(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    assert_eq!(runs.applied(), 9);
}
