//! The power is cut everywhere: what was promised is there, the rest is wholly there or wholly absent, in the order of the log.
//!
//! Whatever survives must be the state behind some prefix of what was attempted, and not of less than was promised. And one
//! snapshot may rot beside: the other one and the log give the same.

use std::path::Path;
use std::sync::Arc;

use assent_assets::{
    AssetId, BARRIERS, Command, Config, Engine, Limits, Logics, Machine, Op, Ordered, Recovery, Request, SessionName,
    Trace, What,
};
use assent_journal::{Journal, Log};
use assent_membership::{Ack, Sequence};
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Witness};
use assent_world::{Access, Disk, Open, write_all_at};

use super::{batch, laid, xid};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fact {
    /// The command that has this place, and when it was ordered.
    Command { sequence: u64, time_ms: u64, bytes: Vec<u8> },
    /// A later life began behind this one.
    Found(u64),
}

struct Assets {
    lives: u32,
    ack: Ack,
}

const LIMITS: Limits = Limits { sessions_max: 2, answer_bytes_max: 4_000, prepared_max: 3, finished_max: 3 };

impl Assets {
    fn open(&self, disk: &SimDisk, salt: u64, clock: &SimClock) -> Result<(Engine, Recovery), String> {
        let the_disk = Arc::new(disk.clone());
        let config = assent_journal::Config {
            log_size: 5 * 4096,
            max_buffer_log_size: 2 * 4096,
            max_elapsed_sync_time: if self.ack == Ack::Durable { 0 } else { 10 },
            ..Default::default()
        };
        let (the_clock, dice) = (Arc::new(clock.clone()), Arc::new(SimDice::new(salt)));
        let opened = Journal::open(the_disk.clone(), the_clock.clone(), dice, Path::new("log"), config);
        let (log, _) = opened.map_err(|error| error.to_string())?;
        let config = Config { ack: self.ack, limits: LIMITS, ..Config::default() };
        Engine::open(log as Arc<dyn Log>, the_disk, the_clock, Path::new("assets"), config, Logics::default())
            .map_err(|error| error.to_string())
    }
}

/// All commands that may stand in the log, in order: a later life goes on behind what it found.
fn history(attempted: &[Fact]) -> Vec<(u64, Vec<u8>)> {
    let mut history = Vec::new();
    for fact in attempted {
        match fact {
            Fact::Command { sequence, time_ms, bytes } => {
                history.truncate(usize::try_from(sequence - 1).unwrap());
                history.push((*time_ms, bytes.clone()));
            }
            Fact::Found(sequence) => history.truncate(usize::try_from(*sequence).unwrap()),
        }
    }
    history
}

/// The state behind a prefix, by the machine alone.
fn replayed(history: &[(u64, Vec<u8>)], sequence: Sequence) -> Result<Machine, String> {
    let mut machine = Machine::new(LIMITS, Logics::default());
    for (number, (time_ms, bytes)) in (1..=sequence.0).zip(history) {
        let applied = machine.apply(Sequence(number), *time_ms, bytes, &mut Vec::new());
        applied.map_err(|error| error.to_string())?;
    }
    Ok(machine)
}

struct Run<'a> {
    engine: Engine,
    clock: SimClock,
    rng: Rng,
    witness: &'a Witness<Fact>,
    waiting: Vec<(Ordered, Fact)>,
    sessions: Vec<(SessionName, u64)>,
}

impl Run<'_> {
    fn ops(&mut self) -> Vec<Op> {
        // Now and then a long one, so that segments fill and are given back.
        let count = if self.rng.below(3) == 0 { self.rng.range(100..200) } else { self.rng.range(1..4) };
        let op = |rng: &mut Rng| {
            let id = AssetId(rng.below(30));
            match rng.below(8) {
                0 => Op::Remove { id },
                1..=3 => Op::Create { id, value: 5 },
                4 => Op::Set { id, value: 9 },
                _ => Op::Add { id, by: 2 },
            }
        };
        let mut ops: Vec<Op> = (0..count).map(|_| op(&mut self.rng)).collect();
        if count > 5 {
            // One that is always done: everything that is there is set.
            let there = (0..30).map(AssetId).filter(|id| self.engine.peek(*id).is_some()).collect::<Vec<_>>();
            ops = (0..count).zip(there.iter().cycle()).map(|(by, id)| Op::Add { id: *id, by: by as i64 }).collect();
            ops.push(Op::Get { id: there.first().copied().unwrap_or_default() });
        }
        ops
    }

    fn command(&mut self) -> Vec<u8> {
        let ops = self.ops();
        match self.rng.below(10) {
            0 => laid(|out| Command::lay_open(out, SessionName(self.rng.below(1 << 40)))),
            1 | 2 => {
                let at = self.rng.index(self.sessions.len());
                let Some((session, number)) = self.sessions.get(at).copied() else { return batch(None, &ops) };
                batch(Some(Request { session, number: number + 1, window: 2 }), &ops)
            }
            3 => laid(|out| Command::lay_prepare(out, &xid(self.rng.below(8)), &ops[..1])),
            4 => laid(|out| Command::lay_outcome(out, &xid(self.rng.below(8)), self.rng.below(3) > 0)),
            _ => batch(None, &ops),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let bytes = self.command();
        let sequence = self.engine.stats().sequence.0 + 1;
        let fact = Fact::Command { sequence, time_ms: sequence * 10, bytes: bytes.clone() };
        self.clock.set_wall_ms(sequence * 10);
        self.witness.attempt(fact.clone());
        let mut answer = Vec::new();
        let ordered =
            self.engine.order(&bytes, &mut answer, &mut Trace::default()).map_err(|error| error.to_string())?;
        if self.engine.stats().sequence.0 == sequence {
            self.waiting.push((ordered, fact));
            let command = Command::read(&bytes).map_err(|error| error.to_string())?;
            if let What::Open { session } = command.what {
                self.sessions.push((session, 0));
            }
            if let Some(request) = command.request {
                self.sessions.iter_mut().filter(|one| one.0 == request.session).for_each(|one| one.1 += 1);
            }
        }
        Ok(())
    }

    fn confirm(&mut self) -> Result<(), String> {
        let Some(all) = self.waiting.iter().map(|(ordered, _)| *ordered).reduce(Ordered::and) else { return Ok(()) };
        self.engine.confirm(all).map_err(|error| error.to_string())?;
        // What a lazy log acknowledges a power cut may take; votes and outcomes it may not, nor what is before them.
        let promised = self.waiting.iter().rposition(|(_, fact)| must_stay(fact));
        let waiting = std::mem::take(&mut self.waiting);
        for (at, (_, fact)) in waiting.into_iter().enumerate() {
            if self.engine_is_durable() || promised.is_some_and(|promised| at <= promised) {
                self.witness.acknowledge(fact);
            }
        }
        Ok(())
    }

    fn engine_is_durable(&self) -> bool {
        self.engine.stats().unsynced_bytes == 0
    }
}

fn must_stay(fact: &Fact) -> bool {
    let Fact::Command { bytes, .. } = fact else { return false };
    let what = Command::read(bytes).map(|command| command.what);
    use assent_assets::What;
    matches!(what, Ok(What::Prepare { .. } | What::Commit { .. } | What::Rollback { .. }))
}

impl Subject for Assets {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let clock = SimClock::new();
        let (engine, _) = self.open(disk, seed, &clock)?;
        let found = Fact::Found(engine.stats().sequence.0);
        witness.attempt(found.clone());
        witness.acknowledge(found);
        let mut run = Run { engine, clock, rng: Rng::new(seed), witness, waiting: Vec::new(), sessions: Vec::new() };
        for _ in 0..run.rng.range(10..30) {
            if run.rng.below(5) == 0 {
                run.engine.snapshot().map_err(|error| error.to_string())?;
            }
            run.step()?;
            if run.rng.below(3) > 0 {
                run.confirm()?;
            }
        }
        run.confirm()
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let mut promised = 0;
        for fact in acknowledged {
            match fact {
                Fact::Command { sequence, .. } => promised = promised.max(*sequence),
                Fact::Found(sequence) => promised = *sequence,
            }
        }
        let history = history(attempted);
        let (engine, recovery) = self.open(disk, disk.hash(), &SimClock::new())?;
        let stats = engine.stats();
        let length = u64::try_from(history.len()).unwrap();
        if !(promised..=length).contains(&stats.sequence.0) {
            return Err(format!("{promised} commands were promised, {length} attempted; there are {}", stats.sequence));
        }
        if replayed(&history, stats.sequence)?.hash() != stats.hash {
            return Err(format!("the state behind command {} is another one", stats.sequence));
        }
        if let Some((file, what)) = recovery.damaged.first() {
            return Err(format!("{}: {what}", file.display()));
        }
        drop(engine);
        if recovery.snapshot.0 > 0 && disk.hash().is_multiple_of(8) { self.rot(disk, stats.hash) } else { Ok(()) }
    }

    fn lives(&self) -> u32 {
        self.lives
    }
}

impl Assets {
    /// One snapshot rots: the same state is had without it.
    fn rot(&self, disk: &SimDisk, hash: u64) -> Result<(), String> {
        for name in disk.list(Path::new("assets")).map_err(|error| error.to_string())? {
            let copy = disk.copy();
            copy.kill();
            let path = Path::new("assets").join(&name);
            let file = copy.open(&path, Open { access: Access::Write, direct: false }).unwrap();
            write_all_at(&*file, 50, &[0xa5; 8]).unwrap();
            let opened = self.open(&copy, disk.hash() ^ 1, &SimClock::new());
            let found = opened.map_err(|error| format!("with {name} damaged: {error}"))?.0.stats().hash;
            if found != hash {
                return Err(format!("with {name} damaged it is another state"));
            }
        }
        Ok(())
    }
}

fn explore(assets: &Assets) {
    let gate = Explore::new();
    let report = gate.run(assets).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{:?}: {report}", assets.ack);
    assert!(report.states >= gate.states_max || report.took >= gate.time_max, "it ended early: {report}");
}

#[test]
fn gate_a_power_cut_takes_nothing_that_was_promised() {
    explore(&Assets { lives: 2, ack: Ack::Durable });
}

#[test]
fn gate_a_lazy_log_may_lose_its_window_and_never_a_vote_or_a_snapshot() {
    explore(&Assets { lives: 2, ack: Ack::Written });
}

#[test]
fn gate_each_barrier_of_a_snapshot_ignored_goes_red() {
    for barrier in BARRIERS {
        let assets = Assets { lives: 3, ack: Ack::Durable };
        let failure = Explore::new().ignoring(&assets, *barrier).unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {} states: {}", barrier.label(), failure.report.states, failure.message);
    }
}
