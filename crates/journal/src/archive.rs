//! A journal opened to look at, archived segments too: no lock, nothing changed. For `assent journal inspect`, `check` and
//! offline tools.
//!
//! It shows what the next open would find. While another process writes, that is the state of one moment at best.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_ids::{Epoch, Lsn};
use assent_world::{Clock, Disk};

use crate::journal::{self, Journal};
use crate::listing;
use crate::reader::Source;
use crate::recovery::Recovery;
use crate::segment::Files;
use crate::walk::Walk;
use crate::{Entries, Entry, Fetched, JournalError, Log, Part, Span, State, Ticket};

/// A journal that can only be read.
#[derive(Debug)]
pub struct Archive {
    source: Source,
    start: u64,
    end: u64,
    synced: u64,
    epoch: Epoch,
    folder: PathBuf,
}

/// One batch as it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchView {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// Where in the log.
    pub lsn: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// The opening that wrote it.
    pub epoch: Epoch,
    /// What was durable when it was written.
    pub synced: Lsn,
    /// How many frames it has; none: the log was idle, or closed.
    pub frames: u32,
    /// Bytes left free before it.
    pub skipped: u32,
    /// A clean close.
    pub close: bool,
}

impl Journal {
    /// Opens a folder to read: takes no lock, changes nothing. Beside the archive, what an open would find.
    ///
    /// # Errors
    /// `Corrupt`, naming file and offset; `Disk` as the disk says.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        clock: &dyn Clock,
        folder: &Path,
    ) -> Result<(Archive, Recovery), JournalError> {
        let files = Files::new(disk);
        let (found, epochs) = journal::examine(&files, folder, false)?;
        let last = epochs.last();
        let epoch = Epoch(last.map_or(0, |(epoch, _)| epoch));
        let start = found.segments.first().map_or(0, |segment| segment.first());
        let recovery = journal::report(&found, epoch, last.map(|(_, opening)| opening), clock, start, 0);
        let (end, synced) = (found.end, found.synced);
        let archived = listing::list_archived(&*files.disk, folder, start, false)?;
        let segments = Arc::new([archived, found.segments.to_vec()].concat());
        let source = Source { files, segments, epochs: Arc::new(epochs) };
        Ok((Archive { source, start, end, synced, epoch, folder: folder.to_path_buf() }, recovery))
    }
}

impl Archive {
    /// All batches, in order, the archived ones first.
    pub fn batches(&self) -> impl Iterator<Item = Result<BatchView, JournalError>> {
        let Source { files, segments, epochs } = self.source.clone();
        let mut walk = Walk::new(files, segments, epochs, self.source.oldest());
        let (end, mut ended) = (self.end, false);
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let next = walk.next();
            ended = !matches!(next, Ok(Some(_)));
            if matches!(next, Ok(None)) && walk.at() < end {
                return Some(Err(walk.broken()));
            }
            Some(next.transpose()?.map(|head| {
                let segment = walk.segment();
                BatchView {
                    file: segment.map(|segment| segment.path().to_path_buf()).unwrap_or_default(),
                    offset: segment.map_or(0, |segment| segment.offset(head.lsn)),
                    lsn: Lsn(head.lsn),
                    end: Lsn(head.end()),
                    epoch: Epoch(head.epoch),
                    synced: Lsn(head.synced),
                    frames: head.entries,
                    skipped: head.skipped,
                    close: head.close,
                }
            }))
        })
    }

    fn closed(&self) -> JournalError {
        let folder = self.folder.display().to_string();
        JournalError::Closed { folder, reason: "it was opened to read only".to_owned() }
    }
}

impl Log for Archive {
    fn append(&self, _: u16, _: &[&[u8]]) -> Result<Ticket, JournalError> {
        Err(self.closed())
    }

    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.wait_durable(ticket)
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        if ticket.end.0 <= self.synced { Ok(()) } else { Err(self.closed()) }
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        if self.synced == self.end { Ok(Lsn(self.end)) } else { Err(self.closed()) }
    }

    fn durable(&self) -> Lsn {
        Lsn(self.synced)
    }

    fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    fn start(&self) -> Lsn {
        Lsn(self.start)
    }

    fn oldest(&self) -> Lsn {
        Lsn(self.source.oldest())
    }

    fn read(&self, from: Lsn) -> Result<Entries<'_>, JournalError> {
        if from < self.oldest() {
            return Err(JournalError::NotFound { lsn: from });
        }
        Ok(Box::new(self.source.clone().entries(from.0, self.end)))
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        self.source.entry(lsn.0, self.end)
    }

    fn read_at_sized(&self, lsn: Lsn, payload_bytes: usize) -> Result<Fetched, JournalError> {
        self.source.fetch(lsn.0, self.end, payload_bytes)
    }

    fn read_part(&self, lsn: Lsn, part: Range<usize>) -> Result<Part, JournalError> {
        self.source.part(lsn.0, self.end, part, false)
    }

    fn read_part_direct(&self, lsn: Lsn, part: Range<usize>) -> Result<Part, JournalError> {
        self.source.part(lsn.0, self.end, part, true)
    }

    fn begun(&self, from: Lsn, to: Lsn, by: Lsn) -> Result<Entries<'_>, JournalError> {
        if from < self.oldest() {
            return Err(JournalError::NotFound { lsn: from });
        }
        Ok(Box::new(self.source.clone().begun(from.0, to.0, by.0.min(self.end))))
    }

    fn divided(&self, at: Lsn) -> Result<Option<Lsn>, JournalError> {
        self.source.divided(at.0)
    }

    /// All that is archived, whoever may remove it.
    fn sealed(&self) -> Vec<Span> {
        self.source.spans()
    }

    fn release(&self, _: Lsn) -> Result<(), JournalError> {
        Err(self.closed())
    }

    fn trim(&self, _: Lsn) -> Result<(), JournalError> {
        Err(self.closed())
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn state(&self) -> State {
        State::Closed
    }
}
