//! The right to resolve a node's branches: how long one connection keeps it from all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_ids::NodeId;
use assent_kind::Kind;
use assent_link::Link;
use assent_wire::{Reply, Request, Role};
use assent_world::{Clock, Moment, RealClock};

use crate::house::{NODE, Rules, branch, coordinator, eventually, expect, get, store};

/// Finer than the server's looks: it never takes a step for a pause of its own.
const STEP: Duration = Duration::from_millis(250);

/// A clock that only the test moves.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    /// Goes on a little, and lets the server see it.
    fn step(&self, alive: &Link) {
        self.0.fetch_add(u64::try_from(STEP.as_micros()).unwrap(), Ordering::Relaxed);
        alive.request(&Request::Ping).unwrap();
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> u64 {
        RealClock.wall_ms()
    }

    fn sleep(&self, pause: Duration) {
        RealClock.sleep(pause);
    }

    fn boot_id(&self) -> u128 {
        RealClock.boot_id()
    }
}

fn is_refused(link: &Link, node: NodeId) -> bool {
    match branch(&link.request(&Request::Claim(node)).unwrap()) {
        Reply::Refused(Kind::Conflict, _) => true,
        Reply::Done => false,
        other => panic!("to a claim: {other:?}"),
    }
}

#[test]
fn a_coordinator_that_vanished_without_a_word_does_not_keep_its_successor_out() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Hand::default());
    let house = store(folder.path(), &Rules { clock: Arc::clone(&clock) as _, ..Rules::default() });
    let [vanished, alive, worker, successor] = [(); 4].map(|()| house.store_link());
    let other = NodeId(8);
    expect(&vanished, &Request::Claim(NODE), &Reply::Done);
    expect(&alive, &Request::Claim(other), &Reply::Done);
    // Its socket stays open, as that of a machine without power does.
    for _ in 0..119 {
        clock.step(&alive);
    }
    assert!(is_refused(&successor, NODE), "after 29.75 s it may still be at work");
    eventually("the claim is free", || {
        clock.step(&alive);
        !is_refused(&successor, NODE)
    });
    assert!(clock.now() <= Moment(31_000_000), "{:?}", clock.now());
    assert!(vanished.request(&Request::Recover(NODE)).is_err(), "whoever had it can resolve nothing any more");
    assert!(is_refused(&worker, other), "one that is heard of keeps its claim");
    assert_eq!(get(&worker, b"k"), None, "and without a claim a connection may be silent");
}

#[test]
fn a_coordinator_claims_again_in_a_store_that_was_restarted_between_two_looks() {
    let folder = tempfile::tempdir().unwrap();
    let [a, c] = ["a", "c"].map(|name| folder.path().join(name));
    for path in [&a, &c] {
        std::fs::create_dir(path).unwrap();
    }
    let rules = Rules::default();
    let house = store(&a, &rules);
    let coordinator = coordinator(&c, &rules, &[("a", &house)]);
    let node = coordinator.coordinator.as_ref().unwrap().node();
    let admin = coordinator.link(Role::Admin);
    admin.request(&Request::TxRecover).unwrap().answer().unwrap();
    assert!(is_refused(&house.store_link(), node));

    let at = Some(house.address().clone());
    drop(house);
    let house = store(&a, &Rules { at, ..rules });
    admin.request(&Request::TxRecover).unwrap().answer().unwrap();
    assert_eq!(house.count("assent_requests_total{kind=\"claim\"}"), 1);
    assert!(is_refused(&house.store_link(), node), "it looked without the right to act");
}
