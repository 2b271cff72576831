//! The state table: rows as they were told after whatever happened to its files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_coordinator::engine::{BACKLOG, Engine, Found, TableConfig, TableLog, is_foreign};
use assent_coordinator::{Config, Coordinator, Fate, Known, Standing};
use assent_ids::{ResourceId, TxId};
use assent_journal::{Journal, JournalError, Kept, Log, State, Ticket};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, Rng, SimClock, SimDice, SimDisk, Survival};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};
use assent_xa::{Deviation, Heuristic, Native, Outcome};

use crate::stand::{IDENTITY, LOST, NAMES, StandOver, Table, commit, operator, tx};

const FOLDER: &str = "table";
/// The records that the model uses; docs/format.md.
const DECIDED: u16 = 0x0102;
const FINISHED: u16 = 0x0202;
const ENTRY: u16 = 0x0b01;

struct Machine {
    disk: SimDisk,
    clock: SimClock,
    config: TableConfig,
}

impl Machine {
    fn new(config: TableConfig) -> Self {
        Self { disk: SimDisk::new(), clock: SimClock::new(), config }
    }

    fn try_open(&self) -> Result<(Arc<TableLog>, Found), JournalError> {
        let (clock, dice) = (Arc::new(self.clock.clone()), SimDice::new(3));
        TableLog::open(&self.disk, clock, &dice, Path::new(FOLDER), self.config.clone())
    }

    fn open(&self) -> (Arc<TableLog>, Found) {
        self.try_open().unwrap()
    }

    fn file(&self, name: &str) -> Arc<dyn assent_world::File> {
        self.disk.open(&Path::new(FOLDER).join(name), Open { access: Access::Write, direct: false }).unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
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

fn small() -> TableConfig {
    TableConfig { log_size: 20_480, max_buffer_log_size: 8_192, ..TableConfig::default() }
}

fn lazy() -> TableConfig {
    TableConfig { min_elapsed_sync_time: 2, max_elapsed_sync_time: 10, ..small() }
}

/// A decision of transaction `number`, with one branch whose witness has so many bytes.
fn decided(number: u64, witness: usize, forgotten: &[u64]) -> Vec<u8> {
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

fn id(number: u64) -> Vec<u8> {
    let mut bytes = [1_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    bytes.extend(number.to_le_bytes());
    bytes
}

/// What it tells: for each transaction the length of its branch's witness.
fn told(table: &TableLog) -> BTreeMap<u64, usize> {
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
fn worked(machine: &Machine) -> (Arc<TableLog>, BTreeMap<u64, usize>) {
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
fn a_group_is_one_sync_and_the_touched_blocks() {
    let machine = Machine::new(TableConfig { log_size: 1 << 20, ..small() });
    let (table, _) = machine.open();
    // As many rows as fill a hundred blocks.
    for number in 0..400 {
        table.append(DECIDED, &[&decided(number, 900, &[])]).unwrap();
    }
    table.sync().unwrap();
    for round in 0..100 {
        let before = table.counts();
        let forgotten = if round == 0 { vec![] } else { vec![1_000 + round - 1] };
        let ticket = table.append(DECIDED, &[&decided(1_000 + round, 100, &forgotten)]).unwrap();
        table.wait(ticket).unwrap();
        let after = table.counts();
        assert_eq!(after.syncs - before.syncs, 1);
        if round > 1 {
            let blocks = (after.bytes - before.bytes) / 4096;
            assert!(blocks <= 3, "{blocks} blocks for one decision, of {} in the table", 100);
        }
    }
}

#[test]
fn many_threads_share_a_sync() {
    for config in [small(), lazy()] {
        let machine = Machine::new(TableConfig { log_size: 1 << 20, ..config });
        let (table, _) = machine.open();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let table = &table;
                scope.spawn(move || {
                    for number in 0..200 {
                        let number: u64 = thread * 1_000 + number;
                        let before = [number.saturating_sub(1)];
                        let ticket = table.append(DECIDED, &[&decided(number, 50, &before)]).unwrap();
                        if number.is_multiple_of(3) {
                            table.wait_durable(ticket).unwrap()
                        } else {
                            table.wait(ticket).unwrap()
                        }
                    }
                });
            }
        });
        let rows = told(&table);
        assert_eq!(rows.len(), 8, "{rows:?}");
        assert!(table.counts().syncs <= 1_601, "{:?}", table.counts());
        table.close().unwrap();
        machine.disk.kill();
        assert_eq!(told(&machine.open().0), rows);
    }
}

#[test]
fn a_lazy_table_syncs_in_time_though_nothing_comes_any_more() {
    let machine = Machine::new(lazy());
    let (table, _) = machine.open();
    let syncs = || table.counts().syncs;
    let ticket = table.append(DECIDED, &[&decided(1, 10, &[])]).unwrap();
    table.wait(ticket).unwrap();
    assert!(table.durable() < ticket.end && syncs() == 0, "acknowledged first");
    let pause = table.maintain();
    assert!(pause <= Duration::from_millis(5) && table.durable() < ticket.end, "due in {pause:?}");
    machine.clock.advance(Duration::from_micros(4_999));
    table.maintain();
    assert_eq!(syncs(), 0, "not before half of the longest time");
    machine.clock.advance(Duration::from_micros(1));
    table.maintain();
    assert!(table.durable() == ticket.end && syncs() >= 1, "traffic has stopped, the bound has not");
    // Nobody waits for this one at all.
    let ticket = table.append(FINISHED, &[&[0; 8], &id(1)]).unwrap();
    table.maintain();
    machine.clock.advance(Duration::from_millis(5));
    table.maintain();
    assert_eq!(table.durable(), ticket.end);
    let strict = table.append(DECIDED, &[&decided(2, 10, &[])]).unwrap();
    table.wait_durable(strict).unwrap();
    assert_eq!(table.durable(), strict.end, "what others decide is durable in every policy");
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged_though_nothing_was_synced() {
    let machine = Machine::new(lazy());
    let (table, _) = machine.open();
    for number in 0..20 {
        table.wait(table.append(DECIDED, &[&decided(number, 10, &[])]).unwrap()).unwrap();
    }
    // It dies in the middle of writing the next group: the head has been written, the rows have not.
    table.append(DECIDED, &[&decided(20, 9_000, &[])]).unwrap();
    machine.disk.inject(Call::of(Operation::Write, 2), Fault::Io);
    let end = table.end();
    assert!(table.wait(Ticket { lsn: end, end }).is_err());
    drop(table);
    machine.disk.kill();
    let (table, found) = machine.open();
    assert_eq!(told(&table).len(), 20, "{found:?}");
    assert!(found.torn.is_some() && !found.may_have_lost, "{found:?}");
}

#[test]
fn what_a_power_cut_took_from_a_lazy_table_is_known() {
    for (is_closed, is_rebooted, expected) in [(false, true, true), (false, false, false), (true, true, false)] {
        let machine = Machine::new(lazy());
        let (table, _) = machine.open();
        table.wait(table.append(DECIDED, &[&decided(1, 10, &[])]).unwrap()).unwrap();
        if is_closed {
            table.close().unwrap();
        }
        drop(table);
        if is_rebooted {
            machine.disk.cut_power(Survival::Nothing);
            machine.clock.reboot();
        } else {
            machine.disk.kill();
        }
        let (table, found) = machine.open();
        assert_eq!((found.may_have_lost, table.may_have_lost()), (expected, expected), "{is_closed} {is_rebooted}");
        assert_eq!(told(&table).len(), usize::from(is_closed || !is_rebooted));
        assert!(table.is_lazy());
    }
}

#[test]
fn a_full_disk_refuses_before_anything_is_changed_and_goes_on_when_there_is_room() {
    let machine = Machine::new(small());
    let (table, _) = machine.open();
    machine.disk.set_capacity(Some(machine.disk.used_bytes()));
    let mut taken = 0;
    let error = loop {
        match table.append(DECIDED, &[&decided(taken, 900, &[])]) {
            Ok(ticket) => table.wait(ticket).unwrap(),
            Err(error) => break error,
        }
        taken += 1;
    };
    assert_eq!((error.kind(), table.state()), (Kind::Full, State::Full));
    assert!(error.to_string().contains("make room"), "{error}");
    assert_eq!(told(&table).len(), usize::try_from(taken).unwrap());
    // What is finished can be told, and its room is used again.
    let ticket = table.append(FINISHED, &[&[0; 8], &id(0)]).unwrap();
    table.wait(ticket).unwrap();
    table.wait(table.append(DECIDED, &[&decided(1_000, 900, &[])]).unwrap()).unwrap();
    assert_eq!(table.append(DECIDED, &[&decided(1_001, 900, &[])]).unwrap_err().kind(), Kind::Full);
    machine.disk.set_capacity(None);
    table.wait(table.append(DECIDED, &[&decided(1_001, 900, &[])]).unwrap()).unwrap();
    assert_eq!((table.state(), told(&table).len()), (State::Open, usize::try_from(taken).unwrap() + 1));
}

#[test]
fn an_opening_on_a_full_disk_is_refused_and_loses_nothing() {
    let machine = Machine::new(small());
    let (table, rows) = worked(&machine);
    table.close().unwrap();
    drop(table);
    let files = ["table-1", "table-2"].map(|name| machine.bytes(name));
    for room in [0, 8_192] {
        machine.disk.set_capacity(Some(machine.disk.used_bytes() + room));
        let refused = machine.try_open().err().map(|error| error.kind());
        assert_eq!(refused, Some(Kind::Full), "{room} bytes of room");
        assert_eq!(["table-1", "table-2"].map(|name| machine.bytes(name)), files);
        machine.disk.set_capacity(None);
    }
    assert_eq!(told(&machine.open().0), rows);
}

#[test]
fn what_a_table_does_not_know_is_refused_and_what_is_history_changes_nothing() {
    let machine = Machine::new(small());
    let (table, _) = machine.open();
    for (kind, payload) in [(0x7f01, &b"from the future"[..]), (0x0302, b""), (DECIDED, b"short")] {
        assert!(table.append(kind, &[payload]).is_err(), "{kind:#06x}");
    }
    let seal = table.append(0x0801, &[&[0; 88]]).unwrap();
    assert_eq!((seal.end, table.end(), table.counts().syncs), (table.durable(), seal.end, 0));
    table.wait_durable(seal).unwrap();
    assert_eq!((told(&table).len(), table.counts().syncs), (0, 0), "nobody waits for what was not written");
}

#[test]
fn a_failed_write_closes_the_table_and_recovery_decides() {
    let machine = Machine::new(small());
    let (table, _) = machine.open();
    table.wait(table.append(DECIDED, &[&decided(1, 10, &[])]).unwrap()).unwrap();
    let ticket = table.append(DECIDED, &[&decided(2, 10, &[])]).unwrap();
    machine.disk.inject(Call::of(Operation::WriteDurable, 1), Fault::Io);
    assert_eq!(table.wait(ticket).unwrap_err().kind(), Kind::Closed);
    assert_eq!(table.append(FINISHED, &[&[0; 8], &id(1)]).unwrap_err().kind(), Kind::Closed);
    assert_eq!((table.state(), table.wait(ticket).unwrap_err().kind()), (State::Closed, Kind::Closed));
    drop(table);
    // The page cache shows it, the disk may not have it: the opening makes it so before it is told.
    machine.disk.kill();
    let (table, _) = machine.open();
    let rows = told(&table);
    drop(table);
    machine.disk.cut_power(Survival::Nothing);
    assert_eq!(told(&machine.open().0), rows);
}

#[test]
fn a_folder_of_the_other_engine_is_refused_with_what_to_do() {
    let machine = Machine::new(small());
    let (clock, dice): (Arc<SimClock>, _) = (Arc::new(machine.clock.clone()), Arc::new(SimDice::new(1)));
    let disk: Arc<dyn Disk> = Arc::new(machine.disk.clone());
    let (journal, _) =
        Journal::open(Arc::clone(&disk), clock, dice, Path::new("journal"), assent_journal::Config::default()).unwrap();
    journal.close().unwrap();
    let dice = SimDice::new(1);
    let clock = Arc::new(machine.clock.clone());
    let error = TableLog::open(&*disk, clock, &dice, Path::new("journal"), small()).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("engine = \"journal\""), "{error}");
    let (table, _) = machine.open();
    assert_eq!(machine.try_open().unwrap_err().kind(), Kind::Busy, "open in another process");
    drop(table);
    assert_eq!(is_foreign(&*disk, Path::new(FOLDER), Engine::Journal), Ok(Some(Engine::Table)));
    assert_eq!(is_foreign(&*disk, Path::new(FOLDER), Engine::Table), Ok(None));
    assert_eq!(is_foreign(&*disk, Path::new("nowhere"), Engine::Table), Ok(None));
}

#[test]
fn a_hundred_thousand_transactions_leave_a_table_of_one_file_size_and_no_history() {
    let machine = Machine::new(small());
    let open = || {
        let (table, found) = machine.open();
        let clock = Arc::new(machine.clock.clone());
        let coordinator = Coordinator::open(table.clone(), clock, IDENTITY, Config::default()).unwrap();
        (table, coordinator, found)
    };
    let (table, coordinator, _) = open();
    let session = coordinator.handshake("client").unwrap();
    machine.clock.advance(LOST);
    coordinator.tick().unwrap();
    let unfinished = tx(&session, 0);
    coordinator.decide(&commit(unfinished)).unwrap();
    let mut pending = Vec::new();
    for counter in 1..=100_000 {
        let tx: TxId = tx(&session, counter);
        pending.push(coordinator.decide_begin(&commit(tx)).unwrap());
        coordinator.finished(tx);
        if counter % 50 == 0 {
            pending.drain(..).for_each(|one| _ = coordinator.decide_end(one).unwrap());
        }
    }
    coordinator.tick().unwrap();
    // Clients come and go, and one row says who is fenced.
    for _ in 0..50 {
        let other = coordinator.handshake("other").unwrap();
        coordinator.lost(other.incarnation);
        machine.clock.advance(LOST);
        coordinator.tick().unwrap();
    }
    for verify in [true, false] {
        let filter = assent_coordinator::history::Filter::default();
        let error = if verify {
            assent_coordinator::history::verify(&*table, None).unwrap_err()
        } else {
            assent_coordinator::history::read(&*table, &filter, &mut |_| std::ops::ControlFlow::Continue(()))
                .unwrap_err()
        };
        assert!(error.to_string().contains("keeps its state in a table and no history"), "{error}");
    }
    table.close().unwrap();
    assert!(machine.bytes("table-1").len() <= 2 * 20_480, "{}", machine.bytes("table-1").len());
    drop((table, coordinator));
    machine.disk.kill();
    let (_, coordinator, found) = open();
    assert_eq!(found.rows, 3, "one transaction, one census, one name");
    assert_eq!(coordinator.ask(unfinished), Known::Committed);
    assert_eq!(coordinator.gauges().checkpoints, 0);
    coordinator.resume(session.incarnation, session.secret).unwrap();
}

#[test]
fn a_persons_word_about_a_heuristic_outcome_is_in_the_row() {
    let mut stand = StandOver::<Table>::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    let (heuristic, native) = (Heuristic::Mixed, Native { code: "X1".to_owned(), message: "half".to_owned() });
    let deviation = Deviation { resource: ResourceId::of(NAMES[0]), number: 0, flags: 0, heuristic, native };
    stand.coordinator.heuristic(mine, Outcome::Committed, &[deviation]);
    stand.coordinator.tick().unwrap();
    stand.restart(false);
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
    let branch = stand.coordinator.show(mine).unwrap().branches[0].clone();
    assert!(
        matches!(&branch.fate, Fate::Heuristic(Heuristic::Mixed, native) if native.message == "half"),
        "{branch:?}"
    );
    assert!(!stand.coordinator.show(mine).unwrap().is_acknowledged);
    stand.coordinator.forget(mine, &operator()).unwrap();
    stand.restart(false);
    assert_eq!(stand.coordinator.gauges().heuristic, 0);
    let view = stand.coordinator.show(mine).unwrap();
    assert!(view.is_acknowledged && view.branches[0].fate == Fate::Cleared, "{view:?}");
}

#[test]
fn a_fence_that_is_older_than_the_census_is_a_row_until_the_census_says_it() {
    let mut stand = StandOver::<Table>::new();
    let (gone, here) = (stand.coordinator.handshake("gone").unwrap(), stand.coordinator.handshake("here").unwrap());
    stand.coordinator.lost(gone.incarnation);
    stand.clock.advance(LOST / 2);
    // The door opens late: earlier clients have their time from here, and so the census waits.
    stand.coordinator.listening();
    stand.clock.advance(LOST / 2 + Duration::from_millis(1));
    stand.coordinator.tick().unwrap();
    let kinds = |stand: &StandOver<Table>| -> Vec<u16> {
        stand.log.read(stand.log.start()).unwrap().map(|entry| entry.unwrap().kind).collect()
    };
    assert_eq!(kinds(&stand), [0x0401, 0x0701], "the fence, and the name of who is here");
    stand.restart(false);
    assert_eq!(stand.coordinator.standing(gone.incarnation), Standing::Fenced);
    assert_eq!(stand.coordinator.standing(here.incarnation), Standing::Resumable);
    stand.coordinator.resume(here.incarnation, here.secret).unwrap();
    stand.fence();
    assert_eq!(kinds(&stand), [0x0501, 0x0701], "the census, and that name");
    stand.restart(false);
    assert_eq!(stand.coordinator.standing(gone.incarnation), Standing::Fenced);
    assert_eq!(stand.coordinator.standing(here.incarnation), Standing::Resumable);
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
