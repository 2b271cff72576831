//! The names of the places where something of a snapshot becomes durable.

use assent_world::Barrier;

/// The folder's own entry before anything in it.
pub(crate) const FOLDER: Barrier = Barrier::new("assets: the folder before a snapshot in it");
/// A snapshot's bytes before its name.
pub(crate) const IMAGE: Barrier = Barrier::new("assets: a snapshot before its name");
/// A snapshot's name before the log behind it is given back.
pub(crate) const NAME: Barrier = Barrier::new("assets: a snapshot's name before the log is trimmed");

/// All of them. A gate ignores each in turn and must go red.
pub const BARRIERS: &[Barrier] = &[FOLDER, IMAGE, NAME];
