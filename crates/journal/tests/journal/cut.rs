//! The end moved back: what stood behind is gone for good, what stood before stays at its place, wherever the power goes.

use std::sync::Arc;

use assent_ids::Lsn;
use assent_journal::{BARRIERS_OF_CUT, Config, Journal, Log, State, Ticket, stepping};
use assent_kind::Kind;
use assent_sim::{Call, Explore, Fault, Rng, SimDice, SimDisk, Subject, Witness};

use super::stage::{all, in_two_files, open, payloads, put, segments, small};

fn cut(journal: &Journal, seed: u64, to: Lsn) -> Arc<Journal> {
    let (shorter, recovery) = journal.cut_back(Arc::new(SimDice::new(seed)), to).unwrap();
    assert_eq!((recovery.end, shorter.end(), shorter.durable()), (to, to, to));
    shorter
}

/// Three entries in one batch, so that a cut may fall into it.
fn three(journal: &Arc<Journal>) -> Vec<Ticket> {
    let tickets = [&b"one"[..], b"two", b"three"].map(|payload| journal.append(1, &[payload]).unwrap());
    journal.sync().unwrap();
    tickets.to_vec()
}

#[test]
fn a_cut_falls_behind_any_entry_also_in_the_middle_of_a_batch() {
    for config in [small(), Config { direct: false, ..small() }, Config { max_elapsed_sync_time: 10, ..small() }] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &config).unwrap();
        let tickets = three(&journal);
        let shorter = cut(&journal, 2, tickets[0].end);
        assert_eq!(journal.state(), State::Closed, "this opening is over");
        assert_eq!(journal.append(1, &[b"late"]).unwrap_err().kind(), Kind::Closed);
        assert!(shorter.epoch() > journal.epoch());
        let again = put(&*shorter, b"other");
        assert!(again.lsn <= tickets[2].end, "places behind a cut are used again");
        shorter.sync().unwrap();
        disk.cut_power(assent_sim::Survival::Everything);
        let (reopened, _) = open(&disk, 3, &config).unwrap();
        assert_eq!(payloads(&*reopened), [&b"one"[..], b"other"]);
        assert_eq!(all(&*reopened)[0].lsn, tickets[0].lsn, "what stays has its address");
        let nothing = cut(&reopened, 4, Lsn(0));
        assert_eq!((payloads(&*nothing).len(), nothing.end()), (0, Lsn(0)));
        put(&*nothing, b"first");
        assert_eq!(payloads(&*nothing), [b"first"]);
    }
}

#[test]
fn segments_behind_the_cut_go_and_the_log_grows_again_over_their_places() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let tickets: Vec<Ticket> = (0..60).map(|number| put(&*journal, &[number; 1000])).collect();
    assert!(segments(&disk).len() > 3);
    let shorter = cut(&journal, 2, tickets[9].end);
    assert_eq!(segments(&disk).len(), 1);
    let kept: Vec<Vec<u8>> = (0..10).map(|number| vec![number; 1000]).collect();
    assert_eq!(payloads(&*shorter), kept);
    for number in 100..160 {
        put(&*shorter, &[number; 1000]);
    }
    drop(shorter);
    disk.kill();
    let (reopened, _) = open(&disk, 3, &small()).unwrap();
    let grown: Vec<Vec<u8>> = (0..10).chain(100..160).map(|number| vec![number; 1000]).collect();
    assert_eq!(payloads(&*reopened), grown);
}

#[test]
fn a_cut_behind_a_long_entry_keeps_it_and_one_before_its_end_drops_it() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let before = put(&*journal, b"before");
    let long = put(&*journal, &[7; 30_000]);
    put(&*journal, b"behind");
    let shorter = cut(&journal, 2, long.end);
    assert_eq!(payloads(&*shorter), [b"before".to_vec(), vec![7; 30_000]]);
    assert_eq!(shorter.read_at(long.lsn).unwrap().payload.len(), 30_000);
    let shorter = cut(&shorter, 3, before.end);
    put(&*shorter, b"other");
    assert_eq!(payloads(&*shorter), [&b"before"[..], b"other"]);
}

#[test]
fn a_place_that_no_entry_ends_at_is_refused_and_nothing_happens() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let tickets: Vec<Ticket> = (0..60).map(|number| put(&*journal, &[number; 1000])).collect();
    journal.trim(tickets[40].lsn).unwrap();
    let end = journal.end();
    let inside = Lsn(tickets[50].lsn.0 + 8);
    for wrong in [inside, tickets[50].lsn, Lsn(end.0 + 8), tickets[2].end, Lsn(0)] {
        let refused = journal.cut_back(Arc::new(SimDice::new(2)), wrong).unwrap_err();
        assert_eq!(refused.kind(), Kind::NotFound, "{wrong}");
    }
    assert_eq!(journal.state(), State::Open);
    put(&*journal, b"goes on");
    let shorter = cut(&journal, 3, tickets[59].end);
    assert_eq!(all(&*shorter).last().unwrap().lsn, tickets[59].lsn);
}

/// What was written: entries 1 and 2 stood in the cache only, and a process died; the next open, of an earlier release, copied them to a file of
/// their own and wrote 3. A cut took 2 and 3, and 4 was written. The next cut, to 0, removed the copy: in the first file 1 and 2 came to light again.
#[test]
fn what_an_earlier_cut_took_does_not_come_to_light_again() {
    let lazy = Config { max_elapsed_sync_time: 10, ..small() };
    let calls = {
        let (disk, shorter, to) = doubly_cut(&lazy);
        let before = disk.calls();
        cut(&shorter, 5, to);
        disk.calls() - before
    };
    assert!(calls > 10, "{calls}");
    for nth in 1..=calls {
        let (disk, shorter, to) = doubly_cut(&lazy);
        disk.inject(Call::any(nth), Fault::Io);
        _ = shorter.cut_back(Arc::new(SimDice::new(5)), to);
        drop(shorter);
        disk.kill();
        let (reopened, _) = open(&disk, 6, &lazy).unwrap();
        let found = payloads(&*reopened);
        let whole = [b"0", b"1", b"4"].map(|payload| payload.to_vec());
        assert!(!found.is_empty() && whole.starts_with(&found), "call {nth}: {found:?}");
    }
}

fn doubly_cut(config: &Config) -> (SimDisk, Arc<Journal>, Lsn) {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, config).unwrap();
    let first = put(&*journal, b"0");
    journal.sync().unwrap();
    put(&*journal, b"1");
    put(&*journal, b"2");
    drop(journal);
    disk.kill();
    in_two_files(&disk, first.end).unwrap();
    let (journal, recovery) = open(&disk, 2, config).unwrap();
    assert!(recovery.rescued_bytes > 0 && segments(&disk).len() == 2, "{recovery:?}");
    put(&*journal, b"3");
    let one = all(&*journal)[1].end;
    let journal = cut(&journal, 3, one);
    put(&*journal, b"4");
    journal.sync().unwrap();
    (disk, journal, first.end)
}

#[test]
fn a_disk_that_refuses_leaves_a_beginning_of_the_log() {
    let workload = |faulty: Option<u64>| {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &small()).unwrap();
        let tickets: Vec<Ticket> = (0..40).map(|number| put(&*journal, &[number; 1000])).collect();
        let before = disk.calls();
        if let Some(nth) = faulty {
            disk.inject(Call::any(nth), Fault::Io);
        }
        let done = journal.cut_back(Arc::new(SimDice::new(2)), tickets[4].end).is_ok();
        (disk.clone(), disk.calls() - before, done)
    };
    let (_, calls, done) = workload(None);
    assert!(done);
    let mut refused = 0;
    for nth in 1..=calls {
        let (disk, _, done) = workload(Some(nth));
        refused += u32::from(!done);
        disk.kill();
        let (reopened, _) = open(&disk, 3, &small()).unwrap();
        let found = payloads(&*reopened);
        assert!((5..=40).contains(&found.len()) && (!done || found.len() == 5), "call {nth}: {}", found.len());
        assert!(found.iter().zip(0..).all(|(payload, number)| *payload == [number; 1000]), "call {nth}");
    }
    assert!(refused > 5, "{refused}");
}

/// What the gate is told. `at` counts everything that was told, so that attempts and promises have one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fact {
    Entry {
        at: u64,
        bytes: u64,
    },
    /// The log ends behind that many entries.
    Cut {
        at: u64,
        left: u64,
    },
    /// A life found that many.
    Found {
        at: u64,
        left: u64,
    },
}

impl Fact {
    const fn at(self) -> u64 {
        match self {
            Self::Entry { at, .. } | Self::Cut { at, .. } | Self::Found { at, .. } => at,
        }
    }
}

struct Gate {
    lazy: bool,
}

impl Gate {
    fn config(&self) -> Config {
        Config { max_elapsed_sync_time: if self.lazy { 10 } else { 0 }, ..small() }
    }
}

fn payload(at: u64, bytes: u64) -> Vec<u8> {
    let mut payload = at.to_le_bytes().to_vec();
    payload.resize(usize::try_from(bytes).unwrap(), at.to_le_bytes()[0]);
    payload
}

fn numbers(journal: &Journal) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    for entry in journal.read(journal.start()).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let at = u64::from_le_bytes(*entry.payload.first_chunk().ok_or("a short entry")?);
        if entry.payload != payload(at, entry.payload.len() as u64) {
            return Err(format!("entry {at} is not what was appended"));
        }
        found.push(at);
    }
    Ok(found)
}

impl Subject for Gate {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let told = |error: assent_journal::JournalError| error.to_string();
        let (mut journal, _) = open(disk, rng.roll(), &self.config()).map_err(told)?;
        let mut next = witness.attempted().len() as u64;
        let mut tell = |fact: fn(u64, u64) -> Fact, of: u64| {
            let fact = fact(next, of);
            next += 1;
            witness.attempt(fact);
            fact
        };
        // What an open shows is durable.
        let found = numbers(&journal)?.len() as u64;
        witness.acknowledge(tell(|at, left| Fact::Found { at, left }, found));
        for _ in 0..rng.range(2..9) {
            if rng.below(3) == 0 {
                let ends: Vec<Lsn> =
                    [journal.start()].into_iter().chain(all(&*journal).iter().map(|entry| entry.end)).collect();
                // The last ones more often: there is something behind them, and much before.
                let index = rng.index(ends.len()).max(rng.index(ends.len()));
                let fact = tell(|at, left| Fact::Cut { at, left }, index as u64);
                let cut = journal.cut_back(Arc::new(SimDice::new(rng.roll())), ends[index]);
                (journal, _) = cut.map_err(told)?;
                witness.acknowledge(fact);
                continue;
            }
            let mut facts = Vec::new();
            for _ in 0..rng.range(1..6) {
                let bytes = if rng.below(8) == 0 { rng.range(9_000..24_000) } else { rng.range(8..2_000) };
                let fact = tell(|at, bytes| Fact::Entry { at, bytes }, bytes);
                journal.append(1, &[&payload(fact.at(), bytes)]).map_err(told)?;
                facts.push(fact);
            }
            if rng.below(4) == 0 {
                // Written in two batches, perhaps durable, promised to nobody.
                if let Some(write) = stepping::close(&journal) {
                    write.land();
                }
                continue;
            }
            journal.sync().map_err(told)?;
            facts.into_iter().for_each(|fact| witness.acknowledge(fact));
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let (journal, _) = open(disk, 99, &self.config()).map_err(|error| error.to_string())?;
        let found = numbers(&journal)?;
        // What may be there, in order, and how much of it must be.
        let (mut may, mut must) = (Vec::new(), 0);
        for fact in attempted {
            let promised = acknowledged.contains(fact);
            match *fact {
                Fact::Entry { at, .. } => {
                    may.push(at);
                    if promised {
                        must = may.len();
                    }
                }
                Fact::Cut { left, .. } | Fact::Found { left, .. } => {
                    let left = usize::try_from(left).unwrap();
                    if promised {
                        may.truncate(left);
                        must = may.len();
                    } else {
                        must = must.min(left);
                    }
                }
            }
        }
        if !may.starts_with(&found) {
            return Err(format!("found {found:?}; there may be {may:?}"));
        }
        if found.len() < must {
            return Err(format!("found {found:?}; at least {must} of {may:?} were promised"));
        }
        Ok(())
    }

    fn lives(&self) -> u32 {
        3
    }
}

#[test]
fn gate_power_loss_of_a_log_that_is_cut() {
    for lazy in [false, true] {
        let explore = Explore { states_max: 12_000, ..Explore::new() };
        let report = explore.run(&Gate { lazy }).unwrap_or_else(|failure| panic!("{failure}"));
        println!("lazy {lazy}: {report}");
        assert!(report.states > 1_000 && report.nested > 50, "{report}");
    }
}

#[test]
fn gate_each_barrier_of_a_cut_ignored_goes_red() {
    for barrier in BARRIERS_OF_CUT {
        let explore = Explore { states_max: 60_000, ..Explore::new() };
        let failure = explore.ignoring(&Gate { lazy: false }, *barrier).unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {} states: {}", barrier.label(), failure.report.states, failure.message);
    }
}

#[test]
fn a_cut_log_is_locked_until_it_is_let_go() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let tickets = three(&journal);
    let shorter = cut(&journal, 2, tickets[1].end);
    assert_eq!(open(&disk, 3, &small()).unwrap_err().kind(), Kind::Busy, "there was no moment without an owner");
    drop(journal);
    assert_eq!(open(&disk, 3, &small()).unwrap_err().kind(), Kind::Busy);
    shorter.close().unwrap();
    let (reopened, recovery) = open(&disk, 4, &small()).unwrap();
    assert!(recovery.clean);
    assert_eq!(payloads(&*reopened), [&b"one"[..], b"two"]);
}
