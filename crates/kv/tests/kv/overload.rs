//! More is written than the disk takes: writers wait a little each, memory stays below its limit, and nobody stalls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_kv::{Config, Durability, Kv, Op};
use assent_runs::AtOnce;
use assent_sim::{SimClock, SimDisk};
use assent_world::Clock;

use super::scripted_log::ScriptedLog;

const MEMORY: u64 = 256 << 10;
const WRITERS: u64 = 16;
/// What a put costs besides waiting.
const PUT: Duration = Duration::from_micros(200);

/// What of the memory goes to the disk: a quarter of what such a row counts is where its key stands.
const fn laid(memory: u64) -> u64 {
    memory * 3 / 4
}

struct Run {
    puts: u64,
    longest: Duration,
    memory: u64,
    /// Bytes that went into memory.
    written: u64,
    checkpoints: u64,
}

/// Writers that never rest, each on its own; a disk that takes so many bytes of the ledger's memory in a second. All in virtual
/// time, one after the other: the same each time.
fn overload(disk_bytes_per_second: u64, time: Duration) -> Run {
    let (disk, clock) = (SimDisk::new(), SimClock::new());
    let log = Arc::new(ScriptedLog::open(&disk, false).unwrap());
    let config = Config { memory_bytes: MEMORY, checkpoint_bytes: 1 << 40, ..Config::default() };
    let kv = Kv::open(log, Arc::new(disk), Arc::new(clock.clone()), Path::new("kv"), config).unwrap();
    let mut writers: BinaryHeap<_> = (0..WRITERS).map(|writer| Reverse((clock.now(), writer))).collect();
    let mut run = Run { puts: 0, longest: Duration::ZERO, memory: 0, written: 0, checkpoints: 0 };
    let (mut flushed_at, mut before) = (clock.now(), 0);
    while clock.now().since(Default::default()) < time {
        let Reverse((at, writer)) = writers.pop().unwrap();
        clock.advance(at.since(clock.now()));
        let key = (run.puts * 7919).to_be_bytes();
        let ops = [Op::put(0, &key, b"value")];
        kv.wait(kv.batch_begin(&ops, Durability::Buffered).unwrap()).unwrap();
        run.puts += 1;
        let held = kv.stats().memory_bytes;
        run.written += laid(held.saturating_sub(before));
        run.memory = run.memory.max(held);
        // The flush that began when the memory was due ends when the disk has taken it.
        before = held;
        if held < MEMORY {
            flushed_at = clock.now();
        } else if clock.now().since(flushed_at).as_micros()
            >= u128::from(laid(held)) * 1_000_000 / u128::from(disk_bytes_per_second)
        {
            kv.tick();
            before = kv.stats().memory_bytes;
            flushed_at = clock.now();
        }
        let delay = kv.delay(&ops);
        run.longest = run.longest.max(delay);
        writers.push(Reverse((clock.now().after(PUT + delay), writer)));
    }
    run.checkpoints = kv.stats().checkpoints;
    assert_eq!(kv.stats().checkpoints_failed, 0);
    run
}

#[test]
fn sustained_overload_is_a_delay_and_never_a_stall() {
    let seconds = 3;
    for disk in [1 << 20, 2 << 20, 4 << 20] {
        let run = overload(disk, Duration::from_secs(seconds));
        let limit = 4 * MEMORY;
        println!(
            "disk {disk} bytes/s: {} puts/s, {} bytes/s, longest delay {:?}, most memory {} of {limit}, {} flushes",
            run.puts / seconds,
            run.written / seconds,
            run.longest,
            run.memory,
            run.checkpoints
        );
        assert!(run.memory < limit, "at {disk}: {} bytes in memory, {limit} are the limit", run.memory);
        assert!(
            run.longest > Duration::ZERO && run.longest < Duration::from_millis(10),
            "at {disk}: {:?}",
            run.longest
        );
        // What the disk takes is what is written, but for what memory holds at the end.
        let taken = run.written - laid(run.memory);
        assert!(taken <= disk * seconds && run.written >= disk * seconds * 8 / 10, "at {disk}: {} bytes", run.written);
        assert!(run.checkpoints > 1);
    }
}

#[test]
fn writers_wait_for_the_room_of_dead_values_while_a_compaction_can_give_it_back() {
    let house = super::compactions::house(&SimDisk::new(), 1);
    let ops = [Op::put(0, b"one more", b"value")];
    for round in 0..60_u64 {
        for key in 0..10_u64 {
            house.kv.put(0, &key.to_be_bytes(), &round.to_le_bytes().repeat(60), Durability::Durable).unwrap();
        }
        if round % 10 == 9 {
            house.kv.checkpoint().unwrap();
        }
    }
    assert_eq!(house.kv.delay(&ops), Duration::ZERO, "nobody compacts, so a delay would buy nothing");
    // More than is due at once.
    let value = [7; 64 << 10];
    let mut delays = Vec::new();
    while house.kv.work(&AtOnce) {
        delays.push(house.kv.delay(&[Op::put(0, b"one more", &value)]));
    }
    assert!(delays.iter().any(|delay| *delay > Duration::ZERO), "{delays:?}");
    assert_eq!(house.kv.delay(&ops), Duration::ZERO, "{:?}", house.kv.stats());
    assert!(house.kv.stats().compactions > 0);
}
