//! The chain of seals: whole over restarts, checkpoints and trims; broken by every change of what was sealed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::history::{self, Filter, Verified};
use assent_coordinator::{Config, Coordinator, CoordinatorError, Digest};
use assent_journal::{Entry, Journal};
use assent_kind::Kind;
use assent_sim::{Rng, SimClock, SimDice, SimDisk};
use std::ops::ControlFlow;

use crate::memory::MemoryLog;
use crate::stand::{IDENTITY, LOST, Stand, commit, operator, tx};

const SEAL: u16 = 0x0801;

/// Some of everything, sealed several times, over two openings.
fn told() -> Stand {
    let mut stand = Stand::new();
    for life in 1..=2 {
        let session = stand.coordinator.handshake("shop").unwrap();
        for counter in 1..=12 {
            stand.coordinator.decide(&commit(tx(&session, counter))).unwrap();
            if counter % 3 == 0 {
                stand.clock.advance(Duration::from_secs(1));
                stand.coordinator.tick().unwrap();
            }
            stand.coordinator.finished(tx(&session, counter));
        }
        stand.banks[0].prepare(IDENTITY.node, tx(&session, 40), 0);
        stand.round();
        stand.coordinator.lost(session.incarnation);
        stand.coordinator.force(tx(&session, 40), assent_xa::Outcome::Committed, &operator()).unwrap();
        (0..3).for_each(|_| _ = stand.round());
        if life == 1 {
            stand.restart(true);
        }
    }
    stand.clock.advance(Duration::from_secs(1));
    stand.coordinator.tick().unwrap();
    stand
}

fn verify(log: &MemoryLog) -> Result<Verified, CoordinatorError> {
    history::verify(log, None)
}

/// What a change of the entries does to the chain, and where it is seen.
fn broken(change: impl Fn(&mut Vec<Entry>)) -> (Kind, u64) {
    let stand = told();
    change(&mut stand.log.stored().entries);
    let error = verify(&stand.log).expect_err("it was changed");
    let CoordinatorError::Chain { lsn, .. } = &error else { panic!("{error}") };
    (error.kind(), lsn.0)
}

#[test]
fn a_chain_goes_on_over_restarts_and_says_how_far_it_reaches() {
    let stand = told();
    let found = verify(&stand.log).unwrap();
    assert!(found.is_whole && found.seals >= 8, "{found:?}");
    assert_eq!(found.unsealed, 0);
    let (first, head) = (found.first.unwrap(), found.head.unwrap());
    assert_eq!((first.number, first.previous, head.number), (1, Digest::default(), found.seals));
    let text = head.digest.to_string();
    assert_eq!((text.len(), text.parse()), (64, Ok(head.digest)));
    assert!("zz".parse::<Digest>().is_err());
    // An idle coordinator seals nothing; what comes is not proved until it is sealed.
    stand.clock.advance(Duration::from_secs(5));
    stand.coordinator.tick().unwrap();
    assert_eq!(verify(&stand.log).unwrap(), found);
    stand.coordinator.handshake("late").unwrap();
    let open = verify(&stand.log).unwrap();
    assert_eq!((open.head, open.unsealed), (found.head, 1));
    // A log that lost its last seal with the power goes on where it stands.
    let mut stand = stand;
    stand.restart(false);
    assert_eq!(stand.coordinator.handshake("later").map(|_| ()), Ok(()));
    stand.clock.advance(Duration::from_secs(1));
    stand.coordinator.tick().unwrap();
    assert!(verify(&stand.log).is_ok());
}

#[test]
fn every_changed_byte_of_a_sealed_log_is_found() {
    let entries = told().log.stored().entries.clone();
    let mut rng = Rng::new(7);
    for (at, entry) in entries.iter().enumerate() {
        let last = u64::try_from(entry.payload.len() - 1).unwrap();
        for byte in [0, last, rng.range(0..last + 1)] {
            let byte = usize::try_from(byte).unwrap();
            let stand = told();
            // Its checksum, too, was made anew.
            stand.log.stored().entries[at].payload[byte] ^= 1 << rng.below(8);
            let error = verify(&stand.log).expect_err("a byte was changed");
            assert_eq!(error.kind(), Kind::Corrupt, "entry {at} ({:#06x}), byte {byte}", entry.kind);
        }
        if at + 1 < entries.len() {
            // A decision that is taken for the name of a client; a last seal would only be an end cut off.
            let stand = told();
            stand.log.stored().entries[at].kind = if entry.kind == 0x0701 { 0x0102 } else { 0x0701 };
            assert!(verify(&stand.log).is_err(), "entry {at} ({:#06x}) as another kind", entry.kind);
        }
    }
}

#[test]
fn a_record_removed_added_or_moved_is_found_at_the_next_seal() {
    let entries = told().log.stored().entries.clone();
    let next_seal = |at: usize| entries[at..].iter().find(|entry| entry.kind == SEAL).unwrap().lsn.0;
    for at in 0..entries.len() - 1 {
        let seen = if entries[at].kind == SEAL { next_seal(at + 1) } else { next_seal(at) };
        assert_eq!(broken(|all| _ = all.remove(at)), (Kind::Corrupt, seen), "removed {at}");
        if entries[at].kind != SEAL {
            assert_eq!(broken(|all| all.insert(at, all[at].clone())).1, seen, "twice {at}");
        }
        if entries[at].payload != entries[at + 1].payload {
            assert_eq!(broken(|all| all.swap(at, at + 1)).0, Kind::Corrupt, "moved {at}");
        }
    }
}

#[test]
fn a_run_with_its_seal_that_is_taken_from_another_log_is_found() {
    // A whole segment in place of another: each of its seals is sound in itself.
    let other = {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("thief").unwrap();
        stand.coordinator.decide(&commit(tx(&session, 1))).unwrap();
        stand.clock.advance(Duration::from_secs(1));
        stand.coordinator.tick().unwrap();
        stand.restart(true);
        stand.log.stored().entries.clone()
    };
    let (kind, _) = broken(|all| {
        let end = all.iter().position(|entry| entry.kind == SEAL).unwrap() + 1;
        _ = all.splice(0..end, other.clone());
    });
    assert_eq!(kind, Kind::Corrupt);
    // And whole runs that are missing at the beginning of a log that says it begins at its birth.
    let (kind, _) = broken(|all| {
        let end = all.iter().position(|entry| entry.kind == SEAL).unwrap() + 1;
        _ = all.drain(..end);
    });
    assert_eq!(kind, Kind::Corrupt);
}

#[test]
fn a_trimmed_log_is_proved_from_its_checkpoint_on() {
    let config = Config { checkpoint_bytes: 1, ..Config::default() };
    let trimmed = || {
        let stand = Stand::with(config);
        stand.fence();
        let session = stand.coordinator.handshake("shop").unwrap();
        stand.coordinator.decide(&commit(tx(&session, 1))).unwrap();
        stand.coordinator.tick().unwrap();
        stand
    };
    let stand = trimmed();
    let session = stand.coordinator.handshake("late").unwrap();
    stand.coordinator.decide(&commit(tx(&session, 1))).unwrap();
    let found = verify(&stand.log).unwrap();
    assert_eq!((found.seals, found.is_whole, found.unsealed), (0, false, 3), "a checkpoint and what follows it");
    let mut stand = trimmed();
    stand.config = Config::default();
    stand.restart(true);
    stand.coordinator.handshake("late").unwrap();
    stand.clock.advance(Duration::from_secs(1));
    stand.coordinator.tick().unwrap();
    let head = verify(&stand.log).unwrap().head.unwrap();
    let kept = |number, digest| history::verify(&stand.log, Some((number, digest))).map(drop).map_err(|it| it.kind());
    // The next one stands there; the checkpoint repeats the one before; what came before that has been let go.
    assert_eq!(kept(head.number, head.digest), Ok(()));
    assert_eq!(kept(head.number - 1, head.previous), Ok(()), "the checkpoint repeats it");
    assert_eq!(kept(head.number - 1, head.digest), Err(Kind::Corrupt));
    assert_eq!(kept(head.number + 1, head.digest), Err(Kind::Corrupt), "cut off");
    if let Some(before) = head.number.checked_sub(2) {
        assert_eq!(kept(before, head.digest), Err(Kind::NotFound));
    }
    let stand = trimmed();
    let first = stand.log.stored().entries[0].clone();
    assert_eq!(first.kind, 0x0302);
    for byte in 0..first.payload.len() {
        let mut stand = trimmed();
        stand.config = Config::default();
        stand.restart(true);
        stand.coordinator.handshake("late").unwrap();
        stand.clock.advance(Duration::from_secs(1));
        stand.coordinator.tick().unwrap();
        assert!(verify(&stand.log).unwrap().seals > 0);
        stand.log.stored().entries[0].payload[byte] ^= 1;
        assert!(verify(&stand.log).is_err(), "byte {byte} of the checkpoint");
    }
}

#[test]
fn what_is_missing_before_a_checkpoint_is_found_though_the_checkpoint_repeats_its_seal() {
    let mut stand = Stand::new();
    stand.log.stored().is_archived = true;
    stand.fence();
    let session = stand.coordinator.handshake("shop").unwrap();
    for counter in 1..=4 {
        stand.coordinator.decide(&commit(tx(&session, counter))).unwrap();
        stand.clock.advance(Duration::from_secs(1));
        stand.coordinator.tick().unwrap();
    }
    stand.config = Config { checkpoint_bytes: 1, ..Config::default() };
    stand.restart(true);
    stand.fence();
    stand.clock.advance(Duration::from_secs(1));
    stand.coordinator.handshake("late").unwrap();
    stand.coordinator.tick().unwrap();
    assert!(verify(&stand.log).is_ok());
    let entries = stand.log.stored().entries.clone();
    let first_seal = entries.iter().position(|entry| entry.kind == SEAL).unwrap();
    let checkpoint = entries.iter().position(|entry| entry.kind == 0x0302).unwrap();
    assert!(checkpoint > first_seal + 2);
    _ = stand.log.stored().entries.drain(first_seal + 1..checkpoint);
    let error = verify(&stand.log).unwrap_err();
    assert!(matches!(&error, CoordinatorError::Chain { lsn, .. } if *lsn == entries[checkpoint].lsn), "{error}");
}

#[test]
fn a_cut_or_rewritten_end_is_found_by_a_seal_that_somebody_kept() {
    let stand = told();
    let head = verify(&stand.log).unwrap().head.unwrap();
    let kept = Some((head.number, head.digest));
    assert!(history::verify(&stand.log, kept).is_ok());
    let wrong = history::verify(&stand.log, Some((head.number - 1, head.digest))).unwrap_err();
    assert_eq!(wrong.kind(), Kind::Corrupt, "{wrong}");
    let whole = stand.log.stored().entries.clone();
    stand.log.stored().entries.truncate(whole.len() - 3);
    assert!(verify(&stand.log).is_ok(), "in itself a shorter log is sound");
    assert!(history::verify(&stand.log, kept).is_err());
}

#[test]
fn the_chain_and_the_history_reach_back_over_trims_as_far_as_the_archive() {
    for (archive_bytes_max, is_whole) in [(64 << 20, true), (1 << 17, false), (0, false)] {
        let (disk, clock, dice) = (SimDisk::new(), SimClock::new(), Arc::new(SimDice::new(1)));
        let open = || {
            let config = assent_journal::Config {
                log_size: 1 << 16,
                max_buffer_log_size: 1 << 14,
                archive_bytes_max,
                ..Default::default()
            };
            let clock = Arc::new(clock.clone());
            let (log, _) =
                Journal::open(Arc::new(disk.clone()), clock.clone(), dice.clone(), Path::new("log"), config).unwrap();
            let config = Config { checkpoint_bytes: 1 << 16, ..Config::default() };
            (Arc::clone(&log), Coordinator::open(log, clock, IDENTITY, config).unwrap())
        };
        let (mut counter, mut noted) = (0, None);
        for life in 1..=3 {
            let (log, coordinator) = open();
            let session = coordinator.handshake("shop").unwrap();
            clock.advance(LOST);
            coordinator.tick().unwrap();
            for _ in 0..3_000 {
                counter += 1;
                let tx = tx(&session, counter);
                let pending = coordinator.decide_begin(&commit(tx)).unwrap();
                coordinator.finished(tx);
                if counter % 50 == 0 {
                    coordinator.decide_end(pending).unwrap();
                    clock.advance(Duration::from_millis(300));
                    coordinator.tick().unwrap();
                }
            }
            coordinator.tick().unwrap();
            let found = history::verify(&*log, None).unwrap();
            assert!(found.seals > 0 && (life < 3 || found.is_whole == is_whole), "{found:?}");
            // The first life's, kept elsewhere: it proves what it can, and what was let go is no damage.
            let (number, digest) = *noted.get_or_insert(found.head.map(|head| (head.number, head.digest)).unwrap());
            let kept = history::verify(&*log, Some((number, digest)));
            let first = found.first.map(|first| first.number).unwrap();
            assert!(life < 3 || kept.is_ok() == is_whole, "{archive_bytes_max} bytes of history: {kept:?}");
            match kept {
                // A checkpoint may repeat the one before the first.
                Ok(_) => assert!(first <= number + 1, "life {life}"),
                Err(error) => assert!(first > number && error.kind() == Kind::NotFound, "life {life}: {error}"),
            }
            let mut told = 0;
            let more = history::read(&*log, &Filter::default(), &mut |past| {
                told += u64::from(past.finished_ms.is_some() && past.client == "shop");
                ControlFlow::Continue(())
            });
            assert_eq!(more, Ok(false));
            if is_whole {
                assert_eq!(told, counter, "nothing is forgotten while the archive has room");
            } else if life == 3 {
                assert!(told < counter && told > 0, "{told} of {counter}");
            }
            // The process dies: what is not durable stays or goes, the chain goes on.
            drop((log, coordinator));
            disk.kill();
        }
    }
}
