//! What the connections of one process know of a server's log by one another.

use std::time::Duration;

use ::mysql::prelude::Queryable;
use assent_ids::Xid;
use assent_resources::{Limits, Mariadb};
use assent_world::{Clock, Moment, RealClock};
use assent_xa::{Reply, Resource, Verb};

use super::super::engine::{MariadbTable, wait, xid};
use super::super::owners::{on_disk, place};
use super::super::servers::shared;
use super::{Tap, YES};

const HALF: Duration = Duration::from_secs(1);

fn insert(branch: &mut Mariadb, table: &MariadbTable, xid: Xid, row: u32) {
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    branch.work(|it| it.query_drop(format!("INSERT INTO {} VALUES ({row})", table.table))).unwrap();
}

fn vote(branch: &mut Mariadb, xid: Xid) {
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
}

fn is_over(opened: Moment, pause: Duration) {
    wait("the places of then to be old", || (RealClock.now().since(opened) > pause).then_some(()));
}

/// Fifty connections, of which one asks twice a second: the others had kept the place of their connect with each vote, and a backup of
/// an hour ago that was put back would have passed for the server that voted.
#[test]
fn a_vote_takes_over_the_place_that_another_connection_was_told() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "taken_over");
    let tap = Tap::new(&table.url);
    let options = ::mysql::Opts::from_url(&table.url).unwrap();
    let (host, port) = (options.get_ip_or_hostname().to_string(), options.get_tcp_port());
    // Addresses of their own, so that no other test's connections know of them. What is compressed the driver says, when the
    // answer is awaited; the rest goes ahead.
    let compressed = table.url.replace(&format!("{host}:{port}"), &format!("LocalHost:{port}")) + "?compress=true";
    for (number, url) in [(0, &tap.url), (2, &compressed)] {
        let connect = || Mariadb::connect("shop", url, Limits::WORK).unwrap();
        let (mut asks, mut takes) = (connect().log_place_age_max(Duration::ZERO), connect());
        let opened = RealClock.now();
        let [first, second] = [number, number + 1].map(|it| xid("taken_over", it));
        insert(&mut asks, &table, first, u32::from(number));
        insert(&mut takes, &table, second, u32::from(number) + 1);
        table.plain().query_drop(format!("INSERT INTO {} VALUES ({})", table.table, 100 + number)).unwrap();
        let backup = on_disk(&table);
        assert!(place(&mut takes) < backup);
        is_over(opened, HALF);
        let mut takes = takes.log_place_age_max(RealClock.now().since(opened) * 2);
        vote(&mut asks, first);
        vote(&mut takes, second);
        let (told, taken) = (place(&mut asks), place(&mut takes));
        assert!(taken > backup, "{taken} is not behind {backup}");
        // Its own vote is in the log by now.
        assert_eq!(taken, told, "it was not asked");
        for (branch, xid) in [(&mut asks, first), (&mut takes, second)] {
            assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
        }
    }
}

/// The server had said its place, and the answer came seconds later, as when a network sends it once more: all other votes
/// took over what was older than they were told.
#[test]
fn a_place_is_as_old_as_its_question_and_not_as_its_answer() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "late_place");
    let tap = Tap::new(&table.url);
    let connect = || Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    let (mut late, mut other) = (connect().log_place_age_max(Duration::ZERO), connect());
    let [first, second] = [0, 1].map(|it| xid("late_place", it));
    insert(&mut late, &table, first, 0);
    insert(&mut other, &table, second, 1);
    let mut other = other.log_place_age_max(HALF * 2);
    tap.before("SHOW GLOBAL", move || is_over(RealClock.now(), HALF));
    vote(&mut late, first);
    let asked = tap.times("SHOW GLOBAL");
    vote(&mut other, second);
    assert_eq!(tap.times("SHOW GLOBAL"), asked + 1, "it asks itself");
    assert!(place(&mut other) > place(&mut late));
    for (branch, xid) in [(&mut late, first), (&mut other, second)] {
        assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    }
}

#[test]
fn a_place_of_a_connect_is_as_old_as_its_question_too() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "late_connect");
    let tap = Tap::new(&table.url);
    tap.before("'Uptime'", || is_over(RealClock.now(), HALF));
    let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap().log_place_age_max(HALF * 2);
    let xid = xid("late_connect", 0);
    insert(&mut branch, &table, xid, 0);
    vote(&mut branch, xid);
    assert!(tap.said("IN ('Innodb_lsn_flushed"), "it asks with its vote");
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
}
