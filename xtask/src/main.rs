//! The tools of the house: `cargo xtask check`, `fix` and `tidy`.
//!
//! Walk: [`main`] picks the steps · cargo formats and lints · [`tidy`] reads the [`tree`] and asks each rule. A rule is
//! one file and a pure function from files to [`finding`]s; `tidy.toml`, read by [`allow`], holds the exceptions.
//! Deliberately absent: building, testing and running (that is the `Makefile`), network, changes of files by ourselves.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool talks to whoever called it")]

mod allow;
mod barriers;
mod finding;
mod floors;
mod heads;
mod lints;
mod names;
mod paths;
mod shown;
mod sizes;
mod source;
mod tidy;
mod tree;

use std::env;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

const USAGE: &str = "\
usage: cargo xtask check   formatting, clippy without a warning, tidy; changes nothing
       cargo xtask fix     let clippy repair and rustfmt format, then tidy
       cargo xtask tidy    the rules of the house alone";

const EXIT_INVALID: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let clean = match words.as_slice() {
        ["check"] => check(),
        ["fix"] => fix(),
        ["tidy"] => tidy::run(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(EXIT_INVALID);
        }
    };
    match clean {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// All steps, even after one has failed: one run shows everything there is to repair.
fn check() -> Result<bool> {
    let formatted = cargo(&["fmt", "--all", "--check"])?;
    let linted = cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    let tidied = tidy::run()?;
    for (clean, step) in
        [(formatted, "rustfmt: `cargo xtask fix` formats"), (linted, "clippy: see above"), (tidied, "tidy: see above")]
    {
        if !clean {
            eprintln!("xtask: not clean for {step}");
        }
    }
    Ok(formatted && linted && tidied)
}

/// Formats last, because what clippy repairs is not formatted.
fn fix() -> Result<bool> {
    let linted = cargo(&["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"])?;
    let formatted = cargo(&["fmt", "--all"])?;
    Ok(tidy::run()? && linted && formatted)
}

fn cargo(words: &[&str]) -> Result<bool> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(words)
        .status()
        .with_context(|| format!("cargo {} could not be started", words.join(" ")))?;
    Ok(status.success())
}
