//! `assent docs`: versioned JSON documents of a folder, from the command line.
//!
//! Walk: [`run`] the verbs · `house` the folder, opened for one command and left in order · `change` what writes · `load` much of it ·
//! `look` what reads, `diff` what differs, `watch` what came after · `tag` names of revisions · `check` verifying.
//! Deliberately absent: a running server. One process has the folder at a time.

mod change;
mod check;
mod diff;
mod file;
mod house;
mod load;
mod look;
pub(crate) mod options;
mod tag;
mod watch;

use std::io::{self, Write as _};
use std::process::ExitCode;

use assent_docs::Revision;
use serde_json::json;

use self::options::Docs;
use crate::bench::print_json;
use crate::failure::Failure;
use crate::say;
use crate::tx::moment;

/// Runs the command.
pub(crate) fn run(command: Docs, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Docs::Create(options) => change::create(&options, json),
        Docs::Put(options) => change::put(&options, json),
        Docs::Get(options) => look::get(&options, json),
        Docs::Query(options) => look::query(&options, json),
        Docs::History(options) => look::history(&options, json),
        Docs::Diff(options) => diff::run(&options, json),
        Docs::Revert(options) => change::revert(&options, json),
        Docs::Patch(options) => change::patch(&options, json),
        Docs::Tag(options) => tag::run(&options, json),
        Docs::Watch(options) => watch::run(&options, json),
        Docs::Truncate(options) => change::truncate(&options, json),
        Docs::Load(options) => load::run(&options, json),
        Docs::List { data } => look::list(&data, json),
        Docs::Drop { name, data } => change::drop_document(&name, &data, json),
        Docs::Verify(options) => return check::verify(&options, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Says which revision there is now.
fn said(name: &str, revision: &Revision, json: bool) -> Result<(), Failure> {
    let (number, time_ms) = (revision.number(), revision.time_ms());
    let said = if json {
        print_json(&json!({"document": name, "revision": number, "time_ms": time_ms}))
    } else {
        say!("{name}: revision {number} of {}", moment::show(time_ms))
    };
    done(name, format_args!("is at revision {number}"), said)
}

/// What is on disk is told also where the rest cannot be said: who takes it for failed does it again.
fn done(name: &str, how: std::fmt::Arguments<'_>, said: Result<(), Failure>) -> Result<(), Failure> {
    say::done(format_args!("it was done, {name:?} {how}"), said)
}

/// Writes to stdout what people and programs read there; who has stopped reading has read enough.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::stdout(&error))
}
