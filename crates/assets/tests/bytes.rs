//! What an asset takes: a million of them, by the table's own count and by what the operating system gave the process.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "helpers of tests may")]

use std::path::Path;

use assent_assets::{AssetId, Command, Limits, Logics, Machine, Op};
use assent_frame::Writer;
use assent_membership::Sequence;
use assent_world::{Access, Disk, Open, RealDisk};

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let file = RealDisk.open(Path::new("/proc/self/statm"), Open { access: Access::Read, direct: false }).unwrap();
    let mut text = [0; 200];
    let read = file.read_at(0, &mut text).unwrap();
    let text = std::str::from_utf8(&text[..read]).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn an_asset_takes_less_than_forty_bytes_and_a_snapshot_of_a_million_shares_them() {
    const ASSETS: u64 = 1_000_000;
    let mut machine = Machine::new(Limits::default(), Logics::default());
    let before = resident_bytes();
    for first in (0..ASSETS).step_by(1_000) {
        let ops: Vec<Op> = (first..first + 1_000).map(|id| Op::Create { id: AssetId(id), value: 1 }).collect();
        let mut command = Writer::new();
        Command::lay_batch(&mut command, None, &ops);
        let next = Sequence(machine.sequence().0 + 1);
        machine.apply(next, 0, command.as_slice(), &mut Vec::new()).unwrap();
    }
    let resident = resident_bytes() - before;
    let counted = u64::try_from(machine.memory_bytes()).unwrap();
    println!(
        "counted {}, resident {} bytes of an asset",
        counted as f64 / ASSETS as f64,
        resident as f64 / ASSETS as f64
    );
    assert_eq!(machine.assets(), 1_000_000);
    assert!(counted < 34 * ASSETS, "{counted}");
    assert!(resident < 40 * ASSETS, "{resident}");
    let view = machine.view();
    let with_view = resident_bytes() - before;
    assert!(with_view < resident + (1 << 20), "a view of a million assets took {} bytes", with_view - resident);
    assert_eq!(view.assets(), machine.assets());
}
