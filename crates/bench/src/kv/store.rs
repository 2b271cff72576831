//! How the race asks a store: the narrowest trait that every workload can be said in.

use std::ops::ControlFlow;
use std::path::PathBuf;

use assent_kind::Kind;
use serde::{Deserialize, Serialize};

use crate::BenchError;

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its own folder; it is there.
    pub folder: PathBuf,
    /// Whether the race will ask for writes that are durable when they are answered.
    pub sync: bool,
    /// Memory that it may keep blocks in, where it has a cache of its own.
    pub cache_bytes: u64,
    /// And memory that it may keep values in that it reads past the page cache. Whoever reads them through that one has the same memory there.
    pub value_cache_bytes: u64,
    /// Bytes of a segment, where the race may say so: as `assent serve` sets its own store's, 16 MiB.
    pub segment_bytes: u64,
    /// A disk that takes so many turns a second.
    pub disk_iops: Option<f64>,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Sets a key.
    Put(&'a [u8], &'a [u8]),
    /// Removes a key; fine if it is not there.
    Delete(&'a [u8]),
}

/// Is told each row of a fold: a key, and at least the first [`super::value::HEAD_BYTES`] of its value.
pub type Each<'e> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'e;

/// A store of the race. All methods are called from many threads.
pub trait Store: Send + Sync {
    /// Lays the value of a key into `value`; `false` where there is none.
    ///
    /// # Errors
    /// What the store says; so for all below.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError>;

    /// Lays at least the first [`super::value::HEAD_BYTES`] of a key's value into `head`, as cheaply as the store can.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError>;

    /// Writes all of these or none. With `sync` they survive a power cut once this has returned.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError>;

    /// Every key from `from` up to and without `to`, in key order where the store has one, as of one moment.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn flush(&self) -> Result<(), BenchError>;

    /// What the store tells of itself, by name with its unit.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// As [`Store::get`].
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// What not every store can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// A key's head without its value; a store that reads the value for it can that too.
    Head,
    /// Keys in order: ranges.
    Order,
    /// All keys as of one moment.
    Fold,
    /// Gives the space of overwritten values back while it runs.
    Compaction,
    /// Its files go through a disk that the race can slow down.
    SlowDisk,
}

impl Ability {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Order => "ranges of keys",
            Self::Fold => "folds",
            Self::Compaction => "value compaction",
            Self::SlowDisk => "a slow disk",
        }
    }
}

/// Opens a store.
pub type Opener = fn(&Setup) -> Result<Box<dyn Store>, BenchError>;

/// Who takes part.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its label in the report.
    pub name: &'static str,
    /// Version and settings, one sentence.
    pub about: String,
    /// What it cannot, and why.
    pub lacks: Vec<(Ability, &'static str)>,
    /// Opens it, or makes it.
    pub open: Opener,
}

impl Member {
    /// Refuses what it cannot.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: "not built", and why.
    pub fn check(&self, needs: &[Ability]) -> Result<(), BenchError> {
        match self.lacks.iter().find(|(ability, _)| needs.contains(ability)) {
            Some((ability, why)) => {
                let said = format!("not built: {} has no {}: {why}", self.name, ability.name());
                Err(BenchError::new(Kind::Invalid, said))
            }
            None => Ok(()),
        }
    }
}

/// What another program says of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Its label.
    pub name: String,
    /// Version and settings.
    pub about: String,
}

impl From<&Member> for Named {
    fn from(member: &Member) -> Self {
        Self { name: member.name.to_owned(), about: member.about.clone() }
    }
}

/// A member's own error as the race tells it.
pub fn failed(what: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("{what}: {error}"))
}
