//! The agent at work by itself: a thread for each resource, each with its own pace and patience, so that one which hangs
//! in a dead database's connect delays nobody else.
//!
//! Walk: [`Attendance::start`] · [`Bell::ring`] a look is due (a client was lost or fenced) · [`Attendance::recover`] a
//! look at everything, waited for, but not for ever · [`Attendance::last`] how the latest looks went.
//! Deliberately absent: the coordinator's tick; [`crate::Caretaker`] has it, and a server has its own.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_kind::Kind;
use assent_world::{Clock, Gate, Moment};
use assent_xa::Native;

use crate::{Agent, Attendant, CoordinatorError, ResourceReport, Round};

/// Between two looks at a resource, at least: however often the bell rings, a branch that is seen twice has stood still
/// for this long, and its healthy client is not raced.
const ROUNDS_APART: Duration = Duration::from_millis(250);
/// How often a connection that rests is looked at: what its end may have brought back is found that soon.
const GLANCES_APART: Duration = Duration::from_millis(500);
/// A look that takes longer is told as trouble, though it may still end.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// A stopping thread is waited for this often; one that hangs in a foreign database is left to itself.
const STOP_LOOKS: u32 = 10;
const STOP_PAUSE: Duration = Duration::from_millis(50);

/// What is told: every look of an attendant, and every tick that failed.
pub type Listener = Box<dyn Fn(Result<&Round, &CoordinatorError>) + Send + Sync>;

/// Attendants at work. Dropped, they stop; one that hangs in a foreign database ends whenever that lets it.
pub struct Attendance {
    room: Arc<Room>,
    clock: Arc<dyn Clock>,
    threads: Vec<JoinHandle<()>>,
}

/// Calls all attendants to work, from any thread.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Room>);

impl Bell {
    /// A look at every resource is due.
    pub fn ring(&self) {
        _ = self.0.ring(false);
    }
}

/// What the threads share.
#[derive(Debug, Default)]
struct Room {
    bell: Gate,
    stop: Gate,
    /// Bumped when a look has ended, and when a thread has.
    news: Gate,
    board: Mutex<Board>,
}

#[derive(Debug, Default)]
struct Board {
    /// How often the bell has rung, and which of these were in a hurry.
    rung: u64,
    hurried: u64,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    name: String,
    /// The look under way.
    since: Option<Moment>,
    /// The latest look, and how often the bell had rung when it began.
    last: Option<(u64, Arc<Round>)>,
}

impl fmt::Debug for Attendance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attendance").field("room", &self.room).finish_non_exhaustive()
    }
}

impl Attendance {
    /// Starts a thread for each of the agent's resources; each looks at once.
    ///
    /// # Errors
    /// As the operating system says, when it gives no thread.
    pub fn start(agent: Agent, clock: Arc<dyn Clock>, listener: Arc<Listener>) -> std::io::Result<Self> {
        let room = Arc::new(Room::default());
        let slot = |one: &Attendant| Slot { name: one.name().to_owned(), since: None, last: None };
        room.board().slots = agent.attendants.iter().map(slot).collect();
        let mut it = Self { room, clock, threads: Vec::new() };
        for (at, attendant) in agent.attendants.into_iter().enumerate() {
            let (room, clock, listener) = (Arc::clone(&it.room), Arc::clone(&it.clock), Arc::clone(&listener));
            let thread = std::thread::Builder::new()
                .name(format!("recover-{}", attendant.name()))
                .spawn(move || attend(at, attendant, &room, &*clock, &listener))?;
            it.threads.push(thread);
        }
        Ok(it)
    }

    /// A handle for whoever learns that a look is due.
    #[must_use]
    pub fn bell(&self) -> Bell {
        Bell(Arc::clone(&self.room))
    }

    /// A look at every resource that begins after this call, also at one that is left alone after trouble. Waits for all,
    /// but no longer than `within`; a resource that has not answered by then is reported `Unavailable`, and its look goes
    /// on.
    #[must_use]
    pub fn recover(&self, within: Duration) -> Round {
        let asked = self.room.ring(true);
        let until = self.clock.now().after(within);
        loop {
            let news = self.room.news.value();
            let now = self.clock.now();
            if self.room.board().is_answered(asked) || now >= until || self.room.is_stopping() {
                break;
            }
            self.room.news.wait(news, Some(until.since(now).min(STOP_PAUSE)));
        }
        let board = self.room.board();
        let answered =
            |slot: &Slot| slot.last.as_ref().filter(|(rung, _)| *rung >= asked).map(|(_, round)| (**round).clone());
        board.merged(answered, &format!("it has not answered within {} s", within.as_secs()))
    }

    /// How the latest look at each resource went. One that is under way for too long is reported `Unavailable`.
    #[must_use]
    pub fn last(&self) -> Round {
        let now = self.clock.now();
        let is_late = |slot: &Slot| slot.since.is_some_and(|since| now.since(since) > LOOK_MAX);
        let latest = |slot: &Slot| slot.last.as_ref().filter(|_| !is_late(slot)).map(|(_, round)| (**round).clone());
        self.room.board().merged(latest, "its look has not ended yet")
    }

    /// Asks all threads to end. [`Attendance::wait`] for them.
    pub fn stop(&self) {
        self.room.stop.set(1);
        self.room.stop.wake_all();
        _ = self.room.ring(false);
    }
}

impl Attendance {
    /// Waits a moment for threads that were asked to end; whether all have. One that hangs in a foreign database is left
    /// to itself: nothing that it may still do needs us.
    pub fn wait(&self) -> bool {
        for _ in 0..STOP_LOOKS {
            let news = self.room.news.value();
            if self.threads.iter().all(JoinHandle::is_finished) {
                return true;
            }
            self.room.news.wait(news, Some(STOP_PAUSE));
        }
        false
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.stop();
        _ = self.wait();
        // It panicked: the panic was printed where it happened, there is nothing to add.
        self.threads.drain(..).filter(JoinHandle::is_finished).for_each(|thread| _ = thread.join());
    }
}

fn attend(at: usize, mut attendant: Attendant, room: &Room, clock: &dyn Clock, listener: &Listener) {
    let (mut heard, mut hurried) = (0, 0);
    while !room.is_stopping() {
        let bell = room.bell.value();
        let (rung, now) = (room.begin(at, clock.now()), std::mem::replace(&mut hurried, room.board().hurried));
        if now != hurried {
            attendant.hurry();
        }
        if std::mem::replace(&mut heard, rung) != rung {
            attendant.called();
        }
        let round = Arc::new(attendant.round());
        room.end(at, rung, Arc::clone(&round));
        listener(Ok(&round));
        if attendant.has_met_rival() {
            _ = room.ring(false);
        }
        let pause = attendant.pause();
        room.stop.wait(0, Some(pause.min(ROUNDS_APART)));
        room.rest(bell, pause.saturating_sub(ROUNDS_APART), || attendant.is_cut_off());
    }
    drop(attendant);
    room.news.bump();
    room.news.wake_all();
}

impl Room {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stop.value() != 0
    }

    /// Waits until the bell has rung since, but not for longer, and no more when the resource is cut off.
    fn rest(&self, bell: u32, mut pause: Duration, mut is_cut_off: impl FnMut() -> bool) {
        while self.bell.value() == bell && !self.is_stopping() && !pause.is_zero() && !is_cut_off() {
            let glance = pause.min(GLANCES_APART);
            self.bell.wait(bell, Some(glance));
            pause = pause.saturating_sub(glance);
        }
    }

    /// How often it has rung now.
    fn ring(&self, is_hurried: bool) -> u64 {
        let rung = {
            let mut board = self.board();
            board.rung += 1;
            board.hurried += u64::from(is_hurried);
            board.rung
        };
        self.bell.bump();
        self.bell.wake_all();
        rung
    }

    fn begin(&self, at: usize, now: Moment) -> u64 {
        let mut board = self.board();
        let rung = board.rung;
        if let Some(slot) = board.slots.get_mut(at) {
            slot.since = Some(now);
        }
        rung
    }

    fn end(&self, at: usize, rung: u64, round: Arc<Round>) {
        if let Some(slot) = self.board().slots.get_mut(at) {
            (slot.since, slot.last) = (None, Some((rung, round)));
        }
        self.news.bump();
        self.news.wake_all();
    }
}

impl Board {
    fn is_answered(&self, asked: u64) -> bool {
        self.slots.iter().all(|slot| slot.last.as_ref().is_some_and(|(rung, _)| *rung >= asked))
    }

    fn merged(&self, of: impl Fn(&Slot) -> Option<Round>, otherwise: &str) -> Round {
        let mut all = Round::default();
        for slot in &self.slots {
            let silent = || {
                let native = Native { code: String::new(), message: otherwise.to_owned() };
                let trouble = Some((Kind::Unavailable, native));
                let resources = vec![ResourceReport { name: slot.name.clone(), listed: None, trouble }];
                Round { resources, ..Round::default() }
            };
            all.merge(of(slot).unwrap_or_else(silent));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_with_its_time_the_bell_or_the_connection() {
        let (room, long) = (Room::default(), Duration::from_secs(60));
        let quiet = room.bell.value();
        let mut glances = 0;
        room.rest(quiet, long, || {
            glances += 1;
            glances == 3
        });
        assert_eq!(glances, 3, "at the connection's end");
        glances = 0;
        room.rest(quiet, GLANCES_APART + Duration::from_millis(1), || {
            glances += 1;
            false
        });
        assert_eq!(glances, 2, "at the end of its time");
        _ = room.ring(false);
        room.rest(quiet, long, || unreachable!("it has rung already"));
    }
}
