//! Records of any bytes are read or refused.

use assent_journal::Log;

use crate::stand::{LOST, Stand, commit, tx};

#[test]
fn fuzz_records() {
    let config = assent_coordinator::Config { checkpoint_bytes: 1, ..Default::default() };
    let stand = Stand::with(config);
    let session = stand.coordinator.handshake("client").unwrap();
    stand.clock.advance(LOST);
    for counter in 1..4 {
        stand.coordinator.decide(&commit(tx(&session, counter))).unwrap();
    }
    let mut good: Vec<Vec<u8>> = Vec::new();
    let mut keep = || {
        for entry in stand.log.read(stand.log.start()).unwrap() {
            let entry = entry.unwrap();
            good.push([&entry.kind.to_le_bytes()[..], &entry.payload].concat());
        }
    };
    keep();
    stand.coordinator.tick().unwrap();
    keep();
    stand.coordinator.finished(tx(&session, 1));
    stand.coordinator.lost(session.incarnation);
    stand.clock.advance(LOST);
    stand.coordinator.tick().unwrap();
    keep();
    let corpus: Vec<&[u8]> = good.iter().map(Vec::as_slice).collect();
    let runs = assent_sim::fuzz(1, &corpus, assent_coordinator::fuzzing::records);
    assert!(runs > 1_000, "{runs}");
}
