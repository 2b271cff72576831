//! Values are compacted at permitted hours and at no other, in the operator's time.

use std::path::Path;
use std::sync::Arc;

use assent_journal::Log;
use assent_kv::{Config, Durability, Kv};
use assent_runs::AtOnce;
use assent_sim::{SimClock, SimDisk};

use super::compactions::{SEGMENT_BYTES, config, journal};

const MINUTE_MS: u64 = 60_000;

#[test]
fn nothing_is_compacted_outside_of_the_permitted_hours() {
    // From ten in the evening to four, where the clock of the wall is an hour and a half behind UTC: 23:30 to 5:30.
    let settings = Config { compact_hours: (22, 4), utc_offset_minutes: -90, ..config() };
    let disk = SimDisk::new();
    let log: Arc<dyn Log> = journal(&disk, 1, SEGMENT_BYTES + 4096);
    let clock = SimClock::new();
    clock.set_wall_ms(12 * 60 * MINUTE_MS);
    let kv = Kv::open(log, Arc::new(disk), Arc::new(clock.clone()), Path::new("kv"), settings).unwrap();
    let mut compactions = 0;
    let day_ms = 24 * 60 * MINUTE_MS;
    for (day, hour, minute, is_permitted) in [
        (0, 12, 0, false),
        (0, 23, 29, false),
        (0, 23, 30, true),
        (1, 0, 0, true),
        (1, 5, 29, true),
        (1, 5, 30, false),
        (1, 23, 0, false),
        (2, 3, 0, true),
    ] {
        for round in 0..6_u64 {
            for key in 0..30_u64 {
                kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
            }
            kv.checkpoint().unwrap();
        }
        clock.set_wall_ms(day * day_ms + (hour * 60 + minute) * MINUTE_MS);
        // In the background too: merges go on at any hour.
        while kv.work(&AtOnce) {}
        while kv.compact_once(&AtOnce).unwrap() {}
        let now = kv.stats().compactions;
        assert_eq!(now > compactions, is_permitted, "day {day}, {hour}:{minute:02}: {compactions}, {now}");
        compactions = now;
    }
    assert!(kv.stats().runs < 8, "{:?}", kv.stats());
}

#[test]
fn a_clock_that_was_wrong_for_a_moment_moves_no_permitted_hour() {
    let settings = Config { compact_hours: (2, 5), ..config() };
    let disk = SimDisk::new();
    let log: Arc<dyn Log> = journal(&disk, 1, SEGMENT_BYTES + 4096);
    let clock = SimClock::new();
    let kv = Kv::open(log, Arc::new(disk), Arc::new(clock.clone()), Path::new("kv"), settings).unwrap();
    let at = |day: u64, hour: u64| clock.set_wall_ms((day * 24 + hour) * 60 * MINUTE_MS);
    // A month ahead, as somebody writes: nothing that had its time comes back, but the hour is what the clock says again.
    at(31, 13);
    kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    for (hour, is_permitted) in [(1, false), (3, true), (6, false)] {
        at(1, hour);
        for round in 0..6_u64 {
            for key in 0..30_u64 {
                kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
            }
            kv.checkpoint().unwrap();
        }
        let before = kv.stats().compactions;
        while kv.compact_once(&AtOnce).unwrap() {}
        assert_eq!(kv.stats().compactions > before, is_permitted, "at {hour}");
    }
}
