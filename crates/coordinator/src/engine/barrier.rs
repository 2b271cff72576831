//! What a table must make durable before what.

use assent_world::Barrier;

/// The folder's entry, before anything in it.
pub(crate) const FOLDER: Barrier = Barrier::new("table: the folder's entry before anything in it");
/// A fresh file's bytes, before it has a name.
pub(crate) const FILE: Barrier = Barrier::new("table: a file's bytes before its name");
/// A fresh file's name, before a group is written into it.
pub(crate) const NAME: Barrier = Barrier::new("table: a file's name before its first group");
/// A group, before anyone in it is acknowledged (RPO 0).
pub(crate) const GROUP: Barrier = Barrier::new("table: a group before its acknowledgement");
/// The written groups since the last sync (RPO > 0, and whatever is strict in that policy).
pub const BACKLOG: Barrier = Barrier::new("table: the written groups before they count as durable");

/// All of them, but for [`BACKLOG`], which only RPO > 0 passes.
pub const BARRIERS: &[Barrier] = &[FOLDER, FILE, NAME, GROUP];
