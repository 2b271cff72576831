//! `assent docs diff`: what differs between two revisions, for people in colour, for programs as a list of differences or a patch.

use std::io::{self, IsTerminal as _};

use assent_docs::{Diff as Between, Difference, Form, NodeKey, Pointers, Revision, Scope};

use super::house::{House, node};
use super::options::{Colour, Diff};
use super::print;
use crate::failure::Failure;
use crate::say::{self, plain};

/// So much of a value stands in a line for people.
const VALUE_CHARACTERS: usize = 200;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Runs the command.
pub(super) fn run(options: &Diff, json: bool) -> Result<(), Failure> {
    let Diff { name, old, new, at, max_level, patch, merge, .. } = options;
    House::work(&options.data, false, |db| {
        let doc = db.document(name)?;
        let new = new.map_or_else(|| Ok(doc.latest()), |new| doc.at(new))?;
        let old = doc.at(old.unwrap_or_else(|| new.number().saturating_sub(1)))?;
        let start = match at {
            // In either of them.
            Some(at) => Some(node(&new, name, Some(at)).or_else(|_| node(&old, name, Some(at)))?),
            None => None,
        };
        let diff = Between::between(&old, &new, Scope { start, max_level: *max_level })?;
        if !(*patch || *merge || json) {
            return lines(&diff, (&old, &new), options.colour);
        }
        say::whole(|mut out| {
            if *patch {
                diff.patch()?.write(&mut out)?;
            } else if *merge {
                diff.merge_patch(&mut out)?;
            } else {
                diff.write(&options.data.data.display().to_string(), true, &mut out)?;
            }
            out.write_all(b"\n").map_err(|error| Failure::stdout(&error))
        })
    })
}

/// One or two lines for each difference.
fn lines(diff: &Between, (old, new): (&Revision, &Revision), colour: Colour) -> Result<(), Failure> {
    let is_coloured = match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let line = |colour: &str, text: String| {
        if is_coloured { format!("\x1b[{colour}m{text}\x1b[0m\n") } else { format!("{text}\n") }
    };
    let (mut before, mut after) = (Pointers::of(old), Pointers::of(new));
    for difference in diff.differences() {
        let (was, is) = match *difference {
            Difference::Renamed { key } | Difference::Moved { key, .. } => {
                let moved = format!("~ {:?} is now {:?}", before.to(key)?, after.to(key)?);
                print(&line(YELLOW, moved))?;
                continue;
            }
            _ => difference.keys(),
        };
        if let Some(key) = was {
            print(&line(RED, format!("- {:?}: {}", before.to(key)?, value(old, key)?)))?;
        }
        if let Some(key) = is {
            print(&line(GREEN, format!("+ {:?}: {}", after.to(key)?, value(new, key)?)))?;
        }
    }
    Ok(())
}

fn value(look: &Revision, key: NodeKey) -> Result<String, Failure> {
    // Of a large value no more is written than is shown.
    let nodes = u64::try_from(VALUE_CHARACTERS).unwrap_or(u64::MAX);
    let text = Form { start: Some(key), max_nodes: Some(nodes), ..Form::default() }.text(look)?;
    Ok(match text.char_indices().nth(VALUE_CHARACTERS) {
        Some((end, _)) => format!("{}...", plain(text.get(..end).unwrap_or_default())),
        None => plain(&text),
    })
}
