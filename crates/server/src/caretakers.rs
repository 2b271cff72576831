//! What runs beside the desks, so that no request waits for it: the recovery agent and the engines' housekeeping.

use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::{Agent, Coordinator};
use assent_kv::Kv;

use crate::report;
use crate::shared::{Letter, Shared};

/// How often an engine may look after itself: fences, checkpoints, trims.
const TICK: Duration = Duration::from_millis(100);

/// Between two rounds of recovery, at least.
const ROUNDS_APART: Duration = Duration::from_millis(250);

/// Rounds of recovery: at the start, when the bell rings, and for ever by the agent's own pause.
pub(crate) fn recover(shared: &Shared, mut agent: Agent) {
    loop {
        let asked = shared.recovery.begin_round();
        // Looked at after the bell was stilled: a stop that rang before is seen here, a later one rings again.
        if shared.drain.until().is_some() {
            return;
        }
        let round = agent.round();
        shared.numbers.rounds.inc();
        report::log(&round);
        shared.recovery.tell(report::check(&round));
        let limit = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(usize::MAX);
        for asked in asked {
            if let Some(inbox) = shared.inboxes.get(asked.desk) {
                let frame = report::frame(&round, asked.request, limit);
                inbox.post(Letter::Late { token: asked.token, frame });
            }
        }
        // However often the bell rings: a branch that is seen in two rounds has stood still for this long at least, and
        // its healthy client is not raced.
        if !shared.drain.sleep(ROUNDS_APART) {
            return;
        }
        shared.recovery.sleep(agent.pause().saturating_sub(ROUNDS_APART));
    }
}

/// The coordinator's housekeeping. A failure is the log's, which answers every request with it from then on.
pub(crate) fn tick_coordinator(shared: &Shared, coordinator: &Arc<Coordinator>) {
    let mut failed = false;
    while shared.drain.sleep(TICK) {
        match coordinator.tick() {
            Ok(()) => failed = false,
            Err(error) if !std::mem::replace(&mut failed, true) => tracing::error!(%error, "the coordinator's tick"),
            Err(_) => {}
        }
    }
}

/// The store's housekeeping, on a thread of its own: a checkpoint takes longer than a client may be lost.
pub(crate) fn tick_kv(shared: &Shared, kv: &Arc<Kv>) {
    while shared.drain.sleep(TICK) {
        kv.tick();
    }
}
