//! Folds show what a scan shows: in either order, part by part, and as of their lease.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use assent_kv::{Config, Durability, Fold, Kv, KvError, Lease, Op, Order, Row, What};
use assent_sim::{Rng, SimDisk};

use super::branches::{commit, prepare};
use super::{Desk, fresh, open, xid};

const HOUR: Duration = Duration::from_secs(3600);

/// Keys of a few hundred, written again and again, some in branches, some deleted; the time goes on.
fn worked(config: Config, seed: u64) -> Desk {
    let desk = open(&SimDisk::new(), config);
    let mut rng = Rng::new(seed);
    for step in 0..1_500_u64 {
        desk.clock.set_wall_ms(1_000 + step);
        let key = rng.below(700).to_be_bytes();
        let value = step.to_be_bytes().repeat(rng.index(200));
        match rng.below(10) {
            0 => _ = desk.kv.delete(1, &key, Durability::Buffered).unwrap(),
            1 => {
                desk.kv.start(&xid(step)).unwrap();
                desk.kv.branch_put(&xid(step), 1, &key, &value).unwrap();
                desk.kv.end(&xid(step), true).unwrap();
                prepare(&desk.kv, &xid(step)).unwrap();
                commit(&desk.kv, &xid(step)).unwrap();
            }
            2 => {
                let other = rng.below(700).to_be_bytes();
                let ops = [Op::put(1, &key, &value), Op::put(2, &key, b"another's"), Op::put(1, &other, b"")];
                desk.kv.batch(&ops, Durability::Buffered).unwrap();
            }
            3 if step % 97 == 0 => desk.kv.checkpoint().unwrap(),
            _ => {
                let put = Op::Put {
                    keyspace: 1,
                    key: &key,
                    metadata: &value[..value.len().min(9)],
                    value: &value,
                    expiry: 0,
                };
                desk.kv.batch(&[put], Durability::Buffered).unwrap();
            }
        }
    }
    desk
}

fn keys(lease: &Lease, fold: &Fold<'_>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let ended = lease.fold(fold, &mut |row| {
        keys.push(row.key().to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(ended, Ok(ControlFlow::Continue(())));
    keys
}

/// What a fold should show, from a plain scan of heads: in its order.
fn expected(kv: &Kv, fold: &Fold<'_>) -> Vec<Vec<u8>> {
    let mut heads = kv.snapshot().heads(fold.keyspace, fold.from, fold.to, usize::MAX).unwrap();
    heads.retain(|(_, head)| fold.modified.contains(&head.modified));
    if fold.order == Order::Journal {
        // Of one batch the keys stand in the order in which they were given; told apart below.
        heads.sort_by_key(|(_, head)| head.lsn);
    }
    heads.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn both_orders_show_each_row_of_the_range_once() {
    for (seed, fold_bytes) in [(1, 0), (2, 2_000), (3, 20_000), (4, 32 << 20)] {
        let desk = worked(Config { fold_bytes, ..Config::default() }, seed);
        let lease = desk.kv.lease(HOUR);
        let (from, to) = (100_u64.to_be_bytes(), 600_u64.to_be_bytes());
        let all = Fold::new(What::Keys, 1);
        let range = Fold { from: Bound::Excluded(&from), to: Bound::Included(&to), ..all.clone() };
        let since = Fold { modified: 2_000..=u64::MAX, ..all.clone() };
        let nothing = Fold { from: Bound::Included(&to), to: Bound::Excluded(&from), ..all.clone() };
        for fold in [all, range, since, nothing, Fold::new(What::Keys, 9)] {
            assert_eq!(keys(&lease, &fold), expected(&desk.kv, &fold), "seed {seed}");
            for what in [What::Keys, What::Heads, What::Objects] {
                let fold = Fold { order: Order::Journal, what, ..fold.clone() };
                let mut places = Vec::new();
                let mut shown = Vec::new();
                let ended = lease.fold(&fold, &mut |row| {
                    let head = desk.kv.head(1, row.key()).unwrap().unwrap();
                    places.push(head.lsn);
                    shown.push(row.key().to_vec());
                    match row {
                        Row::Key(_) => assert_eq!(what, What::Keys),
                        Row::Head(_, shown) => assert_eq!((shown, what), (&head, What::Heads)),
                        Row::Object(key, found) => {
                            assert_eq!((Some(found), what), (desk.kv.entry(1, key).unwrap().as_ref(), What::Objects));
                        }
                    }
                    ControlFlow::Continue(())
                });
                assert_eq!(ended, Ok(ControlFlow::Continue(())));
                assert!(places.is_sorted(), "seed {seed}");
                let mut expected = expected(&desk.kv, &fold);
                assert_eq!(shown.len(), expected.len(), "seed {seed}");
                expected.sort();
                shown.sort();
                assert_eq!(shown, expected, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_fold_is_as_of_its_lease_breaks_off_when_told_and_goes_on_as_of_now_after_a_refresh() {
    let desk = fresh();
    for number in 0..1_000_u32 {
        desk.kv.put(0, &number.to_be_bytes(), b"old", Durability::Buffered).unwrap();
    }
    for order in [Order::Key, Order::Journal] {
        let lease = desk.kv.lease(HOUR);
        let fold = Fold { order, ..Fold::new(What::Objects, 0) };
        let mut seen = 0;
        let ended = lease.fold(&fold, &mut |row| {
            let Row::Object(key, found) = row else { panic!("{row:?}") };
            assert_eq!(found.value, b"old");
            // No read waits for a write, and none sees one that came later.
            desk.kv.put(0, key, b"new", Durability::Buffered).unwrap();
            desk.kv.put(0, key, b"old", Durability::Buffered).unwrap();
            desk.kv.put(0, &[key, b"more"].concat(), b"later", Durability::Buffered).unwrap();
            seen += 1;
            if seen == 700 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((ended, seen), (Ok(ControlFlow::Break(())), 700));
        let last = 699_u32.to_be_bytes();
        if order == Order::Key {
            let rest = Fold { from: Bound::Excluded(&last), ..Fold::new(What::Keys, 0) };
            assert_eq!(keys(&lease, &rest).len(), 300);
            lease.refresh();
            assert_eq!(keys(&lease, &rest).len(), 301, "what was written behind it");
        }
        desk.kv.erase(0, b"", None, Durability::Durable).unwrap();
        for number in 0..1_000_u32 {
            desk.kv.put(0, &number.to_be_bytes(), b"old", Durability::Buffered).unwrap();
        }
    }
}

/// What it has not shown yet is erased, the rest of the range written anew, memory written out, files merged: it shows its moment.
#[test]
fn a_fold_shows_its_moment_whatever_is_erased_written_out_and_merged_while_it_walks() {
    for (order, what) in [(Order::Key, What::Objects), (Order::Journal, What::Objects), (Order::Journal, What::Heads)] {
        for fold_bytes in [0, 20_000, 32 << 20] {
            let desk = open(&SimDisk::new(), Config { fold_bytes, memory_bytes: 64 << 10, ..Config::default() });
            for number in 0..900_u32 {
                // Some more than once: their places are not in the order of their keys.
                let at = (number * 7919 % 600).to_be_bytes();
                desk.kv.put(0, &at, &number.to_be_bytes(), Durability::Buffered).unwrap();
            }
            desk.kv.checkpoint().unwrap();
            let lease = desk.kv.lease(HOUR);
            let expected = all_of(&desk.kv);
            let (mut shown, mut step) = (Vec::new(), 0_u32);
            let ended = lease.fold(&Fold { order, ..Fold::new(what, 0) }, &mut |row| {
                step += 1;
                if step.is_multiple_of(60) {
                    let (from, to) = (step.to_be_bytes(), (step + 400).to_be_bytes());
                    let to = (step % 120 == 0).then_some(&to[..]);
                    let ops = [Op::put(0, &from, b"first"), Op::erase(0, &from, to), Op::put(0, &from, b"anew")];
                    desk.kv.batch(&ops, Durability::Buffered).unwrap();
                    desk.kv.checkpoint().unwrap();
                    super::keep(&desk.kv);
                }
                shown.push(match row {
                    Row::Object(key, found) => (key.to_vec(), found.committed),
                    Row::Head(key, head) => (key.to_vec(), head.committed),
                    Row::Key(_) => panic!("{row:?}"),
                });
                ControlFlow::Continue(())
            });
            assert_eq!(ended, Ok(ControlFlow::Continue(())));
            if order == Order::Journal {
                assert!(shown.is_sorted_by_key(|(_, at)| *at), "one put an entry");
                shown.sort();
            }
            assert!(shown == expected, "{order:?} {what:?} {fold_bytes}");
            assert_ne!(all_of(&desk.kv), expected);
        }
    }
}

/// Keys, and where what they are now was committed.
fn all_of(kv: &Kv) -> Vec<(Vec<u8>, assent_ids::Lsn)> {
    let heads = kv.snapshot().heads(0, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    heads.into_iter().map(|(key, head)| (key, head.committed)).collect()
}

#[test]
fn a_fold_whose_lease_is_ended_stops_with_a_word() {
    for order in [Order::Key, Order::Journal] {
        let desk = open(&SimDisk::new(), Config { leases_max: 1, ..Config::default() });
        for number in 0..1_000_u32 {
            desk.kv.put(0, &number.to_be_bytes(), b"v", Durability::Buffered).unwrap();
        }
        let lease = desk.kv.lease(HOUR);
        let mut seen = 0;
        let ended = lease.fold(&Fold { order, ..Fold::new(What::Heads, 0) }, &mut |_| {
            seen += 1;
            // Another one takes its place.
            drop(desk.kv.lease(HOUR));
            ControlFlow::Continue(())
        });
        assert!(matches!(ended, Err(KvError::SnapshotEnded { what: "the number of leases", .. })), "{ended:?}");
        assert!((1..1_000).contains(&seen), "{seen}");
    }
}
