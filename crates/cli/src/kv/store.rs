//! A store to read from: a running server's, or a stopped one's folder, which is only read.
//!
//! Walk: [`Store::open`] · [`Store::value`], [`Store::heads`] and [`Store::walk`] read · [`Store::stats`] counts. Writing goes through
//! [`serving`].

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use assent_journal::Journal;
use assent_kind::Kind;
use assent_kv::{Keyspace, Snapshot};
use assent_link::{Link, LinkConfig};
use assent_wire::{Answer, Hello, KeyspaceQuery, KeyspaceView, Look, Object, Request, Role, Rows, Scan};
use assent_world::{Lock, RealClock, RealDisk};
use serde::Serialize;

use super::key::Span;
use super::options::From;
use super::unexpected;
use crate::alone::alone;
use crate::failure::Failure;
use crate::tx::moment;

/// Rows asked for in one message.
const PAGE: u32 = 10_000;
/// Of a stopped store's, which refuses more than 256 MiB of keys and metadata at once: all of these may be as long as they can be.
const PAGE_STOPPED: usize = 1_000;
const _: () = assert!(
    PAGE_STOPPED * (assent_kv::KEY_BYTES_MAX as usize + assent_kv::METADATA_BYTES_MAX as usize) < 256 << 20,
    "a page of the longest keys"
);
/// So often a long value is read that others write meanwhile.
const READS_MAX: u32 = 64;
/// A long value needs its time on a slow disk.
const ANSWER_MS: u64 = 300_000;

/// All of a large store on a slow disk: a day.
pub(super) const WORK_MS: u64 = 86_400_000;

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) key: Vec<u8>,
    pub(super) lsn: u64,
    pub(super) modified_ms: u64,
    pub(super) expiry_ms: u64,
    pub(super) hash: u64,
    pub(super) value_bytes: u32,
    pub(super) metadata: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

impl Known {
    fn of(key: &[u8], object: &Object<'_>) -> Self {
        Self {
            key: key.to_vec(),
            lsn: object.lsn.0,
            modified_ms: object.modified_ms,
            expiry_ms: object.expiry_ms,
            hash: object.hash,
            value_bytes: object.value_bytes,
            metadata: object.metadata.to_vec(),
            value: object.value.map(<[u8]>::to_vec),
        }
    }

    fn read(key: Vec<u8>, head: assent_kv::Head, value: Option<Vec<u8>>) -> Self {
        let assent_kv::Head { value_bytes, hash, metadata, committed, modified, expiry, .. } = head;
        Self { key, lsn: committed.0, modified_ms: modified, expiry_ms: expiry, hash, value_bytes, metadata, value }
    }
}

/// What a look at everything has found.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    pub(super) runs: u64,
    pub(super) volumes: u64,
    pub(super) items: u64,
    pub(super) entries: u64,
    pub(super) values: u64,
    pub(super) damaged: u64,
    pub(super) damages: Vec<String>,
}

/// Where keys are read.
pub(super) enum Store {
    Served(Box<Link>),
    /// As of its last moment; its lock is held, so that nobody serves it meanwhile.
    Stopped {
        kv: Box<assent_kv::Kv>,
        snapshot: Snapshot,
        stats: Box<assent_kv::Stats>,
        _lock: Option<Box<dyn Lock>>,
    },
}

/// A connection to a running server, to work on its store.
pub(super) fn serving(server: &str) -> Result<Link, Failure> {
    patient(server, ANSWER_MS)
}

/// The same for somebody who waits so long for keys that prepared branches hold.
pub(super) fn waiting(server: &str, wait: Option<&str>) -> Result<Link, Failure> {
    let Some(wait) = wait else { return serving(server) };
    let ms = moment::pause_ms(wait)?;
    let patience = u32::try_from(ms)
        .map_err(|_| Failure::invalid(format!("--wait {wait}: {ms} milliseconds; at most {} are waited", u32::MAX)))?;
    let link = patient(server, ANSWER_MS.saturating_add(ms))?;
    link.request(&Request::Patience(patience))?.answer()?;
    Ok(link)
}

/// The same for work that takes as long as it takes.
pub(super) fn patient(server: &str, answer_ms: u64) -> Result<Link, Failure> {
    let address = server
        .parse()
        .map_err(|error: assent_world::net::AddressError| Failure::invalid(format!("--server {server:?}: {error}")))?;
    let config = LinkConfig { answer_ms, ..LinkConfig::default() };
    Ok(Link::connect(&address, &Hello::new(Role::Store { label: "assent kv" }), &config)?)
}

impl Store {
    pub(super) fn open(from: &From) -> Result<Self, Failure> {
        match &from.data {
            Some(folder) => stopped(folder),
            None => serving(&from.server.server).map(|link| Self::Served(Box::new(link))),
        }
    }

    /// To work on all of it.
    pub(super) fn open_for_long(from: &From) -> Result<Self, Failure> {
        match &from.data {
            Some(folder) => stopped(folder),
            None => patient(&from.server.server, WORK_MS).map(|link| Self::Served(Box::new(link))),
        }
    }

    /// The number of a keyspace, by its name or by itself.
    pub(super) fn keyspace(&self, text: &str) -> Result<u32, Failure> {
        match self {
            Self::Served(link) => keyspace(link, text),
            Self::Stopped { kv, .. } => match text.parse() {
                Ok(id) => Ok(id),
                Err(_) => kv.keyspace(text)?.map(|found| found.id).ok_or_else(|| unnamed(text)),
            },
        }
    }

    /// All keyspaces that have names.
    pub(super) fn keyspaces(&self) -> Result<Vec<Keyspace>, Failure> {
        let link = match self {
            Self::Served(link) => link,
            Self::Stopped { kv, .. } => return Ok(kv.keyspaces()?),
        };
        let mut all: Vec<Keyspace> = Vec::new();
        loop {
            let after = all.last().map(|last| last.name.clone());
            let query = KeyspaceQuery { name: None, after: after.as_deref() };
            let (list, more) = listed(link, &Request::Keyspaces(query))?;
            let is_over = !more || list.is_empty();
            all.extend(list);
            if is_over {
                return Ok(all);
            }
        }
    }

    /// A key's value.
    pub(super) fn value(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            Self::Served(link) => {
                let arrived = link.request(&Request::Get { xid: None, keyspace, key })?;
                let Answer::Value(value) = arrived.answer()? else { return Err(unexpected()) };
                Ok(value.map(<[u8]>::to_vec))
            }
            Self::Stopped { snapshot, .. } => Ok(snapshot.get(keyspace, key)?),
        }
    }

    /// What is known of these keys, without their values.
    pub(super) fn heads(&self, keyspace: u32, keys: &[Vec<u8>]) -> Result<Vec<Option<Known>>, Failure> {
        let mut found = Vec::new();
        while let Some(rest) = keys.get(found.len()..).filter(|rest| !rest.is_empty()) {
            match self {
                Self::Served(link) => {
                    let asked = rest.iter().map(|key| (keyspace, key.as_slice())).collect();
                    let arrived = link.request(&Request::Look(Look { values: false, keys: asked }))?;
                    let Answer::Objects(objects) = arrived.answer()? else { return Err(unexpected()) };
                    if objects.is_empty() {
                        return Err(unexpected());
                    }
                    let known = |(object, key): (&Option<Object<'_>>, &Vec<u8>)| object.map(|it| Known::of(key, &it));
                    found.extend(objects.iter().zip(rest).map(known));
                }
                Self::Stopped { snapshot, .. } => {
                    for key in rest {
                        let head = snapshot.head(keyspace, key)?;
                        found.push(head.map(|head| Known::read(key.clone(), head, None)));
                    }
                }
            }
        }
        Ok(found)
    }

    /// From here on what is read is as of this moment, as a stopped one's folder is. A server of an earlier release cannot: whether this does.
    pub(super) fn of_one_moment(&self) -> Result<bool, Failure> {
        let Self::Served(link) = self else { return Ok(true) };
        let request = Request::AsOf(u32::MAX);
        if link.welcome().version < request.since() {
            return Ok(false);
        }
        match link.request(&request)?.answer()? {
            Answer::Written(_) => Ok(true),
            _ => Err(unexpected()),
        }
    }

    /// Hands out the keys of a range in their order, until there are no more or `then` says that it is enough: of so many it is, at most.
    pub(super) fn walk(
        &self,
        keyspace: u32,
        span: &Span,
        (values, most): (bool, u64),
        mut then: impl FnMut(Known) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut last: Option<Vec<u8>> = None;
        let mut left = most;
        loop {
            let limit = u32::try_from(left).unwrap_or(u32::MAX).clamp(1, PAGE);
            let (page, more) = self.page(keyspace, span, last.as_deref(), (values, limit))?;
            last = page.last().map(|known| known.key.clone());
            left = left.saturating_sub(page.len() as u64);
            for known in page {
                let known = if values && known.value.is_none() { self.whole(keyspace, known)? } else { Some(known) };
                if let Some(known) = known
                    && !then(known)?
                {
                    return Ok(());
                }
            }
            if !more || last.is_none() {
                return Ok(());
            }
        }
    }

    /// With the value, which was too long for an answer together with others; as of now, if it was written anew meanwhile: all of it, for
    /// another's metadata and expiry are not this value's. None if it is gone.
    fn whole(&self, keyspace: u32, mut known: Known) -> Result<Option<Known>, Failure> {
        for _ in 0..READS_MAX {
            let Some(value) = self.value(keyspace, &known.key)? else { return Ok(None) };
            let now = match self {
                // Of the one snapshot there is.
                Self::Stopped { .. } => None,
                Self::Served(_) => match self.heads(keyspace, std::slice::from_ref(&known.key))?.pop().flatten() {
                    None => return Ok(None),
                    Some(now) => Some(now),
                },
            };
            match now {
                Some(now) if now.lsn != known.lsn => known = now,
                _ => return Ok(Some(Known { value: Some(value), ..known })),
            }
        }
        let message = format!("a value of {} bytes was written anew each time that it was read", known.value_bytes);
        Err(Failure::new(Kind::Busy, message))
    }

    fn page(
        &self,
        keyspace: u32,
        span: &Span,
        last: Option<&[u8]>,
        (values, limit): (bool, u32),
    ) -> Result<(Vec<Known>, bool), Failure> {
        match self {
            Self::Served(link) => {
                use assent_wire::Bound;
                let from = last.map_or(Bound::Included(&span.from), Bound::Excluded);
                let to = span.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let scan = Scan { xid: None, keyspace, from, to, limit };
                let arrived = link.request(&Request::Rows(Rows { values, scan }))?;
                let Answer::Rows { more, rows } = arrived.answer()? else { return Err(unexpected()) };
                Ok((rows.iter().map(|row| Known::of(row.key, &row.object)).collect(), more))
            }
            Self::Stopped { snapshot, .. } => {
                let from = last.map_or(Bound::Included(span.from.as_slice()), Bound::Excluded);
                let to = span.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let page = if values { 64 } else { PAGE_STOPPED };
                let heads = snapshot.heads(keyspace, from, to, page)?;
                let more = heads.len() == page;
                let read = |(key, head): (Vec<u8>, assent_kv::Head)| Known::read(key, head, None);
                Ok((heads.into_iter().map(read).collect(), more))
            }
        }
    }

    /// Reads everything.
    pub(super) fn verify(&self) -> Result<Checked, Failure> {
        match self {
            Self::Served(link) => {
                let arrived = link.request(&Request::StoreVerify)?;
                let Answer::Checked(it) = arrived.answer()? else { return Err(unexpected()) };
                Ok(Checked {
                    runs: it.runs,
                    volumes: it.volumes,
                    items: it.items,
                    entries: it.entries,
                    values: it.values,
                    damaged: it.damaged,
                    damages: it.damages.iter().map(|damage| (*damage).to_owned()).collect(),
                })
            }
            Self::Stopped { kv, .. } => {
                let mut damages = Vec::new();
                let it = kv.verify(&mut |error| damages.push(error.to_string()));
                let assent_kv::Verified { runs, volumes, items, entries, values, damaged, stopped: _ } = it;
                Ok(Checked { runs, volumes, items, entries, values, damaged, damages })
            }
        }
    }

    /// Every gauge of the store by its name.
    pub(super) fn stats(&self) -> Result<Vec<(String, u64)>, Failure> {
        match self {
            Self::Served(link) => {
                let arrived = link.request(&Request::Stats)?;
                let Answer::Stats(gauges) = arrived.answer()? else { return Err(unexpected()) };
                let plain = |(name, value): &(&str, u64)| (name.trim_start_matches("kv.").to_owned(), *value);
                Ok(gauges.iter().map(plain).collect())
            }
            Self::Stopped { kv, stats, .. } => {
                let mut named = assent_server::views::store(stats);
                named.extend(assent_server::views::ledger(kv));
                named.sort_unstable();
                Ok(named.iter().map(|(name, value)| (name.trim_start_matches("kv.").to_owned(), *value)).collect())
            }
        }
    }
}

/// The keyspaces of an answer, and whether there are more.
pub(super) fn listed(link: &Link, request: &Request<'_>) -> Result<(Vec<Keyspace>, bool), Failure> {
    let arrived = link.request(request)?;
    let Answer::Keyspaces { more, list } = arrived.answer()? else { return Err(unexpected()) };
    let own = |view: &KeyspaceView<'_>| Keyspace { id: view.id, name: view.name.to_owned(), created: view.created_ms };
    Ok((list.iter().map(own).collect(), more))
}

/// The number of a running server's keyspace, by its name or by itself.
pub(super) fn keyspace(link: &Link, text: &str) -> Result<u32, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let query = KeyspaceQuery { name: Some(text), after: None };
    let (list, _) = listed(link, &Request::Keyspaces(query))?;
    list.first().map(|found| found.id).ok_or_else(|| unnamed(text))
}

fn unnamed(text: &str) -> Failure {
    let message = format!("there is no keyspace {text:?}; assent kv keyspace create {text} makes it");
    Failure::new(Kind::NotFound, message)
}

fn stopped(folder: &Path) -> Result<Store, Failure> {
    let journal = folder.join("kv");
    if !journal.is_dir() {
        let message = format!("{} is no data folder of a store: it has no folder kv", folder.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    let disk = Arc::new(RealDisk);
    let lock = alone(&journal)?;
    let (log, _) = Journal::open_read_only(disk.clone(), &RealClock, &journal)?;
    let settings = assent_kv::Config::default();
    let kv =
        assent_kv::Kv::open_read_only(Arc::new(log), disk, Arc::new(RealClock), &folder.join("kv-ledger"), settings)?;
    let (snapshot, stats) = (kv.snapshot(), Box::new(kv.stats()));
    Ok(Store::Stopped { kv: Box::new(kv), snapshot, stats, _lock: lock })
}
