//! Parts of entries: as of the whole, and of long ones no more is read than holds them.

use assent_ids::Lsn;
use assent_journal::{Config, Log};
use assent_kind::Kind;
use assent_sim::SimDisk;

use super::kept::keeping;
use super::stage::{FOLDER, bytes, open, put, rot, segments, small};

fn payload(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).take(length).collect()
}

/// A segment is shorter than the longest of these entries, and a batch than most.
fn config() -> Config {
    Config { log_size: 256 << 10, max_buffer_log_size: 64 << 10, ..keeping() }
}

fn part(log: &dyn Log, lsn: Lsn, from: usize, to: usize) -> Vec<u8> {
    let (bytes, range) = log.read_part(lsn, from..to).unwrap();
    bytes[range].to_vec()
}

#[test]
fn each_part_of_each_entry_is_as_it_was_laid_whoever_asks_first() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(&disk, 1, &config()).unwrap();
    let lengths = [0, 1, 5, 4_000, 20_000, 65_000, 66_000, 200_000, 700_000];
    let tickets = lengths.map(|length| put(&*journal, &payload(length)));
    for opening in 2..4 {
        for (ticket, length) in tickets.iter().zip(lengths) {
            let (whole, places) = (payload(length), [0, 1, 4_090, 63_000, 65_400, 65_536, 131_000, 199_999, 700_000]);
            for from in places {
                for bytes in [0, 1, 100, 3_000, 140_000, 1 << 40] {
                    let held = &whole[from.min(length)..from.saturating_add(bytes).min(length)];
                    let read = part(&*journal, ticket.lsn, from, from.saturating_add(bytes));
                    assert!(read == held, "{bytes} bytes from {from} of {length}, opening {opening}");
                }
            }
            assert_eq!(part(&*journal, ticket.lsn, usize::MAX, 3), b"", "nothing ends before it begins");
        }
        journal.close().unwrap();
        drop(journal);
        (journal, _) = open(&disk, opening, &config()).unwrap();
    }
    let inside = Lsn(tickets[8].lsn.0 + 8);
    assert_eq!(journal.read_part(inside, 0..1).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn of_a_long_entry_whose_pieces_are_known_only_those_are_read_that_hold_the_part() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &config()).unwrap();
    let lsns: Vec<Lsn> = (0..9).map(|_| put(&*journal, &payload(900_000)).lsn).collect();
    let calls = |lsn: Lsn, from: usize, to: usize| {
        let before = disk.calls();
        assert!(part(&*journal, lsn, from, to) == payload(900_000)[from..to]);
        disk.calls() - before
    };
    let first = calls(lsns[0], 800_000, 800_100);
    assert!(first > 6, "it is walked once: {first} reads");
    assert_eq!([calls(lsns[0], 800_000, 800_100), calls(lsns[0], 10, 20), calls(lsns[0], 130_000, 150_000)], [1; 3]);
    let all = calls(lsns[0], 0, 900_000);
    assert!(all <= first, "near ones are read at once: {all} reads");
    // Eight are remembered.
    lsns[1..8].iter().for_each(|lsn| _ = calls(*lsn, 0, 10));
    assert_eq!(calls(lsns[0], 10, 20), 1);
    _ = calls(lsns[8], 0, 10);
    assert_eq!([calls(lsns[8], 10, 20), calls(lsns[0], 10, 20), calls(lsns[2], 10, 20)], [1; 3]);
    assert!(calls(lsns[1], 10, 20) > 6, "the one that nobody had asked for was forgotten");
}

#[test]
fn a_rotten_piece_is_told_and_the_others_are_read() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let length = 24 << 10;
    let ticket = put(&*journal, &payload(length));
    assert_eq!(part(&*journal, ticket.lsn, 0, 10), payload(10));
    // A piece in the midst of it.
    let middle = &payload(length)[length / 2..length / 2 + 16];
    let holds = |file: &String| bytes(&disk, file).windows(16).position(|bytes| bytes == middle);
    let (file, at) = segments(&disk).into_iter().find_map(|file| holds(&file).map(|at| (file, at))).unwrap();
    rot(&disk, &file, u64::try_from(at).unwrap(), b"rot");
    let error = journal.read_part(ticket.lsn, length / 2..length / 2 + 16).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains(FOLDER), "{error}");
    for (from, to) in [(0, 100), (length - 100, length)] {
        assert_eq!(part(&*journal, ticket.lsn, from, to), payload(length)[from..to]);
    }
}

#[test]
fn what_is_released_is_not_read_by_what_was_known_of_it() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &config()).unwrap();
    let long = put(&*journal, &payload(900_000));
    assert_eq!(part(&*journal, long.lsn, 0, 4), payload(4));
    let behind: Vec<Lsn> = (0..20).map(|_| put(&*journal, &payload(60_000)).lsn).collect();
    journal.trim(behind[19]).unwrap();
    assert_eq!(part(&*journal, long.lsn, 800_000, 800_004), payload(900_000)[800_000..800_004]);
    let spans = journal.sealed();
    journal.release(spans.last().unwrap().first).unwrap();
    assert_eq!(part(&*journal, long.lsn, 4, 8), payload(8)[4..]);
    let middle = spans.iter().position(|span| span.first > long.lsn).unwrap() + 1;
    journal.release(spans[middle].first).unwrap();
    let read = |from: usize| journal.read_part(long.lsn, from..from + 4).map_err(|error| error.kind());
    let kinds: Vec<_> = (0..900_000).step_by(30_000).filter_map(|from| read(from).err()).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == Kind::NotFound), "{kinds:?}");
    let spans = journal.sealed();
    spans.iter().for_each(|span| journal.release(span.first).unwrap());
    assert_eq!(journal.read_part(long.lsn, 0..4).unwrap_err().kind(), Kind::NotFound);
}
