//! Rule: a file is one noun, and `lib.rs` is a map.
//!
//! Walk: count lines · `lib.rs` of a room to [`LIB_LINES_MAX`], any other to [`LINES_MAX`], a note above [`LINES_NOTE`] ·
//! a file listed under [[long]] has its own limit.
//! Deliberately absent: files of tests, where length is a table; functions, which clippy counts.

use crate::allow::{self, Allow};
use crate::finding::{Finding, Findings};
use crate::tree::{File, Tree};

pub(crate) const LIB_LINES_MAX: usize = 120;
pub(crate) const LINES_NOTE: usize = 400;
pub(crate) const LINES_MAX: usize = 600;

const _: () = assert!(LIB_LINES_MAX < LINES_NOTE && LINES_NOTE < LINES_MAX, "a note comes before the error");

pub(crate) fn check(tree: &Tree, allow: &Allow) -> Findings {
    let mut found = Findings::default();
    for file in tree.files.iter().filter(|file| file.is_ours() && !file.is_test()) {
        let lines = file.text.lines().count();
        let listed = allow.long.iter().find(|long| long.file == file.path).map(|long| long.lines_max);
        let lines_max = listed.unwrap_or(limit_of(file));
        if lines > lines_max {
            found.violation(Finding::new(
                &file.path,
                format!("{lines} lines"),
                format!("the limit is {lines_max}"),
                if is_lib(file) {
                    "leave head, `mod` and re-exports there and move the rest to files of its own".to_owned()
                } else {
                    format!("cut it along its nouns, or list it with a reason in {}", allow::PATH)
                },
            ));
        } else if lines > LINES_NOTE {
            found.note(Finding::new(
                &file.path,
                format!("{lines} lines"),
                format!("above {LINES_NOTE} a file deserves a second look, the limit is {lines_max}"),
                "look whether it is still one noun",
            ));
        }
    }
    for long in &allow.long {
        let needed = tree
            .find(&long.file)
            .is_some_and(|file| file.text.lines().count() > limit_of(file) && file.is_ours() && !file.is_test());
        if !needed {
            found.violation(allow::stale("long", &long.file));
        }
    }
    found
}

fn limit_of(file: &File) -> usize {
    if is_lib(file) { LIB_LINES_MAX } else { LINES_MAX }
}

fn is_lib(file: &File) -> bool {
    file.path.ends_with("/src/lib.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(path: &str, lines: usize, allow: &str) -> (usize, usize) {
        let text = "//! A.\n".repeat(lines);
        let found = check(&Tree::from([(path, text.as_str())]), &Allow::parse(allow).unwrap());
        (found.violations.len(), found.notes.len())
    }

    #[test]
    fn the_limit_and_one_beyond_it() {
        let listed = "[[long]]\nfile = \"crates/a/src/b.rs\"\nlines_max = 700\nreason = \"a table\"";
        let table = [
            ("crates/a/src/lib.rs", 120, "", (0, 0)),
            ("crates/a/src/lib.rs", 121, "", (1, 0)),
            ("crates/a/src/b.rs", 400, "", (0, 0)),
            ("crates/a/src/b.rs", 401, "", (0, 1)),
            ("crates/a/src/b.rs", 600, "", (0, 1)),
            ("crates/a/src/b.rs", 601, "", (1, 0)),
            ("crates/a/src/b.rs", 700, listed, (0, 1)),
            ("crates/a/src/b.rs", 701, listed, (1, 0)),
            ("crates/a/src/b_test.rs", 900, "", (0, 0)),
            ("crates/a/tests/b.rs", 900, "", (0, 0)),
            ("xtask/src/b.rs", 601, "", (1, 0)),
            ("fuzz/b.rs", 601, "", (1, 0)),
        ];
        for (path, lines, allow, expected) in table {
            assert_eq!(verdict(path, lines, allow), expected, "{path} with {lines} lines");
        }
    }

    #[test]
    fn an_exception_that_is_not_needed_is_refused() {
        let listed = "[[long]]\nfile = \"crates/a/src/b.rs\"\nlines_max = 700\nreason = \"a table\"";
        assert_eq!(verdict("crates/a/src/b.rs", 600, listed).0, 1);
        assert_eq!(verdict("crates/a/src/c.rs", 10, listed).0, 1);
    }
}
