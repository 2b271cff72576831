//! The power goes while volumes are written, made known by a manifest, and let go: what the manifest names is there, whole.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_runs::AtOnce;
use assent_sim::{Explore, Rng, SimDisk, Subject, Witness};
use assent_world::{Access, Barrier, Disk, File, Open, read_exact_at, write_all_at};
use xxhash_rust::xxh3::xxh3_64;

use crate::vault::volume_test::value;

use crate::vault::{Address, Body, FILE, Item, NAME, Volume, VolumeWriter, remove_unknown};

const FOLDER: &str = "kv";
const MANIFEST: &str = "kv/manifest";
const NEXT: &str = "kv/manifest.new";
const FOLDERS: Barrier = Barrier::new("test: the folder");
const MANIFEST_FILE: Barrier = Barrier::new("test: the manifest's bytes");
const MANIFEST_NAME: Barrier = Barrier::new("test: the manifest's name");

/// One volume: its range is `first` to `first + 100`; the seed says what it holds.
type Named = (u64, u32, u64);
type Fact = Vec<Named>;

struct Gate;

fn contents(seed: u64, first: u64) -> Vec<(u64, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let many = rng.range(1..30);
    let long = if rng.below(4) == 0 { 5000 } else { 200 };
    (0..many).map(|at| (first + at, rng.roll().to_le_bytes().repeat(rng.index(long / 8)))).collect()
}

fn write(disk: &dyn Disk, (first, generation, seed): Named) -> Result<(), String> {
    let writer = VolumeWriter::create(disk, Path::new(FOLDER), (first, first + 100), generation, &AtOnce);
    let mut writer = writer.map_err(|error| error.to_string())?;
    for (lsn, bytes) in contents(seed, first) {
        let body = Body::Value { seq: lsn, value: value(b"key", &bytes) };
        writer.push(&Item { address: Address::new(lsn, 8), body }).map_err(|error| error.to_string())?;
    }
    writer.finish(seed, 0).map(|_| ()).map_err(|error| error.to_string())
}

fn open(disk: &Arc<dyn Disk>, (first, generation, seed): Named) -> Result<Arc<Volume>, String> {
    let volume = Volume::open(disk, Path::new(FOLDER), first, generation).map_err(|error| error.to_string())?;
    let mut damaged = Vec::new();
    volume.verify(&mut |error| damaged.push(error.to_string()));
    if let Some(error) = damaged.first() {
        return Err(error.clone());
    }
    let records: Vec<_> = volume.records().map(Result::unwrap).collect();
    let found: Vec<(u64, Vec<u8>)> = records
        .iter()
        .map(|record| match record.item().unwrap().body {
            Body::Value { value, .. } => (record.address.lsn, value.value.to_vec()),
            other => panic!("{other:?}"),
        })
        .collect();
    if found == contents(seed, first) { Ok(volume) } else { Err(format!("{first}-{generation} holds something else")) }
}

fn read(file: &dyn File) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; usize::try_from(file.size()?).unwrap()];
    read_exact_at(file, 0, &mut bytes)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn load(disk: &dyn Disk) -> Result<Fact, String> {
    let file = match disk.open(Path::new(MANIFEST), Open { access: Access::Read, direct: false }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| error.to_string())?,
    };
    let words = read(&*file).map_err(|error| error.to_string())?;
    let (hash, rows) = words.split_first().ok_or("an empty manifest")?;
    if *hash != hash_of(rows) {
        return Err("a torn manifest".to_owned());
    }
    Ok(rows.as_chunks::<3>().0.iter().map(|row| (row[0], u32::try_from(row[1]).unwrap(), row[2])).collect())
}

fn hash_of(words: &[u64]) -> u64 {
    xxh3_64(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
}

fn store(disk: &dyn Disk, named: &Fact) -> Result<(), String> {
    let words: Vec<u64> = named.iter().flat_map(|row| [row.0, u64::from(row.1), row.2]).collect();
    let bytes: Vec<u8> = [hash_of(&words)].into_iter().chain(words).flat_map(u64::to_le_bytes).collect();
    let write = || {
        _ = disk.unlink(Path::new(NEXT));
        let file = disk.open(Path::new(NEXT), Open { access: Access::Create, direct: false })?;
        write_all_at(&*file, 0, &bytes)?;
        file.sync_all(MANIFEST_FILE)?;
        disk.rename(Path::new(NEXT), Path::new(MANIFEST))?;
        disk.sync_dir(Path::new(FOLDER), MANIFEST_NAME)
    };
    write().map_err(|error: io::Error| error.to_string())
}

/// What an open does: all that the manifest names is read, the rest is removed.
fn recover(disk: &Arc<dyn Disk>) -> Result<(Fact, Vec<Arc<Volume>>), String> {
    let named = load(&**disk)?;
    let volumes = named.iter().map(|row| open(disk, *row)).collect::<Result<_, String>>()?;
    let known: BTreeSet<(u64, u32)> = named.iter().map(|row| (row.0, row.1)).collect();
    remove_unknown(&**disk, Path::new(FOLDER), &known).map_err(|error| error.to_string())?;
    Ok((named, volumes))
}

impl Subject for Gate {
    type Fact = Fact;

    fn workload(&self, sim: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut rng = Rng::new(seed);
        disk.create_dir(Path::new(FOLDER)).map_err(|error| error.to_string())?;
        disk.sync_dir(Path::new("."), FOLDERS).map_err(|error| error.to_string())?;
        let (mut named, mut volumes) = recover(&disk)?;
        witness.attempt(named.clone());
        witness.acknowledge(named.clone());
        for _ in 0..rng.range(2..6) {
            let at = rng.index(named.len() + 1);
            let old = named.get(at).copied();
            let first = old.map_or(u64::try_from(at).unwrap() * 100, |old| old.0);
            let row = (first, old.map_or(1, |old| old.1 + 1), rng.roll());
            write(&*disk, row)?;
            let mut next = named.clone();
            match next.get_mut(at) {
                Some(place) => *place = row,
                None => next.push(row),
            }
            witness.attempt(next.clone());
            store(&*disk, &next)?;
            witness.acknowledge(next.clone());
            named = next;
            let volume = open(&disk, row)?;
            // Only now may the old one go.
            match volumes.get_mut(at) {
                Some(place) => std::mem::replace(place, volume).doom(),
                None => volumes.push(volume),
            }
        }
        Ok(())
    }

    fn check(&self, sim: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let Some(promised) = acknowledged.last() else { return Ok(()) };
        let (found, _volumes) = recover(&disk)?;
        let from = attempted.iter().rposition(|fact| fact == promised).unwrap_or(0);
        let fine = attempted.get(from..).unwrap_or_default().contains(&found);
        if !fine {
            return Err(format!("the manifest names {found:?}, promised was {promised:?}"));
        }
        let names = disk.list(Path::new(FOLDER)).map_err(|error| error.to_string())?;
        let files = names.iter().filter(|name| name.ends_with(".values")).count();
        if files == found.len() { Ok(()) } else { Err(format!("{files} files, {} are known", found.len())) }
    }

    fn lives(&self) -> u32 {
        3
    }
}

#[test]
fn gate_power_loss_of_volumes() {
    let explore = Explore { states_max: 10_000, ..Explore::new() };
    let report = explore.run(&Gate).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.states > 2_000 && report.nested > 100, "{report}");
}

#[test]
fn gate_each_barrier_of_a_volume_ignored_goes_red() {
    for barrier in [FILE, NAME] {
        let failure = Explore::new().ignoring(&Gate, barrier).unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {} states: {}", barrier.label(), failure.report.states, failure.message);
    }
}
