//! Recovery's claim: a session-level advisory lock, so that one process resolves a node's branches at this resource.
//!
//! The server holds it as long as the connection lives, and takes it back by itself when that breaks: no lease, no
//! clock. Its key is node id XOR resource id, both random enough, and one operation for who looks for it in `pg_locks`,
//! whose `classid` and `objid` are the key's upper and lower half (`objsubid` 1).
//! Trap: a lock that a session already has is counted up. So the server is asked first, which also finds a claim that a
//! pool took back by DISCARD ALL.
//! Trap: behind a proxy that pools by transaction the lock belongs to a server session that other clients get too, and the
//! server gives it to them as well: a session-level lock is its session's. So the claimant leaves a random mark with it, a
//! setting of the server session; who finds the lock with another mark is refused. And so is a list by another session than
//! the claim's.
//! Trap: a machine that vanished keeps its lock until the server misses it, by default for two hours. So recovery's
//! connections ask the server for proofs of life ([`KEEPALIVES`]).

use assent_ids::{NodeId, ResourceId};
use assent_kind::Kind;
use assent_xa::{Native, Reply};

use super::answer::Row;
use crate::kept::said;

/// The server's settings by which it gives up a vanished client within half a minute. Not used over a local socket.
pub(super) const KEEPALIVES: &str = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=4";

/// Both halves of the lock's key.
fn key(node: NodeId, resource: ResourceId) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = (node.0 ^ resource.0).to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// One message: who asks, whether he has it now, and who has it. `mark` is the claimant's own.
pub(super) fn question(node: NodeId, resource: ResourceId, mark: u64) -> String {
    let (upper, lower) = key(node, resource);
    let signed = (node.0 ^ resource.0).cast_signed();
    let setting = format!("assent.claim_{upper:08x}{lower:08x}");
    let held = format!(
        "FROM pg_catalog.pg_locks AS held \
         LEFT JOIN pg_catalog.pg_stat_activity AS who ON who.pid OPERATOR(pg_catalog.=) held.pid \
         JOIN pg_catalog.pg_database AS here ON here.oid OPERATOR(pg_catalog.=) held.database \
         WHERE held.locktype OPERATOR(pg_catalog.=) 'advisory' AND held.granted \
         AND held.classid OPERATOR(pg_catalog.=) {upper}::pg_catalog.oid \
         AND held.objid OPERATOR(pg_catalog.=) {lower}::pg_catalog.oid \
         AND held.objsubid OPERATOR(pg_catalog.=) 1 \
         AND here.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()"
    );
    format!(
        "SELECT pg_catalog.pg_backend_pid(); \
         SELECT CASE WHEN EXISTS (SELECT {held} AND held.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
         THEN COALESCE(pg_catalog.current_setting('{setting}', true), '') OPERATOR(pg_catalog.=) '{mark:016x}' \
         WHEN pg_catalog.pg_try_advisory_lock('{signed}'::pg_catalog.int8) \
         THEN pg_catalog.set_config('{setting}', '{mark:016x}', false) OPERATOR(pg_catalog.=) '{mark:016x}' ELSE false END; \
         SELECT held.pid, who.application_name, who.client_addr, who.backend_start {held}"
    )
}

/// What the answer says. Done comes with the process that serves us.
pub(super) fn read(rows: &[Row]) -> Result<String, Reply> {
    let at = |number| rows.get(number);
    let first = |number| at(number).and_then(|row: &Row| row.word(0));
    match (first(0), first(1)) {
        (Some(process), Some("t")) => Ok(process.to_owned()),
        (Some(process), Some("f")) if first(2) == Some(process) => Err(Reply::Refused(Kind::Conflict, shared(process))),
        (Some(_), Some("f")) => Err(Reply::Refused(Kind::Conflict, taken(at(2)))),
        _ => Err(Reply::Refused(Kind::Internal, said("the claim was not answered".to_owned()))),
    }
}

fn taken(holder: Option<&Row>) -> Native {
    let word = |at| holder.and_then(|row| row.word(at));
    let who = match word(0) {
        None => "a connection that has just ended".to_owned(),
        Some(process) => {
            let name = word(1).map(|name| format!("{name:?}"));
            let address = word(2).map(|address| format!("from {address}"));
            let since = word(3).map(|since| format!("since {since}"));
            // Another role's are not shown to everybody.
            let known: Vec<String> = [name, address, since].into_iter().flatten().collect();
            format!("server process {process} ({})", known.join(", "))
        }
    };
    said(format!("another connection resolves this node's branches here: {who}"))
}

/// The server session that answers has the claim, and another connection has taken it.
fn shared(process: &str) -> Native {
    said(format!(
        "another connection resolves this node's branches here, over the same server process {process}: a proxy pools both \
         by transaction; name the server itself, or let the proxy pool by session"
    ))
}

/// The claim's session and the one that answers are two.
pub(super) fn pooled(claimed: &str, answers: &str) -> Reply {
    Reply::Refused(
        Kind::Invalid,
        said(format!(
            "server process {claimed} holds the claim and process {answers} answers: a proxy pools this connection by \
             transaction; name the server itself, or let the proxy pool by session"
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_node_xor_resource_in_two_halves() {
        assert_eq!(key(NodeId(0xff00_0000_0000_0001), ResourceId(0x0f00_0000_8000_0000)), (0xf000_0000, 0x8000_0001));
        let asked = question(NodeId(u64::MAX), ResourceId(0), 7);
        for words in [
            "classid OPERATOR(pg_catalog.=) 4294967295::",
            "objid OPERATOR(pg_catalog.=) 4294967295::",
            "'-1'",
            "'assent.claim_ffffffffffffffff', '0000000000000007', false",
        ] {
            assert!(asked.contains(words), "{asked}");
        }
    }
}
