//! One client of a member of a group: its connection, the answers that it waits for, and how many bytes those may be.
//!
//! Walk: [`Caller::owes`] says what an answer may take · [`Caller::begin`] gives a request its place, and books that · [`Caller::answer`] lays
//! it, and books it out ·
//! [`Caller::has_no_room`] before anything more is taken from it.
//! Deliberately absent: which answers those are, and when they may be told.

use std::collections::BTreeMap;

use assent_kind::Kind;
use assent_membership::Sequence;

use crate::answer::OUTPUT_BYTES_MAX;
use crate::command::{Command, OPS_MAX, Request, SessionName, What};
use crate::due::Due;
use crate::guest::{Guest, UNREAD_BYTES_MAX};
use crate::message;
use crate::subscribe::SubscriptionId;

/// Commands of one connection that have no answer; with so many nothing more is taken from it.
const DUE_MAX: usize = 8_192;
/// Bytes of an answer beside its results.
const ANSWER_BYTES: usize = 64;
/// Bytes of one result.
const RESULT_BYTES: usize = 16;
/// What business logic is taken to answer: what fills a window of it, and no burst of the longest.
const OUTPUT_BYTES: usize = OUTPUT_BYTES_MAX / 16;
/// The longest answer to a request of a session.
const LONGEST_BYTES: usize = ANSWER_BYTES + OUTPUT_BYTES_MAX + RESULT_BYTES * OPS_MAX;

/// One client.
pub(crate) struct Caller {
    pub(crate) guest: Guest,
    pub(crate) due: Due,
    pub(crate) subscription: Option<(SubscriptionId, u64)>,
    /// Its place is kept for questions: no command is taken from it.
    pub(crate) only_asks: bool,
    /// What the answers may take that are not there yet, and what waits with them.
    pub(crate) owed_bytes: usize,
    /// The highest requests of sessions that may have no answer yet.
    asked: BTreeMap<SessionName, u64>,
}

/// Whose answer, which of them, and what it was booked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    pub(crate) token: usize,
    pub(crate) place: u64,
    pub(crate) owed_bytes: usize,
}

/// A command that waits to be confirmed.
pub(crate) struct Ordered {
    pub(crate) at: Sequence,
    pub(crate) whose: Whose,
    pub(crate) is_of_branch: bool,
}

/// An answer that is there, and may not be told yet.
pub(crate) struct Held {
    pub(crate) at: Sequence,
    pub(crate) whose: Whose,
    pub(crate) answer: Vec<u8>,
}

/// A read that waits until it may be answered.
pub(crate) struct Asked {
    pub(crate) whose: Whose,
    pub(crate) command: Vec<u8>,
}

/// What the answer to a command of so many bytes may take, with the command itself where it waits as a question.
fn owed_bytes(command: &Command<'_>, laid: usize) -> usize {
    match &command.what {
        What::Batch(ops) => ANSWER_BYTES + laid + RESULT_BYTES * usize::from(ops.count()),
        What::Prepare { ops, .. } => ANSWER_BYTES + RESULT_BYTES * usize::from(ops.count()),
        What::Call { .. } => ANSWER_BYTES + OUTPUT_BYTES,
        // It may be half a megabyte, and everybody waits while it is laid: one of them at a time.
        What::InDoubt => UNREAD_BYTES_MAX,
        _ => ANSWER_BYTES,
    }
}

impl Caller {
    pub(crate) fn new(guest: Guest, only_asks: bool) -> Self {
        Self { guest, due: Due::default(), subscription: None, only_asks, owed_bytes: 0, asked: BTreeMap::new() }
    }

    /// What the answer to a command of so many bytes may take. A request that was answered before is answered the same again, whatever it
    /// says now: `kept` is how long that is, if it is known.
    pub(crate) fn owes(
        &mut self,
        command: &Command<'_>,
        laid: usize,
        kept: impl FnOnce(Request) -> Option<usize>,
    ) -> usize {
        if self.due.is_empty() {
            self.asked.clear();
        }
        let owed = owed_bytes(command, laid);
        let Some(request) = command.request else { return owed };
        let again = match self.asked.get(&request.session) {
            // It stands behind itself in the log: nobody knows yet what it will have been.
            Some(highest) if request.number <= *highest => Some(LONGEST_BYTES),
            None if self.asked.len() >= DUE_MAX => Some(LONGEST_BYTES),
            _ => kept(request).map(|kept| ANSWER_BYTES + kept),
        };
        again.map_or(owed, |again| owed.max(again))
    }

    pub(crate) fn has_no_room(&self) -> bool {
        let unread = self.guest.outbox.len() + self.due.kept_bytes() + self.owed_bytes;
        unread >= UNREAD_BYTES_MAX || self.due.len() >= DUE_MAX
    }

    /// A request that is answered later.
    pub(crate) fn begin(&mut self, token: usize, mark: u64, request: Option<Request>, owed_bytes: usize) -> Whose {
        self.owed_bytes += owed_bytes;
        if let Some(Request { session, number, .. }) = request
            && (self.asked.len() < DUE_MAX || self.asked.contains_key(&session))
        {
            let highest = self.asked.entry(session).or_default();
            *highest = number.max(*highest);
        }
        Whose { token, place: self.due.begin(mark), owed_bytes }
    }

    /// Its answer.
    pub(crate) fn answer(&mut self, whose: Whose, lay: impl FnOnce(&mut Vec<u8>, u64)) {
        self.owed_bytes = self.owed_bytes.saturating_sub(whose.owed_bytes);
        self.due.answer(whose.place, &mut self.guest.outbox, lay);
    }

    pub(crate) fn reply(&mut self, mark: u64, lay: impl FnOnce(&mut Vec<u8>, u64)) {
        let place = self.due.begin(mark);
        self.due.answer(place, &mut self.guest.outbox, lay);
    }

    pub(crate) fn refuse(&mut self, mark: u64, kind: Kind, text: &str) {
        self.reply(mark, |out, mark| message::lay_refused(out, mark, kind, text));
    }

    /// Nothing of this request was done, nor will be of any behind it.
    pub(crate) fn send_elsewhere(&mut self, mark: u64, primary: &str, why: &str) {
        self.reply(mark, |out, mark| message::lay_elsewhere(out, mark, primary, why));
        self.due.close();
    }

    pub(crate) fn has_gone(&self) -> bool {
        self.guest.has_gone() && self.due.is_empty()
    }

    /// It says nothing more, and waits for answers.
    pub(crate) fn only_listens(&self) -> bool {
        self.guest.is_over && !self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use assent_frame::Writer;

    use super::*;
    use crate::{AssetId, Op};

    fn owed(lay: impl FnOnce(&mut Writer)) -> usize {
        let mut out = Writer::new();
        lay(&mut out);
        let bytes = out.into_vec();
        owed_bytes(&Command::read(&bytes).unwrap(), bytes.len())
    }

    #[test]
    fn what_is_booked_for_an_answer_is_what_it_may_take() {
        let gets = vec![Op::Get { id: AssetId(1) }; 1_024];
        let reads = owed(|out| Command::lay_batch(out, None, &gets));
        // The command waits with it.
        assert!((1_024 * (16 + 9)..1_024 * 32).contains(&reads), "{reads}");
        assert_eq!(owed(Command::lay_in_doubt), UNREAD_BYTES_MAX, "one list at a time");
        let one = owed(|out| Command::lay_batch(out, None, &gets[..1]));
        assert!(one * DUE_MAX < 2 * UNREAD_BYTES_MAX, "short commands are bounded by their number: {one}");
    }

    #[test]
    fn what_is_told_again_is_booked_as_what_it_was() {
        let mut caller = Caller::new(Guest::new(std::io::empty()), false);
        let owes = |caller: &mut Caller, session, number, kept| {
            let request = Request { session: SessionName(session), number, window: 4 };
            let mut out = Writer::new();
            Command::lay_batch(&mut out, Some(request), &[Op::Get { id: AssetId(1) }]);
            let bytes = out.into_vec();
            let owed = caller.owes(&Command::read(&bytes).unwrap(), bytes.len(), |_| kept);
            (owed, caller.begin(0, 0, Some(request), owed))
        };
        let (one, first) = owes(&mut caller, 1, 5, None);
        assert!(one < 128, "{one}");
        assert_eq!(owes(&mut caller, 1, 6, Some(9_000)).0, ANSWER_BYTES + 9_000, "another connection asked for it");
        assert_eq!(owes(&mut caller, 1, 7, Some(1)).0, one, "and no less than it says");
        for number in 5..8 {
            assert_eq!(owes(&mut caller, 1, number, None).0, LONGEST_BYTES, "it is under way");
        }
        assert_eq!(owes(&mut caller, 2, 1, None).0, one, "another session");
        assert_eq!(owes(&mut caller, 1, 8, None).0, one);
        for place in first.place..first.place + 8 {
            caller.answer(Whose { place, ..first }, |_, _| ());
        }
        assert_eq!(owes(&mut caller, 1, 5, Some(7_000)).0, ANSWER_BYTES + 7_000, "all has its answer, and is known");
    }
}
