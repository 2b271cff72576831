//! `assent docs load`: a large document as one revision; or lines, as one or as many as it is told.
//!
//! Walk: bytes are counted as they are read, for the bar on stderr · one value, or each line for itself · what was made for a load
//! that committed nothing goes again.

use std::io::{self, BufReader, IsTerminal as _, Read};

use assent_docs::{At, DocsError, Document, Every, Loaded, Look as _, NodeKey, Revision, Versioning};
use assent_kind::Kind;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::house::{House, input};
use super::options::Load;
use super::{done, print};
use crate::bench::print_json;
use crate::failure::Failure;

/// Counts what passes.
struct Counted {
    from: Box<dyn Read>,
    bytes: u64,
    bar: ProgressBar,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(out)?;
        let bytes = u64::try_from(count).unwrap_or(0);
        self.bytes += bytes;
        self.bar.inc(bytes);
        Ok(count)
    }
}

/// Runs the command.
pub(super) fn run(options: &Load, json: bool) -> Result<(), Failure> {
    let Load { name, file, .. } = options;
    let (from, length) = input(file)?;
    let mut input = Counted { from, bytes: 0, bar: bar(length, json) };
    let loaded = House::work(&options.data, true, |db| {
        let (doc, is_new) = match db.document(name) {
            Ok(doc) => (doc, false),
            Err(DocsError::NoDocument { .. }) => (db.create(name, Versioning::default())?, true),
            Err(error) => return Err(error.into()),
        };
        let filled = if options.lines { lines(&doc, options, &mut input) } else { whole(&doc, options, &mut input) };
        // What was committed before it failed stays.
        if filled.is_err() && is_new && doc.latest().number() == 0 {
            db.drop_document(name)?;
        }
        let revision = filled?;
        let nodes = match revision.value() {
            Some(value) => revision.item(value)?.node.descendants + 1,
            None => 0,
        };
        Ok((revision, nodes))
    });
    input.bar.finish_and_clear();
    let (revision, nodes) =
        loaded.map_err(|failure| Failure::new(failure.kind, format!("{}: {}", file.display(), failure.message)))?;
    let (number, bytes) = (revision.number(), input.bytes);
    let said = if json {
        print_json(&json!({"document": name, "revision": number, "nodes": nodes, "bytes": bytes}))
    } else {
        print(&format!("{name}: revision {number}, {nodes} nodes of {bytes} bytes of JSON\n"))
    };
    done(name, format_args!("is at revision {number}"), said)
}

/// Bytes of the file on stderr, if people look at it.
fn bar(bytes: Option<u64>, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bar:30} {bytes}/{total_bytes} {msg} {binary_bytes_per_sec} (left {eta})";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bytes.map_or_else(ProgressBar::new_spinner, |bytes| ProgressBar::new(bytes).with_style(style))
}

/// One value, as one revision.
fn whole(doc: &Document, options: &Load, from: &mut impl Read) -> Result<Revision, Failure> {
    let mut edit = doc.edit()?;
    match edit.value() {
        None => edit.insert_json(At::Last(NodeKey::DOCUMENT), None, from)?,
        Some(value) if options.replace => edit.replace(value, from)?,
        Some(_) => {
            let name = &options.name;
            let message = format!("document {name:?} has a value already; --replace puts the new one in its place");
            return Err(Failure::new(Kind::Conflict, message));
        }
    };
    Ok(edit.commit(&options.saying.meta())?)
}

/// A value a line.
fn lines(doc: &Document, options: &Load, from: &mut Counted) -> Result<Revision, Failure> {
    let every = Every { changes: options.commit_every, ms: None };
    let bar = from.bar.clone();
    let told = |loaded: Loaded| bar.set_message(format!("{} values", loaded.values));
    doc.load_lines(BufReader::with_capacity(1 << 20, from), every, &options.saying.meta(), told)?;
    Ok(doc.latest())
}
