//! A volume read back: by address, in order, through damage of any one bit, and when writing it was stopped or refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use assent_ids::Xid;
use assent_kind::Kind;
use assent_runs::{AtOnce, Go, Pace};
use assent_sim::{Call, Fault, Operation, Rng, SimDisk, Watch, WatchedDisk};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};
use proptest::prelude::{Strategy, any};
use xxhash_rust::xxh3::xxh3_64;

use crate::vault::item::{self, PIECE_BYTES};
use crate::vault::seal::Facts;

use crate::vault::{
    Address, Blocks, Body, Item, NoBlocks, Record, Value, VaultError, Volume, VolumeWriter, remove_unknown,
};

const FOLDER: &str = "kv";

fn sim() -> (SimDisk, Arc<dyn Disk>) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(FOLDER)).unwrap();
    (disk.clone(), Arc::new(disk))
}

pub(super) fn value<'a>(key: &'a [u8], value: &'a [u8]) -> Value<'a> {
    Value { keyspace: 3, key, modified: 5, expiry: 0, metadata: b"meta", value, hash: xxh3_64(value) }
}

fn write(disk: &dyn Disk, items: &[Item<'_>]) -> Result<Facts, VaultError> {
    let mut writer = VolumeWriter::create(disk, Path::new(FOLDER), (0, 1 << 40), 1, &AtOnce)?;
    items.iter().try_for_each(|item| writer.push(item))?;
    writer.finish(77, 0)
}

fn open(disk: &Arc<dyn Disk>) -> Result<Arc<Volume>, VaultError> {
    Volume::open(disk, Path::new(FOLDER), 0, 1)
}

fn xid() -> Xid {
    Xid::new(3, b"global", b"branch").unwrap()
}

/// One of each kind, and values of several lengths.
fn sample(values: &[Vec<u8>]) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = Vec::new();
    let bodies = [
        Body::Deleted { seq: 9, keyspace: 1, key: b"gone" },
        Body::Erased { seq: 9, keyspace: 2, from: b"a", to: Some(b"b") },
        Body::Erased { seq: 9, keyspace: 2, from: b"", to: None },
        Body::Outcome { seq: 9, xid: xid(), prepare: 3, committed: true },
        Body::Prepared { xid: xid(), value: value(b"prepared", b"value") },
        Body::PreparedDelete { xid: xid(), keyspace: 9, key: b"" },
    ];
    for (number, body) in (0..).zip(bodies) {
        items.push(Item { address: Address::new(64, number * 40), body });
    }
    for (number, bytes) in (0..).zip(values) {
        let body = Body::Value { seq: 5000 + number, value: value(b"key", bytes) };
        items.push(Item { address: Address::new(1000 + number * 100, 24), body });
    }
    items
}

fn values(lengths: &[usize]) -> Vec<Vec<u8>> {
    let byte = |number: usize| number.to_le_bytes()[0];
    let value = |(number, length): (usize, &usize)| (0..*length).map(|at| byte(at) ^ byte(number)).collect();
    lengths.iter().enumerate().map(value).collect()
}

#[test]
fn what_was_written_is_found_by_address_and_in_order() {
    let (_, disk) = sim();
    let lengths: Vec<usize> =
        (0..1900).map(|number| number % 50 * 8).chain([0, 1, PIECE_BYTES, PIECE_BYTES + 1]).collect();
    let bytes = values(&lengths);
    let items = sample(&bytes);
    let facts = write(&*disk, &items).unwrap();
    assert_eq!((facts.items, facts.values), (1910, 1905));
    assert!(facts.blocks > 1, "{facts:?}");
    let volume = open(&disk).unwrap();
    assert_eq!((*volume.facts(), facts.as_of), (facts, 77));
    for item in &items {
        let record = volume.get(&NoBlocks, item.address).unwrap().unwrap();
        assert_eq!(record.item().unwrap(), *item);
        let beside = Address::new(item.address.lsn, item.address.at + 1);
        assert_eq!(volume.get(&NoBlocks, beside).unwrap(), None);
    }
    let read: Vec<Record> = volume.records().map(Result::unwrap).collect();
    assert_eq!(read.iter().map(|record| record.item().unwrap()).collect::<Vec<_>>(), items);
    assert_eq!(volume.verify(&mut |error| panic!("{error}")), 1910);
    for item in items.iter().filter(|item| matches!(item.body, Body::Value { .. })) {
        let Body::Value { value, .. } = &item.body else { continue };
        let mut laid = 0;
        let sum = |_, parts: &[&[u8]]| {
            laid += assent_frame::laid_bytes(parts.iter().map(|part| part.len()).sum());
            Ok::<(), ()>(())
        };
        item::lay(item, sum).unwrap();
        let counted = item::value_bytes(value.key.len(), value.metadata.len(), value.value.len());
        assert_eq!(counted, u64::try_from(laid).unwrap(), "what the accounts count for {} bytes", value.value.len());
    }
}

/// The end of the index and what stands behind it may be in one block of the disk: all of the volume was lost with it.
#[test]
fn a_block_of_the_disk_behind_the_items_costs_none_that_is_not_in_it() {
    let mut both = 0;
    for count in (300..520).step_by(10) {
        let (sim, disk) = sim();
        let bytes = values(&vec![40; count]);
        let items = sample(&bytes);
        let facts = write(&*disk, &items).unwrap();
        let path = Path::new(FOLDER).join(facts.name());
        let index_end = facts.index_at + u64::from(facts.blocks) * 4096;
        for block in facts.index_at / 4096..=facts.bytes / 4096 {
            let rotten = sim.copy();
            let file = rotten.open(&path, Open { access: Access::Write, direct: false }).unwrap();
            let mut read = [0; 4096];
            let length = read_exact_at(&*file, block * 4096, &mut read).unwrap();
            read.iter_mut().for_each(|byte| *byte ^= 0x5a);
            write_all_at(&*file, block * 4096, &read[..length]).unwrap();
            let rotten: Arc<dyn Disk> = Arc::new(rotten);
            let volume = open(&rotten).unwrap();
            let lost = items.iter().filter(|item| {
                let found = volume.get(&NoBlocks, item.address).ok().flatten();
                found.is_none_or(|record| record.item().unwrap() != **item)
            });
            let in_it = facts.index_at.saturating_sub(block * 4096).div_ceil(100);
            assert!(lost.count() as u64 <= in_it, "{count} {block}: {facts:?}");
            both += u32::from(block == index_end / 4096 && !index_end.is_multiple_of(4096));
        }
    }
    assert!(both > 10, "{both}");
}

#[test]
fn an_empty_volume_and_a_long_value_in_pieces() {
    let (_, disk) = sim();
    write(&*disk, &[]).unwrap();
    let volume = open(&disk).unwrap();
    assert_eq!((volume.records().count(), volume.get(&NoBlocks, Address::new(5, 5)).unwrap()), (0, None));
    let bytes = values(&[3 * PIECE_BYTES + 17]);
    write(&*disk, &sample(&bytes)).unwrap();
    let volume = open(&disk).unwrap();
    let record = volume.get(&NoBlocks, Address::new(1000, 24)).unwrap().unwrap();
    let Body::Value { value, .. } = record.item().unwrap().body else { panic!("{record:?}") };
    assert_eq!((value.value, value.hash), (&bytes[0][..], xxh3_64(&bytes[0])));
}

#[derive(Default)]
struct Kept(Mutex<BTreeMap<Named, Arc<[u8]>>>, AtomicU64);

/// A block: its volume, and its number.
type Named = ((u64, u32), usize);

impl Blocks for Kept {
    fn get(&self, volume: (u64, u32), block: usize) -> Option<Arc<[u8]>> {
        let found = self.0.lock().unwrap().get(&(volume, block)).cloned();
        self.1.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
        found
    }

    fn keep(&self, volume: (u64, u32), block: usize, payload: &Arc<[u8]>) {
        self.0.lock().unwrap().insert((volume, block), Arc::clone(payload));
    }
}

#[test]
fn a_read_is_one_block_and_one_read_and_with_the_block_in_memory_one_read() {
    let (sim, disk) = sim();
    let bytes = values(&[8192; 300]);
    write(&*disk, &sample(&bytes)).unwrap();
    let volume = open(&disk).unwrap();
    let kept = Kept::default();
    for calls in [2, 1, 1] {
        let before = sim.calls();
        volume.get(&kept, Address::new(1100, 24)).unwrap().unwrap();
        assert_eq!(sim.calls() - before, calls);
    }
    assert_eq!(kept.1.load(Ordering::Relaxed), 2);
}

#[test]
fn items_out_of_order_or_out_of_range_are_refused() {
    let (_, disk) = sim();
    let item =
        |lsn, at| Item { address: Address::new(lsn, at), body: Body::Deleted { seq: 1, keyspace: 0, key: b"k" } };
    for addresses in [[(20, 0), (20, 0)], [(20, 1), (20, 0)], [(20, 0), (19, 9)], [(20, 0), (30, 0)], [(9, 0), (10, 0)]]
    {
        let mut writer = VolumeWriter::create(&*disk, Path::new(FOLDER), (10, 30), 1, &AtOnce).unwrap();
        let refused = addresses.into_iter().find_map(|(lsn, at)| writer.push(&item(lsn, at)).err());
        assert!(matches!(refused, Some(VaultError::Order { .. })), "{addresses:?}: {refused:?}");
    }
}

fn file_bytes(disk: &dyn Disk, facts: &Facts) -> Vec<u8> {
    let open = Open { access: Access::Read, direct: false };
    let file = disk.open(&Path::new(FOLDER).join(facts.name()), open).unwrap();
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(read_exact_at(&*file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn flip(disk: &dyn Disk, facts: &Facts, bit: u64) {
    let open = Open { access: Access::Write, direct: false };
    let file = disk.open(&Path::new(FOLDER).join(facts.name()), open).unwrap();
    let mut byte = [0];
    read_exact_at(&*file, bit / 8, &mut byte).unwrap();
    write_all_at(&*file, bit / 8, &[byte[0] ^ (1 << (bit % 8))]).unwrap();
}

/// Every item is right or damaged by name; answers how many were lost, and whether anything was told.
fn judge(disk: &Arc<dyn Disk>, items: &[Item<'_>], what: &str) -> (usize, usize) {
    let volume = match open(disk) {
        Ok(volume) => volume,
        Err(error) => panic!("{what}: one bit shuts the whole volume: {error}"),
    };
    let whole: Vec<Record> = volume.records().filter_map(Result::ok).collect();
    assert!(whole.windows(2).all(|two| two[0].address < two[1].address), "{what}");
    for record in &whole {
        let at = items.binary_search_by_key(&record.address, |item| item.address).unwrap();
        assert_eq!(record.item().unwrap(), items[at], "{what}");
    }
    for item in items.iter().step_by(11) {
        let is_whole = whole.binary_search_by_key(&item.address, |record| record.address).is_ok();
        match volume.get(&NoBlocks, item.address) {
            Ok(Some(record)) => assert_eq!(record.item().unwrap(), *item, "{what}"),
            Err(VaultError::Damaged { .. }) if !is_whole => {}
            other => panic!("{what}: {}: {other:?}", item.address),
        }
    }
    let lost = items.len() - whole.len();
    let mut told = 0;
    volume.verify(&mut |error| {
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains(".values"), "{what}: {error}");
        told += 1;
    });
    (lost, told)
}

#[test]
fn any_flipped_bit_loses_at_most_the_item_that_it_stands_in_and_is_told() {
    let (_, disk) = sim();
    let lengths: Vec<usize> = (0..1200).map(|number| number % 24).chain([PIECE_BYTES + 100]).collect();
    let bytes = values(&lengths);
    let items = sample(&bytes);
    let facts = write(&*disk, &items).unwrap();
    let bits = facts.bytes * 8;
    let (index_bit, mut rng) = (facts.index_at * 8, Rng::new(1));
    let (mut harmless, mut lost_items) = (0, 0);
    for run in 0..400 {
        // Half of them into seals, index and top.
        let bit = if run % 2 == 0 {
            rng.below(bits)
        } else {
            [rng.below(900), index_bit + rng.below(bits - index_bit)][run % 4 / 2]
        };
        flip(&*disk, &facts, bit);
        let (lost, told) = judge(&disk, &items, &format!("bit {bit}"));
        assert!(lost <= 1 && told <= 1 && lost <= told, "bit {bit}: {lost} lost, {told} told");
        // What is not told is padding.
        harmless += 1 - told;
        lost_items += lost;
        flip(&*disk, &facts, bit);
    }
    assert!(lost_items > 80 && harmless < 200, "{lost_items} {harmless}");
    assert_eq!(judge(&disk, &items, "mended"), (0, 0));
}

#[test]
fn a_volume_that_is_cut_short_keeps_what_stands_before_the_cut() {
    let (_, disk) = sim();
    let bytes = values(&[3000; 40]);
    let items = sample(&bytes);
    let facts = write(&*disk, &items).unwrap();
    let whole = file_bytes(&*disk, &facts);
    let path = Path::new(FOLDER).join(facts.name());
    for cut in [whole.len() - 1, usize::try_from(facts.index_at).unwrap() + 5000, 60_000, 4095, 0] {
        disk.open(&path, Open { access: Access::Write, direct: false })
            .unwrap()
            .set_size(u64::try_from(cut).unwrap())
            .unwrap();
        match open(&disk) {
            Ok(volume) => {
                let (whole, wrong): (Vec<_>, Vec<_>) = volume.records().partition(Result::is_ok);
                let is_behind_all = cut as u64 > facts.index_at;
                assert!(whole.len() > 20 && (whole.len() == items.len()) == is_behind_all, "{cut}: {}", whole.len());
                assert!(is_behind_all || !wrong.is_empty());
            }
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{cut}: {error}"),
        }
    }
    // Another volume under this name.
    let other = Facts { generation: 2, ..facts };
    disk.rename(&path, &Path::new(FOLDER).join(other.name())).unwrap();
    assert_eq!(Volume::open(&disk, Path::new(FOLDER), 0, 2).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(open(&disk).unwrap_err().kind(), Kind::NotFound);
}

/// Stops after so many bytes.
struct Stops(AtomicU64);

impl Pace for Stops {
    fn wrote(&self, bytes: u64) -> Go {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(bytes);
        self.0.store(left, Ordering::Relaxed);
        if left == 0 { Go::Stop } else { Go::On }
    }
}

#[test]
fn a_volume_is_synced_once_and_once_more_for_its_first_seal_however_long_it_is() {
    for (values_of_100_000, syncs) in [(5, 2), (20, 2), (55, 2)] {
        let bytes = values(&vec![100_000; values_of_100_000]);
        let items = sample(&bytes);
        let fails = |nth| {
            let (sim, disk) = sim();
            sim.inject(Call::at(crate::vault::FILE, nth), Fault::Io);
            write(&*disk, &items).is_err()
        };
        assert!(fails(syncs) && !fails(syncs + 1), "{values_of_100_000} values, {syncs} syncs");
    }
}

/// What a wait for it has heard of what could not be written no sync tells again.
#[test]
fn what_cannot_be_written_back_fails_the_volume_and_no_more_than_a_mebibyte_is_on_its_way() {
    for (values_of_100_000, waits) in [(5, 0), (20, 4), (55, 16)] {
        let bytes = values(&vec![100_000; values_of_100_000]);
        let items = sample(&bytes);
        let fails = |nth| {
            let (sim, disk) = sim();
            sim.inject(Call::of(Operation::WriteBack, nth), Fault::Io);
            let failed = write(&*disk, &items).is_err();
            assert!(!failed || disk.list(Path::new(FOLDER)).unwrap().is_empty());
            failed
        };
        assert!((waits == 0 || fails(waits)) && !fails(waits + 1), "{values_of_100_000} values, {waits} waits");
    }
}

/// Writes that begin within a block of the file, as it was before them.
#[derive(Debug)]
struct Ragged(SimDisk, AtomicU64);

impl Watch for Ragged {
    fn begins(&self, path: &Path, operation: Operation) {
        let file = self.0.open(path, Open { access: Access::Read, direct: false }).unwrap();
        let is_ragged = operation == Operation::Write && !file.size().unwrap().is_multiple_of(4096);
        self.1.fetch_add(u64::from(is_ragged), Ordering::Relaxed);
    }
}

/// The disk writes a block as a whole: what is given to it in parts it may write twice.
#[test]
fn no_block_is_given_to_the_disk_in_parts_but_the_first_whose_seal_comes_last() {
    let (sim, _) = sim();
    let watch = Arc::new(Ragged(sim.clone(), AtomicU64::new(0)));
    let disk = WatchedDisk::new(sim, Arc::clone(&watch));
    let facts = write(&disk, &sample(&values(&[100_000; 20]))).unwrap();
    assert!(facts.bytes > 2_000_000 && !facts.bytes.is_multiple_of(4096));
    assert_eq!(watch.1.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stop_or_a_full_or_failing_disk_leaves_nothing_behind() {
    let (sim, disk) = sim();
    let bytes = values(&[100_000; 20]);
    let items = sample(&bytes);
    for allowed in [1, 300_000, 1_900_000] {
        let pace = Stops(AtomicU64::new(allowed));
        let mut writer = VolumeWriter::create(&*disk, Path::new(FOLDER), (0, 1 << 40), 1, &pace).unwrap();
        let done = items.iter().try_for_each(|item| writer.push(item)).and_then(|()| writer.finish(1, 0).map(|_| ()));
        assert_eq!(done, Err(VaultError::Stopped), "{allowed}");
        assert_eq!(disk.list(Path::new(FOLDER)).unwrap(), Vec::<String>::new());
    }
    for capacity in [4096, 1_000_000, 2_009_000] {
        sim.set_capacity(Some(sim.used_bytes() + capacity));
        assert_eq!(write(&*disk, &items).unwrap_err().kind(), Kind::Full, "{capacity}");
        assert_eq!(disk.list(Path::new(FOLDER)).unwrap(), Vec::<String>::new());
    }
    sim.set_capacity(None);
    for operation in [Operation::Write, Operation::SyncAll, Operation::SyncDir] {
        sim.inject(Call::of(operation, 1), Fault::Io);
        assert_eq!(write(&*disk, &items).unwrap_err().kind(), Kind::Unavailable, "{operation:?}");
        assert_eq!(disk.list(Path::new(FOLDER)).unwrap(), Vec::<String>::new());
    }
    write(&*disk, &items).unwrap();
}

#[test]
fn a_doomed_volume_goes_with_its_last_reader_and_what_nobody_knows_at_the_next_open() {
    let (_, disk) = sim();
    let bytes = values(&[10]);
    let facts = write(&*disk, &sample(&bytes)).unwrap();
    let (volume, reader) = (open(&disk).unwrap(), ());
    let second = Arc::clone(&volume);
    volume.doom();
    drop((volume, reader));
    assert!(second.get(&NoBlocks, Address::new(1000, 24)).unwrap().is_some());
    drop(second);
    assert_eq!(open(&disk).unwrap_err().kind(), Kind::NotFound);
    write(&*disk, &[]).unwrap();
    let known = [(0, 1)].into_iter().collect();
    assert_eq!(remove_unknown(&*disk, Path::new(FOLDER), &known), Ok(0));
    assert_eq!(remove_unknown(&*disk, Path::new(FOLDER), &Default::default()), Ok(1));
    assert!(disk.list(Path::new(FOLDER)).unwrap().is_empty(), "{facts:?}");
}

#[test]
fn fuzz_volume() {
    let (_, disk) = sim();
    let bytes = values(&[0, 10, 300, 5000]);
    let facts = write(&*disk, &sample(&bytes)).unwrap();
    let good = file_bytes(&*disk, &facts);
    crate::fuzzing::fuzz_volume(&good);
    let runs = assent_sim::fuzz(1, &[&good, b""], crate::fuzzing::fuzz_volume);
    assert!(runs > 1_000, "{runs}");
}

#[derive(Clone, Debug)]
struct Written {
    step: u64,
    at: u32,
    kind: u8,
    key: Vec<u8>,
    value: Vec<u8>,
}

fn written() -> impl Strategy<Value = Written> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    (1_u64..1 << 20, any::<u32>(), 0_u8..4, bytes(40), bytes(2000)).prop_map(|(step, at, kind, key, value)| Written {
        step,
        at,
        kind,
        key,
        value,
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn any_items_come_back(all in proptest::collection::vec(written(), 0..120)) {
        let (_, disk) = sim();
        let mut lsn = 0;
        let items: Vec<Item<'_>> = all.iter().map(|Written { step, at, kind, key, value: bytes }| {
            lsn += step;
            let body = match kind {
                0 => Body::Deleted { seq: *step, keyspace: *at, key },
                1 => Body::Erased { seq: *step, keyspace: *at, from: key, to: step.is_multiple_of(2).then_some(&bytes[..]) },
                2 => Body::Prepared { xid: xid(), value: value(key, bytes) },
                _ => Body::Value { seq: *step, value: Value { metadata: key, expiry: *step, ..value(key, bytes) } },
            };
            Item { address: Address::new(lsn, *at), body }
        }).collect();
        write(&*disk, &items).unwrap();
        let volume = open(&disk).unwrap();
        let read: Vec<Record> = volume.records().map(Result::unwrap).collect();
        proptest::prop_assert_eq!(read.iter().map(|record| record.item().unwrap()).collect::<Vec<_>>(), items.clone());
        for item in &items {
            let record = volume.get(&NoBlocks, item.address).unwrap().unwrap();
            proptest::prop_assert_eq!(record.item().unwrap(), item.clone());
        }
    }
}
