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

/// Of so many fenced clients the name is kept, the latest ones.
const NAMES_MAX: usize = 1_024;

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

/// What clients called themselves that are fenced: for people who look at what they left behind.
#[derive(Clone, Debug, Default)]
struct Names(BTreeMap<Incarnation, Box<str>>);

impl Names {
    fn keep(&mut self, client: Incarnation, label: &str) {
        _ = self.0.insert(client, label.into());
        if self.0.len() > NAMES_MAX {
            _ = self.0.pop_first();
        }
    }
}

/// What earlier epochs left behind, as their records say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    census: Option<Census>,
    fenced: BTreeSet<Incarnation>,
    labels: BTreeMap<Incarnation, String>,
    /// Of those who are fenced.
    names: Names,
}

impl Before {
    pub(crate) fn fence(&mut self, list: Vec<Incarnation>) {
        for client in &list {
            if let Some(label) = self.labels.remove(client) {
                self.names.keep(*client, &label);
            }
        }
        self.fenced.extend(list);
    }

    pub(crate) fn take(&mut self, mut census: Census) {
        census.live.sort_unstable();
        let names = &mut self.names;
        self.labels.retain(|client, label| {
            let may_come_back = *client > census.upto || census.live.binary_search(client).is_ok();
            if !may_come_back {
                names.keep(*client, label);
            }
            may_come_back
        });
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
    /// Of those who are fenced.
    names: Names,
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
    pub(crate) fn new(node: NodeId, epoch: Epoch, mut before: Before, now: Moment, lost_after: Duration) -> Self {
        let (window, names) = (Window::Open { since: now }, std::mem::take(&mut before.names));
        Self { node, epoch, given: 0, known: BTreeMap::new(), connected: 0, before, names, window, lost_after }
    }

    /// Nobody of an earlier epoch comes back.
    pub(crate) const fn close(&mut self) {
        self.window = Window::Closing;
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
            Fence::Some(list) => {
                for incarnation in list {
                    if let Some(client) = self.known.remove(incarnation) {
                        self.names.keep(*incarnation, &client.label);
                    }
                }
            }
            Fence::AllBut(census) => {
                let counted = |at: &Incarnation| *at <= census.upto && census.live.binary_search(at).is_err();
                let names = &mut self.names;
                self.known.retain(|incarnation, client| {
                    let is_fenced = matches!(client.link, Link::Fencing) && counted(incarnation);
                    if is_fenced {
                        names.keep(*incarnation, &client.label);
                    }
                    !is_fenced
                });
                let gone = std::mem::take(&mut self.before).labels;
                gone.iter().for_each(|(incarnation, label)| names.keep(*incarnation, label));
                self.window = Window::Closed;
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
        let known = self.known.get(&incarnation).map(|client| &*client.label);
        let before = || self.before.labels.get(&incarnation).map(String::as_str);
        let fenced = || self.names.0.get(&incarnation).map(|label| &**label);
        known.or_else(before).or_else(fenced).unwrap_or_default()
    }

    /// Of everyone in the census, and of those `owners` of transactions who are not, as far as they are known.
    pub(crate) fn labels(&self, census: &Census, owners: &BTreeSet<Incarnation>) -> Vec<(Incarnation, &str)> {
        let live = census.live.iter().map(|client| (*client, self.label(*client)));
        let fenced = owners.iter().filter(|client| census.live.binary_search(client).is_err());
        let fenced = fenced.map(|client| (*client, self.label(*client))).filter(|(_, label)| !label.is_empty());
        live.chain(fenced).collect()
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
