//! An asset: a name that is a number, a value, and how often it was updated.

use std::fmt;

/// The name of an asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssetId(pub u64);

impl fmt::Display for AssetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What an asset is at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asset {
    /// Its value.
    pub value: i64,
    /// How many operations changed it since it was created; its creation is none.
    pub updates: u64,
}

/// An asset with its name: what a table keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: AssetId,
    pub(crate) asset: Asset,
}
