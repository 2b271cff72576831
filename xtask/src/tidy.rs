//! `cargo xtask tidy`: every rule over every file, one sentence per violation.
//!
//! Walk: read the tree and the exceptions · ask each rule · print notes, then violations, sorted.
//! Deliberately absent: the rules themselves, each in its own file.

use anyhow::{Context, Result};

use crate::allow::{self, Allow};
use crate::finding::Findings;
use crate::tree::Tree;
use crate::{barriers, floors, heads, lints, names, paths, shown, sizes};

/// Whether the tree keeps the rules.
pub(crate) fn run() -> Result<bool> {
    let tree = Tree::read()?;
    let exceptions = tree.find(allow::PATH).map_or("", |file| file.text.as_str());
    let allow = Allow::parse(exceptions).context(allow::PATH)?;
    let mut found = judge(&tree, &allow);
    found.notes.sort();
    found.violations.sort();
    for note in &found.notes {
        println!("note: {note}");
    }
    for violation in &found.violations {
        eprintln!("tidy: {violation}");
    }
    match found.violations.len() {
        0 => println!("tidy: {} files keep the rules", tree.files.len()),
        count => eprintln!("tidy: {count} violations in {} files", tree.files.len()),
    }
    Ok(found.violations.is_empty())
}

fn judge(tree: &Tree, allow: &Allow) -> Findings {
    let mut found = floors::check(tree);
    found.merge(heads::check(tree));
    found.merge(sizes::check(tree, allow));
    found.merge(names::check(tree));
    found.merge(lints::check(tree, allow));
    found.merge(barriers::check(tree));
    found.merge(paths::check(tree, allow));
    found.merge(shown::check(tree));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_asked() {
        let machine = format!("/{}/x", "root");
        let tree = Tree::from([
            ("crates/a/Cargo.toml", "[package]\nname = \"assent-a\"\n[lints]\nworkspace = true\n"),
            ("crates/a/src/utils.rs", "//! A.\n"),
            ("crates/a/src/headless.rs", ""),
            ("crates/a/src/lib.rs", "//! A.\n"),
            (
                "crates/a/src/b.rs",
                "//! B.\nconst A: Barrier = Barrier::new(\"x\");\nconst B: Barrier = Barrier::new(\"x\");\n",
            ),
            ("crates/a/src/c.rs", &"//! C.\n".repeat(sizes::LINES_MAX + 1)),
            ("docs/a.md", machine.as_str()),
            (shown::PATH, "| x | `make nothing` |\n"),
        ]);
        let mut found = judge(&tree, &Allow::default());
        found.violations.sort();
        assert_eq!(
            found.places(),
            [
                "crates/a/Cargo.toml",
                "crates/a/src/b.rs:3",
                "crates/a/src/c.rs",
                "crates/a/src/headless.rs",
                "crates/a/src/lib.rs",
                "crates/a/src/utils.rs",
                "docs/a.md:1",
                "docs/robustness.md:1"
            ]
        );
    }
}
