//! Questions of our own that the server keeps planned for a connection: to read and to plan them anew, transaction after
//! transaction, costs it more than to answer them.
//!
//! Walk: [`Prepared::write`] what prepares one if that is due, and asks it · [`Prepared::answered`] whether it is there now.
//! They are asked by the protocol's own messages (Bind, Execute): EXECUTE in a text has its rows laid aside and copied, and
//! costs twice as much (callgrind of a PostgreSQL 15, docs/PERFORMANCE.md).
//! Trap: a question that is not there fails (26000), and with it the transaction. So it is asked this way only of a server
//! process that is this connection's alone, and as long as nobody has let it go: a pool shows a process of its own, and
//! DEALLOCATE and DISCARD are seen by their tags (`pace.rs`). What a function lets go of in the dark costs one vote: it
//! is a no, and a definite one, and from then on that connection asks in full words.
//! Deliberately absent: what is asked (`session.rs`), who asks in full words instead.

use std::io;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

/// SQLSTATE of a prepared statement that is not there.
pub(super) const NO_STATEMENT: &str = "26000";
/// What `Close` means: a statement, not a portal.
const STATEMENT: u8 = b'S';
/// The type of parameters, by the number that every server has for it, and how they are sent.
const BYTEA: u32 = 17;
const AS_THEY_ARE: i16 = 1;
/// As many as there are.
const ALL_ROWS: i32 = 0;

/// One question of one connection.
#[derive(Debug)]
pub(super) struct Prepared {
    name: String,
    is_there: bool,
}

impl Prepared {
    /// The number keeps it from the caller's own ones.
    pub(super) fn named(stem: &str, number: u64) -> Self {
        Self { name: format!("{stem}_{number:016x}"), is_there: false }
    }

    /// Asks it, with these bytes for its parameters; the answer is one row, without a word of its columns. Nothing ends the message.
    pub(super) fn write(&self, sql: &str, bytes: &[&[u8]], message: &mut BytesMut) -> io::Result<()> {
        if !self.is_there {
            // Whether one of that name is left from a time of which nothing is known: closing what is not there is no error.
            frontend::close(STATEMENT, &self.name, message)?;
            frontend::parse(&self.name, sql, bytes.iter().map(|_| BYTEA), message)?;
        }
        let put = |value: &[u8], out: &mut BytesMut| {
            out.extend_from_slice(value);
            Ok(postgres_protocol::IsNull::No)
        };
        frontend::bind("", &self.name, bytes.iter().map(|_| AS_THEY_ARE), bytes.iter().copied(), put, [], message)
            .map_err(|_| io::Error::other("more bytes than a message holds"))?;
        frontend::execute("", ALL_ROWS, message)
    }

    /// Whether it was answered, by a connection that goes on.
    pub(super) const fn answered(&mut self, is_there: bool) {
        self.is_there = is_there;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the messages, in their order.
    fn kinds(it: &Prepared) -> String {
        let mut message = BytesMut::new();
        it.write("SELECT 1", &[], &mut message).unwrap();
        let mut kinds = String::new();
        while let Some((kind, rest)) = message.split_first() {
            kinds.push(char::from(*kind));
            let length = usize::try_from(u32::from_be_bytes(rest[..4].try_into().unwrap())).unwrap();
            message = message.split_off(1 + length);
        }
        kinds
    }

    #[test]
    fn it_is_prepared_once_and_again_where_nobody_knows() {
        let mut it = Prepared::named("row", 5);
        assert_eq!(kinds(&it), "CPBE");
        it.answered(true);
        assert_eq!(kinds(&it), "BE");
        it.answered(false);
        assert_eq!(kinds(&it), "CPBE");
        let mut message = BytesMut::new();
        it.write("SELECT 1", &[], &mut message).unwrap();
        assert!(message.windows(20).any(|part| part == b"row_0000000000000005"));
    }
}
