//! What `assent assets` prints.

use std::io::Write as _;

use assent_assets::{Asset, News, Op, Status};
use assent_kind::Kind;
use assent_membership::Ack;
use serde_json::{Value, json};

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
    println!("{shown}");
    Ok(())
}

pub(super) const fn ack(ack: Ack) -> &'static str {
    match ack {
        Ack::None => "none",
        Ack::Received => "received",
        Ack::Written => "written",
        Ack::Durable => "durable",
    }
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

/// How a server is.
pub(super) fn status(status: &Status, as_json: bool) -> Result<(), Failure> {
    let stats = &status.stats;
    let hash = format!("{:016x}", stats.hash);
    if as_json {
        let row = |row: &[u64; 5]| {
            let [count, p50, p99, p9973, max] = row;
            json!({"count": count, "p50_us": p50, "p99_us": p99, "p9973_us": p9973, "max_us": max})
        };
        let steps: serde_json::Map<String, Value> =
            status.steps.iter().map(|(name, numbers)| (name.clone(), row(numbers))).collect();
        let mut shown = json!({
            "role": "solo", "ack": ack(status.ack), "window_ms": status.window_ms, "closed": status.closed,
            "assets": stats.assets, "memory_bytes": stats.memory_bytes, "sequence": stats.sequence.0, "hash": hash,
            "sessions": stats.sessions, "session_bytes": stats.session_bytes, "in_doubt": stats.in_doubt,
            "subscriptions": stats.subscriptions, "unsynced_bytes": stats.unsynced_bytes,
            "replay_bytes": stats.replay_bytes, "steps": steps,
        });
        if let (Some(group), Value::Object(shown)) = (&status.group, &mut shown) {
            shown.remove("unsynced_bytes");
            shown.extend(standing::json(group));
        }
        return print_json(&shown);
    }
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
        ("last command", format!("{}, state {hash}", stats.sequence)),
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
    for (name, numbers) in status.steps.iter().filter(|(_, numbers)| numbers.iter().any(|number| *number > 0)) {
        let numbers = numbers.map(|number| number.to_string());
        steps.add_row([&[name.clone()][..], &numbers].concat());
    }
    format!("{steps}\n{}", status.trace)
}

/// One line of a watch.
pub(super) fn news(news: &News, as_json: bool) -> Result<(), Failure> {
    let line = match news {
        News::Change(change) if as_json => {
            let (value, updates) = (change.asset.map(|asset| asset.value), change.asset.map(|asset| asset.updates));
            let (command, asset) = (change.sequence.0, change.id.0);
            json!({"command": command, "asset": asset, "value": value, "updates": updates}).to_string()
        }
        News::Change(change) => match change.asset {
            Some(Asset { value, updates }) => {
                format!("command {}: asset {} is {value}, update {updates}", change.sequence, change.id)
            }
            None => format!("command {}: asset {} was removed", change.sequence, change.id),
        },
        News::Missed { changes, first, last } if as_json => {
            json!({"missed": changes, "first": first.0, "last": last.0}).to_string()
        }
        News::Missed { changes, first, last } => {
            format!("{changes} changes of commands {first} to {last} were missed: ask for the assets again")
        }
    };
    say(&format!("{line}\n"))
}
