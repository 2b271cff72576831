//! Why a command was executed and changed nothing: an answer like any other, and the same wherever it is executed.
//!
//! Walk: [`Refusal::lay`] and [`Refusal::read`] as it stands in an answer · [`Refusal::kind`] what the caller must do.

use std::fmt;

use assent_frame::{Malformed, Reader, Writer};
use assent_kind::Kind;

use crate::asset::AssetId;

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such asset.
    Unknown {
        /// Which.
        id: AssetId,
    },
    /// An asset that is to be created is there.
    Exists {
        /// Which.
        id: AssetId,
    },
    /// The sum is beyond 64 bits.
    Overflow {
        /// Which asset.
        id: AssetId,
        /// What it is.
        value: i64,
        /// What was to be added.
        by: i64,
    },
    /// The sum would leave the bounds that the command sets.
    Bounds {
        /// Which asset.
        id: AssetId,
        /// What it would have been.
        value: i64,
        /// The bound: the least or the most.
        bound: i64,
    },
    /// It is not what the command expects.
    Differs {
        /// Which asset.
        id: AssetId,
        /// What it is.
        value: i64,
        /// What was expected.
        expected: i64,
    },
    /// A prepared branch holds the asset.
    Held {
        /// Which asset.
        id: AssetId,
    },
    /// Nobody registered business logic under this number.
    NoLogic {
        /// The number.
        logic: u16,
    },
    /// The business logic says no.
    Logic {
        /// Its own number for the reason.
        code: i64,
        /// What it says of the reason.
        detail: i64,
    },
    /// The business logic panicked: a fault of its own, the same on every member.
    Panicked {
        /// Its number.
        logic: u16,
    },
    /// More than one command, book or group may have.
    Limit {
        /// The limit that is reached.
        limit: u64,
    },
    /// A branch of this name is prepared already.
    BranchKnown,
    /// No branch of this name is prepared, and none that is remembered was.
    BranchUnknown,
    /// The branch was finished the other way.
    BranchFinished {
        /// How.
        committed: bool,
    },
}

impl Refusal {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Unknown { .. } | Self::NoLogic { .. } | Self::BranchUnknown => Kind::NotFound,
            Self::Exists { .. } | Self::Differs { .. } | Self::Held { .. } | Self::BranchKnown => Kind::Conflict,
            Self::Overflow { .. } | Self::Bounds { .. } | Self::Logic { .. } => Kind::Invalid,
            Self::Limit { .. } => Kind::Full,
            Self::Panicked { .. } => Kind::Internal,
            Self::BranchFinished { committed: true } => Kind::Conflict,
            Self::BranchFinished { committed: false } => Kind::RolledBack,
        }
    }

    pub(crate) fn lay(&self, out: &mut Writer) {
        let (reason, first, second, third) = match self {
            Self::Unknown { id } => (1, id.0, 0, 0),
            Self::Exists { id } => (2, id.0, 0, 0),
            Self::Overflow { id, value, by } => (3, id.0, *value, *by),
            Self::Bounds { id, value, bound } => (4, id.0, *value, *bound),
            Self::Differs { id, value, expected } => (5, id.0, *value, *expected),
            Self::Held { id } => (6, id.0, 0, 0),
            Self::NoLogic { logic } => (7, u64::from(*logic), 0, 0),
            Self::Logic { code, detail } => (8, 0, *code, *detail),
            Self::Limit { limit } => (9, *limit, 0, 0),
            Self::BranchKnown => (10, 0, 0, 0),
            Self::BranchUnknown => (11, 0, 0, 0),
            Self::BranchFinished { committed } => (12, u64::from(*committed), 0, 0),
            Self::Panicked { logic } => (13, u64::from(*logic), 0, 0),
        };
        out.u8(reason).u64(first).u64(signless(second)).u64(signless(third));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let reason = reader.u8("reason")?;
        let first = reader.u64("asset")?;
        let (second, third) = (signed(reader.u64("value")?), signed(reader.u64("limit")?));
        let id = AssetId(first);
        Ok(match reason {
            1 => Self::Unknown { id },
            2 => Self::Exists { id },
            3 => Self::Overflow { id, value: second, by: third },
            4 => Self::Bounds { id, value: second, bound: third },
            5 => Self::Differs { id, value: second, expected: third },
            6 => Self::Held { id },
            7 => Self::NoLogic { logic: u16::try_from(first).map_err(|_| Malformed { field: "logic" })? },
            8 => Self::Logic { code: second, detail: third },
            9 => Self::Limit { limit: first },
            10 => Self::BranchKnown,
            11 => Self::BranchUnknown,
            13 => Self::Panicked { logic: u16::try_from(first).map_err(|_| Malformed { field: "logic" })? },
            12 if first < 2 => Self::BranchFinished { committed: first == 1 },
            _ => return Err(Malformed { field: "reason" }),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { id } => write!(f, "there is no asset {id}"),
            Self::Exists { id } => write!(f, "asset {id} exists"),
            Self::Overflow { id, value, by } => write!(f, "asset {id} is {value}: adding {by} leaves 64 bits"),
            Self::Bounds { id, value, bound } => write!(f, "asset {id} would be {value}; the bound is {bound}"),
            Self::Differs { id, value, expected } => write!(f, "asset {id} is {value}; {expected} was expected"),
            Self::Held { id } => write!(f, "asset {id} is held by a prepared branch"),
            Self::NoLogic { logic } => write!(f, "no business logic is registered as {logic}"),
            Self::Logic { code, detail } => write!(f, "the business logic refuses with code {code} ({detail})"),
            Self::Panicked { logic } => write!(f, "business logic {logic} panicked: nothing that it did remains"),
            Self::Limit { limit } => write!(f, "the limit of {limit} is reached"),
            Self::BranchKnown => write!(f, "a branch of this name is prepared already"),
            Self::BranchUnknown => write!(f, "no branch of this name is known"),
            Self::BranchFinished { committed: true } => write!(f, "the branch was committed"),
            Self::BranchFinished { committed: false } => write!(f, "the branch was rolled back"),
        }
    }
}

/// A signed number as its bits, for a field.
pub(crate) const fn signless(value: i64) -> u64 {
    u64::from_le_bytes(value.to_le_bytes())
}

/// The bits of a field as a signed number.
pub(crate) const fn signed(bits: u64) -> i64 {
    i64::from_le_bytes(bits.to_le_bytes())
}
