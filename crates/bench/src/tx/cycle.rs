//! One client thread's cycles, each call timed.
//!
//! `open`, `begin`, `commit`, `close` and, transaction by transaction, `total`: their sum; in batch mode that of begin and commit.
//! With a rate, `total` counts from the time that the transaction was meant to begin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};

use super::Rules;
use super::axes::{Case, Mode};
use super::place::{Opened, Setting};
use crate::BenchError;
use crate::pace::{OpenLoop, Think, Thinker};
use crate::record::Recorder;

/// Looks at the flag that ends a cell early are so far apart at most.
const NAP_MAX: Duration = Duration::from_millis(100);

/// One client at work.
pub(super) struct Worker<'c> {
    setting: &'c Setting,
    case: &'c Case,
    rules: &'c Rules,
    /// Any of them ends the cell early.
    stops: [&'c AtomicBool; 2],
    client: u32,
    thinker: Thinker,
    recorder: Recorder,
}

impl<'c> Worker<'c> {
    pub(super) fn new(
        setting: &'c Setting,
        (case, rules): (&'c Case, &'c Rules),
        stops: [&'c AtomicBool; 2],
        (client, round): (u32, u32),
    ) -> Self {
        let thinker = Thinker::new(u64::from(round) << 32 | u64::from(client));
        Self { setting, case, rules, stops, client, thinker, recorder: Recorder::default() }
    }

    /// All cycles; what they took, and when the last one had ended.
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    pub(super) fn run(mut self) -> Result<(Recorder, Instant), BenchError> {
        match (self.case.mode, self.rules.rate) {
            (mode, Some(rate)) => self.open_loop(mode, rate),
            (Mode::OpenClose, None) => self.open_close(),
            (Mode::Batch, None) => self.batch(),
        }?;
        Ok((self.recorder, Instant::now()))
    }

    fn open_close(&mut self) -> Result<(), BenchError> {
        let t1 = self.case.workload.t1;
        for cycle in 0..self.case.cycles {
            self.go_on()?;
            self.nap(t1);
            let (mut opened, mut total) = self.open()?;
            self.nap(t1);
            total += self.transaction(&mut opened, cycle)?;
            self.nap(t1);
            total += self.close(opened)?;
            self.recorder.record("total", total);
            self.last_nap();
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<(), BenchError> {
        let t1 = self.case.workload.t1;
        let (mut opened, _) = self.open()?;
        for cycle in 0..self.case.cycles {
            self.go_on()?;
            self.nap(t1);
            self.nap(t1);
            let total = self.transaction(&mut opened, cycle)?;
            self.recorder.record("total", total);
            self.nap(t1);
            self.last_nap();
        }
        self.close(opened).map(drop)
    }

    fn nap(&mut self, think: Think) {
        if think.median_us > 0 {
            RealClock.sleep(self.thinker.draw(think));
        }
    }

    fn last_nap(&mut self) {
        if self.rules.sleeps == 5 {
            self.nap(self.case.workload.t1);
        }
    }

    /// Transactions begin when the schedule says, whatever the answers do: it takes the place of the sleeps t1.
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    fn open_loop(&mut self, mode: Mode, rate: f64) -> Result<(), BenchError> {
        let mut schedule = OpenLoop::new(rate, self.client, self.case.clients);
        let start = Instant::now();
        let mut held = if mode == Mode::Batch { Some(self.open()?.0) } else { None };
        for cycle in 0..self.case.cycles {
            let due = schedule.next_at();
            while let Some(left) = due.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
                self.go_on()?;
                RealClock.sleep(left.min(NAP_MAX));
            }
            self.go_on()?;
            // What it waits for behind an answer that was late.
            let mut total = start.elapsed().saturating_sub(due);
            if let Some(opened) = &mut held {
                total += self.transaction(opened, cycle)?;
            } else {
                let (mut opened, took) = self.open()?;
                total += took + self.transaction(&mut opened, cycle)?;
                total += self.close(opened)?;
            }
            self.recorder.record("total", total);
        }
        held.map_or(Ok(()), |opened| self.close(opened).map(drop))
    }

    fn go_on(&self) -> Result<(), BenchError> {
        if self.stops.iter().any(|stop| stop.load(Ordering::Relaxed)) {
            return Err(BenchError::new(Kind::Closed, "it was stopped before its end"));
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(Opened, Duration), BenchError> {
        let setting = self.setting;
        self.measure("open", || Ok(setting.open()))
    }

    fn close(&mut self, opened: Opened) -> Result<Duration, BenchError> {
        let ((), took) = self.measure("close", || {
            drop(opened);
            Ok(())
        })?;
        Ok(took)
    }

    /// Begin, the work, commit or roll back; what begin and the end took.
    fn transaction(&mut self, opened: &mut Opened, cycle: u32) -> Result<Duration, BenchError> {
        let number = u64::from(self.client) + u64::from(cycle);
        let (client, [one, two]) = opened.next(number)?;
        let ((tx, one, two), begin) = self.measure("begin", || {
            let mut tx = client.begin().map_err(|error| BenchError::new(error.kind, error))?;
            let (one, two) = (tx.enlist(one), tx.enlist(two));
            Ok((tx, one, two))
        })?;
        let key = u64::from(self.client) << 32 | u64::from(cycle);
        for branch in [&one, &two] {
            branch.work().map_err(|error| BenchError::new(error.kind(), error))?.work(key)?;
        }
        self.nap(self.case.workload.t2);
        let commits = self.rules.commit;
        let call = if commits { "commit" } else { "rollback" };
        let ((), end) = self.measure(call, || {
            let ended = if commits { tx.commit().map(drop) } else { tx.rollback().map(drop) };
            ended.map_err(|error| BenchError::new(error.kind, error))
        })?;
        Ok(begin + end)
    }

    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    fn measure<T>(
        &mut self,
        call: &'static str,
        doing: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<(T, Duration), BenchError> {
        let start = Instant::now();
        let done = doing()?;
        let took = start.elapsed();
        self.recorder.record(call, took);
        if let Some(trace) = self.setting.trace() {
            trace.note(call.to_owned(), Some(took));
        }
        Ok((done, took))
    }
}
