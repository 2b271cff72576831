//! Documents: versioned JSON, every revision as near as the newest.
//!
//! ```text
//!   node      a key that is never used again · parent, siblings, children, counts, a rolling hash      (node, hash)
//!   record    what one slot of a page says: a node, a path, what leads to a page; whole or a patch      (record)
//!   fragment  the records of a page that one commit wrote                                              (fragment)
//!   page      256 slots: what at most N fragments say together                                 (page, versioning)
//!   tree      from a page's number to its fragments, copied where it changes                         (trie, place)
//! ```
//! Walk: [`Database::open`] opens the index and replays the journal behind it · [`Document::edit`] takes the writer's seat,
//! [`Edit::commit_begin`] appends one entry, [`Pending::wait`] makes it durable and visible · [`Document::latest`],
//! [`Document::at`] and [`Document::as_of`] open a revision, and [`Look`] looks at it, without a lock: by key, by a [`Cursor`], or
//! written as JSON by a [`Form`], selected from by a [`JsonPath`] · [`Database::at_hand`] for who must not wait for the disk · [`Database::prepare_begin`] makes edits a branch of a distributed transaction.
//! Deliberately absent: threads (whoever owns a loop calls [`Database::tick`]), files of documents, XML, secondary indexes.
//!
//! ```
//! use std::sync::Arc;
//! use assent_docs::{At, Config, Database, Form, Look, Meta, NodeKey, Value, Versioning};
//! use assent_journal::Journal;
//! use assent_world::{RealClock, RealDice, RealDisk};
//!
//! # let dir = tempfile::tempdir()?; let folder = dir.path();
//! let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
//! let kept = assent_journal::Config { kept_until_released: true, ..Default::default() };
//! let (log, _) = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), kept)?;
//! let db = Database::open(log, disk, clock, &folder.join("index"), Config { trims: true, ..Config::default() })?;
//! let doc = db.create("orders", Versioning::default())?;
//! let mut edit = doc.edit()?;
//! let order = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, r#"{"item":"pen","price":1.50}"#.as_bytes())?;
//! edit.commit(&Meta::default())?;
//! let mut edit = doc.edit()?;
//! let price = edit.member(order, "price")?.ok_or("no price")?;
//! edit.set(price, Value::Number("1.75"))?;
//! edit.commit(&Meta { message: "dearer".to_owned(), ..Meta::default() })?;
//! assert_eq!(Form::default().text(&doc.latest())?, r#"{"item":"pen","price":1.75}"#);
//! assert_eq!(Form::default().text(&doc.at(1)?)?, r#"{"item":"pen","price":1.50}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod act;
mod align;
mod branch;
mod build;
mod commit;
mod config;
mod cursor;
mod database;
mod diff;
mod document;
mod edit;
mod entry;
mod error;
mod flat;
mod fragment;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod import;
mod index;
mod jsonpath;
mod link;
mod load;
mod look;
mod merge_patch;
mod node;
mod older;
mod once;
mod page;
mod parse;
mod past;
mod patch;
mod path;
mod paths;
mod place;
mod pointer;
mod pointers;
mod rearrange;
mod record;
mod replay;
mod resource;
mod revert;
mod revision;
mod serialise;
mod store;
mod tag;
mod trie;
mod truncate;
mod varint;
mod verify;
mod versioning;
mod watch;
mod writer;

pub use act::{KIND_CREATE, KIND_DROP, KIND_OUTCOME, KIND_PREPARE, KIND_REPLACE, KIND_TAG, KIND_TRUNCATE};
pub use branch::{Appended, InDoubt, Voted};
pub use commit::Pending;
pub use config::{AUTHOR_BYTES_MAX, Config, DEPTH_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PATHS_MAX, TEXT_BYTES_MAX};
pub use cursor::Cursor;
pub use database::{Database, Stats};
pub use diff::{Diff, DiffOp, DiffPatch, Difference, Scope, Spot};
pub use document::{Document, Told};
pub use edit::{At, Edit, Value};
pub use entry::{Change, KIND_COMMIT, KIND_PAGE, Meta, What};
pub use error::DocsError;
pub use import::Imported;
pub use jsonpath::{JsonPath, Match, Matches, QueryLimits};
pub use load::Loaded;
pub use look::{Item, Look, Sample, Text};
pub use node::{Kind, Node, NodeKey};
pub use older::Older;
pub use once::{Done, ONCE_NAME_BYTES, Once, OnceName};
pub use resource::{DocsConnector, DocsResource};
pub use revision::Revision;
pub use serialise::{Chunks, Form, Metadata, Written};
pub use trie::PageName;
pub use versioning::{Versioning, WINDOW_MAX};
pub use watch::{Mark, Since};
pub use writer::{Every, Writer};
pub use {past::Run, path::PathCount, pointers::Pointers};
