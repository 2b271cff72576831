//! Power cuts everywhere, on a log that is right and on the same log with something missing.

use std::time::Duration;

use assent_sim::{Explore, Operation, Stale, Subject, Witness};
use assent_world::{Durably, write_all_at};

use super::toy::{BARRIERS, Flaw, Toy};
use super::*;

fn explore(states_max: u64) -> Explore {
    Explore { seed: 1, states_max, time_max: Duration::from_secs(300), ..Explore::new() }
}

#[test]
fn a_right_log_is_green_in_all_states_and_in_its_second_life() {
    for lives in [1, 3] {
        let report =
            explore(20_000).run(&Toy { flaw: Flaw::None, lives }).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{report}");
        assert!(report.states >= 20_000 && report.nested > 300, "{report}");
        assert_eq!(
            report.after.values().sum::<u64>() + 1,
            report.states,
            "all but the empty disk come after something"
        );
        assert!(report.after.keys().any(|(operation, label)| *operation == Operation::WriteDurable && label.is_some()));
    }
}

#[test]
fn without_any_one_of_its_barriers_the_log_goes_red() {
    for barrier in BARRIERS {
        let failure = explore(50_000).ignoring(&Toy { flaw: Flaw::None, lives: 2 }, barrier);
        let failure = failure.unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {} states, {}", barrier.label(), failure.report.states, failure.message);
    }
    let hurried = Explore { time_max: Duration::ZERO, ..explore(50_000) }
        .ignoring(&Toy { flaw: Flaw::None, lives: 2 }, BARRIERS[0]);
    assert!(hurried.is_ok(), "a busy machine has as many states to look at as any other");
    let never = Barrier::new("toy: never passed");
    let green = explore(1_000).ignoring(&Toy { flaw: Flaw::None, lives: 1 }, never).unwrap_err();
    assert!(!green.passed && green.to_string().contains("never passed"), "{green}");
}

#[test]
fn a_recovery_that_cannot_be_cut_itself_is_found() {
    let failure = explore(50_000).run(&Toy { flaw: Flaw::RecoversInPlace, lives: 1 }).unwrap_err();
    assert!(failure.blows.len() >= 2, "only a second power cut shows it: {failure}");
    assert!(failure.message.contains("lost") || failure.message.contains("no head"), "{failure}");
}

#[test]
fn a_failure_tells_its_seed_and_the_seed_leads_there_again() {
    let toy = Toy { flaw: Flaw::None, lives: 2 };
    let first = explore(50_000).ignoring(&toy, BARRIERS[5]).unwrap();
    let again = Explore { seed: first.seed, ..explore(50_000) }.ignoring(&toy, BARRIERS[5]).unwrap();
    assert_eq!(first.message, again.message);
    let told = |failure: &assent_sim::Failure| format!("{:?} {:?}", failure.blows, failure.acknowledged);
    assert_eq!(told(&first), told(&again));
    let text = first.to_string();
    for part in
        [&format!("ASSENT_GATE_SEED={}", first.seed), "during life", "power cut after", "lost", "acknowledged: ["]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_panic_in_a_check_is_a_red_state() {
    let failure = explore(50_000).ignoring(&Toy { flaw: Flaw::Panics, lives: 1 }, BARRIERS[2]).unwrap();
    assert!(failure.message.contains("a panic") && failure.message.contains("the first value"), "{failure}");
}

/// One durable write of two sectors, and nothing else in flight.
struct TwoSectors;

impl Subject for TwoSectors {
    type Fact = char;

    fn workload(&self, disk: &SimDisk, _: u64, witness: &Witness<char>) -> Result<(), String> {
        let file = durable(disk, "file", &[b'a'; 1024]);
        witness.acknowledge('a');
        witness.attempt('b');
        file.write_durable_at(0, &[b'b'; 1024], Durably::Dsync, SYNC).unwrap();
        witness.acknowledge('b');
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[char], attempted: &[char]) -> Result<(), String> {
        let found = read(disk, "file").map(|bytes| letters(&bytes)).unwrap_or_default();
        let fine = match (acknowledged, attempted) {
            ([], []) => true,
            (['a'], []) => found == "aa",
            (['a'], ['b']) => ["aa", "ab", "ba", "bb"].contains(&found.as_str()),
            (['a', 'b'], ['b']) => found == "bb",
            _ => false,
        };
        if fine { Ok(()) } else { Err(format!("{found:?} with {acknowledged:?} of {attempted:?}")) }
    }
}

#[test]
fn a_durable_write_cut_in_the_middle_is_torn_and_acknowledgements_belong_to_their_moment() {
    let gate = Explore { stale: Stale::ZEROES, ..explore(1_000) };
    let report = gate.run(&TwoSectors).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    // Nothing promised: no file, an empty one, four of two sectors. `a` promised and `b` attempted: `a`, and three torn
    // or whole. `b` promised: one.
    assert_eq!(report.states, 1 + 1 + 4 + 1 + 3 + 1);
    assert_eq!(report.runs, 33, "no run but the first had news");
    let torn = report.after[&(Operation::WriteDurable, Some(SYNC.label()))];
    assert_eq!(torn, 4);
    gate.ignoring(&TwoSectors, SYNC).unwrap();
}

/// A workload that fails by itself.
struct Broken;

impl Subject for Broken {
    type Fact = ();

    fn workload(&self, disk: &SimDisk, _: u64, _: &Witness<()>) -> Result<(), String> {
        write_all_at(&*create(disk, "file"), 0, b"a").map_err(|error| error.to_string())?;
        Err("no more".to_owned())
    }

    fn check(&self, _: &SimDisk, _: &[()], _: &[()]) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_workload_that_fails_is_red_and_the_budget_of_time_is_kept() {
    let failure = explore(10).run(&Broken).unwrap_err();
    assert_eq!(failure.message, "the workload of life 1: no more");
    let report = Explore { time_max: Duration::ZERO, ..explore(10) }.run(&Broken).unwrap();
    assert_eq!((report.states, report.runs), (0, 0));
}
