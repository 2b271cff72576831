//! `assent docs verify`: every revision is read, and held against itself.

use std::process::ExitCode;

use assent_docs::{Database, DocsError, Document};
use assent_kind::Kind;
use serde_json::json;

use super::house::House;
use super::options::Verify;
use super::print;
use crate::bench::print_json;
use crate::failure::Failure;
use crate::say::plain;

#[derive(Default)]
struct Checked {
    documents: u64,
    revisions: u64,
    nodes: u64,
    damages: Vec<String>,
}

/// Runs the command.
pub(super) fn verify(options: &Verify, json: bool) -> Result<ExitCode, Failure> {
    let checked = House::work(&options.data, false, |db| {
        let mut checked = Checked::default();
        if options.names.is_empty() {
            let mut behind = None::<String>;
            while let Some(name) = db.names(behind.as_deref(), 1)?.pop() {
                checked.document(db, &name, options.newest)?;
                behind = Some(name);
            }
        }
        options.names.iter().try_for_each(|name| checked.document(db, name, options.newest))?;
        Ok(checked)
    })?;
    let told = tell(&checked, json);
    // Damage is said by the exit code, whoever hears the rest.
    if checked.damages.is_empty() { told.map(|()| ExitCode::SUCCESS) } else { Ok(Kind::Corrupt.exit_code().into()) }
}

fn tell(checked: &Checked, json: bool) -> Result<(), Failure> {
    let Checked { documents, revisions, nodes, damages } = checked;
    if json {
        let told = json!({"documents": documents, "revisions": revisions, "nodes": nodes, "damages": damages});
        return print_json(&told);
    }
    let how = match damages.len() {
        0 => "everything is as it was written".to_owned(),
        many => format!("{many} revisions are damaged"),
    };
    let lines: String = damages.iter().map(|damage| format!("{}\n", plain(damage))).collect();
    print(&format!("{lines}{how}: {documents} documents, {revisions} revisions, {nodes} nodes\n"))
}

impl Checked {
    fn document(&mut self, db: &Database, name: &str, newest: bool) -> Result<(), Failure> {
        self.documents += 1;
        let doc = match db.document(name) {
            Ok(doc) => doc,
            Err(error) => return self.damaged(&error),
        };
        let last = doc.latest().number();
        let first = if newest { last } else { 1 };
        (first..=last).try_for_each(|number| self.revision(&doc, number))
    }

    fn revision(&mut self, doc: &Document, number: u32) -> Result<(), Failure> {
        self.revisions += 1;
        match doc.at(number).and_then(|revision| revision.verify()) {
            Ok(nodes) => {
                self.nodes += nodes;
                Ok(())
            }
            Err(error) => self.damaged(&error),
        }
    }

    /// What is damaged is told with the rest; anything else ends it.
    fn damaged(&mut self, error: &DocsError) -> Result<(), Failure> {
        if error.kind() != Kind::Corrupt {
            return Err(error.clone().into());
        }
        self.damages.push(error.to_string());
        Ok(())
    }
}
