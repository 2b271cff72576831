//! Snapshots on a disk: read as they were laid, every damage seen, and named by nobody but the shelf, in the order of what they hold.

use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_ids::Epoch;
use assent_membership::{History, Member, Sequence};
use assent_sim::SimDisk;
use assent_world::{Access, Disk, File, Open, read_exact_at, write_all_at};

use crate::snapshot::Snapshot;
use crate::{Base, CHUNK_BYTES_MAX, Chain, Coming, Lent, Mark, Put, ReplicaError, Shelf, Wrote};

fn base(end: u64) -> Base {
    let mut history = History::default();
    history.grew(Epoch(2), Sequence(end));
    Base { history, end: Mark { sequence: Sequence(end), chain: Chain(end * 7) } }
}

fn shelf(disk: &SimDisk) -> Shelf {
    Shelf::open(Arc::new(disk.clone()), Path::new("")).unwrap()
}

fn write(shelf: &Shelf, end: u64, chunks: &[&[u8]]) -> Wrote {
    let lay = |put: Put<'_>| chunks.iter().try_for_each(|chunk| put(chunk));
    shelf.write(shelf.turn(), &base(end), |_| Ok(()), lay).unwrap()
}

fn chunks(snapshot: &Snapshot) -> Result<Vec<Vec<u8>>, String> {
    let mut chunks = Vec::new();
    snapshot.load(|next| {
        while let Some(chunk) = next() {
            chunks.push(chunk);
        }
        Ok(())
    })?;
    Ok(chunks)
}

/// A whole snapshot of another member, as it comes.
fn coming(shelf: &Shelf, end: u64, piece_bytes: u64) -> Coming {
    let theirs = self::shelf(&SimDisk::new());
    write(&theirs, end, &[b"theirs", b"too"]);
    let mut lent = Lent::default();
    let mut coming = shelf.begin().unwrap();
    let (mut offset, mut total) = (0, u64::MAX);
    while offset < total {
        let piece = lent.piece(&theirs, Member(1), Sequence(end), offset, piece_bytes).unwrap().unwrap();
        assert_eq!((piece.offset, &piece.base), (offset, &base(end)));
        coming.keep(&piece).unwrap();
        (offset, total) = (offset + piece.bytes.len() as u64, piece.total_bytes);
        // Newer ones change nothing for whom this one is lent.
        write(&theirs, end + offset, &[b"newer"]);
    }
    assert_eq!(
        shelf.check(&coming, &base(end), |next| if next().is_some() && next().is_some() {
            Ok(())
        } else {
            Err("short".to_owned())
        }),
        Ok(Ok(()))
    );
    coming
}

fn file(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    disk.open(Path::new(name), Open { access: Access::Write, direct: false }).unwrap()
}

#[test]
fn a_snapshot_is_read_as_it_was_laid_and_every_damage_is_seen() {
    let disk = SimDisk::new();
    let shelf = shelf(&disk);
    assert!(shelf.kept().is_none());
    let longest = vec![7; CHUNK_BYTES_MAX];
    let laid: [&[&[u8]]; 3] = [&[], &[b"a", &longest, &longest], &[b"one", b"two", b"three"]];
    for (end, laid) in (1..).zip(laid) {
        assert!(matches!(write(&shelf, end, laid), Wrote::Kept(_)));
        for shelf in [&shelf, &self::shelf(&disk)] {
            assert_eq!(shelf.base(), base(end));
            assert_eq!(chunks(&shelf.kept().unwrap()).unwrap(), laid);
        }
    }
    for refused in [&b""[..], &[longest.as_slice(), b"x"].concat()] {
        assert!(matches!(write(&shelf, 9, &[refused]), Wrote::Failed(_)), "{} bytes are no chunk", refused.len());
    }
    assert_eq!(shelf.base(), base(3), "what was refused changed nothing");
    // Each byte says something, and so does the end.
    let whole = file(&disk, "snapshot");
    let mut bytes = vec![0; usize::try_from(whole.size().unwrap()).unwrap()];
    read_exact_at(&*whole, 0, &mut bytes).unwrap();
    let found = |bytes: &[u8]| {
        let path = Path::new("damaged");
        _ = disk.unlink(path);
        let file = disk.open(path, Open { access: Access::Create, direct: false }).unwrap();
        write_all_at(&*file, 0, bytes).unwrap();
        Snapshot::of(file).unwrap().and_then(|snapshot| chunks(&snapshot))
    };
    assert!(found(&bytes).is_ok());
    for end in 0..bytes.len() {
        assert!(found(&bytes[..end]).is_err(), "cut at {end}");
        let mut damaged = bytes.clone();
        damaged[end] ^= 1;
        // Padding between frames says nothing; no frame of this one needs any but to its multiple of eight.
        if let Ok(read) = found(&damaged) {
            assert_eq!(read, chunks(&shelf.kept().unwrap()).unwrap(), "byte {end}");
        }
    }
    assert!(found(&[&bytes[..], &[0]].concat()).is_err(), "something behind the end");
    assert!(found(&[&bytes[..], &bytes[..]].concat()).is_err());
}

#[test]
fn a_machine_that_takes_less_than_was_laid_is_not_believed() {
    let shelf = shelf(&SimDisk::new());
    write(&shelf, 3, &[b"one", b"two"]);
    let kept = shelf.kept().unwrap();
    assert!(kept.load(|next| next().map(drop).ok_or_else(String::new)).is_err());
    assert_eq!(kept.load(|_| Err("not mine".to_owned())), Err("not mine".to_owned()));
}

#[test]
fn one_from_elsewhere_is_not_overtaken_by_an_older_one_that_was_being_laid() {
    // The snapshots' thread lays ours behind entry 5; meanwhile entry 9 comes from elsewhere. Then ours was renamed over it: memory and
    // trimmed log said 9, a restart said 5.
    let disk = SimDisk::new();
    let shelf = shelf(&disk);
    write(&shelf, 3, &[b"three"]);
    let coming = coming(&shelf, 9, 7);
    let wrote = shelf.write(
        shelf.turn(),
        &base(5),
        |_| Ok(()),
        |put| {
            put(b"ours")?;
            shelf.install(&coming, &base(9)).map_err(|error| io::Error::other(error.to_string()))?;
            put(b"late")
        },
    );
    assert!(matches!(wrote, Ok(Wrote::Revoked)), "{wrote:?}");
    for shelf in [&shelf, &self::shelf(&disk)] {
        assert_eq!(shelf.base(), base(9));
        assert_eq!(chunks(&shelf.kept().unwrap()).unwrap(), [&b"theirs"[..], b"too"]);
    }
    assert_eq!(disk.list(Path::new("")).unwrap(), ["snapshot"]);
    // And a captured turn is over for good, also for one that would stand higher.
    let wrote = shelf.write(0, &base(20), |_| Ok(()), |_| Ok(()));
    assert!(matches!(wrote, Ok(Wrote::Revoked)), "{wrote:?}");
}

#[test]
fn what_is_being_laid_when_the_log_is_cut_is_never_named() {
    let disk = SimDisk::new();
    let shelf = shelf(&disk);
    write(&shelf, 3, &[b"three"]);
    let wrote = shelf.write(
        shelf.turn(),
        &base(8),
        |_| Ok(()),
        |put| {
            assert_eq!(shelf.revoke(), base(3), "nothing of what is cut is kept");
            put(b"discarded")
        },
    );
    assert!(matches!(wrote, Ok(Wrote::Revoked)), "{wrote:?}");
    assert_eq!((shelf.base(), self::shelf(&disk).base()), (base(3), base(3)));
    assert!(matches!(write(&shelf, 6, &[b"six"]), Wrote::Kept(_)), "the next one is");
}

#[test]
fn one_that_gives_up_because_its_turn_is_over_has_not_failed() {
    let shelf = shelf(&SimDisk::new());
    let wrote = shelf.write(
        shelf.turn(),
        &base(8),
        |_| Ok(()),
        |_| {
            shelf.revoke();
            Err(io::ErrorKind::Interrupted.into())
        },
    );
    assert!(matches!(wrote, Ok(Wrote::Revoked)), "{wrote:?}");
}

#[test]
fn a_lower_one_is_refused() {
    let shelf = shelf(&SimDisk::new());
    let lower = coming(&shelf, 9, 1_000);
    write(&shelf, 9, &[b"nine"]);
    let refused = shelf.install(&lower, &base(9)).unwrap_err();
    assert_eq!(refused, ReplicaError::Older { found: Sequence(9), kept: Sequence(9) });
    assert!(matches!(write(&shelf, 9, &[b"again"]), Wrote::Revoked));
    assert_eq!(chunks(&shelf.kept().unwrap()).unwrap(), [b"nine"]);
}

#[test]
fn one_that_cannot_be_read_gives_way_to_one_that_stands_as_high_and_to_no_lower_one() {
    let disk = SimDisk::new();
    let shelf = shelf(&disk);
    write(&shelf, 9, &[b"nine"]);
    let mut lent = Lent::default();
    disk.set_unreadable(Path::new("snapshot.new"), 0, true);
    assert!(lent.piece(&shelf, Member(1), Sequence(0), 0, 100).is_err());
    disk.set_unreadable(Path::new("snapshot.new"), 0, false);
    assert!(shelf.is_unreadable());
    assert!(matches!(write(&shelf, 8, &[b"eight"]), Wrote::Revoked));
    assert!(matches!(write(&shelf, 9, &[b"again"]), Wrote::Kept(_)));
    assert_eq!(chunks(&shelf.kept().unwrap()).unwrap(), [b"again"]);
    // Whom it was lent gets the other one, and that one stays.
    let piece = lent.piece(&shelf, Member(1), Sequence(0), 0, 100).unwrap().unwrap();
    assert_eq!((piece.base, shelf.is_unreadable()), (base(9), false));
    assert!(matches!(write(&shelf, 9, &[b"once more"]), Wrote::Revoked));
}

#[test]
fn one_that_came_damaged_or_is_another_one_is_not_believed() {
    let disk = SimDisk::new();
    let shelf = shelf(&disk);
    let coming = coming(&shelf, 9, 1_000);
    let drain = |next: crate::Next<'_>| {
        while next().is_some() {}
        Ok(())
    };
    assert_eq!(shelf.check(&coming, &base(9), drain), Ok(Ok(())));
    assert!(shelf.check(&coming, &base(8), drain).unwrap().is_err());
    let bytes = file(&disk, "snapshot.coming");
    let last = bytes.size().unwrap() - 8;
    write_all_at(&*bytes, last, &[9]).unwrap();
    assert!(shelf.check(&coming, &base(9), drain).unwrap().is_err());
}

#[test]
fn a_disk_that_refuses_leaves_the_one_before() {
    let disk = SimDisk::new();
    let shelf = shelf(&disk);
    write(&shelf, 3, &[b"three"]);
    let wrote = shelf.write(shelf.turn(), &base(8), |_| Ok(()), |_| Err(io::ErrorKind::StorageFull.into()));
    let Ok(Wrote::Failed(error)) = wrote else { panic!("{wrote:?}") };
    assert_eq!(error.kind(), assent_kind::Kind::Full);
    assert_eq!((shelf.base(), disk.list(Path::new("")).unwrap()), (base(3), vec!["snapshot".to_owned()]));
    assert!(matches!(write(&shelf, 8, &[b"eight"]), Wrote::Kept(_)));
}
