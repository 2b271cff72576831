//! What the desks and the helper threads of one server share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_coordinator::{Attendance, Coordinator};
use assent_door::{Drain, Limits, Slot, Slots};
use assent_ids::{NodeId, ResourceId};
use assent_journal::Log;
use assent_kv::Kv;
use assent_wire::Long;
use assent_world::net::{Peer, Waker};
use assent_world::{Clock, Gate, Moment};

use crate::inquiry::Inquiries;
use crate::long::{Budget, Share};
use crate::numbers::Numbers;
use crate::seats::Seats;

/// A client is lost once it has missed so many.
const HEARTBEATS_MISSED: u32 = 3;

/// What is served, and the rules.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) node: NodeId,
    pub(crate) coordinator: Option<Arc<Coordinator>>,
    pub(crate) kv: Option<Arc<Kv>>,
    pub(crate) kv_log: Option<Arc<dyn Log>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) heartbeat_ms: u32,
    pub(crate) client_lost_ms: u32,
    pub(crate) slots: Slots,
    /// Of long messages.
    pub(crate) budget: Budget,
    pub(crate) drain: Drain,
    pub(crate) numbers: Numbers,
    pub(crate) seats: Seats,
    /// The names a client may enlist.
    pub(crate) registered: BTreeMap<String, ResourceId>,
    /// Where they are, for people.
    pub(crate) places: BTreeMap<ResourceId, String>,
    pub(crate) recovery: Recovery,
    pub(crate) inquiries: Inquiries,
    /// Looks through the coordinator's log.
    pub(crate) histories: Inquiries,
    /// Work on the whole store.
    pub(crate) chores: Inquiries,
    /// Ranges with too many dead keys for a desk.
    pub(crate) walks: Inquiries,
    pub(crate) inboxes: Vec<Inbox>,
    pub(crate) failed: Mutex<Option<String>>,
}

impl Shared {
    /// How often patience with all connections is checked: fine enough for the shortest limit.
    pub(crate) fn patience_every(&self) -> Duration {
        let never = |ms: u32| if ms == 0 { u32::MAX } else { ms };
        let silence = never(self.limits.idle_ms).min(never(self.heartbeat_ms));
        let shortest = self.limits.partial_frame_ms.min(silence);
        Duration::from_millis(u64::from(shortest / 4).clamp(5, 250))
    }

    /// How long a client may be silent before it counts as lost; none if heartbeats are not asked for.
    pub(crate) fn heartbeats_missed(&self) -> Option<Duration> {
        (self.heartbeat_ms > 0).then(|| Duration::from_millis(u64::from(self.heartbeat_ms)) * HEARTBEATS_MISSED)
    }

    pub(crate) fn is_registered(&self, id: ResourceId) -> bool {
        self.registered.values().any(|known| *known == id)
    }

    /// A resource that nobody has registered, if a commit has a branch there or may be decided there.
    pub(crate) fn stranger(&self, decide: &assent_wire::Decide<'_>) -> Option<ResourceId> {
        let is_known = |id: ResourceId| self.is_registered(id);
        let commits = decide.outcome == assent_wire::Outcome::Committed;
        let resources = |branch: &assent_wire::BranchRecord<'_>| {
            [Some(branch.resource), branch.mark.map(|mark| mark.resource)].into_iter().flatten()
        };
        decide.branches.iter().flat_map(resources).find(|id| commits && !is_known(*id))
    }

    pub(crate) fn desk_failed(&self, why: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// What another thread has for a desk.
pub(crate) enum Letter {
    /// A connection that the first desk took in.
    Newcomer(Peer, Slot),
    /// The answer to a request that took longer than a turn.
    Late {
        /// The connection.
        token: usize,
        /// The answer, as it is laid.
        frame: Vec<u8>,
    },
    /// An answer that leaves in parts.
    Long {
        /// The connection.
        token: usize,
        /// The answer.
        long: Long,
        /// Its room.
        share: Share,
    },
}

/// Where other threads leave letters for a desk.
pub(crate) struct Inbox {
    letters: Mutex<Vec<Letter>>,
    waker: Waker,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl Inbox {
    pub(crate) const fn new(waker: Waker) -> Self {
        Self { letters: Mutex::new(Vec::new()), waker }
    }

    pub(crate) fn post(&self, letter: Letter) {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        self.wake();
    }

    pub(crate) fn take(&self) -> Vec<Letter> {
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::warn!(%error, "a desk could not be woken; it looks by itself within a second");
        }
    }
}

/// The recovery at work, and who waits for a report of it.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    attendance: Option<Arc<Attendance>>,
    bell: Gate,
    asked: Mutex<Vec<Asked>>,
    stopping: AtomicBool,
}

/// A request to the store that is answered later, for the meters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) verb: &'static str,
    pub(crate) began: Moment,
}

impl Timed {
    pub(crate) fn ends(self, shared: &Shared, failed: bool) {
        shared.numbers.worked(self.verb, shared.clock.now().since(self.began), failed);
    }
}

/// Who asked for a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) desk: usize,
    pub(crate) token: usize,
    pub(crate) request: u64,
}

impl Recovery {
    pub(crate) fn new(attendance: Option<Arc<Attendance>>) -> Self {
        Self { attendance, ..Self::default() }
    }

    /// The attendants, where there are any.
    pub(crate) const fn attendance(&self) -> Option<&Arc<Attendance>> {
        self.attendance.as_ref()
    }

    /// A look at every resource is due now: a client was lost or fenced.
    pub(crate) fn ring(&self) {
        if let Some(attendance) = &self.attendance {
            attendance.bell().ring();
        }
    }

    /// A look is asked for, and its report.
    pub(crate) fn ask(&self, asked: Asked) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        self.wake();
    }

    /// Those who ask, once there are any; none when it is over.
    pub(crate) fn wait(&self) -> Option<Vec<Asked>> {
        loop {
            let seen = self.bell.value();
            let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
            if !asked.is_empty() {
                return Some(asked);
            }
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
            self.bell.wait(seen, None);
        }
    }

    /// No look is begun any more, and one that is under way is left to itself: who asks is told what is known.
    pub(crate) fn rest(&self) {
        if let Some(attendance) = &self.attendance {
            attendance.stop();
        }
    }

    /// Nobody asks any more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.bell.bump();
        self.bell.wake_all();
    }
}
