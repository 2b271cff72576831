//! How a node of a group is, for people and for programs.

use assent_assets::{GroupStatus, Status};
use assent_membership::{Ack, Member};
use serde_json::{Map, Value, json};

use super::look::Looked;
use crate::bench::table as rows;
use crate::failure::Failure;

/// What stands in the status of a node beside that of a server alone; its role is in the place of `solo`.
pub(super) fn json(group: &GroupStatus) -> Map<String, Value> {
    let standby = |one: &assent_assets::StandbyStatus| {
        let [received, written, durable] = one.held.map(|sequence| sequence.0);
        json!({
            "node": one.node.0, "connected": one.is_connected, "received": received, "written": written,
            "durable": durable, "lag": group.end.0.saturating_sub(received), "feeding": one.feeding,
        })
    };
    let counts: Map<String, Value> = group.counts.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
    let in_sync: Vec<u8> = group.in_sync.iter().map(|member| member.0).collect();
    let shown = json!({
        "role": group.role.name(), "node": group.node.0, "why": group.why, "epoch": group.epoch.0,
        "version": group.version, "primary": group.primary.map(|member| member.0), "in_sync": in_sync,
        "forced": group.forced, "end": group.end.0, "confirmed": group.confirmed.0, "applied": group.applied.0,
        "durable": group.durable.0, "snapshot": group.snapshot.0,
        "standbys": group.standbys.iter().map(standby).collect::<Vec<_>>(), "counts": counts,
    });
    if let Value::Object(shown) = shown { shown } else { Map::new() }
}

/// What an answer of this group has behind it.
fn promise(status: &Status, group: &GroupStatus) -> String {
    let alone = match group.in_sync.len() {
        1 => "; now that is one node: while it is alone, it answers when its own disk has it",
        _ => "",
    };
    let text = match status.ack {
        Ack::Durable => "durable: on the disk of each node in sync",
        Ack::Written => "written: in the kernel of each node in sync",
        Ack::Received => "received: in the memory of each node in sync",
        Ack::None => "none: in the primary's memory; a fail-over may lose it",
    };
    format!("{text}{alone}")
}

/// A table for people.
pub(super) fn table(status: &Status, group: &GroupStatus) -> Result<String, Failure> {
    let stats = &status.stats;
    let mut shown = rows(&["", ""]);
    let primary = group.primary.map_or_else(|| "nobody yet".to_owned(), |member| format!("node {member}"));
    let forced = if group.forced { ", by a person's force" } else { "" };
    let mut all = vec![
        ("node", format!("{}, {}", group.node, group.role.name())),
        ("why", group.why.clone().unwrap_or_default()),
        ("acknowledges", promise(status, group)),
        ("primary", format!("{primary}, epoch {}, version {}{forced}", group.epoch, group.version)),
        ("in sync", list(&group.in_sync)),
        ("log", format!("ends at {}, confirmed {}, executed {}", group.end, group.confirmed, group.applied)),
        ("own disk", format!("log up to {}, snapshot of {}", group.durable, group.snapshot)),
        ("assets", format!("{} in {} bytes", stats.assets, stats.memory_bytes)),
        ("last command", format!("{}, state {:016x}", stats.sequence, stats.hash)),
        ("sessions", format!("{}, {} bytes of answers", stats.sessions, stats.session_bytes)),
        ("branches in doubt", stats.in_doubt.to_string()),
        ("subscriptions", stats.subscriptions.to_string()),
        ("a restart replays", format!("{} bytes", stats.replay_bytes)),
    ];
    all.retain(|(_, text)| !text.is_empty());
    all.into_iter().for_each(|(name, text)| _ = shown.add_row([name.to_owned(), text]));
    let mut text = format!("{shown}\n");
    if !group.standbys.is_empty() {
        let mut others = rows(&["node", "connected", "received", "written", "durable", "behind", "gets"]);
        for one in &group.standbys {
            let [received, written, durable] = one.held.map(|sequence| sequence.to_string());
            let behind = group.end.0.saturating_sub(one.held.first().map_or(0, |held| held.0)).to_string();
            let is = if one.is_connected { "yes" } else { "no" };
            let row = [one.node.to_string(), is.to_owned(), received, written, durable, behind, one.feeding.clone()];
            others.add_row(row);
        }
        text.push_str(&format!("{others}\n"));
    }
    Ok(text)
}

/// A server in a line of a table: where it is, what it does, how far it is; or why it is not reached.
pub(super) fn row(looked: &Looked) -> [String; 11] {
    let Looked { server, status, rate } = looked;
    let rate = rate.map(|rate| rate.to_string()).unwrap_or_default();
    let none = String::new;
    let (server, why) = (server.clone(), |why: Option<&String>| why.cloned().unwrap_or_default());
    match status {
        Ok(Status { group: Some(group), .. }) => [
            server,
            group.node.to_string(),
            group.role.name().to_owned(),
            group.epoch.to_string(),
            list(&group.in_sync),
            group.end.to_string(),
            group.confirmed.to_string(),
            group.applied.to_string(),
            group.durable.to_string(),
            rate,
            why(group.why.as_ref()),
        ],
        Ok(status) => {
            let at = status.stats.sequence.to_string();
            let end = at.clone();
            [
                server,
                none(),
                "solo".to_owned(),
                none(),
                none(),
                end,
                none(),
                at,
                none(),
                rate,
                why(status.closed.as_ref()),
            ]
        }
        Err(failure) => {
            let role = "not reached".to_owned();
            [server, none(), role, none(), none(), none(), none(), none(), none(), rate, failure.message.clone()]
        }
    }
}

/// Numbers of nodes.
pub(super) fn list(members: &[Member]) -> String {
    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
