//! Many threads at once, on a real disk, with snapshots between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assent_assets::{Answer, AssetId, Config, Engine, Logics, Op};
use assent_journal::Journal;
use assent_world::{RealClock, RealDice, RealDisk};

use super::{add, batch, create};

#[test]
fn transfers_of_many_threads_lose_nothing_and_no_reader_sees_a_half() {
    const ASSETS: u64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
        let config = assent_journal::Config { log_size: 5 * 4096, ..Default::default() };
        let log = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.path().join("log"), config);
        let (log, folder) = (log.unwrap().0, folder.path().join("assets"));
        Engine::open(log, disk, clock, &folder, Config::default(), Logics::default()).unwrap()
    };
    let (engine, _) = open();
    let creates: Vec<Op> = (0..ASSETS).map(|id| create(id, 100)).collect();
    engine.execute(&batch(None, &creates)).unwrap();
    let gets: Vec<Op> = (0..ASSETS).map(|id| Op::Get { id: AssetId(id) }).collect();
    let stop = AtomicBool::new(false);
    let sum = |engine: &Engine| match engine.execute(&batch(None, &gets)).unwrap() {
        Answer::Done(results) => results.assets.iter().map(|asset| asset.value).sum::<i64>(),
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let engine = &engine;
                scope.spawn(move || {
                    for step in 0..250 {
                        let (from, to) = ((thread + step) % ASSETS, (3 * thread + 5 * step + 1) % ASSETS);
                        let answer = engine.execute(&batch(None, &[add(from, -1), add(to, 1)])).unwrap();
                        assert!(matches!(answer, Answer::Done(_)));
                    }
                })
            })
            .collect();
        let (engine, stop) = (&engine, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(sum(engine), 800);
            }
        });
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                engine.snapshot().unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let before = engine.stats();
    assert_eq!((sum(&engine), before.sequence.0), (800, 1_001));
    drop(engine);
    let (engine, recovery) = open();
    assert!(recovery.snapshot.0 > 0, "{recovery:?}");
    assert_eq!((engine.stats().hash, engine.stats().sequence), (before.hash, before.sequence));
}
