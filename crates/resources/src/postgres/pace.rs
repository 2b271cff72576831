//! Where a conversation stands, by the bytes that pass, whoever says them: the driver or we.
//!
//! Walk: [`Pace::begin`] behind the greeting · [`Pace::asks`] and [`Pace::answers`] see all bytes of the connection.
//! Source: PostgreSQL's manual, "Frontend/Backend Protocol".
//! Deliberately absent: what an answer says (`answer.rs`), sockets (`socket.rs`).

/// Of a message: its kind and its length.
const HEAD_BYTES: u8 = 5;

/// How the tags of DEALLOCATE and DISCARD begin.
const LET_GO: [[u8; 4]; 2] = [*b"DEAL", *b"DISC"];

/// How the tags of those begin that say how many rows they wrote; and what ends them where that is none.
const WRITES: [[u8; 4]; 4] = [*b"INSE", *b"UPDA", *b"DELE", *b"MERG"];
const NO_ROW: [u8; 3] = *b" 0\0";
/// How those begin that only open and end transactions.
const FRAMES: [[u8; 4]; 4] = [*b"BEGI", *b"PREP", *b"COMM", *b"ROLL"];

/// What was done, by its tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Rows were written, since a branch has begun.
    pub(super) wrote: bool,
    /// Something else was done than to write rows: it may have gone on as another role.
    pub(super) did_else: bool,
}

impl Work {
    fn take(&mut self, first: [u8; 4], last: [u8; 3]) {
        if WRITES.contains(&first) {
            self.wrote |= last != NO_ROW;
        } else {
            self.did_else |= !FRAMES.contains(&first);
        }
    }
}

/// Where a conversation stands, by the bytes that pass.
#[derive(Debug, Default)]
pub(super) struct Pace {
    asked: Frames,
    answered: Frames,
    /// Questions whose answers have not ended.
    owed: u32,
    /// What the last end said of the transaction.
    status: u8,
    /// The server process, as the greeting names it.
    process: Option<u32>,
    /// Prepared statements have been let go of.
    has_let_go: bool,
    /// Since it was taken last.
    work: Work,
}

impl Pace {
    /// The greeting, whose messages have other forms, is over.
    pub(super) fn begin(&mut self) {
        (self.asked, self.owed) = (Frames::default(), 0);
    }

    /// Bytes to the server.
    pub(super) fn asks(&mut self, bytes: &[u8]) {
        let Self { asked, owed, .. } = self;
        // A text, or the end of an extended question.
        asked.take(bytes, |kind, _, _| *owed = owed.saturating_add(u32::from(matches!(kind, b'Q' | b'S'))));
    }

    /// Bytes from it.
    pub(super) fn answers(&mut self, bytes: &[u8]) {
        let Self { answered, owed, status, process, has_let_go, work, .. } = self;
        answered.take(bytes, |kind, first, last| match kind {
            b'Z' => (*owed, *status) = (owed.saturating_sub(1), last[2]),
            b'K' => *process = Some(u32::from_be_bytes(first)),
            b'C' => {
                *has_let_go |= LET_GO.contains(&first);
                work.take(first, last);
            }
            _ => {}
        });
    }

    /// The server discards the text that was asked last.
    pub(super) const fn skipped(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    /// The server process, as the greeting names it.
    pub(super) const fn process(&self) -> Option<u32> {
        self.process
    }

    /// Whether prepared statements have been let go of since this was asked last.
    pub(super) const fn take_let_go(&mut self) -> bool {
        std::mem::replace(&mut self.has_let_go, false)
    }

    /// What was written before a branch is not its own.
    pub(super) const fn begin_branch(&mut self) {
        self.work.wrote = false;
    }

    /// What was done since this was asked last.
    pub(super) const fn take_work(&mut self) -> Work {
        std::mem::replace(&mut self.work, Work { wrote: false, did_else: false })
    }

    /// Whether rows were written since a branch has begun.
    pub(super) const fn has_written(&self) -> bool {
        self.work.wrote
    }

    /// Whether every answer has ended, and nothing else has begun.
    pub(super) const fn is_quiet(&self) -> bool {
        self.owed == 0 && self.answered.is_between()
    }

    /// Whether the server said at last that no transaction is open.
    pub(super) const fn is_idle(&self) -> bool {
        self.owed == 0 && self.status == b'I'
    }

    /// Whether it said at last that one is, and has not failed.
    pub(super) const fn is_open(&self) -> bool {
        self.owed == 0 && self.status == b'T'
    }
}

/// Finds the messages in bytes that come in pieces: a kind, a length that counts itself, a body.
#[derive(Debug, Default)]
struct Frames {
    head: u64,
    have: u8,
    left: usize,
    /// Of the body.
    first: [u8; 4],
    seen: usize,
    last: [u8; 3],
}

impl Frames {
    /// Calls for each message that ends with its kind, the first bytes of its body and its last ones.
    fn take(&mut self, bytes: &[u8], mut ended: impl FnMut(u8, [u8; 4], [u8; 3])) {
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            if self.have < HEAD_BYTES {
                (self.head, self.have, rest) = (self.head << 8 | u64::from(*byte), self.have + 1, behind);
                // Once a message: this is done for each byte of each head.
                if self.have == HEAD_BYTES {
                    (self.first, self.seen, self.last) = ([0; 4], 0, [0; 3]);
                    let [.., first, second, third, fourth] = self.head.to_be_bytes();
                    let length = u32::from_be_bytes([first, second, third, fourth]).saturating_sub(4);
                    self.left = usize::try_from(length).unwrap_or(usize::MAX);
                }
            } else {
                let (body, behind) = rest.split_at(self.left.min(rest.len()));
                self.first.iter_mut().skip(self.seen).zip(body).for_each(|(to, from)| *to = *from);
                (self.seen, self.left) = (self.seen.saturating_add(body.len()), self.left - body.len());
                for byte in body.get(body.len().saturating_sub(self.last.len())..).unwrap_or_default() {
                    let [_, second, third] = self.last;
                    self.last = [second, third, *byte];
                }
                rest = behind;
            }
            if self.have == HEAD_BYTES && self.left == 0 {
                let [_, _, _, kind, ..] = self.head.to_be_bytes();
                self.have = 0;
                ended(kind, self.first, self.last);
            }
        }
    }

    const fn is_between(&self) -> bool {
        self.have == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::answer::tests::{done, message, ready};

    #[test]
    fn the_greeting_names_the_process_and_tags_tell_of_statements_that_were_let_go() {
        let greeting = [message(b'R', &[0; 4]), message(b'K', &[0, 0, 1, 2, 9, 9, 9, 9]), ready(b'I')].concat();
        for step in [1, 3, 100] {
            let mut pace = Pace::default();
            greeting.chunks(step).for_each(|part| pace.answers(part));
            assert_eq!((pace.process(), pace.take_let_go()), (Some(258), false));
            for (tag, lets_go) in [("DELETE 1", false), ("DEALLOCATE", true), ("DISCARD ALL", true), ("DECLARE", false)]
            {
                message(b'C', format!("{tag}\0").as_bytes()).chunks(step).for_each(|part| pace.answers(part));
                assert_eq!((pace.take_let_go(), pace.take_let_go()), (lets_go, false), "{tag}");
            }
        }
    }

    #[test]
    fn the_pace_counts_what_is_owed_however_the_bytes_come() {
        let asked = [message(b'P', b"x"), message(b'S', b""), message(b'Q', b"SELECT 'Z'\0")].concat();
        let row = message(b'D', b"\0\x01\0\0\0\x06Z\0\0\0\x05I");
        let told = [row, done(), ready(b'T'), message(b'E', b"C1\0\0"), ready(b'I')].concat();
        for step in [1, 3, asked.len()] {
            let mut pace = Pace::default();
            pace.asks(b"\0\0\0\x08\0\x03\0\0");
            pace.answers(&ready(b'I'));
            pace.begin();
            assert!(pace.is_quiet() && pace.is_idle());
            asked.chunks(step).for_each(|part| pace.asks(part));
            assert!(!pace.is_quiet() && !pace.is_idle());
            let (first, rest) = told.split_at(told.len() - 6);
            first.chunks(step).for_each(|part| pace.answers(part));
            assert!(!pace.is_quiet() && !pace.is_idle(), "the error is not the end of its answer");
            rest.chunks(step).for_each(|part| pace.answers(part));
            assert!(pace.is_quiet() && pace.is_idle());
            pace.answers(b"S\0");
            assert!(!pace.is_quiet() && pace.is_idle(), "in the middle of something else");
        }
    }

    #[test]
    fn tags_tell_whether_rows_were_written_and_whether_anything_else_was_done() {
        let (nothing, wrote) = (Work::default(), Work { wrote: true, did_else: false });
        let other = Work { wrote: false, did_else: true };
        let cases = [
            (&["BEGIN", "UPDATE 1"][..], wrote),
            (&["UPDATE 0"], nothing),
            (&["UPDATE 10"], wrote),
            (&["UPDATE 2", "DELETE 0"], wrote),
            (&["INSERT 0 0"], nothing),
            (&["INSERT 0 3"], wrote),
            (&["MERGE 7"], wrote),
            (&["BEGIN", "PREPARE TRANSACTION", "COMMIT PREPARED", "ROLLBACK PREPARED"], nothing),
            (&["SELECT 1"], other),
            (&["SET"], other),
            (&["RESET"], other),
            (&["DO"], other),
            (&["CALL"], other),
            (&["COPY 5"], other),
            (&["DISCARD ALL"], other),
            (&["UPDATE 1", "SELECT 1"], Work { wrote: true, did_else: true }),
        ];
        for step in [1, 2, 3, 100] {
            for (tags, work) in cases {
                let mut pace = Pace::default();
                let told: Vec<u8> = tags.iter().flat_map(|tag| message(b'C', format!("{tag}\0").as_bytes())).collect();
                told.chunks(step).for_each(|part| pace.answers(part));
                assert_eq!(pace.take_work(), work, "{tags:?}");
                assert_eq!(pace.take_work(), nothing);
                told.chunks(step).for_each(|part| pace.answers(part));
                pace.begin_branch();
                assert_eq!(pace.take_work(), Work { wrote: false, ..work }, "{tags:?} before a branch");
            }
        }
    }
}
