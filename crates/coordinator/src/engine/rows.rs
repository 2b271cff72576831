//! Which rows a record changes, and the records that tell the rows again. No I/O.
//!
//! A row is what a checkpoint would keep: of a transaction its entry, of the clients the census, names and fences since it,
//! of the opening what it found. What a checkpoint would not keep is history, and changes nothing.
//!
//! Walk: [`plan`] a record's changes, before anything is changed · [`records`] all rows, as records in an order that replays.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Incarnation, Mark, TxId};
use assent_world::Moment;

use crate::engine::image::Image;
use crate::engine::layout::Key;
use crate::record::{self, Census, Record, TX_BYTES};
use crate::table::{Entry, Table};
use crate::{Action, Fate, lay, replay};

const OPENED: u8 = 1;
const CENSUS: u8 = 2;
const FENCED: u8 = 3;
const CLIENT: u8 = 4;
const TX: u8 = 5;

/// One change of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Key, Vec<u8>),
    Remove(Key),
}

/// Why a record changes nothing.
#[derive(Debug)]
pub(crate) enum Unplanned {
    /// Nobody lays such a record into a table.
    Kind,
    Malformed(Malformed),
}

impl From<Malformed> for Unplanned {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

const ALONE: [u8; 16] = [0; 16];

/// Of a branch in a decision, as `lay::branches` lays it.
const RESOURCE_BYTES: usize = 8;
const NUMBER_BYTES: usize = 2;
const MARK_BYTES: usize = 20;

fn client(incarnation: Incarnation, kind: u8) -> Key {
    let mut id = ALONE;
    let words = incarnation.epoch.0.to_le_bytes().into_iter().chain(incarnation.number.to_le_bytes());
    id.iter_mut().zip(words).for_each(|(to, from)| *to = from);
    Key { kind, id }
}

fn tx_key(tx: TxId) -> Key {
    Key { kind: TX, id: lay::tx_bytes(tx) }
}

/// What a record changes. It is looked at before anything is.
pub(crate) fn plan(image: &Image, kind: u16, payload: &[u8]) -> Result<Vec<Change>, Unplanned> {
    Ok(match kind {
        record::DECIDED => decided(payload)?,
        record::FINISHED => forgotten(payload.get(8..).unwrap_or_default()),
        record::OPENED => vec![Change::Put(Key { kind: OPENED, id: ALONE }, payload.to_vec())],
        // History only, each of them.
        record::SEAL | record::VOTES => Vec::new(),
        _ => match Record::read(kind, payload)? {
            Some(Record::Fenced(list)) => {
                let fence = |at: &Incarnation| {
                    [Change::Put(client(*at, FENCED), Vec::new()), Change::Remove(client(*at, CLIENT))]
                };
                list.iter().flat_map(fence).collect()
            }
            Some(Record::Clients(census)) => clients(image, &census, payload),
            Some(Record::Client(_, incarnation, _)) => vec![Change::Put(client(incarnation, CLIENT), payload.to_vec())],
            Some(Record::Entry(entry)) => vec![Change::Put(tx_key(entry.tx), payload.to_vec())],
            Some(Record::Operator(word)) if word.action == Action::Forget => {
                again(image, word.tx, |table| table.clear_heuristics(word.tx))?
            }
            Some(Record::Operator(_)) => Vec::new(),
            // A heuristic outcome is laid with all of its row; how else a branch was left is looked at again.
            Some(Record::Branch(_, _, note)) if !matches!(note.fate, Fate::Heuristic(..)) => Vec::new(),
            _ => return Err(Unplanned::Kind),
        },
    })
}

/// The entry that a checkpoint would keep of it: the same bytes, and that nothing has happened to it yet.
fn decided(payload: &[u8]) -> Result<Vec<Change>, Malformed> {
    let mut from = Reader::new(payload);
    let id = from.raw(TX_BYTES, "tx")?;
    let (told, at_ms) = (from.raw(2, "outcome")?, from.u64("decided.at")?);
    let before = from.rest();
    // The branches as they stand, walked and not read: this is every commit's way.
    for _ in 0..from.u16("branches")? {
        _ = from.raw(RESOURCE_BYTES + NUMBER_BYTES, "branch")?;
        if Mark::follows(from.u16("branch.flags")?).0 {
            _ = from.raw(MARK_BYTES, "branch.mark")?;
        }
        _ = from.bytes("branch.witness")?;
    }
    let branches = before.get(..before.len() - from.rest().len()).unwrap_or_default();
    let mut row = Writer::new();
    row.raw(id).raw(told).u8(0).u64(at_ms).raw(branches).u16(0);
    let key = Key { kind: TX, id: id.try_into().map_err(|_| Malformed { field: "tx" })? };
    let mut changes = forgotten(from.rest());
    changes.push(Change::Put(key, row.into_vec()));
    Ok(changes)
}

fn forgotten(list: &[u8]) -> Vec<Change> {
    let (ids, _) = list.as_chunks::<TX_BYTES>();
    ids.iter().map(|id| Change::Remove(Key { kind: TX, id: *id })).collect()
}

/// Everyone up to the last one counted is in the census or fenced: names of the gone go, and fences of the counted.
fn clients(image: &Image, census: &Census, payload: &[u8]) -> Vec<Change> {
    let live: std::collections::BTreeSet<[u8; 16]> = census.live.iter().map(|at| client(*at, CLIENT).id).collect();
    let is_gone = |key: &Key| incarnation(key.id) <= census.upto && !live.contains(&key.id);
    let fences = image.keys_of(FENCED);
    let gone = fences.chain(image.keys_of(CLIENT).filter(is_gone)).map(Change::Remove);
    let census = Change::Put(Key { kind: CENSUS, id: ALONE }, payload.to_vec());
    gone.chain([census]).collect()
}

const fn incarnation(id: [u8; 16]) -> Incarnation {
    let [e0, e1, e2, e3, n0, n1, n2, n3, ..] = id;
    let (epoch, number) = (u32::from_le_bytes([e0, e1, e2, e3]), u32::from_le_bytes([n0, n1, n2, n3]));
    Incarnation { epoch: assent_ids::Epoch(epoch), number }
}

/// A transaction's row as it is after something happened to it. Rare: its bytes are read and laid again.
fn again(image: &Image, tx: TxId, happens: impl FnOnce(&mut Table)) -> Result<Vec<Change>, Malformed> {
    let Some(row) = image.get(tx_key(tx)) else { return Ok(Vec::new()) };
    let Some(Record::Entry(decided)) = Record::read(record::ENTRY, &row)? else { return Ok(Vec::new()) };
    let mut table = Table::default();
    let (tx, entry) = replay::entry(decided, Moment(0));
    table.insert(tx, entry);
    happens(&mut table);
    let lay = |entry: &Entry| {
        let mut row = Writer::new();
        lay::entry(&mut row, tx, entry);
        row.into_vec()
    };
    Ok(table.get(tx).map(|entry| Change::Put(tx_key(tx), lay(entry))).into_iter().collect())
}

/// All rows, as the records that lead to the same state.
pub(crate) fn records(image: &Image) -> Vec<(u16, Vec<u8>)> {
    let record = |key: Key| {
        let row = image.get(key).unwrap_or_default();
        Some(match key.kind {
            OPENED => (record::OPENED, row),
            CENSUS => (record::CLIENTS, row),
            FENCED => (record::FENCED, lay::fenced(&[incarnation(key.id)])),
            CLIENT => (record::CLIENT, row),
            TX => (record::ENTRY, row),
            // Checked when it was opened.
            _ => return None,
        })
    };
    image.keys().filter_map(record).collect()
}

/// Whether rows of that kind are known here.
pub(crate) const fn is_known(kind: u8) -> bool {
    matches!(kind, OPENED..=TX)
}
