//! What must happen though nobody asks: fences, checkpoints, trims.
//!
//! Walk: [`Coordinator::listening`] starts the time in which earlier clients may come back · [`Coordinator::tick`] · a fence is laid, synced, and only then lets anything be forgotten · a checkpoint is laid,
//! synced, and only then lets the log before it go.

use std::sync::TryLockError;

use assent_frame::Writer;
use assent_journal::JournalError;

use crate::clients::Fence;
use crate::record;
use crate::{Coordinator, CoordinatorError};

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
        self.checkpoint_if_due()?;
        self.state().tell_forgotten(&*self.log)?;
        Ok(())
    }

    fn fence(&self) -> Result<(), JournalError> {
        let now = self.clock.now();
        let (fence, ticket) = {
            let mut state = self.state();
            let Some(fence) = state.clients.fence(now) else { return Ok(()) };
            let ticket = match &fence {
                Fence::Some(list) => state.append(&*self.log, record::FENCED, &[&record::lay_fenced(list)])?,
                Fence::AllBut(census) => {
                    let mut bytes = Writer::new();
                    record::lay_census(&mut bytes, census);
                    state.append(&*self.log, record::CLIENTS, &[bytes.as_slice()])?
                }
            };
            (fence, ticket)
        };
        // Durable first: a fence that a crash takes back must not have let a decision be forgotten.
        self.log.wait_durable(ticket)?;
        let state = &mut *self.state();
        state.gauges.fenced += state.clients.fenced(&fence);
        let clients = &state.clients;
        state.table.fenced(|incarnation| clients.standing(incarnation) == crate::Standing::Fenced);
        Ok(())
    }

    fn checkpoint_if_due(&self) -> Result<(), JournalError> {
        let due = {
            let state = self.state();
            // Before earlier epochs are done with, a census would not say everything.
            state.clients.is_settled() && state.bytes_since_checkpoint >= self.config.checkpoint_bytes
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
        let ticket = {
            let mut state = self.state();
            let mut bytes = Writer::new();
            record::lay_census(&mut bytes, &state.clients.census());
            let logged = || state.table.iter().filter(|(_, entry)| entry.is_logged);
            bytes.u32(u32::try_from(logged().count()).unwrap_or(u32::MAX));
            for (tx, entry) in logged() {
                let acknowledged = entry.is_acknowledged;
                record::lay_entry(&mut bytes, tx, entry.outcome, entry.by, acknowledged, &entry.branches);
            }
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
