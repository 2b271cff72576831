//! Rule: every crate takes the lints of the workspace, and unsafe code has a room and a reason.
//!
//! Walk: `[lints] workspace = true` in each manifest · a crate that may hold unsafe code is `world`, `switch`, `capi` or
//! listed under [[unsafe]] · the sources of any crate without unsafe code forbid it in each root.
//! Deliberately absent: what the lints are (the root manifest) and whether a `SAFETY:` is there (clippy).

use toml::{Table, Value};

use crate::allow::{self, Allow};
use crate::finding::{Finding, Findings};
use crate::source;
use crate::tree::{File, Tree};

const UNSAFE_ROOMS: [&str; 3] = ["world", "switch", "capi"];

pub(crate) fn check(tree: &Tree, allow: &Allow) -> Findings {
    let mut found = Findings::default();
    let mut crates: Vec<(&str, String, &File)> =
        tree.rooms().map(|(room, manifest)| (room, format!("crates/{room}"), manifest)).collect();
    if let Some(manifest) = tree.find("xtask/Cargo.toml") {
        crates.push(("xtask", "xtask".to_owned(), manifest));
    }

    for (name, folder, manifest) in &crates {
        takes_workspace_lints(manifest, &mut found);
        let with_unsafe: Vec<&File> = tree.rust_under(folder).filter(|file| has_unsafe(file)).collect();
        let listed = allow.unsafe_crates.iter().any(|listed| listed == name);
        if !listed && !is_unsafe_room(name) {
            for file in &with_unsafe {
                found.violation(Finding::new(
                    &file.path,
                    "holds unsafe code",
                    format!("only {} may", UNSAFE_ROOMS.join(", ")),
                    format!("move it there, or list the crate with a reason under [[unsafe]] in {}", allow::PATH),
                ));
            }
        }
        if listed && with_unsafe.is_empty() {
            found.violation(allow::stale("unsafe", name));
        }
        // Tests are crates of their own: unsafe code there does not keep the sources from forbidding it.
        let sources = format!("{folder}/src/");
        if !with_unsafe.iter().any(|file| file.path.starts_with(&sources)) {
            for root in tree.rust_under(folder).filter(|file| is_root(&file.path, &sources)) {
                forbids_unsafe(root, &mut found);
            }
        }
    }
    for listed in &allow.unsafe_crates {
        if !crates.iter().any(|(name, ..)| name == listed) {
            found.violation(allow::stale("unsafe", listed));
        }
    }
    found
}

fn takes_workspace_lints(manifest: &File, found: &mut Findings) {
    let table = manifest.text.parse::<Table>().unwrap_or_default();
    let taken = table.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    if taken != Some(true) {
        found.violation(Finding::new(
            &manifest.path,
            "does not take the lints of the workspace",
            "every crate does",
            "write `workspace = true` under [lints]",
        ));
    }
}

fn forbids_unsafe(root: &File, found: &mut Findings) {
    let code: String = source::code(&root.text).split_whitespace().collect();
    let forbidden = code
        .split("#![forbid(")
        .skip(1)
        .filter_map(|rest| rest.split_once(")]"))
        .any(|(lints, _)| source::has_word(lints, "unsafe_code"));
    if !forbidden {
        found.violation(Finding::new(
            &root.path,
            "does not forbid unsafe code",
            "a crate without unsafe code forbids it",
            "write `#![forbid(unsafe_code)]` under the head",
        ));
    }
}

fn has_unsafe(file: &File) -> bool {
    source::has_word(&source::code(&file.text), "unsafe")
}

/// `capi` has one package per shared library: capi-tx and the like.
fn is_unsafe_room(name: &str) -> bool {
    UNSAFE_ROOMS.contains(&name) || name.starts_with("capi-")
}

fn is_root(path: &str, sources: &str) -> bool {
    let Some(rest) = path.strip_prefix(sources) else { return false };
    let binary = rest.strip_prefix("bin/").is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs"));
    rest == "lib.rs" || rest == "main.rs" || binary
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";
    const SAFE: &str = "//! A.\n#![forbid(unsafe_code)]\n";
    const UNSAFE: &str = "//! A.\nfn f() { unsafe { g() } }\n";
    const PROSE: &str = "//! Not unsafe.\n#![forbid(unsafe_code, missing_docs)]\nconst A: &str = \"unsafe\";\n";
    const BARE: &str = "//! A.\n// #![forbid(unsafe_code)]\n";

    #[test]
    fn the_lints_of_the_workspace_are_taken() {
        for (manifest, count) in [(LINTS, 0), ("", 1), ("[lints]\nworkspace = false\n", 1), ("[lints.rust]\n", 1)] {
            for path in ["crates/a/Cargo.toml", "xtask/Cargo.toml"] {
                let found = check(&Tree::from([(path, manifest)]), &Allow::default());
                assert_eq!(found.places(), vec![path; count], "{path} {manifest}");
            }
        }
    }

    #[test]
    fn unsafe_code_has_a_room_or_a_reason() {
        let listed = "[[unsafe]]\ncrate = \"a\"\nreason = \"measured\"";
        let table: [(&str, &str, &str, &str, usize); 12] = [
            ("a", "lib.rs", SAFE, "", 0),
            ("a", "lib.rs", PROSE, "", 0),
            ("a", "lib.rs", BARE, "", 1),
            ("a", "main.rs", BARE, "", 1),
            ("a", "bin/b.rs", BARE, "", 1),
            ("a", "b.rs", BARE, "", 0),
            ("a", "lib.rs", UNSAFE, "", 1),
            ("a", "lib.rs", UNSAFE, listed, 0),
            ("a", "lib.rs", SAFE, listed, 1),
            ("world", "lib.rs", UNSAFE, "", 0),
            ("world", "lib.rs", BARE, "", 1),
            ("capi-tx", "lib.rs", UNSAFE, "", 0),
        ];
        for (room, file, text, allow, violations) in table {
            let manifest = format!("crates/{room}/Cargo.toml");
            let path = format!("crates/{room}/src/{file}");
            let tree = Tree::from([(manifest.as_str(), LINTS), (path.as_str(), text)]);
            let found = check(&tree, &Allow::parse(allow).unwrap());
            assert_eq!(found.violations.len(), violations, "{room} {file} {text} {found:?}");
        }
    }

    #[test]
    fn unsafe_code_in_tests_needs_a_reason_and_the_sources_still_forbid_it() {
        let tree = Tree::from([
            ("crates/a/Cargo.toml", LINTS),
            ("crates/a/src/lib.rs", BARE),
            ("crates/a/tests/b.rs", UNSAFE),
        ]);
        assert_eq!(check(&tree, &Allow::default()).places(), ["crates/a/tests/b.rs", "crates/a/src/lib.rs"]);
    }

    #[test]
    fn an_exception_for_nobody_is_refused() {
        let allow = Allow::parse("[[unsafe]]\ncrate = \"gone\"\nreason = \"measured\"").unwrap();
        assert_eq!(check(&Tree::default(), &allow).places(), [allow::PATH]);
    }
}
