//! Rule: what docs/robustness.md names as its proof exists: each test, each `make` target, each word of the matrix.
//!
//! Walk: the last cell of each table row, its words in backticks one after the other · a `cargo test` command names a room and
//! a filter that some test's path must contain · a bare word behind it, or in a section whose text names a command, is a filter
//! too · elsewhere it is a word of the matrix · `make` names a target of the Makefile.
//! Deliberately absent: whether the test shows what the row says.

use crate::finding::{Finding, Findings};
use crate::tree::{File, Tree};

pub(crate) const PATH: &str = "docs/robustness.md";

/// Where the matrix has its words.
const MATRIX: [&str; 2] = ["crates/world/src/stop.rs", "crates/cli/src/matrix/"];

pub(crate) fn check(tree: &Tree) -> Findings {
    let mut found = Findings::default();
    let Some(page) = tree.find(PATH) else { return found };
    // The room that the section's text names, for the names in its table.
    let mut section = None;
    for (line, text) in (1..).zip(page.text.lines()) {
        if text.starts_with('#') {
            section = None;
        } else if !text.starts_with('|') {
            section = words(text).filter_map(command).last().map(|(room, _)| room.to_owned()).or(section);
        } else if let Some(cell) = text.trim_end().trim_end_matches('|').rsplit('|').next() {
            row(tree, cell, section.as_deref(), &format!("{PATH}:{line}"), &mut found);
        }
    }
    found
}

fn row(tree: &Tree, cell: &str, section: Option<&str>, place: &str, found: &mut Findings) {
    let mut room = section.map(str::to_owned);
    for word in words(cell) {
        let missing = if let Some(target) = word.strip_prefix("make ") {
            let target = target.split(' ').next().unwrap_or_default();
            !tree
                .find("Makefile")
                .is_some_and(|file| file.text.lines().any(|line| line.starts_with(&format!("{target}:"))))
        } else if let Some((named, filter)) = command(word) {
            room = Some(named.to_owned());
            !has_test(tree, named, filter)
        } else if let Some(room) = &room {
            !has_test(tree, room, word)
        } else {
            !is_of_matrix(tree, word.trim_end_matches('.'))
        };
        if missing {
            found.violation(Finding::new(
                place,
                format!("`{word}` names nothing in the tree"),
                "what is promised names what shows it",
                "write the name that it has now",
            ));
        }
    }
}

/// What stands in backticks.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The room and the filter of `cargo test -p assent-ROOM --test NAME FILTER`, also without its first two words.
fn command(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("cargo test ").unwrap_or(text).strip_prefix("-p assent-")?;
    let (room, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let rest = match rest.strip_prefix("--test ") {
        Some(named) => named.split_once(' ').map_or("", |(_, rest)| rest),
        None => rest,
    };
    Some((room, rest))
}

fn has_test(tree: &Tree, room: &str, filter: &str) -> bool {
    tree.rust_under(&format!("crates/{room}")).any(|file| tests(file).any(|path| path.contains(filter)))
}

/// The paths of a file's tests, as far as cargo's filter sees them.
fn tests(file: &File) -> impl Iterator<Item = String> {
    let place = file.path.trim_end_matches(".rs").replace('/', "::");
    let names = file.text.lines().scan(false, |is_test, line| {
        let line = line.trim();
        let name = line.strip_prefix("fn ").filter(|_| *is_test).and_then(|rest| rest.split('(').next());
        // Attributes may stand between.
        *is_test = line == "#[test]" || (*is_test && name.is_none());
        Some(name.map(str::to_owned))
    });
    names.flatten().map(move |name| format!("{place}::{name}"))
}

fn is_of_matrix(tree: &Tree, word: &str) -> bool {
    let mut files = tree.files.iter().filter(|file| MATRIX.iter().any(|path| file.path.starts_with(path)));
    files.any(|file| file.text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines at fault.
    fn at(page: &str) -> Vec<String> {
        let tree = Tree::from([
            (PATH, page),
            ("Makefile", "matrix: ## it\n\tscripts/matrix\n"),
            (
                "crates/a/src/b.rs",
                "#[cfg(test)]\nmod tests {\n    #[test]\n    #[expect(x)]\n    fn one_thing_is_so() {}\n    fn helper() {}\n}\n",
            ),
            ("crates/a/tests/a/siege.rs", "#[test]\nfn it_holds() {}\n"),
            ("crates/a/tests/a/empty.rs", "fn helper() {}\n"),
            ("crates/c/src/lib.rs", "#[test]\nfn gate_of_c() {}\n"),
            ("crates/world/src/stop.rs", "\"agent-before-decision\"\n"),
            ("crates/cli/src/matrix/cell.rs", "\"crowd\"\n"),
        ]);
        check(&tree).places().iter().map(|place| place.rsplit(':').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_command_names_a_room_and_a_test_that_are_there() {
        let rows = "| x | `cargo test -p assent-a` |\n| x | `cargo test -p assent-a one_thing` |\n\
                    | x | `cargo test -p assent-a --test a siege`, `-p assent-c gate_` |\n\
                    | x | `cargo test -p assent-a thing_was` |\n| x | `cargo test -p assent-b` |\n\
                    | x | `cargo test -p assent-a empty` |\n| x | `cargo test -p assent-a helper` |\n\
                    | x | `cargo test -p assent-a one_thing`, `it_holds`, `gate_of_c` |\n| x `gone` | y |\n";
        assert_eq!(at(rows), ["4", "5", "6", "7", "8"]);
    }

    #[test]
    fn a_section_s_command_holds_for_the_names_in_its_table_and_no_further() {
        let page = "## A\n`cargo test -p assent-a --test a` and the name:\n| x | `it_holds`, `one_thing` |\n| x | `gate_of_c` |\n\
                    ## B\n| x | the matrix, `agent-...`, mode `crowd` |\n| x | `it_holds` |\n";
        assert_eq!(at(page), ["4", "7"]);
    }

    #[test]
    fn a_target_is_in_the_makefile() {
        assert_eq!(at("| x | `make matrix BUDGET=7` |\n| x | `make gates` |\n"), ["2"]);
    }
}
