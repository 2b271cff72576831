//! What every arbiter must keep. Each test of a kind of arbiter calls all of these.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use assent_arbiter::{Arbiter, ArbiterError};
use assent_ids::Epoch;
use assent_kind::Kind;
use assent_membership::{Configuration, InSync, Life, Member};

/// Generous: a loaded machine is no fault.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn configuration(version: u64, primary: u8) -> Configuration {
    let life = Life { disk: u64::MAX - u64::from(primary), memory: version };
    let in_sync = InSync::only(Member(primary), life).with(Member(9), Life { disk: 7, memory: 0 });
    let epoch = Epoch(u32::try_from(version).unwrap());
    Configuration { version, epoch, primary: Some(Member(primary)), in_sync, forced: version.is_multiple_of(2) }
}

/// Makes an arbiter for a group; each call another connection.
pub(crate) type Make<'a> = &'a (dyn Fn(&str) -> Box<dyn Arbiter> + Sync);

/// All of it, over groups whose names begin so.
pub(crate) fn all(make: Make<'_>, prefix: &str) {
    let name = |test: &str| format!("{prefix}{test}");
    holds_what_it_was_told(make, &name("holds"));
    refuses_who_knows_less(make, &name("refuses"));
    refuses_another_history(make, &name("history"));
    keeps_groups_apart(make, &name("apart-1"), &name("apart-2"));
    says_yes_once(make, &name("race"));
    tells_who_watches(make, &name("watch"));
    ends_a_watch(make, &name("end"));
}

fn holds_what_it_was_told(make: Make<'_>, group: &str) {
    let arbiter = make(group);
    assert_eq!(arbiter.read().unwrap(), Configuration::default(), "nothing at first");
    for version in [1, 2, 7] {
        let before = arbiter.read().unwrap().version;
        let to = configuration(version, 3);
        assert_eq!(arbiter.change(before, &to).unwrap(), to);
        assert_eq!(arbiter.read().unwrap(), to);
        assert_eq!(make(group).read().unwrap(), to, "whoever asks");
    }
}

fn refuses_who_knows_less(make: Make<'_>, group: &str) {
    let arbiter = make(group);
    let first = configuration(1, 0);
    assert_eq!(arbiter.change(5, &configuration(6, 1)).unwrap(), Configuration::default(), "nothing is there yet");
    arbiter.change(0, &first).unwrap();
    assert_eq!(arbiter.change(0, &configuration(1, 1)).unwrap(), first, "somebody was first");
    assert_eq!(arbiter.change(0, &first).unwrap(), first, "the same again: it is held");
    let second = configuration(2, 1);
    arbiter.change(1, &second).unwrap();
    assert_eq!(arbiter.change(1, &configuration(2, 0)).unwrap(), second);
    assert_eq!(arbiter.read().unwrap(), second);
    let error = arbiter.change(2, &configuration(2, 0)).unwrap_err();
    assert_eq!((error.clone(), error.kind()), (ArbiterError::Version { expect: 2, to: 2 }, Kind::Invalid));
    assert_eq!(arbiter.change(2, &configuration(1, 0)).unwrap_err().kind(), Kind::Invalid, "never back");
}

/// Who knows the same version of before it was set back asks for what cannot follow this one.
fn refuses_another_history(make: Make<'_>, group: &str) {
    let arbiter = make(group);
    let held = configuration(3, 1);
    arbiter.change(0, &held).unwrap();
    let lower = Configuration { version: 4, ..configuration(2, 0) };
    let same = Configuration { version: 4, ..configuration(3, 0) };
    for other in [lower, same] {
        assert_eq!(arbiter.change(3, &other).unwrap(), held, "{other:?}");
    }
    let next = Configuration { version: 4, ..held };
    assert_eq!(arbiter.change(3, &next).unwrap(), next);
}

fn keeps_groups_apart(make: Make<'_>, one: &str, other: &str) {
    make(one).change(0, &configuration(1, 1)).unwrap();
    assert_eq!(make(other).read().unwrap(), Configuration::default());
    make(other).change(0, &configuration(1, 2)).unwrap();
    assert_eq!(make(one).read().unwrap(), configuration(1, 1));
}

/// Four members want each version for themselves: one gets it, and all hear of the same one.
fn says_yes_once(make: Make<'_>, group: &str) {
    const VERSIONS: u64 = 25;
    let heard: Mutex<BTreeMap<u64, Configuration>> = Mutex::default();
    let wins = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for member in 0..4 {
            let (heard, wins) = (&heard, &wins);
            scope.spawn(move || {
                let arbiter = make(group);
                let mut seen = 0;
                while seen < VERSIONS {
                    let to = configuration(seen + 1, member);
                    let held = arbiter.change(seen, &to).unwrap();
                    assert!(held.version > seen, "it was done, or somebody else was first");
                    if held == to {
                        *wins.lock().unwrap() += 1;
                    }
                    let mut heard = heard.lock().unwrap();
                    let told = heard.entry(held.version).or_insert_with(|| held.clone());
                    assert_eq!(*told, held, "one version is one configuration");
                    seen = held.version;
                }
            });
        }
    });
    assert_eq!(make(group).read().unwrap().version, VERSIONS);
    assert_eq!(wins.into_inner().unwrap(), VERSIONS, "each version was won once");
}

fn tells_who_watches(make: Make<'_>, group: &str) {
    let watcher = make(group);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let first = watcher.watch(0, LIMIT).unwrap();
            (first.clone(), watcher.watch(first.version, LIMIT).unwrap())
        });
        let arbiter = make(group);
        arbiter.change(0, &configuration(1, 1)).unwrap();
        // The second watch begins anywhere between now and the second change, or behind it.
        arbiter.change(1, &configuration(2, 2)).unwrap();
        let (first, second) = watch.join().unwrap();
        assert!(first.version == 1 || first.version == 2, "{first:?}");
        assert!(second.version == 2, "{second:?}");
    });
}

fn ends_a_watch(make: Make<'_>, group: &str) {
    let arbiter = make(group);
    assert_eq!(arbiter.watch(0, Duration::from_millis(20)).unwrap(), Configuration::default());
    arbiter.change(0, &configuration(1, 1)).unwrap();
    assert_eq!(arbiter.watch(1, Duration::from_millis(20)).unwrap().version, 1);
    assert_eq!(arbiter.watch(0, LIMIT).unwrap().version, 1, "at once, if there is news already");
}
