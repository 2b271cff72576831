//! What the race believes of every store, asked of one: a member that does not keep this has no figures.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use assent_kind::Kind;

use super::keys;
use super::store::{Ability, Member, Setup, Store, Write};
use super::value::{self, Head, Pool};
use crate::BenchError;

const KEYS: u64 = 200;
const VALUE_BYTES: usize = 500;
/// Is deleted, and the next one written twice.
const GONE: u64 = 7;

/// Asks a member in an empty folder.
///
/// # Errors
/// [`Kind::Corrupt`] with the first promise that is not kept; what the store says.
pub fn check(member: &Member, folder: &Path) -> Result<(), BenchError> {
    let setup = Setup {
        folder: folder.to_owned(),
        sync: true,
        cache_bytes: 8 << 20,
        value_cache_bytes: 8 << 20,
        segment_bytes: 1 << 20,
        disk_iops: None,
    };
    let store = (member.open)(&setup)?;
    fill(&*store)?;
    look(member, &*store)?;
    store.flush()?;
    store.close()?;
    let store = (member.open)(&setup)?;
    look(member, &*store)?;
    store.close()
}

fn wrong(member: &Member, what: String) -> BenchError {
    BenchError::new(Kind::Corrupt, format!("{}: {what}", member.name))
}

const fn version(key: u64) -> u64 {
    if key == GONE + 1 { 2 } else { 1 }
}

fn fill(store: &dyn Store) -> Result<(), BenchError> {
    let (pool, mut laid) = (Pool::new(1), Vec::new());
    for key in 0..KEYS {
        pool.lay(Head { key, version: 1, indexed: 0 }, VALUE_BYTES, &mut laid);
        store.write(&[Write::Put(&keys::object(key), &laid)], key % 2 == 0)?;
    }
    let (gone, twice) = (keys::object(GONE), keys::object(GONE + 1));
    pool.lay(Head { key: GONE + 1, version: 2, indexed: 0 }, VALUE_BYTES, &mut laid);
    // An index entry has no value.
    let (entry, other) = (keys::entry(1, 5, 9), keys::entry(1, 6, 9));
    let writes = [Write::Delete(&gone), Write::Put(&twice, &laid), Write::Put(&entry, b""), Write::Put(&other, b"")];
    store.write(&writes, true)
}

fn look(member: &Member, store: &dyn Store) -> Result<(), BenchError> {
    let lacks = |ability| member.lacks.iter().any(|(lack, _)| *lack == ability);
    let (mut found, mut head) = (Vec::new(), Vec::new());
    for key in 0..KEYS {
        let there = store.get(&keys::object(key), &mut found)?;
        if there == (key == GONE) {
            return Err(wrong(member, format!("key {key} is found: {there}")));
        }
        if !lacks(Ability::Head) && store.head(&keys::object(key), &mut head)? != there {
            return Err(wrong(member, format!("key {key}: GET and HEAD say two things")));
        }
        if !there {
            continue;
        }
        let mut seen = vec![value::check(key, &found, VALUE_BYTES)?.version];
        if !lacks(Ability::Head) {
            seen.push(value::head(key, &head)?.version);
        }
        if let Some(seen) = seen.into_iter().find(|seen| *seen != version(key)) {
            return Err(wrong(member, format!("key {key} has version {seen}, {} was written last", version(key))));
        }
    }
    if !store.get(&keys::entry(1, 5, 9), &mut found)? || !found.is_empty() {
        return Err(wrong(member, format!("an empty value was written, {} bytes are found", found.len())));
    }
    folds(member, store)?;
    if lacks(Ability::Order) { Ok(()) } else { ranges(member, store) }
}

fn folds(member: &Member, store: &dyn Store) -> Result<(), BenchError> {
    let (mut rows, mut odd) = (BTreeSet::new(), None);
    store.fold(keys::OBJECTS.0, keys::OBJECTS.1, &mut |key, row| {
        let number = keys::number_of(key).filter(|number| value::head(*number, row).is_ok());
        match number.filter(|number| rows.insert(*number)) {
            Some(_) => ControlFlow::Continue(()),
            None => {
                odd = Some(format!("a fold shows {key:?}, which is nobody's or was shown before"));
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(odd) = odd {
        return Err(wrong(member, odd));
    }
    let expected: BTreeSet<u64> = (0..KEYS).filter(|key| *key != GONE).collect();
    if rows != expected {
        return Err(wrong(member, format!("a fold shows {} objects of {}", rows.len(), expected.len())));
    }
    let mut shown = 0;
    store.fold(keys::OBJECTS.0, keys::OBJECTS.1, &mut |_, _| {
        shown += 1;
        if shown == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if shown == 3 { Ok(()) } else { Err(wrong(member, format!("a fold that was stopped at 3 rows shows {shown}"))) }
}

fn ranges(member: &Member, store: &dyn Store) -> Result<(), BenchError> {
    let mut rows: Vec<Vec<u8>> = Vec::new();
    store.fold(&keys::entry(1, 5, 0), &keys::entry(1, 6, 0), &mut |key, _| {
        rows.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    if rows != [keys::entry(1, 5, 9).to_vec()] {
        return Err(wrong(member, format!("a range of one entry shows {rows:?}")));
    }
    let mut last: Vec<u8> = Vec::new();
    let mut order = true;
    store.fold(keys::OBJECTS.0, keys::OBJECTS.1, &mut |key, _| {
        order &= last.as_slice() < key;
        last = key.to_vec();
        ControlFlow::Continue(())
    })?;
    if order { Ok(()) } else { Err(wrong(member, "a range is not in order".to_owned())) }
}
