//! Many at once: writers of a document each, whose commits share syncs; readers of one document, alone and beside its writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_docs::{Document, NodeKey};
use assent_kind::Kind;
use assent_world::{BLOCK_BYTES, Clock as _, RealClock, wake_soon};

use super::desk::Desk;
use super::history::{NAME, commit, fill, make};
use super::{Stage, now, number, open_and_read};
use crate::BenchError;
use crate::floor::{Track, Way};
use crate::pace::{OpenLoop, Think, Thinker};
use crate::record::Recorder;
use crate::stats::median;

/// Of the writer that is not flat out.
const PACED_PER_S: f64 = 1_000.0;

/// Runs one closure in each of some threads until all have ended; what they recorded.
fn together<T: Send>(
    parts: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> Result<Recorder, BenchError> + Sync,
) -> Result<Recorder, BenchError> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        let mut all = Recorder::default();
        let mut first = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(recorder)) => all.merge(&recorder),
                Ok(Err(error)) => _ = first.get_or_insert(error),
                Err(_) => _ = first.get_or_insert(BenchError::new(Kind::Internal, "a thread panicked")),
            }
        }
        first.map_or(Ok(all), Err)
    })
}

/// Slices of each row of writers. They take turns, so that a ratio is one of neighbours: the machine's own speed changes within a run.
const ROUNDS: u32 = 5;
/// And of each row of readers, every other round backwards: what is asked of them is a tenth, and that speed changes within seconds.
const READERS_ROUNDS: u32 = 25;

/// What the slices of a row came to.
#[derive(Default)]
struct Sliced {
    recorder: Recorder,
    took: Duration,
    /// A second, of each.
    rates: Vec<f64>,
}

impl Sliced {
    fn add(&mut self, call: &str, recorder: &Recorder, took: Duration) {
        self.rates.push(number(count(recorder, call)) / took.as_secs_f64().max(1e-9));
        self.took += took;
        self.recorder.merge(recorder);
    }

    fn rate(&self, call: &str) -> f64 {
        number(count(&self.recorder, call)) / self.took.as_secs_f64().max(1e-9)
    }

    /// The median of the slices by those of the same rounds.
    fn ratio_to(&self, other: &Self) -> f64 {
        median(&self.rates.iter().zip(&other.rates).map(|(own, other)| own / other.max(1e-9)).collect::<Vec<_>>())
    }
}

fn count(recorder: &Recorder, call: &str) -> u64 {
    recorder.samples(call).map_or(0, |samples| u64::try_from(samples.len()).unwrap_or(u64::MAX))
}

/// Writers of a row, each with a document of its own.
struct Writers {
    docs: Vec<(Document, NodeKey)>,
    sliced: Sliced,
    bytes: u64,
    syncs: u64,
}

/// Commits of so many writers, each on a document of its own.
pub(super) fn writers(stage: &Stage<'_>, desk: &Desk) -> Result<(), BenchError> {
    let row = |writers: &u32| {
        let docs = (0..*writers).map(|number| make(desk, &format!("{writers}-{number}"))).collect::<Result<_, _>>()?;
        Ok(Writers { docs, sliced: Sliced::default(), bytes: 0, syncs: 0 })
    };
    let mut rows = stage.given.writers.iter().map(row).collect::<Result<Vec<_>, BenchError>>()?;
    let window = stage.given.window / ROUNDS;
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let (before, bytes, start) = (desk.journal.counts(), desk.end_bytes(), now());
            let recorder = together(&row.docs, |(doc, field)| {
                let mut recorder = Recorder::default();
                while start.elapsed() < window {
                    let begun = now();
                    commit(doc, *field)?;
                    recorder.record("commit", begun.elapsed());
                }
                Ok(recorder)
            })?;
            row.sliced.add("commit", &recorder, start.elapsed());
            row.bytes += desk.end_bytes() - bytes;
            row.syncs += desk.journal.counts().syncs - before.syncs;
        }
    }
    let one = rows.iter().find(|row| row.docs.len() == 1);
    for row in &rows {
        let (writers, commits) = (row.docs.len(), number(count(&row.sliced.recorder, "commit").max(1)));
        let plural = if writers == 1 { "" } else { "s" };
        let mut cell = stage.row("commit", &format!("{writers} writer{plural}, a document each"));
        let each = [("bytes_each", number(row.bytes) / commits), ("syncs_each", number(row.syncs) / commits)];
        fill(&mut cell, &[("per_s", row.sliced.rate("commit"))]);
        fill(&mut cell, &each);
        if let Some(one) = one {
            fill(&mut cell, &[("ratio_to_one", row.sliced.ratio_to(&one.sliced))]);
        }
        row.sliced.recorder.fill(&mut cell)?;
        stage.sink.put(cell)?;
    }
    Ok(())
}

/// Who writes beside the readers.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nobody,
    Paced,
    /// As a bulk load: its thread is one like the others.
    FlatOut,
    /// And asks to be woken soon.
    FlatOutSoon,
    /// Nothing but a durable write of a block, as often: what the disk costs the readers, whoever writes.
    FloorPaced,
    FloorFlatOutSoon,
}

impl Beside {
    const ALL: [Self; 6] =
        [Self::Nobody, Self::Paced, Self::FlatOut, Self::FlatOutSoon, Self::FloorPaced, Self::FloorFlatOutSoon];

    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "alone",
            Self::Paced => "beside a writer of 1,000 commits/s",
            Self::FlatOut => "beside a writer flat out",
            Self::FlatOutSoon => "beside a writer flat out that is woken soon",
            Self::FloorPaced => "beside 1,000 bare durable writes/s",
            Self::FloorFlatOutSoon => "beside bare durable writes flat out, woken soon",
        }
    }

    const fn is_floor(self) -> bool {
        matches!(self, Self::FloorPaced | Self::FloorFlatOutSoon)
    }

    const fn is_paced(self) -> bool {
        matches!(self, Self::Paced | Self::FloorPaced)
    }

    /// What it does, as it is recorded, and how that is told.
    const fn call(self) -> (&'static str, &'static str) {
        if self.is_floor() { ("write", "writes_per_s") } else { ("commit", "commits_per_s") }
    }
}

/// A row of readers.
struct Readers {
    readers: u32,
    beside: Beside,
    sliced: Sliced,
    /// What the one beside them wrote, within its own time: its last write ends behind their last read.
    written: Sliced,
    for_a_core: Option<Duration>,
    /// Of the floor.
    track: Option<Track>,
}

/// Readers of any revision, and what a writer costs them.
pub(super) fn readers(stage: &Stage<'_>, desk: &Desk, newest: u32) -> Result<(), BenchError> {
    let many = stage.given.readers;
    // One reader first: what it reads a second says whether many use both cores.
    let rows: Vec<_> = [(1, Beside::Nobody)].into_iter().chain(Beside::ALL.map(|beside| (many, beside))).collect();
    let row = |(readers, beside): (u32, Beside)| {
        // Before anything is measured: its file is zeroed.
        let track = beside.is_floor().then(|| Track::new(stage.folder, Way::DirectDataSync)).transpose()?;
        let (sliced, written) = Default::default();
        Ok(Readers { readers, beside, sliced, written, for_a_core: None, track })
    };
    let mut rows = rows.into_iter().map(row).collect::<Result<Vec<_>, BenchError>>()?;
    for round in 0..READERS_ROUNDS {
        rows.iter_mut().try_for_each(|row| slice(stage, desk, newest, row, round))?;
        // There and back: no row is always behind the same one. They stand in their order again at the end.
        rows.reverse();
    }
    if !READERS_ROUNDS.is_multiple_of(2) {
        rows.reverse();
    }
    let [one, alone, ..] = rows.as_slice() else { return Ok(()) };
    for row in &rows {
        let plural = if row.readers == 1 { "" } else { "s" };
        let mut cell = stage.row("read", &format!("{} reader{plural} {}", row.readers, row.beside.name()));
        let sliced = &row.sliced;
        fill(&mut cell, &[("per_s", sliced.rate("read")), ("ratio_to_one", sliced.ratio_to(&one.sliced))]);
        if row.readers == many {
            fill(&mut cell, &[("ratio_to_alone", sliced.ratio_to(&alone.sliced))]);
        }
        if row.beside != Beside::Nobody {
            let (call, rate) = row.beside.call();
            fill(&mut cell, &[(rate, row.written.rate(call))]);
            let writes = number(count(&row.written.recorder, call).max(1));
            let each = row.for_a_core.map(|waited| waited.as_secs_f64() * 1e6 / writes);
            each.into_iter().for_each(|each| fill(&mut cell, &[("core_wait_us", each)]));
            row.written.recorder.fill(&mut cell)?;
        }
        sliced.recorder.fill(&mut cell)?;
        stage.sink.put(cell)?;
    }
    Ok(())
}

/// One slice of a row.
fn slice(stage: &Stage<'_>, desk: &Desk, newest: u32, row: &mut Readers, round: u32) -> Result<(), BenchError> {
    let doc = desk.document(NAME)?;
    let field = super::three_steps(&doc.latest())?.0;
    let (ended, start, window) = (AtomicBool::new(false), now(), stage.given.window / READERS_ROUNDS);
    let read = |seed: u32| -> Result<Recorder, BenchError> {
        let (mut recorder, mut dice) = (Recorder::default(), Thinker::new(seed.into()));
        while start.elapsed() < window {
            let drawn = dice.draw(Think { median_us: 1 << 31, delta_us: (1 << 32) - 2 }).as_micros();
            let revision = 1 + u32::try_from(drawn % u128::from(newest)).unwrap_or(0);
            let begun = now();
            open_and_read(&doc, revision)?;
            recorder.record("read", begun.elapsed());
        }
        Ok(recorder)
    };
    let (beside, track) = (row.beside, row.track.as_mut());
    let (read, took, written) = std::thread::scope(|scope| {
        let write = || match track {
            Some(track) => write(beside, start, &ended, || track.write(BLOCK_BYTES)),
            None => write(beside, start, &ended, || commit(&doc, field).map(drop)),
        };
        let writer = (beside != Beside::Nobody).then(|| scope.spawn(write));
        let read = together((0..row.readers).map(|reader| round * row.readers + reader), read);
        let took = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        (read, took, writer.map(std::thread::ScopedJoinHandle::join))
    });
    row.sliced.add("read", &read?, took);
    match written {
        None => {}
        Some(Ok(written)) => {
            let (written, took, for_a_core) = written?;
            row.for_a_core = for_a_core.map(|waited| waited + row.for_a_core.unwrap_or_default());
            row.written.add(beside.call().0, &written, took);
        }
        Some(Err(_)) => return Err(BenchError::new(Kind::Internal, "the writer panicked")),
    }
    Ok(())
}

/// How long this thread has waited for a core while it could have run, as the kernel says.
fn waited_for_a_core() -> Option<Duration> {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    said.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// What the writer's commits took, each and all, and how long it has waited for a core.
type Written = (Recorder, Duration, Option<Duration>);

fn write(
    beside: Beside,
    start: std::time::Instant,
    ended: &AtomicBool,
    mut one: impl FnMut() -> Result<(), BenchError>,
) -> Result<Written, BenchError> {
    if beside != Beside::FlatOut {
        // As docs/tuning.md says of a thread that commits beside others which never sleep.
        wake_soon();
    }
    let waited = waited_for_a_core();
    let (mut recorder, mut schedule) = (Recorder::default(), OpenLoop::new(PACED_PER_S, 0, 1));
    loop {
        let mut begun = now();
        if beside.is_paced() {
            let due = start + schedule.next_at();
            RealClock.sleep(due.saturating_duration_since(begun).min(Duration::from_secs(1)));
            // Late since an earlier commit was: it counts from when it was meant to begin.
            begun = due;
        }
        let called = now();
        one()?;
        recorder.record(beside.call().0, begun.elapsed());
        if !beside.is_floor() {
            recorder.record("commit_call", called.elapsed());
        }
        if ended.load(Ordering::Relaxed) {
            break;
        }
    }
    let waited = waited_for_a_core().zip(waited).map(|(after, before)| after.saturating_sub(before));
    Ok((recorder, start.elapsed(), waited))
}
