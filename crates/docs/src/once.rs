//! What was done once: a commit or a drop carries the name that its request has with whoever asked, so that a request that comes
//! again is known for as long as it was told to be.
//!
//! ```text
//!   a field of a commit "once", or behind a drop's name and a 0:   name (hex) · until when, in milliseconds · note
//! ```
//! Walk: [`Once::field`] goes into [`Meta::fields`] or [`Edit::drop_once`] · the index has a row of each, and lets those go whose time
//! is over, a few with each that comes · [`Database::done`] finds one.
//! Deliberately absent: what a note says, and the wait for one that is under way.

use std::fmt::Write as _;

use crate::entry::Meta;
use crate::{Database, DocsError, Document, Mark, Revision};

#[cfg(doc)]
use crate::Edit;

/// The field of a commit that says it.
const FIELD: &str = "once";
/// Bytes of a name.
pub const ONCE_NAME_BYTES: usize = 32;

/// The name of a request: whoever asks sees to it that no two have the same.
pub type OnceName = [u8; ONCE_NAME_BYTES];

/// A request that is done with the commit or the drop that carries it, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    /// Its name.
    pub name: OnceName,
    /// It may be forgotten from then on (milliseconds since 1970).
    pub until_ms: u64,
    /// What whoever asks again has to know.
    pub note: String,
}

impl Once {
    /// As a commit has it among its fields. One that carries it is a revision also where nothing has changed.
    #[must_use]
    pub fn field(&self) -> (String, String) {
        (FIELD.to_owned(), self.text())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(2 * ONCE_NAME_BYTES + 16 + self.note.len());
        // Writing into memory does not fail.
        self.name.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        _ = write!(text, " {} {}", self.until_ms, self.note);
        text
    }

    /// None where it is not one.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once(' ')?;
        let (until, note) = rest.split_once(' ')?;
        if name.len() != 2 * ONCE_NAME_BYTES {
            return None;
        }
        let mut bytes = [0; ONCE_NAME_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(name.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self { name: bytes, until_ms: until.parse().ok()?, note: note.to_owned() })
    }

    /// Those that a commit carries.
    pub(crate) fn all_of(meta: &Meta) -> impl Iterator<Item = Self> {
        meta.fields.iter().filter(|(name, _)| name == FIELD).filter_map(|(_, text)| Self::of_text(text))
    }

    /// Whether a commit carries one.
    pub(crate) fn is_in(meta: &Meta) -> bool {
        Self::all_of(meta).next().is_some()
    }
}

/// A request that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The request.
    pub once: Once,
    pub(crate) document: u64,
    /// The revision that it made; of a drop none.
    pub(crate) mark: Option<Mark>,
}

impl Done {
    /// The revision that it made, if it is one of this document and still there.
    #[must_use]
    pub fn revision_of(&self, document: &Document) -> Option<Revision> {
        let mark = self.mark.filter(|_| document.doc.id == self.document)?;
        // After a truncation the number may be another revision's.
        document.at(mark.revision).ok().filter(|revision| revision.mark() == mark)
    }
}

impl Database {
    /// What was done under this name, if it is remembered. An edit that is not committed is not seen: whoever asks sees to it that one
    /// name is under way once at a time.
    ///
    /// # Errors
    /// [`DocsError::OnItsWay`] while a commit that carries it waits to become visible, or a branch for its outcome; as the index says.
    pub fn done(&self, name: &OnceName) -> Result<Option<Done>, DocsError> {
        // First: what has become visible meanwhile is found below.
        if self.store.desk().carries(name) {
            return Err(DocsError::OnItsWay);
        }
        let found = self.store.index.done(name)?;
        Ok(found.filter(|done| done.once.until_ms > self.store.clock.wall_ms()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_from_its_text_and_what_is_none_is_passed_over() {
        let once = Once { name: [0xa5; 32], until_ms: 17, note: "7f 201 {\"a\": 1}".to_owned() };
        let (name, text) = once.field();
        assert_eq!((name.as_str(), Once::of_text(&text)), ("once", Some(once.clone())));
        let wrong = text.replacen('a', "x", 1);
        for text in ["", "a5 17 x", &text[1..], &wrong, &text.replacen("17", "-1", 1), &"é".repeat(40)] {
            assert_eq!(Once::of_text(text), None, "{text}");
        }
        let fields = vec![("ticket".to_owned(), text.clone()), ("once".to_owned(), text), ("once".to_owned(), wrong)];
        let meta = Meta { fields, ..Meta::default() };
        assert_eq!(Once::all_of(&meta).collect::<Vec<_>>(), [once]);
        assert!(Once::is_in(&meta) && !Once::is_in(&Meta::default()));
    }
}
