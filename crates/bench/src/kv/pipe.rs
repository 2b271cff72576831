//! How samples come home from the process that runs a cell: it keeps none, so that its memory is the store's.
//!
//! ```text
//!   | 1 | bytes u32 | call u8 | nanoseconds u64 .. |   any number of these
//!   | 2 | bytes u32 | outcome, JSON                |   the last one
//! ```

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_kind::Kind;
use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::record::Recorder;
use crate::report::Figures;

const SAMPLES: u8 = 1;
const OUTCOME: u8 = 2;
/// The longest frame that is believed.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A GET, also that of an UPDATE.
    Get,
    /// A PUT.
    Put,
    /// A HEAD.
    Head,
    /// HEADs and the GET of one read.
    Read,
    /// GETs or HEADs, and PUTs.
    Update,
    /// A range of an index.
    Query,
    /// PUTs of several keys at once.
    Batch,
    /// Of a store that was closed.
    Open,
}

/// All of them; the number of a call is its place.
pub const CALLS: [(Call, &str); 8] = [
    (Call::Get, "get"),
    (Call::Put, "put"),
    (Call::Head, "head"),
    (Call::Read, "read"),
    (Call::Update, "update"),
    (Call::Query, "query"),
    (Call::Batch, "batch"),
    (Call::Open, "open"),
];

impl Call {
    /// Its number.
    #[must_use]
    pub fn number(self) -> usize {
        CALLS.iter().position(|(call, _)| *call == self).unwrap_or(0)
    }
}

/// Takes samples as they come, from any thread.
pub trait Spill: Sync {
    /// So many nanoseconds each.
    ///
    /// # Errors
    /// What the way home says.
    fn take(&self, call: Call, nanos: &[u64]) -> Result<(), BenchError>;
}

/// Keeps them here.
impl Spill for Mutex<Recorder> {
    fn take(&self, call: Call, nanos: &[u64]) -> Result<(), BenchError> {
        let mut recorder = self.lock().unwrap_or_else(PoisonError::into_inner);
        let name = CALLS.get(call.number()).map_or("", |(_, name)| name);
        nanos.iter().for_each(|nanos| recorder.record(name, Duration::from_nanos(*nanos)));
        Ok(())
    }
}

/// What a cell came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// All but the latencies.
    pub figures: Figures,
    /// Over the seconds since its start.
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Why a cell failed, as it travels.
#[derive(Debug, Serialize, Deserialize)]
enum Outcome {
    Done(Done),
    Failed { kind: String, message: String },
}

/// The way home.
#[derive(Debug)]
pub struct Pipe<W>(Mutex<W>);

impl<W: Write + Send> Pipe<W> {
    /// Over an output.
    pub const fn new(output: W) -> Self {
        Self(Mutex::new(output))
    }

    fn frame(&self, tag: u8, payload: &[&[u8]]) -> Result<(), BenchError> {
        let lost = |error: std::io::Error| BenchError::new(Kind::Unavailable, format!("the way to the race: {error}"));
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        let bytes = u32::try_from(bytes).map_err(|_| BenchError::new(Kind::Internal, "a frame over 4 GiB"))?;
        let mut frame = vec![tag];
        frame.extend_from_slice(&bytes.to_le_bytes());
        payload.iter().for_each(|part| frame.extend_from_slice(part));
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(&frame).and_then(|()| output.flush()).map_err(lost)
    }

    /// The last word.
    ///
    /// # Errors
    /// What the output says.
    pub fn end(&self, outcome: Result<Done, BenchError>) -> Result<(), BenchError> {
        let outcome = match outcome {
            Ok(done) => Outcome::Done(done),
            Err(error) => Outcome::Failed { kind: error.kind.name().to_owned(), message: error.message },
        };
        let text = serde_json::to_vec(&outcome).map_err(|error| BenchError::new(Kind::Internal, error))?;
        self.frame(OUTCOME, &[&text])
    }
}

impl<W: Write + Send> Spill for Pipe<W> {
    fn take(&self, call: Call, nanos: &[u64]) -> Result<(), BenchError> {
        let bytes: Vec<u8> = nanos.iter().flat_map(|nanos| nanos.to_le_bytes()).collect();
        let call = u8::try_from(call.number()).unwrap_or(0);
        self.frame(SAMPLES, &[&[call], &bytes])
    }
}

/// Reads what a cell's process says until its last word; `None` where it ended without one.
///
/// # Errors
/// [`Kind::Corrupt`] for what no cell writes; what the cell said why it failed.
pub fn read(input: &mut impl Read, recorder: &mut Recorder) -> Result<Option<Done>, BenchError> {
    let wrong = |what: &str| BenchError::new(Kind::Corrupt, format!("the cell's process wrote {what}"));
    loop {
        let mut head = [0_u8; 5];
        if input.read_exact(&mut head).is_err() {
            return Ok(None);
        }
        let [tag, bytes @ ..] = head;
        let bytes = usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
        if bytes > FRAME_BYTES_MAX {
            return Err(wrong("a frame that is too long"));
        }
        let mut payload = vec![0; bytes];
        if input.read_exact(&mut payload).is_err() {
            return Ok(None);
        }
        match (tag, payload.split_first()) {
            (SAMPLES, Some((call, nanos))) => {
                let (_, name) = CALLS.get(usize::from(*call)).ok_or_else(|| wrong("samples of no call"))?;
                for nanos in nanos.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok()) {
                    recorder.record(name, Duration::from_nanos(u64::from_le_bytes(nanos)));
                }
            }
            (OUTCOME, _) => {
                return match serde_json::from_slice(&payload).map_err(|_| wrong("no outcome"))? {
                    Outcome::Done(done) => Ok(Some(done)),
                    Outcome::Failed { kind, message } => {
                        let kind =
                            Kind::ALL.iter().copied().find(|known| known.name() == kind).unwrap_or(Kind::Internal);
                        Err(BenchError { kind, message })
                    }
                };
            }
            _ => return Err(wrong("no frame")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_the_last_word_come_home() {
        let mut bytes = Vec::new();
        let done = Done { figures: [("keys".to_owned(), 3.0)].into(), series: BTreeMap::new() };
        {
            let pipe = Pipe::new(&mut bytes);
            pipe.take(Call::Get, &[1_000, 2_000]).unwrap();
            pipe.take(Call::Query, &[u64::MAX]).unwrap();
            pipe.take(Call::Get, &[3_000]).unwrap();
            pipe.end(Ok(done.clone())).unwrap();
        }
        let mut recorder = Recorder::default();
        assert_eq!(read(&mut bytes.as_slice(), &mut recorder).unwrap(), Some(done));
        assert_eq!(recorder.samples("get").unwrap().nanos(), [1_000, 2_000, 3_000]);
        assert_eq!(recorder.samples("query").unwrap().nanos(), [u64::MAX]);
        for cut in 0..bytes.len() {
            let cut = read(&mut &bytes[..cut], &mut Recorder::default()).unwrap();
            assert_eq!(cut, None, "who was killed said no last word");
        }
    }

    #[test]
    fn a_failed_cell_says_why_and_nonsense_is_refused() {
        let mut bytes = Vec::new();
        Pipe::new(&mut bytes).end(Err(BenchError::new(Kind::Corrupt, "wrong value"))).unwrap();
        let error = read(&mut bytes.as_slice(), &mut Recorder::default()).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (Kind::Corrupt, "wrong value".to_owned()));
        for nonsense in [&[9, 0, 0, 0, 0][..], &[1, 1, 0, 0, 0, 99], &[2, 1, 0, 0, 0, b'x'], &[1, 255, 255, 255, 255]] {
            assert!(read(&mut &*nonsense, &mut Recorder::default()).is_err(), "{nonsense:?}");
        }
    }
}
