//! The exceptions from the rules, each with its reason: `xtask/tidy.toml`.
//!
//! Walk: [`Allow::parse`] reads the tables · a rule asks for its own list · an entry that is no longer needed is a
//! violation itself ([`stale`]), so that the list cannot grow old.
//! Deliberately absent: patterns. An exception names one file or one crate.

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::finding::Finding;

pub(crate) const PATH: &str = "xtask/tidy.toml";

#[derive(Debug, Default)]
pub(crate) struct Allow {
    pub(crate) long: Vec<Long>,
    /// Crates, by folder name, that may hold unsafe code.
    pub(crate) unsafe_crates: Vec<String>,
    /// Files that may hold something that looks like a path of a machine.
    pub(crate) path_files: Vec<String>,
}

/// A file that may be longer than others.
#[derive(Debug)]
pub(crate) struct Long {
    pub(crate) file: String,
    pub(crate) lines_max: usize,
}

impl Allow {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut allow = Self::default();
        for (key, value) in text.parse::<Table>()? {
            let entries = value.as_array().with_context(|| format!("`{key}` must be written [[{key}]]"))?;
            for entry in entries {
                allow.take(&key, entry).with_context(|| format!("in an entry [[{key}]]"))?;
            }
        }
        Ok(allow)
    }

    fn take(&mut self, key: &str, entry: &Value) -> Result<()> {
        match key {
            "long" => {
                fields(entry, &["file", "lines_max", "reason"])?;
                let lines_max = entry.get("lines_max").and_then(Value::as_integer);
                self.long.push(Long {
                    file: string(entry, "file")?,
                    lines_max: lines_max
                        .and_then(|n| usize::try_from(n).ok())
                        .context("`lines_max` must be a count")?,
                });
            }
            "unsafe" => {
                fields(entry, &["crate", "reason"])?;
                self.unsafe_crates.push(string(entry, "crate")?);
            }
            "path" => {
                fields(entry, &["file", "reason"])?;
                self.path_files.push(string(entry, "file")?);
            }
            _ => bail!("nothing is called `{key}`; known are long, unsafe, path"),
        }
        Ok(())
    }
}

/// The violation of an exception that nothing needs any more.
pub(crate) fn stale(key: &str, name: &str) -> Finding {
    Finding::new(
        PATH,
        format!("[[{key}]] lists {name}, which keeps the rule or does not exist"),
        "an exception lives only as long as it is needed",
        "remove the entry",
    )
}

fn fields(entry: &Value, known: &[&str]) -> Result<()> {
    let table = entry.as_table().context("an entry is a table")?;
    for key in table.keys() {
        ensure!(known.contains(&key.as_str()), "nothing is called `{key}`; known are {}", known.join(", "));
    }
    string(entry, "reason").map(drop)
}

fn string(entry: &Value, key: &str) -> Result<String> {
    match entry.get(key).and_then(Value::as_str) {
        Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => bail!("`{key}` must be a text that says something"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_exception_is_read() {
        let allow = Allow::parse(
            "[[long]]\nfile = \"a.rs\"\nlines_max = 700\nreason = \"a table\"\n\
             [[unsafe]]\ncrate = \"journal\"\nreason = \"measured\"\n\
             [[path]]\nfile = \"b.md\"\nreason = \"an example\"\n",
        )
        .unwrap();
        assert_eq!(allow.long.first().map(|long| long.lines_max), Some(700));
        assert_eq!(allow.unsafe_crates, ["journal"]);
        assert_eq!(allow.path_files, ["b.md"]);
    }

    #[test]
    fn an_exception_needs_a_reason_and_known_names() {
        for bad in [
            "[[unsafe]]\ncrate = \"journal\"",
            "[[unsafe]]\ncrate = \"journal\"\nreason = \" \"",
            "[[long]]\nfile = \"a.rs\"\nreason = \"a table\"",
            "[[long]]\nfile = \"a.rs\"\nlines_max = -1\nreason = \"a table\"",
            "[[path]]\nfile = \"a.rs\"\nlines_max = 1\nreason = \"r\"",
            "[[other]]\nfile = \"a.rs\"\nreason = \"r\"",
            "[unsafe]\ncrate = \"journal\"\nreason = \"r\"",
            "not toml",
        ] {
            assert!(Allow::parse(bad).is_err(), "{bad}");
        }
    }
}
