//! How many connections the process's descriptors allow: newcomers must never take what a journal needs for its next
//! segment, because a journal that cannot open a file closes for good.

use assent_kind::Kind;
use assent_world::{expect_descriptors, files_max};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::failure::Failure;

/// Journals, checkpoints, listeners, event queues, standard streams.
const OWN: u64 = 64;
/// Files of an engine's journal that are read from, where few may be open, and of its ledger or its index. Where few are left, each engine is
/// taken to have as much of it as the connections.
const JOURNAL_LEAST: u64 = 128;
const LEDGER: u64 = 64;
/// Of each registered resource: the agent's connections, and a few that are being closed.
const EACH_RESOURCE: u64 = 8;
/// Connections that are told that there is no place, while they are told.
const TURNED_AWAY: u64 = 64;
/// Connections of the admin listener, at most.
pub(crate) const ADMIN: u32 = 64;

/// Places for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Of the binary protocol.
    pub(crate) protocol: u32,
    /// Of health and metrics.
    pub(crate) admin: u32,
    /// Of documents, where they are served.
    pub(crate) docs: u32,
}

impl Places {
    /// The same, half of the protocol's for documents.
    const fn with_documents(self, has_documents: bool) -> Self {
        if !has_documents {
            return self;
        }
        let docs = self.protocol / 2;
        // One place is one for whoever comes first.
        let docs = if docs == 0 { 1 } else { docs };
        Self {
            protocol: self.protocol.saturating_sub(docs).saturating_add(if self.protocol < 2 { 1 } else { 0 }),
            docs,
            ..self
        }
    }
}

/// What the process may open. Engines look at its limit when they are opened: whoever opens one has one of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors(u64);

/// Engines that keep files open to read them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Engines {
    pub(crate) store: bool,
    /// It reads long values past the page cache: each file of its journal and its volumes is open twice then.
    pub(crate) reads_directly: bool,
    pub(crate) documents: bool,
}

impl Engines {
    fn many(self) -> u64 {
        u64::from(self.store) + u64::from(self.documents)
    }

    /// What they keep open, of a process that may open so many.
    fn files(self, descriptors: u64) -> u64 {
        let most = u64::from(files_max(descriptors));
        let journal = most.max(JOURNAL_LEAST);
        // A store has volumes, too.
        let values = (journal + most).saturating_mul(if self.reads_directly { 2 } else { 1 });
        (if self.store { values + LEDGER } else { 0 }) + if self.documents { journal + LEDGER } else { 0 }
    }
}

impl Descriptors {
    /// Raises the process's limit as far as it may.
    pub(crate) fn raised() -> Self {
        let limit = getrlimit(Resource::Nofile);
        // Nothing is lost if it may not: the limit stays as it was.
        _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        Self(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    /// Shares them out.
    ///
    /// # Errors
    /// `Invalid` if not even one connection would fit.
    pub(crate) fn places(self, connections_max: u32, resources: usize, engines: Engines) -> Result<Places, Failure> {
        let Self(descriptors) = self;
        let places = share(descriptors, connections_max, resources, engines)?.with_documents(engines.documents);
        // Who connects, and whoever reads a file that is not open yet, waits for no longer table.
        expect_descriptors(
            kept(connections_max, resources)
                .saturating_add(engines.files(descriptors))
                .saturating_add(connections_max.into()),
        );
        if places.protocol < connections_max {
            let Places { protocol, .. } = places;
            warn!("{descriptors} descriptors allow {protocol} connections, not {connections_max}; raise ulimit -n");
        }
        Ok(places)
    }
}

impl Places {
    /// The same, and how many of the protocol's are for clients of assets: half of them, where assets are served.
    pub(crate) const fn with_assets(self, has_assets: bool) -> (Self, u32) {
        let Self { protocol, .. } = self;
        let assets = if has_assets { protocol / 2 } else { 0 };
        // One place is one for whoever comes first.
        let assets = if has_assets && assets == 0 { 1 } else { assets };
        (Self { protocol: if protocol < 2 { protocol } else { protocol - assets }, ..self }, assets)
    }
}

/// What is kept for all else than engines and connections.
fn kept(connections_max: u32, resources: usize) -> u64 {
    let resources = u64::try_from(resources).unwrap_or(u64::MAX).saturating_mul(EACH_RESOURCE);
    OWN.saturating_add(resources).saturating_add(TURNED_AWAY).saturating_add(ADMIN.min(connections_max).into())
}

fn share(descriptors: u64, connections_max: u32, resources: usize, engines: Engines) -> Result<Places, Failure> {
    let (admin, kept) = (ADMIN.min(connections_max), kept(connections_max, resources));
    match descriptors.saturating_sub(kept) {
        0 => Err(Failure::new(
            Kind::Invalid,
            format!("{descriptors} descriptors; at least {} are needed: raise ulimit -n", kept.saturating_add(1)),
        )),
        left => {
            let left = left - engines.files(descriptors).min(left * engines.many() / (engines.many() + 1));
            Ok(Places { protocol: u32::try_from(left).unwrap_or(u32::MAX).min(connections_max), admin, docs: 0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Engines = Engines { store: false, reads_directly: false, documents: false };
    const STORE: Engines = Engines { store: true, ..NONE };

    #[test]
    fn connections_take_only_what_the_engines_leave() {
        assert_eq!(share(u64::MAX, 1_024, 3, NONE).ok(), Some(Places { protocol: 1_024, admin: 64, docs: 0 }));
        assert_eq!(
            share(64 + 24 + 64 + 64 + 10, 1_024, 3, NONE).ok(),
            Some(Places { protocol: 10, admin: 64, docs: 0 })
        );
        let halved = |protocol: u32| {
            let Places { protocol, docs, .. } = Places { protocol, admin: 64, docs: 0 }.with_documents(true);
            (protocol, docs)
        };
        assert_eq!((halved(1_024), halved(3), halved(1)), ((512, 512), (2, 1), (1, 1)));
        let shared = |protocol: u32, has_assets: bool| {
            let (places, assets) = Places { protocol, admin: 64, docs: 0 }.with_assets(has_assets);
            (places.protocol, assets)
        };
        assert_eq!((shared(1_024, true), shared(1, true), shared(9, false)), ((512, 512), (1, 1), (9, 0)));
        let stored = |left: u64| share(192 + left, 1_024, 0, STORE).ok().map(|places| places.protocol);
        assert_eq!((stored(1_000), stored(38), stored(1)), (Some(744), Some(19), Some(1)));
        assert_eq!(stored(20_000), Some(1_024), "engines keep what they open, and there is enough for all");
        let twice = Engines { reads_directly: true, ..STORE };
        let directly = share(192 + 1_000, 1_024, 0, twice).ok().map(|places| places.protocol);
        assert_eq!(directly, Some(1_000 - 2 * (128 + 64) - 64), "each file that values are read from has two");
        let both = Engines { documents: true, ..STORE };
        let served = |left: u64| share(192 + left, 1_024, 0, both).ok().map(|places| places.protocol);
        assert_eq!((served(1_000), served(38)), (Some(552), Some(13)), "documents keep a journal and an index");
        let refused = share(64 + 64 + 64, 1_024, 0, NONE).unwrap_err();
        assert_eq!(
            (refused.kind, refused.message.as_str()),
            (Kind::Invalid, "192 descriptors; at least 193 are needed: raise ulimit -n")
        );
        assert!(share(193, 1_024, 0, STORE).is_ok());
    }
}
