//! Rule: a room leans only on rooms of a strictly lower floor.
//!
//! Walk: read `[package.metadata.room] floor` of each manifest · hold each edge against it.
//! Deliberately absent: dev-dependencies, which are exempt: a test may use the simulation above it.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::finding::{Finding, Findings};
use crate::tree::Tree;

const PREFIX: &str = "assent-";

pub(crate) fn check(tree: &Tree) -> Findings {
    let mut found = Findings::default();
    let mut rooms = Vec::new();
    for (room, file) in tree.rooms() {
        match file.text.parse::<Table>() {
            Ok(manifest) => rooms.push((room, file.path.as_str(), manifest)),
            Err(error) => found.violation(Finding::new(
                &file.path,
                format!("no TOML ({})", error.message()),
                "a manifest is TOML",
                "repair it",
            )),
        }
    }

    let mut floors = BTreeMap::new();
    for (room, path, manifest) in &rooms {
        let package = format!("{PREFIX}{room}");
        let named = at(manifest, &["package", "name"]).and_then(Value::as_str).unwrap_or("nothing");
        if named != package {
            found.violation(Finding::new(
                *path,
                format!("the package is called {named}"),
                format!("the package of crates/{room} is {package}"),
                "rename the package or the folder",
            ));
        }
        match at(manifest, &["package", "metadata", "room", "floor"]).and_then(Value::as_integer) {
            Some(floor) if floor >= 0 => {
                floors.insert(package, floor);
            }
            _ => found.violation(Finding::new(
                *path,
                "no floor",
                "each room names its floor, 0 or above",
                "write `floor = N` under [package.metadata.room]",
            )),
        }
    }

    for (room, path, manifest) in &rooms {
        let Some(own) = floors.get(&format!("{PREFIX}{room}")) else { continue };
        for package in edges(manifest) {
            let value = format!("depends on {package}");
            match floors.get(&package) {
                Some(floor) if floor < own => {}
                Some(floor) => found.violation(Finding::new(
                    *path,
                    format!("{value} on floor {floor}"),
                    format!("a room on floor {own} depends on floors below {own}"),
                    "move what is needed down, hand it in as an argument, or make it a dev-dependency",
                )),
                None => found.violation(Finding::new(
                    *path,
                    value,
                    "a room depends on rooms that have a floor",
                    "correct the name, or give that room a floor",
                )),
            }
        }
    }
    found
}

/// The packages of ours that the manifest needs to build, also those for one target and under another name.
fn edges(manifest: &Table) -> Vec<String> {
    let for_targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(for_targets.filter_map(Value::as_table));
    let mut packages = Vec::new();
    for table in tables {
        for kind in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = table.get(kind).and_then(Value::as_table) else { continue };
            for (name, value) in dependencies {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
                if package.starts_with(PREFIX) {
                    packages.push(package.to_owned());
                }
            }
        }
    }
    packages
}

fn at<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: &str = "[package]\nname = \"assent-low\"\n[package.metadata.room]\nfloor = 1\n";
    const HIGH: &str = "[package]\nname = \"assent-high\"\n[package.metadata.room]\nfloor = 2\n";

    fn places(low: &str, high: &str) -> Vec<String> {
        let low = format!("{LOW}{low}");
        let high = format!("{HIGH}{high}");
        let tree = Tree::from([("crates/low/Cargo.toml", low.as_str()), ("crates/high/Cargo.toml", high.as_str())]);
        check(&tree).places().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn edges_go_down_and_nowhere_else() {
        let to_low = "assent-low.workspace = true\nserde = \"1\"\n";
        let to_high = "assent-high = { workspace = true, features = [\"x\"] }\n";
        let to_self = "assent-high.workspace = true\n";
        let renamed = "h = { package = \"assent-high\", path = \"../high\" }\n";
        let unknown = "assent-nowhere.workspace = true\n";
        let high = "crates/high/Cargo.toml";
        let low = "crates/low/Cargo.toml";
        let table: [(&str, String, &[&str]); 9] = [
            ("", format!("[dependencies]\n{to_low}"), &[]),
            ("", format!("[build-dependencies]\n{to_low}"), &[]),
            ("", format!("[dependencies]\n{to_self}"), &[high]),
            ("", format!("[dependencies]\n{unknown}"), &[high]),
            ("[dependencies]\n", String::new(), &[]),
            ("[dependencies]\nassent-high.workspace = true\n", String::new(), &[low]),
            ("[dev-dependencies]\nassent-high.workspace = true\n", String::new(), &[]),
            ("[build-dependencies]\nassent-high.workspace = true\n", String::new(), &[low]),
            ("[target.'cfg(unix)'.dependencies]\nassent-high.workspace = true\n", String::new(), &[low]),
        ];
        for (in_low, in_high, expected) in table {
            assert_eq!(places(in_low, &in_high), expected, "{in_low} {in_high}");
        }
        assert_eq!(places(&format!("[dependencies]\n{to_high}"), ""), [low]);
        assert_eq!(places(&format!("[dependencies]\n{renamed}"), ""), [low]);
    }

    #[test]
    fn each_room_has_a_floor_and_its_own_name() {
        for bad in [
            "[package]\nname = \"assent-a\"\n",
            "[package]\nname = \"assent-a\"\n[package.metadata.room]\nfloor = -1\n",
            "[package]\nname = \"assent-a\"\n[package.metadata.room]\nfloor = \"1\"\n",
            "[package]\nname = \"other\"\n[package.metadata.room]\nfloor = 1\n",
            "not toml",
        ] {
            let found = check(&Tree::from([("crates/a/Cargo.toml", bad)]));
            assert_eq!(found.places(), ["crates/a/Cargo.toml"], "{bad}");
        }
    }
}
