//! Many at once: writers of a document each, whose commits share syncs; readers of one document, alone and beside its writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_docs::{Document, NodeKey};
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock, wake_soon};

use super::desk::Desk;
use super::history::{NAME, commit, fill, make};
use super::{Stage, now, number, open_and_read};
use crate::BenchError;
use crate::pace::{OpenLoop, Think, Thinker};
use crate::record::Recorder;

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

/// Commits of so many writers, each on a document of its own.
pub(super) fn writers(stage: &Stage<'_>, desk: &Desk) -> Result<(), BenchError> {
    let mut one = None;
    for writers in &stage.given.writers {
        let docs: Vec<(Document, NodeKey)> =
            (0..*writers).map(|number| make(desk, &format!("{writers}-{number}"))).collect::<Result<_, _>>()?;
        let (before, bytes, start) = (desk.journal.counts(), desk.end_bytes(), now());
        let recorder = together(docs, |(doc, field)| {
            let mut recorder = Recorder::default();
            while start.elapsed() < stage.given.window {
                let begun = now();
                commit(&doc, field)?;
                recorder.record("commit", begun.elapsed());
            }
            Ok(recorder)
        })?;
        let (took, after) = (start.elapsed(), desk.journal.counts());
        let count = recorder.samples("commit").map_or(0, |samples| u64::try_from(samples.len()).unwrap_or(u64::MAX));
        let bytes = number(desk.end_bytes() - bytes) / number(count.max(1));
        let plural = if *writers == 1 { "" } else { "s" };
        let mut cell = stage.row("commit", &format!("{writers} writer{plural}, a document each"));
        let rate = number(count) / took.as_secs_f64().max(1e-9);
        let syncs = number(after.syncs - before.syncs) / number(count.max(1));
        fill(&mut cell, &[("per_s", rate), ("bytes_each", bytes), ("syncs_each", syncs)]);
        one = if *writers == 1 { Some(rate) } else { one };
        if let Some(one) = one {
            fill(&mut cell, &[("ratio_to_one", rate / one)]);
        }
        recorder.fill(&mut cell)?;
        stage.sink.put(cell)?;
    }
    Ok(())
}

/// How the writer writes beside the readers.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nobody,
    Paced,
    FlatOut,
}

impl Beside {
    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "alone",
            Self::Paced => "beside a writer of 1,000 commits/s",
            Self::FlatOut => "beside a writer flat out",
        }
    }
}

/// Readers of any revision, and what a writer costs them.
pub(super) fn readers(stage: &Stage<'_>, desk: &Desk, newest: u32) -> Result<(), BenchError> {
    let many = stage.given.readers;
    let (mut one, mut alone) = (None, None);
    // One reader first: what it reads a second says whether many use both cores.
    let runs = [(1, Beside::Nobody), (many, Beside::Nobody), (many, Beside::Paced), (many, Beside::FlatOut)];
    for (readers, beside) in runs {
        let doc = desk.document(NAME)?;
        let field = super::three_steps(&doc.latest())?.0;
        let (ended, start) = (AtomicBool::new(false), now());
        let read = |seed: u32| -> Result<Recorder, BenchError> {
            let (mut recorder, mut dice) = (Recorder::default(), Thinker::new(seed.into()));
            while start.elapsed() < stage.given.window {
                let drawn = dice.draw(Think { median_us: 1 << 31, delta_us: (1 << 32) - 2 }).as_micros();
                let revision = 1 + u32::try_from(drawn % u128::from(newest)).unwrap_or(0);
                let begun = now();
                open_and_read(&doc, revision)?;
                recorder.record("read", begun.elapsed());
            }
            Ok(recorder)
        };
        let (read, written) = std::thread::scope(|scope| {
            let write = || write(&doc, field, beside, start, &ended);
            let writer = (beside != Beside::Nobody).then(|| scope.spawn(write));
            let read = together(0..readers, read);
            ended.store(true, Ordering::Relaxed);
            (read, writer.map(std::thread::ScopedJoinHandle::join))
        });
        let took = start.elapsed();
        let mut recorder = read?;
        let count = recorder.samples("read").map_or(0, |samples| u64::try_from(samples.len()).unwrap_or(u64::MAX));
        let plural = if readers == 1 { "" } else { "s" };
        let mut cell = stage.row("read", &format!("{readers} reader{plural} {}", beside.name()));
        let rate = number(count) / took.as_secs_f64().max(1e-9);
        fill(&mut cell, &[("per_s", rate), ("ratio_to_one", rate / *one.get_or_insert(rate))]);
        if readers == many {
            fill(&mut cell, &[("ratio_to_alone", rate / *alone.get_or_insert(rate))]);
        }
        match written {
            None => {}
            Some(Ok(written)) => {
                let (written, for_a_core) = written?;
                let commits = written.samples("commit").map_or(0, |all| u64::try_from(all.len()).unwrap_or(u64::MAX));
                fill(&mut cell, &[("commits_per_s", number(commits) / took.as_secs_f64().max(1e-9))]);
                let each = for_a_core.map(|waited| waited.as_secs_f64() * 1e6 / number(commits.max(1)));
                each.into_iter().for_each(|each| fill(&mut cell, &[("core_wait_us", each)]));
                recorder.merge(&written);
            }
            Some(Err(_)) => return Err(BenchError::new(Kind::Internal, "the writer panicked")),
        }
        recorder.fill(&mut cell)?;
        stage.sink.put(cell)?;
    }
    Ok(())
}

/// How long this thread has waited for a core while it could have run, as the kernel says.
fn waited_for_a_core() -> Option<Duration> {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    said.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// What the writer's commits took, and how long it has waited for a core.
type Written = (Recorder, Option<Duration>);

fn write(
    doc: &Document,
    field: NodeKey,
    beside: Beside,
    start: std::time::Instant,
    ended: &AtomicBool,
) -> Result<Written, BenchError> {
    // As docs/tuning.md says of a thread that commits beside others which never sleep.
    wake_soon();
    let waited = waited_for_a_core();
    let (mut recorder, mut schedule) = (Recorder::default(), OpenLoop::new(PACED_PER_S, 0, 1));
    while !ended.load(Ordering::Relaxed) {
        let mut begun = now();
        if beside == Beside::Paced {
            let due = start + schedule.next_at();
            RealClock.sleep(due.saturating_duration_since(begun).min(Duration::from_secs(1)));
            // Late since an earlier commit was: it counts from when it was meant to begin.
            begun = due;
        }
        let called = now();
        commit(doc, field)?;
        recorder.record("commit", begun.elapsed());
        recorder.record("commit_call", called.elapsed());
    }
    let waited = waited_for_a_core().zip(waited).map(|(after, before)| after.saturating_sub(before));
    Ok((recorder, waited))
}
