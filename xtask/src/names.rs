//! Rule: nothing is named after having no name.
//!
//! Walk: folders and files by their path · inline modules by their line.
//! Deliberately absent: taste. Only the four words that collect whatever is left over.

use crate::finding::{Finding, Findings};
use crate::source;
use crate::tree::{File, Tree};

const NAMELESS: [&str; 4] = ["utils", "helpers", "common", "misc"];

pub(crate) fn check(tree: &Tree) -> Findings {
    let mut found = Findings::default();
    for file in tree.files.iter().filter(|file| file.is_ours()) {
        for part in file.path.split('/') {
            let name = part.strip_suffix(".rs").unwrap_or(part);
            if NAMELESS.contains(&name) {
                found.violation(finding(file.path.clone(), name));
            }
        }
        inline(file, &mut found);
    }
    found
}

/// `mod x;` names a file, which has been looked at; `mod x {` is found here.
fn inline(file: &File, found: &mut Findings) {
    for (at, line) in source::code(&file.text).lines().enumerate() {
        let Some((head, _)) = line.split_once('{') else { continue };
        let mut words = head.split_whitespace().skip_while(|word| *word != "mod").skip(1);
        if let Some(name) = words.next().filter(|name| NAMELESS.contains(name)) {
            found.violation(finding(format!("{}:{}", file.path, at + 1), name));
        }
    }
}

fn finding(place: String, name: &str) -> Finding {
    Finding::new(
        place,
        format!("is called `{name}`"),
        format!("no file, folder or module is called {}", NAMELESS.join(", ")),
        "name it after the noun it holds, or move each part to the noun it belongs to",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_overs_have_no_room() {
        let table: [(&str, &str, &[&str]); 10] = [
            ("crates/a/src/utils.rs", "", &["crates/a/src/utils.rs"]),
            ("crates/a/src/helpers/b.rs", "", &["crates/a/src/helpers/b.rs"]),
            ("crates/a/tests/common/mod.rs", "", &["crates/a/tests/common/mod.rs"]),
            ("crates/misc/src/lib.rs", "", &["crates/misc/src/lib.rs"]),
            ("crates/a/src/b.rs", "\npub(crate) mod utils {\n}", &["crates/a/src/b.rs:2"]),
            ("crates/a/src/b.rs", "mod common { }", &["crates/a/src/b.rs:1"]),
            ("crates/a/src/b.rs", "// mod common {\nlet s = \"mod misc {\";", &[]),
            ("crates/a/src/b.rs", "mod uncommon { }\nfn common() {}", &[]),
            ("crates/a/src/uncommon.rs", "", &[]),
            ("peers/common/lib.rs", "", &[]),
        ];
        for (path, text, expected) in table {
            assert_eq!(check(&Tree::from([(path, text)])).places(), expected, "{path} {text}");
        }
    }
}
