//! Every place where the journal makes something durable, by name. The simulated disk ignores one at a time, and for
//! each a gate goes red: a barrier that nobody would miss is not here.

use assent_world::Barrier;

/// The folder's own entry, before anything in it is believed.
pub(crate) const FOLDER: Barrier = Barrier::new("journal: the folder's entry before anything in it");
/// The new epoch and salt, before the old ones are replaced.
pub(crate) const EPOCHS: Barrier = Barrier::new("journal: epoch and salt before the old ones are replaced");
/// The entry of the file that holds them, before a segment or a batch carries them.
pub(crate) const EPOCHS_ENTRY: Barrier = Barrier::new("journal: the epochs' entry before the first append");
/// A segment's header and zeroes, before it has a name.
pub(crate) const SEGMENT: Barrier = Barrier::new("journal: a segment's header before its name");
/// A segment's entry, before anything is laid into it.
pub(crate) const SEGMENT_ENTRY: Barrier = Barrier::new("journal: a segment's entry before its first batch");
/// A copy of a segment with doubtful batches, before it takes the place of what it was copied from.
pub(crate) const RESCUE: Barrier = Barrier::new("journal: a rescued tail before it replaces the doubtful one");
/// The copy's entry, before it is served.
pub(crate) const RESCUE_ENTRY: Barrier = Barrier::new("journal: a rescued tail's entry before it is served");
/// A batch, before anyone in it is acknowledged (RPO 0).
pub(crate) const BATCH: Barrier = Barrier::new("journal: a batch before its acknowledgement");
/// What was written since the last sync (RPO > 0, and votes in every policy).
pub(crate) const BACKLOG: Barrier = Barrier::new("journal: the written backlog before it counts as durable");
/// One trimmed segment's entry, before the next one goes: no hole may appear.
pub(crate) const TRIM: Barrier = Barrier::new("journal: a trimmed segment before the next one goes");
/// One archived segment's name, before the next one goes: no hole may appear in the live log.
pub(crate) const ARCHIVE: Barrier = Barrier::new("journal: an archived segment's name before the next one goes");
/// One segment of the archive gone, before the next one goes: no hole may appear in history.
pub(crate) const PRUNE: Barrier = Barrier::new("journal: a pruned segment before the next one goes");

/// A released segment's name gone, before its owner is told so: he may have told others that the place is empty.
pub(crate) const RELEASE: Barrier = Barrier::new("journal: a released segment's name gone before its owner is told");

/// One segment behind a cut gone, before the one before it goes: no hole may appear.
pub(crate) const CUT_SEGMENT: Barrier = Barrier::new("journal: a segment behind the cut before the one before it goes");
/// What stays of the last segment, before it takes the name of what was longer.
pub(crate) const CUT: Barrier = Barrier::new("journal: what a cut leaves before it replaces what was longer");
/// Its entry, before the log is written again behind the cut.
pub(crate) const CUT_ENTRY: Barrier =
    Barrier::new("journal: the cut segment's entry before anything is laid behind the cut");

/// All of them, but for those of an archive and of a cut.
pub const BARRIERS: &[Barrier] =
    &[FOLDER, EPOCHS, EPOCHS_ENTRY, SEGMENT, SEGMENT_ENTRY, RESCUE, RESCUE_ENTRY, BATCH, BACKLOG, TRIM];

/// Those passed only where trimmed segments are kept.
pub const BARRIERS_OF_ARCHIVE: &[Barrier] = &[ARCHIVE, PRUNE, RELEASE];
/// Those passed only where the end of a log is moved back.
pub const BARRIERS_OF_CUT: &[Barrier] = &[CUT_SEGMENT, CUT, CUT_ENTRY];
