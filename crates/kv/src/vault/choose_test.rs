//! Choices as tables.

use super::*;
use crate::vault::hides::Hides;
use crate::vault::{Booking, Compacted, Facts};

/// Compacted volumes of 100 places each: bytes, live, generation, as of; then cells of 100 with so much alive.
fn accounts(volumes: &[(u64, u64, u32, u64)], cells: &[u64]) -> Accounts {
    let mut accounts = Accounts::new(100);
    let mut booking = Booking::new(100);
    let lives = volumes.iter().map(|volume| volume.1).chain(cells.iter().copied());
    (0..).zip(lives).for_each(|(at, live)| booking.enters(at * 100, live));
    accounts.book(&booking).unwrap();
    for (at, (bytes, _, generation, as_of)) in (0..).zip(volumes) {
        let (first, end) = (at * 100, at * 100 + 100);
        let facts = Facts { first, end, generation: *generation, bytes: *bytes, ..Facts::default() };
        let compacted = Compacted {
            first,
            end,
            generation: *generation,
            as_of: *as_of,
            facts,
            kept_bytes: *bytes,
            ..Compacted::default()
        };
        accounts.replace(&compacted).unwrap();
    }
    accounts
}

#[test]
fn the_hours_of_a_night_are_permitted_and_no_other() {
    let night = Hours::between(22, 4);
    let permitted: Vec<u8> = (0..30).filter(|hour| night.permit(*hour)).collect();
    assert_eq!(permitted, [0, 1, 2, 3, 22, 23]);
    assert_eq!((Hours::between(5, 5), Hours::between(0, 24)), (Hours::ALWAYS, Hours::ALWAYS));
    assert_eq!((0..24).filter(|hour| Hours::between(9, 17).permit(*hour)).count(), 8);
}

#[test]
fn what_is_chosen() {
    let chooser = Chooser { volume_bytes: 200, ..Chooser::default() };
    type Volumes = &'static [(u64, u64, u32, u64)];
    type Row = (&'static str, Volumes, &'static [u64], Option<(u64, u64, u32)>);
    let table: [Row; 10] = [
        ("within the bound", &[(100, 80, 1, 5)], &[90, 90], None),
        ("the emptiest", &[(100, 70, 2, 5), (100, 20, 1, 5), (100, 60, 2, 5)], &[], Some((100, 200, 2))),
        ("of two as empty ones the colder", &[(100, 40, 2, 190), (100, 40, 1, 5)], &[], Some((100, 200, 2))),
        ("with neighbours", &[(100, 35, 1, 5), (100, 30, 1, 5), (100, 38, 1, 5)], &[], Some((0, 300, 2))),
        ("up to a length", &[(300, 90, 1, 5), (300, 85, 1, 5), (300, 80, 1, 5)], &[], Some((100, 300, 2))),
        ("no other generation", &[(100, 35, 2, 5), (100, 30, 1, 5)], &[], Some((100, 200, 2))),
        ("but crumbs", &[(12, 12, 4, 5), (100, 30, 1, 5)], &[], Some((0, 200, 5))),
        ("the oldest cell, and what follows it", &[], &[30, 35, 90, 10], Some((0, 200, 1))),
        ("empty ones behind a full one", &[(100, 96, 1, 5)], &[100, 0, 0, 0], Some((100, 500, 1))),
        ("what is dead", &[(100, 0, 1, 5)], &[], Some((0, 100, 2))),
    ];
    for (what, volumes, cells, expected) in table {
        let accounts = accounts(volumes, cells);
        let end = u64::try_from(volumes.len() + cells.len()).unwrap() * 100;
        let chosen = chooser.choose(&accounts, &BTreeSet::new(), end, end, 3);
        let chosen = chosen.map(|choice| (choice.first, choice.end, choice.generation));
        assert_eq!(chosen, expected, "{what}");
    }
    let night = Chooser { hours: Hours::between(2, 4), ..chooser };
    let empty = accounts(&[(100, 0, 1, 500)], &[]);
    let at = |hour| night.choose(&empty, &BTreeSet::new(), 100, 100, hour);
    assert_eq!((at(4), at(3).is_some()), (None, true));
}

#[test]
fn what_may_not_be_taken_is_nobodys_debt() {
    let chooser = Chooser { volume_bytes: 5, ..Chooser::default() };
    // A volume with a little that is dead, and five dead cells.
    let accounts = accounts(&[(100, 80, 1, 5)], &[0, 0, 0, 0, 0]);
    let owed = |damaged: &[u64], sealed_end| {
        let damaged: BTreeSet<u64> = damaged.iter().copied().collect();
        let choice = chooser.choose(&accounts, &damaged, sealed_end, 600, 3);
        (choice.is_some(), chooser.owed(&accounts, &damaged, (sealed_end, 600), 5, 5).bytes)
    };
    // A prepared branch keeps all of the journal: there is something to do, and it gives back next to nothing.
    assert_eq!(owed(&[], 100), (true, 0));
    assert_eq!(owed(&[], 300), (true, 305 - 112));
    assert_eq!(owed(&[], 600), (true, 600 - 112));
    assert_eq!(owed(&[450], 600), (true, 405 - 112), "what is behind a damaged cell");
    assert_eq!(owed(&[50], 300), (true, 200 - 5), "what lives is in a damaged volume");
}

#[test]
fn a_store_that_is_within_its_bound_owes_nothing_whatever_can_be_taken_of_it() {
    let chooser = Chooser { volume_bytes: 5, beside_bytes: u64::MAX / 2, ..Chooser::default() };
    // A branch keeps the journal: much of it, and all of that lives.
    let kept = accounts(&[(100, 72, 1, 5)], &[100; 20]);
    assert_eq!(chooser.choose(&kept, &BTreeSet::new(), 100, 2100, 3), None);
    assert_eq!(chooser.owed(&kept, &BTreeSet::new(), (100, 2100), 5, 5).bytes, 0);
    // A damaged volume in which nothing lives any more is never given back, and is not the end of the log.
    let volumes = accounts(&[(100, 0, 1, 5), (100, 72, 1, 5)], &[]);
    let owed = |volume_bytes| {
        let chooser = Chooser { volume_bytes, ..Chooser::default() };
        chooser.owed(&volumes, &BTreeSet::from([50]), (200, 200), volume_bytes, volume_bytes).bytes
    };
    assert_eq!([owed(7), owed(100)], [0, 0]);
    let chooser = Chooser { volume_bytes: 5, ..Chooser::default() };
    assert_eq!(chooser.owed(&volumes, &BTreeSet::new(), (200, 200), 5, 5).bytes, 200 - 100);
}

#[test]
fn there_is_room_until_both_what_can_be_taken_and_all_of_it_are_at_their_bound() {
    let chooser = Chooser { volume_bytes: 5, ..Chooser::default() };
    let owed = |volumes: &[(u64, u64, u32, u64)], cells: &[u64], sealed_end| {
        let end = u64::try_from(volumes.len() + cells.len()).unwrap() * 100;
        chooser.owed(&accounts(volumes, cells), &BTreeSet::new(), (sealed_end, end), 5, 5)
    };
    // 100 live, 140 may be there; the other 60 are dead in the cells.
    let cells = [50, 50];
    assert_eq!(owed(&[], &cells, 200), Owed { bytes: 60, room: 0, most: 100 });
    assert_eq!(owed(&[(100, 80, 1, 5)], &[80], 200), Owed { bytes: 0, room: 24, most: 40 });
    let owed = owed(&[], &[80, 80], 200);
    assert_eq!(owed, Owed { bytes: 0, room: 24, most: 40 });
    assert_eq!([0, 24, 25, 64, 65].map(|written| owed.after(written)), [0, 0, 1, 40, 40]);
}

#[test]
fn what_is_not_worth_reading_owes_nothing() {
    let chooser = Chooser { space_amplification_max: 1.0, volume_bytes: 5, ..Chooser::default() };
    let owed = |live| {
        let accounts = accounts(&[(1000, live, 1, 5)], &[]);
        chooser.owed(&accounts, &BTreeSet::new(), (100, 100), 0, 0).bytes
    };
    assert_eq!([owed(950), owed(951)], [50, 0]);
    // What its index takes is not dead.
    let mut accounts = accounts(&[(1000, 800, 1, 5)], &[]);
    let facts = Facts { first: 0, end: 100, generation: 2, bytes: 1000, ..Facts::default() };
    let indexed = Compacted { end: 100, generation: 2, as_of: 9, facts, kept_bytes: 849, ..Compacted::default() };
    accounts.replace(&indexed).unwrap();
    assert_eq!(chooser.owed(&accounts, &BTreeSet::new(), (100, 100), 0, 0).bytes, 0, "1 in 1000 more than is worth it");
    accounts.replace(&Compacted { generation: 3, kept_bytes: 900, ..indexed }).unwrap();
    assert_eq!(chooser.owed(&accounts, &BTreeSet::new(), (100, 100), 0, 0).bytes, 100);
}

#[test]
fn the_journal_is_compacted_sooner_where_its_segments_are_wanted() {
    let accounts = accounts(&[(100, 44, 2, 150)], &[45]);
    let first = |waiting| {
        let chooser = Chooser { volume_bytes: 50, ..Chooser::default() }.stocked(waiting);
        chooser.choose(&accounts, &BTreeSet::new(), 200, 250, 0).unwrap().first
    };
    // Both are 100 old, the volume a little emptier.
    assert_eq!([None, Some((4, 8)), Some((8, 8))].map(first), [0, 0, 0]);
    assert_eq!([Some((0, 8)), Some((3, 8)), Some((0, 0))].map(first), [100, 100, 100]);
    // More wait than may since the journal is shorter.
    let stocked = |waiting| Chooser::default().stocked(Some(waiting));
    assert_eq!(stocked((8, 3)), stocked((3, 3)));
}

#[test]
fn volumes_are_a_small_part_of_what_lives_and_neither_tiny_nor_longer_than_they_may_be() {
    let sized = |live| Chooser::default().sized(live).volume_bytes >> 20;
    assert_eq!([0, 4 << 30, 8 << 30, 16 << 30, u64::MAX].map(sized), [16, 16, 32, 64, 64]);
    assert_eq!(Chooser { volume_bytes: 24 << 10, ..Chooser::default() }.sized(0).volume_bytes, 24 << 10);
}

#[test]
fn what_is_in_no_account_counts_where_it_is_little_of_what_may_be_dead_and_a_volume_is_no_debt_where_it_is_more() {
    let chosen = |bytes, beside_bytes, volume_bytes| {
        let chooser = Chooser { volume_bytes, beside_bytes, ..Chooser::default() };
        let accounts = accounts(&[(bytes, 1200, 1, 500)], &[]);
        let choice = chooser.choose(&accounts, &BTreeSet::new(), 100, 100, 3);
        (choice.is_some(), chooser.owed(&accounts, &BTreeSet::new(), (100, 100), volume_bytes, volume_bytes).bytes)
    };
    // 1.4 x 1200 are 1680; a quarter of what may be dead is 120.
    assert_eq!([chosen(1600, 80, 100), chosen(1600, 81, 100)], [(false, 0), (true, 1)]);
    assert_eq!([chosen(1560, u64::MAX / 2, 100), chosen(1561, u64::MAX / 2, 100)], [(false, 0), (true, 1)]);
    assert_eq!([chosen(1600, 120, 120), chosen(1600, 120, 130)], [(true, 40), (true, 30)]);
}

#[test]
fn little_that_lives_has_the_least_room_and_much_its_share() {
    let allowed = |room_bytes_min, live| Chooser { room_bytes_min, ..Chooser::default() }.allowed(live);
    // The least room, what lives, what is allowed: it is the share from two and a half times that room on.
    let rows = [
        (0, 0, 0),
        (0, 1200, 1680),
        (64, 0, 64),
        (64, 1, 65),
        (64, 159, 223),
        (64, 160, 224),
        (64, 161, 225),
        (64, 162, 226),
        (64, 175, 244),
        (64, 1200, 1680),
        (u64::MAX, 1, u64::MAX),
    ];
    for (room_bytes_min, live, expected) in rows {
        assert_eq!(allowed(room_bytes_min, live), expected, "{live} live, room {room_bytes_min}");
    }
    // What that is to compactions and to writers: nothing is chosen or owed within it.
    let judged_beside = |bytes, room_bytes_min, beside_bytes| {
        let chooser = Chooser { volume_bytes: 5, room_bytes_min, beside_bytes, ..Chooser::default() };
        let accounts = accounts(&[(bytes, 100, 1, 5)], &[]);
        let choice = chooser.choose(&accounts, &BTreeSet::new(), 100, 100, 3);
        (choice.is_some(), chooser.owed(&accounts, &BTreeSet::new(), (100, 100), 0, 0).bytes)
    };
    let judged = |bytes, room_bytes_min| judged_beside(bytes, room_bytes_min, 0);
    assert_eq!([judged(140, 0), judged(141, 0)], [(false, 0), (true, 1)]);
    assert_eq!([judged(300, 200), judged(301, 200)], [(false, 0), (true, 1)]);
    // The ledger and what is held ready take a quarter of it, and seldom less.
    let most = |bytes| judged_beside(bytes, 200, u64::MAX / 2).0;
    assert_eq!([most(250), most(251)], [false, true]);
}

#[test]
fn too_many_files_are_joined_two_at_a_time_the_smallest_of_one_generation_first() {
    let chooser = Chooser { volume_bytes: 1000, ..Chooser::default() };
    let mut volumes = vec![(50, 50, 2, 500); 9];
    (volumes[4].2, volumes[7].0, volumes[7].1) = (1, 20, 20);
    let joined = chooser.choose(&accounts(&volumes, &[]), &BTreeSet::new(), 900, 900, 0).unwrap();
    assert_eq!((joined.first, joined.end, joined.generation), (600, 800, 3));
    assert_eq!(chooser.choose(&accounts(&volumes[..8], &[]), &BTreeSet::new(), 800, 800, 0), None);
}

#[test]
fn what_is_damaged_is_left_alone_and_hides_no_other_volume() {
    let chooser = Chooser { volume_bytes: 1000, ..Chooser::default() };
    let range = |damaged: &[u64], volumes: &[(u64, u64, u32, u64)], cells: &[u64]| {
        let end = u64::try_from(volumes.len() + cells.len()).unwrap() * 100;
        let damaged = damaged.iter().copied().collect();
        let choice = chooser.choose(&accounts(volumes, cells), &damaged, end, end, 0);
        choice.map(|choice| (choice.first, choice.end))
    };
    let kin = [(100, 35, 1, 5), (100, 30, 1, 5), (100, 38, 1, 5)];
    assert_eq!(range(&[], &kin, &[]), Some((0, 300)));
    assert_eq!(range(&[150], &kin, &[]), Some((0, 100)));
    assert_eq!(range(&[0], &kin, &[]), Some((100, 300)));
    assert_eq!(range(&[0, 199, 200], &kin, &[]), None);
    // Of the journal what stands before it; and volumes, whatever is damaged there.
    assert_eq!(range(&[250], &[], &[10, 10, 10, 10]), Some((0, 200)));
    assert_eq!(range(&[0], &[], &[10, 10, 10, 10]), None);
    assert_eq!(range(&[100], &[(100, 30, 1, 5)], &[10, 10]), Some((0, 100)));
    // A full cell before it is written again, so that who comes next is past it.
    assert_eq!(range(&[150], &[], &[100, 10, 0, 0, 0]), Some((0, 100)));
    assert_eq!(range(&[], &[], &[100, 100, 100]), None);
    // Too many files are none too many if none of them can be joined.
    let many = vec![(50, 50, 1, 500); 9];
    assert_eq!(range(&[], &many, &[]), Some((0, 200)));
    assert_eq!(range(&[20], &many, &[]), None, "eight are left");
}

#[test]
fn where_nothing_lived_the_neighbour_takes_the_place_in() {
    let chooser = Chooser { volume_bytes: 200, ..Chooser::default() };
    let mut accounts = accounts(&[(100, 20, 1, 5)], &[0]);
    let facts = Facts { first: 100, end: 200, generation: 1, bytes: 90, ..Facts::default() };
    let marker = Compacted { first: 100, end: 200, generation: 1, as_of: 9, facts, ..Compacted::default() };
    accounts.replace(&marker).unwrap();
    let choice = chooser.choose(&accounts, &BTreeSet::new(), 200, 200, 0).unwrap();
    assert_eq!((choice.first, choice.end), (0, 200));
    let Choice { first, end, generation, .. } = choice;
    accounts.replace(&Compacted { first, end, generation, facts: Facts { first, end, ..facts }, ..marker }).unwrap();
    // Alone it is never worth it: so compacting comes to an end.
    let mut alone = Accounts::new(100);
    let facts = Facts { first: 0, end: 100, ..facts };
    alone.replace(&Compacted { first: 0, end: 100, facts, ..marker }).unwrap();
    assert_eq!(chooser.choose(&alone, &BTreeSet::new(), 100, 100, 0), None);
}

#[test]
fn what_is_remembered_for_a_volume_makes_it_worth_reading_and_for_nobody_is_dead() {
    // All of the first lives, and it is as of then; the second remembers deletes of between 120 and 190.
    let beside = |as_of, bytes| {
        let mut accounts = accounts(&[(100, 100, 1, as_of), (10 + bytes, 0, 1, 210)], &[]);
        let facts = Facts { first: 100, end: 200, generation: 2, bytes: 10 + bytes, ..Facts::default() };
        let hides = Hides { bytes, from: 120, to: 190 };
        let deletes =
            Compacted { first: 100, end: 200, generation: 2, as_of: 210, facts, hides, ..Compacted::default() };
        accounts.replace(&deletes).unwrap();
        accounts
    };
    let chosen = |as_of, bytes, fits_bytes| {
        let chooser = Chooser { volume_bytes: 150, fits_bytes, ..Chooser::default() };
        let (accounts, damaged) = (beside(as_of, bytes), BTreeSet::new());
        let choice = chooser.choose(&accounts, &damaged, 200, 200, 3).map(|choice| (choice.first, choice.end));
        (choice, chooser.owed(&accounts, &damaged, (200, 200), 5, 5))
    };
    let owed = |bytes, most| Owed { bytes, room: 0, most };
    // Nothing is too much; then what was remembered for the first goes with it.
    assert_eq!(chosen(110, 30, u64::MAX), (None, owed(0, 0)));
    assert_eq!(chosen(110, 31, u64::MAX), (Some((0, 200)), owed(0, 0)));
    assert_eq!(chosen(110, 31, 1 << 20), (None, owed(0, 0)), "that gives nothing at once");
    // It was written again since: some is remembered for nobody, or all.
    assert_eq!(chosen(155, 40, u64::MAX), (Some((0, 200)), owed(10, 20)));
    assert_eq!(chosen(300, 40, u64::MAX), (Some((100, 200)), owed(10, 40)));
    // A little of a load is not worth that it is written again.
    let mut many = accounts(&[(1000, 1000, 1, 110), (1000, 480, 1, 800), (60, 0, 1, 810)], &[]);
    let facts = Facts { first: 200, end: 300, generation: 2, bytes: 60, ..Facts::default() };
    let hides = Hides { bytes: 50, from: 120, to: 190 };
    many.replace(&Compacted { first: 200, end: 300, generation: 2, as_of: 810, facts, hides, ..Compacted::default() })
        .unwrap();
    let choice = Chooser { volume_bytes: 1500, space_amplification_max: 1.3, ..Chooser::default() }.choose(
        &many,
        &BTreeSet::new(),
        300,
        300,
        3,
    );
    assert_eq!(choice.map(|choice| (choice.first, choice.end)), Some((100, 300)));
}

#[test]
fn what_is_full_before_something_emptier_is_passed() {
    let chooser = Chooser { volume_bytes: 200, passed_bytes_min: 100, ..Chooser::default() };
    type Row = (&'static str, &'static [u64], Option<(u64, u64)>, Option<(u64, u64)>);
    // Cells of 100, what is passed of them at least, and what is chosen.
    let table: [Row; 11] = [
        ("nothing is emptier", &[90, 90, 90, 90], None, None),
        ("not by much", &[90, 85, 82, 90], None, None),
        ("the older the emptier", &[20, 40, 60, 80, 90], None, Some((0, 100))),
        ("full ones, as many as fill a volume", &[100, 96, 95, 70, 90], Some((0, 200)), None),
        ("as full as each other", &[100, 85, 95, 70, 90], Some((0, 100)), None),
        ("what is behind is not worth reading", &[100, 100, 100, 96], None, None),
        ("nothing is too much: what stands before full ones too", &[50, 100, 100, 80, 90, 90], Some((0, 100)), None),
        ("but what is nearly empty is chosen", &[12, 100, 100, 60, 90, 90], None, Some((0, 100))),
        ("too much: the front is chosen as before", &[40, 90, 90, 50, 60, 31], None, Some((0, 100))),
        ("too much: it is emptier than what is behind", &[30, 90, 90, 45, 60, 50], None, Some((0, 100))),
        ("too much: it is full", &[90, 90, 30, 30, 30, 30], Some((0, 200)), Some((0, 200))),
    ];
    for (what, cells, passed, chosen) in table {
        let accounts = accounts(&[], cells);
        let end = u64::try_from(cells.len()).unwrap() * 100;
        let passes = |chooser: &Chooser, damaged| {
            let full = chooser.passes(&accounts, &damaged, (end, end), 3)?;
            Some((full.first, full.ends))
        };
        let full = passes(&chooser, BTreeSet::new());
        assert_eq!(full.as_ref().map(|(first, ends)| (*first, ends[0])), passed, "{what}");
        let more: Vec<u64> = passed.into_iter().flat_map(|(_, first)| (first..=end).step_by(100)).collect();
        assert_eq!(full.map_or(vec![], |(_, ends)| ends), more, "{what}: further ends");
        let choice = chooser.choose(&accounts, &BTreeSet::new(), end, end, 3);
        assert_eq!(choice.map(|choice| (choice.first, choice.end)), chosen, "{what}");
        assert_eq!(
            passes(&Chooser { passed_bytes_min: 201, ..chooser }, BTreeSet::new()),
            None,
            "{what}: short volumes"
        );
        assert_eq!(passes(&Chooser { hours: Hours::between(4, 5), ..chooser }, BTreeSet::new()), None, "{what}: hours");
        assert_eq!(passes(&chooser, BTreeSet::from([7])), None, "{what}: damage");
    }
}

#[test]
fn what_would_find_no_room_is_left_for_later() {
    const K: u64 = 1 << 10;
    let chosen = |volumes: &[(u64, u64, u32, u64)], fits_bytes| {
        let chooser = Chooser { fits_bytes, ..Chooser::default() };
        let chooser = Chooser { volume_bytes: chooser.live_within(fits_bytes).min(400 * K), ..chooser };
        let end = u64::try_from(volumes.len()).unwrap() * 100;
        let choice = chooser.choose(&accounts(volumes, &[]), &BTreeSet::new(), end, end, 3);
        choice.map(|choice| (choice.first, choice.end))
    };
    let volumes = [(1000 * K, 304 * K, 1, 5), (400 * K, 200 * K, 1, 5)];
    // A sixteenth and three blocks are its own.
    let by_room = [u64::MAX, 335 * K, 335 * K - 1, 224 * K + 512, 224 * K + 511].map(|fits| chosen(&volumes, fits));
    assert_eq!(by_room, [Some((0, 100)), Some((0, 100)), Some((100, 200)), Some((100, 200)), None]);
}

#[test]
fn where_there_is_no_room_nothing_is_written_that_gives_none() {
    const K: u64 = 1 << 10;
    let chooser = |fits_bytes, extra| Chooser { fits_bytes, extra, ..Chooser::default() };
    for (extra, live, laid) in [(0.0, 800 * K, 862 * K), (0.05, 800 * K, 862 * K), (0.25, 800 * K, 1012 * K)] {
        let choice = |bytes| Choice { first: 0, end: 100, generation: 1, live, bytes };
        let pays = |fits_bytes| [laid, laid + 1].map(|bytes| chooser(fits_bytes, extra).pays(&choice(bytes)));
        assert_eq!([laid, laid - 1].map(pays), [[false, true], [false, false]], "{extra}");
        let unknown = [laid, laid - 1].map(|fits| Chooser { pays: false, ..chooser(fits, extra) }.pays(&choice(laid)));
        assert_eq!(unknown, [true, false]);
        let within = chooser(0, extra).live_within(laid);
        assert!(within <= live && within + 32 > live && chooser(0, extra).laid_bytes(within) <= laid, "{within}");
    }
    assert_eq!(chooser(0, 0.0).live_within(0), 0);
    // What would be as long again hides nothing that pays, and goes with it.
    let volumes = [(8 * K, 0, 1, 5), (400 * K, 100 * K, 2, 99)];
    let chosen = |fits_bytes| {
        let chooser = Chooser { volume_bytes: 400 * K, space_amplification_max: 1.1, ..chooser(fits_bytes, 0.0) };
        let choice = chooser.choose(&accounts(&volumes, &[]), &BTreeSet::new(), 200, 200, 3);
        choice.map(|choice| (choice.first, choice.end))
    };
    assert_eq!([u64::MAX, 119 * K, 118 * K].map(chosen), [Some((0, 100)), Some((0, 200)), None]);
    // As volumes show; those in which nothing lives say nothing.
    let mut two = accounts(&[(8 * K, 0, 1, 5), (800 * K, 500 * K, 1, 5)], &[]);
    assert!(two.extra() < 0.001);
    let facts = Facts { first: 100, end: 200, generation: 2, bytes: 612 * K, ..Facts::default() };
    let compacted =
        Compacted { first: 100, end: 200, generation: 2, as_of: 9, facts, kept_bytes: 500 * K, ..Compacted::default() };
    two.replace(&compacted).unwrap();
    assert!((0.19..0.21).contains(&two.extra()), "{}", two.extra());
}
