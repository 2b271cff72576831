//! Where an opening ended that was closed: so that the next one need not walk over all batches to find it.
//!
//! The file `closed` is a hint, written behind the closing batch and never synced. It counts if that batch stands where it says, of the
//! last opening that there was: behind it nothing was ever written. A hint that is old, torn or rotten costs a walk.
//!
//! Walk: [`leave`] writes it · [`end`] reads it.

use std::path::Path;

use assent_frame::{Head, PAYLOAD_BYTES_MAX, Reader, Writer, lay, parse};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

use crate::layout::KIND_CLOSED;

const NAME: &str = "closed";
/// More than it has.
const BYTES_MAX: usize = 512;

/// Says that the opening of this epoch and salt ended here. Fails silently: then the next one walks.
pub(crate) fn leave(disk: &dyn Disk, folder: &Path, (epoch, salt): (u32, u64), end: u64) {
    let path = folder.join(NAME);
    let open = |access| disk.open(&path, Open { access, direct: false });
    let Ok(file) = open(Access::Write).or_else(|_| open(Access::Create)) else { return };
    let mut fields = Writer::new();
    fields.u32(epoch).u64(salt).u64(end);
    let mut bytes = Vec::new();
    lay(&mut bytes, Head { mark: end, kind: KIND_CLOSED, flags: 0, chain: 0 }, &[fields.as_slice()]);
    _ = write_all_at(&*file, 0, &bytes);
}

/// Where the opening of this epoch and salt says that it ended.
pub(crate) fn end(disk: &dyn Disk, folder: &Path, (epoch, salt): (u32, u64)) -> Option<u64> {
    let file = disk.open(&folder.join(NAME), Open { access: Access::Read, direct: false }).ok()?;
    let mut bytes = vec![0; BYTES_MAX];
    let read = read_exact_at(&*file, 0, &mut bytes).ok()?;
    read_end(bytes.get(..read)?, (epoch, salt))
}

fn read_end(bytes: &[u8], (epoch, salt): (u32, u64)) -> Option<u64> {
    let (frame, _) = parse(bytes, PAYLOAD_BYTES_MAX).ok()??;
    if frame.kind != KIND_CLOSED {
        return None;
    }
    let mut reader = Reader::new(frame.payload);
    let is_its = reader.u32("epoch").ok()? == epoch && reader.u64("salt").ok()? == salt;
    let end = reader.u64("end").ok()?;
    reader.end().ok()?;
    is_its.then_some(end)
}

#[cfg(test)]
mod tests {
    use assent_sim::SimDisk;

    use super::*;

    #[test]
    fn it_is_told_to_its_own_opening_alone_and_never_from_broken_bytes() {
        let (disk, folder) = (SimDisk::new(), Path::new("log"));
        disk.create_dir(folder).unwrap();
        assert_eq!(end(&disk, folder, (3, 7)), None);
        for at in [4096, 8] {
            leave(&disk, folder, (3, 7), at);
            assert_eq!(end(&disk, folder, (3, 7)), Some(at));
        }
        assert_eq!((end(&disk, folder, (4, 7)), end(&disk, folder, (3, 8))), (None, None));
        let file = disk.open(&folder.join(NAME), Open { access: Access::Write, direct: false }).unwrap();
        let mut whole = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        read_exact_at(&*file, 0, &mut whole).unwrap();
        // What fills the frame up to its alignment says nothing.
        let said = assent_frame::HEADER_BYTES + 4 + 8 + 8;
        assert!(whole.len() < said + assent_frame::ALIGN_BYTES);
        for at in 0..said {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            assert_eq!(read_end(&bad, (3, 7)), None, "byte {at}");
            assert_eq!(read_end(&whole[..at], (3, 7)), None, "{at} bytes");
        }
    }
}
