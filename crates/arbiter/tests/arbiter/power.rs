//! The witness under power cuts: whoever was told of a configuration finds it again, and each sync is needed.

use std::path::Path;
use std::sync::Arc;

use assent_arbiter::{BARRIERS, GroupName, Ledger};
use assent_kind::Kind;
use assent_sim::{Call, Explore, Fault, Operation, Rng, SimDisk, Subject, Witness};

use crate::suite::configuration;

/// Changes of two groups, and a reader whom each answer was told.
#[derive(Debug)]
struct Changes;

/// A group, the version that it was changed to, and by whom.
type Fact = (u8, u64, u8);

fn group(number: u8) -> GroupName {
    format!("g{number}").parse().expect("a name")
}

fn open(disk: &SimDisk) -> Result<Ledger, String> {
    Ledger::open(Arc::new(disk.clone()), Path::new("w")).map_err(|error| format!("does not open: {error}"))
}

impl Subject for Changes {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let mut ledger = open(disk)?;
        for number in 0..2 {
            // Told to whoever asks after a power cut, so it stays from then on.
            let held = ledger.read(&group(number)).map_err(|error| error.to_string())?;
            if let Some(primary) = held.primary {
                witness.acknowledge((number, held.version, primary.0));
            }
        }
        for _ in 0..rng.range(2..6) {
            let number = u8::try_from(rng.range(0..2)).unwrap_or(0);
            let by = u8::try_from(rng.range(0..3)).unwrap_or(0);
            let held = ledger.read(&group(number)).map_err(|error| error.to_string())?.version;
            witness.attempt((number, held + 1, by));
            ledger.change(&group(number), held, &configuration(held + 1, by)).map_err(|error| error.to_string())?;
            witness.acknowledge((number, held + 1, by));
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let ledger = open(disk)?;
        for number in 0..2 {
            let held = ledger.read(&group(number)).map_err(|error| error.to_string())?;
            let last = acknowledged.iter().filter(|(of, ..)| *of == number).map(|(_, version, _)| *version).max();
            if held.version < last.unwrap_or(0) {
                return Err(format!("group {number} is at {}, and was told {last:?}", held.version));
            }
            let fact = held.primary.map(|primary| (number, held.version, primary.0));
            if fact.is_some_and(|fact| !attempted.contains(&fact) && !acknowledged.contains(&fact)) {
                return Err(format!("{fact:?} was never asked for"));
            }
            let twice = |(of, version, by): &&Fact| {
                *of == number && *version == held.version && Some((*of, *version, *by)) != fact
            };
            if let Some(other) = acknowledged.iter().find(twice) {
                return Err(format!("{fact:?} is held, and {other:?} was told"));
            }
        }
        Ok(())
    }

    fn lives(&self) -> u32 {
        2
    }
}

#[test]
fn gate_a_witness_forgets_nothing_that_it_told() {
    let report = Explore { states_max: 10_000, ..Explore::new() }.run(&Changes).unwrap_or_else(|red| panic!("{red}"));
    println!("{report}");
    assert!(report.states > 200, "{report}");
}

#[test]
fn a_disk_that_fails_is_said_so_and_what_was_told_stays() {
    let cases = [
        (Operation::Create, Fault::Full, Kind::Full, true),
        (Operation::Write, Fault::Full, Kind::Full, true),
        (Operation::Write, Fault::Io, Kind::Internal, true),
        (Operation::SyncAll, Fault::Io, Kind::Internal, true),
        (Operation::Rename, Fault::Io, Kind::Internal, false),
        (Operation::SyncDir, Fault::Io, Kind::Internal, false),
    ];
    for (operation, fault, kind, goes_on) in cases {
        let disk = SimDisk::new();
        let mut ledger = open(&disk).unwrap();
        ledger.change(&group(0), 0, &configuration(1, 1)).unwrap();
        disk.inject(Call::of(operation, 1), fault);
        let error = ledger.change(&group(0), 1, &configuration(2, 1)).unwrap_err();
        assert_eq!(error.kind(), kind, "{operation}: {error}");
        if goes_on {
            assert_eq!(ledger.read(&group(0)).unwrap(), configuration(1, 1), "{operation}");
            assert_eq!(ledger.change(&group(0), 1, &configuration(2, 2)).unwrap(), configuration(2, 2));
        } else {
            assert_eq!(ledger.read(&group(0)).unwrap_err().kind(), Kind::Closed, "{operation}");
            assert_eq!(ledger.change(&group(0), 1, &configuration(2, 2)).unwrap_err().kind(), Kind::Closed);
            drop(ledger);
            assert!(open(&disk).unwrap().read(&group(0)).unwrap().version >= 1);
        }
    }
}

#[test]
fn gate_each_sync_of_a_witness_is_missed() {
    for barrier in BARRIERS {
        let red = Explore::new().ignoring(&Changes, *barrier).unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {}", barrier.label(), red.message);
    }
}
