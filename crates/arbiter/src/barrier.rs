//! Every place where the witness makes something durable, by name.

use assent_world::Barrier;

/// The folder's own entry, before anything in it is believed.
pub(crate) const FOLDER: Barrier = Barrier::new("arbiter: the folder's entry before anything in it");
/// The new ledger, before it takes the old one's name.
pub(crate) const BYTES: Barrier = Barrier::new("arbiter: the ledger's bytes before their name");
/// Its name, before anybody hears of what is in it.
pub(crate) const NAME: Barrier = Barrier::new("arbiter: the ledger's name before its answer");

/// All of them.
pub const BARRIERS: &[Barrier] = &[FOLDER, BYTES, NAME];
