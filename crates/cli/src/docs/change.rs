//! What writes: each command is one commit, on disk when it returns.

use std::io::Read;
use std::path::Path;

use assent_docs::{At, Edit, Look as _, NodeKey, Versioning};
use assent_kind::Kind;

use super::house::{House, input, node, revision};
use super::options::{Create, Data, Json, Patch, Put, Revert, Strategy, Truncate};
use super::{done, print, said};
use crate::bench::print_json;
use crate::failure::Failure;

impl Create {
    fn versioning(&self) -> Versioning {
        match self.versioning {
            Strategy::Sliding => Versioning::SlidingSnapshot { window: self.window },
            Strategy::Incremental => Versioning::Incremental { window: self.window },
            Strategy::Differential => Versioning::Differential,
            Strategy::Full => Versioning::Full,
        }
    }
}

impl Json {
    pub(super) fn open(&self) -> Result<Box<dyn Read + '_>, Failure> {
        match (&self.value, &self.file) {
            (Some(text), _) => Ok(Box::new(text.as_bytes())),
            (None, file) => Ok(input(file.as_deref().unwrap_or(Path::new("-")))?.0),
        }
    }
}

/// `assent docs create`: a value that is refused leaves no document behind.
pub(super) fn create(options: &Create, json: bool) -> Result<(), Failure> {
    let Create { name, value, file, saying, .. } = options;
    let value = (value.is_some() || file.is_some()).then(|| Json { value: value.clone(), file: file.clone() });
    let revision = House::work(&options.data, true, |db| {
        let doc = db.create(name, options.versioning())?;
        let Some(value) = &value else { return Ok(doc.latest()) };
        let filled = value.open().and_then(|value| {
            let mut edit = doc.edit()?;
            edit.insert_json(At::Last(NodeKey::DOCUMENT), None, value)?;
            Ok(edit.commit(&saying.meta())?)
        });
        if filled.is_err() {
            db.drop_document(name)?;
        }
        filled
    })?;
    said(name, &revision, json)
}

/// `assent docs put`.
pub(super) fn put(options: &Put, json: bool) -> Result<(), Failure> {
    let Put { name, at, import, saying, .. } = options;
    let revision = House::work(&options.data, false, |db| {
        let mut edit = db.document(name)?.edit()?;
        let value = options.json.open()?;
        if *import {
            edit.import(value)?;
        } else {
            fill(&mut edit, name, at.as_deref(), value)?;
        }
        Ok(edit.commit(&saying.meta())?)
    })?;
    said(name, &revision, json)
}

fn fill(edit: &mut Edit, name: &str, at: Option<&str>, value: impl Read) -> Result<NodeKey, Failure> {
    if at.is_none() && edit.value().is_none() {
        return Ok(edit.insert_json(At::Last(NodeKey::DOCUMENT), None, value)?);
    }
    let key = node(edit, name, at)?;
    Ok(edit.replace(key, value)?)
}

/// `assent docs patch`.
pub(super) fn patch(options: &Patch, json: bool) -> Result<(), Failure> {
    let Patch { name, patch, merge, saying, .. } = options;
    let revision = House::work(&options.data, false, |db| {
        let mut edit = db.document(name)?.edit()?;
        let mut text = Vec::new();
        // One byte more is refused, however many there are.
        let read = patch.open()?.take(Edit::PATCH_BYTES_MAX + 1).read_to_end(&mut text);
        read.map_err(|error| Failure::new(Kind::Unavailable, format!("reading the patch: {error}")))?;
        if *merge { edit.merge_patch(&text) } else { edit.patch(&text) }?;
        Ok(edit.commit(&saying.meta())?)
    })?;
    said(name, &revision, json)
}

/// `assent docs revert`.
pub(super) fn revert(options: &Revert, json: bool) -> Result<(), Failure> {
    let Revert { name, to, saying, data } = options;
    let revision = House::work(data, false, |db| {
        let doc = db.document(name)?;
        let earlier = revision(&doc, to.number, to.tag.as_deref(), to.as_of.as_deref())?;
        if earlier.number() == 0 {
            return Err(Failure::new(Kind::NotFound, format!("document {name:?} had no revision then")));
        }
        let mut edit = doc.edit()?;
        edit.revert(&earlier)?;
        let mut meta = saying.meta();
        if meta.message.is_empty() {
            meta.message = format!("revert to revision {}", earlier.number());
        }
        Ok(edit.commit(&meta)?)
    })?;
    said(name, &revision, json)
}

/// `assent docs truncate`.
pub(super) fn truncate(options: &Truncate, json: bool) -> Result<(), Failure> {
    let Truncate { name, number, yes, .. } = options;
    let revision = House::work(&options.data, false, |db| {
        // Also where the newest revision cannot be read: it goes.
        let doc = db.older(name)?;
        let newest = doc.newest();
        // Whether there is such a revision at all.
        doc.at(*number)?;
        if !yes && newest > *number {
            let message =
                format!("nothing was done: add --yes to drop revisions {} to {newest} of {name:?}", number + 1);
            return Err(Failure::invalid(message));
        }
        Ok(doc.truncate(*number)?)
    })?;
    said(name, &revision, json)
}

/// `assent docs drop`.
pub(super) fn drop_document(name: &str, data: &Data, json: bool) -> Result<(), Failure> {
    House::work(data, false, |db| Ok(db.drop_document(name)?))?;
    let said =
        if json { print_json(&serde_json::json!({"dropped": name})) } else { print(&format!("{name}: dropped\n")) };
    done(name, format_args!("is dropped"), said)
}
