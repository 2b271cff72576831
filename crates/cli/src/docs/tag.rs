//! `assent docs tag`: names of revisions.

use serde_json::json;

use super::house::House;
use super::options::Tag;
use super::{done, print};
use crate::bench::{print_json, table};
use crate::failure::Failure;
use crate::say::plain;

/// Tags asked for at a time.
const TAGS: usize = 1000;

/// Runs the command.
pub(super) fn run(options: &Tag, json: bool) -> Result<(), Failure> {
    let Tag { name, tag, number, delete, data } = options;
    let Some(tag) = tag else { return list(options, json) };
    let revision = House::work(data, false, |db| {
        let doc = db.document(name)?;
        if *delete {
            doc.untag(tag)?;
            return Ok(None);
        }
        let number = number.unwrap_or_else(|| doc.latest().number());
        doc.tag(tag, number)?;
        Ok(Some(number))
    })?;
    let how = match revision {
        None => format!("{tag} names nothing any more"),
        Some(revision) => format!("{tag} is revision {revision}"),
    };
    let said = if json {
        print_json(&json!({"document": name, "tag": tag, "revision": revision}))
    } else {
        print(&format!("{name}: {how}\n"))
    };
    done(name, format_args!("has its tag: {how}"), said)
}

fn list(options: &Tag, json: bool) -> Result<(), Failure> {
    let Tag { name, data, .. } = options;
    let tags = House::work(data, false, |db| {
        let doc = db.document(name)?;
        let mut tags: Vec<(String, u32)> = Vec::new();
        loop {
            let page = doc.tags(tags.last().map(|(tag, _)| tag.as_str()), TAGS)?;
            if page.is_empty() {
                return Ok(tags);
            }
            tags.extend(page);
        }
    })?;
    if json {
        let one = |(tag, revision): &(String, u32)| json!({"tag": tag, "revision": revision});
        return print_json(&json!({"document": name, "tags": tags.iter().map(one).collect::<Vec<_>>()}));
    }
    let mut rows = table(&["tag", "revision"]);
    for (tag, revision) in tags {
        rows.add_row([plain(&tag), revision.to_string()]);
    }
    print(&format!("{rows}\n"))
}
