//! Plain functions over arbitrary bytes; they must return. Run for seconds by the tests, for hours by a fuzzer.

use assent_frame::Writer;
use assent_world::Moment;

use crate::record::{self, Checkpoint, Record, read_branches};
use crate::{engine, lay, replay};

/// The bytes as the two files of a state table, half of them each; what is believed is laid again and believed again.
pub fn table(bytes: &[u8]) {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    engine::believe_again(one, other);
}

/// The bytes as the payload of a record whose kind are the first two; what can be read can be laid again.
pub fn records(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first_chunk::<2>() else { return };
    let Ok(Some(record)) = Record::read(u16::from_le_bytes(*kind), payload) else { return };
    let again = match record.clone() {
        Record::Checkpoint(Checkpoint { census, labels, opened, seal: Some(seal), entries }) => {
            let labels: Vec<_> = labels.iter().map(|(client, label)| (*client, label.as_str())).collect();
            let mut again = lay::checkpoint(&census, &labels, &opened, &seal, entries.len());
            for decided in entries {
                let (tx, entry) = replay::entry(decided, Moment(0));
                lay::entry(&mut again, tx, &entry);
            }
            (record::CHECKPOINT, again.into_vec())
        }
        Record::Decided(decided, _) => {
            return assert!(read_branches(&decided.branches).is_ok(), "kept branches can be read");
        }
        Record::Branch(at_ms, tx, note) => (record::BRANCH, lay::branch(at_ms, tx, &note)),
        Record::Client(at_ms, client, label) => (record::CLIENT, lay::client(at_ms, client, &label)),
        Record::Seal(seal) => (record::SEAL, lay::seal(&seal)),
        Record::Operator(word) => (record::OPERATOR, lay::operator(&word)),
        Record::Votes(it) => (record::VOTES, lay::votes(it.at_ms, it.tx, it.outcome, &it.votes)),
        Record::Opened(at_ms, opened) => (record::OPENED, lay::opened(at_ms, &opened)),
        Record::Entry(decided) => {
            let (tx, entry) = replay::entry(decided, Moment(0));
            let mut again = Writer::new();
            lay::entry(&mut again, tx, &entry);
            (record::ENTRY, again.into_vec())
        }
        Record::Checkpoint(_) | Record::Finished(..) | Record::Fenced(_) | Record::Clients(_) => return,
    };
    let read = Record::read(again.0, &again.1);
    assert!(read == Ok(Some(record)), "a record is not what it was");
}
