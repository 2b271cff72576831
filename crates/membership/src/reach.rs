//! How far a log reaches, and how much of that an acknowledgement asks for.

use crate::history::Sequence;

/// What an acknowledged command has behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ack {
    /// The primary's memory. Nothing survives its death.
    None,
    /// The memory of every member in sync; the disk of the primary while it is alone.
    Received,
    /// The kernel of every member in sync; the disk of the primary while it is alone.
    Written,
    /// The disk of every member in sync.
    Durable,
}

impl Ack {
    /// Its name, as options and reports have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Received => "received",
            Self::Written => "written",
            Self::Durable => "durable",
        }
    }
}

/// How far one log is held, in what. `received >= written >= durable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// In memory: the end of the log.
    pub received: Sequence,
    /// In the kernel: a killed process keeps it.
    pub written: Sequence,
    /// On the disk.
    pub durable: Sequence,
}

impl Reach {
    /// A log that ends here, durable as a whole: one that was just opened.
    #[must_use]
    pub const fn durable(end: Sequence) -> Self {
        Self { received: end, written: end, durable: end }
    }

    /// How far it is held as this acknowledgement asks.
    #[must_use]
    pub const fn at(self, ack: Ack) -> Sequence {
        match ack {
            Ack::None | Ack::Received => self.received,
            Ack::Written => self.written,
            Ack::Durable => self.durable,
        }
    }

    /// As far as either of them.
    pub(crate) fn or_more(self, other: Self) -> Self {
        Self {
            received: self.received.max(other.received),
            written: self.written.max(other.written),
            durable: self.durable.max(other.durable),
        }
    }

    /// Everything behind this sequence is gone.
    #[must_use]
    pub fn cut(self, to: Sequence) -> Self {
        Self { received: self.received.min(to), written: self.written.min(to), durable: self.durable.min(to) }
    }
}
