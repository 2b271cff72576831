//! What one connection waits for: answers go out in the order of its requests, whenever each of them is there.
//!
//! Walk: [`Due::begin`] gives a request its place · [`Due::answer`] lays its answer where it can be written, or keeps it until those before
//! it are there. Deliberately absent: a limit; whoever takes requests looks at [`Due::len`].

use std::collections::VecDeque;

/// The answers that are due, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Due {
    waiting: VecDeque<(u64, Option<Vec<u8>>)>,
    /// The place of the first.
    first: u64,
    kept_bytes: usize,
    closed: bool,
}

impl Due {
    /// A request, under the client's mark; its place.
    pub(crate) fn begin(&mut self, mark: u64) -> u64 {
        let place = self.first + u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.waiting.push_back((mark, None));
        place
    }

    /// The answer to the request of that place, laid with its mark.
    pub(crate) fn answer(&mut self, place: u64, out: &mut Vec<u8>, lay: impl FnOnce(&mut Vec<u8>, u64)) {
        let Some(at) = place.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) else { return };
        let Some((mark, kept)) = self.waiting.get_mut(at) else { return };
        if at > 0 {
            let kept = kept.get_or_insert_default();
            self.kept_bytes -= kept.len();
            lay(kept, *mark);
            self.kept_bytes += kept.len();
            return;
        }
        lay(out, *mark);
        self.pop();
        while let Some((_, Some(_))) = self.waiting.front() {
            let (_, answer) = self.pop();
            let answer = answer.unwrap_or_default();
            self.kept_bytes -= answer.len();
            out.extend_from_slice(&answer);
        }
    }

    fn pop(&mut self) -> (u64, Option<Vec<u8>>) {
        self.first += 1;
        self.waiting.pop_front().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of answers that wait for those before them.
    pub(crate) const fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nothing more is taken of this connection.
    pub(crate) const fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_out_in_the_order_of_requests_and_marks_may_be_the_same() {
        let (mut due, mut out) = (Due::default(), Vec::new());
        let places: Vec<u64> = [7, 7, 9, 1].into_iter().map(|mark| due.begin(mark)).collect();
        let mut answer = |due: &mut Due, at: usize, text: u8| {
            due.answer(places[at], &mut out, |out, mark| out.extend([u8::try_from(mark).unwrap(), text]));
            out.clone()
        };
        assert!(answer(&mut due, 2, 3).is_empty());
        assert!(answer(&mut due, 1, 2).is_empty());
        assert_eq!(due.kept_bytes(), 4);
        assert_eq!(answer(&mut due, 0, 1), [7, 1, 7, 2, 9, 3]);
        assert_eq!((due.len(), due.kept_bytes()), (1, 0));
        assert_eq!(answer(&mut due, 3, 4), [7, 1, 7, 2, 9, 3, 1, 4]);
        assert_eq!(answer(&mut due, 3, 4).len(), 8, "an answer is given once");
        assert!(due.is_empty());
        let next = due.begin(5);
        assert_eq!(next, 4);
    }
}
