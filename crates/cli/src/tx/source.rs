//! Where it comes from: a running server, or a stopped one's folder, read as its next start would and never written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_coordinator::engine::{self, Engine, TableLog};
use assent_coordinator::{Coordinator, Identity};
use assent_ids::{NodeId, ResourceId, TxId};
use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_server::views::{self, Named};
use assent_wire::{Answer, Request};
use assent_world::{Lock, RealClock, RealDisk};

use super::head::Head;
use super::seen::Transaction;
use super::{admin, unexpected};
use crate::alone::alone;
use crate::args::Source;
use crate::config::{Config, Resource};
use crate::failure::Failure;
use crate::serve::connector;

/// Transactions asked for in one message.
const PAGE: u32 = 1_000;

/// All that are in doubt or unfinished, and what is counted of them.
pub(super) fn list(from: &Source) -> Result<(Head, Vec<Transaction>), Failure> {
    if let Some(folder) = &from.data {
        let ((coordinator, node), names) = (stopped(folder)?, Names::of(from)?);
        let gauges = coordinator.gauges();
        // Undecided ones are known by their resources, and nobody asks those here.
        let head = Head { held: None, heuristic: gauges.heuristic, rivals: None };
        return Ok((head, coordinator.list().iter().map(|view| offline(node, &names, view)).collect()));
    }
    let link = admin(&from.server)?;
    let arrived = link.request(&Request::Stats)?;
    let Answer::Stats(gauges) = arrived.answer()? else { return Err(unexpected()) };
    let head = Head::of(&gauges);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let arrived = link.request(&Request::TxList { after, limit: PAGE })?;
        let Answer::Transactions { more, list } = arrived.answer()? else { return Err(unexpected()) };
        after = list.last().map(|one| one.tx);
        all.extend(list.iter().map(Transaction::of));
        if !more || after.is_none() {
            return Ok((head, all));
        }
    }
}

/// One of them.
pub(super) fn show(from: &Source, tx: TxId) -> Result<Option<Transaction>, Failure> {
    match &from.data {
        Some(folder) => {
            let ((coordinator, node), names) = (stopped(folder)?, Names::of(from)?);
            Ok(coordinator.show(tx).map(|view| offline(node, &names, &view)))
        }
        None => ask(&from.server, tx),
    }
}

/// One of them, from a running server.
pub(super) fn ask(server: &str, tx: TxId) -> Result<Option<Transaction>, Failure> {
    let link = admin(server)?;
    let arrived = link.request(&Request::TxShow(tx))?;
    let Answer::Transactions { list, .. } = arrived.answer()? else { return Err(unexpected()) };
    Ok(list.iter().find(|one| one.tx == tx).map(Transaction::of))
}

fn offline(node: NodeId, names: &Names, view: &assent_coordinator::TransactionView) -> Transaction {
    let names: Vec<Named> = view.branches.iter().map(|branch| names.named(branch.resource)).collect();
    Transaction::of(&views::transaction(node, view, &names))
}

/// The names of resources: a stopped server's journal knows ids, names stand in its configuration.
pub(super) struct Names(BTreeMap<ResourceId, Named>);

impl Names {
    pub(super) fn of(from: &Source) -> Result<Self, Failure> {
        let Some(file) = &from.config else { return Ok(Self(BTreeMap::new())) };
        let named = |it: Resource| {
            // A URL in a file that is not there now keeps nobody from the names.
            let place = connector(&it).map(|it| it.place()).unwrap_or_default();
            (ResourceId::of(&it.name), Named { name: it.name, place })
        };
        Ok(Self(Config::load(file, &[])?.resources.into_iter().map(named).collect()))
    }

    /// One that is known without a configuration.
    pub(super) fn with(mut self, name: Option<&str>) -> Self {
        let named = |name: &str| (ResourceId::of(name), Named { name: name.to_owned(), place: String::new() });
        self.0.extend(name.map(named));
        self
    }

    pub(super) fn name(&self, id: ResourceId) -> String {
        self.named(id).name
    }

    fn named(&self, id: ResourceId) -> Named {
        self.0.get(&id).cloned().unwrap_or_else(|| Named { name: id.to_string(), place: String::new() })
    }
}

/// What to say of resources that are shown by their ids.
pub(super) fn unnamed(from: &Source) -> Option<&'static str> {
    let is_unnamed = from.data.is_some() && from.config.is_none();
    is_unnamed.then_some("a stopped server's folder knows resources by their ids; --config FILE shows their names")
}

/// A stopped coordinator's log, and what keeps it stopped meanwhile.
pub(super) struct Kept {
    pub(super) log: Arc<dyn Log>,
    _lock: Option<Box<dyn Lock>>,
}

/// A stopped coordinator's log.
pub(super) fn log(folder: &Path) -> Result<Kept, Failure> {
    let journal = folder.join("coordinator");
    if !folder.join("node").is_file() || !journal.is_dir() {
        let message = format!("{} is no coordinator's data folder: it has no node file", folder.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    let lock = alone(&journal)?;
    Ok(Kept { log: read_only(&journal)?, _lock: lock })
}

/// What keeps a stopped coordinator's state, to read.
pub(crate) fn read_only(folder: &Path) -> Result<Arc<dyn Log>, Failure> {
    if engine::is_foreign(&RealDisk, folder, Engine::Journal)?.is_some() {
        let (table, _) = TableLog::open_read_only(&RealDisk, Arc::new(RealClock), folder)?;
        return Ok(Arc::new(table));
    }
    let (archive, _) = Journal::open_read_only(Arc::new(RealDisk), &RealClock, folder)?;
    Ok(Arc::new(archive))
}

fn stopped(folder: &Path) -> Result<(Coordinator, NodeId), Failure> {
    // What it has told is in memory before the lock goes.
    let Kept { log, _lock } = log(folder)?;
    let identity = Identity::load(&RealDisk, folder)?;
    let node = identity.node;
    let settings = assent_coordinator::Config::default();
    Ok((Coordinator::open(log, Arc::new(RealClock), identity, settings)?, node))
}
