//! The last snapshot of a member's state, one file: where it stands in the log, and the bytes of the state.
//!
//! ```text
//!   snapshot: frame, kind 1: | version 1 | base | bytes of the state 8 | · frames, kind 2, chain 0, 1, 2 ...: the state's bytes
//! ```
//! Walk: [`Snapshot::write`] replaces the file as a whole · [`Snapshot::open`] reads it, every checksum, before it is believed ·
//! [`Snapshot::piece`] for a standby. It holds confirmed commands only, so nobody ever goes back behind it.
//! Deliberately absent: what the state's bytes mean, and states that do not fit memory twice.

use std::path::Path;

use assent_frame::{Head, PAYLOAD_BYTES_MAX, Reader, Writer};
use assent_membership::Sequence;
use assent_world::Disk;

use crate::barrier;
use crate::error::{ReplicaError, damaged};
use crate::message::{Base, PIECE_BYTES_MAX, Piece, lay_base, read_base};
use crate::whole;

const NAME: &str = "snapshot";
const KIND_BASE: u16 = 1;
const KIND_STATE: u16 = 2;
const VERSION: u8 = 1;

/// A state and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry that is in it.
    pub base: Base,
    /// The state's bytes.
    pub state: Vec<u8>,
}

impl Snapshot {
    /// The folder's snapshot; the empty one before the first.
    ///
    /// # Errors
    /// `Damaged`, or as the disk says.
    pub fn open(disk: &dyn Disk, folder: &Path) -> Result<Self, ReplicaError> {
        match whole::read(disk, folder, NAME)? {
            Some(bytes) => {
                parse(&bytes).ok_or_else(|| damaged(&folder.join(NAME), "a checksum or a length of it is wrong"))
            }
            None => Ok(Self::default()),
        }
    }

    /// Makes this the folder's snapshot, durably.
    ///
    /// # Errors
    /// As the disk says: then it is the old one or this one.
    pub fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<(), ReplicaError> {
        let mut out = Vec::new();
        let mut fields = Writer::new();
        fields.u8(VERSION);
        lay_base(&mut fields, &self.base);
        fields.u64(u64::try_from(self.state.len()).unwrap_or(u64::MAX));
        assent_frame::lay(&mut out, Head { kind: KIND_BASE, ..Head::default() }, &[fields.as_slice()]);
        for (chain, bytes) in (0..).zip(self.state.chunks(PAYLOAD_BYTES_MAX)) {
            assent_frame::lay(&mut out, Head { kind: KIND_STATE, chain, ..Head::default() }, &[bytes]);
        }
        whole::replace(disk, folder, NAME, &out, [barrier::SNAPSHOT, barrier::SNAPSHOT_ENTRY])
    }

    /// A piece for a standby: of the snapshot of that place from that byte on, if this is the one, else of this one's beginning.
    #[must_use]
    pub fn piece(&self, at: Sequence, offset: u64, bytes_max: u64) -> Piece {
        let offset = if at == self.base.end.sequence { offset } else { 0 };
        let rest = usize::try_from(offset).ok().and_then(|offset| self.state.get(offset..));
        let (offset, rest) = rest.map_or((0, self.state.as_slice()), |rest| (offset, rest));
        let length = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX).min(rest.len());
        let total_bytes = u64::try_from(self.state.len()).unwrap_or(u64::MAX);
        let bytes = rest.get(..length).unwrap_or_default().to_vec();
        Piece { base: self.base.clone(), total_bytes, offset, bytes }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.base.end.sequence > Sequence(0)
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Snapshot> {
    let Ok(Some((frame, mut used))) = assent_frame::parse(bytes, PAYLOAD_BYTES_MAX) else { return None };
    let mut fields = Reader::new(frame.payload);
    if frame.kind != KIND_BASE || fields.u8("version").ok()? != VERSION {
        return None;
    }
    let base = read_base(&mut fields).ok()?;
    let total = usize::try_from(fields.u64("bytes").ok()?).ok()?;
    fields.end().ok()?;
    let mut state = Vec::new();
    for chain in 0.. {
        if state.len() >= total {
            break;
        }
        let Ok(Some((frame, laid))) = assent_frame::parse(bytes.get(used..)?, PAYLOAD_BYTES_MAX) else { return None };
        if frame.kind != KIND_STATE || frame.chain != chain || frame.payload.is_empty() {
            return None;
        }
        state.extend_from_slice(frame.payload);
        used += laid;
    }
    (state.len() == total && used == bytes.len()).then_some(Snapshot { base, state })
}

#[cfg(test)]
mod tests {
    use assent_ids::Epoch;
    use assent_membership::History;
    use assent_sim::SimDisk;

    use super::*;
    use crate::entry::{Chain, Mark};

    fn base(end: u64) -> Base {
        let mut history = History::default();
        history.grew(Epoch(2), Sequence(end));
        Base { history, end: Mark { sequence: Sequence(end), chain: Chain(end * 7) } }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written_and_every_damage_is_seen() {
        let disk = SimDisk::new();
        let folder = Path::new("");
        assert_eq!(Snapshot::open(&disk, folder), Ok(Snapshot::default()));
        for bytes in [0, 1, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1] {
            let snapshot = Snapshot { base: base(9), state: vec![3; bytes] };
            snapshot.write(&disk, folder).unwrap();
            assert_eq!(Snapshot::open(&disk, folder), Ok(snapshot));
        }
        let small = Snapshot { base: base(9), state: vec![3; 100] };
        small.write(&disk, folder).unwrap();
        let bytes = whole::read(&disk, folder, NAME).unwrap().unwrap();
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn pieces_put_together_are_the_state_and_another_place_begins_anew() {
        let snapshot = Snapshot { base: base(9), state: (0..100).collect() };
        let mut bytes = Vec::new();
        while bytes.len() < 100 {
            let piece = snapshot.piece(Sequence(9), bytes.len() as u64, 30);
            assert_eq!((piece.offset, piece.total_bytes), (bytes.len() as u64, 100));
            bytes.extend(piece.bytes);
        }
        assert_eq!(bytes, snapshot.state);
        assert_eq!(snapshot.piece(Sequence(8), 60, 30).offset, 0);
        assert_eq!(snapshot.piece(Sequence(9), 101, 30).offset, 0, "beyond the end there is nothing");
    }
}
