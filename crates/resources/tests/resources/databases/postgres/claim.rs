//! One process resolves a node's branches at a resource.

use assent_ids::ResourceId;
use assent_kind::Kind;
use assent_resources::{Limits, Postgres, PostgresConnector};
use assent_xa::{Connector, Reply, Resource, Verb};

use super::super::engine::{PostgresTable, node, wait};
use super::super::fake::{self, Behaviour};
use super::super::servers::{alone, shared};
use super::{process, run};

fn conflict(reply: Reply) -> String {
    match reply {
        Reply::Refused(Kind::Conflict, native) => native.message,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn one_connection_has_the_claim_and_the_other_is_told_which() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "claim");
    let claim = Verb::Claim(node("claim"));
    let (mut first, mut second) = (table.resource(), table.resource());
    assert_eq!(first.call(claim.clone()), Reply::Done);
    let said = conflict(second.call(claim.clone()));
    assert!(
        said.contains(&format!("server process {} (\"assent\", from 127.0.0.1, since ", process(&mut first))),
        "{said}"
    );

    // Another node, or another name, is another claim.
    assert_eq!(second.call(Verb::Claim(node("claim_other"))), Reply::Done);
    let mut named = Postgres::connect("shop", &table.url, Limits::WORK).unwrap();
    assert_eq!(named.call(claim.clone()), Reply::Done);

    // Claimed again it is not counted up: as the manual says, each count would need its own unlock.
    for _ in 0..3 {
        assert_eq!(first.call(claim.clone()), Reply::Done);
    }
    let key = (node("claim").0 ^ ResourceId::of("bank").0).cast_signed();
    let seen = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted \
         AND (classid::bigint << 32 | objid::bigint) = {key}"
    );
    let held: i64 = first.work(|client| client.query_one(&seen, &[])).unwrap().get(0);
    assert_eq!(held, 1, "as docs/operations.md says it is seen");
    run(&mut first, &format!("SELECT pg_advisory_unlock({key})")).unwrap();
    assert_eq!(second.call(claim), Reply::Done);
}

#[test]
fn a_claim_goes_with_its_connection_and_is_found_lost_after_discard_all() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "claim_gone");
    let claim = Verb::Claim(node("claim_gone"));
    let connector = PostgresConnector::new("bank", &table.url).unwrap();
    let mut first = connector.connect().unwrap();
    let mut second = table.resource();
    assert_eq!(first.call(claim.clone()), Reply::Done);
    let said = conflict(second.call(claim.clone()));
    assert!(said.contains("assent recovery"), "{said}");
    drop(first);
    wait("the server to notice", || (second.call(claim.clone()) == Reply::Done).then_some(()));
    // A pool's way to clean a session takes the claim with it.
    run(&mut second, "DISCARD ALL").unwrap();
    let mut third = table.resource();
    assert_eq!(third.call(claim.clone()), Reply::Done);
    conflict(second.call(claim));
}

#[test]
fn a_killed_server_keeps_no_claim() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "claim_killed");
    let claim = Verb::Claim(node("claim_killed"));
    let mut before = table.resource();
    assert_eq!(before.call(claim.clone()), Reply::Done);
    servers.kill("postgres");
    assert!(matches!(before.call(claim.clone()), Reply::Refused(Kind::Unavailable, _) | Reply::Lost(_)));
    servers.revive("postgres");
    assert_eq!(table.resource().call(claim), Reply::Done);
}

/// The lock belongs to a server session that other clients of the proxy get as well.
#[test]
fn behind_a_proxy_that_pools_by_transaction_a_list_of_another_session_is_refused() {
    let url = fake::postgres(&[
        ("SELECT pg_catalog.pg_backend_pid()", Behaviour::Rows(&["7", "t"])),
        ("SELECT pg_catalog.pg_is_in_recovery()", Behaviour::Rows(&["f", "8"])),
    ]);
    let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
    assert_eq!(
        branch.call(Verb::Recover(node("pooled"))),
        Reply::Listed(vec![]),
        "without a claim nothing depends on it"
    );
    assert_eq!(branch.call(Verb::Claim(node("pooled"))), Reply::Done);
    let reply = branch.call(Verb::Recover(node("pooled")));
    let Reply::Refused(Kind::Invalid, native) = reply else { panic!("{reply:?}") };
    assert!(native.message.contains("pools this connection by transaction"), "{}", native.message);
}
