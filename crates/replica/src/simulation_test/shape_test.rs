//! What is simulated, and how: how many members, what an acknowledgement means, and which rule is left out.

use assent_membership::Ack;
use assent_world::Barrier;

use crate::Told;
#[cfg(test)]
use crate::rules::Rule;

/// What is simulated, and how.
#[derive(Clone, Debug)]
pub struct Shape {
    pub members: u8,
    pub ack: Ack,
    pub lease: bool,
    /// The last member was told to promise nothing.
    pub mixed: bool,
    /// With each start a member may be told to promise nothing.
    pub fickle: bool,
    /// The last member was told this of the group.
    pub otherwise: Option<Told>,
    #[cfg(test)]
    pub(crate) left_out: Option<Rule>,
    /// What is stored of a configuration is not durable, and acted on.
    pub forgets: bool,
    /// The disks pass this sync by: what waits for it is told before it is durable.
    pub unsynced: Option<Barrier>,
    /// A snapshot that is being written when the log is cut is kept all the same.
    pub never_revokes: bool,
    /// What a front reads is answered at once, whoever leads.
    pub never_asks: bool,
    /// After so long a member is silent; a lease is somewhat shorter.
    pub silent_ms: u64,
    /// So many bytes of a snapshot go at once.
    pub piece_bytes: u64,
    /// How long a snapshot takes to be written or read, and how long there is none then.
    pub snapshot_ms: std::ops::Range<u64>,
    pub pause_ms: std::ops::Range<u64>,
}

impl Shape {
    pub const fn new(members: u8, ack: Ack) -> Self {
        Self {
            members,
            ack,
            lease: false,
            mixed: false,
            fickle: false,
            otherwise: None,
            #[cfg(test)]
            left_out: None,
            forgets: false,
            unsynced: None,
            never_revokes: false,
            never_asks: false,
            silent_ms: 120,
            piece_bytes: 300,
            snapshot_ms: 1..150,
            pause_ms: 50..400,
        }
    }

    /// What a seed plays: each acknowledgement, two members or three, leases or none, and who was told otherwise of them.
    pub fn of(seed: u64) -> Self {
        let ack = [Ack::Received, Ack::Durable, Ack::Written][usize::try_from(seed % 3).unwrap()];
        let (lease, mixed, fickle) = (seed / 9 % 2 == 1, seed / 18 % 4 == 3, seed / 18 % 4 == 1);
        Self { lease, mixed, fickle, ..Self::new(2 + u8::from(seed / 3 % 3 == 2), ack) }
    }
}
