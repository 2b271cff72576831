//! Every place where a member makes something durable beside its journal, by name. The simulated disk ignores one at a time,
//! and for each a gate goes red.

use assent_world::Barrier;

/// What it must not forget, before the old one is replaced.
pub(crate) const OWN: Barrier = Barrier::new("replica: configuration and life before they replace the old ones");
/// Its name, before anything follows from it.
pub(crate) const OWN_ENTRY: Barrier =
    Barrier::new("replica: the name of configuration and life before what follows from them");
/// A snapshot, before the old one is replaced.
pub(crate) const SNAPSHOT: Barrier = Barrier::new("replica: a snapshot before it replaces the old one");
/// Its name, before the log that it stands for is trimmed.
pub(crate) const SNAPSHOT_ENTRY: Barrier =
    Barrier::new("replica: a snapshot's name before the log before it is trimmed");
/// A snapshot from elsewhere, before it replaces the own one.
pub(crate) const COMING: Barrier = Barrier::new("replica: a snapshot from elsewhere before it replaces the own one");
/// Its name, before the log goes on behind it.
pub(crate) const COMING_ENTRY: Barrier =
    Barrier::new("replica: the name of a snapshot from elsewhere before the log goes on behind it");

/// All of them.
pub const BARRIERS: &[Barrier] = &[OWN, OWN_ENTRY, SNAPSHOT, SNAPSHOT_ENTRY, COMING, COMING_ENTRY];
