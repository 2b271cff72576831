//! Blocks, runs and walks against ordered maps, both ways; rot of any bit; what a failure leaves behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, Rng, SimDisk, Survival, fuzz};
use assent_world::{Access, Barrier, Disk, Open, read_exact_at, write_all_at};

use crate::block::{Block, BlockBuilder, BlockCursor};
use crate::cache::Cache;
use crate::entry::Cursor;
use crate::level::{LevelCursor, find};
use crate::merged::Merged;
use crate::parts::{Parts, Sizes};
use crate::run::{FOOTER_BYTES, Footer, RunFacts, RunId};
use crate::run_reader::{OwnedEntry, Reading, Row, Run, read_facts};
use crate::run_writer::{RUN, RunWriter};
use crate::seal::seal;
use crate::{Entry, RunsError, filter};

type Model = BTreeMap<Vec<u8>, OwnedEntry>;

const FOLDER: &str = "runs";
const NAMES: Barrier = Barrier::new("runs test: the folder");

struct Stage {
    sim: SimDisk,
    disk: Arc<dyn Disk>,
    cache: Arc<Cache>,
}

impl Stage {
    fn new() -> Self {
        let sim = SimDisk::new();
        sim.create_dir(FOLDER.as_ref()).unwrap();
        sim.sync_dir("".as_ref(), NAMES).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        Stage { sim, disk, cache: Cache::new(1 << 20, 0, 256, 64).unwrap() }
    }

    fn writer(&self, id: u64, block_bytes: u32) -> RunWriter {
        RunWriter::create(&self.disk, Path::new(FOLDER), RunId(id), block_bytes).unwrap()
    }

    fn run(&self, id: u64, model: &Model, block_bytes: u32) -> Arc<Run> {
        let mut writer = self.writer(id, block_bytes);
        model.iter().for_each(|(key, became)| writer.push(&entry(key, became)).unwrap());
        let facts = writer.finish(3).unwrap();
        Run::open(&self.disk, Path::new(FOLDER), facts, &self.cache)
    }

    /// The same run, as a process sees it that never read it.
    fn again(&self, run: &Run) -> Arc<Run> {
        let cache = Cache::new(1 << 20, 0, 256, 64).unwrap();
        Run::open(&self.disk, Path::new(FOLDER), run.facts().clone(), &cache)
    }

    fn bytes(&self, run: &Run) -> Vec<u8> {
        let file =
            self.disk.open(&run.id().path(Path::new(FOLDER)), Open { access: Access::Read, direct: false }).unwrap();
        let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        read_exact_at(&*file, 0, &mut bytes).unwrap();
        bytes
    }

    fn overwrite(&self, run: &Run, at: usize, bytes: &[u8]) {
        let file =
            self.disk.open(&run.id().path(Path::new(FOLDER)), Open { access: Access::Write, direct: false }).unwrap();
        write_all_at(&*file, u64::try_from(at).unwrap(), bytes).unwrap();
    }

    fn names(&self) -> Vec<String> {
        self.disk.list(FOLDER.as_ref()).unwrap()
    }
}

fn entry<'a>(key: &'a [u8], became: &'a OwnedEntry) -> Entry<'a> {
    Entry { key, seq: became.seq, value: became.value.as_deref() }
}

fn owned(entry: &Entry<'_>) -> (Vec<u8>, OwnedEntry) {
    (entry.key.to_vec(), OwnedEntry { seq: entry.seq, value: entry.value.map(Row::from_slice) })
}

/// Few letters and many lengths, so that keys share much, or are the start of one another.
fn any_key(rng: &mut Rng) -> Vec<u8> {
    let length = rng.below(12);
    let mut key = if rng.below(2) == 0 { b"a shared beginning/".to_vec() } else { Vec::new() };
    key.extend((0..length).map(|_| [0, 1, 0x7f, 0xff][rng.index(4)]));
    key
}

fn any_model(rng: &mut Rng, count: u64) -> Model {
    let mut model = Model::new();
    for _ in 0..count {
        let value = (rng.below(5) > 0).then(|| Row::from_elem(7, rng.index(40)));
        let bits = rng.below(60);
        model.insert(any_key(rng), OwnedEntry { seq: rng.below(1 << bits), value });
    }
    model
}

/// A cursor of a kind that does not fail, and the same moves in an ordered map.
fn agrees(cursor: &mut dyn Cursor, model: &Model, rng: &mut Rng, moves: u64, told: &str) {
    let keys: Vec<_> = model.keys().collect();
    // Where the model stands.
    let mut at: Option<usize> = None;
    for step in 0..moves {
        let key = if rng.below(2) == 0 || keys.is_empty() { any_key(rng) } else { keys[rng.index(keys.len())].clone() };
        match rng.below(16) {
            0 => {
                cursor.seek(&key).unwrap();
                at = Some(keys.partition_point(|other| **other < key)).filter(|at| *at < keys.len());
            }
            1 => {
                cursor.seek_back(Some(&key)).unwrap();
                at = keys.partition_point(|other| **other <= key).checked_sub(1);
            }
            2 => {
                cursor.seek_back(None).unwrap();
                at = keys.len().checked_sub(1);
            }
            3..10 => {
                cursor.next().unwrap();
                at = at.map(|at| at + 1).filter(|at| *at < keys.len());
            }
            _ => {
                cursor.prev().unwrap();
                at = at.and_then(|at| at.checked_sub(1));
            }
        }
        let expected = at.map(|at| entry(keys[at], &model[keys[at]]));
        assert_eq!(cursor.entry(), expected, "{told}, move {step}");
        assert_eq!(cursor.key(), expected.map(|entry| entry.key), "{told}, move {step}");
    }
}

struct OverBlock(BlockCursor);

impl Cursor for OverBlock {
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError> {
        self.0.seek(key).unwrap();
        Ok(())
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError> {
        match key {
            Some(key) => self.0.seek_back(key).unwrap(),
            None => self.0.last().unwrap(),
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(), RunsError> {
        self.0.next().unwrap();
        Ok(())
    }

    fn prev(&mut self) -> Result<(), RunsError> {
        self.0.prev().unwrap();
        Ok(())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.0.entry()
    }

    fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }
}

#[test]
fn a_block_finds_and_walks_like_an_ordered_map() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let count = rng.below(90);
        let model = any_model(&mut rng, count);
        let mut builder = BlockBuilder::default();
        model.iter().for_each(|(key, became)| builder.push(&entry(key, became)));
        let length = builder.len();
        let bytes = builder.finish();
        assert_eq!(bytes.len(), length);
        assert!(builder.is_empty(), "a builder begins again");
        let block = Arc::new(Block::parse(&bytes).unwrap());
        for key in model.keys().cloned().chain((0..50).map(|_| any_key(&mut rng))) {
            let expected = model.get(&key).map(|became| (became.seq, became.value.as_deref()));
            assert_eq!(block.get(&key).unwrap(), expected, "seed {seed}, {key:?}");
            let before =
                model.range(..=key.clone()).next_back().map(|(_, became)| became.value.as_deref().unwrap_or_default());
            assert_eq!(block.value_before(&key).unwrap(), before, "seed {seed}, {key:?}");
        }
        agrees(&mut OverBlock(BlockCursor::new(block)), &model, &mut rng, 300, &format!("seed {seed}"));
    }
}

#[test]
fn a_run_finds_and_walks_like_an_ordered_map() {
    for seed in 0..60 {
        let stage = Stage::new();
        let mut rng = Rng::new(seed);
        let count = [0, 1, 30, 600][rng.index(4)];
        let model = any_model(&mut rng, count);
        let block_bytes = [128, 300, 4096][rng.index(3)];
        let run = stage.run(1, &model, block_bytes);
        for key in model.keys().cloned().chain((0..200).map(|_| any_key(&mut rng))) {
            assert_eq!(run.get(&key, filter::hash(&key)).unwrap(), model.get(&key).cloned(), "seed {seed}, {key:?}");
        }
        for reading in [Reading::Cached, Reading::Ahead] {
            let told = format!("seed {seed}, {reading:?}");
            agrees(&mut run.cursor(reading), &model, &mut rng, 2_000, &told);
        }
        let facts = run.facts();
        assert_eq!(facts.entries, u64::try_from(model.len()).unwrap());
        assert_eq!(facts.tombstones, u64::try_from(model.values().filter(|one| one.value.is_none()).count()).unwrap());
        assert_eq!(facts.bytes, u64::try_from(stage.bytes(&run).len()).unwrap());
        assert_eq!(facts.knows, 3);
        if let (Some(first), Some(last)) = (model.keys().next(), model.keys().last()) {
            assert_eq!((&facts.first, &facts.last), (first, last));
            assert_eq!(facts.seq_min, model.values().map(|one| one.seq).min().unwrap());
            assert_eq!(facts.seq_max, model.values().map(|one| one.seq).max().unwrap());
        }
        let values = model.values().flat_map(|one| &one.value).map(|value| value.len()).sum::<usize>();
        assert_eq!(facts.value_bytes, u64::try_from(values).unwrap());
        assert_eq!(read_facts(&stage.disk, Path::new(FOLDER), RunId(1)), Ok(facts.clone()));
        let found = run.verify(&mut |error| panic!("seed {seed}: {error}"));
        assert_eq!((found.entries, found.damaged), (facts.entries, 0));
    }
}

#[test]
fn the_bytes_of_a_run_are_those_of_version_1() {
    let stage = Stage::new();
    let model: Model = (0..300_u32)
        .map(|n| {
            let value = (n % 7 > 0).then(|| n.to_le_bytes().repeat(3).into());
            (format!("key {:05}", n * n).into_bytes(), OwnedEntry { seq: u64::from(n) << (n % 40), value })
        })
        .collect();
    let bytes = stage.bytes(&stage.run(1, &model, 512));
    // Files of earlier programs must stay readable: another sum is another version.
    assert_eq!((bytes.len(), filter::hash(&bytes)), (7_481, 1_454_144_652_327_348_768));
}

#[test]
fn a_level_walks_like_one_run() {
    for seed in 0..40 {
        let stage = Stage::new();
        let mut rng = Rng::new(seed);
        let model = any_model(&mut rng, 400);
        let mut runs = Vec::new();
        let mut rest = model.clone();
        while !rest.is_empty() {
            let cut = rest.keys().nth(rng.index(120) + 1).cloned();
            let behind = cut.map_or_else(Model::new, |cut| rest.split_off(&cut));
            runs.push(stage.run(u64::try_from(runs.len()).unwrap(), &rest, 256));
            rest = behind;
        }
        let runs: Arc<[_]> = runs.into();
        for key in model.keys() {
            let run = &runs[find(&runs, key)];
            assert_eq!(run.get(key, filter::hash(key)).unwrap().as_ref(), model.get(key));
        }
        for reading in [Reading::Cached, Reading::Ahead] {
            let mut level = LevelCursor::new(Arc::clone(&runs), reading);
            agrees(&mut level, &model, &mut rng, 2_000, &format!("seed {seed}, {reading:?}"));
        }
        agrees(&mut LevelCursor::new(Arc::new([]), Reading::Cached), &Model::new(), &mut rng, 20, "no runs");
    }
}

#[test]
fn the_newest_of_equal_keys_shows_and_the_hidden_ones_are_told() {
    for seed in 0..60 {
        let stage = Stage::new();
        let mut rng = Rng::new(seed);
        let mut sources: Vec<Arc<Run>> = Vec::new();
        let mut model = Model::new();
        let mut all = 0;
        // Older ones first; each is newer than all before it.
        for age in 0..rng.range(1..9) {
            let count = rng.below(200);
            let mut one = any_model(&mut rng, count);
            one.values_mut().for_each(|became| became.seq = age * 1_000 + became.seq % 1_000);
            all += one.len();
            sources.push(stage.run(age, &one, 256));
            model.append(&mut one);
        }
        let merged = |reading| {
            let cursors = sources.iter().rev().map(|run| Box::new(run.cursor(reading)) as Box<dyn Cursor>);
            Merged::new(cursors.collect())
        };
        agrees(&mut merged(Reading::Cached), &model, &mut rng, 3_000, &format!("seed {seed}"));
        let mut walk = merged(Reading::Ahead);
        let (mut shown, mut hidden) = (BTreeMap::new(), BTreeSet::new());
        walk.seek(&[]).unwrap();
        while let Some(entry) = walk.entry() {
            let (key, became) = owned(&entry);
            shown.insert(key.clone(), became);
            walk.advance(&mut |entry| {
                assert_eq!(entry.key, key, "seed {seed}");
                assert!(entry.seq < shown[entry.key].seq, "seed {seed}");
                hidden.insert((entry.key.to_vec(), entry.seq));
            })
            .unwrap();
        }
        assert_eq!(shown, model, "seed {seed}");
        assert_eq!(shown.len() + hidden.len(), all, "seed {seed}: every entry is shown or told");
    }
}

#[test]
fn any_flipped_bit_is_told_and_never_another_answer() {
    let stage = Stage::new();
    let mut rng = Rng::new(7);
    let model = any_model(&mut rng, 60);
    let run = stage.run(1, &model, 128);
    let good = stage.bytes(&run);
    let strangers: Vec<_> = (0..20).map(|_| any_key(&mut rng)).filter(|key| !model.contains_key(key)).collect();
    let is_damage = |error: &RunsError| {
        assert!(matches!(error, RunsError::Damaged { file, .. } if file.ends_with("0000000000000001.run")), "{error}");
    };
    for bit in 0..good.len() * 8 {
        let at = bit / 8;
        stage.overwrite(&run, at, &[good[at] ^ (1 << (bit % 8))]);
        let run = stage.again(&run);
        for (key, expected) in
            model.iter().map(|(key, one)| (key, Some(one))).chain(strangers.iter().map(|key| (key, None)))
        {
            match run.get(key, filter::hash(key)) {
                Ok(found) => assert_eq!(found.as_ref(), expected, "bit {bit}, {key:?}"),
                Err(error) => is_damage(&error),
            }
        }
        let mut cursor = run.cursor(if bit % 2 == 0 { Reading::Cached } else { Reading::Ahead });
        let mut expected = model.iter();
        let mut moved = cursor.seek(&[]);
        loop {
            match moved {
                Ok(()) => {}
                Err(error) => break is_damage(&error),
            }
            assert_eq!(cursor.entry(), expected.next().map(|(key, one)| entry(key, one)), "bit {bit}");
            if cursor.entry().is_none() {
                break;
            }
            moved = cursor.next();
        }
        let mut told = 0;
        let found = run.verify(&mut |error| {
            is_damage(error);
            told += 1;
        });
        assert!(told > 0 && found.damaged == told, "bit {bit} of {} is told", good.len() * 8);
        stage.overwrite(&run, at, &good[at..=at]);
    }
    assert_eq!(stage.again(&run).verify(&mut |error| panic!("{error}")).damaged, 0);
}

#[test]
fn behind_a_rotten_sector_the_rest_is_read() {
    let stage = Stage::new();
    let model: Model = (0..2_000_u32)
        .map(|number| {
            (number.to_be_bytes().to_vec(), OwnedEntry { seq: number.into(), value: Some(Row::from_elem(1, 50)) })
        })
        .collect();
    let run = stage.run(1, &model, 512);
    let good = stage.bytes(&run);
    let footer = Footer::read(good.last_chunk().unwrap(), RunId(1)).unwrap();
    // In the midst of the data: other blocks are read, by key and by a walk that goes around.
    stage.overwrite(&run, 40 * 512, &[0xee; 512]);
    let rotten = stage.again(&run);
    let lost = model.keys().filter(|key| rotten.get(key, filter::hash(key)).is_err()).count();
    assert!((1..40).contains(&lost), "{lost} of 2,000 keys cannot be read");
    let (mut walked, mut breaks) = (0, 0);
    let mut cursor = rotten.cursor(Reading::Cached);
    for key in model.keys() {
        match cursor.seek(key) {
            Ok(()) => walked += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt);
                assert!(cursor.entry().is_none());
                breaks += 1;
            }
        }
    }
    assert_eq!((walked, breaks), (2_000 - lost, lost));
    let mut told = Vec::new();
    let found = rotten.verify(&mut |error| told.push(error.clone()));
    assert_eq!(found.entries, u64::try_from(2_000 - lost).unwrap());
    assert!(
        told.iter().all(|error| matches!(error, RunsError::Damaged { offset, .. } if offset.abs_diff(40 * 512) < 1024))
    );
    stage.overwrite(&run, 40 * 512, &good[40 * 512..41 * 512]);
    // In the filter: every key is found without it.
    let at = usize::try_from(footer.filter.offset).unwrap() + 100;
    stage.overwrite(&run, at, &[0xee; 512]);
    let rotten = stage.again(&run);
    assert!(model.iter().all(|(key, one)| rotten.get(key, filter::hash(key)).unwrap().as_ref() == Some(one)));
    let mut told = Vec::new();
    assert_eq!(rotten.verify(&mut |error| told.push(error.to_string())).entries, 2_000);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&format!("at byte {}", footer.filter.offset)), "{told:?}");
}

#[test]
fn a_check_believes_neither_the_facts_nor_the_filter() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(11), 300);
    let run = stage.run(1, &model, 256);
    let told = |change: &dyn Fn(&mut RunFacts)| {
        let mut facts = run.facts().clone();
        change(&mut facts);
        let mut told = Vec::new();
        let run = Run::open(&stage.disk, Path::new(FOLDER), facts, &Cache::new(0, 0, 256, 64).unwrap());
        run.verify(&mut |error| told.push(error.to_string()));
        told.join("\n")
    };
    assert_eq!(told(&|_| ()), "");
    let words = "not those of the manifest";
    assert!(told(&|facts| facts.value_bytes += 1).contains(words));
    assert!(told(&|facts| facts.entries += 1).contains("were written"));
    assert!(told(&|facts| facts.tombstones -= 1).contains("were written"));
    assert!(told(&|facts| facts.seq_max -= 1).contains("not one of this run"));
    assert!(told(&|facts| facts.seq_min += 1).contains("not one of this run"));
    assert!(told(&|facts| facts.first.push(0)).contains("out of order"));
    assert!(told(&|facts| _ = facts.last.pop()).contains("out of order"));
    // A filter over other keys, whole and sealed for its place.
    let bytes = stage.bytes(&run);
    let place = Footer::read(bytes.last_chunk().unwrap(), RunId(1)).unwrap().filter;
    let others = 0..u64::try_from(model.len()).unwrap();
    let mut filter = filter::lay(&mut others.map(filter::mix).collect());
    seal(&mut filter, RunId(1), place.offset);
    assert_eq!(filter.len(), usize::try_from(place.length).unwrap());
    stage.overwrite(&run, usize::try_from(place.offset).unwrap(), &filter);
    assert!(told(&|_| ()).contains("denies a key"));
}

#[test]
fn a_file_that_is_not_the_run_is_damage_and_not_an_empty_one() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(1), 50);
    let run = stage.run(1, &model, 256);
    let other = stage.run(2, &model, 256);
    let key = model.keys().next().unwrap();
    let refused = |words: &str| {
        let error = stage.again(&run).get(key, filter::hash(key)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains(words), "{error}");
    };
    let path = run.id().path(Path::new(FOLDER));
    stage.disk.rename(&other.id().path(Path::new(FOLDER)), &path).unwrap();
    refused("the file is run 0000000000000002");
    let file = stage.disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
    file.set_size(run.facts().bytes - 1).unwrap();
    refused("it was written with");
    stage.disk.unlink(&path).unwrap();
    refused("the file is not there");
}

#[test]
fn a_passing_failure_to_read_passes() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(1), 300);
    let run = stage.run(1, &model, 256);
    let (key, one) = model.iter().nth(150).unwrap();
    let mut failed = 0;
    for nth in 1.. {
        let run = stage.again(&run);
        let calls = stage.sim.calls();
        run.get(key, filter::hash(key)).unwrap();
        if nth > stage.sim.calls() - calls {
            // Open, size, end and data were failed, each in turn; where the stretch was, its pieces are read by themselves.
            return assert_eq!((failed, nth), (4, 6));
        }
        let run = stage.again(&run);
        stage.sim.inject(Call::any(nth), Fault::Io);
        match run.get(key, filter::hash(key)) {
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unavailable, "call {nth}");
                failed += 1;
            }
            // It was the stretch: each of its pieces was read by itself.
            Ok(found) => assert_eq!(found.as_ref(), Some(one), "call {nth}"),
        }
        assert_eq!(run.get(key, filter::hash(key)).unwrap().as_ref(), Some(one), "call {nth}");
    }
}

#[test]
fn the_sync_of_a_run_is_what_keeps_it() {
    let model = any_model(&mut Rng::new(3), 500);
    for ignored in [false, true] {
        let stage = Stage::new();
        if ignored {
            stage.sim.ignore(RUN);
        }
        let run = stage.run(1, &model, 256);
        stage.disk.sync_dir(FOLDER.as_ref(), NAMES).unwrap();
        stage.sim.cut_power(Survival::Nothing);
        let damaged = stage.again(&run).verify(&mut |_| {}).damaged;
        assert_eq!(damaged > 0, ignored, "{damaged} places are damaged");
    }
}

#[test]
fn whatever_fails_leaves_no_file() {
    let model = any_model(&mut Rng::new(3), 500);
    let write = |stage: &Stage| -> Result<(), RunsError> {
        let mut writer = RunWriter::create(&stage.disk, FOLDER.as_ref(), RunId(1), 256)?;
        model.iter().try_for_each(|(key, one)| writer.push(&entry(key, one)))?;
        writer.finish(0).map(drop)
    };
    let stage = Stage::new();
    let before = stage.sim.calls();
    write(&stage).unwrap();
    let calls = stage.sim.calls() - before;
    assert!(calls >= 3, "create, write, sync");
    for nth in 1..=calls {
        let stage = Stage::new();
        stage.sim.inject(Call::any(nth), Fault::Io);
        assert_eq!(write(&stage).unwrap_err().kind(), Kind::Unavailable, "call {nth}");
        assert_eq!(stage.names(), [""; 0], "call {nth}");
    }
    let stage = Stage::new();
    stage.sim.set_capacity(Some(stage.sim.used_bytes() + 4096));
    assert_eq!(write(&stage).unwrap_err().kind(), Kind::Full);
    assert_eq!(stage.names(), [""; 0]);
    // A writer that is given up.
    drop(stage.writer(1, 256));
    assert_eq!(stage.names(), [""; 0]);
    stage.sim.set_capacity(None);
    write(&stage).unwrap();
    assert_eq!(stage.names(), ["0000000000000001.run"]);
}

#[test]
fn a_doomed_run_goes_with_the_last_who_uses_it() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(5), 100);
    let run = stage.run(1, &model, 256);
    let spared = stage.run(2, &model, 256);
    let mut walk = run.cursor(Reading::Cached);
    run.doom();
    spared.doom();
    spared.spare();
    drop((run, spared));
    assert_eq!(stage.names().len(), 2);
    agrees(&mut walk, &model, &mut Rng::new(6), 500, "while it is doomed");
    drop(walk);
    assert_eq!(stage.names(), ["0000000000000002.run"]);
}

#[test]
fn most_look_ups_for_strangers_read_no_block() {
    let stage = Stage::new();
    let value = Some(Row::from_elem(1, 30));
    let model: Model = (0..20_000_u32)
        .map(|n| ((n * 2).to_be_bytes().to_vec(), OwnedEntry { seq: 1, value: value.clone() }))
        .collect();
    let run = stage.run(1, &model, 4096);
    let ask = |number: u32| run.get(&number.to_be_bytes(), filter::hash(&number.to_be_bytes())).unwrap();
    assert!(ask(2).is_some());
    let before = stage.cache.facts();
    assert!((0..5_000).all(|number| ask(number * 2 + 1).is_none()));
    let after = stage.cache.facts();
    // The run holds its filter and its index: one block is looked for where the filter says "perhaps".
    let pieces = after.hits + after.misses - before.hits - before.misses;
    assert!(pieces < 5_000 / 60, "{pieces} pieces for 5,000 strangers");
    let memory = run.memory_bytes();
    assert!(memory < run.facts().bytes / 100, "{memory} bytes of memory for a file of {}", run.facts().bytes);
    // Who reads everything once takes nobody's place.
    let before = stage.cache.facts();
    let mut walk = run.cursor(Reading::Ahead);
    walk.seek(&[]).unwrap();
    while walk.entry().is_some() {
        walk.next().unwrap();
    }
    run.verify(&mut |error| panic!("{error}"));
    assert_eq!(stage.cache.facts(), before);
}

#[test]
fn a_cache_that_takes_no_filter_costs_two_reads_a_look_up() {
    let stage = Stage::new();
    let model: Model = (0..20_000_u32)
        .map(|n| (n.to_be_bytes().to_vec(), OwnedEntry { seq: 1, value: Some(Row::from_elem(1, 30)) }))
        .collect();
    let run = stage.run(1, &model, 4096);
    let run = Run::open(&stage.disk, Path::new(FOLDER), run.facts().clone(), &Cache::new(0, 0, 4096, 64).unwrap());
    let get = |number: u32| run.get(&number.to_be_bytes(), filter::hash(&number.to_be_bytes())).unwrap();
    assert!(get(7).is_some());
    let before = stage.sim.calls();
    assert!((0..100).all(|number| get(number).is_some()));
    assert_eq!(stage.sim.calls() - before, 200, "an index block and a data block each");
}

#[test]
fn what_all_look_ups_ask_is_read_at_once_and_by_itself_where_a_sector_is_lost() {
    let stage = Stage::new();
    let value = Some(Row::from_elem(1, 30));
    let model: Model =
        (0..20_000_u32).map(|n| (n.to_be_bytes().to_vec(), OwnedEntry { seq: 1, value: value.clone() })).collect();
    let run = stage.run(1, &model, 256);
    let filter = Footer::read(stage.bytes(&run).last_chunk().unwrap(), RunId(1)).unwrap().filter;
    let get = |run: &Run, number: u32| run.get(&number.to_be_bytes(), filter::hash(&number.to_be_bytes()));
    let calls = |run: &Run| {
        let before = stage.sim.calls();
        assert!(get(run, 0).unwrap().is_some());
        stage.sim.calls() - before
    };
    // Some 190 blocks of the index: the file is opened and asked for its size, its end is read, filter and index, one block.
    assert_eq!(calls(&stage.again(&run)), 5);
    // The last block of the index stands before the filter: keys that neither it nor its neighbours lead to are found.
    stage.sim.set_unreadable(&run.id().path(Path::new(FOLDER)), filter.offset / 512 - 1, true);
    let rotten = stage.again(&run);
    assert!(calls(&rotten) > 100, "each by itself");
    let lost = (0..20_000).filter(|number| get(&rotten, *number).is_err()).count();
    assert!((1..1_000).contains(&lost), "{lost} of 20,000 keys are lost with one sector");
}

#[test]
fn a_file_that_was_cut_in_its_filter_is_read_without_one() {
    // A file was cut after its end had been read: every look-up was told `Corrupt`, also of keys in blocks that are whole.
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(1), 300);
    let run = stage.run(1, &model, 256);
    let filter = Footer::read(stage.bytes(&run).last_chunk().unwrap(), RunId(1)).unwrap().filter;
    // Held by the run, and through a cache that lends it nothing.
    let lent = stage.again(&run);
    let cache = Cache::new(u64::from(filter.length) * 2, 0, 256, 64).unwrap();
    let through = Run::open(&stage.disk, Path::new(FOLDER), run.facts().clone(), &cache);
    assert!(cache.takes(filter.length.into()) && !cache.take_out(u64::from(filter.length) + 1));
    assert!(lent.top().is_ok() && through.top().is_ok());
    let access = Open { access: Access::Write, direct: false };
    let file = stage.disk.open(&run.id().path(Path::new(FOLDER)), access).unwrap();
    file.set_size(filter.offset + 1).unwrap();
    for run in [lent, through] {
        for (key, one) in &model {
            assert_eq!(run.get(key, filter::hash(key)).unwrap().as_ref(), Some(one));
        }
    }
}

#[test]
fn the_longest_keys_and_values_fit() {
    let stage = Stage::new();
    let mut model = Model::new();
    for number in 0..40_u8 {
        let mut key = vec![number / 2; (64 << 10) + 16];
        *key.last_mut().unwrap() = number;
        model.insert(key, OwnedEntry { seq: u64::MAX, value: Some(Row::from_elem(number, 128 << 10)) });
    }
    let run = stage.run(1, &model, 4096);
    assert!(model.iter().all(|(key, one)| run.get(key, filter::hash(key)).unwrap().as_ref() == Some(one)));
    agrees(&mut run.cursor(Reading::Ahead), &model, &mut Rng::new(1), 200, "long");
    assert_eq!(stage.again(&run).verify(&mut |error| panic!("{error}")).entries, 40);
}

fn sizes() -> Sizes {
    Sizes { part_bytes: 4 << 10, run_bytes: 8 << 10, block_bytes: 256 }
}

#[test]
fn parts_in_any_order_become_runs_in_order() {
    for seed in 0..6 {
        let stage = Stage::new();
        let mut rng = Rng::new(seed);
        let mut parts = Parts::new(&stage.disk, Path::new(FOLDER), sizes(), 40).unwrap();
        let mut model = Model::new();
        // Enough that parts of parts are made: 64 and more of them are spilt. Or few keys and places, so that many are equal.
        let (count, keys, places) = if seed == 0 { (12_000_u64, 3_000, 500) } else { (900, 60, 6) };
        for number in 0..count {
            let key = rng.below(keys).to_be_bytes().to_vec();
            let value = (rng.below(6) > 0).then(|| number.to_be_bytes().repeat(25).into());
            let one = OwnedEntry { seq: rng.below(places), value };
            parts.add(&entry(&key, &one)).unwrap();
            // The greatest seq is kept; of equal ones, the last that was added.
            if model.get(&key).is_none_or(|other: &OwnedEntry| other.seq <= one.seq) {
                model.insert(key, one);
            }
        }
        model.retain(|key, one| one.value.is_some() && key[7] % 10 != 3);
        let (mut paced, mut asked) = (0, Vec::new());
        let keep = &mut |entry: &Entry<'_>| {
            assert!(entry.value.is_some());
            asked.push(entry.key.to_vec());
            entry.key[7] % 10 != 3
        };
        let pace = &mut |bytes| {
            paced += bytes;
            Ok(())
        };
        let built = parts.finish(9, keep, pace).unwrap();
        assert!(asked.is_sorted_by(|a, b| a < b), "seed {seed}: each key is judged once, in order");
        assert!(seed > 0 || paced > 0, "{paced} bytes");
        let runs: Arc<[_]> = built.runs.into();
        assert!(seed > 0 || runs.len() > 10, "{} runs", runs.len());
        assert!(runs.is_sorted_by(|a, b| a.facts().last < b.facts().first));
        assert!(runs.iter().all(|run| run.facts().knows == 9 && run.facts().bytes < 12 << 10));
        assert!(runs.iter().all(|run| (40..built.next_id).contains(&run.id().0)));
        let mut walk = LevelCursor::new(Arc::clone(&runs), Reading::Cached);
        walk.seek(&[]).unwrap();
        let mut found = Model::new();
        while let Some(entry) = walk.entry() {
            let (key, one) = owned(&entry);
            found.insert(key, one);
            walk.next().unwrap();
        }
        assert_eq!(found, model, "seed {seed}");
        assert_eq!(stage.names().len(), runs.len(), "no part is left");
        runs.iter().for_each(|run| run.spare());
        drop((walk, runs));
        assert!(!stage.names().is_empty(), "seed {seed}: spared runs stay");
    }
}

#[test]
fn parts_that_are_given_up_leave_no_file() {
    let fill = |stage: &Stage| -> Result<Parts, RunsError> {
        let mut parts = Parts::new(&stage.disk, Path::new(FOLDER), sizes(), 0)?;
        for number in 0..9_000_u64 {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            parts.add(&Entry { key: &key, seq: number, value: Some(&[1; 60]) })?;
        }
        Ok(parts)
    };
    let stage = Stage::new();
    let parts = fill(&stage).unwrap();
    assert!(!stage.names().is_empty());
    drop(parts);
    assert_eq!(stage.names(), [""; 0]);
    let stopped = RunsError::Closed { reason: "the owner stops".to_owned() };
    let refused = fill(&stage).unwrap().finish(0, &mut |_| true, &mut |_| Err(stopped.clone()));
    assert_eq!(refused.unwrap_err(), stopped);
    assert_eq!(stage.names(), [""; 0]);
    stage.sim.inject(Call::of(Operation::Write, 90), Fault::Full);
    let refused = fill(&stage).and_then(|parts| parts.finish(0, &mut |_| true, &mut |_| Ok(())));
    assert_eq!(refused.unwrap_err().kind(), Kind::Full);
    assert_eq!(stage.names(), [""; 0]);
    // Numbers of files that are there already are not used.
    _ = stage.run(77, &Model::new(), 256);
    let built = fill(&stage).unwrap().finish(0, &mut |_| true, &mut |_| Ok(())).unwrap();
    assert!(built.runs.iter().all(|run| run.id().0 > 77));
}

#[test]
fn fuzz_run_file_takes_any_bytes() {
    let stage = Stage::new();
    let model = any_model(&mut Rng::new(7), 200);
    let run = stage.run(1, &model, 256);
    let good = stage.bytes(&run);
    let footer = Footer::read(good.last_chunk::<FOOTER_BYTES>().unwrap(), RunId(1)).unwrap();
    let mut builder = BlockBuilder::default();
    model.iter().for_each(|(key, one)| builder.push(&entry(key, one)));
    let block = builder.finish();
    let filter = filter::lay(&mut model.keys().map(|key| filter::hash(key)).collect());
    assert!(usize::try_from(footer.facts.offset).unwrap() < good.len());
    let runs = fuzz(7, &[&good, &block, &filter, b"x"], crate::fuzzing::fuzz_run_file);
    assert!(runs > 1000, "{runs} inputs");
}
