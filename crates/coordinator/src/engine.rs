//! The state engines: where a coordinator's state lives. Both are a [`assent_journal::Log`]; the coordinator knows no other
//! difference than that one of them keeps no history.
//!
//! - `journal`: a log with checkpoints ([`assent_journal::Journal`]). What was decided stays readable as long as its archive.
//! - `table`: this room. A log that keeps only what still matters: each record that is appended changes rows of a table, and
//!   reading it back tells the rows, in records that lead to the same state.
//!
//! The table: rows in blocks of 4 KiB, in memory as they are on the disk, in two files that hold the same table at two
//! moments. A group of records is one write of the blocks that changed since *that* file was last written, and one sync;
//! groups alternate between the files. So a power cut within a group leaves the other file whole, which is the state before
//! that group, and nobody was told of it. Block 0 of a file, its head, belongs to each group: it counts the groups, says which
//! group was durable before it, and has the sum of the checksums of all blocks. A file is believed when the sum is right.
//!
//! What the sum is good for: it is changed by the touched blocks alone (not computed again over all, which costs the field's
//! classic its processor), and it ties every block to the group: a block that a power cut left behind has a right checksum
//! and makes a wrong sum.
//!
//! RPO > 0 takes a third file. Groups that were acknowledged and not synced alternate between two, so that a process killed
//! while it writes one has the other in the kernel; the third holds what was synced last, and is not touched until another
//! one is synced. The sync is done when its time is up, also when nothing comes any more.
//!
//! When it falls idle and when it is closed, the other file is brought up to date too. From then on every damaged block is
//! healed from the other file. Right after a crash one kind of damage cannot be told from a torn write: to the blocks of the
//! very last group. The opening says that it fell back.
//!
//! Every opening lays the rows anew, densely, into fresh files, synced before they get their names: what the page cache shows
//! after a failed sync is no evidence.
//!
//! Walk: [`TableLog`] the log · `rows` which rows a record changes · `image` rows in blocks · `layout` their bytes, drawn in
//! docs/format.md · `commit` who waits syncs for all · `copies` the files: which one is believed, how they are made.
//! Deliberately absent: history, a journal of its own, shrinking while it is open, a second sync.

mod barrier;
mod commit;
mod config;
mod copies;
mod core;
mod image;
mod kept;
mod layout;
mod rows;
mod table_log;

pub use barrier::{BACKLOG, BARRIERS};
pub use config::TableConfig;
pub use copies::{Engine, Found, is_foreign};
pub use table_log::TableLog;
pub(crate) use table_log::believe_again;
