//! The store against a plain map: random work with snapshots, branches, checkpoints and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError, Op, Rows, Snapshot};
use assent_sim::Rng;
use assent_xa::Vote;

use super::branches::{commit, prepare, rollback};
use super::{Desk, fresh, xid};

type Key = (u32, Vec<u8>);
type Map = BTreeMap<Key, Vec<u8>>;
type Writes = BTreeMap<Key, Option<Vec<u8>>>;

/// What a branch should see and be.
#[derive(Debug, Default)]
struct Branch {
    writes: Writes,
    /// The keys at its first read, and when that was.
    seen: Option<(Map, u64)>,
}

#[derive(Default)]
struct Model {
    keys: Map,
    /// When each key was last written or deleted.
    written: BTreeMap<Key, u64>,
    now: u64,
    working: BTreeMap<u64, Branch>,
    prepared: BTreeMap<u64, Writes>,
    snapshots: Vec<(Snapshot, Map)>,
    next: u64,
}

fn lay(map: &mut Map, writes: &Writes) {
    for (key, value) in writes {
        match value {
            Some(value) => _ = map.insert(key.clone(), value.clone()),
            None => _ = map.remove(key),
        }
    }
}

fn window(map: &Map, keyspace: u32, from: &[u8], to: &[u8], limit: usize) -> Rows {
    let inside = map.iter().filter(|((space, key), _)| *space == keyspace && (from..to).contains(&key.as_slice()));
    inside.map(|((_, key), value)| (key.clone(), value.clone())).take(limit).collect()
}

impl Model {
    fn commit(&mut self, writes: &Writes) {
        self.now += 1;
        lay(&mut self.keys, writes);
        for key in writes.keys() {
            self.written.insert(key.clone(), self.now);
        }
    }

    fn held(&self) -> BTreeSet<Key> {
        self.prepared.values().flat_map(BTreeMap::keys).cloned().collect()
    }

    fn loses(&self, branch: &Branch) -> bool {
        let held = self.held();
        branch.writes.keys().any(|key| {
            let newer = branch.seen.as_ref().is_some_and(|(seen, at)| {
                let written = self.written.get(key).is_some_and(|w| w > at);
                // Written and deleted again since: it is as it was.
                written && (seen.contains_key(key) || self.keys.contains_key(key))
            });
            newer || held.contains(key)
        })
    }
}

fn key(rng: &mut Rng) -> Key {
    let keyspace = u32::try_from(rng.below(2)).unwrap();
    let bytes = (0..rng.below(3)).map(|_| rng.below(4).to_le_bytes()[0]).collect();
    (keyspace, bytes)
}

fn write(rng: &mut Rng) -> (Key, Option<Vec<u8>>) {
    let value = (rng.below(4) > 0).then(|| rng.roll().to_le_bytes().repeat(rng.index(20)));
    (key(rng), value)
}

fn op<'a>((keyspace, key): &'a Key, value: &'a Option<Vec<u8>>) -> Op<'a> {
    value.as_ref().map_or_else(|| Op::delete(*keyspace, key), |value| Op::put(*keyspace, key, value))
}

fn plain(kv: &Kv, model: &mut Model, rng: &mut Rng) {
    let writes: Writes = (0..rng.range(1..4)).map(|_| write(rng)).collect();
    let ops: Vec<Op<'_>> = writes.iter().map(|(key, value)| op(key, value)).collect();
    let durability = if rng.below(2) == 0 { Durability::Durable } else { Durability::Buffered };
    let answer = kv.batch(&ops, durability);
    let held = model.held();
    if writes.keys().any(|key| held.contains(key)) {
        assert_eq!(answer.unwrap_err().kind(), Kind::Conflict);
    } else {
        answer.unwrap();
        model.commit(&writes);
    }
}

fn look(kv: &Kv, model: &Model, rng: &mut Rng) {
    let (keyspace, key) = key(rng);
    assert_eq!(kv.get(keyspace, &key).unwrap(), model.keys.get(&(keyspace, key.clone())).cloned());
    for (snapshot, map) in &model.snapshots {
        assert_eq!(snapshot.get(keyspace, &key).unwrap(), map.get(&(keyspace, key.clone())).cloned());
    }
    let (from, limit) = (vec![rng.below(4).to_le_bytes()[0]], rng.index(12));
    let bounds = (Bound::Included(&from[..]), Bound::Excluded(&key[..]));
    assert_eq!(
        kv.scan(keyspace, bounds.0, bounds.1, limit).unwrap(),
        window(&model.keys, keyspace, &from, &key, limit)
    );
    for (snapshot, map) in &model.snapshots {
        let rows = snapshot.scan(keyspace, bounds.0, bounds.1, limit).unwrap();
        assert_eq!(rows, window(map, keyspace, &from, &key, limit));
    }
}

fn branch_step(kv: &Kv, model: &mut Model, rng: &mut Rng) {
    if model.working.len() < 3 && rng.below(3) == 0 {
        model.next += 1;
        kv.start(&xid(model.next)).unwrap();
        model.working.insert(model.next, Branch::default());
    }
    let Some(number) = model.working.keys().nth(rng.index(model.working.len())).copied() else { return };
    match rng.below(6) {
        0 | 1 => {
            let (key, value) = write(rng);
            kv.branch_write(&xid(number), &op(&key, &value)).unwrap();
            model.working.get_mut(&number).unwrap().writes.insert(key, value);
        }
        2 | 3 => {
            let (now, keys) = (model.now, &model.keys);
            let branch = model.working.get_mut(&number).unwrap();
            let (keyspace, to) = key(rng);
            let (mut map, _) = branch.seen.get_or_insert_with(|| (keys.clone(), now)).clone();
            lay(&mut map, &branch.writes);
            let limit = rng.index(12);
            let rows = kv.branch_scan(&xid(number), keyspace, Bound::Unbounded, Bound::Excluded(&to), limit).unwrap();
            assert_eq!(rows, window(&map, keyspace, &[], &to, limit));
            assert_eq!(kv.branch_get(&xid(number), keyspace, &to).unwrap(), map.get(&(keyspace, to)).cloned());
        }
        4 => vote(kv, model, number, rng),
        _ => {
            kv.wait(kv.rollback_begin(&xid(number)).unwrap()).unwrap();
            model.working.remove(&number);
        }
    }
}

fn vote(kv: &Kv, model: &mut Model, number: u64, rng: &mut Rng) {
    kv.end(&xid(number), true).unwrap();
    let branch = model.working.remove(&number).unwrap();
    let loses = model.loses(&branch);
    let one_phase = rng.below(2) == 0;
    let answer: Result<Vote, KvError> = if one_phase {
        kv.commit_one_phase_begin(&xid(number)).and_then(|pending| kv.wait(pending)).map(|()| Vote::ReadOnly)
    } else {
        prepare(kv, &xid(number))
    };
    match answer {
        Err(error) => assert!(loses && error.kind() == Kind::Conflict, "{error}"),
        Ok(_) if loses => panic!("somebody was before branch {number}: {branch:?}"),
        Ok(_) if branch.writes.is_empty() => {}
        Ok(Vote::Yes) => _ = model.prepared.insert(number, branch.writes),
        Ok(Vote::ReadOnly) => {
            assert!(one_phase);
            model.commit(&branch.writes);
        }
    }
}

fn outcome(kv: &Kv, model: &mut Model, rng: &mut Rng) {
    let Some(number) = model.prepared.keys().nth(rng.index(model.prepared.len())).copied() else { return };
    let writes = model.prepared.remove(&number).unwrap();
    if rng.below(3) > 0 {
        commit(kv, &xid(number)).unwrap();
        model.commit(&writes);
    } else {
        rollback(kv, &xid(number)).unwrap();
    }
}

fn restart(desk: Desk, model: &mut Model) -> Desk {
    model.snapshots.clear();
    model.working.clear();
    let before = desk.kv.stats();
    let desk = desk.again();
    let after = desk.kv.stats();
    assert_eq!((before.published, before.held_keys), (after.published, after.held_keys));
    assert_eq!(after.rebuilt, 0);
    desk
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut model = Model::default();
    let mut desk = fresh();
    for _ in 0..300 {
        match rng.below(40) {
            0..10 => plain(&desk.kv, &mut model, &mut rng),
            10..15 => look(&desk.kv, &model, &mut rng),
            15..33 => branch_step(&desk.kv, &mut model, &mut rng),
            33 | 34 => outcome(&desk.kv, &mut model, &mut rng),
            35 | 36 if model.snapshots.len() < 4 => model.snapshots.push((desk.kv.snapshot(), model.keys.clone())),
            35..38 if !model.snapshots.is_empty() => {
                let at = rng.index(model.snapshots.len());
                model.snapshots.remove(at);
            }
            38 => desk.kv.checkpoint().unwrap(),
            39 => desk = restart(desk, &mut model),
            _ => {}
        }
        let prepared: Vec<u64> = desk.kv.prepared().iter().map(|xid| xid.branch().unwrap().tx.counter).collect();
        assert_eq!(prepared, model.prepared.keys().copied().collect::<Vec<_>>());
        assert!(desk.kv.stats().keys >= model.keys.len() as u64);
        assert_eq!(desk.kv.stats().held_keys, model.held().len() as u64);
    }
    model.snapshots.clear();
    model.working.keys().for_each(|number| desk.kv.abandon(&xid(*number)));
    let stats = desk.kv.stats();
    assert_eq!((stats.snapshots, stats.branches_bytes), (0, 0));
}

#[test]
fn the_store_is_a_map_with_snapshots_and_branches() {
    for seed in 0..300 {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
