//! Rows of requests that were done (`once`), and which of them may go.
//!
//! ```text
//!   'i' name 32                     -> version 2, until 6, document (varint), revision 4 (0: a drop), entry 6, note (all that is left)
//!   'j' until 8 (big endian), name  -> version 2
//! ```
//! Walk: [`Index::done_rows`] with what carries them, and with a few that are over · [`Index::done`] finds one.
//! Deliberately absent: a pass over all. Each that comes lets [`LET_GO`] go, so they do not pile up.

use std::collections::BTreeMap;
use std::ops::Bound;

use assent_frame::{Malformed, Reader};
use assent_runs::Change;

use super::{Index, VERSION, wrong};
use crate::entry::Root;
use crate::once::{Done, Once, OnceName};
use crate::place::{Entry, lay_lsn, read_lsn};
use crate::watch::Mark;
use crate::{DocsError, varint};

/// Those whose time is over that go with one that comes.
const LET_GO: usize = 4;
/// A moment of six bytes.
const UNTIL_MAX: u64 = (1 << 48) - 1;

/// Keys with their rows; none where a row goes.
pub(super) type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// As the map takes them.
pub(super) fn changes(rows: &Rows) -> impl Iterator<Item = Change<'_>> {
    rows.iter().map(|(key, row)| match row {
        Some(value) => Change::Put { key, value },
        None => Change::Delete { key },
    })
}

impl Index {
    /// The rows of what these revisions carry. As time goes by what a commit says, a replay leads to the same rows, but for those that
    /// could not be read.
    pub(super) fn done_rows(&self, roots: &[&Root]) -> Rows {
        let mut rows = Rows::new();
        for root in roots {
            for once in Once::all_of(&root.meta) {
                put(&mut rows, &once, root.document, root.revision, root.entry);
            }
        }
        let Some(now) = roots.iter().map(|root| root.time_ms).max().filter(|_| !rows.is_empty()) else {
            return rows;
        };
        let to = over_key(now.saturating_add(1), &[]);
        let view = self.runs.view();
        let mut walk = view.range(Bound::Included(b"j"), Bound::Excluded(&to));
        for _ in 0..LET_GO {
            // The commit is durable: it does not fail for rows that may as well stay.
            let Ok(Some((key, _))) = walk.next() else { break };
            let done = [b"i", key.get(9..).unwrap_or_default()].concat();
            // The same name may have come again since.
            let is_of = |row: &[u8]| key.get(1..9) == Some(until_of(row).to_be_bytes().as_slice());
            let Ok(found) = self.runs.get(&done) else { continue };
            let is_over = found.is_some_and(|found| is_of(&found.value));
            rows.entry(key.to_vec()).or_insert(None);
            if is_over {
                rows.entry(done).or_insert(None);
            }
        }
        rows
    }

    /// The rows of a drop.
    pub(super) fn dropped_rows(document: u64, once: Option<&Once>) -> Rows {
        let mut rows = Rows::new();
        if let Some(once) = once {
            put(&mut rows, once, document, 0, Entry::HERE);
        }
        rows
    }

    /// What was done under a name.
    pub(crate) fn done(&self, name: &OnceName) -> Result<Option<Done>, DocsError> {
        let Some(found) = self.runs.get(&[b"i", name.as_slice()].concat())? else { return Ok(None) };
        read(*name, &found.value).map(Some).map_err(|malformed| wrong(found.seq, &malformed))
    }
}

fn put(rows: &mut Rows, once: &Once, document: u64, revision: u32, entry: Entry) {
    let until = once.until_ms.min(UNTIL_MAX);
    let mut row = vec![VERSION];
    lay_lsn(&mut row, until);
    varint::lay(&mut row, document);
    row.extend_from_slice(&revision.to_le_bytes());
    lay_lsn(&mut row, entry.laid());
    row.extend_from_slice(once.note.as_bytes());
    rows.insert([b"i", once.name.as_slice()].concat(), Some(row));
    rows.insert(over_key(until, &once.name), Some(vec![VERSION]));
}

fn over_key(until: u64, name: &[u8]) -> Vec<u8> {
    [b"j", until.to_be_bytes().as_slice(), name].concat()
}

/// Until when a row stays; one that cannot be read is told by whoever asks for it.
fn until_of(row: &[u8]) -> u64 {
    let mut reader = Reader::new(row.get(1..).unwrap_or_default());
    read_lsn(&mut reader, "until").unwrap_or_default()
}

fn read(name: OnceName, row: &[u8]) -> Result<Done, Malformed> {
    let mut reader = Reader::new(row);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let until_ms = read_lsn(&mut reader, "until")?;
    let document = varint::read(&mut reader, "document")?;
    let (revision, entry) = (reader.u32("revision")?, Entry::of(read_lsn(&mut reader, "entry")?));
    let note = String::from_utf8(reader.rest().to_vec()).map_err(|_| Malformed { field: "note" })?;
    let mark = (revision > 0).then(|| Mark { revision, lsn: entry.lsn() });
    Ok(Done { once: Once { name, until_ms, note }, document, mark })
}
