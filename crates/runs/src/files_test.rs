//! Blocks, runs and walks against ordered maps, both ways, and what look-ups cost. `rot`: what is damaged; `life`: what failures leave
//! behind; `parts`: entries in any order.

mod life;
mod parts;
mod rot;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use assent_sim::{Rng, SimDisk};
use assent_world::{Access, Barrier, Disk, Open, read_exact_at, write_all_at};

use crate::block::{Block, BlockBuilder, BlockCursor};
use crate::cache::Cache;
use crate::entry::Cursor;
use crate::level::{LevelCursor, find};
use crate::merged::Merged;
use crate::run::RunId;
use crate::run_reader::{OwnedEntry, Reading, Row, Run, read_facts};
use crate::run_writer::RunWriter;
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

    fn seq(&self) -> Option<u64> {
        self.0.seq()
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
    // Files of earlier programs must stay readable: another sum is another version. But for what whoever writes may choose, where restarts
    // are: with those of before it is 7_481 and 1_454_144_652_327_348_768, as it ever was.
    assert_eq!((bytes.len(), filter::hash(&bytes)), (7_506, 14_222_234_444_274_621_994));
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

/// The thread that changes the part of the cache that the filter stands in has lost its core: each reader read all of the filter anew.
#[test]
fn a_filter_that_cannot_be_looked_at_now_is_not_read_once_more() {
    let stage = Stage::new();
    let model: Model = (0..20_000_u32)
        .map(|n| ((n * 2).to_be_bytes().to_vec(), OwnedEntry { seq: 1, value: Some(Row::from_elem(1, 30)) }))
        .collect();
    let run = stage.run(1, &model, 4096);
    let cache = Cache::new(1 << 20, 0, 4096, 64).unwrap();
    // The run may not hold it.
    assert!(cache.take_out(1 << 19));
    let run = Run::open(&stage.disk, Path::new(FOLDER), run.facts().clone(), &cache);
    let get = |number: u32| run.get(&number.to_be_bytes(), filter::hash(&number.to_be_bytes())).unwrap();
    assert!(get(2).is_some() && (1..1_000).all(|number| get(number).is_some() == number.is_multiple_of(2)));
    let filter = run.opened().unwrap().footer.filter;
    let before = stage.sim.calls();
    let found = cache.meanwhile(run.id(), filter.offset, || [get(2).is_some(), get(3).is_some()]);
    assert_eq!(found, Some([true, false]), "and it was in the cache");
    // Its blocks may stand in the same part: an index block and a data block each, and no more.
    assert!(stage.sim.calls() - before <= 4, "{} calls", stage.sim.calls() - before);
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
