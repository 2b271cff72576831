//! Compactions under a failing disk, and rot in any file of the store: named or harmless, and the rest is readable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError};
use assent_runs::{AtOnce, Go, Pace};
use assent_sim::{Call, Fault, Operation, SimClock, SimDice, SimDisk, Survival};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

use super::compactions::{House, config, house};
use super::xid;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store whose journal has much that is dead, written out.
fn filled(rounds: u64) -> (House, Map) {
    let house = house(&SimDisk::new(), 1);
    let mut model = Map::new();
    for round in 0..rounds {
        for key in 0..12_u64 {
            let key = if key < 4 { 100 * round + key } else { key };
            let value = (round * 1000 + key).to_le_bytes().repeat(60);
            house.kv.put(0, &key.to_be_bytes(), &value, Durability::Durable).unwrap();
            model.insert(key.to_be_bytes().to_vec(), value);
        }
        house.kv.checkpoint().unwrap();
    }
    (house, model)
}

pub fn holds(kv: &Kv, model: &Map) {
    for (key, value) in model {
        assert!(kv.get(0, key).unwrap().as_ref() == Some(value), "{key:?}");
    }
}

fn volumes(disk: &SimDisk) -> usize {
    disk.list(Path::new("kv-values")).unwrap_or_default().len()
}

#[test]
fn a_compaction_on_a_full_disk_leaves_nothing_and_the_store_goes_on() {
    let (house, model) = filled(12);
    let before = house.kv.stats();
    house.disk.set_capacity(Some(house.disk.used_bytes()));
    let error = house.kv.compact_once(&AtOnce).unwrap_err();
    assert_eq!((error.kind(), volumes(&house.disk)), (Kind::Full, 0), "{error}");
    holds(&house.kv, &model);
    let after = house.kv.stats();
    assert_eq!((after.compactions, after.compactions_failed, after.volumes), (0, 1, 0));
    assert_eq!(after.value_bytes_on_disk, before.value_bytes_on_disk);
    house.disk.set_capacity(None);
    assert!(house.compact_all() > 0);
    holds(&house.kv, &model);
    assert!(house.kv.stats().reclaimed_bytes > 0);
}

/// An outcome was decided elsewhere. A disk that is full to the last byte for everybody else has room for it.
#[test]
fn outcomes_of_prepared_branches_find_room_on_a_full_disk() {
    const BRANCHES: u64 = 30;
    let house = house(&SimDisk::new(), 1);
    for branch in 0..BRANCHES {
        let own = xid(branch);
        house.kv.start(&own).unwrap();
        house.kv.branch_put(&own, 0, &branch.to_be_bytes(), b"decided").unwrap();
        house.kv.end(&own, true).unwrap();
        house.kv.wait(house.kv.prepare_begin(&own).unwrap().pending).unwrap();
    }
    house.disk.set_capacity(Some(house.disk.used_bytes()));
    for value in [&[7; 600][..], b""] {
        let refused =
            (0..10_000_u64).find_map(|key| house.kv.put(1, &key.to_be_bytes(), value, Durability::Durable).err());
        assert_eq!(refused.unwrap().kind(), Kind::Full);
    }
    house.kv.start(&xid(BRANCHES)).unwrap();
    house.kv.branch_put(&xid(BRANCHES), 0, b"one more", b"").unwrap();
    house.kv.end(&xid(BRANCHES), true).unwrap();
    assert_eq!(
        house.kv.prepare_begin(&xid(BRANCHES)).unwrap_err().kind(),
        Kind::Full,
        "no vote that could not be kept"
    );
    for branch in 0..BRANCHES {
        let own = xid(branch);
        let outcome = if branch % 3 == 0 { house.kv.rollback_begin(&own) } else { house.kv.commit_begin(&own) };
        house.kv.wait(outcome.unwrap()).unwrap();
    }
    let committed = |kv: &Kv| (0..BRANCHES).filter(|it| kv.get(0, &it.to_be_bytes()).unwrap().is_some()).count();
    assert_eq!((committed(&house.kv), house.kv.prepared().len()), (20, 0));
    // They have it no more: others may have it again.
    house.kv.put(1, b"others", b"", Durability::Durable).unwrap();
    house.disk.set_capacity(None);
    let house = house.again(2);
    assert_eq!((committed(&house.kv), house.kv.prepared().len()), (20, 0));
}

#[test]
fn whatever_call_of_a_compaction_fails_nothing_is_lost() {
    let (mut failed, mut closed) = (0, 0);
    for fault in [Fault::Io, Fault::Full] {
        for nth in 1.. {
            let (house, model) = filled(12);
            let before = house.disk.calls();
            house.disk.inject(Call::any(nth), fault);
            let done = house.kv.compact_once(&AtOnce);
            let calls = house.disk.calls() - before;
            failed += u64::from(done.is_err());
            // A manifest whose sync failed counts or not: the next open knows.
            closed += house.kv.stats().broken;
            if nth > calls {
                break;
            }
            let house = house.again(2);
            holds(&house.kv, &model);
            assert_eq!(volumes(&house.disk) as u64, house.kv.stats().volumes, "{fault:?} {nth}");
            while house.kv.compact_once(&AtOnce).unwrap() {}
            holds(&house.kv, &model);
            assert_eq!(house.kv.stats().broken_accounts, 0);
        }
    }
    assert!(failed > 20 && closed > 0, "{failed} failed, {closed} of them closed the ledger");
}

/// Stops when it is asked so often.
struct Stops(AtomicU64);

impl Pace for Stops {
    fn wrote(&self, _: u64) -> Go {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 { Go::Stop } else { Go::On }
    }
}

#[test]
fn a_stopped_compaction_leaves_nothing_and_can_be_done_later() {
    let (house, model) = filled(12);
    assert!(!house.kv.compact_once(&Stops(AtomicU64::new(1))).unwrap());
    assert_eq!((volumes(&house.disk), house.kv.stats().compactions_failed), (0, 0));
    holds(&house.kv, &model);
    assert!(house.compact_all() > 0);
    holds(&house.kv, &model);
}

#[test]
fn over_a_log_that_gives_nothing_back_nothing_is_compacted() {
    let desk = super::fresh();
    for number in 0..50_u64 {
        desk.kv.put(0, b"k", &number.to_le_bytes().repeat(100), Durability::Durable).unwrap();
        desk.kv.checkpoint().unwrap();
    }
    assert_eq!((desk.kv.compact_once(&AtOnce), desk.kv.stats().compacts, desk.kv.stats().volumes), (Ok(false), 0, 0));
    assert_eq!(desk.kv.get(0, b"k").unwrap(), Some(49_u64.to_le_bytes().repeat(100)));
}

pub fn files(disk: &SimDisk) -> Vec<PathBuf> {
    let folders = ["log", "kv", "kv-values"].map(Path::new);
    folders.iter().flat_map(|folder| disk.list(folder).unwrap().into_iter().map(|name| folder.join(name))).collect()
}

pub fn flip(disk: &SimDisk, path: &Path, at: u64) -> bool {
    let file = disk.open(path, Open { access: Access::Write, direct: false }).unwrap();
    let mut sector = [0; 512];
    let read = read_exact_at(&*file, at, &mut sector).unwrap();
    // All of it, and not only a bit.
    sector.iter_mut().for_each(|byte| *byte ^= 0x5a);
    write_all_at(&*file, at, &sector[..read]).unwrap();
    read > 0
}

pub fn opened(disk: &SimDisk) -> Result<Kv, KvError> {
    let settings = assent_journal::Config {
        log_size: super::compactions::SEGMENT_BYTES + 4096,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Default::default()
    };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(9)));
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), settings)?;
    let log: Arc<dyn Log> = log;
    Kv::open(log, Arc::new(disk.clone()), Arc::new(SimClock::new()), Path::new("kv"), config())
}

#[test]
fn one_rotten_sector_of_any_file_is_named_or_harmless_and_the_rest_is_readable() {
    let (house, model) = filled(8);
    assert!(house.compact_all() > 0);
    let House { disk, log, kv } = house;
    kv.put(0, b"after", b"that", Durability::Durable).unwrap();
    drop(kv);
    log.close().unwrap();
    drop(log);
    disk.kill();
    let (mut harmless, mut refused, mut told, mut sectors) = (0, 0, 0, 0);
    for path in files(&disk) {
        for at in (0..).step_by(512) {
            let disk = disk.copy();
            if !flip(&disk, &path, at) {
                break;
            }
            sectors += 1;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let kv = match opened(&disk) {
                Ok(kv) => kv,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Corrupt, "{name} {at}: {error}");
                    // Rot in the journal's last claim looks like a torn tail to it; then a volume knows that it had more.
                    let tail = name.ends_with(".log") && error.to_string().contains("has lost its end");
                    assert!(tail || error.to_string().contains(&name), "{name} {at}: {error}");
                    refused += 1;
                    continue;
                }
            };
            let mut lost = 0;
            for (key, value) in &model {
                match kv.get(0, key) {
                    Ok(found) => assert!(found.as_ref() == Some(value), "{name} {at}: another value of {key:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Corrupt, "{name} {at}: {error}");
                        assert!(error.to_string().contains(&name), "{name} {at}: {error}");
                        lost += 1;
                    }
                }
            }
            // A run's index leads to all of its keys; a volume's sector has a value or two.
            let is_run = name.ends_with(".run");
            assert!(lost == 0 || is_run || lost <= 2, "{name} {at}: {lost} of {} are lost", model.len());
            if lost == 0 {
                harmless += 1;
            } else {
                let mut damages = Vec::new();
                kv.verify(&mut |error| damages.push(error.to_string()));
                assert!(damages.iter().any(|damage| damage.contains(&name)), "{name} {at}: {damages:?}");
                told += 1;
            }
        }
    }
    println!("{sectors} sectors: {harmless} harmless, {refused} refused at the open, {told} told by reads");
    assert!(refused > 10 && told > 30 && harmless > 50, "{harmless} {refused} {told}");
}

/// The newest manifest is lost after a compaction: the one before must not name what is gone.
#[test]
fn an_open_that_goes_back_to_the_older_manifest_finds_all_its_volumes() {
    let (house, mut model) = filled(10);
    let mut compactions = 0;
    for round in 0..20_u64 {
        let value = round.to_le_bytes().repeat(400);
        house.kv.put(0, b"k", &value, Durability::Durable).unwrap();
        model.insert(b"k".to_vec(), value);
        house.kv.checkpoint().unwrap();
        compactions += u64::from(house.kv.compact_once(&AtOnce).unwrap());
        for name in ["manifest-a", "manifest-b"] {
            let disk = house.disk.copy();
            disk.kill();
            flip(&disk, &Path::new("kv").join(name), 0);
            let kv = opened(&disk).unwrap();
            assert_eq!(kv.stats().rebuilt, 0);
            holds(&kv, &model);
        }
    }
    assert!(compactions > 1, "{compactions}");
}

#[test]
fn a_volume_that_was_never_finished_gives_way_to_what_it_was_made_of() {
    let (house, model) = filled(10);
    assert!(house.compact_all() > 0);
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    for name in disk.list(Path::new("kv")).unwrap() {
        disk.unlink(&Path::new("kv").join(name)).unwrap();
    }
    let values = Path::new("kv-values");
    let names = disk.list(values).unwrap();
    let name = names.first().unwrap();
    let (first, generation) = name.strip_suffix(".values").unwrap().split_once('-').unwrap();
    let next = u32::from_str_radix(generation, 16).unwrap() + 1;
    // A copy of it as the next generation would be, of which the power left any part; and no ledger.
    let whole = disk.open(&values.join(name), Open { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; usize::try_from(whole.size().unwrap()).unwrap()];
    read_exact_at(&*whole, 0, &mut bytes).unwrap();
    for cut in (0..bytes.len()).step_by(1024) {
        let disk = disk.copy();
        let torn = format!("{first}-{next:08x}.values");
        let file = disk.open(&values.join(&torn), Open { access: Access::Create, direct: false }).unwrap();
        write_all_at(&*file, 0, &bytes[..cut]).unwrap();
        drop(file);
        let kv = opened(&disk).unwrap();
        assert_eq!(kv.stats().rebuilt, 1);
        holds(&kv, &model);
        assert!(!disk.list(values).unwrap().contains(&torn), "it is removed");
    }
    // One that is damaged and nothing else has: the open says so, and keeps its hands off.
    let damaged = disk.copy();
    flip(&damaged, &values.join(name), 4096);
    let error = opened(&damaged).unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains(name.as_str()), "{error}");
    assert_eq!(damaged.list(values).unwrap(), names);
}

fn first_archived(disk: &SimDisk) -> PathBuf {
    let names = disk.list(Path::new("log")).unwrap();
    Path::new("log").join(names.iter().filter(|name| name.ends_with(".kept")).min().unwrap())
}

#[test]
fn what_the_journal_cannot_show_now_is_not_taken_for_released() {
    let house = house(&SimDisk::new(), 1);
    let early = |key: u64| key.to_le_bytes().repeat(250);
    let mut model = Map::new();
    for key in 900..904_u64 {
        house.kv.put(0, &key.to_be_bytes(), &early(key), Durability::Durable).unwrap();
        model.insert(key.to_be_bytes().to_vec(), early(key));
    }
    // Its tail is taken over at the next open: the first stretch ends within a cell.
    let house = house.again(2);
    for round in 0..12_u64 {
        for key in (0..36_u64).map(|number| number % 12) {
            let value = (round * 1000 + key).to_le_bytes().repeat(60);
            house.kv.put(0, &key.to_be_bytes(), &value, Durability::Durable).unwrap();
            model.insert(key.to_be_bytes().to_vec(), value);
        }
    }
    settle(&house.kv);
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    let oldest = first_archived(&disk);
    assert!(flip(&disk, &oldest, 0));
    let kv = opened(&disk).unwrap();
    settle(&kv);
    let errors: Vec<KvError> = (0..20).filter_map(|_| kv.compact_once(&AtOnce).err()).collect();
    assert_eq!((errors.len(), errors[0].kind(), kv.stats().unreadable_stretches), (1, Kind::Corrupt, 1), "{errors:?}");
    assert!(kv.stats().compactions > 0, "what is behind it");
    drop(kv);
    disk.kill();
    // Nor by an open without a ledger.
    let lost = disk.copy();
    lose_ledger(&lost);
    assert_eq!(opened(&lost).unwrap_err().kind(), Kind::Corrupt);
    // It is whole again: nothing was lost meanwhile.
    for disk in [disk, lost] {
        assert!(flip(&disk, &oldest, 0));
        let kv = opened(&disk).unwrap();
        holds(&kv, &model);
        settle(&kv);
        while kv.compact_once(&AtOnce).unwrap() {}
        assert_eq!(kv.stats().unreadable_stretches, 0, "{:?}", kv.stats());
        holds(&kv, &model);
    }
}

/// Both manifests are of this opening: from then on what is written out may be compacted.
pub fn settle(kv: &Kv) {
    for _ in 0..4 {
        kv.put(1, b"", b"", Durability::Durable).unwrap();
        kv.checkpoint().unwrap();
    }
}

pub fn lose_ledger(disk: &SimDisk) {
    for name in disk.list(Path::new("kv")).unwrap() {
        disk.unlink(&Path::new("kv").join(name)).unwrap();
    }
}

#[test]
fn room_that_cannot_be_given_back_stops_no_compaction() {
    let (house, model) = filled(30);
    // The first release of the journal: it releases nothing more before the next open.
    house.disk.inject(Call::of(Operation::Rename, 1), Fault::Io);
    let done = house.compact_all();
    let stats = house.kv.stats();
    assert!(done > 1 && stats.releases_failed > 0 && stats.compactions_failed == 0, "{done} {stats:?}");
    holds(&house.kv, &model);
    let house = house.again(2);
    house.compact_all();
    assert!(house.log.oldest().0 > 0 && house.kv.stats().releases_failed == 0);
    holds(&house.kv, &model);
}

#[test]
fn a_damaged_volume_is_left_alone_and_the_others_are_compacted() {
    let (house, _) = filled(30);
    assert!(house.compact_all() > 1);
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    let values = Path::new("kv-values");
    let mut names = disk.list(values).unwrap();
    names.sort();
    assert!(names.len() > 3, "{names:?}");
    for (number, name) in names.iter().enumerate().take(3) {
        let disk = disk.copy();
        assert!(flip(&disk, &values.join(name), 4096));
        let kv = opened(&disk).unwrap();
        let mut errors = Vec::new();
        for round in 0..30_u64 {
            for key in (0..3000_u64).filter(|key| key % 100 < 4 || *key < 12) {
                // All that any volume has is superseded.
                kv.put(0, &key.to_be_bytes(), &round.to_le_bytes(), Durability::Durable).unwrap();
            }
            kv.checkpoint().unwrap();
            super::compactions::merge_all(&kv);
            errors.extend((0..10).filter_map(|_| kv.compact_once(&AtOnce).err()));
        }
        // Told once, by name, and then nobody tries it again, nor spares another for it.
        let stats = kv.stats();
        assert!(stats.compactions > 3 && stats.compactions_failed == 1, "{number}: {stats:?} {errors:?}");
        assert!(errors.iter().all(|error| error.to_string().contains(name)), "{errors:?}");
        let left = disk.list(values).unwrap();
        assert_eq!(names.iter().filter(|old| left.contains(old)).collect::<Vec<_>>(), [name], "{number}: {left:?}");
    }
}

#[test]
fn a_compacted_store_is_not_opened_over_a_journal_that_removes_what_it_trims() {
    let (house, model) = filled(12);
    assert!(house.compact_all() > 0);
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    let settings = assent_journal::Config {
        log_size: super::compactions::SEGMENT_BYTES + 4096,
        max_buffer_log_size: 2 * 4096,
        ..Default::default()
    };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(9)));
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), settings).unwrap();
    let clock = Arc::new(SimClock::new());
    let error = Kv::open(log, Arc::new(disk.clone()), clock, Path::new("kv"), config()).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("kept_until_released"), "{error}");
    disk.kill();
    holds(&opened(&disk).unwrap(), &model);
}

#[test]
fn a_compaction_leaves_out_nothing_for_a_write_that_only_the_kernel_has() {
    let settings = assent_journal::Config {
        log_size: super::compactions::SEGMENT_BYTES + 4096,
        max_buffer_log_size: 2 * 4096,
        // Acknowledged before it is durable.
        max_elapsed_sync_time: 1000,
        kept_until_released: true,
        ..Default::default()
    };
    let disk = SimDisk::new();
    let open = |salt| {
        let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
        let opened = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), settings.clone());
        let clock = Arc::new(SimClock::new());
        Kv::open(opened.unwrap().0, Arc::new(disk.clone()), clock, Path::new("kv"), config()).unwrap()
    };
    let kv = open(1);
    kv.put(0, b"kept", &[1; 400], Durability::Durable).unwrap();
    for round in 0..40_u64 {
        for key in (0..12_u64).map(|number| number % 4) {
            kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
        }
        kv.checkpoint().unwrap();
    }
    kv.put(0, b"kept", &[2; 400], Durability::Buffered).unwrap();
    assert_eq!(kv.get(0, b"kept").unwrap(), Some(vec![2; 400]));
    assert!(kv.compact_once(&AtOnce).unwrap());
    drop(kv);
    disk.cut_power(Survival::Nothing);
    let kv = open(2);
    // Either will do, and neither is nothing.
    let found = kv.get(0, b"kept").unwrap().expect("it was durable once");
    assert!(found == [1; 400] || found == [2; 400]);
}

#[test]
fn a_check_tells_of_each_damaged_stretch_of_the_journal() {
    let (house, _) = filled(12);
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    let mut names = disk.list(Path::new("log")).unwrap();
    names.retain(|name| name.ends_with(".kept"));
    names.sort();
    assert!(names.len() > 3, "{names:?}");
    // In the middle of the first and of the third.
    for name in [&names[0], &names[2]] {
        assert!(flip(&disk, &Path::new("log").join(name), 2 * 4096));
    }
    let kv = opened(&disk).unwrap();
    let mut told = Vec::new();
    let verified = kv.verify(&mut |error| told.push(error.to_string()));
    for name in [&names[0], &names[2]] {
        assert!(told.iter().any(|damage| damage.contains(name.as_str())), "{name}: {told:?}");
    }
    assert!(verified.entries > 0 && verified.damaged > 1, "{verified:?}");
}

#[test]
fn what_is_written_stands_above_every_file_of_its_range() {
    let (house, model) = filled(12);
    let disk = house.disk.copy();
    disk.kill();
    assert!(house.kv.compact_once(&AtOnce).unwrap());
    let values = Path::new("kv-values");
    let name = house.disk.list(values).unwrap().into_iter().min().unwrap();
    let file = house.disk.open(&values.join(&name), Open { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    read_exact_at(&*file, 0, &mut bytes).unwrap();
    // In a store that does not know it.
    let kv = opened(&disk).unwrap();
    settle(&kv);
    disk.create_dir(values).unwrap();
    let stray = disk.open(&values.join(&name), Open { access: Access::Create, direct: false }).unwrap();
    write_all_at(&*stray, 0, &bytes).unwrap();
    assert!(kv.compact_once(&AtOnce).unwrap());
    let names = disk.list(values).unwrap();
    assert!(names.contains(&"0000000000000000-00000002.values".to_owned()), "{name}: {names:?}");
    holds(&kv, &model);
    drop((kv, stray));
    disk.kill();
    lose_ledger(&disk);
    holds(&opened(&disk).unwrap(), &model);
}

#[test]
fn a_check_can_be_stopped_wherever_it_is() {
    let (house, model) = filled(12);
    assert!(house.kv.compact_once(&AtOnce).unwrap());
    let asked = AtomicU64::new(0);
    let all = house.kv.verify_until(
        &|| {
            asked.fetch_add(1, Ordering::Relaxed);
            false
        },
        &mut |error| panic!("{error}"),
    );
    assert!(!all.stopped && all.values == model.len() as u64, "{all:?}");
    let asked = asked.into_inner();
    assert!(asked > all.entries + all.values + all.volumes + all.runs, "{asked} {all:?}");
    let mut before = 0;
    for nth in 0..asked {
        let turns = AtomicU64::new(0);
        let is_stopped = || turns.fetch_add(1, Ordering::Relaxed) >= nth;
        let found = house.kv.verify_until(&is_stopped, &mut |error| panic!("{error}"));
        let read = found.runs + found.volumes + found.entries + found.values;
        assert!(found.stopped && (read == before || read == before + 1), "{nth}: {found:?}");
        before = read;
    }
}

#[test]
fn a_check_reads_every_value_from_the_disk_whatever_is_kept_in_memory() {
    let house = house(&SimDisk::new(), 1);
    for key in 0..5_u8 {
        house.kv.put(0, &[key], &[key; 40], Durability::Durable).unwrap();
        house.kv.get(0, &[key]).unwrap();
    }
    assert_eq!(house.kv.verify(&mut |error| panic!("{error}")).values, 5);
    let live = Path::new("log").join(format!("{:016x}.log", 0));
    let sectors = (4096..).step_by(512).take_while(|at| flip(&house.disk, &live, *at)).count();
    assert!(sectors > 8, "{sectors}");
    assert_eq!(house.kv.get(0, &[3]).unwrap(), Some(vec![3; 40]), "it is kept");
    let mut told = 0;
    let verified = house.kv.verify(&mut |_| told += 1);
    assert!(verified.values == 0 && told > 5, "{verified:?} {told}");
}
