//! The hook that kills and revives the private SQL servers: the demo never kills a server that it did not start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use assent_kind::Kind;

use crate::failure::Failure;

/// `HOOK kill DIR NAME` and `HOOK revive DIR NAME`.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    program: PathBuf,
    folder: PathBuf,
}

impl Hook {
    pub(crate) fn new(program: &Path, folder: &Path) -> Self {
        Self { program: program.to_owned(), folder: folder.to_owned() }
    }

    pub(crate) fn call(&self, verb: &str, server: &str) -> Result<(), Failure> {
        let output = Command::new(&self.program)
            .arg(verb)
            .arg(&self.folder)
            .arg(server)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::io("run", self.program.display(), &error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(
            Kind::Unavailable,
            format!("{} {verb} {server}: {}", self.program.display(), said.lines().last().unwrap_or("it failed")),
        ))
    }
}
