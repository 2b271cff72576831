//! JSONiq, as far as `pysirix` writes it: the expressions of its document store, and a document by its name.
//!
//! ```text
//!   query    (match | upsert | update)* what                     the functions that the client defines, word for word
//!   what     append json VALUE into DOC                          let $doc := DOC for $i in VALUE return append json $i into $doc
//!            for $i in FROM where local:q($i, VALUE) SHIFT? return {$i …} FIELDS?
//!            for … return local:upsert-fields($i, VALUE)         let $rec := NODE return local:upsert-fields($rec, VALUE)
//!            let $records := for … let $fields := VALUE … delete json $records=>$i     let $obj := NODE …
//!            let $doc := DOC let $m := for $i at $pos in $doc where … delete json $doc[[$i]]
//!            let $node := NODE let $result := for $rev in jn:all-times($node) …        sdb:item-history(NODE)        FROM
//!   FROM     DOC | bit:array-values(DOC) ROOT
//!   DOC      jn:doc('database','resource'[,revision]) ROOT | jn:open('database','resource',xs:dateTime('…')) ROOT
//!   NODE     sdb:select-item(DOC | ., key)        ROOT  (=>name | .name | [[n]])*        VALUE  jn:parse('…')
//! ```
//! Blanks count nowhere but in names and texts. Walk: [`Query::read`] · `reader` one thing after the other · `run` does it.
//! Deliberately absent: an evaluator. What is not one of these is named and refused; JSONPath is there for whoever asks by hand.

mod reader;
mod run;

use crate::problem::Problem;
use reader::Reader;

pub(crate) use run::{Asked, NOTHING, run};

/// A document, perhaps of the past, and the way to a value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// None: the document that the request names.
    pub(crate) name: Option<(String, String)>,
    pub(crate) when: Option<String>,
    pub(crate) root: Vec<Step>,
    /// Its items, not itself: `bit:array-values`. Records are looked for among the items either way.
    pub(crate) unboxed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Member(String),
    Index(u64),
}

/// Which records are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Key(Source, u64),
    /// Those of which each member of this JSON object says the same.
    Like(Source, String),
}

/// Which revision of a record is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shift {
    #[default]
    None,
    First,
    Last,
}

/// What is shown of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) node_key: bool,
    pub(crate) hash: bool,
    pub(crate) fields: Option<Vec<String>>,
}

/// What is told of the revisions in which a node became another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Number and time.
    Revisions,
    /// The node as it was.
    Values,
    /// Both.
    Items,
}

/// What is asked. Texts are JSON as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Value(Source),
    Append { into: Source, value: String, each: bool },
    Find { which: Which, shift: Shift, shown: Shown },
    Update { which: Which, fields: String, upsert: bool },
    DeleteFields { which: Which, fields: Vec<String> },
    DeleteRecords(Which),
    History { node: Source, key: u64, past: Past },
}

impl Query {
    /// Reads one.
    ///
    /// # Errors
    /// What is not understood, and where: 501 for a word of the language, 400 for what is none.
    pub(crate) fn read(text: &str) -> Result<Self, Problem> {
        Reader::new(text).query()
    }

    /// Whether it changes or drops something.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self, Self::Append { .. } | Self::Update { .. } | Self::DeleteFields { .. } | Self::DeleteRecords(_))
    }
}

/// Takes these bytes for a query.
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        _ = Query::read(text).is_ok();
    }
}
