//! Rule: a barrier label names one place.
//!
//! Walk: each `Barrier::new("label")` in the rooms' sources, their tests left out · a label met twice is a violation.
//! Deliberately absent: whether a test turns red without the barrier; the simulation shows that, by this label.

use std::collections::BTreeMap;

use crate::finding::{Finding, Findings};
use crate::source;
use crate::tree::Tree;

const CALL: &str = "Barrier::new(";

pub(crate) fn check(tree: &Tree) -> Findings {
    let mut found = Findings::default();
    let mut first = BTreeMap::new();
    let sources = tree.files.iter().filter(|file| file.is_ours() && file.path.starts_with("crates/"));
    for file in sources.filter(|file| !file.is_test()) {
        let code = source::code_and_strings(&file.text);
        let code = source::before_tests(&code);
        for (at, _) in code.match_indices(CALL) {
            let (_, call) = code.split_at(at + CALL.len());
            // A label that is no literal is a test's or a macro's; it cannot be compared here.
            let Some((label, _)) = call.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')) else {
                continue;
            };
            let place = format!("{}:{}", file.path, source::line_of(code, at));
            if let Some(other) = first.get(label) {
                found.violation(Finding::new(
                    place,
                    format!("the barrier label \"{label}\" is taken by {other}"),
                    "a label names one place",
                    "give this one a label of its own, or share the constant",
                ));
            } else {
                first.insert(label.to_owned(), place);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_met_once() {
        let tree = Tree::from([
            (
                "crates/a/src/lib.rs",
                "const A: Barrier = Barrier::new(\"a: one\");\n// Barrier::new(\"a: one\")\nconst B: Barrier =\n    Barrier::new(\n        \"a: two\",\n    );\n",
            ),
            (
                "crates/b/src/lib.rs",
                "const A: Barrier = Barrier::new(\"b: one\");\n\nconst B: Barrier = Barrier::new(\"a: two\");",
            ),
            (
                "crates/b/src/c.rs",
                "fn f(l: &'static str) { Barrier::new(l); }\n#[cfg(test)]\nmod tests {\n const T: Barrier = Barrier::new(\"a: one\"); }",
            ),
            ("crates/b/tests/d.rs", "const T: Barrier = Barrier::new(\"a: one\");"),
            ("crates/b/src/c_test.rs", "const T: Barrier = Barrier::new(\"a: one\");"),
        ]);
        assert_eq!(check(&tree).places(), ["crates/b/src/lib.rs:3"]);
    }
}
