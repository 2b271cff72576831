//! What a compaction finds: it counts where accounts are not believed any more, with what the ledger's files will still let go; and else where
//! more is dead than was known.

use std::path::Path;
use std::sync::Arc;

use assent_journal::{Config as Settings, Journal, Log};
use assent_runs::AtOnce;
use assent_sim::{SimClock, SimDice, SimDisk};

use crate::config::LEVEL0_RUNS;
use crate::{Config, Durability, Kv};

const DURABLE: Durability = Durability::Durable;

fn store() -> Kv {
    let disk = Arc::new(SimDisk::new());
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let settings = Settings {
        log_size: 5 * 4096,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Settings::default()
    };
    let (log, _) = Journal::open(Arc::<SimDisk>::clone(&disk) as _, clock, dice, Path::new("log"), settings).unwrap();
    let config = Config {
        space_amplification_max_percent: 110,
        space_room_bytes_min: 0,
        volume_bytes: 24 << 10,
        ..Config::default()
    };
    let log: Arc<dyn Log> = log;
    Kv::open(log, disk, Arc::new(SimClock::new()), Path::new("kv"), config).unwrap()
}

/// Sixty keys, behind all but one of the checkpoints that make a merge due, and all that stands before the last one in whole segments.
fn with_keys() -> Kv {
    let kv = store();
    (0..60_u64).for_each(|key| _ = kv.put(0, &key.to_be_bytes(), &[1; 400], DURABLE).unwrap());
    while kv.shared.log.end().0 < 4 * 4 * 4096 {
        kv.put(1, b"", &[2; 400], DURABLE).unwrap();
    }
    for _ in 1..LEVEL0_RUNS {
        kv.put(1, b"", &[3; 400], DURABLE).unwrap();
        kv.checkpoint().unwrap();
    }
    kv
}

/// Every other one, which half of them live beside.
fn supersede(kv: &Kv) {
    (0..30_u64).for_each(|key| _ = kv.put(0, &(2 * key + 1).to_be_bytes(), &[1; 400], DURABLE).unwrap());
}

fn known(kv: &Kv) -> u64 {
    let lives = |accounts: &crate::vault::Accounts| accounts.sums(kv.shared.log.end().0).1;
    lives(&kv.shared.ledger.accounts()) - lives(&kv.shared.ledger.expected())
}

/// Values of less than a KiB are not looked up: what is dead of them is known to whoever compacts them, but for what a flush has yet to write.
#[test]
fn a_compaction_that_finds_more_dead_than_was_known_says_so_and_what_only_memory_supersedes_is_found_by_flushes_alone()
{
    for is_flushed in [false, true] {
        let kv = with_keys();
        supersede(&kv);
        if is_flushed {
            kv.checkpoint().unwrap();
        }
        assert_eq!(known(&kv), 0);
        while kv.compact_once(&AtOnce).unwrap() {}
        let found = known(&kv);
        assert_eq!((30 * 400..30 * 500).contains(&found), is_flushed, "{found}");
        kv.checkpoint().unwrap();
        while kv.shared.ledger.merge(&*kv.shared.log, &AtOnce).unwrap() {}
        assert_eq!((known(&kv), kv.stats().broken_accounts), (0, 0));
    }
}

#[test]
fn what_will_still_be_booked_out_is_counted_where_accounts_are_not_believed() {
    let kv = with_keys();
    // Superseded durably, and written out beside the old rows, but not merged with them.
    supersede(&kv);
    kv.shared.ledger.notes().broken = 1;
    let mut compactions = 0;
    while kv.compact_once(&AtOnce).unwrap() {
        compactions += 1;
    }
    assert!(compactions > 0);
    kv.checkpoint().unwrap();
    while kv.shared.ledger.merge(&*kv.shared.log, &AtOnce).unwrap() {}
    assert_eq!(kv.stats().broken_accounts, 1, "{:?}", kv.broken_account());
    // Sixty values of 400 bytes and the one that was written again and again, with what is kept beside them.
    let live = kv.stats().live_bytes;
    assert!((61 * 400..61 * 500).contains(&live), "{live}");
}
