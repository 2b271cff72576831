//! The nouns as fields of a payload.

use assent_frame::{Head, Malformed, Reader, Writer};
use assent_ids::{Epoch, Incarnation, TxId, Xid};

use crate::WireError;

/// Lays one message as a frame, or leaves the buffer as it was.
pub(crate) fn lay(
    out: &mut Vec<u8>,
    mark: u64,
    kind: u16,
    limit: usize,
    fields: impl FnOnce(&mut Writer),
) -> Result<(), WireError> {
    let (start, mut bytes) = (out.len(), 0);
    assent_frame::lay_with(out, Head { mark, kind, ..Head::default() }, |to| {
        let before = to.as_slice().len();
        fields(to);
        bytes = to.as_slice().len() - before;
    });
    let limit = limit.min(assent_frame::PAYLOAD_BYTES_MAX);
    if bytes <= limit {
        return Ok(());
    }
    out.truncate(start);
    out.shrink_to(start.max(2 * limit));
    Err(WireError::TooLarge { bytes, limit })
}

pub(crate) fn put_incarnation(to: &mut Writer, it: Incarnation) {
    to.u32(it.epoch.0).u32(it.number);
}

pub(crate) fn incarnation(from: &mut Reader<'_>) -> Result<Incarnation, Malformed> {
    Ok(Incarnation { epoch: Epoch(from.u32("epoch")?), number: from.u32("incarnation")? })
}

pub(crate) fn put_tx(to: &mut Writer, tx: TxId) {
    put_incarnation(to, tx.incarnation);
    to.u64(tx.counter);
}

pub(crate) fn tx(from: &mut Reader<'_>) -> Result<TxId, Malformed> {
    Ok(TxId { incarnation: incarnation(from)?, counter: from.u64("counter")? })
}

pub(crate) fn put_xid(to: &mut Writer, xid: &Xid) {
    let byte = |part: &[u8]| u8::try_from(part.len()).unwrap_or(u8::MAX);
    to.u32(xid.format().cast_unsigned()).u8(byte(xid.gtrid())).u8(byte(xid.bqual()));
    to.raw(xid.gtrid()).raw(xid.bqual());
}

pub(crate) fn xid(from: &mut Reader<'_>) -> Result<Xid, Malformed> {
    let format = from.u32("xid format")?.cast_signed();
    let gtrid = usize::from(from.u8("xid gtrid length")?);
    let bqual = usize::from(from.u8("xid bqual length")?);
    let (gtrid, bqual) = (from.raw(gtrid, "xid gtrid")?, from.raw(bqual, "xid bqual")?);
    Xid::new(format, gtrid, bqual).map_err(|_| Malformed { field: "xid" })
}

pub(crate) fn put_option<T>(to: &mut Writer, it: Option<&T>, put: impl FnOnce(&mut Writer, &T)) {
    to.u8(u8::from(it.is_some()));
    if let Some(it) = it {
        put(to, it);
    }
}

pub(crate) fn option<'a, T>(
    from: &mut Reader<'a>,
    field: &'static str,
    take: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    if flag(from, field)? { take(from).map(Some) } else { Ok(None) }
}

/// A word of a table that is never renumbered.
pub(crate) fn put_word<T: PartialEq>(to: &mut Writer, table: &[(u8, T)], it: &T) {
    // Every value stands in its table: the round-trip tests lay each.
    let byte = table.iter().find(|(_, word)| word == it).map_or(0, |(byte, _)| *byte);
    to.u8(byte);
}

pub(crate) fn word<T: Copy>(from: &mut Reader<'_>, field: &'static str, table: &[(u8, T)]) -> Result<T, Malformed> {
    let byte = from.u8(field)?;
    table.iter().find(|(known, _)| *known == byte).map(|(_, word)| *word).ok_or(Malformed { field })
}

pub(crate) fn flag(from: &mut Reader<'_>, field: &'static str) -> Result<bool, Malformed> {
    match from.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed { field }),
    }
}

/// The most elements of one list. A message of 256 MiB has room for thirty million, which would take gigabytes once they are read.
pub(crate) const LIST_MAX: usize = 1 << 20;

/// A list runs to the end of the payload, so that no count of a stranger reserves memory.
pub(crate) fn rest<'a, T>(
    from: &mut Reader<'a>,
    mut take: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut list = Vec::new();
    while !from.rest().is_empty() {
        if list.len() == LIST_MAX {
            return Err(Malformed { field: "list of more than 1048576" });
        }
        list.push(take(from)?);
    }
    Ok(list)
}

/// A list within a payload: its count, then its elements, each of which takes at least a byte.
pub(crate) fn put_list<T>(to: &mut Writer, list: &[T], mut put: impl FnMut(&mut Writer, &T)) {
    to.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
    list.iter().for_each(|it| put(to, it));
}

pub(crate) fn list<'a, T>(
    from: &mut Reader<'a>,
    field: &'static str,
    mut take: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = from.u32(field)?;
    let mut list = Vec::new();
    for _ in 0..count {
        if list.len() == LIST_MAX {
            return Err(Malformed { field });
        }
        list.push(take(from)?);
    }
    Ok(list)
}
