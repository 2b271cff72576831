//! Branches of distributed transactions: what each prepared one will do, whose assets it holds, and how the last ones ended.
//!
//! ```text
//!   prepare -> prepared: its writes as they will stand, its assets held -> commit | rollback -> finished, remembered
//! ```
//! A branch is prepared by one command, with all that it does; so nothing of it is anywhere before its vote.
//! Deliberately absent: business logic in a branch; deciding, which is the coordinator's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Xid;
use assent_membership::Sequence;
use xxhash_rust::xxh3::xxh3_64;

use crate::asset::{Asset, AssetId};
use crate::command::{lay_xid, read_xid};
use crate::config::Limits;
use crate::duties::Duty;
use crate::refusal::{signed, signless};
use crate::work::Held;

/// What an asset will be: nothing for one that will be gone.
pub(crate) type Write = (AssetId, Option<Asset>);

/// A branch that waits for its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) writes: Vec<Write>,
    pub(crate) at: Sequence,
    pub(crate) time_ms: u64,
}

/// A branch in doubt, as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// Its name.
    pub xid: Xid,
    /// The command that prepared it.
    pub at: Sequence,
    /// When that was ordered, in milliseconds since 1970.
    pub time_ms: u64,
    /// How many assets it holds.
    pub assets: usize,
}

/// What is known of a branch by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is prepared.
    Prepared,
    /// It was committed.
    Committed,
    /// It was rolled back.
    RolledBack,
    /// Nothing; all branches that ended at this sequence or later are remembered.
    Nothing {
        /// From where on.
        since: Sequence,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Finished {
    at: Sequence,
    xid: Xid,
    committed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Branches {
    prepared: BTreeMap<Xid, Arc<Prepared>>,
    held: Held,
    finished: VecDeque<Finished>,
    by_name: BTreeMap<Xid, (Sequence, bool)>,
    since: Sequence,
    digest: u64,
    limits: Limits,
}

/// The branches as they were at one moment.
#[derive(Clone, Debug)]
pub(crate) struct BranchesView {
    prepared: BTreeMap<Xid, Arc<Prepared>>,
    finished: VecDeque<Finished>,
    since: Sequence,
}

impl Branches {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            prepared: BTreeMap::new(),
            held: Held::new(),
            finished: VecDeque::new(),
            by_name: BTreeMap::new(),
            since: Sequence(0),
            digest: 0,
            limits,
        }
    }

    pub(crate) const fn held(&self) -> &Held {
        &self.held
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn get(&self, xid: &Xid) -> Option<&Arc<Prepared>> {
        self.prepared.get(xid)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.prepared.len() >= self.limits.prepared_max
    }

    pub(crate) fn known(&self, xid: &Xid) -> Known {
        if self.prepared.contains_key(xid) {
            return Known::Prepared;
        }
        match self.by_name.get(xid) {
            Some((_, true)) => Known::Committed,
            Some((_, false)) => Known::RolledBack,
            None => Known::Nothing { since: self.since },
        }
    }

    pub(crate) fn in_doubt(&self) -> Vec<InDoubt> {
        let listed = |(xid, branch): (&Xid, &Arc<Prepared>)| InDoubt {
            xid: *xid,
            at: branch.at,
            time_ms: branch.time_ms,
            assets: branch.writes.len(),
        };
        self.prepared.iter().map(listed).collect()
    }

    /// How many are prepared, and how many that ended are remembered.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.prepared.len(), self.finished.len())
    }

    pub(crate) fn prepare(&mut self, xid: Xid, branch: Prepared) {
        self.digest = self.digest.wrapping_add(digest(&xid, &branch));
        branch.writes.iter().for_each(|(id, _)| _ = self.held.insert(*id, xid));
        self.prepared.insert(xid, Arc::new(branch));
    }

    pub(crate) fn finish(&mut self, xid: &Xid, at: Sequence, committed: bool) {
        if let Some(branch) = self.prepared.remove(xid) {
            self.digest = self.digest.wrapping_sub(digest(xid, &branch));
            branch.writes.iter().for_each(|(id, _)| _ = self.held.remove(id));
            self.remember(Finished { at, xid: *xid, committed });
        }
    }

    fn remember(&mut self, finished: Finished) {
        self.by_name.insert(finished.xid, (finished.at, finished.committed));
        self.digest = self.digest.wrapping_add(digest_finished(&finished));
        self.finished.push_back(finished);
        while self.finished.len() > self.limits.finished_max {
            let Some(old) = self.finished.pop_front() else { return };
            self.digest = self.digest.wrapping_sub(digest_finished(&old));
            self.since = Sequence(old.at.0.saturating_add(1));
            // The same name may have been used again since.
            if self.by_name.get(&old.xid).is_some_and(|(at, _)| *at == old.at) {
                self.by_name.remove(&old.xid);
            }
        }
    }

    pub(crate) fn view(&self) -> BranchesView {
        BranchesView { prepared: self.prepared.clone(), finished: self.finished.clone(), since: self.since }
    }

    pub(crate) fn read_prepared(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let xid = read_xid(reader)?;
        let (at, time_ms) = (Sequence(reader.u64("prepared at")?), reader.u64("prepared when")?);
        let mut writes = Vec::new();
        for _ in 0..reader.u32("writes")? {
            let id = AssetId(reader.u64("asset")?);
            let asset = match reader.u8("write")? {
                0 => None,
                1 => Some(Asset { value: signed(reader.u64("value")?), updates: reader.u64("updates")? }),
                _ => return Err(Malformed { field: "write" }),
            };
            if self.held.contains_key(&id) || writes.iter().any(|(held, _)| *held == id) {
                return Err(Malformed { field: "asset" });
            }
            writes.push((id, asset));
        }
        if self.prepared.contains_key(&xid) {
            return Err(Malformed { field: "xid" });
        }
        self.prepare(xid, Prepared { writes, at, time_ms });
        if !Duty::Branches.is_kept() {
            self.prepared.clear();
        }
        if !Duty::Held.is_kept() {
            self.held.clear();
        }
        Ok(())
    }

    pub(crate) fn read_finished(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let at = Sequence(reader.u64("finished at")?);
        let committed = reader.u8("outcome")? == 1;
        self.remember(Finished { at, xid: read_xid(reader)?, committed });
        Ok(())
    }

    pub(crate) const fn remembers_since(&mut self, since: Sequence) {
        self.since = since;
    }
}

impl BranchesView {
    pub(crate) const fn since(&self) -> Sequence {
        self.since
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.prepared.len(), self.finished.len())
    }

    pub(crate) fn each_prepared<E>(&self, mut lay: impl FnMut(&dyn Fn(&mut Writer)) -> Result<(), E>) -> Result<(), E> {
        self.prepared.iter().try_for_each(|(xid, branch)| lay(&|out| lay_prepared(out, xid, branch)))
    }

    pub(crate) fn each_finished<E>(&self, mut lay: impl FnMut(&dyn Fn(&mut Writer)) -> Result<(), E>) -> Result<(), E> {
        self.finished.iter().try_for_each(|finished| lay(&|out| lay_finished(out, finished)))
    }
}

fn lay_prepared(out: &mut Writer, xid: &Xid, branch: &Prepared) {
    lay_xid(out, xid);
    out.u64(branch.at.0).u64(branch.time_ms).u32(u32::try_from(branch.writes.len()).unwrap_or(u32::MAX));
    for (id, asset) in &branch.writes {
        out.u64(id.0);
        match asset {
            Some(asset) => _ = out.u8(1).u64(signless(asset.value)).u64(asset.updates),
            None => _ = out.u8(0),
        }
    }
}

fn lay_finished(out: &mut Writer, finished: &Finished) {
    out.u64(finished.at.0).u8(u8::from(finished.committed));
    lay_xid(out, &finished.xid);
}

fn digest(xid: &Xid, branch: &Prepared) -> u64 {
    let mut out = Writer::new();
    lay_prepared(&mut out, xid, branch);
    xxh3_64(out.as_slice())
}

fn digest_finished(finished: &Finished) -> u64 {
    let mut out = Writer::new();
    lay_finished(&mut out, finished);
    xxh3_64(out.as_slice())
}
