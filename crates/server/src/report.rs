//! A round of recovery, told: to the operator who asked, to health, to the log.

use assent_coordinator::{Resolution, Round};
use assent_door::Check;
use assent_kind::Kind;
use assent_wire::{Answer, PAYLOAD_BYTES_MAX, Resolved, RoundView};
use assent_xa::{Heuristic, Native};

/// The answer to a request for this round, laid as a frame.
pub(crate) fn frame(round: &Round, mark: u64, limit: usize) -> Vec<u8> {
    let fates: Vec<String> = round.branches.iter().map(|branch| fate(&branch.resolution)).collect();
    let troubles = troubles(round);
    let unreachable: Vec<(&str, &str)> = troubles.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
    let mut resolved: Vec<Resolved<'_>> = round
        .branches
        .iter()
        .zip(&fates)
        .map(|(branch, fate)| Resolved { xid: branch.xid, resource: &branch.resource, fate })
        .collect();
    let mut out = Vec::new();
    loop {
        let view = RoundView { resolved: resolved.clone(), unreachable: unreachable.clone() };
        match Answer::Round(view).lay(&mut out, mark, limit) {
            Ok(()) => return out,
            // As many as fit a message; the next round tells of the rest.
            Err(_) if !resolved.is_empty() => resolved.truncate(resolved.len() / 2),
            Err(error) => {
                let message = error.to_string();
                _ = Answer::Error { kind: error.kind(), message: &message }.lay(&mut out, mark, PAYLOAD_BYTES_MAX);
                return out;
            }
        }
    }
}

/// What could not be asked, or stands in the way, each with its reason.
pub(crate) fn troubles(round: &Round) -> Vec<(String, String)> {
    let said = |(kind, native): &(Kind, Native)| words(*kind, native);
    let mut all: Vec<(String, String)> = round
        .resources
        .iter()
        .filter_map(|resource| Some((resource.name.clone(), resource.trouble.as_ref().map(said)?)))
        .collect();
    all.extend(round.unregistered.iter().map(|(tx, resource)| {
        (resource.to_string(), format!("transaction {tx} has a branch there, and no such resource is registered"))
    }));
    if let Some(stopped) = &round.stopped {
        let why = format!(
            "branch {} is of this node and of a client that this coordinator never had: another copy of the data folder \
             is at work, or this one is an older copy put back (then it is started once with --restored); nothing was touched",
            stopped.xid
        );
        all.push((stopped.resource.clone(), why));
    }
    all
}

fn words(kind: Kind, native: &Native) -> String {
    match (native.code.as_str(), native.message.as_str()) {
        ("", "") => kind.to_string(),
        ("", message) => format!("{kind}: {message}"),
        (code, message) => format!("{kind}: {message} ({code})"),
    }
}

pub(crate) fn fate(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Committed => "committed".to_owned(),
        Resolution::CommittedInferred => "committed (inferred)".to_owned(),
        Resolution::RolledBack => "rolled back".to_owned(),
        Resolution::NotListed => "finished before".to_owned(),
        Resolution::Waiting => "left: nobody has decided, or its client is at work".to_owned(),
        Resolution::Held => {
            "held: a power cut, or an older copy of the folder that was put back, may have taken its decision, and no sibling is \
             known to be committed; a person decides"
                .to_owned()
        }
        Resolution::Heuristic(heuristic, native) => {
            let how = match heuristic {
                Heuristic::Committed => "committed",
                Heuristic::RolledBack => "rolled back",
                Heuristic::Mixed => "partly each",
                Heuristic::Hazard => "may be either",
            };
            format!("heuristic, {how}: {}", words(Kind::Heuristic, native))
        }
        Resolution::Retry(kind, native) => format!("tried again later: {}", words(*kind, native)),
    }
}

/// What health says of recovery after this round.
pub(crate) fn check(round: &Round) -> Check {
    let troubles = troubles(round);
    if let Some((name, why)) = troubles.first() {
        let others = if troubles.len() > 1 { format!(" and {} more", troubles.len() - 1) } else { String::new() };
        return Check::degraded(format!("{name}: {why}{others}"));
    }
    if let Some((tx, name, native)) = round.refused.first() {
        let why = words(Kind::Denied, native);
        return Check::degraded(format!("{name}: a branch of {tx} cannot be finished by this account: {why}"));
    }
    let open = round.branches.iter().filter(|branch| !branch.resolution.is_finished()).count();
    Check::ok(format!("{} resources asked, {open} branches open", round.resources.len()))
}
