//! What `assent assets` prints.

use std::io::Write as _;

use assent_assets::{Asset, News, Op, Role, Status};
use assent_kind::Kind;
use assent_membership::Ack;
use serde_json::{Value, json};

use super::look::Looked;
use super::standing;
use crate::bench::{print_json, table};
use crate::failure::Failure;

/// Says it on stdout; a reader who has gone ends a command that goes on and on.
pub(super) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| Failure::new(Kind::Unavailable, format!("nobody reads what is printed: {error}")))
}

/// Each operation's asset behind it.
pub(super) fn assets(ops: &[Op], found: &[Asset], as_json: bool) -> Result<(), Failure> {
    let rows = ops.iter().map(Op::id).zip(found);
    if as_json {
        let rows: Vec<Value> =
            rows.map(|(id, asset)| json!({"id": id.0, "value": asset.value, "updates": asset.updates})).collect();
        return print_json(&json!({"assets": rows}));
    }
    let mut shown = table(&["asset", "value", "updates"]);
    for (id, asset) in rows {
        shown.add_row([id.to_string(), asset.value.to_string(), asset.updates.to_string()]);
    }
    say!("{shown}")
}

fn promise(status: &Status) -> String {
    match status.ack {
        Ack::Durable => "durable: what was answered is on the disk".to_owned(),
        Ack::None => "none: what was answered is in this process's memory".to_owned(),
        Ack::Written | Ack::Received => format!(
            "written: a killed process loses nothing that was answered, a lost machine at most the last {} ms",
            status.window_ms
        ),
    }
}

/// How a server is, for programs.
fn value(status: &Status) -> Value {
    let stats = &status.stats;
    let hash = format!("{:016x}", stats.hash);
    let row = |row: &[u64; 5]| {
        let [count, p50, p99, p9973, max] = row;
        json!({"count": count, "p50_us": p50, "p99_us": p99, "p9973_us": p9973, "max_us": max})
    };
    let steps: serde_json::Map<String, Value> =
        status.steps.iter().map(|step| (step.name.clone(), row(&step.numbers))).collect();
    let mut shown = json!({
        "role": "solo", "ack": status.ack.name(), "window_ms": status.window_ms, "closed": status.closed,
        "assets": stats.assets, "memory_bytes": stats.memory_bytes, "sequence": stats.sequence.0, "hash": hash,
        "sessions": stats.sessions, "session_bytes": stats.session_bytes, "in_doubt": stats.in_doubt,
        "subscriptions": stats.subscriptions, "unsynced_bytes": stats.unsynced_bytes,
        "replay_bytes": stats.replay_bytes, "steps": steps,
    });
    if let (Some(group), Value::Object(shown)) = (&status.group, &mut shown) {
        shown.remove("unsynced_bytes");
        shown.extend(standing::json(group));
    }
    shown
}

/// Several servers, each in a line; below them where the time of the one goes that leads.
pub(super) fn nodes(looked: &[Looked], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let one = |one: &Looked| {
            let mut shown = match &one.status {
                Ok(status) => value(status),
                Err(failure) => json!({"error": {"kind": failure.kind.name(), "message": failure.message}}),
            };
            if let Value::Object(shown) = &mut shown {
                shown.insert("server".to_owned(), json!(one.server));
            }
            shown
        };
        return print_json(&json!({"nodes": looked.iter().map(one).collect::<Vec<_>>()}));
    }
    let names =
        ["server", "node", "role", "epoch", "in sync", "end", "confirmed", "executed", "on disk", "commands/s", "why"];
    let mut shown = table(&names);
    looked.iter().for_each(|one| _ = shown.add_row(standing::row(one)));
    let is_led = |status: &&Status| status.group.as_ref().is_some_and(|group| group.role == Role::Primary);
    let leader = looked.iter().filter_map(|one| one.status.as_ref().ok()).find(is_led);
    say(&format!("{shown}\n{}", leader.map(steps).unwrap_or_default()))
}

/// How a server is.
pub(super) fn status(status: &Status, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&value(status));
    }
    let stats = &status.stats;
    if let Some(group) = &status.group {
        return standing::table(status, group).and_then(|text| say(&format!("{text}{}", steps(status))));
    }
    let state = status.closed.as_ref().map_or_else(|| "takes commands".to_owned(), |why| format!("closed: {why}"));
    let mut shown = table(&["", ""]);
    let rows = [
        ("state", state),
        ("role", "solo".to_owned()),
        ("acknowledges", promise(status)),
        ("assets", format!("{} in {} bytes", stats.assets, stats.memory_bytes)),
        ("last command", format!("{}, state {:016x}", stats.sequence, stats.hash)),
        ("sessions", format!("{}, {} bytes of answers", stats.sessions, stats.session_bytes)),
        ("branches in doubt", stats.in_doubt.to_string()),
        ("subscriptions", stats.subscriptions.to_string()),
        ("not synced", format!("{} bytes", stats.unsynced_bytes)),
        ("a restart replays", format!("{} bytes", stats.replay_bytes)),
    ];
    rows.into_iter().for_each(|(name, text)| _ = shown.add_row([name.to_owned(), text]));
    say(&format!("{shown}\n{}", steps(status)))
}

/// Where the time of sampled commands goes.
fn steps(status: &Status) -> String {
    let mut steps = table(&["step", "sampled", "p50 us", "p99 us", "p99.73 us", "max us"]);
    for step in status.steps.iter().filter(|step| step.numbers.iter().any(|number| *number > 0)) {
        let numbers = step.numbers.map(|number| number.to_string());
        steps.add_row([&[step.name.clone()][..], &numbers].concat());
    }
    format!("{steps}\n{}", status.trace)
}

/// One line of a watch.
pub(super) fn news(news: &News, as_json: bool) -> Result<(), Failure> {
    let line = match news {
        News::Change(change) if as_json => {
            let (value, updates) = (change.asset.map(|asset| asset.value), change.asset.map(|asset| asset.updates));
            let (entry, asset) = (change.sequence.0, change.id.0);
            json!({"entry": entry, "asset": asset, "value": value, "updates": updates}).to_string()
        }
        News::Change(change) => match change.asset {
            Some(Asset { value, updates }) => {
                format!("entry {}: asset {} is {value}, update {updates}", change.sequence, change.id)
            }
            None => format!("entry {}: asset {} was removed", change.sequence, change.id),
        },
        News::Missed { changes, first, last } if as_json => {
            json!({"missed": changes, "first": first.0, "last": last.0}).to_string()
        }
        News::Missed { changes, first, last } => {
            format!("{changes} changes of entries {first} to {last} were missed: ask for the assets again")
        }
    };
    say(&format!("{line}\n"))
}

#[cfg(test)]
pub(super) mod tests {
    use assent_assets::{GroupStatus, Role, StandbyStatus, Stats, StepTimes};
    use assent_ids::Epoch;
    use assent_membership::{Member, Sequence};

    use super::*;

    /// A lone server whose three sampled commands took 4, 4 and 1,026 microseconds to be confirmed.
    pub(in crate::assets) fn solo() -> Status {
        let mut spread = vec![0; StepTimes::bounds_us().count() + 1];
        (spread[2], spread[11]) = (2, 1);
        let steps = vec![StepTimes {
            name: "confirmed".to_owned(),
            numbers: [3, 4, 1_026, 1_026, 1_026],
            sum_us: 1_034,
            spread,
        }];
        let stats = Stats {
            assets: 3,
            sessions: 1,
            session_bytes: 64,
            in_doubt: 2,
            sequence: Sequence(9),
            hash: 6,
            unsynced_bytes: 0,
            replay_bytes: 8,
            memory_bytes: 100,
            subscriptions: 0,
        };
        Status {
            ack: Ack::Durable,
            window_ms: 0,
            closed: None,
            stats,
            steps,
            trace: "a table\n".to_owned(),
            group: None,
        }
    }

    /// Node 2 of two, one command ahead of node 1.
    pub(in crate::assets) fn led(role: Role) -> Status {
        let held = [Sequence(9); 3];
        let standby = StandbyStatus { node: Member(1), is_connected: true, held, feeding: "stream".to_owned() };
        let group = GroupStatus {
            node: Member(2),
            role,
            why: None,
            epoch: Epoch(4),
            version: 11,
            primary: Some(Member(2)),
            in_sync: vec![Member(1), Member(2)],
            forced: false,
            end: Sequence(10),
            confirmed: Sequence(9),
            applied: Sequence(9),
            durable: Sequence(8),
            snapshot: Sequence(3),
            standbys: vec![standby],
            counts: vec![("leads".to_owned(), 1)],
        };
        Status { group: Some(group), ..solo() }
    }
}
