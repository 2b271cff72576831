//! What stopped servers left, lone ones and nodes of a group: whole or not, the same or not. Nothing is changed.
//!
//! Walk: [`verify`] one folder · [`compare`] two of a kind · `lone` and `node` read what each kind keeps. Exit code 13 names what is wrong.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use assent_assets::{Kept, Limits, Logics, Machine};
use assent_journal::{Archive, Journal};
use assent_kind::Kind;
use assent_membership::{Member, Place};
use assent_replica::Left;
use assent_world::{Disk, Lock, RealClock, RealDisk};
use serde_json::json;

use super::group::FOLDER;
use super::standing::list;
use super::{LOG, SNAPSHOTS};
use crate::alone::alone;
use crate::bench::print_json;
use crate::failure::Failure;

/// What keeps it stopped as long as it is read.
type Stopped = Option<Box<dyn Lock>>;

fn open(data: &Path) -> Result<(Archive, Stopped), Failure> {
    let folder = data.join(LOG);
    let there = RealDisk.list(&folder).map_err(|error| Failure::io("look into", folder.display(), &error))?;
    if !there.iter().any(|name| name == "epochs") {
        let message =
            format!("{} holds no log of assets: name the folder that `assent assets serve --data` had", data.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    let lock = alone(&folder)?;
    Ok((Journal::open_read_only(Arc::new(RealDisk), &RealClock, &folder)?.0, lock))
}

fn with<T>(data: &Path, look: impl FnOnce(&Kept<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    let ((log, _lock), folder) = (open(data)?, data.join(SNAPSHOTS));
    let (limits, logics) = (Limits::default(), Logics::default());
    look(&Kept { log: &log, disk: Arc::new(RealDisk), folder: &folder, limits, logics })
}

/// Whether a node of a group lived there.
fn is_node(data: &Path) -> Result<bool, Failure> {
    let there = RealDisk.list(data).map_err(|error| Failure::io("look into", data.display(), &error))?;
    Ok(there.iter().any(|name| name == FOLDER))
}

/// Verifies one.
pub(super) fn verify(data: &Path, as_json: bool) -> Result<(), Failure> {
    if is_node(data)? { node(data, as_json) } else { lone(data, as_json) }
}

/// Compares two.
pub(super) fn compare(one: &Path, other: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let is_same = match (is_node(one)?, is_node(other)?) {
        (true, true) => compare_nodes(one, other, as_json),
        (false, false) => compare_lone(one, other, as_json),
        (is_node, _) => {
            let (node, lone) = if is_node { (one, other) } else { (other, one) };
            let (node, lone) = (node.display(), lone.display());
            let message = format!(
                "{node} is of a node of a group, and {lone} of a server alone: their logs have nothing in common"
            );
            Err(Failure::invalid(message))
        }
    }?;
    Ok(if is_same { ExitCode::SUCCESS } else { Kind::Corrupt.exit_code().into() })
}

fn left(data: &Path) -> Result<(Left, Stopped), Failure> {
    let folder = data.join(FOLDER);
    let lock = alone(&folder)?;
    Ok((Left::open(Arc::new(RealDisk), &RealClock, &folder)?, lock))
}

fn machine() -> Machine {
    Machine::new(Limits::default(), Logics::default())
}

fn node(data: &Path, as_json: bool) -> Result<(), Failure> {
    let (found, state) = left(data)?.0.verify(machine())?;
    let known = &found.known;
    let (hash, in_doubt) = (format!("{:016x}", found.hash), state.in_doubt().len());
    let in_sync: Vec<Member> = known.in_sync.iter().map(|(member, _)| member).collect();
    if as_json {
        return print_json(&json!({
            "sequence": found.end.sequence.0, "hash": hash, "assets": state.assets(), "in_doubt": in_doubt,
            "snapshot": found.snapshot.0, "reached": found.reached, "first": found.first.map(|first| first.0),
            "last_epoch": found.end.epoch.0, "epoch": known.epoch.0, "version": known.version,
            "primary": known.primary.map(|member| member.0), "forced": known.forced, "out": found.out,
            "in_sync": in_sync.iter().map(|member| member.0).collect::<Vec<_>>(),
        }));
    }
    let Place { epoch, sequence } = found.end;
    say!("{} assets at entry {sequence} of epoch {epoch}, state {hash}, {in_doubt} branches in doubt", state.assets())?;
    let snapshot = match (found.snapshot.0, found.reached) {
        (0, _) => "there is no snapshot".to_owned(),
        (at, true) => format!("the snapshot of entry {at} is whole, and what the log leads to"),
        (at, false) => {
            format!("the snapshot of entry {at} is whole; the log does not reach back to hold it against that")
        }
    };
    let first =
        found.first.map_or_else(|| "no entry behind it".to_owned(), |first| format!("entries {first} to {sequence}"));
    say!("{snapshot}; the log has {first}, each in its chain")?;
    let primary = known.primary.map_or_else(|| "nobody".to_owned(), |primary| format!("node {primary}"));
    let said = if found.out { "; it was told to stay out" } else { "" };
    let (epoch, version, in_sync) = (known.epoch, known.version, list(&in_sync));
    say!("it knew version {version}: {primary} leads epoch {epoch}, in sync: {in_sync}{said}")
}

/// Whether two nodes have the same, as far as the shorter one goes.
fn compare_nodes(one: &Path, other: &Path, as_json: bool) -> Result<bool, Failure> {
    let compared = assent_replica::compare(&left(one)?.0, &left(other)?.0, machine)?;
    let is_same = compared.are_same();
    let [a, b] = compared.ends;
    if as_json {
        let hashes = compared.hashes.map(|hashes| hashes.map(|hash| format!("{hash:016x}")));
        let ends = [a, b].map(|end| json!({"epoch": end.epoch.0, "sequence": end.sequence.0}));
        print_json(&json!({
            "same": is_same, "same_to": compared.same_to.map(|at| at.0), "differs": compared.differs.map(|at| at.0),
            "ends": ends, "hashes": hashes,
        }))?;
        return Ok(is_same);
    }
    say!("they end at entry {} of epoch {} and entry {} of epoch {}", a.sequence, a.epoch, b.sequence, b.epoch)?;
    let both = a.sequence.min(b.sequence);
    match (compared.differs, compared.same_to) {
        (Some(at), _) => say!("entry {at} is the first that is not the same"),
        (None, None) => say!("one ends before the other begins: nothing says that they belong together"),
        (None, Some(to)) => say!("up to entry {to} both have one history"),
    }?;
    match compared.hashes {
        Some([one, other]) if one == other => say!("both lead to the same state there: {one:016x}"),
        Some([one, other]) => say!("behind entry {both} the states differ: {one:016x} and {other:016x}"),
        None => say!("one of them has no way back to entry {both}: states were not compared"),
    }?;
    Ok(is_same)
}

fn lone(data: &Path, as_json: bool) -> Result<(), Failure> {
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
    say!("{} assets at command {}, state {hash}, {} branches in doubt", found.assets, found.sequence, found.in_doubt)?;
    say!(
        "{} snapshots are whole, {} of them are what the log leads to; an open replays {} commands",
        found.snapshots.len(),
        found.reached,
        found.recovery.replayed
    )
}

/// Whether two lone servers have the same, as far as the shorter one goes.
fn compare_lone(one: &Path, other: &Path, as_json: bool) -> Result<bool, Failure> {
    let compared = with(one, |first| with(other, |second| Ok(assent_assets::compare([first, second])?)))?;
    let [a, b] = compared.ends;
    if as_json {
        let hashes = compared.hashes.map(|hash| format!("{hash:016x}"));
        print_json(&json!({
            "same": compared.are_same(), "commands": compared.commands,
            "differs": compared.differs.map(|at| at.0), "ends": [a.0, b.0], "hashes": hashes,
        }))?;
    } else {
        say!("they end at commands {a} and {b}, and have {} in common", compared.commands)?;
        match compared.differs {
            Some(at) => say!("command {at} is the first that is not the same"),
            None if compared.are_same() => say!("behind command {} both are the same state", a.min(b)),
            None => say!("behind command {} the states differ", a.min(b)),
        }?;
    }
    Ok(compared.are_same())
}
