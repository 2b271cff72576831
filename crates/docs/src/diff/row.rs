//! The values of an array while they come and go: who is how far from the front, without a walk over all of them.
//!
//! Walk: values stand in pieces of a few hundred, and each knows its piece · [`Row::place`] counts the pieces before it and the values
//! before it in its own.
//! Deliberately absent: a tree. Of a million values two thousand pieces are counted.

use std::collections::HashMap;

use crate::node::NodeKey;

/// A piece of more than this is cut in two.
const PIECE_MAX: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Row {
    pieces: Vec<Vec<NodeKey>>,
    /// Pieces by their numbers, in the order of the row.
    order: Vec<usize>,
    home: HashMap<NodeKey, usize>,
}

impl Row {
    pub(super) fn of(keys: &[NodeKey]) -> Self {
        let mut row = Self::default();
        for part in keys.chunks(PIECE_MAX / 2) {
            let number = row.pieces.len();
            row.home.extend(part.iter().map(|key| (*key, number)));
            row.order.push(number);
            row.pieces.push(part.to_vec());
        }
        row
    }

    fn piece(&self, number: usize) -> &[NodeKey] {
        self.pieces.get(number).map_or(&[], Vec::as_slice)
    }

    /// How many are before it.
    pub(super) fn place(&self, key: NodeKey) -> Option<usize> {
        let home = *self.home.get(&key)?;
        let before = self.order.iter().take_while(|number| **number != home).map(|number| self.piece(*number).len());
        Some(before.sum::<usize>() + self.piece(home).iter().position(|of| *of == key)?)
    }

    pub(super) fn take(&mut self, key: NodeKey) {
        if let Some(piece) = self.home.remove(&key).and_then(|home| self.pieces.get_mut(home)) {
            piece.retain(|of| *of != key);
        }
    }

    /// Behind this one; before all where there is none, or it is not here.
    pub(super) fn put(&mut self, key: NodeKey, left: Option<NodeKey>) {
        let beside = left.and_then(|left| Some((*self.home.get(&left)?, left)));
        let first = beside.map(|(home, _)| home).or(self.order.first().copied());
        let home = first.unwrap_or_else(|| self.new_piece(Vec::new(), 0));
        let Some(piece) = self.pieces.get_mut(home) else { return };
        let at = beside.and_then(|(_, left)| piece.iter().position(|of| *of == left)).map_or(0, |at| at + 1);
        piece.insert(at, key);
        self.home.insert(key, home);
        self.cut(home);
    }

    /// Behind all.
    pub(super) fn put_last(&mut self, key: NodeKey) {
        let home = self.order.last().copied().unwrap_or_else(|| self.new_piece(Vec::new(), 0));
        if let Some(piece) = self.pieces.get_mut(home) {
            piece.push(key);
        }
        self.home.insert(key, home);
        self.cut(home);
    }

    /// One in another's place.
    pub(super) fn substitute(&mut self, old: NodeKey, new: NodeKey) {
        let Some(home) = self.home.remove(&old) else { return };
        self.home.insert(new, home);
        let piece = self.pieces.get_mut(home).into_iter().flatten();
        piece.filter(|of| **of == old).for_each(|of| *of = new);
    }

    fn new_piece(&mut self, keys: Vec<NodeKey>, at: usize) -> usize {
        let number = self.pieces.len();
        self.home.extend(keys.iter().map(|key| (*key, number)));
        self.order.insert(at.min(self.order.len()), number);
        self.pieces.push(keys);
        number
    }

    fn cut(&mut self, number: usize) {
        let Some(piece) = self.pieces.get_mut(number).filter(|piece| piece.len() > PIECE_MAX) else { return };
        let rest = piece.split_off(PIECE_MAX / 2);
        let at = self.order.iter().position(|of| *of == number).map_or(self.order.len(), |at| at + 1);
        self.new_piece(rest, at);
    }
}

#[cfg(test)]
mod tests {
    use assent_sim::Rng;

    use super::*;

    #[test]
    fn everybody_is_where_a_plain_list_has_them() {
        for seed in 0..4 {
            let mut rng = Rng::new(seed);
            let mut list: Vec<NodeKey> = (1..=[0, 1, 600, 3000][usize::try_from(seed).unwrap()]).map(NodeKey).collect();
            let mut row = Row::of(&list);
            let mut next = 10_000;
            for _ in 0..3000 {
                let at = rng.index(list.len() + 1);
                next += 1;
                match rng.below(8) {
                    0 | 1 if at < list.len() => row.take(list.remove(at)),
                    2 if at < list.len() => {
                        row.substitute(list[at], NodeKey(next));
                        list[at] = NodeKey(next);
                    }
                    3 => {
                        row.put_last(NodeKey(next));
                        list.push(NodeKey(next));
                    }
                    _ => {
                        let left = at.checked_sub(1).map(|left| list[left]);
                        row.put(NodeKey(next), left);
                        list.insert(at, NodeKey(next));
                    }
                }
                let at = rng.index(list.len().max(1));
                if let Some(key) = list.get(at) {
                    assert_eq!(row.place(*key), Some(at), "seed {seed}");
                }
            }
            for (at, key) in list.iter().enumerate() {
                assert_eq!(row.place(*key), Some(at), "seed {seed}");
            }
            assert_eq!(row.place(NodeKey(9_999)), None);
            assert!(row.pieces.iter().all(|piece| piece.len() <= PIECE_MAX));
        }
    }
}
