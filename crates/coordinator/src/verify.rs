//! The hash chain checked: whether the log still says what it said when it was sealed.
//!
//! What it proves: no record between the first seal that is still there and the last one was changed, removed, added or
//! put elsewhere, by anybody who could not also lay all seals behind it anew. Who can rewrite the whole tail is found out
//! by a seal that somebody kept elsewhere ([`Verified::head`], printed now and then), and only by that. What stands behind
//! the last seal is not proved yet.

use assent_ids::Lsn;
use assent_journal::Log;

use crate::chain::{Chain, Digest, Seal};
use crate::record::{self, Record};
use crate::{CoordinatorError, record::Checkpoint};

/// What a whole chain says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Seals that fit.
    pub seals: u64,
    /// Records read, seals included.
    pub records: u64,
    /// The first seal; `None`: nothing has been sealed yet.
    pub first: Option<Seal>,
    /// The last one. Its number and digest, kept elsewhere, prove everything up to it later.
    pub head: Option<Seal>,
    /// The log reaches back to its birth, so the first run is proved too; else it is taken on trust.
    pub is_whole: bool,
    /// Records behind the last seal: not proved yet.
    pub unsealed: u64,
}

/// Reads the log and checks every seal; `kept` is a seal's number and digest that somebody noted elsewhere.
///
/// # Errors
/// As the log says; [`CoordinatorError::Chain`] with the place of the first seal that does not fit, or of the log's end
/// where `kept` is not in the chain; [`CoordinatorError::Reach`] where the log begins behind it; [`CoordinatorError::Record`] for a seal that cannot be read;
/// [`CoordinatorError::NoHistory`] for a state table.
pub fn verify(log: &dyn Log, kept: Option<(u64, Digest)>) -> Result<Verified, CoordinatorError> {
    crate::history::kept(log)?;
    let start = log.oldest();
    let is_whole = start == Lsn(0);
    let mut check = Check { is_whole, is_known: is_whole, kept, ..Check::default() };
    let mut end = start;
    for entry in log.read(start)? {
        let entry = entry?;
        end = entry.end;
        check.enter(entry.lsn, entry.kind, &entry.payload)?;
    }
    if let Some((number, digest)) = check.kept {
        if let Some(reaches) = check.reaches.filter(|reaches| number < *reaches && !is_whole) {
            return Err(CoordinatorError::Reach { number, reaches });
        }
        return Err(broken(end, format!("seal {number} with the digest {digest} is not in this log")));
    }
    let unsealed = check.chain.count();
    Ok(Verified { is_whole: check.is_whole && check.done.first.is_some(), unsealed, ..check.done })
}

#[derive(Default)]
struct Check {
    done: Verified,
    chain: Chain,
    is_whole: bool,
    /// Where the chain stands is known: from the log's birth, the first seal, or a checkpoint that repeats one.
    is_known: bool,
    kept: Option<(u64, Digest)>,
    /// The first seal that is read, or that a checkpoint repeats.
    reaches: Option<u64>,
}

impl Check {
    fn enter(&mut self, lsn: Lsn, kind: u16, payload: &[u8]) -> Result<(), CoordinatorError> {
        self.done.records += 1;
        if !matches!(kind, record::SEAL | record::CHECKPOINT) {
            self.chain.take(kind, &[payload]);
            return Ok(());
        }
        let record = Record::read(kind, payload).map_err(|malformed| CoordinatorError::record(lsn, kind, malformed))?;
        match record {
            Some(Record::Seal(seal)) => self.seal(lsn, seal)?,
            Some(Record::Checkpoint(Checkpoint { seal: Some(seal), .. })) => {
                if self.is_known && (self.chain.last() != seal || self.chain.count() > 0) {
                    let before = self.chain.last().number;
                    let what = format!("a checkpoint says that it follows seal {}, it follows {before}", seal.number);
                    return Err(broken(lsn, what));
                }
                self.keeps(lsn, seal)?;
                self.chain = Chain::behind(seal);
                self.chain.take(kind, &[payload]);
                self.is_known = true;
            }
            _ => self.chain.take(kind, &[payload]),
        }
        Ok(())
    }

    fn seal(&mut self, lsn: Lsn, seal: Seal) -> Result<(), CoordinatorError> {
        let due = self.chain.seal(seal.at_ms);
        if self.is_known && seal != due {
            return Err(broken(lsn, difference(&seal, &due)));
        }
        self.keeps(lsn, seal)?;
        self.is_known = true;
        self.done.seals += 1;
        _ = self.done.first.get_or_insert(seal);
        self.done.head = Some(seal);
        self.chain = Chain::behind(seal);
        Ok(())
    }
}

impl Check {
    /// What somebody noted of it elsewhere.
    fn keeps(&mut self, lsn: Lsn, Seal { number, digest: is, .. }: Seal) -> Result<(), CoordinatorError> {
        _ = self.reaches.get_or_insert(number);
        if let Some((_, digest)) = self.kept.filter(|(kept, _)| *kept == number) {
            if digest != is {
                return Err(broken(lsn, format!("seal {number} was noted as {digest}, it is {is}")));
            }
            self.kept = None;
        }
        Ok(())
    }
}

fn difference(seal: &Seal, due: &Seal) -> String {
    let number = seal.number;
    if number != due.number {
        return format!(
            "seal {number} stands where seal {} belongs: records are missing or in a wrong order",
            due.number
        );
    }
    if seal.previous != due.previous {
        return format!("seal {number} does not follow the seal before it");
    }
    if seal.count != due.count {
        return format!("seal {number} covers {} records, there are {} since the seal before", seal.count, due.count);
    }
    format!("the {} records before seal {number} are not those that it sealed", seal.count)
}

const fn broken(lsn: Lsn, what: String) -> CoordinatorError {
    CoordinatorError::Chain { lsn, what }
}
