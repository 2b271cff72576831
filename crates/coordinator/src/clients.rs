//! Who may still decide: the incarnations of clients, lost ones and fenced ones. No I/O.
//!
//! ```text
//!  handshake ─▶ Live (connected) ◀─ resume ── Live (lost since)
//!                   └── lost ────────────────▶    └─ client_lost_ms ─▶ Fencing ─ record durable ─▶ Fenced
//!  of an older epoch: Resumable until client_lost_ms after we could be reached, then Fencing, then Fenced.
//! ```
//! Walk: [`Clients::standing`] is the question everything depends on · a fence holds in memory at once and is permanent
//! when its record is durable; only then may anything be forgotten because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use assent_ids::{Epoch, Incarnation, NodeId};
use assent_world::Moment;

use crate::CoordinatorError;
use crate::record::Census;

/// The most clients at a time.
pub(crate) const CLIENTS_MAX: usize = 65_536;

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Connected.
    Connected,
    /// Its connection ended a moment ago; it may resume.
    Lost,
    /// Of an earlier epoch; it may resume.
    Resumable,
    /// It never decides commit again; that is not durable yet.
    Fencing,
    /// It never decides commit again, for ever.
    Fenced,
    /// No such client was ever known here: another copy of this data folder is at work, or a later one.
    Never,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 6] = [
        Standing::Connected,
        Standing::Lost,
        Standing::Resumable,
        Standing::Fencing,
        Standing::Fenced,
        Standing::Never,
    ];
}

#[derive(Debug)]
enum Link {
    Connected { connections: u32 },
    Lost { since: Moment },
    Fencing,
}

#[derive(Debug)]
struct Client {
    label: Box<str>,
    link: Link,
}

/// What earlier epochs left behind, as their records say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    census: Option<Census>,
    fenced: BTreeSet<Incarnation>,
    labels: BTreeMap<Incarnation, String>,
}

impl Before {
    pub(crate) fn fence(&mut self, list: Vec<Incarnation>) {
        list.iter().for_each(|client| _ = self.labels.remove(client));
        self.fenced.extend(list);
    }

    pub(crate) fn take(&mut self, mut census: Census) {
        census.live.sort_unstable();
        // Who is fenced has no use for a name any more.
        self.labels.retain(|client, _| *client > census.upto || census.live.binary_search(client).is_ok());
        self.census = Some(census);
        self.fenced.clear();
    }

    pub(crate) fn name(&mut self, labels: Vec<(Incarnation, String)>) {
        self.labels.extend(labels);
    }

    fn is_fenced(&self, incarnation: Incarnation) -> bool {
        let counted = |census: &Census| incarnation <= census.upto && census.live.binary_search(&incarnation).is_err();
        self.fenced.contains(&incarnation) || self.census.as_ref().is_some_and(counted)
    }
}

/// Whether clients of earlier epochs may still come back.
#[derive(Debug)]
enum Window {
    Open { since: Moment },
    Closing,
    Closed,
}

#[derive(Debug)]
pub(crate) struct Clients {
    node: NodeId,
    epoch: Epoch,
    /// The number of the last handshake.
    given: u32,
    known: BTreeMap<Incarnation, Client>,
    /// How many of them are connected.
    connected: usize,
    before: Before,
    window: Window,
    lost_after: Duration,
}

/// A fence that has to become durable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// These.
    Some(Vec<Incarnation>),
    /// Everyone who is not in this census.
    AllBut(Census),
}

impl Clients {
    pub(crate) fn new(node: NodeId, epoch: Epoch, before: Before, now: Moment, lost_after: Duration) -> Self {
        let window = Window::Open { since: now };
        Self { node, epoch, given: 0, known: BTreeMap::new(), connected: 0, before, window, lost_after }
    }

    /// Clients can reach us from now on: only from here on is who stays away lost.
    pub(crate) fn listening(&mut self, now: Moment) {
        if let Window::Open { since } = &mut self.window {
            *since = now;
        }
    }

    pub(crate) fn standing(&self, incarnation: Incarnation) -> Standing {
        match self.known.get(&incarnation).map(|client| &client.link) {
            Some(Link::Connected { .. }) => return Standing::Connected,
            Some(Link::Lost { .. }) => return Standing::Lost,
            Some(Link::Fencing) => return Standing::Fencing,
            None => {}
        }
        let Incarnation { epoch, number } = incarnation;
        if epoch > self.epoch || number == 0 || (epoch == self.epoch && number > self.given) {
            return Standing::Never;
        }
        if epoch == self.epoch || self.before.is_fenced(incarnation) {
            return Standing::Fenced;
        }
        match self.window {
            Window::Open { .. } => Standing::Resumable,
            Window::Closing => Standing::Fencing,
            Window::Closed => Standing::Fenced,
        }
    }

    pub(crate) fn handshake(&mut self, label: &str) -> Result<Incarnation, CoordinatorError> {
        self.room()?;
        let number = self.given.checked_add(1).ok_or(CoordinatorError::Numbers { epoch: self.epoch })?;
        self.given = number;
        let incarnation = Incarnation { epoch: self.epoch, number };
        self.known.insert(incarnation, Client::connected(label));
        self.connected += 1;
        Ok(incarnation)
    }

    /// Its secret has been checked.
    pub(crate) fn resume(&mut self, incarnation: Incarnation) -> Result<(), CoordinatorError> {
        match self.standing(incarnation) {
            Standing::Connected | Standing::Lost => {
                if let Some(client) = self.known.get_mut(&incarnation) {
                    // The old connection may end after the new one has come: each counts.
                    client.link = match client.link {
                        Link::Connected { connections } => {
                            Link::Connected { connections: connections.saturating_add(1) }
                        }
                        Link::Lost { .. } | Link::Fencing => {
                            self.connected += 1;
                            Link::Connected { connections: 1 }
                        }
                    };
                }
                Ok(())
            }
            Standing::Resumable => {
                self.room()?;
                let label = self.before.labels.remove(&incarnation);
                self.known.insert(incarnation, Client::connected(label.as_deref().unwrap_or("(resumed)")));
                self.connected += 1;
                Ok(())
            }
            Standing::Fencing | Standing::Fenced => Err(CoordinatorError::Fenced { incarnation }),
            Standing::Never => Err(CoordinatorError::Secret { incarnation }),
        }
    }

    /// One connection of it has ended.
    pub(crate) fn lost(&mut self, incarnation: Incarnation, now: Moment) {
        if let Some(client) = self.known.get_mut(&incarnation)
            && let Link::Connected { connections } = &mut client.link
        {
            *connections = connections.saturating_sub(1);
            if *connections == 0 {
                client.link = Link::Lost { since: now };
                self.connected = self.connected.saturating_sub(1);
            }
        }
    }

    /// Who has to be fenced by now. They are `Fencing` from here; [`Clients::fenced`] when that is durable.
    pub(crate) fn fence(&mut self, now: Moment) -> Option<Fence> {
        let mut list = Vec::new();
        for (incarnation, client) in &mut self.known {
            match client.link {
                Link::Lost { since } if now.since(since) > self.lost_after => {
                    client.link = Link::Fencing;
                    list.push(*incarnation);
                }
                // Left over from a fence whose record could not be laid.
                Link::Fencing => list.push(*incarnation),
                Link::Lost { .. } | Link::Connected { .. } => {}
            }
        }
        match self.window {
            Window::Open { since } if now.since(since) > self.lost_after => {
                self.window = Window::Closing;
                Some(Fence::AllBut(self.census()))
            }
            Window::Closing => Some(Fence::AllBut(self.census())),
            Window::Open { .. } | Window::Closed => (!list.is_empty()).then_some(Fence::Some(list)),
        }
    }

    /// That fence is durable.
    pub(crate) fn fenced(&mut self, fence: &Fence) -> u64 {
        let before = self.known.len();
        match fence {
            Fence::Some(list) => list.iter().for_each(|incarnation| _ = self.known.remove(incarnation)),
            Fence::AllBut(census) => {
                let counted = |at: &Incarnation| *at <= census.upto && census.live.binary_search(at).is_err();
                self.known
                    .retain(|incarnation, client| !(matches!(client.link, Link::Fencing) && counted(incarnation)));
                self.window = Window::Closed;
                self.before = Before::default();
            }
        }
        u64::try_from(before - self.known.len()).unwrap_or(0)
    }

    /// Everyone who is not fenced. Only meaningful when no earlier epoch can be resumed any more.
    pub(crate) fn census(&self) -> Census {
        let live = self.known.iter().filter(|(_, client)| !matches!(client.link, Link::Fencing));
        Census {
            node: self.node,
            upto: Incarnation { epoch: self.epoch, number: self.given },
            live: live.map(|(incarnation, _)| *incarnation).collect(),
        }
    }

    /// Whether earlier epochs are done with, so that a census says everything.
    pub(crate) const fn is_settled(&self) -> bool {
        matches!(self.window, Window::Closed)
    }

    pub(crate) fn label(&self, incarnation: Incarnation) -> &str {
        let before = || self.before.labels.get(&incarnation).map_or("", String::as_str);
        self.known.get(&incarnation).map_or_else(before, |client| &client.label)
    }

    /// Of everyone in the census.
    pub(crate) fn labels<'a>(&'a self, census: &'a Census) -> Vec<(Incarnation, &'a str)> {
        census.live.iter().map(|client| (*client, self.label(*client))).collect()
    }

    pub(crate) const fn connected(&self) -> usize {
        self.connected
    }

    fn room(&self) -> Result<(), CoordinatorError> {
        let clients = self.known.len();
        if clients >= CLIENTS_MAX { Err(CoordinatorError::Clients { clients }) } else { Ok(()) }
    }
}

impl Client {
    fn connected(label: &str) -> Self {
        let label = label.chars().take(80).collect::<String>().into_boxed_str();
        Self { label, link: Link::Connected { connections: 1 } }
    }
}
