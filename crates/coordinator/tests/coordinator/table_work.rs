//! The state table at work: shared syncs, lazy ones, kills, full disks and failed ones, folders of the other engine, and what a coordinator
//! leaves in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::engine::{Engine, TableConfig, TableLog, is_foreign};
use assent_coordinator::{BRANCHES_MAX, Config, Coordinator, Fate, Known, Standing};
use assent_ids::{ResourceId, TxId};
use assent_journal::{Journal, Kept, Log, State, Ticket};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, SimClock, SimDice, Survival};
use assent_world::Disk;
use assent_xa::{BranchRecord, Decision, Deviation, Heuristic, Native, Outcome};

use crate::rows::marked;
use crate::stand::{IDENTITY, LOST, NAMES, StandOver, Table, branch, commit, decision, operator, tx};
use crate::table::{DECIDED, FINISHED, FOLDER, Machine, decided, id, lazy, small, told, worked};

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
    assert_eq!(table.state(), State::Full, "nobody has asked for that room yet");
    table.wait(table.append(DECIDED, &[&decided(1_000, 900, &[])]).unwrap()).unwrap();
    assert_eq!(table.state(), State::Open, "what comes is taken");
    assert_eq!(table.append(DECIDED, &[&decided(1_001, 900, &[])]).unwrap_err().kind(), Kind::Full);
    assert_eq!(table.state(), State::Full);
    machine.disk.set_capacity(None);
    table.wait(table.append(DECIDED, &[&decided(1_001, 900, &[])]).unwrap()).unwrap();
    assert_eq!((table.state(), told(&table).len()), (State::Open, usize::try_from(taken).unwrap() + 1));
}

#[test]
fn a_table_that_grew_in_vain_is_not_full_while_it_takes_what_comes() {
    let machine = Machine::new(small());
    let (table, _) = machine.open();
    machine.disk.set_capacity(Some(machine.disk.used_bytes()));
    // More than half: it grows ahead, and the disk has nothing.
    (0..12).for_each(|number| _ = table.append(DECIDED, &[&decided(number, 900, &[])]).unwrap());
    _ = table.maintain();
    assert_eq!(table.state(), State::Open);
    // Now somebody needs it; and then nobody does any more, and nobody asks.
    while table.append(DECIDED, &[&decided(99, 9_000, &[])]).is_ok() {
        _ = table.append(DECIDED, &[&decided(98, 9_000, &[])]);
    }
    _ = table.maintain();
    assert_eq!(table.state(), State::Full);
    let all: Vec<u8> = told(&table).into_keys().flat_map(id).collect();
    table.append(FINISHED, &[&[0; 8], &all]).unwrap();
    _ = table.maintain();
    assert_eq!((table.state(), told(&table).len()), (State::Open, 0));
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
    assert!(!view.is_acknowledged && view.branches[0].fate == Fate::Cleared, "{view:?}: its client lives");
}

/// Where a last resource may have a row, each branch says so; the table took those bytes for the length of its witness, and no such
/// decision was ever laid.
#[test]
fn a_decision_over_branches_of_a_last_resource_is_a_row_like_another() {
    let mut stand = StandOver::<Table>::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let [one, two] = [1, 2].map(|counter| tx(&session, counter));
    let branches = vec![marked(NAMES[0], 0), BranchRecord { witness: vec![7; 40], ..marked(NAMES[1], 1) }];
    let decision = |tx, outcome| Decision { branches: branches.clone(), ..decision(tx, outcome, true) };
    stand.coordinator.decide(&decision(one, Outcome::Committed)).unwrap();
    // In one record with what is forgotten.
    stand.coordinator.finished(one);
    stand.coordinator.decide(&decision(two, Outcome::Committed)).unwrap();
    stand.restart(false);
    assert_eq!((stand.coordinator.ask(one), stand.coordinator.ask(two)), (Known::Unknown, Known::Committed));
    let shown = stand.coordinator.show(two).unwrap();
    let told: Vec<_> = shown.branches.iter().map(|it| (it.resource, it.number, it.mark, it.witness.clone())).collect();
    let laid: Vec<_> = branches.into_iter().map(|it| (it.resource, it.number, it.mark, it.witness)).collect();
    assert_eq!(told, laid);
}

#[test]
fn heuristic_outcomes_of_one_message_are_one_row_however_many_there_are() {
    let mut stand = StandOver::<Table>::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let max = u16::try_from(BRANCHES_MAX).unwrap();
    let native = Native { code: "X1".to_owned(), message: "half".repeat(128) };
    let deviation = |number| Deviation {
        resource: ResourceId::of(NAMES[0]),
        number,
        flags: 0,
        heuristic: Heuristic::Mixed,
        native: native.clone(),
    };
    let all: Vec<Deviation> = (0..max).map(deviation).collect();
    // Decided as all are, a client's own rollback, which has no record yet, and one that nobody decided.
    for (counter, outcome) in [(1, Some(Outcome::Committed)), (2, Some(Outcome::RolledBack)), (3, None)] {
        let mine = tx(&session, counter);
        if let Some(outcome) = outcome {
            let branches = (0..max).map(|number| branch(NAMES[0], number)).collect();
            stand.coordinator.decide(&Decision { branches, ..decision(mine, outcome, true) }).unwrap();
        }
        let before = stand.log.stored().appends;
        stand.coordinator.heuristic(mine, outcome.unwrap_or(Outcome::Committed), &all);
        let decisions = u64::from(outcome.is_none());
        assert_eq!(stand.log.stored().appends - before, decisions + 1, "{outcome:?}");
        stand.coordinator.heuristic(mine, outcome.unwrap_or(Outcome::Committed), &all);
        assert_eq!(stand.log.stored().appends - before, decisions + 1, "{outcome:?}: no news");
    }
    stand.coordinator.tick().unwrap();
    stand.restart(false);
    assert_eq!(stand.coordinator.gauges().heuristic, 3);
    for counter in 1..=3 {
        let view = stand.coordinator.show(tx(&session, counter)).unwrap();
        let told =
            |it: &assent_coordinator::BranchView| matches!(&it.fate, Fate::Heuristic(_, words) if *words == native);
        assert_eq!(view.branches.iter().filter(|it| told(it)).count(), BRANCHES_MAX, "{counter}");
        stand.coordinator.forget(tx(&session, counter), &operator()).unwrap();
    }
    stand.restart(false);
    assert_eq!(stand.coordinator.gauges().heuristic, 0);
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
