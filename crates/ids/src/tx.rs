//! Who began a transaction, and which resource has a branch of it.

use std::fmt;

use crate::Epoch;

/// A data folder's 64 random bits, born with it. The configured name is only a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One client process as the coordinator knows it: the server epoch of its handshake and a number in that epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// The coordinator's epoch at the first handshake.
    pub epoch: Epoch,
    /// Counts the handshakes of that epoch.
    pub number: u32,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}

/// A transaction of one node, without the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxId {
    /// The client process that began it.
    pub incarnation: Incarnation,
    /// Counts the transactions of that process.
    pub counter: u64,
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.incarnation, self.counter)
    }
}

impl std::str::FromStr for TxId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("transaction {text:?}; write epoch.incarnation.counter, as 3.1.42");
        let mut parts = text.split('.');
        let (Some(epoch), Some(number), Some(counter), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        Ok(TxId {
            incarnation: Incarnation {
                epoch: Epoch(epoch.parse().map_err(|_| wrong())?),
                number: number.parse().map_err(|_| wrong())?,
            },
            counter: counter.parse().map_err(|_| wrong())?,
        })
    }
}

/// A registered resource manager: XXH3-64 of its registered name. A collision is refused at registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u64);

impl ResourceId {
    /// The id of a registered name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
