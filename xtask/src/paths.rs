//! Rule: no file knows the machine it was written on.
//!
//! Walk: each line of each text file · an absolute path into a folder of somebody's machine is a violation.
//! Deliberately absent: system folders that are the same everywhere, temporary folders, relative paths.

use crate::allow::{self, Allow};
use crate::finding::{Finding, Findings};
use crate::tree::{File, Tree};

/// First folders of absolute paths that exist on one machine and not on the next. Written without slashes, because
/// this file is looked at as well.
const FOLDERS: [&str; 3] = ["work", "root", "home"];

pub(crate) fn check(tree: &Tree, allow: &Allow) -> Findings {
    let mut found = Findings::default();
    for file in &tree.files {
        if allow.path_files.contains(&file.path) {
            continue;
        }
        for (line, path) in paths(file) {
            found.violation(Finding::new(
                format!("{}:{line}", file.path),
                format!("names {path}"),
                "a tracked file names no path of one machine",
                "write it relative, or take it from an argument or the environment",
            ));
        }
    }
    for listed in &allow.path_files {
        if tree.find(listed).is_none_or(|file| paths(file).next().is_none()) {
            found.violation(allow::stale("path", listed));
        }
    }
    found
}

/// The paths found, with their lines.
fn paths(file: &File) -> impl Iterator<Item = (usize, String)> {
    file.text.lines().enumerate().flat_map(|(at, line)| {
        FOLDERS.iter().filter_map(move |folder| {
            let path = format!("/{folder}/");
            line.match_indices(&path)
                .any(|(start, _)| {
                    // Within a longer path, an address or a variable's folder it is somebody else's.
                    let before = line.split_at(start).0.chars().next_back();
                    !before.is_some_and(|c| c.is_alphanumeric() || "_-.~})]$".contains(c))
                })
                .then_some((at + 1, path))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_not_named() {
        let table = [
            ("see {} for it", true),
            ("{}", true),
            ("path = \"{}x\"", true),
            ("file://{}x", true),
            ("echo >{}x", true),
            ("crates{}x", false),
            ("https://example.org{}x", false),
            ("$HOME{}x", false),
            ("${DIR}{}x", false),
            ("..{}x", false),
        ];
        for folder in FOLDERS {
            for (line, bad) in table {
                let text = format!("a\n{}\n", line.replace("{}", &format!("/{folder}/")));
                let found = check(&Tree::from([("docs/a.md", text.as_str())]), &Allow::default());
                let expected: &[&str] = if bad { &["docs/a.md:2"] } else { &[] };
                assert_eq!(found.places(), expected, "{text}");
            }
        }
    }

    #[test]
    fn an_exception_lasts_while_it_is_needed() {
        let allow = Allow::parse("[[path]]\nfile = \"docs/a.md\"\nreason = \"an example\"").unwrap();
        let shown = format!("in /{}/x\n", "root");
        assert!(check(&Tree::from([("docs/a.md", shown.as_str())]), &allow).places().is_empty());
        assert_eq!(check(&Tree::from([("docs/a.md", "nothing\n")]), &allow).places(), [allow::PATH]);
    }
}
