//! Rot of any one sector: detected, named, and the rest can be read.

use std::path::{Path, PathBuf};

use assent_runs::{AtOnce, Change, Config, RunsError};
use assent_sim::{SECTOR_BYTES, SimDisk};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

use super::{FOLDER, open, settle};

fn flip(disk: &SimDisk, path: &Path, at: u64, bit: u8) {
    let file = disk.open(path, Open { access: Access::Write, direct: false }).unwrap();
    let mut byte = [0];
    assert_eq!(read_exact_at(&*file, at, &mut byte).unwrap(), 1);
    write_all_at(&*file, at, &[byte[0] ^ 1 << bit]).unwrap();
}

fn files(disk: &SimDisk, ending: &str) -> Vec<(PathBuf, u64)> {
    let names = disk.list(FOLDER.as_ref()).unwrap().into_iter().filter(|name| name.contains(ending));
    let paths = names.map(|name| Path::new(FOLDER).join(name));
    let size = |path: &Path| disk.open(path, Open { access: Access::Read, direct: false }).unwrap().size().unwrap();
    paths.map(|path| (path.clone(), size(&path))).collect()
}

fn config() -> Config {
    Config { run_bytes: 8 << 10, block_bytes: 512, level0_runs: 2, level1_bytes: 1 << 20, ..Config::default() }
}

fn value(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(20)
}

const KEYS: u64 = 300;

fn built() -> SimDisk {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, config()).unwrap();
    for round in 0..3_u64 {
        for number in (0..KEYS).filter(|number| number % (round + 1) == 0) {
            let seq = round * 1000 + number + 1;
            runs.apply(seq, &[Change::Put { key: &number.to_be_bytes(), value: &value(number) }]).unwrap();
        }
        runs.rotate(runs.seq());
        if round < 2 { _ = settle(&runs, &accounts) } else { _ = runs.step(&accounts, &AtOnce).unwrap() }
    }
    let facts = runs.facts();
    assert!(facts.levels[0].runs == 1 && facts.levels[1].runs > 3, "{facts:?}");
    for number in 0..KEYS {
        assert_eq!(runs.get(&number.to_be_bytes()).unwrap().map(|found| found.value), Some(value(number)), "{number}");
    }
    // So that only what the map names is there.
    runs.renote(|| accounts.sums().lay(), || {}).unwrap();
    runs.renote(|| accounts.sums().lay(), || {}).unwrap();
    disk
}

#[test]
fn a_sector_of_a_run_is_named_and_every_other_key_can_be_read() {
    let disk = built();
    let mut unread = 0;
    let runs = files(&disk, ".run");
    assert!(runs.len() > 4, "{runs:?}");
    for (path, bytes) in &runs {
        for sector in 0..bytes.div_ceil(SECTOR_BYTES as u64) {
            let at = (sector * SECTOR_BYTES as u64 + 17 * (sector % 30)).min(bytes - 1);
            flip(&disk, path, at, (sector % 8) as u8);
            let (map, _, _) = open(&disk, config()).unwrap();
            let mut told = Vec::new();
            let verified = map.verify(&mut |error| told.push(error.clone()));
            assert_eq!(verified.damaged, told.len() as u64);
            assert!(!told.is_empty(), "byte {at} of {} was not missed", path.display());
            for error in &told {
                assert!(matches!(error, RunsError::Damaged { file, .. } if file == path), "{error}");
            }
            let mut lost = 0;
            for number in 0..KEYS {
                match map.get(&number.to_be_bytes()) {
                    Ok(found) => assert_eq!(found.map(|found| found.value), Some(value(number)), "byte {at}"),
                    Err(RunsError::Damaged { file, .. }) if file == *path => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            unread += lost;
            assert!(lost < KEYS, "one sector of {} took all keys", path.display());
            let mut rows = map.view().in_order_ahead();
            for number in 0..KEYS {
                match rows.newest(&number.to_be_bytes(), |_, found| found.map(<[u8]>::to_vec)) {
                    Ok(found) => assert_eq!(found.flatten(), Some(value(number)), "byte {at}"),
                    Err(RunsError::Damaged { file, .. }) if file == *path => lost -= 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(lost, 0, "in order as many are lost as one by one, byte {at} of {}", path.display());
            flip(&disk, path, at, (sector % 8) as u8);
        }
    }
    assert!(unread > 100, "{unread}");
}

#[test]
fn a_sector_of_the_newest_manifest_is_told_by_a_check_and_an_open_goes_back() {
    let disk = built();
    let (map, opened, _) = open(&disk, config()).unwrap();
    let mut told_of = 0;
    for (path, bytes) in files(&disk, "manifest") {
        for at in (0..bytes).step_by(61) {
            flip(&disk, &path, at, 3);
            let mut told = Vec::new();
            map.verify(&mut |error| told.push(error.clone()));
            let (again, found, _) = open(&disk.survivors(1, 0)[0].clone(), config()).unwrap();
            assert_eq!((found.applied, found.runs), (opened.applied, opened.runs), "both copies say the same here");
            assert_eq!(again.get(&7_u64.to_be_bytes()).unwrap().map(|found| found.value), Some(value(7)));
            if let [RunsError::Damaged { file, .. }] = &told[..] {
                assert_eq!(*file, path);
                told_of += 1;
            } else {
                assert!(told.is_empty(), "{told:?}");
            }
            flip(&disk, &path, at, 3);
        }
    }
    assert!(told_of > 3, "{told_of}");
}

#[test]
fn a_run_that_is_missing_is_named_by_the_open() {
    let disk = built();
    let (path, _) = files(&disk, ".run").remove(2);
    disk.unlink(&path).unwrap();
    let error = open(&disk, config()).map(|_| ()).unwrap_err();
    assert_eq!(error, RunsError::Damaged { file: path, offset: 0, what: "the file is not there".to_owned() });
    assert_eq!(error.kind(), assent_kind::Kind::Corrupt);
}
