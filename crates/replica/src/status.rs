//! Where a member stands, as a value: for whoever shows it, and for counters that others collect.

use assent_membership::{Configuration, Member, Reach, Sequence, Standing};

use crate::front::Facts;
use crate::primary::Cursor;
use crate::replica::{Replica, Side};
use crate::told::Told;
use crate::wires::Wires;

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which.
    pub member: Member,
    /// Whether it leads or follows, and if nothing goes on, why.
    pub standing: Standing,
    /// The last configuration known.
    pub configuration: Configuration,
    /// What it was told of its group.
    pub told: Told,
    /// The end of its log.
    pub end: Sequence,
    /// Everything up to here is confirmed, as far as known here.
    pub confirmed: Sequence,
    /// Everything up to here is executed here.
    pub applied: Sequence,
    /// Everything up to here is on the own disk.
    pub durable: Sequence,
    /// What its snapshot holds.
    pub snapshot: Sequence,
    /// Bytes of commands that a restart would execute again, about.
    pub replay_bytes: u64,
    /// The hash of its state.
    pub hash: u64,
    /// Why it can go on no longer, if so.
    pub halted: Option<String>,
    /// The other members.
    pub others: Vec<Lag>,
    /// What has happened since its start.
    pub counts: Counts,
}

/// How far another member is. Only a primary knows more than the connection and the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Which.
    pub member: Member,
    /// Whether there is a connection to it.
    pub is_connected: bool,
    /// Whether it is in the set that confirms.
    pub is_in_sync: bool,
    /// What it holds.
    pub held: Reach,
    /// Where what it gets comes from.
    pub feeding: Feeding,
    /// What it was told of the group, if that is something else.
    pub otherwise: Option<Told>,
}

/// Where what a standby gets comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feeding {
    /// It gets nothing.
    #[default]
    Nothing,
    /// The primary's memory: it is near.
    Memory,
    /// The primary's log: it catches up.
    Log,
    /// A snapshot: it lacks what the log has no more.
    Snapshot,
}

/// What has happened since a member's start, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands put behind the log here.
    pub ordered: u64,
    /// Commands and reads that were not taken in.
    pub refused: u64,
    /// Commands executed.
    pub applied: u64,
    /// Reads answered.
    pub reads: u64,
    /// Times it began to lead.
    pub leads: u64,
    /// Times it ceased to.
    pub yields: u64,
    /// Diverged tails cut.
    pub cuts: u64,
    /// Times a standby was taken for slow.
    pub slow: u64,
    /// States compared.
    pub compared: u64,
    /// Snapshots kept.
    pub snapshots: u64,
    /// Snapshots that the disk refused.
    pub snapshots_failed: u64,
    /// Times the log's room could not be given back.
    pub trims_failed: u64,
    /// Snapshots that came from elsewhere.
    pub snapshots_installed: u64,
    /// Pieces of snapshots sent.
    pub pieces_sent: u64,
    /// Times what a standby asked for could not be read here: it gets another snapshot.
    pub lends_failed: u64,
    /// Bytes read from the disk for standbys.
    pub catch_up_bytes: u64,
    /// Bytes sent to other members.
    pub bytes_out: u64,
    /// Bytes heard from other members.
    pub bytes_in: u64,
}

impl Status {
    /// Which members were told otherwise of the group, and what follows.
    #[must_use]
    pub fn told_otherwise(&self) -> Option<String> {
        let told = |lag: &Lag| Some(lag.otherwise.as_ref()?.against(lag.member, &self.told, self.member));
        let others: Vec<String> = self.others.iter().filter_map(told).collect();
        (!others.is_empty()).then(|| others.join("; "))
    }
}

impl Replica {
    /// Where it stands, with what its desk knows. The hash and why it halted are the desk's to say.
    pub(crate) fn status(&self, facts: Facts, wires: Option<&Wires>) -> Status {
        let (bytes_in, bytes_out) = wires.map_or((0, 0), Wires::bytes);
        Status {
            member: self.me(),
            standing: self.standing(),
            configuration: self.configuration().clone(),
            told: self.told.clone(),
            end: self.end.sequence,
            confirmed: self.confirmed,
            applied: facts.applied,
            durable: facts.durable,
            snapshot: facts.snapshot,
            replay_bytes: facts.replay_bytes,
            hash: 0,
            halted: None,
            others: self.lags(|member| wires.is_some_and(|wires| wires.is_connected(member))),
            counts: Counts { bytes_in, bytes_out, ..self.counts },
        }
    }

    /// How far the others are. Whether there is a connection is for whoever has them.
    pub(crate) fn lags(&self, is_connected: impl Fn(Member) -> bool) -> Vec<Lag> {
        let peers = if let Side::Primary(primary) = &self.side { Some(&primary.peers) } else { None };
        let lag = |member| {
            let peer = peers.and_then(|peers| peers.get(&member));
            let feeding = match peer.and_then(|peer| peer.cursor.as_ref()) {
                None => Feeding::Nothing,
                Some(Cursor::Snapshot) => Feeding::Snapshot,
                Some(Cursor::Sending { reading: false, sent, .. })
                    if *sent >= self.end.sequence || self.recent.behind(*sent).is_some() =>
                {
                    Feeding::Memory
                }
                Some(Cursor::Asked(_) | Cursor::Sending { .. }) => Feeding::Log,
            };
            Lag {
                member,
                is_connected: is_connected(member),
                is_in_sync: self.node.configuration().in_sync.life(member).is_some(),
                held: peer.map(|peer| peer.held).unwrap_or_default(),
                feeding,
                otherwise: self.otherwise.get(&member).map(|(_, told)| told.clone()),
            }
        };
        self.others().into_iter().map(lag).collect()
    }
}
