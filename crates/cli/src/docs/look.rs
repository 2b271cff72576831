//! What reads: a document, what a query selects, its history; of any revision.
//!
//! Values are written as they are stored: a number keeps its digits, also within the object of `--json`.

use std::io::{self, Write};

use assent_docs::{Database, Form, JsonPath, Look as _, Metadata as Beside, QueryLimits, Revision, Run};
use assent_kind::Kind;
use serde_json::{Value, json};

use super::file;
use super::house::{House, node};
use super::options::{Data, Get, History, Metadata, Query};
use super::print;
use crate::bench::{print_json, table};
use crate::failure::Failure;
use crate::say::{self, plain};
use crate::tx::moment;

/// Names asked for at a time.
const NAMES: usize = 1000;
/// So much of a value stands in a table.
const VALUE_CHARACTERS: usize = 60;

impl Get {
    fn form(&self) -> Form {
        let metadata = match self.metadata {
            Metadata::None => Beside::None,
            Metadata::NodeKey => Beside::NodeKey,
            Metadata::NodeKeyAndChildCount => Beside::NodeKeyAndChildCount,
            Metadata::All => Beside::All,
        };
        let Self { max_level, max_children, max_nodes, pretty, .. } = *self;
        Form { max_level, max_children, max_nodes, metadata, pretty, ..Form::default() }
    }
}

/// `assent docs get`.
pub(super) fn get(options: &Get, json: bool) -> Result<(), Failure> {
    let Get { name, when, at, output, .. } = options;
    if json && output.is_some() {
        return Err(Failure::invalid(
            "--output writes the value alone, --json writes what is known of it to stdout: one of them",
        ));
    }
    House::work(&options.data, false, |db| {
        let revision = when.find(&db.document(name)?)?;
        let form = Form { start: Some(node(&revision, name, at.as_deref())?), ..options.form() };
        let written = |error: io::Error| match output {
            Some(path) => Failure::io("write", path.display(), &error),
            None => Failure::stdout(&error),
        };
        let write = |out: &mut dyn Write| -> Result<(), Failure> {
            if json {
                let head = head(name, &revision);
                out.write_all(format!("{{{head},\"value\":").as_bytes()).map_err(written)?;
            }
            form.write(&revision, &mut &mut *out)?;
            let end: &[u8] = if json { b"}\n" } else { b"\n" };
            out.write_all(end).and_then(|()| out.flush()).map_err(written)
        };
        match output {
            Some(path) => file::replace(path, write),
            None => say::whole(write),
        }
    })
}

/// What is known of a revision, as members of an object.
fn head(name: &str, revision: &Revision) -> String {
    let meta = revision.meta();
    let members = [
        ("document", Value::from(name)),
        ("revision", revision.number().into()),
        ("time_ms", revision.time_ms().into()),
        ("author", meta.author.as_str().into()),
        ("message", meta.message.as_str().into()),
    ];
    members.map(|(name, value)| format!("\"{name}\":{value}")).join(",")
}

/// `assent docs query`.
pub(super) fn query(options: &Query, json: bool) -> Result<(), Failure> {
    let Query { name, path, when, limit, values, paths, .. } = options;
    let query = JsonPath::parse(path)?;
    let written = |error: io::Error| Failure::stdout(&error);
    let answer = |db: &Database, mut out: &mut dyn Write| -> Result<(), Failure> {
        let revision = when.find(&db.document(name)?)?;
        let limits = QueryLimits { results_max: u64::MAX, ..QueryLimits::default() };
        if json {
            write!(out, "{{{},\"results\":[", head(name, &revision)).map_err(written)?;
        }
        let (mut results, mut more) = (0, false);
        for matched in query.query(&revision, limits)? {
            let matched = matched?;
            if results == *limit {
                more = true;
                break;
            }
            let way = matched.path(&revision)?;
            if json {
                let comma = if results > 0 { "," } else { "" };
                let (key, way) = (matched.key(), Value::from(way));
                write!(out, "{comma}{{\"node_key\":{key},\"path\":{way},\"value\":").map_err(written)?;
            } else if !values {
                write!(out, "{way}{}", if *paths { "" } else { "\t" }).map_err(written)?;
            }
            if json || !paths {
                Form { start: Some(matched.key()), ..Form::default() }.write(&revision, &mut out)?;
            }
            out.write_all(if json { b"}" } else { b"\n" }).map_err(written)?;
            results += 1;
        }
        if json {
            writeln!(out, "],\"more\":{more}}}").map_err(written)?;
        }
        out.flush().map_err(written)?;
        if more && !json {
            aside!("assent: there are more; --limit was {results}");
        }
        Ok(())
    };
    House::work(&options.data, false, |db| say::whole(|out| answer(db, out)))
}

/// `assent docs history`.
pub(super) fn history(options: &History, json: bool) -> Result<(), Failure> {
    let History { name, from, to, limit, pointer, data } = options;
    if let Some(pointer) = pointer {
        return runs(options, pointer, json);
    }
    let mut told = House::work(data, false, |db| {
        let doc = db.document(name)?;
        // One more says whether there are more.
        Ok(doc.history((*from).max(1)..=*to, limit.saturating_add(1))?)
    })?;
    let more = cut(&mut told, *limit);
    if json {
        let rows = told.iter().map(|told| {
            json!({"revision": told.revision, "time_ms": told.time_ms, "author": told.author, "message": told.message})
        });
        return print_json(&json!({"document": name, "revisions": rows.collect::<Vec<_>>(), "more": more}));
    }
    let mut rows = table(&["revision", "time", "author", "message"]);
    for told in told {
        rows.add_row([
            told.revision.to_string(),
            moment::show(told.time_ms),
            plain(&told.author),
            plain(&told.message),
        ]);
    }
    print(&format!("{rows}\n"))?;
    tell_more(more, *limit);
    Ok(())
}

/// Keeps as many as were asked for, and says whether there are more.
fn cut<T>(rows: &mut Vec<T>, limit: usize) -> bool {
    let more = rows.len() > limit;
    rows.truncate(limit);
    more
}

fn tell_more(more: bool, limit: usize) {
    if more {
        aside!("assent: there are more; --limit was {limit}");
    }
}

/// `assent docs history --pointer`: what stood there, and from when to when.
fn runs(options: &History, pointer: &str, json: bool) -> Result<(), Failure> {
    let History { name, from, to, limit, data, .. } = options;
    let (rows, more) = House::work(data, false, |db| {
        let doc = db.document(name)?;
        let mut rows = Vec::new();
        let mut found = doc.path_runs(pointer, (*from).max(1)..=*to, limit.saturating_add(1))?;
        let more = cut(&mut found, *limit);
        for run in found {
            let key = run.node.map(|(key, _)| key);
            let value = match key {
                Some(key) => Some(Form { start: Some(key), ..Form::default() }.text(&doc.at(*run.revisions.start())?)?),
                None => None,
            };
            rows.push((run, value));
        }
        Ok((rows, more))
    })?;
    if json {
        let row = |(run, value): &(Run, Option<String>)| {
            let (first, last, time_ms) = (run.revisions.start(), run.revisions.end(), run.time_ms);
            let node = match (run.node, value) {
                (Some((key, hash)), Some(value)) => {
                    format!(",\"node_key\":{key},\"hash\":\"{hash:016x}\",\"value\":{value}")
                }
                _ => String::new(),
            };
            format!("{{\"from_revision\":{first},\"to_revision\":{last},\"time_ms\":{time_ms}{node}}}")
        };
        let rows = rows.iter().map(row).collect::<Vec<_>>().join(",");
        let (name, pointer) = (Value::from(name.as_str()), Value::from(pointer));
        return print(&format!("{{\"document\":{name},\"pointer\":{pointer},\"runs\":[{rows}],\"more\":{more}}}\n"));
    }
    let mut shown = table(&["revisions", "since", &plain(pointer)]);
    for (run, value) in rows {
        let (first, last) = (run.revisions.start(), run.revisions.end());
        let value = value.unwrap_or_else(|| "nothing".to_owned());
        let cut = if value.chars().count() > VALUE_CHARACTERS { "..." } else { "" };
        let value = value.chars().take(VALUE_CHARACTERS).collect::<String>();
        shown.add_row([format!("{first} to {last}"), moment::show(run.time_ms), format!("{}{cut}", plain(&value))]);
    }
    print(&format!("{shown}\n"))?;
    tell_more(more, *limit);
    Ok(())
}

/// `assent docs list`.
pub(super) fn list(data: &Data, json: bool) -> Result<(), Failure> {
    let rows = House::work(data, false, |db| {
        let (mut rows, mut behind) = (Vec::new(), None::<String>);
        loop {
            let names = db.names(behind.as_deref(), NAMES)?;
            let Some(last) = names.last() else { return Ok(rows) };
            behind = Some(last.clone());
            for name in names {
                let newest = match db.document(&name) {
                    Ok(doc) => doc.latest(),
                    // The list is of what there is, and verify names what is wrong.
                    Err(error) if error.kind() == Kind::Corrupt => {
                        rows.push((name, None));
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let nodes = match newest.value() {
                    Some(value) => newest.item(value)?.node.descendants + 1,
                    None => 0,
                };
                rows.push((name, Some((newest.number(), newest.time_ms(), nodes))));
            }
        }
    })?;
    if json {
        let rows = rows.iter().map(|(name, known)| match known {
            Some((revision, time_ms, nodes)) => {
                json!({"name": name, "revision": revision, "time_ms": time_ms, "nodes": nodes})
            }
            None => json!({"name": name, "damaged": true}),
        });
        return print_json(&json!({"documents": rows.collect::<Vec<_>>()}));
    }
    let mut shown = table(&["document", "revision", "time", "nodes"]);
    for (name, known) in rows {
        let [revision, time, nodes] = match known {
            Some((0, _, _)) => ["0".to_owned(), String::new(), "0".to_owned()],
            Some((revision, time_ms, nodes)) => [revision.to_string(), moment::show(time_ms), nodes.to_string()],
            None => ["damaged".to_owned(), String::new(), String::new()],
        };
        shown.add_row([plain(&name), revision, time, nodes]);
    }
    print(&format!("{shown}\n"))
}
