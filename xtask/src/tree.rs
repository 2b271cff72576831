//! The files the rules look at: what git tracks or would track, as text.
//!
//! Walk: [`Tree::read`] lists with `git ls-files` · [`File`] knows what its path says · [`Tree::rooms`] finds the crates.
//! Deliberately absent: binary files, ignored files, other worktrees.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A text file; the path is relative to the root and has forward slashes.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl File {
    /// Rust that the house rules speak about.
    pub(crate) fn is_ours(&self) -> bool {
        self.path.ends_with(".rs") && ["crates/", "xtask/", "fuzz/"].iter().any(|folder| self.path.starts_with(folder))
    }

    /// A file that holds nothing but tests.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("_test.rs") || self.path.contains("/tests/")
    }
}

impl Tree {
    pub(crate) fn read() -> Result<Self> {
        let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"], Path::new("."))?.trim_end());
        let listed = git(&["ls-files", "-z", "-co", "--exclude-standard"], &root)?;
        let mut files = Vec::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            if let Some(text) = text_of(&root.join(path))? {
                files.push(File { path: path.to_owned(), text });
            }
        }
        Ok(Self { files })
    }

    pub(crate) fn find(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The folder names under `crates/` that hold a manifest, with it.
    pub(crate) fn rooms(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter_map(|file| {
            let room = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!room.contains('/')).then_some((room, file))
        })
    }

    /// All Rust files of the crate in `folder`.
    pub(crate) fn rust_under(&self, folder: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.path.ends_with(".rs") && file.path.starts_with(&format!("{folder}/")))
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        let files = files.map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
        Self { files: files.into() }
    }
}

/// `None` for what is no text, and for what git still lists although it was deleted.
fn text_of(path: &Path) -> Result<Option<String>> {
    // A link is judged where it points to, if that is in the tree.
    let is_file = path.symlink_metadata().is_ok_and(|data| data.is_file());
    if !is_file {
        return Ok(None);
    }
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} could not be read", path.display())),
    }
}

fn git(words: &[&str], folder: &Path) -> Result<String> {
    let program = env::var_os("GIT").unwrap_or_else(|| "git".into());
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .output()
        .context("git could not be started; tidy asks it which files are ours")?;
    ensure!(
        output.status.success(),
        "git {} failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    String::from_utf8(output.stdout).context("git listed a path that is not UTF-8; rename that file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_the_manifests_right_under_crates() {
        let tree = Tree::from([
            ("Cargo.toml", ""),
            ("crates/ids/Cargo.toml", ""),
            ("crates/ids/fixture/Cargo.toml", ""),
            ("xtask/Cargo.toml", ""),
        ]);
        let rooms: Vec<&str> = tree.rooms().map(|(room, _)| room).collect();
        assert_eq!(rooms, ["ids"]);
    }

    #[test]
    fn this_repository_lists_this_file() {
        let tree = Tree::read().unwrap();
        assert!(tree.find("xtask/src/tree.rs").is_some());
    }
}
