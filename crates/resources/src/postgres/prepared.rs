//! A statement of our own that the server keeps planned for a connection: to read and to plan it anew, transaction after
//! transaction, costs the server more than what it does.
//!
//! Walk: [`Prepared::words`] how a message says it · [`Prepared::learn`] from the answer.
//! Trap: whoever else works on the connection may let it go (DEALLOCATE, DISCARD), and a pool may hand out a server session
//! that never had it. Then the statement fails (26000), behind a savepoint: the message is sent again from there, in full
//! words, and so is every later one. No transaction is lost by it.
//! Deliberately absent: the driver's own prepared statements, which take a message each before the vote's.

use super::session::Failure;

/// SQLSTATE of a prepared statement that is not there.
const NO_STATEMENT: &str = "26000";

/// A name grows with each first message that fails; PostgreSQL cuts off what is behind 63 bytes.
const NAME_BYTES_MAX: usize = 48;

/// How a connection says one statement.
#[derive(Debug)]
pub(super) enum Prepared {
    /// Not said yet: prepared under this name by the message that says it first.
    New(String),
    /// Prepared under this name.
    There(String),
    /// In full, each time.
    InFull,
}

impl Prepared {
    /// The number is the connection's own: a pool may hand out a server session with another one's statements.
    pub(super) fn named(stem: &str, number: u64) -> Self {
        Self::New(format!("{stem}_{number:016x}"))
    }

    /// What prepares it, and the statement. `form` writes it with these in the places of its parameters,
    /// whose types are `types`.
    pub(super) fn words(
        &self,
        types: &[&str],
        given: &[String],
        form: impl Fn(&[String]) -> String,
    ) -> (String, String) {
        match self {
            Self::New(name) => {
                let places: Vec<String> = (1..=given.len()).map(|place| format!("${place}")).collect();
                let prepare = format!("PREPARE {name}{} AS {}; ", listed(types), form(&places));
                (prepare, execute(name, given))
            }
            Self::There(name) => (String::new(), execute(name, given)),
            Self::InFull => (String::new(), form(given)),
        }
    }

    /// What the answer has taught. Whether the message is to be sent again, in full: `may_differ` says that the full words
    /// would be answered otherwise than these.
    pub(super) fn learn(&mut self, answer: Result<(), &Failure>, may_differ: impl Fn(&Failure) -> bool) -> bool {
        let (next, is_again) = match (std::mem::replace(self, Self::InFull), answer) {
            (Self::New(name) | Self::There(name), Ok(())) => (Self::There(name), false),
            (Self::InFull, _) => (Self::InFull, false),
            // The connection is over, or what failed is the transaction.
            (Self::There(name), Err(failure)) if failure.lost || !is_ours(failure) && !may_differ(failure) => {
                (Self::There(name), false)
            }
            (Self::There(_), Err(_)) => (Self::InFull, true),
            (Self::New(_), Err(failure)) if !failure.lost && may_differ(failure) => (Self::InFull, true),
            // Whether it was prepared before the rest failed is not known, and one name is not prepared twice.
            (Self::New(name), Err(_)) if name.len() < NAME_BYTES_MAX => (Self::New(format!("{name}_")), false),
            (Self::New(_), Err(_)) => (Self::InFull, false),
        };
        *self = next;
        is_again
    }
}

fn is_ours(failure: &Failure) -> bool {
    failure.native.code == NO_STATEMENT
}

fn listed(words: &[&str]) -> String {
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

fn execute(name: &str, given: &[String]) -> String {
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    format!("EXECUTE {name}{}", listed(&given))
}

#[cfg(test)]
mod tests {
    use assent_xa::Native;

    use super::*;

    fn failed(code: &str, lost: bool) -> Failure {
        Failure { native: Native { code: code.to_owned(), message: String::new() }, lost }
    }

    fn words(it: &Prepared) -> (String, String) {
        it.words(&["int", "text"], &["7".to_owned(), "'x'".to_owned()], |given| format!("SELECT {}", given.join(", ")))
    }

    fn pair(before: &str, statement: &str) -> (String, String) {
        (before.to_owned(), statement.to_owned())
    }

    #[test]
    fn it_is_prepared_by_the_first_message_and_executed_by_the_next() {
        let mut it = Prepared::named("row", 5);
        let name = "row_0000000000000005";
        let execute = format!("EXECUTE {name} (7, 'x')");
        assert_eq!(words(&it), pair(&format!("PREPARE {name} (int, text) AS SELECT $1, $2; "), &execute));
        assert!(!it.learn(Ok(()), |_| true));
        assert_eq!(words(&it), pair("", &execute));
        let bare = |it: &Prepared| it.words(&[], &[], |_| "SELECT 1".to_owned()).1;
        assert_eq!(bare(&it), format!("EXECUTE {name}"));
        // The transaction failed, the connection was lost: neither says anything of the statement.
        assert!(!it.learn(Err(&failed("23505", false)), |_| false));
        assert!(!it.learn(Err(&failed("26000", true)), |_| true));
        assert_eq!(words(&it), pair("", &execute));
    }

    #[test]
    fn where_it_was_let_go_the_message_is_sent_again_in_full_and_so_is_every_later_one() {
        for (code, may_differ) in [("26000", false), ("22P02", true)] {
            let mut it = Prepared::named("row", 5);
            it.learn(Ok(()), |_| may_differ);
            assert!(it.learn(Err(&failed(code, false)), |_| may_differ), "{code}");
            assert_eq!(words(&it), pair("", "SELECT 7, 'x'"));
            assert!(!it.learn(Err(&failed(code, false)), |_| may_differ), "{code}: once");
            assert!(!it.learn(Ok(()), |_| may_differ));
            assert_eq!(words(&it), pair("", "SELECT 7, 'x'"));
        }
    }

    #[test]
    fn after_a_first_message_that_failed_nobody_knows_whether_it_is_there() {
        let mut it = Prepared::named("row", 5);
        assert!(!it.learn(Err(&failed("25P02", false)), |_| false));
        assert!(words(&it).0.starts_with("PREPARE row_0000000000000005_ "), "by another name: {it:?}");
        for _ in 0..100 {
            it.learn(Err(&failed("25P02", false)), |_| false);
        }
        assert_eq!(words(&it), pair("", "SELECT 7, 'x'"), "and not for ever");
    }
}
