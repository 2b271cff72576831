//! What a power cut may leave, one rule a test.
//!
//! A file is told in letters, one a sector: `a` a sector of `a`s, `.` zeroes, `?` bytes that nobody wrote.

use assent_sim::{Stale, Survival};
use assent_world::Durably;

use super::*;

fn letters_of(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|letter| [letter; 512]).collect()
}

#[test]
fn an_unsynced_write_survives_whole_in_part_or_not() {
    let disk = SimDisk::new();
    let file = durable(&disk, "file", &letters_of("aaa"));
    file.write_at(0, &letters_of("bbb")).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"]);
    file.sync_data(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["bbb"]);
}

#[test]
fn a_sector_shows_one_of_its_versions_and_a_piece_of_a_sector_is_never_torn() {
    let disk = SimDisk::new();
    let file = durable(&disk, "file", &letters_of("aa"));
    file.write_at(0, &letters_of("bb")).unwrap();
    file.write_at(512, &letters_of("c")).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["aa", "ab", "ac", "ba", "bb", "bc"]);
    // Ten bytes over the middle of both sectors: each sector has them or not.
    file.sync_data(SYNC).unwrap();
    file.write_at(507, &[b'x'; 10]).unwrap();
    let fates = fates(&disk, "file");
    let counts: Vec<usize> =
        fates.iter().flatten().map(|bytes| bytes.iter().filter(|byte| **byte == b'x').count()).collect();
    assert_eq!(counts.len(), 4);
    assert!([0, 5, 10].iter().all(|count| counts.contains(count)), "{counts:?}");
}

#[test]
fn two_writes_in_flight_are_enumerated_exactly() {
    // Two files of two and one new sectors: 2 lengths each, and each sector lost or there.
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let (one, two) = (durable(&disk, "one", b""), durable(&disk, "two", b""));
    one.write_at(0, &letters_of("ab")).unwrap();
    two.write_at(0, &letters_of("c")).unwrap();
    assert_eq!(letter_fates(&disk, "one"), ["", "..", ".b", "a.", "ab"]);
    assert_eq!(letter_fates(&disk, "two"), ["", ".", "c"]);
    assert_eq!(disk.survivors(1 << 12, 1).len(), 5 * 3);
    // Too many to enumerate: both ends are among the samples.
    let some = disk.survivors(4, 1);
    assert!(some.len() >= 2 && some.len() <= 4);
    assert!(some.iter().any(|disk| read(disk, "one").unwrap().is_empty()));
    assert!(some.iter().any(|some| some.hash() == disk.hash()));
}

#[test]
fn a_length_may_survive_without_its_data_and_data_without_its_length() {
    let disk = SimDisk::new();
    let file = durable(&disk, "file", &letters_of("aaaaaaaa"));
    file.write_at(4096, &letters_of("b")).unwrap();
    // Garbage where the length came alone; a block that was written before has none.
    assert_eq!(letter_fates(&disk, "file"), ["aaaaaaaa", "aaaaaaaa.", "aaaaaaaa?", "aaaaaaaab"]);
    disk.set_stale(Stale::ZEROES);
    assert_eq!(letter_fates(&disk, "file"), ["aaaaaaaa", "aaaaaaaa.", "aaaaaaaab"]);
    file.sync_data(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["aaaaaaaab"]);
}

#[test]
fn places_never_written_show_what_deleted_files_held() {
    let disk = SimDisk::new();
    durable(&disk, "old", &letters_of("xyz"));
    disk.unlink(path("old")).unwrap();
    let file = durable(&disk, "new", b"");
    file.preallocate_zeroed(512 * 3).unwrap();
    disk.set_stale(Stale { garbage: false, recycled: true });
    assert_eq!(letter_fates(&disk, "new"), ["", "...", "xyz"]);
    file.write_at(512, &letters_of("b")).unwrap();
    assert_eq!(letter_fates(&disk, "new"), ["", "...", ".b.", ".y.", "x.z", "xbz", "xyz"]);
    file.sync_all(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "new"), [".b."]);
    // Blocks that were written once never show older bytes again.
    file.write_at(0, &letters_of("ccc")).unwrap();
    assert_eq!(letter_fates(&disk, "new").len(), 8);
    assert!(letter_fates(&disk, "new").iter().all(|fate| !fate.contains(['x', 'y', 'z'])));
}

#[test]
fn blocks_are_recycled_only_after_the_deletion_is_durable() {
    let disk = SimDisk::new();
    disk.set_stale(Stale { garbage: false, recycled: true });
    durable(&disk, "old", &letters_of("x"));
    let file = durable(&disk, "new", b"");
    disk.unlink(path("old")).unwrap();
    file.set_size(512).unwrap();
    assert_eq!(letter_fates(&disk, "new"), ["", "."]);
    assert_eq!(letter_fates(&disk, "old"), ["-", "x"]);
    disk.sync_dir(path(""), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "new"), ["", ".", "x"]);
    assert_eq!(letter_fates(&disk, "old"), ["-"]);
}

#[test]
fn the_contents_deleted_last_come_back() {
    let disk = SimDisk::new();
    disk.set_stale(Stale { garbage: false, recycled: true });
    for name in ["x", "y", "z"] {
        durable(&disk, name, &letters_of(name));
    }
    for name in ["z", "y", "x"] {
        disk.unlink(path(name)).unwrap();
        disk.sync_dir(path(""), SYNC).unwrap();
    }
    durable(&disk, "new", b"").write_at(0, &letters_of("a")).unwrap();
    assert_eq!(letter_fates(&disk, "new"), ["", ".", "a", "x", "y"]);
}

#[test]
fn data_behind_a_lost_length_shows_when_the_file_grows_over_it() {
    let disk = SimDisk::new();
    disk.set_stale(Stale { garbage: false, recycled: true });
    durable(&disk, "file", b"").write_at(0, &letters_of("b")).unwrap();
    let short: Vec<_> =
        disk.survivors(64, 1).into_iter().filter(|disk| read(disk, "file").unwrap().is_empty()).collect();
    assert_eq!(short.len(), 1);
    // The data and no length comes among the samples of many; here the first of its kind has no data.
    let lost = (0..64).map(|seed| {
        let disk = SimDisk::new();
        disk.set_stale(Stale { garbage: false, recycled: true });
        durable(&disk, "file", b"").write_at(0, &letters_of("b")).unwrap();
        disk.cut_power(Survival::Seeded(seed));
        open(&disk, "file").set_size(512).unwrap();
        letter_fates(&disk, "file")
    });
    let lost: Vec<_> = lost.collect();
    assert!(lost.contains(&vec![String::new(), ".".to_owned(), "b".to_owned()]), "data without its length: {lost:?}");
    assert!(lost.contains(&vec![String::new(), ".".to_owned()]), "neither: {lost:?}");
}

#[test]
fn zeroes_that_survived_are_blocks_of_their_own() {
    let disk = SimDisk::new();
    durable(&disk, "file", b"").preallocate_zeroed(4096).unwrap();
    let zeroed = |disk: &SimDisk| read(disk, "file").is_some_and(|bytes| letters(&bytes) == "........");
    let survivor = disk.survivors(64, 1).into_iter().find(zeroed).unwrap();
    open(&survivor, "file").write_at(0, &letters_of("b")).unwrap();
    assert_eq!(letter_fates(&survivor, "file"), ["........", "b......."]);
}

#[test]
fn blocks_that_were_zeroed_and_synced_show_nothing_stale() {
    let disk = SimDisk::new();
    let file = durable(&disk, "file", b"");
    file.preallocate_zeroed(1024).unwrap();
    file.sync_all(SYNC).unwrap();
    file.write_at(0, &letters_of("b")).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["..", "b."]);
}

#[test]
fn preallocating_and_syncing_makes_zeroes_durable_and_costs_no_memory() {
    let disk = SimDisk::new();
    let file = durable(&disk, "file", &letters_of("a"));
    file.preallocate_zeroed(1 << 40).unwrap();
    assert!(disk.survivors(64, 1).len() > 4);
    file.sync_all(SYNC).unwrap();
    assert_eq!(disk.survivors(64, 1).len(), 1);
    assert_eq!(disk.used_bytes(), 1 << 40);
    let survivor = &disk.survivors(1, 1)[0];
    let file = open(survivor, "file");
    let mut bytes = [1; 1024];
    assert_eq!((file.size().unwrap(), file.read_at((1 << 40) - 512, &mut bytes).unwrap()), (1 << 40, 512));
    assert_eq!(letters(&bytes[..512]), ".");
    assert_eq!((file.read_at(0, &mut bytes).unwrap(), letters(&bytes).as_str()), (1024, ".."));
}

#[test]
fn a_durable_write_is_durable_when_it_returns_and_torn_when_it_is_cut() {
    // What a cut in the middle leaves is in `exploration`: here nobody can stop in between.
    for (how, other) in
        [(Durably::DataSync, &["xbbaaay"][..]), (Durably::Dsync, &["abbaaa", "abbaaay", "xbbaaa", "xbbaaay"])]
    {
        let disk = SimDisk::new();
        disk.set_stale(Stale::ZEROES);
        let file = durable(&disk, "file", &letters_of("aaaaaa"));
        file.write_at(0, &letters_of("x")).unwrap();
        file.write_at(512 * 6, &letters_of("y")).unwrap();
        file.write_durable_at(512, &letters_of("bb"), how, SYNC).unwrap();
        let mut fates = letter_fates(&disk, "file");
        fates.retain(|fate| !fate.contains('.'));
        assert_eq!(fates, other, "{how:?}");
    }
}

#[test]
fn a_durable_write_behind_an_unsynced_length_makes_the_length_durable() {
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let file = durable(&disk, "file", b"");
    file.set_size(512 * 4).unwrap();
    file.write_durable_at(512, &letters_of("b"), Durably::Dsync, SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), [".b.."]);
}

#[test]
fn a_data_sync_keeps_only_the_lengths_that_its_bytes_need() {
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let file = durable(&disk, "file", &letters_of("abcd"));
    // Shorter: nobody needs that to read.
    file.write_at(0, &letters_of("x")).unwrap();
    file.write_at(512 * 2, &letters_of("z")).unwrap();
    file.set_size(512 * 2).unwrap();
    file.sync_data(SYNC).unwrap();
    // And the `z` was cut off before the sync could meet it.
    assert_eq!(letter_fates(&disk, "file"), ["xb", "xbcd", "xbzd"]);
    // Longer again, with bytes there: both lengths are needed, and what was cut off is gone.
    file.write_at(512 * 3, &letters_of("y")).unwrap();
    file.sync_data(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["xb.y"]);
    // Longer without bytes: only a full sync keeps it.
    file.set_size(512 * 5).unwrap();
    file.sync_data(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["xb.y", "xb.y."]);
    file.sync_all(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["xb.y."]);
}

#[test]
fn a_data_sync_needs_the_length_of_every_write_of_a_sector() {
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let file = durable(&disk, "file", b"");
    for length in [100, 500, 50] {
        file.write_at(0, &vec![b'a'; length]).unwrap();
    }
    file.sync_data(SYNC).unwrap();
    assert_eq!(fates(&disk, "file"), [Some(vec![b'a'; 500])]);
}

#[test]
fn what_was_cut_off_never_comes_back_once_the_cut_is_durable() {
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let file = durable(&disk, "file", &letters_of("ab"));
    file.set_size(700).unwrap();
    // The zeroes behind a cut come with the cut only.
    let whole = letters_of("ab");
    assert_eq!(fates(&disk, "file"), [Some(whole[..700].to_vec()), Some(whole)]);
    file.set_size(1024).unwrap();
    let fates = fates(&disk, "file");
    let whole = |bytes: &&Option<Vec<u8>>| bytes.as_ref().unwrap()[700..].iter().all(|byte| *byte == b'b');
    assert!(fates.iter().any(|bytes| letters(bytes.as_ref().unwrap()) == "ab"), "the first state");
    assert!(fates.iter().any(|bytes| bytes.as_ref().unwrap().len() == 700), "only the cut");
    file.sync_all(SYNC).unwrap();
    let fates = self::fates(&disk, "file");
    assert!(fates.len() == 1 && !fates.iter().any(|bytes| whole(&bytes)));
}

#[test]
fn a_write_that_was_cut_off_shows_only_where_the_cut_is_lost() {
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let file = durable(&disk, "file", &letters_of("abc"));
    file.write_at(512 * 2, &letters_of("x")).unwrap();
    file.set_size(512 * 2).unwrap();
    file.set_size(512 * 4).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["ab", "ab..", "abc", "abx"]);
}

#[test]
fn a_new_name_is_lost_until_its_folder_is_synced_whatever_the_file_did() {
    let disk = SimDisk::new();
    let file = create(&disk, "file");
    file.write_at(0, &letters_of("a")).unwrap();
    file.sync_all(SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["-", "a"]);
    disk.sync_dir(path(""), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["a"]);
    disk.unlink(path("file")).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["-", "a"]);
}

#[test]
fn a_folder_is_lost_with_all_in_it_until_its_parent_is_synced() {
    let disk = SimDisk::new();
    disk.create_dir(path("data")).unwrap();
    disk.create_dir(path("data/log")).unwrap();
    let file = create(&disk, "/data/log/file");
    file.write_at(0, &letters_of("a")).unwrap();
    file.sync_all(SYNC).unwrap();
    disk.sync_dir(path("data/log"), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "data/log/file"), ["-", "a"]);
    disk.sync_dir(path("data"), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "data/log/file"), ["-", "a"]);
    disk.sync_dir(path(""), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "data/log/file"), ["a"]);
}

#[test]
fn rename_is_atomic_but_not_durable_until_the_folder_is_synced() {
    let disk = SimDisk::new();
    durable(&disk, "name", &letters_of("a"));
    durable(&disk, "name.new", &letters_of("b"));
    disk.rename(path("name.new"), path("name")).unwrap();
    let both: Vec<_> = disk.survivors(64, 1).iter().map(|disk| (read(disk, "name"), read(disk, "name.new"))).collect();
    assert_eq!(both, [(Some(letters_of("a")), Some(letters_of("b"))), (Some(letters_of("b")), None)]);
    disk.sync_dir(path(""), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "name"), ["b"]);
}

#[test]
fn a_rename_may_survive_although_the_content_did_not() {
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    durable(&disk, "name", &letters_of("a"));
    let file = create(&disk, "name.new");
    file.write_at(0, &letters_of("b")).unwrap();
    disk.rename(path("name.new"), path("name")).unwrap();
    assert_eq!(letter_fates(&disk, "name"), ["", ".", "a", "b"]);
    disk.sync_dir(path(""), SYNC).unwrap();
    assert_eq!(letter_fates(&disk, "name"), ["", ".", "b"]);
}

#[test]
fn changes_of_one_name_survive_in_order_and_of_many_in_any_subset() {
    let disk = SimDisk::new();
    durable(&disk, "a", &letters_of("1"));
    disk.rename(path("a"), path("b")).unwrap();
    create(&disk, "a");
    create(&disk, "c");
    let lists: Vec<_> = disk.survivors(64, 1).iter().map(|disk| disk.list(path("")).unwrap().join("")).collect();
    // The new `a` never replaces the old one: that would lose a durable file.
    assert_eq!(lists.len(), 6);
    assert!(["a", "b", "ab", "ac", "bc", "abc"].iter().all(|list| lists.iter().any(|seen| seen == list)), "{lists:?}");
    assert!(
        disk.survivors(64, 1)
            .iter()
            .all(|disk| { [read(disk, "a"), read(disk, "b")].contains(&Some(letters_of("1"))) })
    );
}

#[test]
fn a_power_cut_ends_the_process_and_keeps_what_its_choice_says() {
    for (survival, fate) in [(Survival::Nothing, "a"), (Survival::Everything, "b")] {
        let disk = SimDisk::new();
        let file = durable(&disk, "file", &letters_of("a"));
        let lock = disk.lock(path("LOCK")).unwrap();
        file.write_at(0, &letters_of("b")).unwrap();
        disk.cut_power(survival);
        assert!(file.size().is_err());
        assert!(disk.lock(path("LOCK")).is_ok());
        drop(lock);
        assert_eq!(letters(&read(&disk, "file").unwrap()), fate);
        assert_eq!(disk.survivors(64, 1).len(), 1 + usize::from(survival == Survival::Nothing));
    }
    let fate = |seed| {
        let disk = SimDisk::new();
        durable(&disk, "file", &letters_of("aaaaaaaa")).write_at(0, &letters_of("bbbbbbbb")).unwrap();
        disk.cut_power(Survival::Seeded(seed));
        letters(&read(&disk, "file").unwrap())
    };
    assert!((0..20).all(|seed| fate(seed) == fate(seed)));
    assert!((0..20).any(|seed| fate(seed) != fate(0)));
}
