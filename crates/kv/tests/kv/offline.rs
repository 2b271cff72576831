//! A stopped store is looked at without changing a byte.

use std::path::Path;
use std::sync::Arc;

use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv};
use assent_sim::SimClock;

use super::branches::{ended, prepare};
use super::scripted_log::ScriptedLog;
use super::{Desk, all, fresh, rows, xid};

#[test]
fn contents_and_prepared_branches_are_read_and_nothing_is_written() {
    for checkpoint in [false, true] {
        let desk = fresh();
        desk.kv.put(0, b"k", b"v", Durability::Durable).unwrap();
        ended(&desk.kv, &xid(1), b"held", b"");
        prepare(&desk.kv, &xid(1)).unwrap();
        if checkpoint {
            desk.kv.checkpoint().unwrap();
        }
        let Desk { disk, log, kv, .. } = desk;
        drop((log, kv));
        let log = Arc::new(ScriptedLog::open(&disk, false).unwrap());
        let before = disk.hash();
        let kv = Kv::open_read_only(
            log,
            Arc::new(disk.clone()),
            Arc::new(SimClock::new()),
            Path::new("kv"),
            Config::default(),
        )
        .unwrap();
        assert_eq!((all(&kv, 0), kv.prepared()), (rows(&[("k", "v")]), vec![xid(1)]));
        assert_eq!(kv.stats().replayed, if checkpoint { 0 } else { 2 });
        let refused = [
            kv.put(0, b"k", b"w", Durability::Durable).map(|_| ()),
            kv.start(&xid(2)),
            kv.commit_begin(&xid(1)).map(|_| ()),
            kv.checkpoint(),
        ];
        refused.into_iter().for_each(|answer| assert_eq!(answer.unwrap_err().kind(), Kind::Denied));
        kv.tick();
        drop(kv);
        assert_eq!(disk.hash(), before);
    }
}

#[test]
fn a_folder_without_checkpoints_need_not_exist() {
    let desk = fresh();
    let log = Arc::clone(&desk.log);
    let kv = Kv::open_read_only(
        log,
        Arc::new(desk.disk),
        Arc::new(SimClock::new()),
        Path::new("nowhere"),
        Config::default(),
    )
    .unwrap();
    assert_eq!(all(&kv, 0), rows(&[]));
}
