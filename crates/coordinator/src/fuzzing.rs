//! Plain functions over arbitrary bytes; they must return. Run for seconds by the tests, for hours by a fuzzer.

use assent_frame::Writer;

use crate::record::{Record, lay_census, lay_entry, read_branches};

/// The bytes as the payload of a record whose kind are the first two; what can be read can be laid again.
pub fn records(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first_chunk::<2>() else { return };
    let Ok(Some(record)) = Record::read(u16::from_le_bytes(*kind), payload) else { return };
    let mut again = Writer::new();
    match &record {
        Record::Checkpoint(census, entries) => {
            lay_census(&mut again, census);
            again.u32(u32::try_from(entries.len()).unwrap_or(u32::MAX));
            for one in entries {
                lay_entry(&mut again, one.tx, one.outcome, one.by, one.acknowledged, &one.branches);
            }
            let read = Record::read(u16::from_le_bytes(*kind), again.as_slice());
            assert!(read == Ok(Some(record)), "a checkpoint is not what it was");
        }
        Record::Decided(decided, _) => {
            assert!(read_branches(&decided.branches).is_ok(), "kept branches can be read");
        }
        Record::Finished(_) | Record::Fenced(_) | Record::Clients(_) => {}
    }
}
