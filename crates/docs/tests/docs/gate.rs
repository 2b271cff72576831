//! The power is cut everywhere: what was acknowledged is there with every revision before it, the rest is wholly there or wholly
//! absent, no reader has seen what is gone afterwards, and a branch that voted waits for its outcome.
//!
//! `story`: what is done to a document, and what it may be then · `run`: somebody who does all of it at random.

mod run;
mod story;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_docs::{Config, Database};
use assent_journal::Journal;
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Witness};

use run::{Known, Run};
use story::{Fact, Found, Op, State, found, name, story, text};

struct Store {
    lives: u32,
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
