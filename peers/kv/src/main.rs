//! More stores for `assent bench kv --program`: RocksDB, LevelDB, fjall and redb beside ours and the floor, in one program.
//!
//! Walk: `members` says who takes part · `cell` runs the cell that stdin names, by the harness of `assent-bench` · `self-check` asks every
//! member whether it keeps what the race believes of it.

mod fjalls;
mod level;
mod redbs;
mod rocks;

use std::process::ExitCode;

use assent_bench::BenchError;
use assent_bench::kv::store::Member;
use assent_bench::kv::{cell, contract};
use assent_kind::Kind;

const USAGE: &str = "peers-kv members|cell|self-check: a program for `assent bench kv --program`";

fn members() -> Vec<Member> {
    let mut members = assent_bench::kv::members();
    members.extend(rocks::members());
    members.extend([level::member(), fjalls::member(), redbs::member()]);
    members
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let verbs: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match verbs.as_slice() {
        ["members"] => cell::tell(&members(), std::io::stdout()),
        ["cell"] => cell::serve(&members(), std::io::stdin(), std::io::stdout()),
        ["self-check"] => members().iter().try_for_each(self_check),
        _ => Err(BenchError { kind: Kind::Invalid, message: USAGE.to_owned() }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers-kv: {}", error.message);
            error.kind.exit_code().into()
        }
    }
}

fn self_check(member: &Member) -> Result<(), BenchError> {
    let folder = tempfile::tempdir()
        .map_err(|error| BenchError { kind: Kind::Unavailable, message: format!("a temporary folder: {error}") })?;
    contract::check(member, folder.path())?;
    println!("{}: keeps what the race believes of it", member.name);
    Ok(())
}
