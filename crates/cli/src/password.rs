//! `assent password`: the hash of a password, as a user in the configuration has it.
//!
//! Walk: a line from stdin, so that no password stands in a list of processes or in a shell's history · the hash on stdout.

use std::process::ExitCode;

use crate::bench::print_json;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn run(json: bool) -> Result<ExitCode, Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| Failure::io("read", "stdin", &error))?;
    let password = line.strip_suffix('\n').map_or(line.as_str(), |it| it.strip_suffix('\r').unwrap_or(it));
    let hash = assent_rest::password_hash(password)?;
    if json {
        print_json(&serde_json::json!({"password_hash": hash}))?;
    } else {
        say!("{hash}")?;
    }
    Ok(ExitCode::SUCCESS)
}
