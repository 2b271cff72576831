//! Power cuts everywhere: records a workload, cuts it after (and in the middle of) every operation, and checks what
//! each cut could leave; then cuts the check's own recovery, and so on.
//!
//! Walk: [`Explore::run`] takes seed after seed · a run is recorded, every [`Cut`] of it landed in many ways · what was
//! seen before is skipped, what is new is checked, some of it with its recovery recorded and cut again · one disk a
//! run lives on with another workload, if the subject has further lives.
//! The same seed explores the same states; only what other seeds had shown before is left out.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use assent_world::{Barrier, Clock, Moment, RealClock};

use crate::content::{long, mix};
use crate::dice::Rng;
use crate::disk::SimDisk;
use crate::recording::Cut;
use crate::report::{Blow, Failure, Report};
use crate::state::State;
use crate::subject::{Subject, Told, Witness};
use crate::survive::{Choice, Flight, Stale};

/// Runs that show nothing new before an exploration calls itself complete.
const RUNS_WITHOUT_NEWS_MAX: u64 = 32;
/// A run with many cuts looks at fewer states of each, so that the budget is not spent on one seed.
const STATES_PER_RUN: u64 = 4_000;
const STATES_PER_CUT_MIN: u64 = 8;
/// States of one recovery that are checked; their own recoveries may be cut again.
const NESTED_STATES_MAX: usize = 8;

/// States that are enough by default, and seconds.
const STATES: u64 = 50_000;
const SECONDS: u64 = 20;

/// How far to explore.
#[derive(Clone, Debug)]
pub struct Explore {
    /// The seed of the first workload; each further one has the next number.
    pub seed: u64,
    /// Distinct states after which it is enough.
    pub states_max: u64,
    /// Time after which it is enough; a barrier that is ignored has as much as its states take, 50,000 where there is no most.
    pub time_max: Duration,
    /// States of one cut: all if there are no more, else at most so many by chance.
    pub states_per_cut_max: u64,
    /// How often a recovery of a recovery is cut.
    pub levels_max: u32,
    /// What places may hold that were never written.
    pub stale: Stale,
}

impl Default for Explore {
    /// 50,000 states or 20 seconds. `ASSENT_GATE_SECONDS` and `ASSENT_GATE_SEED` say otherwise; with more seconds the
    /// states are not counted.
    fn default() -> Self {
        Self::within(SECONDS)
    }
}

#[expect(clippy::panic, reason = "a gate with another seed or budget than was asked for would say something else")]
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name}={text:?}; write a whole number")))
}

/// A barrier was ignored and nothing went red: it proves nothing, or the workload never needs it.
#[derive(Clone)]
pub struct StayedGreen {
    /// The barrier.
    pub barrier: Barrier,
    /// True if the workload or a recovery passed it at all.
    pub passed: bool,
    /// What was explored.
    pub report: Report,
}

impl fmt::Display for StayedGreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.passed { "was passed, ignored and not missed" } else { "was never passed" };
        write!(f, "barrier {:?} {why}: {}", self.barrier.label(), self.report)
    }
}

impl fmt::Debug for StayedGreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StayedGreen {}

impl Explore {
    /// As [`Explore::default`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// 50,000 states or so many seconds, where the environment says nothing else, as for [`Explore::default`].
    #[must_use]
    pub fn within(seconds: u64) -> Self {
        let asked = from_environment("ASSENT_GATE_SECONDS");
        Explore {
            seed: from_environment("ASSENT_GATE_SEED").unwrap_or(1),
            states_max: if asked.is_some_and(|asked| asked > SECONDS) { u64::MAX } else { STATES },
            time_max: Duration::from_secs(asked.unwrap_or(seconds)),
            states_per_cut_max: 48,
            levels_max: 3,
            stale: Stale::ALL,
        }
    }

    /// Explores until the states or the time are used up, or nothing new appears.
    ///
    /// # Errors
    /// The first red state.
    pub fn run<S: Subject>(&self, subject: &S) -> Result<Report, Box<Failure>> {
        Explorer::new(self, subject, None).run()
    }

    /// Explores with one barrier ignored; good is what goes red. It gets its states, or as many as a short run is for if nobody has
    /// said how many, whatever time they take: a machine that is busy shows no less than one that is not.
    ///
    /// # Errors
    /// It stayed green.
    pub fn ignoring<S: Subject>(&self, subject: &S, barrier: Barrier) -> Result<Box<Failure>, Box<StayedGreen>> {
        let mut explorer = Explorer::new(self, subject, Some(barrier));
        match explorer.run() {
            Err(failure) => Ok(failure),
            Ok(report) => Err(Box::new(StayedGreen { barrier, passed: explorer.passed, report })),
        }
    }
}

struct Explorer<'a, S: Subject> {
    explore: &'a Explore,
    subject: &'a S,
    ignored: Option<Barrier>,
    passed: bool,
    seen: HashSet<u64>,
    began: Moment,
    report: Report,
}

/// The way to a state: choices are told in words only when it is red.
#[derive(Clone, Copy)]
struct Way<'w> {
    before: Option<&'w Way<'w>>,
    seed: u64,
    during: During,
    cut: &'w Cut,
    number: usize,
    choice: &'w Choice,
}

#[derive(Clone, Copy)]
enum During {
    Life(u32),
    Check(u32),
}

type Red = Box<Failure>;

impl<'a, S: Subject> Explorer<'a, S> {
    fn new(explore: &'a Explore, subject: &'a S, ignored: Option<Barrier>) -> Self {
        let report = Report { seed: explore.seed, ..Report::default() };
        let seen = HashSet::new();
        Explorer { explore, subject, ignored, passed: false, seen, began: RealClock.now(), report }
    }

    fn run(&mut self) -> Result<Report, Red> {
        let mut without_news = 0;
        let mut seed = self.explore.seed;
        while !self.is_enough() && without_news < RUNS_WITHOUT_NEWS_MAX {
            let before = self.report.states;
            let disk = self.disk(State::new());
            let mut rng = Rng::new(mix(seed, 4));
            self.life(&disk, seed, Told::nothing(), 1, None, &mut rng)?;
            without_news = if self.report.states > before { 0 } else { without_news + 1 };
            seed = seed.wrapping_add(1);
        }
        self.report.took = RealClock.now().since(self.began);
        Ok(self.report.clone())
    }

    fn is_enough(&self) -> bool {
        let Explore { states_max, time_max, .. } = *self.explore;
        // Without a number of its own it gets what a short run is for.
        let least = if states_max == u64::MAX { STATES } else { states_max };
        let may_be_late = self.ignored.is_none() || self.report.states >= least;
        self.report.states >= states_max || may_be_late && RealClock.now().since(self.began) >= time_max
    }

    fn disk(&self, state: State) -> SimDisk {
        SimDisk::of(state, self.explore.stale, self.ignored)
    }

    /// Records a workload and checks what its cuts leave.
    fn life(
        &mut self,
        disk: &SimDisk,
        seed: u64,
        told: Told<S::Fact>,
        life: u32,
        before: Option<&Way<'_>>,
        rng: &mut Rng,
    ) -> Result<(), Red> {
        self.report.runs += 1;
        let (acknowledged, attempted) = told.counts();
        disk.record(acknowledged, attempted);
        let witness = Witness::of(disk.clone(), told);
        let done = guarded(|| self.subject.workload(disk, mix(seed, u64::from(life)), &witness));
        self.note_barriers(disk);
        let told = witness.finish();
        if let Err(message) = done {
            let message = format!("the workload of life {life}: {message}");
            return Err(self.red(message, seed, before, &told));
        }
        let cuts = disk.recorded();
        let all_max = self.explore.states_per_cut_max;
        let samples = (STATES_PER_RUN / long(cuts.len()).max(1)).max(STATES_PER_CUT_MIN).min(all_max);
        for (number, cut) in cuts.iter().enumerate() {
            let told = told.until(cut.acknowledged, cut.attempted);
            let flight = Flight::of(&cut.state, self.explore.stale);
            self.report.cuts += 1;
            for choice in &flight.choices(all_max, samples, rng) {
                if self.is_enough() {
                    return Ok(());
                }
                let way = Way { before, seed, during: During::Life(life), cut, number, choice };
                self.state(flight.land(choice), &told, &way, 0)?;
            }
        }
        if life < self.subject.lives()
            && let number = rng.index(cuts.len())
            && let Some(cut) = cuts.get(number)
        {
            let told = told.until(cut.acknowledged, cut.attempted);
            let flight = Flight::of(&cut.state, self.explore.stale);
            let choice = &flight.random(rng);
            let way = Way { before, seed, during: During::Life(life), cut, number, choice };
            let disk = self.disk(flight.land(choice));
            self.life(&disk, seed, told, life + 1, Some(&way), rng)?;
        }
        Ok(())
    }

    /// Checks a state, if it is new; cuts the power while it recovers, sometimes.
    fn state(&mut self, state: State, told: &Told<S::Fact>, way: &Way<'_>, level: u32) -> Result<(), Red> {
        let hash = mix(state.hash(), told.hash());
        if !self.seen.insert(hash) {
            return Ok(());
        }
        self.count(way, level);
        let mut rng = Rng::new(mix(hash, way.seed));
        let disk = self.disk(state);
        let nests = level < self.explore.levels_max && rng.below(if level == 0 { 8 } else { 4 }) == 0;
        let (acknowledged, attempted) = told.counts();
        if nests {
            disk.record(acknowledged, attempted);
        }
        let checked = guarded(|| self.subject.check(&disk, &told.acknowledged.all, &told.attempted.all));
        self.note_barriers(&disk);
        checked.map_err(|message| self.red(message, way.seed, Some(way), told))?;
        let cuts = disk.recorded();
        // The first cut comes before anything was done: that is the state itself.
        let count = cuts.len().saturating_sub(1);
        for index in 0..count.min(NESTED_STATES_MAX) {
            let number = 1 + if count <= NESTED_STATES_MAX { index } else { rng.index(count) };
            let Some(cut) = cuts.get(number) else { continue };
            let flight = Flight::of(&cut.state, self.explore.stale);
            let choice = &flight.random(&mut rng);
            let during = During::Check(level + 1);
            let nested = Way { before: Some(way), seed: way.seed, during, cut, number, choice };
            if !self.is_enough() {
                self.state(flight.land(choice), told, &nested, level + 1)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, way: &Way<'_>, level: u32) {
        self.report.states += 1;
        self.report.nested += u64::from(level > 0);
        if let Some(step) = &way.cut.after {
            *self.report.after.entry((step.operation, step.barrier.map(Barrier::label))).or_default() += 1;
        }
    }

    fn note_barriers(&mut self, disk: &SimDisk) {
        self.passed |= self.ignored.is_some_and(|ignored| disk.inside().barriers.contains(&ignored));
    }

    fn red(&mut self, message: String, seed: u64, way: Option<&Way<'_>>, told: &Told<S::Fact>) -> Red {
        self.report.took = RealClock.now().since(self.began);
        let mut blows = Vec::new();
        let mut next = way;
        while let Some(way) = next {
            blows.push(way.blow(self.explore.stale));
            next = way.before;
        }
        blows.reverse();
        Box::new(Failure {
            seed,
            message,
            blows,
            acknowledged: format!("{:?}", told.acknowledged.all),
            attempted: format!("{:?}", told.attempted.all),
            report: self.report.clone(),
        })
    }
}

impl Way<'_> {
    fn blow(&self, stale: Stale) -> Blow {
        let during = match self.during {
            During::Life(life) => format!("life {life}"),
            During::Check(level) => format!("check at level {level}"),
        };
        let cut = match &self.cut.after {
            Some(step) => format!("operation {}: {step}", self.number),
            None => "nothing".to_owned(),
        };
        Blow { during, cut, fate: Flight::of(&self.cut.state, stale).describe(self.choice) }
    }
}

/// A panic is a red state too.
fn guarded(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("a panic: {}", said.unwrap_or("without words")))
    })
}
