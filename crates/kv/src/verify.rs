//! Everything is read once: whether it is as it was written.
//!
//! Walk: [`Kv::verify`]: the ledger's files, the volumes, the journal, and then each value that a key has.
//! Deliberately absent: repair.

use assent_ids::Lsn;
use assent_journal::{Entries, JournalError};

use crate::{Kv, KvError};

/// What a check of everything found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files of the ledger that were read.
    pub runs: u64,
    /// Compacted volumes, and the items in them that are whole.
    pub volumes: u64,
    /// The items.
    pub items: u64,
    /// Entries of the journal, those of kept stretches too.
    pub entries: u64,
    /// Keys whose values are those that were written.
    pub values: u64,
    /// Places that are damaged.
    pub damaged: u64,
    /// It was told to stop: of the rest nothing is known.
    pub stopped: bool,
}

impl Kv {
    /// Reads everything; each damage is told, by file and place or by key. Readers and writers go on meanwhile; what was
    /// written since the call may or may not be looked at.
    pub fn verify(&self, told: &mut dyn FnMut(&KvError)) -> Verified {
        self.verify_until(&|| false, told)
    }

    /// As [`Kv::verify`], until it is told to stop: it asks before each file, each entry and each value.
    pub fn verify_until(&self, is_stopped: &dyn Fn() -> bool, told: &mut dyn FnMut(&KvError)) -> Verified {
        let mut verified = Verified::default();
        let mut damaged = 0;
        let mut tell = |error: &KvError| {
            damaged += 1;
            told(error);
        };
        verified.runs = self.shared.ledger.verify(is_stopped, &mut |error| tell(&KvError::from(error.clone())));
        let snapshot = self.snapshot();
        for held in snapshot.set().volumes.iter().take_while(|_| !is_stopped()) {
            verified.volumes += 1;
            match &held.volume {
                Ok(volume) => verified.items += volume.verify(&mut |error| tell(&KvError::from(error.clone()))),
                Err(error) => tell(&KvError::from(error.clone())),
            }
        }
        verified.entries = self.read_journal(is_stopped, &mut tell);
        snapshot.each_value(is_stopped, &mut |value| match value {
            Ok(()) => verified.values += 1,
            Err(error) => tell(&error),
        });
        if let Some(error) = self.broken_account() {
            tell(&error);
        }
        (verified.damaged, verified.stopped) = (damaged, is_stopped());
        verified
    }

    /// From the first place that volumes do not have, and what of it is kept before. Behind damage it goes on with the next stretch;
    /// within one, what is behind damage is read by address only.
    fn read_journal(&self, is_stopped: &dyn Fn() -> bool, tell: &mut dyn FnMut(&KvError)) -> u64 {
        let log = &*self.shared.log;
        let set = self.shared.values.pin();
        let stretches: Vec<Lsn> = log.sealed().iter().map(|span| span.first).chain([log.start()]).collect();
        let mut whole = 0;
        for kept in set.kept() {
            let (entries, _, damage) = read_on(
                kept.first,
                log.begun(Lsn(kept.first), Lsn(kept.reads_to()), Lsn(kept.complete_by())),
                is_stopped,
            );
            whole += entries;
            if let Some(damage) = damage {
                tell(&damage.into());
            }
        }
        let mut from = log.oldest().max(Lsn(set.raw_from));
        loop {
            let (entries, at, damage) = read_on(from.0, log.read(from), is_stopped);
            whole += entries;
            let Some(damage) = damage else { return whole };
            tell(&damage.into());
            let Some(next) = stretches.iter().find(|first| **first > at) else { return whole };
            from = *next;
        }
    }
}

/// How many entries are whole from a place on, where the last of them ends, and what is damaged behind it.
fn read_on(
    from: u64,
    entries: Result<Entries<'_>, JournalError>,
    is_stopped: &dyn Fn() -> bool,
) -> (u64, Lsn, Option<JournalError>) {
    let (mut whole, mut at) = (0, Lsn(from));
    let entries = match entries {
        Ok(entries) => entries,
        Err(error) => return (whole, at, Some(error)),
    };
    for entry in entries.take_while(|_| !is_stopped()) {
        match entry {
            Ok(entry) => (whole, at) = (whole + 1, at.max(entry.end)),
            Err(error) => return (whole, at, Some(error)),
        }
    }
    (whole, at, None)
}
