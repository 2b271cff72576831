//! The one binary, `assent`: it wires engines, logs and doors together.
//!
//! Walk: clap reads the [`args`] · one file a command · a [`failure::Failure`] becomes one sentence and an exit code.
//! Deliberately absent: any logic that another room could hold.
#![forbid(unsafe_code)]

#[macro_use]
mod say;

mod alone;
mod args;
mod assets;
mod bench;
mod config;
mod demo;
mod descriptors;
mod docs;
mod doctor;
mod documents;
mod entrance;
mod failover;
mod failure;
mod journal;
mod kv;
mod logging;
mod matrix;
mod mistake;
mod password;
mod read_back;
mod resource;
mod serve;
mod shown;
mod tx;
mod witness;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Asked for before anything was understood: a program that reads JSON gets JSON.
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            let text = error.render().to_string();
            let sentence: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let failure = Failure::invalid(sentence.join(" "));
            failure.print(true);
            return failure.kind.exit_code().into();
        }
        Err(error) => {
            _ = error.print();
            // Help and version go to stdout and are no failure; everything else breaks a rule of the command line.
            return if error.use_stderr() { assent_kind::Kind::Invalid.exit_code().into() } else { ExitCode::SUCCESS };
        }
    };
    let json = cli.json;
    match run(cli) {
        Ok(code) => code,
        Err(failure) if failure.hung_up => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(json);
            failure.kind.exit_code().into()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    assent_world::stop::arm_from_environment().map_err(|error| Failure::invalid(format!("ASSENT_STOP: {error}")))?;
    match cli.command {
        Command::Demo(arguments) => demo::run(&arguments, cli.json),
        Command::DemoClient(arguments) => demo::client(&arguments),
        Command::Matrix(arguments) => matrix::run(&arguments, cli.json),
        Command::MatrixClient(arguments) => matrix::client(&arguments),
        Command::Failover(arguments) => failover::run(&arguments, cli.json),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Witness(arguments) => witness::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments, cli.json),
        Command::Tx(command) => tx::run(command, cli.json),
        Command::Kv(command) => kv::run(*command, cli.json),
        Command::Docs(command) => docs::run(*command, cli.json),
        Command::Password => password::run(cli.json),
        Command::Assets(command) => assets::run(*command, cli.json),
        Command::Journal(command) => journal::run(command, cli.json),
        Command::Bench(command) => bench::run(command, cli.json),
    }
}
