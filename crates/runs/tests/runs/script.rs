//! What is done to a map, as values, and a plain sorted map that does the same.

use std::collections::BTreeMap;
use std::ops::Bound;

use assent_runs::{Change, Runs, RunsError, View};
use assent_sim::Rng;

use super::accounts::is_expired;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Erase(Vec<u8>, Option<Vec<u8>>),
}

/// One batch at its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    pub seq: u64,
    pub ops: Vec<Op>,
}

impl Batch {
    pub fn roll(rng: &mut Rng, seq: u64, keys: u64) -> Self {
        let count = rng.below(5);
        Self { seq, ops: (0..count).map(|_| op(rng, seq, keys)).collect() }
    }

    pub fn apply(&self, runs: &Runs) -> Result<(), RunsError> {
        let changes: Vec<Change<'_>> = self
            .ops
            .iter()
            .map(|op| match op {
                Op::Put(key, value) => Change::Put { key, value },
                Op::Delete(key) => Change::Delete { key },
                Op::Erase(from, to) => Change::Erase { from, to: to.as_deref() },
            })
            .collect();
        runs.apply(self.seq, &changes)?;
        super::close_if_full(runs);
        Ok(())
    }
}

/// No script has more keys.
const KEYS_MAX: u64 = 24;

fn key(rng: &mut Rng, keys: u64) -> Vec<u8> {
    assert!(keys <= KEYS_MAX, "each is looked up");
    key_of(rng.below(keys))
}

fn key_of(number: u64) -> Vec<u8> {
    // Some are long and share what they begin with.
    let long = if number % 5 == 4 { "a long and common prefix of a key " } else { "" };
    format!("{long}{number:02}").into_bytes()
}

fn op(rng: &mut Rng, seq: u64, keys: u64) -> Op {
    match rng.below(24) {
        0 => {
            let to = (rng.below(8) > 0).then(|| key(rng, keys));
            Op::Erase(key(rng, keys), to)
        }
        1..=6 => Op::Delete(key(rng, keys)),
        roll => {
            let length = [1, 9, 40, 200][rng.index(4)];
            let mut value = seq.to_le_bytes().repeat(length);
            value.truncate(length + 7);
            value[0] = if roll == 7 { b'!' } else { b'v' };
            Op::Put(key(rng, keys), value)
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub keys: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
}

impl Model {
    pub fn take(&mut self, batch: &Batch) {
        // A range erases what was before the batch: first of all, wherever it stands.
        for op in &batch.ops {
            if let Op::Erase(from, to) = op {
                let inside = |key: &Vec<u8>| key >= from && to.as_ref().is_none_or(|to| key < to);
                self.keys.retain(|key, _| !inside(key));
            }
        }
        for op in &batch.ops {
            match op {
                Op::Put(key, value) => _ = self.keys.insert(key.clone(), (batch.seq, value.clone())),
                Op::Delete(key) => _ = self.keys.remove(key),
                Op::Erase(..) => {}
            }
        }
    }

    pub fn of<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Self {
        let mut model = Self::default();
        batches.into_iter().for_each(|batch| model.take(batch));
        model
    }

    /// Whether a view is this, but for values that have expired, which may be gone.
    pub fn compare(&self, view: &View) -> Result<(), String> {
        let found = walked(view)?;
        for (key, entry) in &found {
            if self.keys.get(key) != Some(entry) {
                let expected = self.keys.get(key);
                return Err(format!("{:?} is {entry:?}; expected {expected:?}", String::from_utf8_lossy(key)));
            }
        }
        for (key, (seq, value)) in &self.keys {
            if !found.contains_key(key) && !is_expired(value) {
                return Err(format!("{:?} of {seq} is missing", String::from_utf8_lossy(key)));
            }
        }
        self.look_up(view)
    }

    /// The same by looking up every key that there may be: a row that only a look-up believes is met by no walk.
    pub fn look_up(&self, view: &View) -> Result<(), String> {
        let mut in_order = [view.in_order(), view.in_order_ahead()];
        for key in (0..KEYS_MAX).map(key_of) {
            let newest = |seq, value: Option<&[u8]>| value.map(|value| (seq, value.to_vec()));
            let [cached, ahead] = in_order.each_mut().map(|rows| rows.newest(&key, newest).map(Option::flatten));
            if cached != ahead || cached.as_ref().is_ok_and(|found| found.as_ref() != self.keys.get(&key)) {
                let may_be_gone = self.keys.get(&key).is_some_and(|(_, value)| is_expired(value));
                if cached != ahead || !(may_be_gone && cached == Ok(None)) {
                    return Err(format!("{:?} in order is {cached:?}, {ahead:?}", String::from_utf8_lossy(&key)));
                }
            }
            let found = view.get(&key).map_err(|error| error.to_string())?.map(|found| (found.seq, found.value));
            let expected = self.keys.get(&key);
            let may_be_gone = expected.is_some_and(|(_, value)| is_expired(value));
            if found.as_ref() != expected && !(found.is_none() && may_be_gone) {
                let key = String::from_utf8_lossy(&key);
                return Err(format!("{key:?} is looked up as {found:?}; expected {expected:?}"));
            }
        }
        Ok(())
    }
}

type Rows = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// All entries of a view, walked onwards, backwards, from both ends, and looked up; they must agree.
pub fn walked(view: &View) -> Result<Rows, String> {
    let mut rows = Rows::new();
    let mut order = Vec::new();
    let mut walk = view.range(Bound::Unbounded, Bound::Unbounded);
    while let Some(entry) = walk.next().map_err(|error| error.to_string())? {
        let (key, found) = entry;
        order.push(key.clone());
        rows.insert(key, (found.seq, found.value));
    }
    if !order.is_sorted_by(|a, b| a < b) {
        return Err(format!("not in order: {order:?}"));
    }
    let mut walk = view.range(Bound::Unbounded, Bound::Unbounded);
    let mut backwards = Vec::new();
    while let Some(entry) = walk.prev().map_err(|error| error.to_string())? {
        backwards.push(entry.0);
    }
    backwards.reverse();
    if backwards != order {
        return Err(format!("onwards {order:?}, backwards {backwards:?}"));
    }
    let mut walk = view.range(Bound::Unbounded, Bound::Unbounded);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let is_front = front.len() <= back.len();
        let entry = if is_front { walk.next() } else { walk.prev() };
        let Some(entry) = entry.map_err(|error| error.to_string())? else { break };
        if is_front { front.push(entry.0) } else { back.push(entry.0) }
    }
    front.extend(back.into_iter().rev());
    if front != order {
        return Err(format!("onwards {order:?}, from both ends {front:?}"));
    }
    for (key, row) in &rows {
        let found = view.get(key).map_err(|error| error.to_string())?.map(|found| (found.seq, found.value));
        if found.as_ref() != Some(row) {
            return Err(format!("{key:?}: walked {row:?}, looked up {found:?}"));
        }
    }
    Ok(rows)
}
