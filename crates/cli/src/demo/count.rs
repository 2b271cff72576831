//! The count at the end: what the stopped stores' own files hold, and what the coordinator's journal says was decided.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use assent_coordinator::history::{self, Filter};
use assent_coordinator::{By, Identity};
use assent_ids::{NodeId, TxId, Xid};
use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::Kv;
use assent_world::{RealClock, RealDice, RealDisk};
use assent_xa::Outcome;

use super::bank::{ACCOUNTS, Bank, balance};
use super::plan::{Plan, StoreKind};
use super::report::ResolvedBranch;
use crate::failure::Failure;
use crate::tx::source;

/// What one store holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) accounts: u64,
    pub(super) sum: u64,
    pub(super) prepared: u64,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) stores: Vec<Held>,
    /// `None`: a state table keeps no history.
    decided: Option<BTreeMap<TxId, (Outcome, By)>>,
}

impl Counted {
    /// Reads the stopped stores, each in its own way.
    pub(super) fn read(folder: &Path, plan: &Plan) -> Result<Self, Failure> {
        let data = folder.join("coordinator").join("data");
        let node = Identity::load_or_create(&RealDisk, &RealDice, &data)?.node;
        let log = source::read_only(&data.join("coordinator"))?;
        let decided = log.keeps_history().then(|| past(&*log)).transpose()?;
        let mut stores = Vec::new();
        for store in &plan.stores {
            stores.push(match store.kind {
                StoreKind::Assent => files(&folder.join(&store.name).join("data"))?,
                _ => sql(&mut Bank::open(store, plan)?, node)?,
            });
        }
        Ok(Self { stores, decided })
    }

    /// What became of the transaction of which a frozen process spoke.
    pub(super) fn fate(&self, about: &str, resolved: &[ResolvedBranch]) -> String {
        let of_branch = || about.parse::<Xid>().ok().and_then(|xid| xid.branch()).map(|branch| branch.tx);
        let Some(tx) = about.parse::<TxId>().ok().or_else(of_branch) else {
            return "not known".to_owned();
        };
        let by_agent: Vec<&str> = resolved
            .iter()
            .filter(|branch| branch.tx == tx.to_string())
            .map(|branch| branch.resource.as_str())
            .collect();
        let helped = match by_agent.as_slice() {
            [] => String::new(),
            resources => format!("; finished by the agent in {}", resources.join(", ")),
        };
        let Some(decided) = &self.decided else {
            return format!("{tx}: a state table keeps no history{helped}");
        };
        match decided.get(&tx) {
            Some((Outcome::Committed, _)) => format!("{tx} committed{helped}"),
            Some((_, By::Client)) => format!("{tx} rolled back by its client{helped}"),
            Some(_) => format!("{tx} rolled back, decided by the agent{helped}"),
            None => format!("{tx} rolled back: never decided{helped}"),
        }
    }
}

fn past(log: &dyn Log) -> Result<BTreeMap<TxId, (Outcome, By)>, Failure> {
    let mut decided = BTreeMap::new();
    history::read(log, &Filter::default(), &mut |past| {
        _ = decided.insert(past.tx, (past.outcome, past.by));
        ControlFlow::Continue(())
    })?;
    Ok(decided)
}

fn archive(folder: &Path) -> Result<Arc<dyn Log>, Failure> {
    let (archive, _) = Journal::open_read_only(Arc::new(RealDisk), &RealClock, folder)?;
    Ok(Arc::new(archive))
}

fn files(data: &Path) -> Result<Held, Failure> {
    let log = archive(&data.join("kv"))?;
    let kv = Kv::open_read_only(
        log,
        Arc::new(RealDisk),
        Arc::new(RealClock),
        &data.join("kv-ledger"),
        assent_kv::Config::default(),
    )?;
    let mut held = Held { accounts: 0, sum: 0, prepared: u64::try_from(kv.prepared().len()).unwrap_or(u64::MAX) };
    let mut last: Option<Vec<u8>> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = kv.scan(ACCOUNTS, from, Bound::Unbounded, 1_000)?;
        for (key, bytes) in &rows {
            let money = balance(bytes)
                .ok_or_else(|| Failure::new(Kind::Corrupt, format!("account {key:?} holds no balance: {bytes:?}")))?;
            held.accounts += 1;
            held.sum += money;
        }
        match rows.last() {
            Some((key, _)) => last = Some(key.clone()),
            None => return Ok(held),
        }
    }
}

fn sql(bank: &mut Bank, node: NodeId) -> Result<Held, Failure> {
    let (accounts, sum) = bank.sum()?;
    Ok(Held { accounts, sum, prepared: bank.left_prepared(node)? })
}
