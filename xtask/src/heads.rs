//! Rule: a file introduces itself.
//!
//! Walk: each Rust file of ours begins with `//!`.
//! Deliberately absent: judging what the head says.

use crate::finding::{Finding, Findings};
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Findings {
    let mut found = Findings::default();
    for file in tree.files.iter().filter(|file| file.is_ours() && !file.text.starts_with("//!")) {
        let first = file.text.lines().next().unwrap_or_default();
        found.violation(Finding::new(
            &file.path,
            if first.is_empty() { "begins with an empty line".to_owned() } else { format!("begins with `{first}`") },
            "a file begins with a `//!` head",
            "say what it is, how to walk it and what is deliberately absent",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_first() {
        let tree = Tree::from([
            ("crates/a/src/lib.rs", "//! A.\n"),
            ("crates/a/src/bare.rs", "use std::fmt;\n"),
            ("crates/a/src/late.rs", "\n//! Late.\n"),
            ("crates/a/tests/story.rs", "// A.\n"),
            ("xtask/src/empty.rs", ""),
            ("fuzz/fuzz_targets/frame.rs", "#![no_main]\n"),
            ("bindings/python/src/lib.rs", "fn elsewhere() {}\n"),
            ("crates/a/README.md", "# A\n"),
        ]);
        assert_eq!(
            check(&tree).places(),
            [
                "crates/a/src/bare.rs",
                "crates/a/src/late.rs",
                "crates/a/tests/story.rs",
                "xtask/src/empty.rs",
                "fuzz/fuzz_targets/frame.rs"
            ]
        );
    }
}
