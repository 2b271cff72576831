//! Accounts that are not believed any more: what a compaction finds counts, with what the ledger's files will still let go.

use std::path::Path;
use std::sync::Arc;

use assent_journal::{Config as Settings, Journal, Log};
use assent_runs::AtOnce;
use assent_sim::{SimClock, SimDice, SimDisk};

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

#[test]
fn what_will_still_be_booked_out_is_counted_where_accounts_are_not_believed() {
    let kv = store();
    let write = |round: u64| {
        for key in 0..60_u64 {
            // Half of them live on.
            if round == 0 || key % 2 == 1 {
                kv.put(0, &key.to_be_bytes(), &[1; 400], DURABLE).unwrap();
            }
        }
    };
    write(0);
    while kv.shared.log.end().0 < 4 * 4 * 4096 {
        kv.put(1, b"", &[2; 400], DURABLE).unwrap();
    }
    for _ in 0..3 {
        kv.put(1, b"", &[3; 400], DURABLE).unwrap();
        kv.checkpoint().unwrap();
    }
    // Superseded durably, and written out beside the old rows, but not merged with them.
    write(1);
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
