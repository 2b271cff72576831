//! `assent docs watch`: what came after a revision, a line of JSON or a few lines for people for each commit.
//!
//! Walk: the folder is opened, what is new is told, the folder is left to others · again, if it is to follow.

use std::time::Duration;

use assent_docs::{Change, Document, Look as _, Mark, NodeKey, Revision, Told, What};
use assent_world::{Clock as _, RealClock};
use serde_json::json;

use super::house::House;
use super::options::Watch;
use super::print;
use crate::failure::Failure;
use crate::say::plain;
use crate::tx::moment;

/// Revisions that are read before they are told.
const PAGE: usize = 100;
/// So long the folder is left to others.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the command.
pub(super) fn run(options: &Watch, json: bool) -> Result<(), Failure> {
    let Watch { name, after, follow, data } = options;
    let mut mark = None::<Mark>;
    loop {
        let (now, text, more) = House::work(data, false, |db| {
            let doc = db.document(name)?;
            let from = match mark {
                Some(mark) => mark,
                None if *after == 0 => Mark::default(),
                None => doc.at(*after)?.mark(),
            };
            let since = doc.since(from, PAGE, Duration::ZERO)?;
            let mut text = String::new();
            for told in &since.revisions {
                text.push_str(&tell(&doc, told, json)?);
            }
            Ok((since.mark, text, since.revisions.len() == PAGE))
        })?;
        mark = Some(now);
        print(&text)?;
        if !more {
            if !follow {
                return Ok(());
            }
            RealClock.sleep(PAUSE);
        }
    }
}

fn tell(doc: &Document, told: &Told, json: bool) -> Result<String, Failure> {
    let revision = doc.at(told.revision)?;
    let before = doc.at(told.revision.saturating_sub(1))?;
    let changes = match revision.changes() {
        None => None,
        Some(changes) => {
            let place = |change: &Change| Ok((verb(change.what), change.node, place(&revision, &before, change)?));
            Some(changes.iter().map(place).collect::<Result<Vec<_>, Failure>>()?)
        }
    };
    let Told { revision, time_ms, author, message } = told;
    if json {
        let change = |(what, key, pointer): &(&str, u64, Option<String>)| json!({"what": what, "node_key": key, "pointer": pointer});
        let changes = changes.map(|changes| changes.iter().map(change).collect::<Vec<_>>());
        let told = json!({
            "revision": revision, "time_ms": time_ms, "author": author, "message": message, "changes": changes,
        });
        return Ok(format!("{told}\n"));
    }
    let (author, message) = (plain(author), plain(message));
    let mut text = format!("{revision}\t{}\t{author}\t{message}\n", moment::show(*time_ms));
    match changes {
        None => text.push_str("  more than is listed, or a revert: diff says what\n"),
        Some(changes) => {
            for (what, key, pointer) in changes {
                let place = pointer.map_or_else(|| format!("node {key}"), |pointer| format!("{pointer:?}"));
                text.push_str(&format!("  {what} {place}\n"));
            }
        }
    }
    Ok(text)
}

const fn verb(what: What) -> &'static str {
    match what {
        What::Inserted => "inserted",
        What::Removed => "removed",
        What::Set => "set",
        What::Renamed => "renamed",
        What::Moved => "moved",
    }
}

/// Where the node is; of one that is gone, where it was. One that came and went within the commit is nowhere.
fn place(revision: &Revision, before: &Revision, change: &Change) -> Result<Option<String>, Failure> {
    let key = NodeKey(change.node);
    for look in [revision, before] {
        if look.find(key)?.is_some() {
            return Ok(Some(look.pointer(key)?));
        }
    }
    Ok(None)
}
