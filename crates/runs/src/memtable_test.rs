//! The memtable against a plain sorted map, and under readers.

use std::collections::BTreeMap;
use std::ops::Bound;

use assent_sim::Rng;

use super::*;
use crate::entry::Cursor;
use crate::merged::Merged;
use crate::runs::ORDERED_TURNS;
use crate::{Change, Config, Runs};

type Versions = Vec<(u64, Option<Vec<u8>>)>;
type Model = BTreeMap<Vec<u8>, Versions>;

/// Keys that are alike: prefixes of each other, zeroes at the ends of words.
fn key(rng: &mut Rng) -> Vec<u8> {
    let length = [0, 1, 7, 8, 9, 15, 16, 17][rng.index(8)];
    (0..length).map(|_| [0, 0, 0, 1, 0xff][rng.index(5)]).collect()
}

fn value(rng: &mut Rng) -> Option<Vec<u8>> {
    let length = [0, 1, 8, 9, 100][rng.index(5)];
    (rng.below(5) > 0).then(|| (0..length).map(|_| rng.below(256).to_le_bytes()[0]).collect())
}

fn seen(model: &Model, as_of: u64) -> Vec<(Vec<u8>, u64, Option<Vec<u8>>)> {
    let newest = |(key, all): (&Vec<u8>, &Versions)| {
        let (seq, value) = all.iter().rev().find(|(seq, _)| *seq <= as_of)?;
        Some((key.clone(), *seq, value.clone()))
    };
    model.iter().filter_map(newest).collect()
}

fn walked(cursor: &mut MemCursor, step: impl Fn(&mut MemCursor)) -> Vec<(Vec<u8>, u64, Option<Vec<u8>>)> {
    let mut walked = Vec::new();
    while let Some(entry) = cursor.entry() {
        walked.push((entry.key.to_vec(), entry.seq, entry.value.map(<[u8]>::to_vec)));
        step(cursor);
    }
    walked
}

#[test]
fn a_value_is_copied_into_one_piece_of_memory_and_a_short_one_into_none() {
    let table = Memtable::with_room(1 << 16, 0, &Arc::new(Spare::new(0)));
    for length in [0, 1, 8, 47, 95, 96, 97, 100, 1000] {
        let seq = u64::try_from(length).unwrap() + 1;
        assert!(table.insert(&Entry { key: b"k", seq, value: Some(&vec![7; length]) }));
        let value = table.get(b"k", u64::MAX).unwrap().value.unwrap();
        assert_eq!((value.len(), value.capacity()), (length, length.next_multiple_of(8).max(96)));
        assert_eq!(value.spilled(), length > 96);
    }
}

#[test]
fn what_all_keys_begin_with_changes_nothing_of_their_order() {
    let mut rng = Rng::new(3);
    for front in [0, 1, 7, 8, 12, 15, 16, 20, 40] {
        let tables: Vec<_> =
            (0..3).map(|_| Arc::new(Memtable::with_room(1 << 20, 0, &Arc::new(Spare::new(0))))).collect();
        let (mut model, mut own) = (Model::new(), Model::new());
        for seq in 1..1_500 {
            let (key, value) = ([vec![b'k'; front], key(&mut rng)].concat(), value(&mut rng));
            let at = rng.index(3);
            assert!(tables[at].insert(&Entry { key: &key, seq, value: value.as_deref() }));
            model.entry(key.clone()).or_default().push((seq, value.clone()));
            if at == 0 {
                own.entry(key).or_default().push((seq, value));
            }
        }
        let (mut sorted, mut found) = (tables[0].sorted(), Vec::new());
        while let Some(entry) = sorted.next() {
            found.push((entry.key.to_vec(), entry.seq, entry.value.map(<[u8]>::to_vec)));
        }
        assert_eq!(found, seen(&own, u64::MAX), "{front}");
        // All of them as one, both ways.
        let cursors = tables.iter().map(|table| Box::new(table.walk(u64::MAX)) as Box<dyn Cursor>);
        let (mut merged, mut found) = (Merged::new(cursors.collect()), Vec::new());
        merged.seek(b"").unwrap();
        while let Some(entry) = merged.entry() {
            found.push((entry.key.to_vec(), entry.seq, entry.value.map(<[u8]>::to_vec)));
            merged.next().unwrap();
        }
        assert_eq!(found, seen(&model, u64::MAX), "{front}");
        merged.seek_back(None).unwrap();
        let mut back = Vec::new();
        while let Some(entry) = merged.entry() {
            back.push((entry.key.to_vec(), entry.seq, entry.value.map(<[u8]>::to_vec)));
            merged.prev().unwrap();
        }
        back.reverse();
        assert_eq!(back, found, "{front}");
    }
}

#[test]
fn every_look_as_of_every_seq_is_what_a_sorted_map_says() {
    // All but the first stand in memory that had another one.
    let spare = Arc::new(Spare::new(16 << 20));
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let table = Arc::new(Memtable::with_room(1 << 20, 0, &spare));
        let mut model = Model::new();
        let mut seq = 0;
        for _ in 0..rng.range(1..120) {
            // Now and then the same place again: the one that comes later counts.
            seq += u64::from(rng.below(6) > 0 || seq == 0);
            let (key, value) = (key(&mut rng), value(&mut rng));
            assert!(table.insert(&Entry { key: &key, seq, value: value.as_deref() }));
            model.entry(key).or_default().push((seq, value));
            if rng.below(10) == 0 {
                table.order();
            }
        }
        for as_of in [0, 1, seq / 2, seq, u64::MAX] {
            let expected = seen(&model, as_of);
            let mut cursor = MemCursor::new(Arc::clone(&table), as_of);
            cursor.seek(&[]).unwrap();
            assert_eq!(walked(&mut cursor, |cursor| cursor.next().unwrap()), expected, "seed {seed} as of {as_of}");
            cursor.seek_back(None).unwrap();
            let mut backwards = walked(&mut cursor, |cursor| cursor.prev().unwrap());
            backwards.reverse();
            assert_eq!(backwards, expected, "seed {seed} as of {as_of}, backwards");
            for _ in 0..30 {
                let sought = key(&mut rng);
                let found = table.get(&sought, as_of).map(|found| (found.seq, found.value.map(Row::into_vec)));
                let entry = expected.iter().find(|(key, ..)| *key == sought);
                assert_eq!(found, entry.map(|(_, seq, value)| (*seq, value.clone())), "seed {seed} {sought:?}");
                cursor.seek(&sought).unwrap();
                let at = cursor.entry().map(|entry| entry.key.to_vec());
                assert_eq!(at, expected.iter().map(|(key, ..)| key.clone()).find(|key| *key >= sought), "seed {seed}");
                cursor.seek_back(Some(&sought)).unwrap();
                let at = cursor.entry().map(|entry| entry.key.to_vec());
                let before = expected.iter().rev().map(|(key, ..)| key.clone()).find(|key| *key <= sought);
                assert_eq!(at, before, "seed {seed}");
                // And a turn round from there.
                cursor.next().unwrap();
                let next = before.and_then(|before| {
                    let after = (Bound::Excluded(before), Bound::Unbounded);
                    let keys: BTreeMap<_, _> = expected.iter().map(|(key, ..)| (key.clone(), ())).collect();
                    keys.range(after).next().map(|(key, ())| key.clone())
                });
                assert_eq!(cursor.entry().map(|entry| entry.key.to_vec()), next, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_key_that_was_written_often_is_stepped_over() {
    let table = Arc::new(Memtable::with_room(1 << 20, 0, &Arc::new(Spare::new(0))));
    for seq in 1..=500 {
        assert!(table.insert(&Entry { key: b"hot", seq, value: Some(b"v") }));
    }
    assert!(table.insert(&Entry { key: b"later", seq: 501, value: None }));
    let mut cursor = MemCursor::new(table, u64::MAX);
    cursor.seek(b"").unwrap();
    assert_eq!(cursor.entry(), Some(Entry { key: b"hot", seq: 500, value: Some(b"v") }));
    cursor.next().unwrap();
    assert_eq!(cursor.entry(), Some(Entry { key: b"later", seq: 501, value: None }));
    cursor.prev().unwrap();
    assert_eq!(cursor.entry().map(|entry| entry.seq), Some(500));
}

#[test]
fn an_old_entry_is_found_beneath_many_newer_ones_and_one_that_comes_late_stands_where_it_belongs() {
    let table = Memtable::with_room(1 << 20, 0, &Arc::new(Spare::new(0)));
    let put = |seq| assert!(table.insert(&Entry { key: b"hot", seq, value: Some(&[u8::try_from(seq).unwrap()]) }));
    let seen = |as_of| table.get(b"hot", as_of).map(|found| found.seq);
    (10..200).filter(|seq| *seq != 100).for_each(put);
    assert_eq!([9, 10, 150, 198, 199, 300].map(seen), [None, Some(10), Some(150), Some(198), Some(199), Some(199)]);
    put(100);
    put(5);
    put(198);
    assert_eq!([4, 5, 9, 99, 100, 101].map(seen), [None, Some(5), Some(5), Some(99), Some(100), Some(101)]);
    assert_eq!([197, 198, 199].map(seen), [Some(197), Some(198), Some(199)]);
}

#[test]
fn what_came_since_the_last_walk_is_put_in_order_wherever_chunks_end() {
    // The second and the third time in memory that had another table, which ended its chunks elsewhere.
    let spare = Arc::new(Spare::new(16 << 20));
    (5..8).for_each(|seed| chunks_end(seed, &spare));
}

fn chunks_end(seed: u64, spare: &Arc<Spare>) {
    let table = Arc::new(Memtable::with_room(32 << 20, 0, spare));
    let mut rng = Rng::new(seed);
    let mut model = BTreeMap::new();
    for seq in 1..=3_000_u64 {
        // Some of a word or two, some that leave much of a chunk behind them.
        let value = vec![1; [0, 8, 100, 40_000][rng.index(4)]];
        let key = rng.below(2_000).to_be_bytes();
        assert!(table.insert(&Entry { key: &key, seq, value: Some(&value) }));
        model.insert(key.to_vec(), seq);
        if seq % 700 == 0 || seq == 3_000 {
            let mut cursor = MemCursor::new(Arc::clone(&table), u64::MAX);
            cursor.seek(&[]).unwrap();
            let walked = walked(&mut cursor, |cursor| cursor.next().unwrap());
            assert!(walked.iter().map(|(key, seq, _)| (key, seq)).eq(model.iter()), "up to {seq}");
            let mut sorted = table.sorted();
            for (key, seq, value) in &walked {
                assert_eq!(sorted.next(), Some(Entry { key, seq: *seq, value: value.as_deref() }));
            }
            assert!(sorted.next().is_none());
            let mut each = Vec::new();
            table.each(|_, seq| each.push(seq));
            assert!(each.into_iter().eq(1..=seq), "as they came");
        }
    }
    let (end, mut from, mut pieces) = (table.arena.end(), FIRST, Vec::new());
    while from < end {
        let mut nodes = Vec::new();
        from = table.nodes(from, end, &mut nodes);
        pieces.push(nodes.len());
    }
    assert_eq!(pieces, [PIECE_NODES; 30], "none is passed over, none is seen twice, and no piece is larger");
}

#[test]
fn who_looks_for_an_old_entry_links_nothing_for_it() {
    let table = Memtable::with_room(1 << 20, 0, &Arc::new(Spare::new(0)));
    let put = |seq| assert!(table.insert(&Entry { key: b"hot", seq, value: Some(b"v") }));
    let seen = |as_of| table.get(b"hot", as_of).map(|found| found.seq);
    let linked = || table.ordered.load(Memory::Relaxed);
    (10..200).for_each(put);
    assert_eq!(([9, 10, 50].map(seen), linked()), ([None, Some(10), Some(50)], FIRST));
    table.order();
    let before = linked();
    (200..400).for_each(put);
    assert_eq!([9, 10, 199, 200, 201].map(seen), [None, Some(10), Some(199), Some(200), Some(201)]);
    assert_eq!(linked(), before);
    put(20);
    assert_eq!((seen(20), linked() > before), (Some(20), true), "one that came late stands where it belongs");
}

#[test]
fn the_room_that_was_asked_for_is_there_and_bytes_are_counted() {
    for (key_bytes, value_bytes) in [(1, 0), (20, 40), (KEY_BYTES_MAX, VALUE_BYTES_MAX), (KEY_BYTES_MAX / 2, 9)] {
        let value = vec![7; value_bytes];
        let mut key = vec![0; key_bytes];
        let each = laid_bytes_max(&key, Some(&value));
        let count = (4 << 20) / each + 1;
        let table = Memtable::with_room(count * each, 0, &Arc::new(Spare::new(0)));
        for number in 0..count {
            let place = number.to_be_bytes();
            key.iter_mut().zip(&place[8 - key_bytes.min(8)..]).for_each(|(to, from)| *to = *from);
            let before = table.used_bytes();
            assert!(table.insert(&Entry { key: &key, seq: number + 1, value: Some(&value) }), "{number} of {count}");
            assert!(table.used_bytes() > before + (key_bytes + value_bytes) as u64);
        }
        assert_eq!(table.entries(), count);
        assert!(table.memory_bytes() >= table.used_bytes());
        assert_eq!(table.get(&key, u64::MAX).and_then(|found| found.value), Some(value.into()));
    }
}

#[test]
fn readers_see_all_of_what_was_shown_to_them_while_the_writer_goes_on() {
    const KEYS: u64 = 64;
    let table = Arc::new(Memtable::with_room(8 << 20, 0, &Arc::new(Spare::new(0))));
    let shown = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (table, shown, done) = (Arc::clone(&table), Arc::clone(&shown), Arc::clone(&done));
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut last_round = false;
                while !last_round {
                    last_round = done.load(Memory::Acquire);
                    let as_of = shown.load(Memory::Acquire);
                    // At each place each key up to it has exactly the newest multiple.
                    let number = rng.below(KEYS);
                    let expected = (as_of > number).then(|| (as_of - number - 1) / KEYS * KEYS + number + 1);
                    let found = table
                        .get(&number.to_be_bytes(), as_of)
                        .map(|found| (found.seq, found.value.map(Row::into_vec)));
                    let value = |seq: u64| Some(seq.to_le_bytes().to_vec());
                    assert_eq!(found, expected.map(|seq| (seq, value(seq))), "key {number} as of {as_of}");
                    let mut cursor = MemCursor::new(Arc::clone(&table), as_of);
                    cursor.seek(&[]).unwrap();
                    let entries = walked(&mut cursor, |cursor| cursor.next().unwrap());
                    assert_eq!(entries.len() as u64, as_of.min(KEYS), "as of {as_of}");
                    assert_eq!(entries.iter().map(|(_, seq, _)| *seq).max().unwrap_or(0), as_of);
                }
            });
        }
        for seq in 1..=20_000_u64 {
            let key = ((seq - 1) % KEYS).to_be_bytes();
            assert!(table.insert(&Entry { key: &key, seq, value: Some(&seq.to_le_bytes()) }));
            shown.store(seq, Memory::Release);
        }
        done.store(true, Memory::Release);
    });
}

#[test]
fn turns_put_in_order_what_somebody_walks_and_nothing_else() {
    let (runs, _) = Runs::in_memory(Config::default()).unwrap();
    let ordered = || runs.now().active.ordered.load(Memory::Relaxed);
    let put = |seq| runs.apply(seq, &[Change::Put { key: b"k", value: b"v" }]).unwrap();
    put(1);
    runs.order();
    assert_eq!(ordered(), FIRST, "its flush will");
    let walk = || runs.view().range(Bound::Unbounded, Bound::Unbounded).next().unwrap().is_some();
    assert!(walk());
    let mut before = ordered();
    for turn in 0..ORDERED_TURNS {
        put(2 + u64::from(turn));
        runs.order();
        assert!(ordered() > before, "turn {turn}");
        before = ordered();
    }
    put(1_000);
    runs.order();
    assert_eq!(ordered(), before, "nobody has walked for long");
}

/// Who looks at a snapshot for what a counter was steps over all that it has become since, but not each time.
#[test]
fn turns_put_in_order_what_somebody_looks_far_back_in() {
    let (runs, _) = Runs::in_memory(Config::default()).unwrap();
    let ordered = || runs.now().active.ordered.load(Memory::Relaxed);
    let put = |seq| runs.apply(seq, &[Change::Put { key: b"k", value: b"v" }]).unwrap();
    put(1);
    let old = runs.view();
    (2..1_000).for_each(put);
    runs.order();
    assert!(runs.get(b"k").unwrap().is_some_and(|found| found.seq == 999));
    runs.order();
    assert_eq!(ordered(), FIRST, "the newest is found at once");
    assert!(old.get(b"k").unwrap().is_some_and(|found| found.seq == 1));
    runs.order();
    assert_eq!(ordered(), runs.now().active.laid.load(Memory::Relaxed));
    assert!(old.get(b"k").unwrap().is_some_and(|found| found.seq == 1));
}
