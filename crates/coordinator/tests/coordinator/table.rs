//! The state table: rows as they were told after whatever happened to its files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_coordinator::engine::{BACKLOG, Found, TableConfig, TableLog};
use assent_journal::{JournalError, Kept, Log};
use assent_kind::Kind;
use assent_sim::{Rng, SimClock, SimDice, SimDisk, Survival};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

pub(super) const FOLDER: &str = "table";
/// The records that the model uses; docs/format.md.
pub(super) const DECIDED: u16 = 0x0102;
pub(super) const FINISHED: u16 = 0x0202;
const ENTRY: u16 = 0x0b01;

pub(super) struct Machine {
    pub(super) disk: SimDisk,
    pub(super) clock: SimClock,
    pub(super) config: TableConfig,
}

impl Machine {
    pub(super) fn new(config: TableConfig) -> Self {
        Self { disk: SimDisk::new(), clock: SimClock::new(), config }
    }

    pub(super) fn try_open(&self) -> Result<(Arc<TableLog>, Found), JournalError> {
        let (clock, dice) = (Arc::new(self.clock.clone()), SimDice::new(3));
        TableLog::open(&self.disk, clock, &dice, Path::new(FOLDER), self.config.clone())
    }

    pub(super) fn open(&self) -> (Arc<TableLog>, Found) {
        self.try_open().unwrap()
    }

    fn file(&self, name: &str) -> Arc<dyn assent_world::File> {
        self.disk.open(&Path::new(FOLDER).join(name), Open { access: Access::Write, direct: false }).unwrap()
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.file(name);
        let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        assert_eq!(read_exact_at(&*file, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    fn flip(&self, name: &str, at: usize) {
        let byte = self.bytes(name)[at] ^ 0x10;
        write_all_at(&*self.file(name), u64::try_from(at).unwrap(), &[byte]).unwrap();
    }
}

pub(super) fn small() -> TableConfig {
    TableConfig { log_size: 20_480, max_buffer_log_size: 8_192, ..TableConfig::default() }
}

pub(super) fn lazy() -> TableConfig {
    TableConfig { min_elapsed_sync_time: 2, max_elapsed_sync_time: 10, ..small() }
}

/// A decision of transaction `number`, with one branch whose witness has so many bytes.
pub(super) fn decided(number: u64, witness: usize, forgotten: &[u64]) -> Vec<u8> {
    let mut bytes = id(number);
    bytes.extend([1, 1]);
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend([9; 12]);
    bytes.extend(u32::try_from(witness).unwrap().to_le_bytes());
    bytes.extend((0..witness).map(|at| u8::try_from(at % 256).unwrap()));
    forgotten.iter().for_each(|number| bytes.extend(id(*number)));
    bytes
}

pub(super) fn id(number: u64) -> Vec<u8> {
    let mut bytes = [1_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    bytes.extend(number.to_le_bytes());
    bytes
}

/// What it tells: for each transaction the length of its branch's witness.
pub(super) fn told(table: &TableLog) -> BTreeMap<u64, usize> {
    let entries = table.read(table.start()).unwrap().map(Result::unwrap);
    let row = |entry: assent_journal::Entry| {
        assert_eq!(entry.kind, ENTRY);
        let number = u64::from_le_bytes(entry.payload[8..16].try_into().unwrap());
        let witness = u32::from_le_bytes(entry.payload[41..45].try_into().unwrap());
        assert_eq!(entry.payload.len(), 47 + usize::try_from(witness).unwrap());
        (number, usize::try_from(witness).unwrap())
    };
    entries.map(row).collect()
}

#[test]
fn a_table_is_what_a_plain_map_would_be_over_any_operations_and_reopenings() {
    for seed in 0..24 {
        let (mut rng, config) = (Rng::new(seed), if seed % 3 == 0 { lazy() } else { small() });
        let machine = Machine::new(TableConfig { dsync: seed % 2 == 1, ..config });
        let (mut table, mut model) = (machine.open().0, BTreeMap::new());
        for number in 0..rng.range(20..120) {
            match rng.below(16) {
                0 => {
                    let is_clean = rng.below(2) == 0;
                    if is_clean {
                        table.close().unwrap()
                    } else {
                        _ = table.sync().unwrap()
                    }
                    machine.disk.kill();
                    let (again, found) = machine.open();
                    assert_eq!((found.is_clean, &found.torn, found.healed.len()), (is_clean, &None, 0), "seed {seed}");
                    table = again;
                }
                1..5 => {
                    let gone: Vec<u64> = model.keys().copied().filter(|_| rng.below(3) == 0).collect();
                    let payload: Vec<u8> = gone.iter().flat_map(|number| id(*number)).collect();
                    table.append(FINISHED, &[&[0; 8], &payload]).unwrap();
                    gone.iter().for_each(|number| _ = model.remove(number));
                }
                5 => _ = table.maintain(),
                6 => machine.clock.advance(Duration::from_millis(rng.below(8))),
                _ => {
                    let most = if rng.below(12) == 0 { 40_000 } else { 600 };
                    let witness = usize::try_from(rng.below(most)).unwrap();
                    let forgotten: Vec<u64> = model.keys().copied().filter(|_| rng.below(9) == 0).take(2).collect();
                    let ticket = table.append(DECIDED, &[&decided(number, witness, &forgotten)]).unwrap();
                    forgotten.iter().for_each(|number| _ = model.remove(number));
                    _ = model.insert(number, witness);
                    if rng.below(2) == 0 {
                        table.wait(ticket).unwrap();
                    }
                }
            }
            assert_eq!(told(&table), model, "seed {seed}");
        }
    }
}

/// A table with rows of all sizes, after work in many groups.
pub(super) fn worked(machine: &Machine) -> (Arc<TableLog>, BTreeMap<u64, usize>) {
    let (table, _) = machine.open();
    for number in 0..60 {
        let witness = usize::try_from(number % 7).unwrap() * 90 + if number % 20 == 3 { 9_000 } else { 0 };
        let forgotten: &[u64] = if number % 3 == 2 { &[number - 1] } else { &[] };
        let ticket = table.append(DECIDED, &[&decided(number, witness, forgotten)]).unwrap();
        table.wait_durable(ticket).unwrap();
    }
    let rows = told(&table);
    (table, rows)
}

#[test]
fn any_damaged_byte_of_a_closed_table_changes_nothing_that_is_told() {
    let machine = Machine::new(small());
    let (table, rows) = worked(&machine);
    table.close().unwrap();
    machine.disk.kill();
    for name in ["table-1", "table-2"] {
        let blocks = machine.bytes(name).len() / 4096;
        let mut rng = Rng::new(5);
        for block in 0..blocks {
            for at in (0..6).map(|_| block * 4096 + usize::try_from(rng.below(4096)).unwrap()) {
                machine.flip(name, at);
                let (read, found) = read_only(&machine).unwrap();
                assert_eq!(told(&read), rows, "{name} at {at}: {found:?}");
                machine.flip(name, at);
            }
        }
    }
    let place = 2 * 4096 + 77;
    machine.flip("table-1", place);
    machine.flip("table-2", place);
    let error = read_only(&machine).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("damaged at byte 8192"), "{error}");
    let before = machine.bytes("table-1");
    assert_eq!(machine.try_open().unwrap_err(), error);
    assert_eq!(machine.bytes("table-1"), before, "nothing was changed");
}

fn read_only(machine: &Machine) -> Result<(TableLog, Found), JournalError> {
    TableLog::open_read_only(&machine.disk, Arc::new(machine.clock.clone()), Path::new(FOLDER))
}

#[test]
fn any_damaged_block_of_an_idle_table_changes_nothing_that_is_told_after_a_crash() {
    for config in [small(), lazy()] {
        let machine = Machine::new(config);
        let (table, rows) = worked(&machine);
        for _ in 0..3 {
            table.maintain();
            machine.clock.advance(Duration::from_millis(100));
        }
        let counts = table.counts();
        table.maintain();
        assert_eq!(table.counts(), counts, "brought up to date once, then it rests");
        drop(table);
        machine.disk.cut_power(Survival::Nothing);
        for name in ["table-1", "table-2"] {
            for block in 0..machine.bytes(name).len() / 4096 {
                machine.flip(name, block * 4096 + 30);
                assert_eq!(told(&read_only(&machine).unwrap().0), rows, "{name}, block {block}");
                machine.flip(name, block * 4096 + 30);
            }
        }
    }
}

#[test]
fn damage_after_a_crash_is_healed_or_is_the_state_before_the_last_group_and_is_said() {
    let machine = Machine::new(small());
    let (table, rows) = worked(&machine);
    drop(table);
    machine.disk.cut_power(Survival::Nothing);
    let before: BTreeMap<u64, usize> = rows
        .iter()
        .map(|(number, witness)| (*number, *witness))
        .filter(|(number, _)| *number != 59)
        .chain([(58, 180)])
        .collect();
    let (mut healed, mut fell_back) = (0, 0);
    for name in ["table-1", "table-2"] {
        for block in 0..machine.bytes(name).len() / 4096 {
            machine.flip(name, block * 4096 + 30);
            let (read, found) = read_only(&machine).unwrap();
            let now = told(&read);
            healed += found.healed.len();
            if now != rows {
                assert_eq!(now, before, "{name}, block {block}");
                assert!(found.torn.is_some(), "it fell back and did not say so: {name}, block {block}");
                fell_back += 1;
            }
            machine.flip(name, block * 4096 + 30);
        }
    }
    assert!(healed > 0 && fell_back > 0, "{healed} healed, {fell_back} fell back");
}

#[test]
fn a_file_from_an_old_backup_never_stands_in_for_what_was_durable() {
    let machine = Machine::new(small());
    let (table, _) = machine.open();
    let decide = |number| table.wait(table.append(DECIDED, &[&decided(number, 900, &[])]).unwrap()).unwrap();
    (0..4).for_each(decide);
    let old: Vec<Vec<u8>> = ["table-1", "table-2"].iter().map(|name| machine.bytes(name)).collect();
    (4..9).for_each(decide);
    drop(table);
    machine.disk.cut_power(Survival::Nothing);
    let rows = told(&read_only(&machine).unwrap().0);
    assert_eq!(rows.len(), 9);
    // Which of the two is the newest is seen by what is lost with it.
    let mut refused = 0;
    for (at, (name, other)) in [("table-1", "table-2"), ("table-2", "table-1")].into_iter().enumerate() {
        let (now, newest) = (machine.bytes(other), machine.bytes(name));
        let last =
            (1..newest.len() / 4096).rev().find(|block| newest[block * 4096..][..4096] != now[block * 4096..][..4096]);
        machine.flip(name, last.unwrap() * 4096 + 60);
        let fell_back = told(&read_only(&machine).unwrap().0) != rows;
        write_all_at(&*machine.file(other), 0, &old[1 - at]).unwrap();
        if fell_back {
            assert_eq!(read_only(&machine).unwrap_err().kind(), Kind::Corrupt, "{name} damaged, {other} from a backup");
            refused += 1;
        }
        write_all_at(&*machine.file(name), 0, &newest).unwrap();
        assert_eq!(told(&read_only(&machine).unwrap().0).len(), if fell_back { 9 } else { 8 });
        write_all_at(&*machine.file(other), 0, &now).unwrap();
    }
    assert_eq!(refused, 1);
}

#[test]
fn on_a_real_disk_it_grows_and_is_read_back_however_it_is_written() {
    let ways = [(true, false, 0), (true, true, 0), (false, false, 0), (false, true, 0), (true, false, 20)];
    for (direct, dsync, max_elapsed_sync_time) in ways {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let config = TableConfig { direct, dsync, max_elapsed_sync_time, ..small() };
            let (clock, place) = (Arc::new(assent_world::RealClock), folder.path().join("table"));
            TableLog::open(&assent_world::RealDisk, clock, &assent_world::RealDice, &place, config).unwrap()
        };
        let (table, _) = open();
        for number in 0..60 {
            let witness = if number % 20 == 7 { 30_000 } else { 500 };
            let forgotten = if number % 4 == 3 { vec![number - 2] } else { vec![] };
            table.wait(table.append(DECIDED, &[&decided(number, witness, &forgotten)]).unwrap()).unwrap();
            if number == 30 {
                _ = table.maintain();
            }
        }
        let (rows, counts) = (told(&table), table.counts());
        assert!(rows.len() == 45 && counts.segments > 4, "{counts:?}");
        if direct {
            table.close().unwrap();
        }
        drop(table);
        let (table, found) = open();
        assert_eq!((told(&table), found.is_clean, found.torn), (rows, direct, None), "{direct} {dsync}");
    }
}

#[test]
fn fuzz_tables() {
    let machine = Machine::new(small());
    let (table, _) = machine.open();
    for number in 0..12 {
        let witness = if number % 5 == 0 { 4_500 } else { 30 };
        table.wait(table.append(DECIDED, &[&decided(number, witness, &[number.saturating_sub(2)])]).unwrap()).unwrap();
    }
    let crashed = [machine.bytes("table-1"), machine.bytes("table-2")].concat();
    table.close().unwrap();
    let closed = [machine.bytes("table-1"), machine.bytes("table-2")].concat();
    let runs = assent_sim::fuzz(1, &[&crashed, &closed], assent_coordinator::fuzzing::table);
    assert!(runs > 100, "{runs}");
    assert_eq!(BACKLOG.label(), "table: the written groups before they count as durable");
}

/// The keeper doubles an idle table, and lets whoever comes meanwhile at the files.
#[test]
fn who_commits_while_an_idle_table_is_doubled_does_not_wait_for_ever() {
    let machine = Machine::new(lazy());
    let (table, _) = machine.open();
    let clock = machine.clock;
    let (done, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    clock.advance(Duration::from_millis(10));
                    table.maintain();
                }
            });
            for number in 1..=20_000_u64 {
                let ticket = table.append(DECIDED, &[&decided(number, 0, &[number - 1])]).unwrap();
                table.wait(ticket).unwrap();
                if number % 500 == 0 {
                    done.send(()).unwrap();
                }
                // Sometimes long enough for the keeper to find it idle. To yield would be to wait for whole slices of the keeper, where
                // both have one core.
                (0..number % 64 * 16).for_each(|_| std::hint::spin_loop());
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    for _ in 0..40 {
        assert!(heard.recv_timeout(Duration::from_secs(60)).is_ok(), "keeper and committer wait for each other");
    }
}
