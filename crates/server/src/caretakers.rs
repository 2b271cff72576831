//! What runs beside the desks, so that no request waits for it: answers about recovery, and the engines' housekeeping.

use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::{Attendance, Coordinator};
use assent_kv::Kv;
use assent_world::give_way;

use crate::report;
use crate::shared::{Inbox, Letter, Shared};

/// How often an engine may look after itself: fences, checkpoints, trims.
const TICK: Duration = Duration::from_millis(100);

/// An operator who asks for recovery is answered by then, with the resources that have not answered named.
const RECOVER_MAX: Duration = Duration::from_secs(5);

/// Answers those who ask for a look at every resource; the looks themselves are the attendants'.
pub(crate) fn recover(shared: &Shared, attendance: &Attendance) {
    while let Some(asked) = shared.recovery.wait() {
        // During a stop no look is begun: what the last ones found is told.
        let is_over = shared.drain.until().is_some();
        let round = if is_over { attendance.last() } else { attendance.recover(RECOVER_MAX) };
        let limit = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(usize::MAX);
        for asked in asked {
            if let Some(inbox) = shared.inboxes.get(asked.desk) {
                let frame = report::frame(&round, asked.request, limit);
                inbox.post(Letter::Late { token: asked.token, frame });
            }
        }
    }
}

/// The coordinator's housekeeping. A failure is the log's, which answers every request with it from then on.
pub(crate) fn tick_coordinator(shared: &Shared, coordinator: &Arc<Coordinator>) {
    let (mut failed, mut known) = (false, 0);
    while shared.drain.sleep(TICK) {
        // A client was fenced: what it left behind can be finished now.
        let calls = coordinator.calls();
        if std::mem::replace(&mut known, calls) != calls {
            shared.recovery.ring();
        }
        match coordinator.tick() {
            Ok(()) => failed = false,
            Err(error) if !std::mem::replace(&mut failed, true) => tracing::error!(%error, "the coordinator's tick"),
            Err(_) => {}
        }
    }
}

/// The store's housekeeping, on a thread of its own: a checkpoint takes longer than a client may be lost.
pub(crate) fn tick_kv(shared: &Shared, kv: &Arc<Kv>) {
    give_way();
    while shared.drain.until().is_none() {
        kv.tick();
        kv.wait_due(TICK);
    }
}

/// The store's work in the background, beside its housekeeping: memory must not wait for a merge.
pub(crate) fn work_kv(shared: &Arc<Shared>, kv: &Arc<Kv>) {
    let asked = Arc::clone(shared);
    let pace = kv.throttle(move || asked.drain.until().is_some());
    give_way();
    while shared.drain.until().is_none() {
        while kv.work(&pace) && shared.drain.until().is_none() {}
        kv.wait_work(TICK);
    }
}

/// Wakes the desks when keys have become free that somebody waits for: who freed them may be no desk.
pub(crate) fn watch_keys(shared: &Shared, kv: &Kv) {
    let mut seen = kv.freed();
    while shared.drain.until().is_none() {
        kv.wait_freed(seen, TICK);
        let freed = kv.freed();
        if std::mem::replace(&mut seen, freed) != freed {
            shared.inboxes.iter().for_each(Inbox::wake);
        }
    }
}
