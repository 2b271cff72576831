//! Readers, where they are many more than the processors: some at a time, in the order in which they came.
//!
//! A scheduler gives each thread its share, but who has had more than that waits until all others have had as much: of 45 threads on two
//! processors one waited for 30 to 50 ms, with 30 us of work to do, and each put that had to get a core among them did so, too. So no more are
//! let in than keep the processors busy while some of them wait for a disk. Whoever comes then stands in line.
//!
//! ```text
//!   comes    nobody is in line, and there is room: in
//!            some of his turn is left: in
//!            else to the end of the line, until he is given a place: his turn begins
//!   goes     nobody is in line, or more are in than should be: out
//!            some of his turn is left, and enough others are in: out. He is expected back
//!            else the first in line has his place
//! ```
//! Turns, for a place that is handed over costs two switches of threads, as much as a get in memory. Who is in line finds somebody in, always.
//! A walk, and who reads a long value, stand in line and have no place: they would keep it for long.
//! Where processors idle while somebody is in line, it is a disk that they wait for: twice as many are let in then, and again. Where others than
//! this process keep them busy, it looks the same, and the scheduler decides as ever.
//! One word that each read changes would be fetched from core to core: there is a turnstile for each two processors, and a thread has one of them.
//!
//! Walk: [`Turnstiles::enter`] for each read, and what it answers is dropped with it · [`Turnstiles::line_up`] before each piece of a walk.
//! Deliberately absent: writers, merges, compactions. What a store does for a write never waits for reads here, and no read for a write.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use assent_world::{Clock, Gate, Moment};

/// How long a turn is.
const TURN: Duration = Duration::from_micros(600);
/// Such a part of those that may be in are enough, and never none.
const ENOUGH: (u64, u64) = (2, 3);
/// So often somebody looks whether processors idle, since the line began or since the last look.
const LOOK: Duration = Duration::from_millis(50);
/// Behind so many others somebody looks half as often, and so on: they are many.
const BEHIND: u32 = 8;
/// Less than so many hundredths of the processors' time: they idle. More than so many: they do not.
const IDLE: u64 = 70;
const BUSY: u64 = 80;
/// Nobody has as many threads.
const MOST: u64 = 1 << 20;
/// Processors that share one.
const PROCESSORS: usize = 2;
/// In the word, above those that are in: one that is in line.
const IN_LINE: u64 = 1 << 32;

thread_local! {
    /// Which turnstile of each store is this thread's.
    static NUMBER: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
    /// Where it has its turn, and until when.
    static UNTIL: Cell<Option<(usize, Moment)>> = const { Cell::new(None) };
    /// Where it is in.
    static WHERE: Cell<Option<usize>> = const { Cell::new(None) };
    static STANDS: Cell<bool> = const { Cell::new(true) };
}

/// From now on reads of this thread stand in no line, in no store: for one that answers many others.
pub fn stand_in_no_line() {
    STANDS.set(false);
}

/// Those of a store.
pub(crate) struct Turnstiles(Box<[Turnstile]>);

/// Who reads, and who is in line. Apart from its neighbours, as processors fetch memory.
#[repr(align(128))]
struct Turnstile {
    /// How many are in, and how many in line.
    word: AtomicU64,
    /// So many may be in now.
    most: AtomicU64,
    /// So many may always be in; none: everybody.
    least: u64,
    processors: u64,
    clock: Arc<dyn Clock>,
    line: Mutex<VecDeque<Arc<Gate>>>,
    /// When somebody looked, in microseconds of the clock, and what was known then.
    looked: AtomicU64,
    worked: Mutex<Duration>,
    stood: AtomicU64,
}

/// A place, until it is dropped.
#[derive(Debug)]
#[must_use = "it is over when it is dropped"]
pub(crate) struct Pass<'t> {
    /// None for whoever is in already, or where everybody may.
    turnstile: Option<&'t Turnstile>,
    /// It is about the thread that has it.
    of_thread: PhantomData<*const ()>,
}

const fn who_is_in(word: u64) -> u64 {
    word % IN_LINE
}

const fn is_line(word: u64) -> bool {
    word >= IN_LINE
}

/// How many may be in, where processors were busy for so many hundredths of the time.
fn next(most: u64, least: u64, word: u64, busy: u64) -> u64 {
    let fewer = (most / 2).max(least);
    match busy {
        ..IDLE if is_line(word) => most.saturating_mul(2).min(MOST.max(least)),
        ..=BUSY if is_line(word) || who_is_in(word) > fewer => most,
        _ => fewer,
    }
}

impl Turnstiles {
    /// So many readers for each processor at once, or everybody.
    pub(crate) fn new(clock: &Arc<dyn Clock>, per_processor: u32, processors: usize) -> Self {
        let count = (processors / PROCESSORS).max(1);
        let share = |number| (processors + number) / count;
        Self((0..count).map(|number| Turnstile::new(clock, per_processor, (share(number), processors))).collect())
    }

    /// Lets this thread in, now or in its turn. Whoever is in already, here or elsewhere, is not asked to wait again.
    pub(crate) fn enter(&self) -> Pass<'_> {
        let turnstile = self.own().filter(|_| WHERE.get().is_none());
        if let Some(turnstile) = turnstile {
            turnstile.come();
            WHERE.set(Some(turnstile.address()));
        }
        Pass { turnstile, of_thread: PhantomData }
    }

    /// As [`Turnstiles::enter`], for what may take long: once it is let in it gives its place to the next one, and its turn is over.
    pub(crate) fn line_up(&self) {
        let pass = self.enter();
        UNTIL.take();
        drop(pass);
    }

    /// What follows may take long: whoever is in gives his place away, for good.
    pub(crate) fn go_early(&self) {
        if let Some(turnstile) = self.own().filter(|one| WHERE.get() == Some(one.address())) {
            // He is not expected back soon.
            UNTIL.take();
            turnstile.end();
        }
    }

    /// How many stood in line so far.
    pub(crate) fn stood(&self) -> u64 {
        self.0.iter().map(|one| one.stood.load(Ordering::Relaxed)).sum()
    }

    /// This thread's, if it stands in line at all.
    fn own(&self) -> Option<&Turnstile> {
        let number = NUMBER.with(|number| *number);
        self.0.get(number % self.0.len().max(1)).filter(|one| one.least > 0 && STANDS.get())
    }
}

impl Turnstile {
    fn new(clock: &Arc<dyn Clock>, per_processor: u32, (share, processors): (usize, usize)) -> Self {
        let count = |processors| u64::try_from(processors).unwrap_or(1).max(1);
        let least = count(share).saturating_mul(per_processor.into()).min(MOST);
        Self {
            word: AtomicU64::new(0),
            most: AtomicU64::new(least),
            least,
            processors: count(processors),
            line: Mutex::default(),
            looked: AtomicU64::new(clock.now().0),
            worked: Mutex::new(clock.worked().unwrap_or_default()),
            stood: AtomicU64::new(0),
            clock: Arc::clone(clock),
        }
    }

    fn come(&self) {
        if self.most.load(Ordering::Relaxed) > self.least {
            // Nobody may be in line now: who would find out that so many need not be let in?
            self.look();
        }
        if self.finds_room() {
            return;
        }
        if self.has_turn() {
            self.word.fetch_add(1, Ordering::AcqRel);
            return;
        }
        self.stand();
        UNTIL.set(Some((self.address(), self.clock.now().after(TURN))));
    }

    fn has_room(&self, word: u64) -> bool {
        !is_line(word) && who_is_in(word) < self.most.load(Ordering::Relaxed)
    }

    fn finds_room(&self) -> bool {
        let comes = |word| self.has_room(word).then(|| word + 1);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, comes).is_ok()
    }

    fn has_turn(&self) -> bool {
        UNTIL.get().is_some_and(|(address, until)| address == self.address() && until > self.clock.now())
    }

    /// Stands in line until somebody gives him a place.
    #[cold]
    fn stand(&self) {
        let gate = Arc::new(Gate::default());
        let before = {
            let mut line = self.line();
            // Under the lock: whoever sees that somebody is in line finds him there.
            let mut comes = false;
            let comes_or_stands = |word| {
                comes = self.has_room(word);
                Some(if comes { word + 1 } else { word + IN_LINE })
            };
            _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, comes_or_stands);
            if comes {
                return;
            }
            if line.is_empty() {
                self.begin_to_look();
            }
            line.push_back(Arc::clone(&gate));
            self.stood.fetch_add(1, Ordering::Relaxed);
            line.len()
        };
        let pause = LOOK.saturating_mul(1 + u32::try_from(before).unwrap_or(u32::MAX) / BEHIND);
        while gate.value() == 0 {
            self.look();
            gate.wait(0, Some(pause));
        }
    }

    /// This thread's place is somebody else's, if it has one here.
    fn end(&self) {
        if WHERE.get() == Some(self.address()) {
            WHERE.set(None);
            self.go();
        }
    }

    fn go(&self) {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if self.may_leave_it(word) {
                if self.word.compare_exchange_weak(word, word - 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return;
                }
            } else if self.hand_over() {
                return;
            }
        }
    }

    /// Whether a place stays empty when somebody goes.
    fn may_leave_it(&self, word: u64) -> bool {
        let (most, others) = (self.most.load(Ordering::Relaxed), who_is_in(word).saturating_sub(1));
        let (part, of) = ENOUGH;
        !is_line(word) || others >= most || others >= (most * part / of).max(1) && self.has_turn()
    }

    /// Gives this thread's place to the first in line, if there is one.
    fn hand_over(&self) -> bool {
        let mut line = self.line();
        let Some(first) = line.pop_front() else { return false };
        self.word.fetch_sub(IN_LINE, Ordering::AcqRel);
        drop(line);
        let_in(&first);
        true
    }

    /// What processors do from now on, as a line begins: of the calm before it nothing follows.
    fn begin_to_look(&self) {
        let mut worked = self.worked.lock().unwrap_or_else(PoisonError::into_inner);
        self.looked.store(self.clock.now().0, Ordering::Relaxed);
        *worked = self.clock.worked().unwrap_or_default();
    }

    /// Whether processors idle, if it is time for that: then more may be in.
    fn look(&self) {
        let is_time = || self.clock.now().since(Moment(self.looked.load(Ordering::Relaxed))) >= LOOK;
        if !is_time() {
            return;
        }
        // One of all who find that.
        let Ok(mut before) = self.worked.try_lock() else { return };
        let Some(worked) = self.clock.worked().filter(|_| is_time()) else { return };
        let now = self.clock.now();
        let passed = now.since(Moment(self.looked.swap(now.0, Ordering::Relaxed)));
        let worked_since = worked.saturating_sub(std::mem::replace(&mut *before, worked));
        let all = passed.as_micros().saturating_mul(self.processors.into()).max(1);
        let busy = u64::try_from(worked_since.as_micros().saturating_mul(100) / all).unwrap_or(u64::MAX);
        let (most, word) = (self.most.load(Ordering::Relaxed), self.word.load(Ordering::Relaxed));
        let next = next(most, self.least, word, busy);
        self.most.store(next, Ordering::Relaxed);
        drop(before);
        if next > most {
            self.fill();
        }
    }

    /// Lets in as many of the line as there is room for.
    fn fill(&self) {
        let mut first = Vec::new();
        let mut line = self.line();
        while !line.is_empty() {
            let most = self.most.load(Ordering::Relaxed);
            let comes = |word| (who_is_in(word) < most).then(|| word + 1 - IN_LINE);
            if self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, comes).is_err() {
                break;
            }
            first.extend(line.pop_front());
        }
        drop(line);
        first.iter().for_each(|gate| let_in(gate));
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<Arc<Gate>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// How many there are.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

fn let_in(gate: &Gate) {
    gate.set(1);
    gate.wake(1);
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(turnstile) = self.turnstile {
            turnstile.end();
        }
    }
}

impl fmt::Debug for Turnstiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl fmt::Debug for Turnstile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Turnstile")
            .field("in", &who_is_in(word))
            .field("in_line", &(word / IN_LINE))
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "turnstile_test.rs"]
mod tests;
