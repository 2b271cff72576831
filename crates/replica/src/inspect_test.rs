//! What members have left: whole, damaged, trimmed, taken over from elsewhere, and parted from each other.

use std::path::Path;
use std::sync::Arc;

use assent_ids::Epoch;
use assent_journal::{Config, Journal};
use assent_membership::{Configuration, Place, Sequence};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::{Access, Disk as _, Open, read_exact_at, write_all_at};

use crate::{Base, Entry, Left, Machine, Mark, Next, Own, OwnLog, Put, ReplicaError, Shelf, Wrote, compare};

const FOLDER: &str = "member";

/// A sum, and how many.
#[derive(Clone, Debug, Default)]
struct Sum(u64, u64);

impl Machine for Sum {
    type View = Self;

    fn apply(&mut self, _: Sequence, _: u16, command: &[u8], _: &mut Vec<u8>) -> Result<(), String> {
        let [by] = command else { return Err(format!("{} bytes are no number", command.len())) };
        *self = Self(self.0 + u64::from(*by), self.1 + 1);
        Ok(())
    }

    fn hash(&self) -> u64 {
        self.0 << 8 | self.1
    }

    fn view(&self) -> Self {
        self.clone()
    }

    fn lay(view: &Self, put: Put<'_>) -> std::io::Result<()> {
        put(&[view.0.to_le_bytes(), view.1.to_le_bytes()].concat())
    }

    fn empty(&self) -> Self {
        Self::default()
    }

    fn load(&mut self, next: Next<'_>) -> Result<(), String> {
        let chunk = next().ok_or("nothing was laid")?;
        let [sum, count] = chunk.as_chunks::<8>().0 else { return Err("no sum".to_owned()) };
        *self = Self(u64::from_le_bytes(*sum), u64::from_le_bytes(*count));
        Ok(())
    }
}

/// A member that is only its folder.
struct Folder {
    disk: SimDisk,
    log: OwnLog,
    shelf: Shelf,
    end: Base,
    sum: Sum,
}

impl Folder {
    fn new() -> Self {
        let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
        let config = Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Config::default() };
        let shared = Arc::new(disk.clone());
        let folder = Path::new(FOLDER);
        let journal = Journal::open(shared.clone(), clock.clone(), dice.clone(), folder, config).unwrap().0;
        let mut own = Own::open(shared.clone(), &*clock, &*dice, folder).unwrap();
        own.store(Configuration { version: 7, epoch: Epoch(2), ..Configuration::default() }).unwrap();
        let shelf = Shelf::open(shared, folder).unwrap();
        let log = OwnLog::open(journal, dice, &shelf.base()).unwrap().0;
        Self { disk, log, shelf, end: Base::default(), sum: Sum::default() }
    }

    fn put(&mut self, epoch: u32, numbers: &[u8]) {
        for number in numbers {
            let entry = Entry::behind(self.end.end, Epoch(epoch), 1, vec![*number].into());
            self.log.append(&entry).unwrap();
            self.end.history.grew(Epoch(epoch), entry.sequence);
            self.end.end = entry.mark();
            self.sum.apply(entry.sequence, 1, &[*number], &mut Vec::new()).unwrap();
        }
        self.log.sync().unwrap();
    }

    fn snapshot(&self, sum: &Sum) {
        let wrote = self.shelf.write(self.shelf.turn(), &self.end, |_| Ok(()), |put| Sum::lay(sum, put)).unwrap();
        assert!(matches!(wrote, Wrote::Kept(_)));
    }

    fn left(&self) -> Result<Left, ReplicaError> {
        Left::open(Arc::new(self.disk.clone()), &SimClock::new(), Path::new(FOLDER))
    }

    fn end(&self) -> Place {
        self.end.history.end()
    }
}

fn entry(epoch: u32, sequence: u64) -> Place {
    Place { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

#[test]
fn what_is_whole_is_verified_by_its_chain_and_by_what_it_leads_to() {
    let mut one = Folder::new();
    let (found, _) = one.left().unwrap().verify(Sum::default()).unwrap();
    assert_eq!((found.first, found.end, found.snapshot), (None, Place::default(), Sequence(0)));
    one.put(1, &[1, 2, 3]);
    one.snapshot(&one.sum);
    one.put(2, &[4, 5]);
    let (found, sum) = one.left().unwrap().verify(Sum::default()).unwrap();
    assert_eq!((found.known.version, found.out), (7, false));
    assert_eq!((found.first, found.end, found.snapshot), (Some(Sequence(1)), entry(2, 5), Sequence(3)));
    assert!(found.reached, "the log leads to the snapshot");
    assert_eq!((found.hash, sum.hash()), (one.sum.hash(), one.sum.hash()));
    // What a machine does not take stands in no log.
    let mut other = Folder::new();
    other.put(1, &[1]);
    let odd = Entry::behind(other.end.end, Epoch(1), 1, vec![1_u8, 2].into());
    other.log.append(&odd).unwrap();
    other.log.sync().unwrap();
    let wrong = other.left().unwrap().verify(Sum::default()).unwrap_err().to_string();
    assert!(wrong.contains("entry 2: 2 bytes are no number"), "{wrong}");
}

#[test]
fn a_snapshot_that_the_log_does_not_lead_to_or_that_is_cut_is_named() {
    let mut one = Folder::new();
    one.put(1, &[1, 2, 3]);
    one.snapshot(&Sum(7, 3));
    let wrong = one.left().unwrap().verify(Sum::default()).unwrap_err().to_string();
    assert!(wrong.contains("behind entry 3 is not the one that the log leads to"), "{wrong}");
    let (disk, path) = (&one.disk, Path::new("member/snapshot"));
    let whole = disk.open(path, Open { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; usize::try_from(whole.size().unwrap()).unwrap()];
    read_exact_at(&*whole, 0, &mut bytes).unwrap();
    for cut in [bytes.len() / 2, bytes.len() - 1] {
        disk.unlink(path).unwrap();
        let file = disk.open(path, Open { access: Access::Create, direct: false }).unwrap();
        write_all_at(&*file, 0, &bytes[..cut]).unwrap();
        let wrong = one.left().and_then(|left| left.verify(Sum::default()).map(drop)).unwrap_err().to_string();
        assert!(wrong.contains("member/snapshot is damaged"), "cut at {cut}: {wrong}");
    }
    let wrong = Left::open(Arc::new(SimDisk::new()), &SimClock::new(), Path::new(FOLDER)).unwrap_err();
    assert_eq!(wrong.kind(), assent_kind::Kind::NotFound);
}

#[test]
fn two_of_one_history_are_the_same_as_far_as_the_shorter_one_goes() {
    let (mut one, mut other) = (Folder::new(), Folder::new());
    one.put(1, &[1, 2, 3, 4]);
    other.put(1, &[1, 2, 3]);
    let compared = compare(&one.left().unwrap(), &other.left().unwrap(), Sum::default).unwrap();
    assert_eq!((compared.same_to, compared.differs), (Some(Sequence(3)), None));
    assert_eq!(compared.ends, [entry(1, 4), entry(1, 3)]);
    assert_eq!(compared.hashes, Some([other.sum.hash(); 2]));
    assert!(compared.are_same());
    // A snapshot with another state behind the same entries.
    other.snapshot(&Sum(9, 3));
    let compared = compare(&one.left().unwrap(), &other.left().unwrap(), Sum::default).unwrap();
    assert!(!compared.are_same() && compared.differs.is_none(), "{compared:?}");
}

#[test]
fn the_first_entry_that_differs_is_named_and_the_states_before_it_are_the_same() {
    let (mut one, mut other) = (Folder::new(), Folder::new());
    for folder in [&mut one, &mut other] {
        folder.put(1, &[1, 2]);
    }
    let both = one.sum.hash();
    // The same command of another epoch is another entry.
    one.put(1, &[3, 4, 5]);
    other.put(2, &[3]);
    let compared = compare(&one.left().unwrap(), &other.left().unwrap(), Sum::default).unwrap();
    assert_eq!((compared.same_to, compared.differs), (Some(Sequence(2)), Some(Sequence(3))));
    assert_eq!((compared.hashes, compared.ends), (Some([both; 2]), [one.end(), other.end()]));
    assert!(!compared.are_same());
}

#[test]
fn a_snapshot_from_elsewhere_vouches_by_its_chain_and_one_too_far_ahead_by_nothing() {
    let (mut one, mut other) = (Folder::new(), Folder::new());
    one.put(1, &[1, 2, 3]);
    // It has never seen these entries; only what they lead to.
    (other.end, other.sum) = (one.end.clone(), one.sum.clone());
    other.snapshot(&other.sum);
    other.log.begin(other.end.end);
    let look =
        |one: &Folder, other: &Folder| compare(&one.left().unwrap(), &other.left().unwrap(), Sum::default).unwrap();
    assert_eq!(look(&one, &other).same_to, Some(Sequence(3)));
    assert!(look(&one, &other).are_same());
    one.put(1, &[4]);
    other.put(1, &[4]);
    assert!(look(&one, &other).are_same());
    let (found, _) = other.left().unwrap().verify(Sum::default()).unwrap();
    assert_eq!((found.first, found.reached), (Some(Sequence(4)), false), "nothing leads to it but the snapshot");
    assert_eq!(found.hash, one.sum.hash());
    // Who ends before the other one begins.
    let mut short = Folder::new();
    short.put(1, &[1, 2]);
    let compared = look(&short, &other);
    assert_eq!((compared.same_to, compared.differs, compared.hashes), (None, None, None));
    assert!(!compared.are_same(), "nothing says that they belong together");
    let mark = Mark::default();
    assert_eq!(look(&Folder::new(), &Folder::new()).same_to, Some(mark.sequence), "two that never began");
}
