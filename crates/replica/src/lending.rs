//! What a desk reads of its disk for other members: stretches of the log, pieces of the snapshot.
//!
//! Walk: [`Desk::fetch`] and [`Desk::read_piece`] answer with the next step · [`Desk::trim`] looks where what is not needed ends.
//! What cannot be read is answered as if it were not there any more: the other member waits, and this one takes a snapshot of its own
//! state in its stead. It may be the one that has everything, and it needs none of those bytes itself before its next start.
//! Deliberately absent: what is read for the own machine. A member that cannot go on says so.

use assent_membership::{Member, Sequence};

use crate::desk::{Desk, Stopped};
use crate::error::ReplicaError;
use crate::event::Input;
use crate::front::Front;
use crate::machine::Machine;
use crate::own_log::Fetched;

impl<M: Machine, F: Front<M>> Desk<M, F> {
    pub(crate) fn fetch(&mut self, to: Member, after: Sequence, bytes_max: u64) -> Result<(), Stopped> {
        let fetched = self.log.fetch(after, bytes_max);
        let Fetched { chain, entries } = self.or_none(fetched)?;
        self.later.push_back(Input::Fetched { to, after, chain, entries });
        Ok(())
    }

    pub(crate) fn read_piece(&mut self, to: Member, at: Sequence, offset: u64, bytes_max: u64) -> Result<(), Stopped> {
        let piece = self.snapshots.lent.piece(&self.snapshots.shelf, to, at, offset, bytes_max);
        let piece = self.or_none(piece)?;
        self.later.push_back(Input::PieceRead { to, piece });
        Ok(())
    }

    /// What cannot be read is not there, and a snapshot of the own state is wanted, which can be.
    fn or_none<T: Default>(&mut self, read: Result<T, ReplicaError>) -> Result<T, Stopped> {
        match read {
            Err(error) if error.is_unreadable() => {
                self.replica.counts.lends_failed += 1;
                self.snapshots.wants_anew = true;
                Ok(T::default())
            }
            read => Ok(read?),
        }
    }

    /// Where the log may be trimmed, if that can be found out: else it takes its room.
    pub(crate) fn trim(&mut self, to: Sequence) -> Result<(), Stopped> {
        match self.log.let_go(to) {
            Err(error) if error.is_unreadable() => self.replica.counts.trims_failed += 1,
            place => self.snapshots.wants_trim = place?.or(self.snapshots.wants_trim),
        }
        Ok(())
    }
}
