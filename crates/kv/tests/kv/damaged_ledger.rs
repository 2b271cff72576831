//! A file of the ledger that cannot be read: what needs it fails, and all others go on.

use std::path::PathBuf;

use assent_kind::Kind;
use assent_kv::Durability;
use assent_runs::AtOnce;
use assent_sim::SimDisk;
use assent_world::{Access, Disk, Open};

use super::compactions::{House, house};
use super::faults::{files, flip, opened};

/// A merge that needs it fails each time. Others go on, and so do compactions of values that it says nothing of: else files of the ledger that
/// nobody merges would become ever more, and writers wait for them.
#[test]
fn writers_go_on_for_ever_beside_a_damaged_file_of_the_ledger() {
    let house = house(&SimDisk::new(), 1);
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for number in 0..600_u64 {
        house.kv.put(0, &key(number), &[1; 60], Durability::Durable).unwrap();
        if number % 60 == 0 {
            house.kv.checkpoint().unwrap();
        }
    }
    while house.kv.work(&AtOnce) {}
    let House { disk, log, kv } = house;
    drop(kv);
    log.close().unwrap();
    drop(log);
    disk.kill();
    let runs = files(&disk).into_iter().filter(|path| path.extension().is_some_and(|it| it == "run"));
    let bytes = |path: &PathBuf| disk.open(path, Open { access: Access::Read, direct: false }).unwrap().size().unwrap();
    assert!(flip(&disk, &runs.max_by_key(bytes).unwrap(), 512));
    let kv = opened(&disk).unwrap();
    let (mut lost, mut said, mut on_disk) = (0, None, Vec::new());
    for round in 0..100_u64 {
        for number in 0..30 {
            let value = round.to_le_bytes().repeat(60);
            kv.put(0, &key(10_000 + 7 * round % 90 + number), &value, Durability::Durable).unwrap();
        }
        kv.checkpoint().unwrap();
        for _ in 0..30 {
            kv.work(&AtOnce);
        }
        on_disk.push(kv.stats().value_bytes_on_disk);
    }
    for number in 0..600 {
        match kv.get(0, &key(number)) {
            Ok(found) => assert_eq!(found, Some(vec![1; 60])),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                lost += 1;
                said = Some(error.to_string());
            }
        }
    }
    let (facts, debt) = kv.ledger_facts();
    assert!(debt.level0_runs < 20, "{debt:?}");
    assert_eq!(facts.runs_unreadable, 1);
    let stats = kv.stats();
    assert!(lost > 0 && lost < 600 && stats.merges_failed > 0, "{lost} lost: {said:?}; {stats:?}");
    // Of what files at the first level supersede more lies there from merge to merge.
    let (least, most) = (on_disk.iter().rev().take(10).min(), on_disk.iter().max());
    assert!(stats.compactions > 0 && least < Some(&470_000) && most < Some(&600_000), "{on_disk:?}, {stats:?}");
}
