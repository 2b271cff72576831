//! What stopped servers left: whole or not, the same or not. Nothing is changed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use assent_assets::{Kept, Limits, Logics};
use assent_journal::{Archive, Journal};
use assent_kind::Kind;
use assent_world::{Disk, RealClock, RealDisk};
use serde_json::json;

use super::{LOG, SNAPSHOTS};
use crate::bench::print_json;
use crate::failure::Failure;

fn open(data: &Path) -> Result<Archive, Failure> {
    let folder = data.join(LOG);
    let there = RealDisk.list(&folder).map_err(|error| Failure::io("look into", folder.display(), &error))?;
    if !there.iter().any(|name| name == "epochs") {
        let message =
            format!("{} holds no log of assets: name the folder that `assent assets serve --data` had", data.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    Ok(Journal::open_read_only(Arc::new(RealDisk), &RealClock, &folder)?.0)
}

fn with<T>(data: &Path, look: impl FnOnce(&Kept<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    let (log, folder) = (open(data)?, data.join(SNAPSHOTS));
    let (limits, logics) = (Limits::default(), Logics::default());
    look(&Kept { log: &log, disk: Arc::new(RealDisk), folder: &folder, limits, logics })
}

/// Verifies one.
pub(super) fn verify(data: &Path, as_json: bool) -> Result<(), Failure> {
    let found = with(data, |kept| Ok(assent_assets::verify(kept)?))?;
    let rotten = found.snapshots.iter().find_map(|one| one.found.as_ref().err().map(|what| (&one.path, what)));
    if let Some((file, what)) = rotten {
        let message = format!("{}: {what}; the state is whole without it: command {}", file.display(), found.sequence);
        return Err(Failure::new(Kind::Corrupt, message));
    }
    let hash = format!("{:016x}", found.hash);
    if as_json {
        return print_json(&json!({
            "sequence": found.sequence.0, "hash": hash, "assets": found.assets, "in_doubt": found.in_doubt,
            "snapshots": found.snapshots.len(), "replayed": found.recovery.replayed, "reached": found.reached,
        }));
    }
    println!(
        "{} assets at command {}, state {hash}, {} branches in doubt",
        found.assets, found.sequence, found.in_doubt
    );
    println!(
        "{} snapshots are whole, {} of them are what the log leads to; an open replays {} commands",
        found.snapshots.len(),
        found.reached,
        found.recovery.replayed
    );
    Ok(())
}

/// Compares two.
pub(super) fn compare(one: &Path, other: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let compared = with(one, |first| with(other, |second| Ok(assent_assets::compare([first, second])?)))?;
    let [a, b] = compared.ends;
    if as_json {
        let hashes = compared.hashes.map(|hash| format!("{hash:016x}"));
        print_json(&json!({
            "same": compared.are_same(), "commands": compared.commands,
            "differs": compared.differs.map(|at| at.0), "ends": [a.0, b.0], "hashes": hashes,
        }))?;
    } else {
        println!("they end at commands {a} and {b}, and have {} in common", compared.commands);
        match compared.differs {
            Some(at) => println!("command {at} is the first that is not the same"),
            None if compared.are_same() => println!("behind command {} both are the same state", a.min(b)),
            None => println!("behind command {} the states differ", a.min(b)),
        }
    }
    Ok(if compared.are_same() { ExitCode::SUCCESS } else { Kind::Corrupt.exit_code().into() })
}
