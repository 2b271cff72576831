//! What is known of many keys at once: those that are named, or those of a range.
//!
//! Walk: [`look`] and [`rows`] fill one answer, all of one snapshot · a value that does not fit is left out, and its reader
//! gets it alone · a value that is longer than a frame is read by the [`Inquiry::Value`](crate::inquiry::Inquiry) thread, so that no
//! desk reads for long.

use std::sync::Arc;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_kv::{Found, Head, InBranch, Kv, KvError, Snapshot, Within};
use assent_wire::{Answer, Long, Look, Object, Row, Rows, Scan};

use crate::inquiry::{self, Inquiry};
use crate::range::{PASSES_MAX, Range, Told, bound};
use crate::role::{Role, Visit};
use crate::shared::Shared;

/// Rows that are looked at together.
const ROWS_AT_ONCE: usize = 64;
/// So many values, or keys that were named, are read for one answer: each may be a read of the disk, and all of a desk's clients wait for it.
/// Whoever wants more asks again.
pub(crate) const READS_MAX: usize = 64;
/// What an answer has beside its rows, and a key beside its bytes.
const HEAD_BYTES: usize = 1;
const KEY_HEAD_BYTES: usize = 4;
/// A value beside its bytes.
const VALUE_HEAD_BYTES: usize = 4;

/// A key's value, of a branch or as of now. One that is longer than a frame leaves in parts, and is read by another thread.
pub(crate) fn get(visit: &mut Visit<'_>, kv: &Kv, xid: Option<&Xid>, keyspace: u32, key: &[u8]) {
    let most = frame_bytes_max(visit.shared).saturating_sub(HEAD_BYTES + VALUE_HEAD_BYTES);
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let (found, of) = match xid.map(|xid| kv.branch_look(xid, keyspace, key)) {
        None => match kept(visit) {
            Ok(None) => (kv.entry_within(keyspace, key, most), None),
            Ok(Some(snapshot)) => (snapshot.entry_within(keyspace, key, most), Some(snapshot)),
            Err(error) => return refuse(visit, &error),
        },
        Some(Ok(InBranch::Before(snapshot))) => (snapshot.entry_within(keyspace, key, most), Some(snapshot)),
        Some(Ok(InBranch::Own(found))) => return visit.answer_value(found.map(|found| found.value)),
        Some(Err(error)) => return refuse(visit, &error),
    };
    match found {
        Ok(Some(Within::Value(found))) => visit.answer(&Answer::Value(Some(&found.value))),
        Ok(Some(Within::Longer(_))) if visit.is_long() => {
            inquiry::ask_store(visit, Inquiry::Value { of, keyspace, key: key.to_vec() });
        }
        Ok(Some(Within::Longer(head))) => {
            let limit = frame_bytes_max(visit.shared);
            let message = format!("a value of {} bytes; a message has at most {limit}", head.value_bytes);
            visit.error(Kind::Invalid, &message);
        }
        Ok(None) => visit.answer(&Answer::Value(None)),
        Err(error) => refuse(visit, &error),
    }
}

/// Reads a long value, for a letter.
pub(crate) fn value(
    shared: &Shared,
    of: Option<Arc<Snapshot>>,
    (keyspace, key): (u32, &[u8]),
    mark: u64,
) -> Result<inquiry::Answered, (Kind, String)> {
    let Some(kv) = &shared.kv else { return Err((Kind::NotFound, "this server has no store".to_owned())) };
    let told = |error: KvError| (error.kind(), error.to_string());
    let snapshot = of.unwrap_or_else(|| Arc::new(kv.snapshot()));
    let bytes = snapshot.head(keyspace, key).map_err(told)?.map_or(0, |head| value_bytes(&head));
    // Room before memory.
    let share = shared.budget.take(bytes + HEAD_BYTES + VALUE_HEAD_BYTES)?;
    match snapshot.get(keyspace, key).map_err(told)? {
        Some(value) => {
            let long = Long::value(mark, value).map_err(|error| (error.kind(), error.to_string()))?;
            Ok(inquiry::Answered::Long(long, share))
        }
        None => inquiry::lay(shared, mark, &Answer::Value(None)).map(inquiry::Answered::Frame),
    }
}

/// The snapshot that this connection has asked to read, if it has.
fn kept(visit: &Visit<'_>) -> Result<Option<Arc<Snapshot>>, KvError> {
    match &visit.connection.role {
        Role::Store(seat) => seat.kept(),
        _ => Ok(None),
    }
}

/// The same, and else one of now.
pub(crate) fn snapshot(visit: &Visit<'_>, kv: &Kv) -> Result<Arc<Snapshot>, KvError> {
    Ok(kept(visit)?.unwrap_or_else(|| Arc::new(kv.snapshot())))
}

/// What is known of as many of these keys as fit a message.
pub(crate) fn look(visit: &mut Visit<'_>, kv: &Kv, look: &Look<'_>) {
    let snapshot = match snapshot(visit, kv) {
        Ok(snapshot) => snapshot,
        Err(error) => return refuse(visit, &error),
    };
    let most = frame_bytes_max(visit.shared);
    let mut found: Vec<Option<Kept>> = Vec::new();
    let mut bytes = 0;
    for (keyspace, key) in look.keys.iter().take(READS_MAX) {
        let read = snapshot.head(*keyspace, key).and_then(|head| {
            head.map(|head| Kept::read(&snapshot, *keyspace, key, head, look.values, most.saturating_sub(bytes)))
                .transpose()
        });
        let kept = match read {
            Ok(kept) => kept,
            Err(error) => return refuse(visit, &error),
        };
        let taken = kept.as_ref().map_or(HEAD_BYTES, Kept::laid_bytes);
        let waits = look.values && kept.as_ref().is_some_and(|kept| kept.value.is_none() && kept.would_fit(&[], most));
        if !found.is_empty() && (bytes + taken > most || waits) {
            break;
        }
        bytes += taken;
        found.push(kept);
    }
    let objects = found.iter().map(|kept| kept.as_ref().map(Kept::object)).collect();
    visit.answer(&Answer::Objects(objects));
}

/// What is known of the keys of a range, as many as fit a message.
pub(crate) fn rows(visit: &mut Visit<'_>, kv: &Kv, rows: &Rows<'_>) {
    if rows.scan.xid.is_some() {
        return visit.error(Kind::Invalid, "rows are of no branch; scan within one");
    }
    let snapshot = match snapshot(visit, kv) {
        Ok(snapshot) => snapshot,
        Err(error) => return refuse(visit, &error),
    };
    let most = frame_bytes_max(visit.shared);
    let mut passes = PASSES_MAX;
    match gather(&snapshot, &rows.scan, (rows.values, most), &mut passes) {
        Ok((found, more)) => visit.answer(&rows_of(&found, more)),
        Err(KvError::Busy { .. }) => {
            let told = Told::Objects { values: rows.values };
            inquiry::ask_walk(visit, Range::of(snapshot, &rows.scan, told));
        }
        Err(error) => refuse(visit, &error),
    }
}

pub(crate) fn rows_of(gathered: &Gathered, more: bool) -> Answer<'_> {
    Answer::Rows { more, rows: gathered.iter().map(|(key, kept)| Row { key, object: kept.object() }).collect() }
}

pub(crate) type Gathered = Vec<(Vec<u8>, Kept)>;

pub(crate) fn gather(
    snapshot: &Snapshot,
    scan: &Scan<'_>,
    (values, most): (bool, usize),
    passes: &mut u64,
) -> Result<(Gathered, bool), KvError> {
    use std::ops::Bound;
    let limit = usize::try_from(scan.limit).unwrap_or(usize::MAX);
    let limit = if values { limit.min(READS_MAX) } else { limit };
    let mut rows = Gathered::new();
    let mut bytes = HEAD_BYTES;
    loop {
        let behind = rows.last().map_or_else(|| bound(scan.from), |(key, _)| Bound::Excluded(key.as_slice()));
        let wanted = ROWS_AT_ONCE.min((limit - rows.len()).saturating_add(1));
        let heads = snapshot.heads_within(scan.keyspace, behind, bound(scan.to), wanted, passes)?;
        let last = heads.len() < wanted;
        for (key, head) in heads {
            if rows.len() == limit {
                return Ok((rows, true));
            }
            let left = most.saturating_sub(bytes + KEY_HEAD_BYTES + key.len());
            let kept = Kept::read(snapshot, scan.keyspace, &key, head, values, left)?;
            let taken = KEY_HEAD_BYTES + key.len() + kept.laid_bytes();
            // A value that would have fitted an answer of its own stands first in the next one.
            let is_left_out = values && kept.value.is_none() && kept.would_fit(&key, most);
            if !rows.is_empty() && (bytes + taken > most || is_left_out) {
                return Ok((rows, true));
            }
            bytes += taken;
            rows.push((key, kept));
        }
        if last {
            return Ok((rows, false));
        }
    }
}

/// An object until it is laid.
pub(crate) struct Kept {
    head: Head,
    value: Option<Vec<u8>>,
}

impl Kept {
    /// With its value if that is wanted and fits so many bytes.
    fn read(
        snapshot: &Snapshot,
        keyspace: u32,
        key: &[u8],
        head: Head,
        values: bool,
        left: usize,
    ) -> Result<Self, KvError> {
        let it = Self { head, value: None };
        if !values || it.whole_bytes() > left {
            return Ok(it);
        }
        // Of the same snapshot: it is there, unless its time has just come.
        let found: Option<Found> = snapshot.entry(keyspace, key)?;
        Ok(Self { value: found.map(|found| found.value), ..it })
    }

    fn object(&self) -> Object<'_> {
        let Head { committed, modified, expiry, hash, value_bytes, metadata, .. } = &self.head;
        Object {
            lsn: *committed,
            modified_ms: *modified,
            expiry_ms: *expiry,
            hash: *hash,
            value_bytes: *value_bytes,
            metadata,
            value: self.value.as_deref(),
        }
    }

    /// With a value.
    fn whole_bytes(&self) -> usize {
        self.object().laid_bytes() + VALUE_HEAD_BYTES + value_bytes(&self.head)
    }

    fn would_fit(&self, key: &[u8], most: usize) -> bool {
        HEAD_BYTES + KEY_HEAD_BYTES + key.len() + self.whole_bytes() <= most
    }

    fn laid_bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| VALUE_HEAD_BYTES + value.len());
        self.object().laid_bytes() + value
    }
}

fn value_bytes(head: &Head) -> usize {
    usize::try_from(head.value_bytes).unwrap_or(usize::MAX)
}

pub(crate) fn frame_bytes_max(shared: &Shared) -> usize {
    usize::try_from(shared.limits.frame_bytes_max).unwrap_or(usize::MAX)
}

fn refuse(visit: &mut Visit<'_>, error: &KvError) {
    visit.error(error.kind(), &error.to_string());
}
