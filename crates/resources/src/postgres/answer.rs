//! The answer to one message of ours, read off the server's bytes past the driver with its channels and futures.
//!
//! Walk: [`Answer::take`] bytes as they come, until the answer is over · [`Answer::end`] its rows, or why there are none.
//! Source: PostgreSQL's manual, "Frontend/Backend Protocol"; the messages are read by the crate that the driver has for it.
//! Trap: an answer ends with ReadyForQuery, not with the error in it; and what came behind that in the same read (a changed
//! setting) must be read to its own end, or the driver would begin in the middle of it.
//! Deliberately absent: sockets, time limits (`line.rs`), where the conversation stands (`pace.rs`), what a row means.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Header, Message};

use super::failure::Failure;
use crate::kept::said;

/// The longest message of an answer to us is a line of text.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The end of a statement, or of an empty one; rows and what stands over them; the end of an answer; and what a server says without being
/// asked: a notice, a changed setting, a notification.
const PLAIN: [u8; 8] = *b"CITDZNSA";
const NOTICE: u8 = b'N';

/// How the server calls what a vote and a commit in one phase ask for.
pub(super) const PREPARED: &str = "PREPARE TRANSACTION";
pub(super) const COMMITTED: &str = "COMMIT";
/// How it calls the end of a transaction that had failed, whatever was asked for.
const ROLLED_BACK: &str = "ROLLBACK";
/// SQLSTATE of what needs a transaction and finds none: an error or a warning.
pub(super) const NO_TRANSACTION: &str = "25P01";
/// SQLSTATE of what finds one that had failed.
const FAILED: &str = "25P02";
/// How it calls what waits for its standby while the time limit of the statement, or anybody's cancel, can end that wait: the commit of a
/// prepared transaction, and our own question whether commits are waited for (`recovery.rs`). Nothing of anybody else's runs in them.
const WAITED: [&str; 2] = ["COMMIT PREPARED", "DO"];
/// SQLSTATE of a warning that has none of its own: that the wait has ended so is one, and what was done stands here alone. So is RAISE
/// WARNING, which a vote or a commit may meet in triggers.
/// Source: PostgreSQL's syncrep.c, `SyncRepWaitForLSN`; tried on 15.
const WARNED: &str = "01000";

/// A row of an answer, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(pub(super) Vec<Option<String>>);

impl Row {
    /// What stands in a column; nothing if that is null, or there is none.
    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.0.get(at)?.as_deref()
    }

    /// Whether there is such a column, and nothing in it.
    pub(super) fn is_null(&self, at: usize) -> bool {
        matches!(self.0.get(at), Some(None))
    }
}

/// What has come of an answer.
#[derive(Default)]
pub(super) struct Answer {
    bytes: BytesMut,
    rows: Vec<Row>,
    failed: Option<Failure>,
    /// What the server called the last statement that was done.
    tag: Option<String>,
    /// It said that one of them found no transaction.
    is_outside: bool,
    /// It warned of something.
    is_warned: bool,
    has_ended: bool,
}

impl Answer {
    /// Takes what has come; whether the answer is over. The codes of notices go to `notice`.
    ///
    /// # Errors
    /// For bytes that are no answer to a question in text.
    pub(super) fn take(&mut self, bytes: &[u8], notice: &dyn Fn(&str)) -> Result<bool, Failure> {
        self.bytes.extend_from_slice(bytes);
        loop {
            let length = Header::parse(&self.bytes).map_err(unread)?.map(Header::len);
            if length.is_some_and(|bytes| usize::try_from(bytes).map_or(true, |bytes| bytes > MESSAGE_BYTES_MAX)) {
                let length = length.unwrap_or_default();
                return Err(lost(format!("a message of {length} bytes; at most {MESSAGE_BYTES_MAX}")));
            }
            let Some(message) = Message::parse(&mut self.bytes).map_err(unread)? else {
                return Ok(self.is_over());
            };
            match message {
                Message::CommandComplete(done) => self.tag = Some(done.tag().map_err(unread)?.to_owned()),
                Message::DataRow(row) => self.rows.push(read(&row).map_err(unread)?),
                Message::ErrorResponse(error) => {
                    let failure = failure(error.fields()).map_err(unread)?;
                    self.has_ended |= failure.lost;
                    self.failed.get_or_insert(failure);
                }
                Message::NoticeResponse(said) => {
                    let code = failure(said.fields()).map_err(unread)?.native.code;
                    self.is_outside |= code == NO_TRANSACTION;
                    self.is_warned |= code == WARNED;
                    notice(&code);
                }
                Message::ReadyForQuery(_) => self.has_ended = true,
                Message::CloseComplete
                | Message::ParseComplete
                | Message::BindComplete
                | Message::RowDescription(_)
                | Message::EmptyQueryResponse
                | Message::ParameterStatus(_)
                | Message::NotificationResponse(_) => {}
                _ => return Err(lost("an answer to something else than was asked".to_owned())),
            }
        }
    }

    /// Whether an error came before anything was done.
    pub(super) const fn has_failed_at_once(&self) -> bool {
        self.failed.is_some() && self.tag.is_none()
    }

    fn is_over(&self) -> bool {
        self.has_ended && self.bytes.is_empty()
    }

    /// The rows, where every statement was done, and the last one as `wanted` calls it, if it has to be.
    ///
    /// # Errors
    /// The server's first error; also an answer to nothing that was said, and one that no longer waited for its standby. Of a
    /// transaction's end: that there was none, or that it had failed.
    pub(super) fn end(self, wanted: Option<&str>) -> Result<Vec<Row>, Failure> {
        let Self { rows, failed, tag, is_outside, is_warned, .. } = self;
        if let Some(failure) = failed {
            return Err(failure);
        }
        let Some(tag) = tag else { return Err(without_statement()) };
        if is_warned && WAITED.contains(&tag.as_str()) {
            return Err(unwaited());
        }
        match wanted {
            None => Ok(rows),
            // Outside of a transaction a COMMIT is called so too; the warning that tells can be switched off (client_min_messages),
            // so bare words are said only where the end of the last answer told of an open one.
            Some(wanted) if wanted == tag && !(is_outside && wanted == COMMITTED) => Ok(rows),
            Some(_) if is_outside => Err(said_no(NO_TRANSACTION, "there is no transaction in progress")),
            Some(_) if tag == ROLLED_BACK => Err(said_no(FAILED, "the transaction had failed and was rolled back")),
            Some(wanted) => Err(lost(format!("{wanted} was answered by {tag:?}"))),
        }
    }
}

/// Why such an answer is not believed: every message of ours is answered by a statement that was done, or an error.
pub(super) fn without_statement() -> Failure {
    lost("an answer without a statement".to_owned())
}

pub(super) fn lost(message: String) -> Failure {
    Failure { native: said(message), lost: true }
}

/// Why it does not count that something is done: a standby that is promoted now may not have it.
fn unwaited() -> Failure {
    let message = "it is done here, but the server no longer waited for its standby; asked again it waits".to_owned();
    Failure { native: assent_xa::Native { code: WARNED.to_owned(), message }, lost: true }
}

/// As the server says it to other words.
fn said_no(code: &str, message: &str) -> Failure {
    Failure { native: assent_xa::Native { code: code.to_owned(), message: message.to_owned() }, lost: false }
}

fn unread(error: impl std::fmt::Display) -> Failure {
    lost(format!("an answer that cannot be read: {error}"))
}

fn read(row: &DataRowBody) -> std::io::Result<Row> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let columns = row.ranges().map(|place| Ok(place.and_then(|place| row.buffer().get(place)).map(text)));
    columns.collect().map(Row)
}

/// Of an error, or a notice.
fn failure(mut fields: ErrorFields<'_>) -> std::io::Result<Failure> {
    let (mut severity, mut code, mut message) = (String::new(), String::new(), String::new());
    while let Some(field) = fields.next()? {
        let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            // The second one is never translated, and comes behind the first.
            b'S' | b'V' => severity = value(),
            b'C' => code = value(),
            b'M' => message = value(),
            _ => {}
        }
    }
    let lost = matches!(severity.as_str(), "FATAL" | "PANIC");
    Ok(Failure { native: assent_xa::Native { code, message }, lost })
}

/// What has come of an answer of which nobody wants to know more than that it was plain: no error, and no COPY.
#[derive(Default)]
pub(super) struct Unwanted {
    /// A message that has come in part, or is not plain: from its head on.
    bytes: BytesMut,
    /// Bytes of a plain one that are still to come.
    skips: usize,
}

impl Unwanted {
    /// Takes what has come; whether all of it is plain. The codes of notices go to `notice`. Behind what is not plain nothing is taken.
    pub(super) fn take(&mut self, bytes: &[u8], notice: &dyn Fn(&str)) -> bool {
        let passed = self.skips.min(bytes.len());
        self.skips -= passed;
        self.bytes.extend_from_slice(bytes.get(passed..).unwrap_or_default());
        while let Some(kind) = self.bytes.first().copied() {
            if !PLAIN.contains(&kind) {
                return false;
            }
            let head = Header::parse(&self.bytes).map(|head| head.map(|head| usize::try_from(head.len())));
            let length = match head {
                Ok(None) => return true,
                Ok(Some(Ok(length))) => length.saturating_add(1),
                // No message is as short as that: the driver says so.
                _ => return false,
            };
            if kind == NOTICE {
                if self.bytes.len() < length {
                    return true;
                }
                if let Ok(Some(Message::NoticeResponse(said))) = Message::parse(&mut self.bytes)
                    && let Ok(failure) = failure(said.fields())
                {
                    notice(&failure.native.code);
                }
            } else {
                let here = length.min(self.bytes.len());
                (_, self.skips) = (self.bytes.split_to(here), length - here);
            }
        }
        true
    }

    /// What is not plain, from its head on; or the part of a message that was cut off.
    pub(super) fn rest(self) -> BytesMut {
        self.bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::postgres) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let bytes = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &bytes.to_be_bytes(), body].concat()
    }

    pub(in crate::postgres) fn ready(status: u8) -> Vec<u8> {
        message(b'Z', &[status])
    }

    pub(in crate::postgres) fn done() -> Vec<u8> {
        message(b'C', b"SELECT 1\0")
    }

    fn row(columns: &[Option<&str>]) -> Vec<u8> {
        let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
        for column in columns {
            let length = column.map_or(u32::MAX, |text| u32::try_from(text.len()).unwrap());
            body.extend(length.to_be_bytes());
            body.extend(column.unwrap_or_default().as_bytes());
        }
        message(b'D', &body)
    }

    fn error(kind: u8, severity: &str, code: &str) -> Vec<u8> {
        message(kind, format!("SFEHLER\0V{severity}\0C{code}\0Mas told\0\0").as_bytes())
    }

    /// However the bytes come: whether it is over, how it ended, and the notices.
    fn answered(bytes: &[u8], step: usize) -> (bool, Result<Vec<Row>, Failure>, Vec<String>) {
        let (mut answer, notices, mut is_over) = (Answer::default(), std::cell::RefCell::new(Vec::new()), false);
        for part in bytes.chunks(step) {
            match answer.take(part, &|code| notices.borrow_mut().push(code.to_owned())) {
                Ok(over) => is_over = over,
                Err(failure) => return (false, Err(failure), notices.into_inner()),
            }
        }
        (is_over, answer.end(None), notices.into_inner())
    }

    #[test]
    fn rows_notices_and_the_end_are_heard_however_the_bytes_come() {
        let texts = [
            message(b'T', b"\0\0"),
            error(b'N', "WARNING", "25001"),
            row(&[Some("7"), None, Some("")]),
            done(),
            message(b'S', b"TimeZone\0UTC\0"),
            row(&[]),
            done(),
            ready(b'T'),
        ];
        let whole = texts.concat();
        for step in [1, 2, 3, 7, 64, whole.len()] {
            let (is_over, rows, notices) = answered(&whole, step);
            let text = |text: &str| Some(text.to_owned());
            assert_eq!(rows.ok().unwrap(), [Row(vec![text("7"), None, text("")]), Row(vec![])]);
            assert_eq!((is_over, notices), (true, vec!["25001".to_owned()]));
            assert!(!answered(&whole[..whole.len() - 1], step).0, "half of the end is none");
        }
        let row = Row(vec![Some("7".to_owned()), None]);
        assert_eq!((row.word(0), row.word(1), row.word(2)), (Some("7"), None, None));
        assert_eq!((row.is_null(0), row.is_null(1), row.is_null(2)), (false, true, false));
    }

    /// A read may bring the beginning of what the server says next of its own accord.
    #[test]
    fn what_begins_behind_the_end_is_read_to_its_own() {
        let setting = message(b'S', b"TimeZone\0UTC\0");
        let whole = [done(), ready(b'I'), setting].concat();
        for cut in [done().len() + 6, whole.len()] {
            assert!(answered(&whole[..cut], whole.len()).0, "{cut}");
        }
        for cut in done().len() + 7..whole.len() {
            assert!(!answered(&whole[..cut], whole.len()).0, "{cut}");
        }
    }

    #[test]
    fn the_first_error_is_the_answer_and_a_fatal_one_the_end() {
        let whole = [done(), error(b'E', "ERROR", "25P02"), ready(b'E')].concat();
        let (is_over, told, _) = answered(&whole, 5);
        let failure = told.unwrap_err();
        assert!(is_over && !failure.lost);
        assert_eq!((failure.native.code.as_str(), failure.native.message.as_str()), ("25P02", "as told"));
        let (is_over, told, _) = answered(&error(b'E', "FATAL", "57P01"), 5);
        assert!(is_over && told.is_err_and(|failure| failure.lost && failure.native.code == "57P01"));
    }

    #[test]
    fn what_is_no_answer_is_lost() {
        let cases = [
            ("nothing was done", ready(b'I')),
            ("an empty question", [message(b'I', b""), ready(b'I')].concat()),
            ("rows are wanted", [message(b'G', b"\0\0\0"), ready(b'I')].concat()),
            ("a length below its own", vec![b'C', 0, 0, 0, 3]),
            ("longer than any answer", vec![b'D', 0x7f, 0, 0, 0]),
            ("longer than a length can say", vec![b'D', 0xff, 0xff, 0xff, 0xff]),
            ("a kind that is none", message(b'?', b"")),
            ("a row cut short", [message(b'D', b"\0\x01\0\0\0\x09x"), done(), ready(b'I')].concat()),
            ("an error without an end", [message(b'E', b"C25P02"), ready(b'I')].concat()),
        ];
        for (name, bytes) in cases {
            let (_, told, _) = answered(&bytes, bytes.len());
            assert!(told.is_err_and(|failure| failure.lost), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn fuzz_any_bytes_are_an_answer_or_lost(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            kind in proptest::sample::select(b"CDEGINSTZ".to_vec()),
            step in 1_usize..64,
        ) {
            _ = answered(&bytes, step);
            _ = answered(&message(kind, &bytes), step);
            let mut pace = super::super::pace::Pace::default();
            bytes.chunks(step).for_each(|part| pace.answers(part));
            bytes.chunks(step).for_each(|part| pace.asks(part));
        }
    }

    #[test]
    fn an_end_is_believed_by_its_tag() {
        let tagged = |tag: &str| message(b'C', format!("{tag}\0").as_bytes());
        let said = |parts: &[Vec<u8>], wanted| {
            let mut answer = Answer::default();
            assert!(answer.take(&[&parts.concat()[..], &ready(b'I')].concat(), &|_| {}).ok().unwrap());
            answer.end(Some(wanted)).map_err(|failure| (failure.native.code, failure.lost))
        };
        let outside = error(b'N', "WARNING", "25P01");
        assert_eq!(said(&[row(&[]), tagged("SELECT 1"), tagged(PREPARED)], PREPARED), Ok(vec![Row(vec![])]));
        assert_eq!(said(&[tagged(COMMITTED)], COMMITTED), Ok(vec![]));
        let failed = Err(("25P02".to_owned(), false));
        for wanted in [PREPARED, COMMITTED] {
            assert_eq!(said(&[tagged("ROLLBACK")], wanted), failed);
            assert_eq!(said(&[tagged("SELECT 1")], wanted), Err((String::new(), true)), "of something else");
        }
        let none = Err(("25P01".to_owned(), false));
        assert_eq!(said(&[outside.clone(), tagged("ROLLBACK")], PREPARED), none);
        assert_eq!(said(&[outside.clone(), tagged(COMMITTED)], COMMITTED), none, "it says COMMIT all the same");
        assert_eq!(said(&[outside, tagged(PREPARED)], PREPARED), Ok(vec![]), "a trigger's own words");
    }

    /// What was taken for done without its standby was forgotten, and prepared again on the standby when that was promoted.
    #[test]
    fn what_no_longer_waited_for_its_standby_is_lost_and_other_warnings_are_not() {
        let tagged = |tag: &str| message(b'C', format!("{tag}\0").as_bytes());
        let cut = || error(b'N', "WARNING", "01000");
        let lost = || Err(("01000".to_owned(), true));
        let table = [
            ("COMMIT PREPARED", vec![cut()], None, lost()),
            ("DO", vec![cut()], None, lost()),
            ("COMMIT PREPARED", vec![error(b'N', "NOTICE", "00000"), cut()], None, lost()),
            ("COMMIT PREPARED", vec![], None, Ok(())),
            ("COMMIT PREPARED", vec![error(b'N', "WARNING", "01007")], None, Ok(())),
            ("DO", vec![], None, Ok(())),
            // A trigger may say so of its own accord.
            (PREPARED, vec![cut()], Some(PREPARED), Ok(())),
            (COMMITTED, vec![cut()], Some(COMMITTED), Ok(())),
            (COMMITTED, vec![cut()], None, Ok(())),
            ("ROLLBACK PREPARED", vec![cut()], None, Ok(())),
            ("SELECT 1", vec![cut()], None, Ok(())),
        ];
        for (tag, notices, wanted, expected) in table {
            let whole = [notices.concat(), tagged(tag), ready(b'I')].concat();
            for step in [1, 5, whole.len()] {
                let mut answer = Answer::default();
                assert!(whole.chunks(step).fold(false, |_, part| answer.take(part, &|_| {}).ok().unwrap()));
                let told = answer.end(wanted).map(drop).map_err(|failure| (failure.native.code, failure.lost));
                assert_eq!(told, expected, "{tag} {notices:?}");
            }
        }
    }

    #[test]
    fn an_unwanted_answer_is_let_by_up_to_its_error_however_the_bytes_come() {
        let noticed = error(b'N', "NOTICE", "00001");
        let plain = [
            message(b'T', b"\0\0"),
            row(&[None]),
            noticed,
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'A', &[0, 0, 0, 9, b'x', 0, 0]),
            row(&[Some("E\0\0\0\x04")]),
            done(),
            message(b'I', b""),
            ready(b'T'),
        ]
        .concat();
        let others = [vec![], error(b'E', "ERROR", "22012"), message(b'G', b"\0\0\0"), b"C\0\0\0\x03".to_vec()];
        for step in [1, 4, 7, plain.len()] {
            for other in &others {
                let (mut unwanted, notices) = (Unwanted::default(), std::cell::RefCell::new(Vec::new()));
                let whole = [&plain[..], other].concat();
                let mut parts = whole.chunks(step);
                let is_plain =
                    parts.all(|part| unwanted.take(part, &|code| notices.borrow_mut().push(code.to_owned())));
                assert_eq!(is_plain, other.is_empty());
                assert_eq!(notices.into_inner(), ["00001"]);
                let to_come = parts.flatten().copied();
                assert_eq!(
                    unwanted.rest().iter().copied().chain(to_come).collect::<Vec<_>>(),
                    *other,
                    "from its head on"
                );
            }
        }
        let mut unwanted = Unwanted::default();
        assert!(unwanted.take(b"D\x7f\xff\xff\xff much too long", &|_| {}) && unwanted.rest().is_empty());
    }
}
