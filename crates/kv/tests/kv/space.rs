//! Writers that overwrite as fast as they may, and a disk that is slower: what the whole folder takes stays within its bound, and so does
//! what is written for it. Bytes and virtual time, the same each time.
//!
//! In mean the bound is held, at most it is passed by less than a hundredth: each volume more that is kept free below it is 0.004 less of
//! that, and 0.02 more writes.
//! The ignored rows play stores of 256 MiB and 1 GiB: blocks of 4096 and the ends of segments are a smaller part of their files (`make
//! space`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assent_journal::{Journal, Log};
use assent_kv::{Config, Durability, Kv, Op};
use assent_runs::{Go, Pace};
use assent_sim::{Rng, SimClock, SimDice, SimDisk};
use assent_world::{Access, Clock, Disk, Moment, Open};

use super::counting::{Counting, Reads};
use super::keep;

/// So many times smaller than a store of 4 GiB with default sizes: segments of 16 MiB, memory of 16, volumes of 16 to 64.
const SCALE: u64 = 32;
/// Of the ignored rows.
const LARGER: u64 = 16;
const LARGEST: u64 = 4;
/// Keys of a store of 4 GiB.
const KEYS: u64 = 512 << 10;
const VALUE_BYTES: usize = 8 << 10;
const WRITERS: u64 = 8;
/// What a put costs besides waiting.
const PUT: Duration = Duration::from_millis(1);
/// What the disk takes in the background: less than half of what these writers could make it write.
const BACKGROUND_BYTES_PER_SECOND: u64 = 30 << 20;

/// A store that plays a larger one, whose sizes are so many times the default ones as it is smaller.
#[derive(Clone, Copy)]
struct Size {
    scale: u64,
    keys: u64,
    /// Its ledger is longer than twice its cache; and so many times as long, beside that and its levels, as that of such a store is.
    deep: Option<u64>,
}

/// A store of 4 GiB, so many times smaller. Its ledger is near memory.
const fn small(scale: u64) -> Size {
    Size { scale, keys: KEYS / scale, deep: None }
}

/// A key of so many for each draw.
type Draw = fn(&mut Rng, u64) -> u64;

fn uniform(rng: &mut Rng, keys: u64) -> u64 {
    rng.below(keys)
}

/// As the race draws them: of a Pareto distribution of shape 1.5, 80 % of the draws on 20 % of the keys.
#[expect(clippy::cast_sign_loss, reason = "a share of a count, at least 0")]
fn pareto(rng: &mut Rng, keys: u64) -> u64 {
    let (shape, scale) = (1.5, 0.119);
    let whole = 1.0 - (1.0_f64 + 1.0 / scale).powf(-shape);
    let unit = rng.below(1 << 40) as f64 / (1_u64 << 40) as f64;
    let place = ((1.0 - unit * whole).powf(-1.0 / shape) - 1.0) * scale;
    ((place * keys as f64) as u64).min(keys - 1)
}

fn key(number: u64) -> [u8; 17] {
    let mut key = *b"o________________";
    key[1..9].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

struct Writers {
    rng: Rng,
    due: BinaryHeap<Reverse<(Moment, u64)>>,
    puts: u64,
    value: Vec<u8>,
    seen: Seen,
}

/// What was seen since the store is in its stride.
#[derive(Default)]
struct Seen {
    space_max: f64,
    space_sum: f64,
    looks: u64,
    /// When it was most.
    parts_most: [u64; 4],
    /// Of each put.
    delays: Vec<Duration>,
    parts: [u64; 4],
    parts_looks: u64,
    /// Pieces of the ledger's files that flushes read, and their bytes.
    looked_up: [u64; 2],
}

/// The store, its writers, and a disk that they share with what is behind.
struct Race {
    disk: SimDisk,
    ledger_reads: Arc<Reads>,
    clock: SimClock,
    log: Arc<Journal>,
    kv: Kv,
    draw: Draw,
    keys: u64,
    is_lazy: bool,
    writers: Mutex<Writers>,
}

/// What was written so far: by the journal, whose pages are written once where nobody waits for a sync, as zeroes ahead of it, by compactions,
/// by the ledger.
fn written(race: &Race) -> [u64; 4] {
    let (journal, stats, (ledger, _)) = (race.log.counts(), race.kv.stats(), race.kv.ledger_facts());
    let laid = if race.is_lazy { race.log.end().0 } else { journal.bytes };
    [laid, journal.zeroed_bytes, stats.compacted_bytes_out, ledger.flushed_bytes + ledger.merged_bytes]
}

fn files_bytes(disk: &SimDisk, folder: &Path) -> u64 {
    let open = |name: &String| disk.open(&folder.join(name), Open { access: Access::Read, direct: false });
    let names = disk.list(folder).unwrap_or_default();
    names.iter().filter_map(|name| open(name).ok()?.size().ok()).sum()
}

/// Bytes of the log, of those of it that are idle, of volumes and of the ledger.
fn parts(race: &Race) -> [u64; 4] {
    let files = |folder| files_bytes(&race.disk, Path::new(folder));
    [files("log"), race.log.idle_bytes(), files("kv-values"), files("kv")]
}

const PUT_BYTES: u64 = VALUE_BYTES as u64 + 17;

impl Race {
    fn new(draw: Draw, is_lazy: bool, Size { scale, keys, deep }: Size) -> Self {
        let (disk, clock) = (SimDisk::new(), SimClock::new());
        let journal = assent_journal::Config {
            // As `assent serve` and the race have it.
            log_size: (16 << 20) / scale + 4096,
            max_buffer_log_size: 64 << 10,
            max_elapsed_sync_time: if is_lazy { 1000 } else { 0 },
            kept_until_released: true,
            ..Default::default()
        };
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let (the_disk, dice) = (Arc::new(disk.clone()), Arc::new(SimDice::new(1)));
        let (log, _) = Journal::open(the_disk, Arc::clone(&shared), dice, Path::new("log"), journal).unwrap();
        let default = Config::default();
        let config = Config {
            memory_bytes: default.memory_bytes / scale,
            checkpoint_bytes: default.checkpoint_bytes / scale,
            volume_bytes: default.volume_bytes / scale,
            space_room_bytes_min: default.space_room_bytes_min / scale,
            cache_bytes: deep.map_or(4 << 20, |deep| default.cache_bytes / scale / deep),
            level_bytes: deep.map_or(default.level_bytes, |deep| default.level_bytes / scale / deep),
            ..default
        };
        let ledger_reads = Arc::<Reads>::default();
        let counting = Counting { disk: disk.clone(), folder: "kv", reads: Arc::clone(&ledger_reads) };
        let journal: Arc<dyn Log> = Arc::<Journal>::clone(&log);
        let kv = Kv::open(journal, Arc::new(counting), shared, Path::new("kv"), config).unwrap();
        let writers = Writers {
            rng: Rng::new(7),
            due: BinaryHeap::new(),
            puts: 0,
            value: vec![7; VALUE_BYTES],
            seen: Seen::default(),
        };
        Self { disk, ledger_reads, clock, log, kv, draw, keys, is_lazy, writers: Mutex::new(writers) }
    }

    fn put(&self, writers: &mut Writers, number: u64) -> Duration {
        writers.puts += 1;
        let puts = writers.puts;
        writers.value[..8].copy_from_slice(&puts.to_le_bytes());
        let key = key(number);
        let ops = [Op::put(0, &key, &writers.value)];
        let delay = self.kv.delay(&ops);
        self.kv.wait(self.kv.batch_begin(&ops, Durability::Buffered).unwrap()).unwrap();
        if puts.is_multiple_of(16) {
            let before = self.ledger_reads.counts();
            self.kv.tick();
            let after = self.ledger_reads.counts();
            writers.seen.looked_up.iter_mut().zip(before.iter().zip(after)).for_each(|(sum, (a, b))| *sum += b - a);
            self.log.maintain();
        }
        delay
    }

    /// What writers do until then.
    fn run_until(&self, end: Moment) {
        let mut writers = self.writers.lock().unwrap();
        while let Some(Reverse((at, writer))) = writers.due.peek().copied() {
            if at > end {
                break;
            }
            writers.due.pop();
            self.clock.advance(at.since(self.clock.now()));
            let number = (self.draw)(&mut writers.rng, self.keys);
            let delay = self.put(&mut writers, number);
            writers.seen.delays.push(delay);
            writers.due.push(Reverse((self.clock.now().after(PUT + delay), writer)));
            if writers.puts.is_multiple_of(16) {
                let space = self.disk.used_bytes() as f64 / (self.keys * PUT_BYTES) as f64;
                if space > writers.seen.space_max {
                    (writers.seen.space_max, writers.seen.parts_most) = (space, parts(self));
                }
                writers.seen.space_sum += space;
                writers.seen.looks += 1;
                if writers.seen.looks.is_multiple_of(64) {
                    let parts = parts(self);
                    let sums = &mut writers.seen.parts;
                    sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
                    writers.seen.parts_looks += 1;
                }
            }
        }
        drop(writers);
        self.clock.advance(end.since(self.clock.now()));
    }

    fn race(&self, puts: u64) {
        let end = self.writers.lock().unwrap().puts + puts;
        while self.writers.lock().unwrap().puts < end {
            if !self.kv.work(self) {
                // It is always asked: nobody is slowed down while it rests, and who would be wakes it.
                let delay = self.kv.delay(&[Op::put(0, &key(0), &[7; VALUE_BYTES])]);
                assert_eq!(delay, Duration::ZERO, "nothing is done for who waits");
                self.run_until(self.clock.now().after(Duration::from_millis(1)));
            }
        }
    }
}

/// Who works in the background waits until the disk has taken it; writers go on meanwhile.
impl Pace for Race {
    fn wrote(&self, bytes: u64) -> Go {
        let us = bytes * 1_000_000 / BACKGROUND_BYTES_PER_SECOND;
        self.run_until(self.clock.now().after(Duration::from_micros(us)));
        Go::On
    }
}

/// What came of a race.
#[derive(Debug)]
struct Raced {
    space_mean: f64,
    space_max: f64,
    /// By the journal, as zeroes ahead of it, by compactions and by the ledger, by what was put.
    written: [f64; 4],
    /// What the disk took in the background, of what it takes.
    busy: f64,
    mean_delay: Duration,
    /// What one put of a thousand waits longer than.
    long_delay: Duration,
    /// Pieces of the ledger's files that flushes have read for a put, and all.
    looked_up: [f64; 2],
}

fn race(name: &str, draw: Draw, is_lazy: bool, size: Size) -> Raced {
    let race = Race::new(draw, is_lazy, size);
    {
        let mut writers = race.writers.lock().unwrap();
        for number in 0..race.keys {
            race.put(&mut writers, number);
            if number % 64 == 0 {
                keep(&race.kv);
            }
        }
        let now = race.clock.now();
        writers.due = (0..WRITERS).map(|writer| Reverse((now, writer))).collect();
    }
    race.race(2 * race.keys);
    let first = {
        let mut writers = race.writers.lock().unwrap();
        writers.seen = Seen::default();
        writers.puts
    };
    let (before, from, reads_before) = (written(&race), race.clock.now(), race.ledger_reads.counts());
    race.race(2 * race.keys);
    let mut writers = race.writers.lock().unwrap();
    writers.seen.delays.sort_unstable();
    let Seen { space_max, space_sum, looks, parts_most, delays, parts, parts_looks, looked_up } = &writers.seen;
    let parts = parts.map(|part| part as f64 / *parts_looks as f64 / (race.keys * PUT_BYTES) as f64);
    let most = parts_most.map(|part| part as f64 / (race.keys * PUT_BYTES) as f64);
    let (puts, took, after) = (writers.puts - first, race.clock.now().since(from), written(&race));
    let of = |at: usize| after[at] - before[at];
    let written = [0, 1, 2, 3].map(|at| of(at) as f64 / (puts * PUT_BYTES) as f64);
    let busy = (of(2) + of(3)) as f64 / BACKGROUND_BYTES_PER_SECOND as f64 / took.as_secs_f64();
    let mean_delay = delays.iter().sum::<Duration>() / u32::try_from(puts).unwrap();
    let long_delay = delays[delays.len() - 1 - delays.len() / 1000];
    let (space_mean, space_max, sum) = (space_sum / *looks as f64, *space_max, written.iter().sum::<f64>());
    let reads_after = race.ledger_reads.counts();
    let a_put = |at: usize| (reads_after[at] - reads_before[at]) as f64 / puts as f64;
    let flushes = looked_up.map(|count| count as f64 / puts as f64);
    let (levels, cells) = (race.kv.ledger_facts().0.levels, race.kv.stats());
    println!(
        "{name}: ledger {:?}, live as counted {:.3}; read of it a put: {:.3} pieces of {:.0} bytes, by flushes {:.3} of {:.0}, by merges {:.0} bytes",
        levels.iter().map(|level| level.bytes).collect::<Vec<_>>(),
        cells.live_bytes as f64 / (race.keys * PUT_BYTES) as f64,
        a_put(0),
        a_put(1) / a_put(0),
        flushes[0],
        flushes[1] / flushes[0],
        a_put(2),
    );
    let scale = size.scale;
    println!(
        "{name}, a {scale}th: {puts} puts in {took:?}, each delayed by {mean_delay:?}, one of a thousand by {long_delay:?}, background busy \
         {busy:.3}; space {space_mean:.3}, at most {space_max:.3}, in mean {parts:.4?} of the log, idle there, of volumes and of the ledger, then {most:.4?}; \
         written {sum:.3}: {written:.3?}"
    );
    Raced { space_mean, space_max, written, busy, mean_delay, long_delay, looked_up: [flushes[0], a_put(0)] }
}

impl Raced {
    fn takes(&self, space_mean: f64, space_max: f64, written: f64) {
        assert!(self.space_mean <= space_mean && self.space_max <= space_max, "{self:?}");
        assert!(self.written.iter().sum::<f64>() <= written, "{self:?}");
        // A delay and no stall: what the disk takes in the background is what limits. It rests where nothing is too much, and then nobody is
        // delayed, as each rest asserts: hot keys die without being written again, and leave more of that.
        assert!(
            self.busy >= 0.90 && self.mean_delay > Duration::ZERO && self.mean_delay < Duration::from_millis(3),
            "{self:?}"
        );
        // All wait about the same, and not some the longest and the others nothing: with a delay that follows the debt it was 8 to 10 ms.
        assert!(self.long_delay < Duration::from_millis(9), "{self:?}");
    }
}

// A store of this size pays more than one of 4 GiB: for blocks of volumes and the ends of segments that no put fits into 3 % of space. Wished for: at most
// 1.40 x in space, and 2.4 and 1.9 x written. It was 1.45 at most, 2.45 and 2.11 written; what is nearer to the bound now keys that are all
// overwritten alike pay with 0.03 more writes.
#[test]
fn keys_that_are_overwritten_alike_stay_near_what_they_may_cost_in_space_and_in_writes_under_pressure() {
    race("uniform", uniform, true, small(SCALE)).takes(1.395, 1.41, 2.485);
}

#[test]
fn hot_and_cold_keys_stay_near_what_they_may_cost_in_space_and_in_writes_under_pressure() {
    race("pareto", pareto, true, small(SCALE)).takes(1.395, 1.41, 2.08);
}

/// Half of the log was written twice, with zeroes first, though compactions gave as many segments back: they gave them many at a time, more than may
/// wait to be used again, and then none for long.
#[test]
fn with_a_sync_on_every_write_released_segments_are_written_again_and_few_are_zeroed() {
    let raced = race("sync", pareto, false, small(SCALE));
    raced.takes(1.395, 1.41, 2.69);
    assert!(raced.written[1] <= 0.1, "zeroed {} x what was put", raced.written[1]);
}

#[test]
#[ignore = "takes long: the figures of a larger store"]
fn many_keys_that_are_overwritten_alike_stay_near_what_they_may_cost() {
    race("uniform", uniform, true, small(LARGER)).takes(1.39, 1.405, 2.34);
}

// It was within 1.39 by a hair, and since compactions say what they found superseded it is 1.39007: other choices, no worse ones. A twentieth of a
// volume more kept free made it no better than 1.390, and keys that are overwritten alike write 2.346 then.
#[test]
#[ignore = "takes long: the figures of a larger store"]
fn many_hot_and_cold_keys_stay_near_what_they_may_cost() {
    race("pareto", pareto, true, small(LARGER)).takes(1.391, 1.405, 2.02);
}

// Of the load what is full is passed, and some of it written later than before, in the turns that are counted: it was 1.957 there. From the load on, over
// all four turns, compactions write 0.398 and 0.927 x where they wrote 0.538 and 0.902: a ninth less.
#[test]
#[ignore = "takes longest, and 4 GiB of memory: the figures of a store of 1 GiB"]
fn hot_and_cold_keys_of_the_largest_store_stay_near_what_they_may_cost() {
    race("pareto", pareto, true, small(LARGEST)).takes(1.388, 1.401, 1.985);
}

const DEEP: Size = Size { deep: Some(4), ..small(SCALE) };
/// Of 16 GiB, a 16th.
const FAR: Size = Size { scale: 16, keys: 4 * KEYS / 16, deep: Some(1) };

impl Raced {
    /// What flushes look up is less than what compactions do: no more than so much for each piece of theirs.
    fn looks_up_less_than_compactions(&self) {
        let [flushes, all] = self.looked_up;
        assert!(flushes > 0.3 && flushes < 0.9 * (all - flushes), "{self:?}");
    }
}

/// Nobody looked anything up in a ledger longer than twice its cache: what its first levels hide, up to two fifths of the keys here, counted as
/// living, and 1.70 x was taken in mean, 1.76 at most; of hot and cold keys 1.69 and 1.75.
#[test]
fn keys_of_a_store_whose_ledger_is_longer_than_its_cache_stay_near_what_they_may_cost() {
    let raced = race("uniform, deep", uniform, true, DEEP);
    raced.takes(1.40, 1.415, 2.51);
    raced.looks_up_less_than_compactions();
}

#[test]
fn hot_and_cold_keys_of_a_store_whose_ledger_is_longer_than_its_cache_stay_near_what_they_may_cost() {
    let raced = race("pareto, deep", pareto, true, DEEP);
    raced.takes(1.405, 1.42, 2.09);
    raced.looks_up_less_than_compactions();
}

#[test]
#[ignore = "takes longest, and 4 GiB of memory: the figures of a store of 16 GiB"]
fn many_keys_of_a_store_whose_ledger_is_longer_than_its_cache_stay_near_what_they_may_cost() {
    let raced = race("uniform, far", uniform, true, FAR);
    raced.takes(1.395, 1.405, 2.32);
    raced.looks_up_less_than_compactions();
}

#[test]
#[ignore = "takes longest, and 4 GiB of memory: the figures of a store of 16 GiB"]
fn many_hot_and_cold_keys_of_a_store_whose_ledger_is_longer_than_its_cache_stay_near_what_they_may_cost() {
    let raced = race("pareto, far", pareto, true, FAR);
    // Of the load some is passed, and written later: with nothing passed it is 1.401, 1.412 and 1.929.
    raced.takes(1.4, 1.41, 1.99);
    raced.looks_up_less_than_compactions();
}
