//! What a compaction makes of a real journal: values at their addresses, of which the ledger is asked in the order of keys, and not of those that are
//! known to be dead; and what a ledger that fails, or items in a wrong order, leave behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_ids::{Lsn, Xid};
use assent_journal::{Config, Journal, Log};
use assent_kind::Kind;
use assent_runs::{AtOnce, Go, Pace};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::Disk;

use crate::op::{Durability, Op};
use crate::record::{KIND_BATCH, KIND_COMMIT, KIND_PREPARE, Laid, outcome};
use crate::vault::{
    Address, Answer, Answers, Asked, Body, Compacted, Compaction, Dead, Horizon, Item, Liveness, NoBlocks, Raw, Source,
    Value, VaultError, Volume, compact, remove,
};

const FOLDER: &str = "kv";
const CELL: u64 = 300;

fn xid(branch: u64) -> Xid {
    Xid::new(3, &branch.to_le_bytes(), b"").unwrap()
}

#[test]
fn what_is_compacted_of_a_real_journal_is_found_at_its_addresses() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(FOLDER)).unwrap();
    let config =
        Config { log_size: 64 << 10, max_buffer_log_size: 32 << 10, kept_until_released: true, ..Config::default() };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), config).unwrap();
    let mut ledger: BTreeMap<Vec<u8>, (u64, Address, Vec<u8>)> = BTreeMap::new();
    let append = |kind, laid: &Laid, ops: &[Op<'_>]| log.append(kind, &laid.parts(ops)).unwrap();
    for number in 0..300_u64 {
        let (key, bytes) =
            ([number.to_le_bytes()[0] % 90], number.to_le_bytes().repeat(if number % 50 == 7 { 20_000 } else { 60 }));
        let ops = [Op::Put { keyspace: 0, key: &key, metadata: b"meta", value: &bytes, expiry: number }];
        let branch = xid(number);
        let (laid, kind) = match number % 5 {
            0 => (Laid::prepare(&ops, &branch, None, 1_000 + number), KIND_PREPARE),
            _ => (Laid::batch(&ops, Durability::Durable, 1_000 + number), KIND_BATCH),
        };
        let at = laid.effects[0].place().unwrap().at;
        let ticket = append(kind, &laid, &ops);
        let mut seq = ticket.end;
        if kind == KIND_PREPARE {
            seq = log.append(KIND_COMMIT, &[&outcome(&branch, ticket.lsn)]).unwrap().end;
        }
        ledger.insert(key.to_vec(), (seq.0, Address::new(ticket.lsn.0, at), bytes));
    }
    log.sync().unwrap();
    log.trim(log.end()).unwrap();
    let end = log.start().0;
    let mut asked_of = |asked: &Asked<'_>| {
        let (seq, address, _) = &ledger[asked.key];
        Ok(if *address == asked.address { Liveness::Live { seq: *seq } } else { Liveness::Dead { since: *seq } })
    };
    let raw = Raw::new(&*log, 0, end, Dead::default());
    let of = |durable| Compaction {
        first: 0,
        end,
        generation: 1,
        sources: vec![&raw],
        others: vec![Horizon { first: end, end: u64::MAX, as_of: 0, holds: true }],
        durable,
        flushed: durable,
        remembered_from: u64::MAX,
        cell_bytes: CELL,
        window_bytes: 64 << 10,
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let early = of(end / 2);
    let refused = compact(&early, &mut asked_of, &*shared, Path::new(FOLDER), &AtOnce).unwrap_err();
    assert!(matches!(refused, VaultError::Compaction { .. }), "{refused}");
    let compaction = of(log.durable().0);
    let stopped = compact(&compaction, &mut asked_of, &*shared, Path::new(FOLDER), &Stop).unwrap_err();
    assert_eq!((stopped, disk.list(Path::new(FOLDER)).unwrap().len()), (VaultError::Stopped, 0));
    asked_together(&compaction, &mut asked_of, &disk);
    let done = with_what_is_known(compaction, &mut asked_of, (&*log, &disk), end);
    for span in log.sealed() {
        log.release(span.first).unwrap();
    }
    let volume = Volume::open(&shared, Path::new(FOLDER), 0, 1).unwrap();
    let mut found = 0;
    for (key, (seq, address, bytes)) in ledger.iter().filter(|(_, (_, address, _))| address.lsn < end) {
        assert!(log.read_at(Lsn(address.lsn)).is_err(), "it was released");
        let record = volume.get(&NoBlocks, *address).unwrap().unwrap();
        let Body::Value { seq: committed, value } = record.item().unwrap().body else { panic!("{record:?}") };
        assert_eq!((committed, value.key, value.metadata, value.value), (*seq, &key[..], &b"meta"[..], &bytes[..]));
        let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert_eq!((value.modified, value.expiry), (1_000 + number, number));
        found += 1;
    }
    assert!(found > 40 && done.kept == found && done.remembered == 0, "{found} {done:?}");
}

fn unknown() -> VaultError {
    VaultError::Ledger { place: 7, what: "it cannot be read".to_owned(), kind: Kind::Unavailable, short: false }
}

/// A ledger that is asked for many keys in their order, and fails behind the first so many.
struct Together<'a> {
    of: &'a mut dyn FnMut(&Asked<'_>) -> Result<Liveness, VaultError>,
    asked: u64,
    least: u64,
}

impl Answers for Together<'_> {
    fn alone(&mut self, asked: &Asked<'_>) -> Result<Liveness, VaultError> {
        (self.of)(asked)
    }

    fn in_order(&mut self) -> Box<Answer<'_>> {
        let mut last = Vec::new();
        Box::new(move |asked| {
            if self.asked == self.least {
                return Err(unknown());
            }
            self.asked += 1;
            assert!(*last <= *asked.key, "{last:?} before {:?}", asked.key);
            last = asked.key.to_vec();
            (self.of)(asked)
        })
    }
}

/// Compacts by such a ledger, and by one that fails.
fn asked_together(
    compaction: &Compaction<'_>,
    of: &mut dyn FnMut(&Asked<'_>) -> Result<Liveness, VaultError>,
    disk: &SimDisk,
) {
    let folder = Path::new(FOLDER);
    let mut together = Together { of: &mut *of, asked: 0, least: u64::MAX };
    compact(compaction, &mut together, disk, folder, &AtOnce).unwrap();
    assert!(together.asked > 100, "{}", together.asked);
    remove(disk, folder, 0, 1);
    for least in [0, 40, 90] {
        let mut fails = Together { of: &mut *of, asked: 0, least };
        let failed = compact(compaction, &mut fails, disk, folder, &AtOnce).unwrap_err();
        assert_eq!((failed, fails.asked), (unknown(), least));
        assert_eq!(disk.list(folder).unwrap().len(), 0, "nothing is left behind");
    }
}

/// Items that are said to stand there, in this order.
struct Said<'a>(&'a [Item<'a>]);

impl Source for Said<'_> {
    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
        self.0.iter().cloned().try_for_each(then)
    }
}

/// What was asked of an item would be taken for another one's answer, or for none.
#[test]
fn items_that_are_not_in_the_order_of_their_addresses_are_refused_also_where_none_is_kept() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(FOLDER)).unwrap();
    let value = Value { keyspace: 0, key: b"k", modified: 1, expiry: 0, metadata: b"", value: b"v", hash: 1 };
    let item = |lsn| Item { address: Address::new(lsn, 0), body: Body::Value { seq: lsn + 1, value } };
    for (lsns, expected) in [([10, 20, 30], true), ([10, 30, 20], false), ([20, 10, 30], false)] {
        let items = lsns.map(item);
        let said = Said(&items);
        for (window_bytes, liveness) in [(4096, Liveness::Dead { since: 90 }), (4096, Liveness::Live { seq: 1 })] {
            let compaction = Compaction {
                first: 0,
                end: 100,
                generation: 1,
                sources: vec![&said],
                others: Vec::new(),
                durable: 100,
                flushed: 100,
                remembered_from: u64::MAX,
                cell_bytes: CELL,
                window_bytes,
            };
            let mut ledger = |_: &Asked<'_>| Ok(liveness);
            let done = compact(&compaction, &mut ledger, &disk, Path::new(FOLDER), &AtOnce);
            assert_eq!(done.is_ok(), expected, "{lsns:?} {liveness:?}: {done:?}");
            remove(&disk, Path::new(FOLDER), 0, 1);
        }
    }
}

/// Compacts twice, the second time with all that the first one found dead: of that nobody is asked, and what is written is the same.
fn with_what_is_known(
    compaction: Compaction<'_>,
    ledger: &mut dyn FnMut(&Asked<'_>) -> Result<Liveness, VaultError>,
    (log, disk): (&dyn Log, &SimDisk),
    end: u64,
) -> Compacted {
    let (mut dead, mut asked) = (Dead::new((64 << 10) - 4096, 0, 1 << 20), 0);
    let mut noting = |asked: &Asked<'_>| {
        let liveness = ledger(asked)?;
        if matches!(liveness, Liveness::Dead { .. }) {
            dead.note(asked.address);
        }
        Ok(liveness)
    };
    let first = compact(&compaction, &mut noting, disk, Path::new(FOLDER), &AtOnce).unwrap();
    remove(disk, Path::new(FOLDER), 0, 1);
    let raw = Raw::new(log, 0, end, dead);
    let compaction = Compaction { sources: vec![&raw], ..compaction };
    let mut living = |about: &Asked<'_>| {
        asked += 1;
        assert!(!raw.is_dead(about.address), "{about:?}");
        ledger(about)
    };
    let done = compact(&compaction, &mut living, disk, Path::new(FOLDER), &AtOnce).unwrap();
    assert_eq!(done, first);
    assert!(asked < done.kept + done.dropped && done.dropped > 10, "{asked} of {done:?}");
    done
}

/// Stops at once.
struct Stop;

impl Pace for Stop {
    fn wrote(&self, _: u64) -> Go {
        Go::Stop
    }
}
