//! The objects of a file, one after the other, read by a thread of their own: who waits for the next must not keep a Ctrl-C from being heard.
//!
//! Walk: [`open`] the file · [`rows`] hands each row over: an object, or nothing where a line is empty · the first that is wrong, or cannot be
//! read, is the last.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use csv::{ByteRecord, ReaderBuilder};

use super::line::{self, Line};
use super::options::Format;
use super::sheet::Header;
use crate::failure::Failure;

/// Rows that are read before they are wanted. Few: one may have a whole value.
const ROWS_AHEAD: usize = 16;
/// The longest row: a quote that is never closed must not take all memory. Base64 of the longest key, value and metadata fits, and a text
/// of that length, each of whose bytes is written as six.
const ROW_BYTES_MAX: u64 = 2 << 30;

/// What a row says, and how long it is.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) bytes: u64,
    /// None if it is empty.
    pub(super) line: Option<Line>,
}

pub(super) type Input = Box<dyn Read + Send>;

/// The file, or stdin, and how long it is.
#[expect(clippy::disallowed_methods, reason = "a front door reads the file that it is given")]
pub(super) fn open(path: &Path) -> Result<(Input, Option<u64>), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = std::fs::File::open(path).map_err(|error| Failure::io("read", path.display(), &error))?;
    let bytes = file.metadata().ok().map(|found| found.len());
    Ok((Box::new(file), bytes))
}

/// Each row, or why there are no more.
pub(super) fn rows(input: Input, format: Format) -> Result<Receiver<Result<Row, Failure>>, Failure> {
    let (sender, rows) = std::sync::mpsc::sync_channel(ROWS_AHEAD);
    let read = move || {
        let read = match format {
            Format::Json => of_lines(input, &sender),
            Format::Csv => of_sheet(input, &sender),
        };
        if let Err(failure) = read {
            // Nobody listens any more: it was stopped.
            _ = sender.send(Err(failure));
        }
    };
    let started = std::thread::Builder::new().name("rows".to_owned()).spawn(read);
    started.map(|_| rows).map_err(|error| Failure::io("start", "a thread", &error))
}

type Rows = SyncSender<Result<Row, Failure>>;

fn of_lines(input: Input, rows: &Rows) -> Result<(), Failure> {
    let (bounded, left) = Bounded::new(input);
    let mut input = BufReader::with_capacity(1 << 20, bounded);
    for number in 1_u64.. {
        let mut text = String::new();
        left.store(ROW_BYTES_MAX, Ordering::Relaxed);
        let read = input.read_line(&mut text).map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                Failure::invalid(format!("line {number}: it is no UTF-8; bytes that are none go as base64"))
            } else {
                unreadable(&format!("line {number}"), &error)
            }
        })?;
        if read == 0 {
            return Ok(());
        }
        let trimmed = text.trim();
        let parsed = (!trimmed.is_empty()).then(|| line::parse(trimmed)).transpose();
        let line = parsed.map_err(|what| Failure::invalid(format!("line {number}: {what}")))?;
        if rows.send(Ok(Row { bytes: text.len() as u64, line })).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn of_sheet(input: Input, rows: &Rows) -> Result<(), Failure> {
    let (bounded, left) = Bounded::new(input);
    let mut sheet = ReaderBuilder::new().has_headers(false).buffer_capacity(1 << 20).from_reader(bounded);
    let (mut header, mut row, mut before) = (None, ByteRecord::new(), 0);
    for number in 0_u64.. {
        left.store(ROW_BYTES_MAX, Ordering::Relaxed);
        let named = if number == 0 { "the header".to_owned() } else { format!("row {number}") };
        let is_there = sheet.read_byte_record(&mut row).map_err(|error| match error.kind() {
            csv::ErrorKind::Io(error) => unreadable(&named, error),
            csv::ErrorKind::UnequalLengths { expected_len, len, pos } => {
                let at = pos.as_ref().map_or(0, csv::Position::line);
                let message = format!("{named} (line {at}): it has {len} cells, and the header has {expected_len}");
                Failure::invalid(message)
            }
            _ => Failure::invalid(format!("{named}: {error}")),
        })?;
        if !is_there {
            return if number == 0 { Err(Failure::invalid("it has no header")) } else { Ok(()) };
        }
        let at = row.position().map_or(0, csv::Position::line);
        let wrong = |what| Failure::invalid(format!("{named} (line {at}): {what}"));
        let bytes = sheet.position().byte() - std::mem::replace(&mut before, sheet.position().byte());
        match &header {
            None => header = Some(Header::read(&row).map_err(wrong)?),
            Some(header) => {
                let line = Some(header.line(&row).map_err(wrong)?);
                if rows.send(Ok(Row { bytes, line })).is_err() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::FileTooLarge {
        let message =
            format!("{what}: it has more than {ROW_BYTES_MAX} bytes, the longest row; is a quote not closed?");
        return Failure::invalid(message);
    }
    Failure::io("read", what, error)
}

/// Reads on while there is something left to read of a row.
struct Bounded {
    from: Input,
    left: Arc<AtomicU64>,
}

impl Bounded {
    fn new(from: Input) -> (Self, Arc<AtomicU64>) {
        let left = Arc::new(AtomicU64::new(ROW_BYTES_MAX));
        (Self { from, left: Arc::clone(&left) }, left)
    }
}

impl Read for Bounded {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(out)?;
        let bytes = u64::try_from(read).unwrap_or(u64::MAX);
        let left = self.left.load(Ordering::Relaxed);
        if bytes > left {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.left.store(left - bytes, Ordering::Relaxed);
        Ok(read)
    }
}
