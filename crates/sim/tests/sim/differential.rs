//! The simulated disk against a real one, and against a shadow that remembers what must be durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use assent_sim::{Call, Fault, Rng, Stale, Survival};
use assent_world::{AlignedBuffer, Durably, RealDisk};

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d/e"];

/// A disk with the files that are open on it.
struct Side<'a> {
    disk: &'a dyn Disk,
    root: &'a Path,
    open: Vec<Arc<dyn File>>,
}

impl Side<'_> {
    /// Does what the dice say; the answer is all that a program could see.
    fn step(&mut self, mut rng: Rng) -> Result<Vec<u8>, io::ErrorKind> {
        let path = self.root.join(NAMES[rng.index(NAMES.len())]);
        let other = self.root.join(NAMES[rng.index(3)]);
        let file = self.open.get(rng.index(self.open.len())).cloned();
        let (at, length) = (rng.below(20_000), rng.index(6_000));
        let bytes = vec![u8::try_from(rng.below(255)).unwrap() + 1; length];
        let number = |number: u64| number.to_le_bytes().to_vec();
        let short = |written: usize| number(u64::try_from(written).unwrap());
        let answer = match (rng.below(16), file) {
            (0..=2, _) | (_, None) => {
                let access = [Access::Create, Access::Write, Access::Read][rng.index(3)];
                self.disk.open(&path, Open { access, direct: rng.below(2) == 0 }).map(|file| {
                    self.open.push(file);
                    Vec::new()
                })
            }
            (3, _) if path.parent() == Some(self.root) => self.disk.rename(&path, &other).map(|()| Vec::new()),
            (4, _) => self.disk.unlink(&path).map(|()| Vec::new()),
            (5, _) => self.disk.list(self.root).map(|names| names.join(" ").into_bytes()),
            (6 | 7, Some(file)) => file.write_at(at, &bytes).map(short),
            (8, Some(file)) => {
                let mut block = AlignedBuffer::zeroed(8192);
                block.as_mut_slice().fill(9);
                file.write_durable_at(at / 4096 * 4096, block.as_slice(), Durably::Dsync, SYNC).map(short)
            }
            (9, Some(file)) => file.write_durable_at(at, &bytes, Durably::DataSync, SYNC).map(short),
            (10, Some(file)) => file.set_size(at).map(|()| Vec::new()),
            (11, Some(file)) => file.preallocate_zeroed(at).map(|()| Vec::new()),
            (12, Some(file)) => file.sync_all(SYNC).map(|()| Vec::new()),
            (13, Some(file)) => file.size().map(number),
            (_, Some(file)) => {
                let mut bytes = bytes;
                file.read_at(at, &mut bytes).map(|read| [short(read), bytes].concat())
            }
        };
        answer.map_err(|error| error.kind())
    }
}

#[test]
fn without_faults_both_disks_answer_the_same() {
    for seed in 1..=40 {
        let folder = tempfile::tempdir().unwrap();
        let sim = SimDisk::new();
        let root = Path::new("root");
        sim.create_dir(root).unwrap();
        let mut simulated = Side { disk: &sim, root, open: Vec::new() };
        let mut real = Side { disk: &RealDisk, root: folder.path(), open: Vec::new() };
        for side in [&simulated, &real] {
            side.disk.create_dir(&side.root.join("d")).unwrap();
            side.disk.create_dir(&side.root.join("d")).unwrap();
        }
        let mut rng = Rng::new(seed);
        for step in 0..150 {
            let dice = Rng::new(rng.roll());
            assert_eq!(simulated.step(dice.clone()), real.step(dice), "seed {seed}, step {step}");
        }
        for name in NAMES {
            let (ours, theirs) = (root.join(name), folder.path().join(name));
            assert_eq!(
                read(&sim, ours.to_str().unwrap()),
                read(&RealDisk, theirs.to_str().unwrap()),
                "seed {seed}, {name}"
            );
        }
    }
}

#[test]
fn after_syncing_everything_a_power_cut_changes_nothing() {
    for seed in 1..=200 {
        let disk = SimDisk::new();
        disk.create_dir(path("d")).unwrap();
        let mut side = Side { disk: &disk, root: path(""), open: Vec::new() };
        let mut rng = Rng::new(seed);
        for _ in 0..rng.range(1..60) {
            _ = side.step(Rng::new(rng.roll()));
        }
        for name in NAMES {
            if let Ok(file) = disk.open(path(name), Open { access: Access::Write, direct: false }) {
                file.sync_all(SYNC).unwrap();
            }
        }
        for folder in ["d", ""] {
            disk.sync_dir(path(folder), SYNC).unwrap();
        }
        let before = disk.hash();
        assert_eq!(disk.survivors(64, seed).len(), 1, "seed {seed}");
        disk.cut_power(Survival::Seeded(seed));
        assert_eq!(disk.hash(), before, "seed {seed}");
    }
}

/// What one file must and may show after a power cut.
#[derive(Default)]
struct Shadow {
    /// All that each sector held since it was last made durable, and before.
    history: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Bytes that were synced and not touched since.
    durable: BTreeMap<usize, u8>,
    /// Bytes that were written and not synced since.
    written: BTreeMap<usize, u8>,
    /// Places that the file grew over: zeroes, durable with its length.
    holes: BTreeSet<usize>,
    /// Sectors that a failed sync may have left with anything behind what was written since.
    doubtful: BTreeSet<usize>,
    bytes: usize,
}

impl Shadow {
    fn wrote(&mut self, at: usize, bytes: &[u8]) {
        if at > self.bytes && !bytes.is_empty() {
            self.resized(at);
        }
        for (place, byte) in (at..).zip(bytes) {
            self.durable.remove(&place);
            self.holes.remove(&place);
            self.written.insert(place, *byte);
            self.bytes = self.bytes.max(place + 1);
        }
    }

    fn resized(&mut self, bytes: usize) {
        _ = self.durable.split_off(&bytes);
        _ = self.written.split_off(&bytes);
        _ = self.holes.split_off(&bytes);
        self.holes.extend(self.bytes..bytes);
        self.bytes = bytes;
    }

    fn synced(&mut self, range: std::ops::Range<usize>) {
        let synced: Vec<_> = self.written.range(range).map(|(place, byte)| (*place, *byte)).collect();
        for (place, byte) in synced {
            self.written.remove(&place);
            self.durable.insert(place, byte);
        }
    }

    fn synced_with_length(&mut self) {
        self.synced(0..usize::MAX);
        let holes = std::mem::take(&mut self.holes).into_iter().filter(|place| !self.doubtful.contains(&(place / 512)));
        self.durable.extend(holes.map(|place| (place, 0)));
    }

    /// A sync failed: whatever was in flight may be there or not, for ever.
    fn failed(&mut self) {
        let places = self.written.keys().chain(&self.holes).chain([&self.bytes]);
        self.doubtful.extend(places.map(|place| place / 512));
        self.written.clear();
        self.holes.clear();
    }

    fn saw(&mut self, bytes: &[u8]) {
        for (sector, bytes) in bytes.chunks(512).enumerate() {
            let history = self.history.entry(sector).or_insert_with(|| vec![vec![0; 512]]);
            let mut whole = bytes.to_vec();
            whole.resize(512, 0);
            if !history.contains(&whole) {
                history.push(whole);
            }
        }
    }

    fn judge(&self, survivor: &[u8]) -> Result<(), String> {
        if let Some((place, byte)) = self.durable.iter().find(|(place, byte)| survivor.get(**place) != Some(*byte)) {
            return Err(format!(
                "byte {place} was durably {byte}, found {:?} of {}",
                survivor.get(*place),
                survivor.len()
            ));
        }
        for (sector, bytes) in survivor.chunks(512).enumerate() {
            // A length that survived, or was cut and grew again, leaves the beginning of an older state and zeroes.
            let zeroes = bytes.iter().rev().take_while(|byte| **byte == 0).count();
            let begins = |old: &Vec<u8>| old.starts_with(&bytes[..bytes.len() - zeroes]);
            let known = self.history.get(&sector).is_some_and(|history| history.iter().any(begins));
            if !known {
                return Err(format!("sector {sector} never held this: {:?}...", &bytes[..bytes.len().min(16)]));
            }
        }
        Ok(())
    }
}

#[test]
fn what_was_synced_survives_and_nothing_shows_that_was_never_there() {
    for seed in 1..=400 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new();
        disk.set_stale(Stale::ZEROES);
        let file = durable(&disk, "file", b"");
        let mut shadow = Shadow::default();
        for step in 0..rng.range(1..25) {
            let (at, length) = (rng.index(4_000), rng.index(1_500));
            let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
            let place = u64::try_from(at).unwrap();
            match rng.below(9) {
                0..=2 => {
                    file.write_at(place, &bytes).unwrap();
                    shadow.wrote(at, &bytes);
                }
                3 => {
                    file.write_durable_at(place, &bytes, Durably::Dsync, SYNC).unwrap();
                    shadow.wrote(at, &bytes);
                    shadow.synced(at..at + length);
                }
                4 => {
                    file.set_size(place).unwrap();
                    shadow.resized(at);
                }
                5 => {
                    file.preallocate_zeroed(place).unwrap();
                    shadow.resized(at);
                    shadow.wrote(0, &vec![0; at]);
                }
                6 => {
                    disk.inject(Call::at(SYNC, 1), Fault::Io);
                    assert!(file.sync_data(SYNC).is_err());
                    shadow.failed();
                }
                7 => {
                    file.sync_data(SYNC).unwrap();
                    shadow.synced(0..usize::MAX);
                }
                _ => {
                    file.sync_all(SYNC).unwrap();
                    shadow.synced_with_length();
                }
            }
            shadow.saw(&read(&disk, "file").unwrap());
            for survivor in disk.survivors(24, rng.roll()) {
                let judged = shadow.judge(&read(&survivor, "file").unwrap());
                judged.unwrap_or_else(|wrong| panic!("seed {seed}, step {step}: {wrong}"));
            }
        }
    }
}
