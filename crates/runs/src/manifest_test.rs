//! Manifests: what is laid is read, and nothing else is believed.

use assent_sim::{Call, Fault, Operation, Rng, SimDisk};

use super::*;

fn run(id: u64, first: &str, last: &str) -> RunFacts {
    RunFacts {
        id: RunId(id),
        bytes: 4096 + id,
        first: first.into(),
        last: last.into(),
        seq_min: 3,
        seq_max: 9,
        entries: 7,
        tombstones: 2,
        value_bytes: 55,
        knows: 8,
    }
}

fn contents() -> Contents {
    let range = |from: &str, to: Option<&str>| Range { from: from.into(), to: to.map(Into::into), seq: 6 };
    Contents {
        next_id: 8,
        applied: 9,
        levels: vec![vec![run(7, "a", "z"), run(2, "c", "d")], vec![run(3, "a", "b"), run(4, "c", "c")]],
        erased: vec![range("b", Some("c")), range("c", Some("c1")), range("x", None)],
        note: b"live bytes".to_vec(),
    }
}

#[test]
fn contents_survive_and_any_flipped_bit_and_any_cut_is_refused() {
    let bytes = seal(5, &contents().lay());
    assert_eq!(parse(&bytes), Ok((5, contents())));
    let mut longer = bytes.clone();
    longer.extend_from_slice(b"what a longer one left");
    assert_eq!(parse(&longer), Ok((5, contents())));
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&bad).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(parse(&bytes[..end]).is_err(), "{end}");
    }
}

#[test]
fn what_no_engine_wrote_is_refused_even_with_a_checksum() {
    let refused = |change: fn(&mut Contents), field: &str| {
        let mut contents = contents();
        change(&mut contents);
        let error = parse(&seal(1, &contents.lay())).unwrap_err();
        assert!(error.contains(field), "{error} does not name {field}");
    };
    refused(|contents| contents.levels[1].swap(0, 1), "run order");
    refused(|contents| contents.levels[1][1].first = b"b".into(), "run order");
    refused(|contents| contents.levels[0][1].id = RunId(7), "run id");
    refused(|contents| contents.next_id = 7, "run id");
    refused(|contents| contents.levels.resize(LEVELS_MAX + 1, Vec::new()), "levels");
    refused(|contents| contents.erased.swap(0, 1), "range order");
    refused(|contents| contents.erased[0].to = Some(b"b".to_vec()), "range");
    refused(|contents| contents.erased[0].seq = 0, "range");
}

#[test]
fn fuzz_manifest_takes_any_bytes() {
    let (fields, whole) = (contents().lay(), seal(3, &contents().lay()));
    let runs = assent_sim::fuzz(5, &[&fields, &whole, &[0; 24]], crate::fuzzing::fuzz_manifest);
    assert!(runs > 1000, "{runs} inputs");
}

fn copies(disk: &SimDisk) -> Result<(Copies, Found), RunsError> {
    Copies::open(disk, Path::new("map"), false)
}

#[test]
fn copies_take_turns_and_without_the_newer_one_the_older_counts() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("map")).unwrap();
    let (mut opened, found) = copies(&disk).unwrap();
    assert_eq!(found.newest, Contents::default());
    for round in 1..=5 {
        opened.commit(&Contents { applied: round, ..contents() }).unwrap();
    }
    drop(opened);
    let (opened, found) = copies(&disk).unwrap();
    assert_eq!((found.newest.applied, found.older.map(|older| older.applied)), (5, Some(4)));
    let newest = opened.paths[opened.newest].clone();
    drop(opened);
    let file = disk.open(&newest, Open { access: Access::Write, direct: false }).unwrap();
    write_all_at(&*file, 40, &[0xff]).unwrap();
    let (mut opened, found) = copies(&disk).unwrap();
    assert_eq!((found.newest.applied, found.older), (4, None));
    assert!(matches!(&found.torn, Some(RunsError::Damaged { file, .. }) if *file == newest), "{:?}", found.torn);
    assert_eq!(opened.verify(), None);
    // The damaged one is written next.
    opened.commit(&Contents { applied: 6, ..contents() }).unwrap();
    let (_, found) = copies(&disk).unwrap();
    assert_eq!((found.newest.applied, found.older.map(|older| older.applied)), (6, Some(4)));
}

#[test]
fn a_copy_that_an_open_did_not_believe_never_counts_again() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("map")).unwrap();
    let (mut opened, _) = copies(&disk).unwrap();
    opened.commit(&Contents { applied: 1, ..contents() }).unwrap();
    // The power goes in the middle of the next commit: all but its last bytes is there.
    let path = opened.paths[1 - opened.newest].clone();
    let torn = seal(opened.number + 1, &Contents { applied: 2, ..contents() }.lay());
    drop(opened);
    let file = disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
    let (front, end) = torn.split_at(torn.len() - 4);
    write_all_at(&*file, 0, front).unwrap();
    file.set_size(front.len() as u64).unwrap();
    let (_, found) = copies(&disk).unwrap();
    assert_eq!((found.newest.applied, found.torn.is_some()), (1, true));
    // What it named is gone; the power goes in the middle of the commit after that, which gave it the length that it lacked.
    write_all_at(&*file, front.len() as u64, end).unwrap();
    assert_eq!(copies(&disk).unwrap().1.newest.applied, 1);
}

#[test]
fn neither_believed_is_damage_and_so_are_runs_without_a_manifest() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("map")).unwrap();
    drop(copies(&disk).unwrap());
    for name in NAMES {
        let file = disk.open(&Path::new("map").join(name), Open { access: Access::Write, direct: false }).unwrap();
        write_all_at(&*file, 3, &[0xff]).unwrap();
    }
    assert!(matches!(copies(&disk), Err(RunsError::Damaged { .. })));
    let replaced = Copies::replace(&disk, Path::new("map"), &contents()).unwrap();
    drop(replaced);
    assert_eq!(copies(&disk).unwrap().1.newest, contents());
    for name in NAMES {
        disk.unlink(&Path::new("map").join(name)).unwrap();
    }
    drop(copies(&disk).unwrap());
    for name in NAMES {
        disk.unlink(&Path::new("map").join(name)).unwrap();
    }
    let run = RunId(1).path(Path::new("map"));
    disk.open(&run, Open { access: Access::Create, direct: false }).unwrap();
    let error = copies(&disk).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("there are runs, and no manifest"), "{error}");
}

#[test]
fn a_commit_that_is_refused_anywhere_leaves_the_newest_as_it_was() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new();
        disk.create_dir(Path::new("map")).unwrap();
        let (mut opened, _) = copies(&disk).unwrap();
        let mut last = 0;
        for round in 1..8 {
            // Where all but the first bytes are as before, half of a commit may be the whole of it: but for its head.
            let note = vec![7; if seed % 2 == 0 { 2000 } else { rng.index(2000) }];
            let next = Contents { applied: round, note, ..contents() };
            let fault = rng.below(3);
            if fault == 0 {
                disk.inject(Call::of(Operation::Write, 1 + rng.below(2)), Fault::Full);
            } else if fault == 1 {
                disk.inject(Call::of(Operation::Write, 1 + rng.below(2)), Fault::Short);
                disk.inject(Call::of(Operation::Write, 3), Fault::Io);
            }
            match opened.commit(&next) {
                Ok(()) => last = round,
                Err(Refused::Nothing(_)) => {}
                Err(Refused::Unknown(error)) => panic!("{error}"),
            }
            let choice = choose(NAMES.map(|name| read(&disk, &Path::new("map").join(name)))).unwrap();
            assert_eq!(choice.2.newest.applied, last, "seed {seed} round {round}");
        }
    }
}
