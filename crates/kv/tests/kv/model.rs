//! The store against a plain map: random work with conditions, erases, expiry, keyspaces, snapshots, branches, checkpoints, merges and
//! restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use assent_ids::Lsn;
use assent_kind::Kind;
use assent_kv::{Condition, Config, Durability, Expect, Kv, KvError, NAMED_FROM, Op, Rows, Snapshot};
use assent_runs::AtOnce;
use assent_sim::{Rng, SimDisk};
use assent_xa::Vote;

use super::branches::{commit, prepare, rollback};
use super::{Desk, open, xid};

type Key = (u32, Vec<u8>);
type Map = BTreeMap<Key, Vec<u8>>;
type Writes = BTreeMap<Key, Option<Put>>;

const NAMES: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Put {
    value: Vec<u8>,
    /// 0: never.
    expiry: u64,
}

impl Put {
    fn is_over(&self, now: u64) -> bool {
        self.expiry != 0 && self.expiry <= now
    }
}

/// A key as it was written, expired or not, and where that entry ends.
type Written = BTreeMap<Key, (Lsn, Put)>;

/// One part of a batch.
#[derive(Clone, Debug)]
enum Act {
    Write(Key, Option<Put>),
    Erase(u32, Vec<u8>, Option<Vec<u8>>),
}

impl Act {
    fn op(&self) -> Op<'_> {
        match self {
            Act::Write(key, put) => op(key, put),
            Act::Erase(keyspace, from, to) => Op::erase(*keyspace, from, to.as_deref()),
        }
    }

    fn touches(&self, other: &Key) -> bool {
        match self {
            Act::Write(key, _) => key == other,
            Act::Erase(keyspace, from, to) => {
                *keyspace == other.0 && *from <= other.1 && to.as_ref().is_none_or(|to| other.1 < *to)
            }
        }
    }

    fn keyspace(&self) -> u32 {
        match self {
            Act::Write((keyspace, _), _) | Act::Erase(keyspace, ..) => *keyspace,
        }
    }
}

/// What a branch should see and be.
#[derive(Debug, Default)]
struct Branch {
    writes: Writes,
    /// What was written by its first read, and what the time was.
    seen: Option<(Written, u64)>,
}

#[derive(Default)]
struct Model {
    written: Written,
    time: u64,
    named: BTreeMap<&'static str, u32>,
    /// Ids of keyspaces that were dropped.
    dropped: Vec<u32>,
    working: BTreeMap<u64, Branch>,
    prepared: BTreeMap<u64, Writes>,
    snapshots: Vec<(Snapshot, Map)>,
    next: u64,
    /// How often something of each kind was done, or refused.
    counts: BTreeMap<&'static str, u64>,
}

/// What is there at a time.
fn alive(written: &Written, time: u64) -> Map {
    let live = written.iter().filter(|(_, (_, put))| !put.is_over(time));
    live.map(|(key, (_, put))| (key.clone(), put.value.clone())).collect()
}

fn window(map: &Map, keyspace: u32, from: &[u8], to: &[u8], limit: usize) -> Rows {
    let inside = map.iter().filter(|((space, key), _)| *space == keyspace && (from..to).contains(&key.as_slice()));
    inside.map(|((_, key), value)| (key.clone(), value.clone())).take(limit).collect()
}

impl Model {
    fn live(&self) -> Map {
        alive(&self.written, self.time)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn take(&mut self, act: &Act, at: Lsn) {
        match act {
            Act::Write(key, Some(put)) => _ = self.written.insert(key.clone(), (at, put.clone())),
            Act::Write(key, None) => _ = self.written.remove(key),
            erase @ Act::Erase(..) => self.written.retain(|key, _| !erase.touches(key)),
        }
    }

    fn commit(&mut self, writes: &Writes, at: Lsn) {
        for (key, put) in writes {
            self.take(&Act::Write(key.clone(), put.clone()), at);
        }
    }

    fn held(&self) -> BTreeSet<Key> {
        self.prepared.values().flat_map(BTreeMap::keys).cloned().collect()
    }

    fn is_gone(&self, keyspace: u32) -> bool {
        keyspace >= NAMED_FROM && !self.named.values().any(|id| *id == keyspace)
    }

    /// What a key is to whoever asks now.
    fn now(&self, key: &Key) -> Option<Lsn> {
        self.written.get(key).filter(|(_, put)| !put.is_over(self.time)).map(|(at, _)| *at)
    }

    /// Whether a branch must lose, and whether it may: what has expired may be buried already, or not yet.
    fn loses(&self, branch: &Branch) -> (bool, bool) {
        let held = self.held();
        let (mut must, mut may) = (false, false);
        for key in branch.writes.keys() {
            if held.contains(key) || self.is_gone(key.0) {
                return (true, true);
            }
            let Some((seen, then)) = &branch.seen else { continue };
            let known = |written: &Written, time: u64| -> Vec<Option<(Lsn, bool)>> {
                match written.get(key).map(|(at, put)| (*at, put.is_over(time))) {
                    found @ Some((_, true)) => vec![found, None],
                    found => vec![found],
                }
            };
            let mut answers = Vec::new();
            for now in known(&self.written, self.time) {
                for before in known(seen, *then) {
                    let same = now.map(|(at, _)| at) == before.map(|(at, _)| at);
                    answers.push(!same && (now.is_some() || before.is_some_and(|(_, over)| !over)));
                }
            }
            must |= answers.iter().all(|answer| *answer);
            may |= answers.iter().any(|answer| *answer);
        }
        (must, may)
    }

    fn key(&self, rng: &mut Rng) -> Key {
        let named: Vec<u32> = self.named.values().copied().collect();
        let keyspace = match rng.below(8) {
            0..3 => 0,
            3..5 => 1,
            5 if !self.dropped.is_empty() => self.dropped[rng.index(self.dropped.len())],
            _ if named.is_empty() => 0,
            _ => named[rng.index(named.len())],
        };
        (keyspace, bytes(rng))
    }

    fn write(&self, rng: &mut Rng) -> (Key, Option<Put>) {
        let expiry = if rng.below(3) == 0 { self.time + rng.range(1..20) } else { 0 };
        // One of eight is long enough for the memory of long values.
        let words = if rng.below(8) == 0 { 510 + rng.index(600) } else { rng.index(20) };
        let put = (rng.below(4) > 0).then(|| Put { value: rng.roll().to_le_bytes().repeat(words), expiry });
        (self.key(rng), put)
    }
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(3)).map(|_| rng.below(4).to_le_bytes()[0]).collect()
}

fn op<'a>((keyspace, key): &'a Key, put: &'a Option<Put>) -> Op<'a> {
    put.as_ref().map_or_else(
        || Op::delete(*keyspace, key),
        |Put { value, expiry }| Op::put(*keyspace, key, value).expiring(*expiry),
    )
}

fn plain(kv: &Kv, model: &mut Model, rng: &mut Rng) {
    let acts: Vec<Act> = (0..rng.range(1..4))
        .map(|_| {
            let (key, put) = model.write(rng);
            if rng.below(6) > 0 {
                return Act::Write(key, put);
            }
            Act::Erase(key.0, key.1, (rng.below(3) > 0).then(|| bytes(rng)))
        })
        .collect();
    let ops: Vec<Op<'_>> = acts.iter().map(Act::op).collect();
    let durability = if rng.below(2) == 0 { Durability::Durable } else { Durability::Buffered };
    let expected: Vec<(Key, Expect)> = (0..rng.below(3))
        .map(|_| {
            let key = model.key(rng);
            let found = model.now(&key);
            let right =
                found.map_or(Expect::Absent, |at| if rng.below(2) == 0 { Expect::At(at) } else { Expect::Present });
            let wrong = [Expect::Absent, Expect::Present, Expect::At(Lsn(8))][rng.index(3)];
            (key, if rng.below(4) > 0 { right } else { wrong })
        })
        .collect();
    let conditions: Vec<Condition<'_>> =
        expected.iter().map(|((keyspace, key), expects)| Condition::new(*keyspace, key, *expects)).collect();
    let answer =
        if conditions.is_empty() { kv.batch(&ops, durability) } else { kv.batch_if(&conditions, &ops, durability) };
    let held = model.held();
    let is_held = held.iter().any(|key| acts.iter().any(|act| act.touches(key)))
        || expected.iter().any(|(key, _)| held.contains(key));
    let unmet = expected.iter().find(|(key, expects)| match (model.now(key), expects) {
        (found, Expect::Absent) => found.is_some(),
        (found, Expect::Present) => found.is_none(),
        (found, Expect::At(at)) => found != Some(*at),
    });
    if acts.iter().any(|act| model.is_gone(act.keyspace())) {
        assert!(matches!(answer, Err(KvError::Dropped { .. })), "{answer:?}");
        model.count("dropped");
    } else if is_held {
        assert!(matches!(answer, Err(KvError::Held { .. })), "{answer:?}");
        model.count("held");
    } else if let Some((key, _)) = unmet {
        let Err(KvError::Unmet { found, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(found, model.now(key));
        model.count("unmet");
    } else {
        let at = answer.unwrap();
        acts.iter().for_each(|act| model.take(act, at));
        model.count(if conditions.is_empty() { "plain" } else { "met" });
    }
}

fn keyspace(kv: &Kv, model: &mut Model, rng: &mut Rng) {
    let name = NAMES[rng.index(NAMES.len())];
    if rng.below(2) == 0 {
        match (kv.keyspace_create(name), model.named.contains_key(name)) {
            (Ok(id), false) => {
                assert!(!model.dropped.contains(&id), "an id is never used again");
                model.named.insert(name, id);
            }
            (answer, known) => assert!(known && matches!(answer, Err(KvError::NameKnown { .. })), "{answer:?}"),
        }
        return;
    }
    let answer = kv.keyspace_drop(name);
    let Some(id) = model.named.get(name).copied() else {
        assert!(matches!(answer, Err(KvError::NameUnknown { .. })), "{answer:?}");
        return;
    };
    if model.held().iter().any(|(keyspace, _)| *keyspace == id) {
        assert!(matches!(answer, Err(KvError::Held { .. })), "{answer:?}");
        return;
    }
    answer.unwrap();
    model.written.retain(|(keyspace, _), _| *keyspace != id);
    model.named.remove(name);
    model.dropped.push(id);
    model.count("drop");
}

fn look(kv: &Kv, model: &Model, rng: &mut Rng) {
    let (keyspace, key) = model.key(rng);
    let live = model.live();
    assert_eq!(kv.get(keyspace, &key).unwrap(), live.get(&(keyspace, key.clone())).cloned());
    for (snapshot, map) in &model.snapshots {
        assert_eq!(snapshot.get(keyspace, &key).unwrap(), map.get(&(keyspace, key.clone())).cloned());
    }
    let (from, limit) = (vec![rng.below(4).to_le_bytes()[0]], rng.index(12));
    let bounds = (Bound::Included(&from[..]), Bound::Excluded(&key[..]));
    assert_eq!(kv.scan(keyspace, bounds.0, bounds.1, limit).unwrap(), window(&live, keyspace, &from, &key, limit));
    for (snapshot, map) in &model.snapshots {
        let rows = snapshot.scan(keyspace, bounds.0, bounds.1, limit).unwrap();
        assert_eq!(rows, window(map, keyspace, &from, &key, limit));
    }
    let names: Vec<(String, u32)> = kv.keyspaces().unwrap().into_iter().map(|it| (it.name, it.id)).collect();
    assert_eq!(names, model.named.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect::<Vec<_>>());
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
            let (key, put) = model.write(rng);
            kv.branch_write(&xid(number), &op(&key, &put)).unwrap();
            model.working.get_mut(&number).unwrap().writes.insert(key, put);
        }
        2 | 3 => {
            let (keyspace, to) = model.key(rng);
            let (time, written) = (model.time, &model.written);
            let branch = model.working.get_mut(&number).unwrap();
            let (seen, then) = branch.seen.get_or_insert_with(|| (written.clone(), time));
            let mut map = alive(seen, *then);
            for (key, put) in &branch.writes {
                map.remove(key);
                // Its own is judged by the time that it is.
                map.extend(put.iter().filter(|put| !put.is_over(time)).map(|put| (key.clone(), put.value.clone())));
            }
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
    let (must, may) = model.loses(&branch);
    let one_phase = rng.below(2) == 0;
    let answer: Result<Vote, KvError> = if one_phase {
        kv.commit_one_phase_begin(&xid(number)).and_then(|pending| kv.wait(pending)).map(|()| Vote::ReadOnly)
    } else {
        prepare(kv, &xid(number))
    };
    match answer {
        Err(error) => {
            assert!(may && error.kind() == Kind::Conflict, "{error}");
            model.count("lost");
        }
        Ok(_) if must => panic!("somebody was before branch {number}: {branch:?}"),
        Ok(_) if branch.writes.is_empty() => {}
        Ok(Vote::Decides) => panic!("a store decides nothing"),
        Ok(Vote::Yes) => _ = model.prepared.insert(number, branch.writes),
        Ok(Vote::ReadOnly) => {
            assert!(one_phase);
            model.commit(&branch.writes, kv.stats().published);
        }
    }
}

fn outcome(kv: &Kv, model: &mut Model, rng: &mut Rng) {
    let Some(number) = model.prepared.keys().nth(rng.index(model.prepared.len())).copied() else { return };
    let writes = model.prepared.remove(&number).unwrap();
    if rng.below(3) > 0 {
        commit(kv, &xid(number)).unwrap();
        model.commit(&writes, kv.stats().published);
    } else {
        rollback(kv, &xid(number)).unwrap();
    }
}

fn restart(desk: Desk, model: &mut Model, config: Config) -> Desk {
    model.snapshots.clear();
    model.working.clear();
    let before = desk.kv.stats();
    let values = desk.kv.value_cache();
    model.counts.entry("kept").and_modify(|count| *count += values.hits).or_insert(values.hits);
    let desk = desk.again_with(config);
    let after = desk.kv.stats();
    assert_eq!((before.published, before.held_keys), (after.published, after.held_keys));
    assert_eq!(after.rebuilt, 0);
    desk
}

fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut rng = Rng::new(seed);
    let mut model = Model::default();
    // Half of them keep some long values in memory.
    let config = Config { value_cache_bytes: seed % 2 * (64 << 10), ..Config::default() };
    let mut desk = open(&SimDisk::new(), config);
    for _ in 0..400 {
        match rng.below(48) {
            0..14 => plain(&desk.kv, &mut model, &mut rng),
            14..19 => look(&desk.kv, &model, &mut rng),
            19..37 => branch_step(&desk.kv, &mut model, &mut rng),
            37 | 38 => outcome(&desk.kv, &mut model, &mut rng),
            39 | 40 if model.snapshots.len() < 4 => model.snapshots.push((desk.kv.snapshot(), model.live())),
            39..42 if !model.snapshots.is_empty() => {
                let at = rng.index(model.snapshots.len());
                model.snapshots.remove(at);
            }
            42 => desk.kv.checkpoint().unwrap(),
            43 => _ = desk.kv.work(&AtOnce),
            44 => desk = restart(desk, &mut model, config),
            45 => keyspace(&desk.kv, &mut model, &mut rng),
            46 | 47 => {
                let pause = rng.range(1..5);
                desk.clock.advance(Duration::from_millis(pause));
                model.time += pause;
            }
            _ => {}
        }
        let prepared: Vec<u64> = desk.kv.prepared().iter().map(|xid| xid.branch().unwrap().tx.counter).collect();
        assert_eq!(prepared, model.prepared.keys().copied().collect::<Vec<_>>());
        assert!(desk.kv.stats().keys >= model.live().len() as u64);
        assert_eq!(desk.kv.stats().held_keys, model.held().len() as u64);
    }
    model.snapshots.clear();
    model.working.keys().for_each(|number| desk.kv.abandon(&xid(*number)));
    let stats = desk.kv.stats();
    assert_eq!((stats.snapshots, stats.branches_bytes), (0, 0));
    model.counts
}

#[test]
fn the_store_is_a_map_with_snapshots_and_branches() {
    let mut counts = BTreeMap::<&str, u64>::new();
    for seed in 0..300 {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(of_one) => of_one.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{counts:?}");
    for what in ["plain", "met", "unmet", "held", "dropped", "drop", "lost", "kept"] {
        assert!(counts.get(what).is_some_and(|count| *count > 100), "{what}: {counts:?}");
    }
}
