//! The power is cut everywhere: what was promised is there, the rest is wholly there or wholly absent, and votes stand.
//!
//! One log is one order, so whatever survives must be a state that the store went through: that of some prefix of what
//! was attempted, and not of less than was promised. So is what it remembers of finished branches. Whoever looks comes late: what
//! was to expire is over, and what it had replaced must not be back.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use assent_ids::Lsn;
use assent_journal::Journal;
use assent_kv::{BARRIERS, Condition, Config, Durability, Expect, Judged, Kv, KvError, Op, Pending};
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Witness};
use assent_world::{Clock, Disk};
use assent_xa::Past;

use super::xid;

mod compacting;

type Writes = BTreeMap<u8, Option<Value>>;

/// The keyspace with a name; its keys are capitals.
const NAME: &str = "n";

/// Each life, and whoever looks at what one left, begins so much later than what was attempted before: then all of that has expired.
const LIFE_MS: u64 = 1000;

/// Keys are one byte, and values a word that is repeated, so that a red state can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Value {
    word: u64,
    times: usize,
    /// 0: never.
    expiry: u64,
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        self.word.to_le_bytes().repeat(self.times)
    }

    fn of(bytes: &[u8]) -> Result<Self, String> {
        let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let value = Value { word, times: bytes.len() / 8, expiry: 0 };
        if value.bytes() == bytes { Ok(value) } else { Err(format!("a value that nobody wrote: {bytes:?}")) }
    }
}

/// One entry of the log, or what a later life began with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Batch(Writes),
    /// An erase from one key to another, and writes behind it in the same batch.
    Erase(u8, u8, Writes),
    /// The keyspace with a name is made, or dropped with all that is in it.
    Make,
    Drop,
    Prepare(u64, Writes),
    Commit(u64),
    Rollback(u64),
    Found(State),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    keys: BTreeMap<u8, Value>,
    is_named: bool,
    prepared: BTreeMap<u64, Writes>,
    /// What the store answers of branches that are finished: whether they were committed.
    finished: BTreeMap<u64, bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    /// A step and how many were before it.
    Step(usize, Step),
    /// A checkpoint at a place of the log.
    Checkpoint(u64),
}

impl State {
    fn lay(&mut self, writes: &Writes) {
        for (key, value) in writes {
            match value {
                Some(value) => _ = self.keys.insert(*key, *value),
                None => _ = self.keys.remove(key),
            }
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Batch(writes) => self.lay(writes),
            Step::Erase(from, to, writes) => {
                self.keys.retain(|key, _| !(from..to).contains(&key));
                self.lay(writes);
            }
            Step::Make => self.is_named = true,
            Step::Drop => {
                self.is_named = false;
                self.keys.retain(|key, _| !key.is_ascii_uppercase());
            }
            Step::Prepare(number, writes) => _ = self.prepared.insert(*number, writes.clone()),
            Step::Commit(number) => {
                let writes = self.prepared.remove(number).unwrap();
                self.lay(&writes);
                self.finished.insert(*number, true);
            }
            Step::Rollback(number) => {
                self.prepared.remove(number).unwrap();
                self.finished.insert(*number, false);
            }
            Step::Found(state) => *self = state.clone(),
        }
    }
}

impl State {
    /// Once everything has expired that ever will.
    fn late(&self) -> State {
        let keys = self.keys.iter().filter(|(_, value)| value.expiry == 0);
        State { keys: keys.map(|(key, value)| (*key, *value)).collect(), ..self.clone() }
    }
}

/// A clock at the time of a life before which so much was attempted.
fn clock_of(attempted: usize) -> SimClock {
    let clock = SimClock::new();
    clock.set_wall_ms(LIFE_MS * (u64::try_from(attempted).unwrap() + 1));
    clock
}

/// The store as the subject of an exploration.
struct Store {
    lives: u32,
    /// The journal acknowledges before it syncs: a buffered write is answered before it is durable, which its promise
    /// allows.
    lazy: bool,
    /// Long values, much that is overwritten, and compactions.
    compacting: bool,
}

impl Store {
    fn config(&self) -> Config {
        let config = Config::default();
        // Now and then something is passed.
        let small = Config {
            space_amplification_max_percent: 110,
            space_room_bytes_min: 0,
            volume_bytes: 24 << 10,
            passed_bytes_min: 0,
            ..config
        };
        if self.compacting { small } else { config }
    }

    fn open(&self, disk: &SimDisk, salt: u64, time: &SimClock) -> Result<Kv, String> {
        let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
        // Small segments and buffers, so that a value now and then crosses both.
        let config = assent_journal::Config {
            log_size: 5 * 4096,
            max_buffer_log_size: 2 * 4096,
            max_elapsed_sync_time: if self.lazy { 10 } else { 0 },
            kept_until_released: true,
            ..Default::default()
        };
        let opened = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), config);
        let (log, _) = opened.map_err(|error| error.to_string())?;
        Kv::open(log, Arc::new(disk.clone()), Arc::new(time.clone()), Path::new("kv"), self.config())
            .map_err(|error| error.to_string())
    }
}

fn found(kv: &Kv, attempted: &[Fact]) -> Result<State, String> {
    let all =
        |keyspace| kv.scan(keyspace, Bound::Unbounded, Bound::Unbounded, usize::MAX).map_err(|error| error.to_string());
    let mut rows = all(0)?;
    let named = kv.keyspace(NAME).map_err(|error| error.to_string())?;
    if let Some(named) = &named {
        rows.extend(all(named.id)?);
    }
    let mut prepared = BTreeMap::new();
    for xid in kv.prepared() {
        let number = xid.branch().ok_or("a branch of another node")?.tx.counter;
        let writes = attempted.iter().find_map(|fact| match fact {
            Fact::Step(_, Step::Prepare(prepared, writes)) if *prepared == number => Some(writes.clone()),
            _ => None,
        });
        prepared.insert(number, writes.ok_or("a branch that was never prepared")?);
    }
    let mut finished = BTreeMap::new();
    for fact in attempted {
        let Fact::Step(_, Step::Prepare(number, _)) = fact else { continue };
        match kv.inquire(&xid(*number), &[]) {
            Past::Committed => _ = finished.insert(*number, true),
            Past::RolledBack => _ = finished.insert(*number, false),
            // Asked without a witness, it says so of what it does not remember.
            Past::Open | Past::Forgotten | Past::Elsewhere(_) => {}
        }
    }
    let keys = rows.iter().map(|(key, value)| Ok((key[0], Value::of(value)?))).collect::<Result<_, String>>()?;
    Ok(State { keys, is_named: named.is_some(), prepared, finished })
}

/// A workload under way: what was asked, what will be there, what waits.
struct Run<'a> {
    kv: Kv,
    rng: Rng,
    witness: &'a Witness<Fact>,
    state: State,
    steps: usize,
    branches: u64,
    waiting: Vec<(Pending, usize, Step, Durability)>,
    compacting: bool,
    clock: SimClock,
    named: Option<u32>,
    /// Keys that this life wrote: the entry that did, and until when it lives; none if they are gone.
    written: BTreeMap<u8, Option<(Lsn, u64)>>,
}

impl Run<'_> {
    fn writes(&mut self) -> Writes {
        let held: Vec<u8> = self.state.prepared.values().flat_map(BTreeMap::keys).copied().collect();
        let count = self.rng.range(1..4);
        let mut writes = Writes::new();
        for _ in 0..count {
            let first = if self.named.is_some() && self.rng.below(4) == 0 { b'A' } else { b'a' };
            let key = first + self.rng.below(6).to_le_bytes()[0];
            // Now and then one that is longer than a buffer and crosses a segment.
            let usual = if self.compacting { [40, 150, 300, 500] } else { [1, 5, 40, 150] };
            let times = if self.rng.below(24) == 0 { 1500 } else { usual[self.rng.index(4)] };
            let now = self.clock.wall_ms();
            let expiry = if self.rng.below(5) == 0 { now + self.rng.range(1..9) } else { 0 };
            let value = (self.rng.below(5) > 0).then(|| Value { word: self.rng.roll(), times, expiry });
            if !held.contains(&key) {
                writes.insert(key, value);
            }
        }
        writes
    }

    fn attempt(
        &mut self,
        step: Step,
        durability: Durability,
        begin: impl FnOnce(&Kv) -> Result<Pending, KvError>,
    ) -> Result<(), String> {
        self.witness.attempt(Fact::Step(self.steps, step.clone()));
        let pending = begin(&self.kv).map_err(|error| format!("{step:?}: {error}"))?;
        self.note(&step, pending.lsn().unwrap_or_default());
        self.state.take(&step);
        self.waiting.push((pending, self.steps, step, durability));
        self.steps += 1;
        Ok(())
    }

    /// What it makes of keys, for conditions.
    fn note(&mut self, step: &Step, at: Lsn) {
        let prepared;
        let writes = match step {
            Step::Batch(writes) => writes,
            Step::Erase(from, to, writes) => {
                self.written.range_mut(from..to).for_each(|(_, written)| *written = None);
                writes
            }
            Step::Commit(number) => {
                prepared = self.state.prepared.get(number).cloned().unwrap_or_default();
                &prepared
            }
            Step::Drop => {
                self.written.retain(|key, _| !key.is_ascii_uppercase());
                return;
            }
            Step::Make | Step::Prepare(..) | Step::Rollback(_) | Step::Found(_) => return,
        };
        for (key, value) in writes {
            self.written.insert(*key, value.map(|value| (at, value.expiry)));
        }
    }

    fn batch(&mut self) -> Result<(), String> {
        let writes = self.writes();
        if writes.is_empty() {
            return Ok(());
        }
        let named = self.named;
        let durability = if self.rng.below(3) == 0 { Durability::Buffered } else { Durability::Durable };
        match self.rng.below(6) {
            0 => self.erase(writes, durability),
            1 | 2 => self.batch_if(&writes, durability),
            _ => self.attempt(Step::Batch(writes.clone()), durability, |kv| {
                with_ops(&writes, named, |ops| kv.batch_begin(ops, durability))
            }),
        }
    }

    fn erase(&mut self, writes: Writes, durability: Durability) -> Result<(), String> {
        let from = b'a' + self.rng.below(6).to_le_bytes()[0];
        let to = from + self.rng.range(1..4).to_le_bytes()[0];
        if self.state.prepared.values().flat_map(BTreeMap::keys).any(|key| (from..to).contains(key)) {
            return Ok(());
        }
        let named = self.named;
        self.attempt(Step::Erase(from, to, writes.clone()), durability, |kv| {
            with_ops(&writes, named, |ops| {
                let (from, to) = ([from], [to]);
                let all: Vec<Op<'_>> =
                    [Op::erase(0, &from, Some(&to))].into_iter().chain(ops.iter().copied()).collect();
                kv.batch_begin(&all, durability)
            })
        })
    }

    /// With a condition that holds; or with one that does not, and then nothing may come of it.
    fn batch_if(&mut self, writes: &Writes, durability: Durability) -> Result<(), String> {
        let held: Vec<u8> = self.state.prepared.values().flat_map(BTreeMap::keys).copied().collect();
        let known: Vec<u8> = self.written.keys().filter(|key| !held.contains(key)).copied().collect();
        let Some(key) = known.get(self.rng.index(known.len())).copied() else { return Ok(()) };
        let (now, named) = (self.clock.wall_ms(), self.named);
        let found = self.written.get(&key).copied().flatten().filter(|(_, expiry)| *expiry == 0 || *expiry > now);
        let right = found.map_or(Expect::Absent, |(at, _)| Expect::At(at));
        let key = [key];
        let expects = |expects| [Condition::new(space(key[0], named), &key, expects)];
        if self.rng.below(4) == 0 {
            let wrong = expects(if found.is_some() { Expect::Absent } else { Expect::Present });
            let judged = with_ops(writes, named, |ops| self.kv.batch_if_begin(&wrong, ops, durability));
            return match judged {
                Ok(Judged::Unmet { .. }) => Ok(()),
                other => Err(format!("{wrong:?}: {other:?}")),
            };
        }
        let right = expects(right);
        self.attempt(Step::Batch(writes.clone()), durability, |kv| {
            match with_ops(writes, named, |ops| kv.batch_if_begin(&right, ops, durability))? {
                Judged::Met(pending) => Ok(pending),
                Judged::Unmet { why, .. } => Err(*why),
            }
        })
    }

    /// Made or dropped, whichever can be; that waits by itself.
    fn name(&mut self) -> Result<(), String> {
        let held = self.state.prepared.values().flat_map(BTreeMap::keys).any(u8::is_ascii_uppercase);
        if self.named.is_some() && held {
            return Ok(());
        }
        let step = if self.named.is_some() { Step::Drop } else { Step::Make };
        self.witness.attempt(Fact::Step(self.steps, step.clone()));
        if step == Step::Drop {
            self.kv.keyspace_drop(NAME).map_err(|error| error.to_string())?;
            self.named = None;
        } else {
            self.named = Some(self.kv.keyspace_create(NAME).map_err(|error| error.to_string())?);
        }
        self.note(&step, Lsn::ZERO);
        self.state.take(&step);
        self.witness.acknowledge(Fact::Step(self.steps, step));
        self.steps += 1;
        Ok(())
    }

    fn branch(&mut self) -> Result<(), String> {
        let writes = self.writes();
        if writes.is_empty() {
            return Ok(());
        }
        self.branches += 1;
        let number = self.branches;
        let branch = xid(number);
        let one_phase = self.rng.below(3) == 0;
        let step = if one_phase { Step::Batch(writes.clone()) } else { Step::Prepare(number, writes.clone()) };
        let named = self.named;
        self.attempt(step, Durability::Durable, |kv| {
            kv.start(&branch)?;
            with_ops(&writes, named, |ops| ops.iter().try_for_each(|op| kv.branch_write(&branch, op)))?;
            kv.end(&branch, true)?;
            if one_phase { kv.commit_one_phase_begin(&branch) } else { Ok(kv.prepare_begin(&branch)?.pending) }
        })
    }

    fn outcome(&mut self) -> Result<(), String> {
        let prepared: Vec<u64> = self.state.prepared.keys().copied().collect();
        let Some(number) = prepared.get(self.rng.index(prepared.len())).copied() else { return Ok(()) };
        if self.rng.below(3) > 0 {
            self.attempt(Step::Commit(number), Durability::Durable, |kv| kv.commit_begin(&xid(number)))
        } else {
            self.attempt(Step::Rollback(number), Durability::Durable, |kv| kv.rollback_begin(&xid(number)))
        }
    }

    /// Waits for all that waits, in any order.
    fn wait(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let at = self.rng.index(self.waiting.len());
            let (pending, number, step, durability) = self.waiting.swap_remove(at);
            self.kv.wait(pending).map_err(|error| error.to_string())?;
            if durability == Durability::Durable {
                self.witness.acknowledge(Fact::Step(number, step));
            }
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), String> {
        self.kv.checkpoint().map_err(|error| error.to_string())?;
        self.witness.acknowledge(Fact::Checkpoint(self.kv.stats().checkpoint.0));
        Ok(())
    }
}

/// Where a key is.
fn space(key: u8, named: Option<u32>) -> u32 {
    if key.is_ascii_uppercase() { named.unwrap() } else { 0 }
}

/// Writes as operations, for as long as `then` takes.
fn with_ops<T>(writes: &Writes, named: Option<u32>, then: impl FnOnce(&[Op<'_>]) -> T) -> T {
    let laid: Vec<_> = writes.iter().map(|(key, value)| ([*key], value.map(|it| (it.bytes(), it.expiry)))).collect();
    let ops: Vec<Op<'_>> = laid
        .iter()
        .map(|(key, value)| {
            let space = space(key[0], named);
            value
                .as_ref()
                .map_or(Op::delete(space, key), |(value, expiry)| Op::put(space, key, value).expiring(*expiry))
        })
        .collect();
    then(&ops)
}

impl Subject for Store {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let attempted = witness.attempted();
        let clock = clock_of(attempted.len());
        let kv = self.open(disk, seed, &clock)?;
        let state = found(&kv, &attempted)?;
        let steps = attempted.len();
        // What a power cut left stays: from here on it is promised.
        let fact = Fact::Step(steps, Step::Found(state.clone()));
        witness.attempt(fact.clone());
        witness.acknowledge(fact);
        let numbers = attempted.iter().filter_map(|fact| match fact {
            Fact::Step(_, Step::Prepare(number, _)) => Some(*number),
            _ => None,
        });
        let branches = numbers.max().unwrap_or(0) + 1000;
        let (rng, steps) = (Rng::new(seed), steps + 1);
        let compacting = self.compacting;
        let named = kv.keyspace(NAME).map_err(|error| error.to_string())?.map(|named| named.id);
        let (waiting, written) = (Vec::new(), BTreeMap::new());
        let mut run = Run { kv, rng, witness, state, steps, branches, waiting, compacting, clock, named, written };
        for _ in 0..run.rng.range(if compacting { 12..30 } else { 4..10 }) {
            match run.rng.below(20) {
                0..8 => run.batch()?,
                8..12 => run.branch()?,
                12..16 => run.outcome()?,
                16 => run.name()?,
                17 => run.clock.advance(Duration::from_millis(run.rng.range(1..6))),
                _ if compacting => run.compact()?,
                _ => run.checkpoint()?,
            }
            if run.rng.below(3) > 0 {
                run.wait()?;
            }
        }
        run.wait()
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        // Before the first open: what a loss of the ledger must not find is what that open removes.
        let copy = (self.compacting && disk.hash().is_multiple_of(8)).then(|| disk.copy());
        // Another salt for every disk, as dice would give.
        let clock = clock_of(attempted.len());
        let kv = self.open(disk, disk.hash(), &clock)?;
        let state = found(&kv, attempted)?;
        let mut promised = 0;
        let mut checkpoint = 0;
        for fact in acknowledged {
            match fact {
                Fact::Step(number, _) => promised = promised.max(number + 1),
                Fact::Checkpoint(place) => checkpoint = checkpoint.max(*place),
            }
        }
        let mut prefix = State::default();
        let mut matches = promised == 0 && state == prefix;
        for fact in attempted {
            let Fact::Step(number, step) = fact else { continue };
            prefix.take(step);
            matches |= number + 1 >= promised && state == prefix.late();
        }
        if !matches {
            return Err(format!("no prefix of at least {promised} steps is what was found: {state:?}"));
        }
        if self.compacting {
            self.check_compacted(copy, &kv, &state, attempted, &clock)?;
        }
        let loaded = kv.stats().checkpoint.0;
        if loaded < checkpoint {
            return Err(format!("a checkpoint at {checkpoint} was promised, the open found {loaded}"));
        }
        Ok(())
    }

    fn lives(&self) -> u32 {
        self.lives
    }
}

impl Store {
    /// Everything is whole, and what is left without the ledger is the same store.
    fn check_compacted(
        &self,
        copy: Option<SimDisk>,
        kv: &Kv,
        state: &State,
        attempted: &[Fact],
        clock: &SimClock,
    ) -> Result<(), String> {
        let mut damages = Vec::new();
        kv.verify(&mut |error| damages.push(error.to_string()));
        if let Some(damage) = damages.first() {
            return Err(damage.clone());
        }
        let Some(copy) = copy else { return Ok(()) };
        let names = match copy.list(Path::new("kv")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(|error| error.to_string())?,
        };
        names.iter().for_each(|name| copy.unlink(&Path::new("kv").join(name)).unwrap());
        let kv = self.open(&copy, copy.hash() ^ 1, clock)?;
        let rebuilt = found(&kv, attempted)?;
        if rebuilt == *state { Ok(()) } else { Err(format!("built anew it is {rebuilt:?}, it was {state:?}")) }
    }
}

fn explore(store: &Store) {
    let gate = Explore::within(60);
    let report = gate.run(store).unwrap_or_else(|failure| panic!("{failure}"));
    println!("lazy {}, compacting {}: {report}", store.lazy, store.compacting);
    assert!(report.states >= gate.states_max || report.took >= gate.time_max, "it ended early: {report}");
    assert!(!store.compacting || compacting::PASSED.load(Ordering::Relaxed) > 0, "nothing was ever passed");
}

#[test]
fn gate_a_power_cut_takes_nothing_that_was_promised() {
    explore(&Store { lives: 2, lazy: false, compacting: false });
}

#[test]
fn gate_a_buffered_write_may_be_lost_and_what_is_durable_before_it_stays() {
    explore(&Store { lives: 2, lazy: true, compacting: false });
}

#[test]
fn gate_a_power_cut_during_compactions_takes_nothing_that_was_promised() {
    explore(&Store { lives: 3, lazy: false, compacting: true });
}

#[test]
fn gate_a_compaction_believes_no_buffered_write() {
    explore(&Store { lives: 3, lazy: true, compacting: true });
}

#[test]
fn gate_each_barrier_of_the_store_ignored_goes_red() {
    for barrier in BARRIERS {
        let store = Store { lives: 3, lazy: false, compacting: true };
        let failure = Explore::new().ignoring(&store, *barrier).unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {} states: {}", barrier.label(), failure.report.states, failure.message);
    }
}
