//! What must happen though nobody asks: fences, checkpoints, trims.
//!
//! Walk: [`Coordinator::listening`] starts the time in which earlier clients may come back · [`Coordinator::tick`] · a fence is laid, synced, and only then lets anything be forgotten · a checkpoint is laid,
//! synced, and only then lets the log before it go · a seal ends a run of the chain once a second, if there is news.

use std::sync::TryLockError;
use std::time::Duration;

use assent_journal::{JournalError, Log};
use assent_world::Moment;

use crate::chain::Chain;
use crate::clients::Fence;
use crate::coordinator::State;
use crate::{Coordinator, CoordinatorError, lay, record};

/// So long after the last one a seal is due, if there is something to seal.
const SEAL_AFTER: Duration = Duration::from_secs(1);

impl Coordinator {
    /// From now on clients can reach us: those of earlier epochs have `client_lost_ms` from here to resume. To be called
    /// once, when the door is open; other engines may have taken seconds to open since [`Coordinator::open`]. Without
    /// this call (embedded: nobody from outside can come back) the time runs from `open`. Once a tick has found it to be
    /// over it stays so: what was answered because of the fence holds.
    pub fn listening(&self) {
        let now = self.clock.now();
        self.state().clients.listening(now);
    }

    /// Fences clients that were lost for too long, writes a checkpoint when one is due, tells the log what is forgotten.
    /// To be called about every 100 ms; a call while another one is at it does nothing.
    ///
    /// # Errors
    /// As the log says. Everything that failed is tried again by the next call.
    pub fn tick(&self) -> Result<(), CoordinatorError> {
        let _one_at_a_time = match self.upkeep.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        self.fence()?;
        self.notes_due()?;
        self.checkpoint_if_due()?;
        let (now, at_ms) = (self.clock.now(), self.clock.wall_ms());
        let mut state = self.state();
        state.tell_forgotten(&*self.log, at_ms)?;
        if state.chain.count() > 0 && now.since(state.sealed) >= SEAL_AFTER {
            state.seal(&*self.log, now, at_ms)?;
        }
        Ok(())
    }

    pub(crate) fn fence(&self) -> Result<(), JournalError> {
        let now = self.clock.now();
        let (fence, ticket) = {
            let mut state = self.state();
            let Some(mut fence) = state.clients.fence(now) else { return Ok(()) };
            // In a table one census takes the place of the last, however many were fenced; a log says only what is new.
            if !self.log.keeps_history() && state.clients.is_settled() {
                fence = Fence::AllBut(state.clients.census());
            }
            let ticket = match &fence {
                Fence::Some(list) => state.append(&*self.log, record::FENCED, &[&lay::fenced(list)])?,
                Fence::AllBut(census) => state.append(&*self.log, record::CLIENTS, &[&lay::census(census)])?,
            };
            (fence, ticket)
        };
        // Durable first: a fence that a crash takes back must not have let a decision be forgotten.
        self.log.wait_durable(ticket)?;
        let state = &mut *self.state();
        state.gauges.fenced += state.clients.fenced(&fence);
        // Not only those that were seen: who died before it came back to this epoch has left its branches too.
        state.calls += 1;
        let clients = &state.clients;
        state.table.fenced(|incarnation| clients.standing(incarnation) == crate::Standing::Fenced);
        Ok(())
    }

    fn checkpoint_if_due(&self) -> Result<(), JournalError> {
        let due = {
            let state = self.state();
            // Before earlier epochs are done with, a census would not say everything.
            let is_large = state.bytes_since_checkpoint >= self.config.checkpoint_bytes;
            // A state table is its own checkpoint.
            state.clients.is_settled() && is_large && self.log.keeps_history()
        };
        if due {
            self.checkpoint()?;
        }
        let Some(place) = self.state().trim_to else { return Ok(()) };
        self.log.trim(place)?;
        self.state().trim_to = None;
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), JournalError> {
        let (now, at_ms) = (self.clock.now(), self.clock.wall_ms());
        let ticket = {
            let mut state = self.state();
            // Right before it: a log that begins at the checkpoint knows where the chain stands.
            state.seal(&*self.log, now, at_ms)?;
            let census = state.clients.census();
            let logged = || state.table.iter().filter(|(_, entry)| entry.is_logged);
            let owners = logged().map(|(tx, _)| tx.incarnation).collect();
            let (labels, last) = (state.clients.labels(&census, &owners), state.chain.last());
            let mut bytes = lay::checkpoint(&census, &labels, &state.opened, &last, logged().count());
            logged().for_each(|(tx, entry)| lay::entry(&mut bytes, tx, entry));
            let ticket = state.append(&*self.log, record::CHECKPOINT, &[bytes.as_slice()])?;
            // What is forgotten is not in the checkpoint: the log knows it now.
            state.table.told();
            state.bytes_since_checkpoint = 0;
            ticket
        };
        self.log.wait_durable(ticket)?;
        let mut state = self.state();
        state.gauges.checkpoints += 1;
        state.trim_to = Some(ticket.lsn);
        Ok(())
    }
}

impl State {
    /// Ends a run of the chain. Lazily: nobody waits for it.
    fn seal(&mut self, log: &dyn Log, now: Moment, at_ms: u64) -> Result<(), JournalError> {
        let seal = self.chain.seal(at_ms);
        let bytes = lay::seal(&seal);
        log.append(record::SEAL, &[&bytes])?;
        self.bytes_since_checkpoint += crate::replay::record_bytes(&[&bytes]);
        self.chain = Chain::behind(seal);
        self.sealed = now;
        Ok(())
    }
}
