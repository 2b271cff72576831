//! A run file: what it is called, how it is laid out, and what is known of it without reading it.
//!
//! ```text
//!   data block ... | index block ... | filter | facts | top block | footer 64
//! ```
//! Every piece but the footer is sealed (`seal`). An index block has a key for each data block: greater than all before that
//! block, and not greater than any in it; its value is the block's place. The top block is the same for index blocks.
//!
//! Walk: [`RunWriter`](crate::run_writer::RunWriter) lays · [`Run`](crate::run_reader::Run) reads · [`RunFacts`] stands in
//! the manifest, and in the file again for whoever has lost that.
//! Deliberately absent: I/O.

use std::path::{Path, PathBuf};

use assent_frame::{Malformed, Reader, Writer, crc32c};

use crate::seal::Place;

/// The version of the layout.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"ASNTRUN\n";
/// No run is longer: a memtable has 64 GiB at most. Sums over all runs that a manifest can name stay numbers.
const RUN_BYTES_MAX: u64 = 1 << 40;

/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 64;

/// The number of a run; no other run of the map ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

/// How a file ends of a map that is being built.
pub(crate) const PART: &str = ".part";

impl RunId {
    /// Where the file is.
    pub(crate) fn path(self, folder: &Path) -> PathBuf {
        folder.join(format!("{:016x}.run", self.0))
    }

    /// Where it is while a map is being built: no manifest names that, and what a process that died has left goes with it.
    pub(crate) fn part(self, folder: &Path) -> PathBuf {
        folder.join(format!("{:016x}{PART}", self.0))
    }

    /// The run that has this name, if it is one's name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(".run").filter(|digits| digits.len() == 16)?;
        let id = u64::from_str_radix(digits, 16).ok().map(RunId)?;
        (format!("{:016x}", id.0) == digits).then_some(id)
    }
}

/// What is known of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunFacts {
    /// Its number.
    pub(crate) id: RunId,
    /// The length of its file.
    pub(crate) bytes: u64,
    /// Its first key.
    pub(crate) first: Vec<u8>,
    /// Its last key.
    pub(crate) last: Vec<u8>,
    /// The smallest `seq` of an entry.
    pub(crate) seq_min: u64,
    /// The greatest one.
    pub(crate) seq_max: u64,
    /// How many entries it has, tombstones included.
    pub(crate) entries: u64,
    /// How many of them are tombstones.
    pub(crate) tombstones: u64,
    /// Bytes of all values.
    pub(crate) value_bytes: u64,
    /// What ranges erased up to this `seq` was left out when it was written.
    pub(crate) knows: u64,
}

impl RunFacts {
    /// Lays all of it.
    pub(crate) fn lay(&self, writer: &mut Writer) {
        writer.u64(self.id.0).u64(self.bytes).u64(self.seq_min).u64(self.seq_max).u64(self.entries);
        writer.u64(self.tombstones).u64(self.value_bytes).u64(self.knows).bytes(&self.first).bytes(&self.last);
    }

    /// What [`RunFacts::lay`] laid.
    ///
    /// # Errors
    /// [`Malformed`] with the field.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let facts = RunFacts {
            id: RunId(reader.u64("run id")?),
            bytes: reader.u64("run bytes")?,
            seq_min: reader.u64("run seq_min")?,
            seq_max: reader.u64("run seq_max")?,
            entries: reader.u64("run entries")?,
            tombstones: reader.u64("run tombstones")?,
            value_bytes: reader.u64("run value_bytes")?,
            knows: reader.u64("run knows")?,
            first: reader.bytes("run first")?.to_vec(),
            last: reader.bytes("run last")?.to_vec(),
        };
        let is_large = [facts.bytes, facts.entries, facts.value_bytes].iter().any(|count| *count > RUN_BYTES_MAX);
        if is_large || facts.first > facts.last || facts.tombstones > facts.entries || facts.seq_min > facts.seq_max {
            return Err(Malformed { field: "run facts" });
        }
        Ok(facts)
    }

    /// Whether a key lies between its first and its last one.
    pub(crate) fn spans(&self, key: &[u8]) -> bool {
        self.first.as_slice() <= key && key <= self.last.as_slice()
    }
}

/// The end of a run file: where its other pieces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) top: Place,
    pub(crate) filter: Place,
    pub(crate) facts: Place,
}

impl Footer {
    /// Its bytes.
    pub(crate) fn lay(&self, id: RunId) -> Vec<u8> {
        let Footer { top, filter, facts } = self;
        let mut writer = Writer::new();
        writer.u64(top.offset).u64(filter.offset).u64(facts.offset);
        writer.u32(top.length).u32(filter.length).u32(facts.length).u32(VERSION).u64(id.0).u32(0);
        let sum = crc32c(writer.as_slice());
        writer.u32(sum).raw(MAGIC);
        writer.into_vec()
    }

    /// What [`Footer::lay`] laid for this run.
    ///
    /// # Errors
    /// One sentence: what is wrong.
    pub(crate) fn read(bytes: &[u8; FOOTER_BYTES], id: RunId) -> Result<Self, String> {
        let (fields, closing) = bytes.split_at(FOOTER_BYTES - 12);
        let (sum, magic) = closing.split_at(4);
        if magic != MAGIC {
            return Err("the file does not end as a run does".to_owned());
        }
        if sum != crc32c(fields).to_le_bytes() {
            return Err("the footer's checksum does not match".to_owned());
        }
        Self::fields(fields, id).map_err(|malformed| malformed.to_string())?
    }

    fn fields(fields: &[u8], id: RunId) -> Result<Result<Self, String>, Malformed> {
        let mut reader = Reader::new(fields);
        let offsets = [reader.u64("top offset")?, reader.u64("filter offset")?, reader.u64("facts offset")?];
        let lengths = [reader.u32("top length")?, reader.u32("filter length")?, reader.u32("facts length")?];
        let (version, named) = (reader.u32("version")?, reader.u64("id")?);
        if version != VERSION {
            return Ok(Err(format!("a run of version {version}; this program reads version {VERSION}")));
        }
        if named != id.0 {
            return Ok(Err(format!("the file is run {named:016x}")));
        }
        let [top, filter, facts] = offsets;
        let [top_length, filter_length, facts_length] = lengths;
        Ok(Ok(Footer {
            top: Place { offset: top, length: top_length },
            filter: Place { offset: filter, length: filter_length },
            facts: Place { offset: facts, length: facts_length },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_number_and_back() {
        let path = RunId(0xabc).path(Path::new("folder"));
        assert_eq!(path, Path::new("folder/0000000000000abc.run"));
        assert_eq!(RunId::of("0000000000000abc.run"), Some(RunId(0xabc)));
        for wrong in
            ["", ".run", "0000000000000ABC.run", "000000000000abc.run", "0000000000000abc", "+000000000000abc.run"]
        {
            assert_eq!(RunId::of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn facts_survive_and_impossible_ones_are_refused() {
        let facts = RunFacts {
            id: RunId(3),
            bytes: 8192,
            first: b"a".to_vec(),
            last: b"b".to_vec(),
            seq_min: 4,
            seq_max: 9,
            entries: 10,
            tombstones: 2,
            value_bytes: 77,
            knows: 5,
        };
        let read = |facts: &RunFacts| {
            let mut writer = Writer::new();
            facts.lay(&mut writer);
            RunFacts::read(&mut Reader::new(writer.as_slice()))
        };
        assert_eq!(read(&facts), Ok(facts.clone()));
        assert!(
            facts.spans(b"a") && facts.spans(b"ab") && facts.spans(b"b") && !facts.spans(b"") && !facts.spans(b"b0")
        );
        assert!(read(&RunFacts { first: b"c".to_vec(), ..facts.clone() }).is_err());
        assert!(read(&RunFacts { tombstones: 11, ..facts.clone() }).is_err());
        assert!(read(&RunFacts { seq_min: 10, ..facts.clone() }).is_err());
        assert!(read(&RunFacts { bytes: RUN_BYTES_MAX, ..facts.clone() }).is_ok());
        assert!(read(&RunFacts { bytes: RUN_BYTES_MAX + 1, ..facts }).is_err());
    }

    #[test]
    fn a_footer_is_of_its_run_and_version_and_whole() {
        let place = |offset| Place { offset, length: 40 };
        let footer = Footer { top: place(300), filter: place(100), facts: place(200) };
        let bytes: [u8; FOOTER_BYTES] = footer.lay(RunId(5)).try_into().unwrap();
        assert_eq!(Footer::read(&bytes, RunId(5)), Ok(footer));
        assert!(Footer::read(&bytes, RunId(6)).unwrap_err().contains("0000000000000005"));
        for bit in 0..FOOTER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::read(&bad, RunId(5)).is_err(), "bit {bit}");
        }
        let mut later = bytes;
        later[36] = 2;
        let sum = crc32c(&later[..52]);
        later[52..56].copy_from_slice(&sum.to_le_bytes());
        assert!(Footer::read(&later, RunId(5)).unwrap_err().contains("version 2"));
    }
}
