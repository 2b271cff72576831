//! What finding a read-only branch costs a branch that writes, and what it saves one that reads.
//!
//! `cargo run --release -p assent-resources --example read_only -- POSTGRESQL-URL MARIADB-URL`
//! Every branch is alone on its connection: start, one statement, end, and what its answer asks for. The two ways take
//! turns, so that the machine's moods meet both. Prints medians. Makes and drops a table `assent_read_only`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use assent_ids::Xid;
use assent_resources::{Limits, Mariadb, Postgres};
use assent_world::{Clock, RealClock};
use assent_xa::{Reply, Resource, Verb, Vote};
use mysql::prelude::Queryable;

const ROUNDS: u32 = 1_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [postgres, mariadb] = arguments.as_slice() else {
        println!("usage: read_only POSTGRESQL-URL MARIADB-URL");
        return;
    };
    let open = |on| Postgres::connect("bank", postgres, Limits::WORK).unwrap().detect_read_only(on);
    let say = |branch: &mut Postgres, sql: &str| branch.work(|it| it.batch_execute(sql)).unwrap();
    measure("postgresql", [open(false), open(true)], say);
    let open = |on| Mariadb::connect("shop", mariadb, Limits::WORK).unwrap().detect_read_only(on);
    let say = |branch: &mut Mariadb, sql: &str| branch.work(|it| it.query_drop(sql)).unwrap();
    measure("mariadb", [open(false), open(true)], say);
}

fn measure<R: Resource>(name: &str, mut ways: [R; 2], say: impl Fn(&mut R, &str)) {
    let [first, _] = &mut ways;
    say(first, "DROP TABLE IF EXISTS assent_read_only");
    say(first, "CREATE TABLE assent_read_only (id int PRIMARY KEY, v int)");
    say(first, "INSERT INTO assent_read_only VALUES (1, 0)");
    let statements = [
        ("writes", "UPDATE assent_read_only SET v = v + 1 WHERE id = 1"),
        ("reads", "SELECT v FROM assent_read_only WHERE id = 1"),
    ];
    for (what, sql) in statements {
        let mut took_us = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for (way, took_us) in ways.iter_mut().zip(&mut took_us) {
                let xid =
                    Xid::new(1, format!("read_only {}", std::process::id()).as_bytes(), &round.to_be_bytes()).unwrap();
                let begun = RealClock.now();
                branch(way, xid, |way| say(way, sql));
                took_us.push(RealClock.now().since(begun).as_micros());
            }
        }
        let [off, on] = took_us.map(|mut all| {
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        });
        println!("{name:10} {what:6}  not asked {off:5} us  asked {on:5} us");
    }
    let [first, _] = &mut ways;
    say(first, "DROP TABLE assent_read_only");
}

/// The whole of it in two phases, unless it drops out at its end.
fn branch<R: Resource>(way: &mut R, xid: Xid, work: impl Fn(&mut R)) {
    assert_eq!(way.call(Verb::Start(xid)), Reply::Done);
    work(way);
    match way.call(Verb::End { xid, success: true }) {
        Reply::Vote(Vote::ReadOnly) => return,
        reply => assert_eq!(reply, Reply::Done),
    }
    assert_eq!(way.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));
    assert_eq!(way.call(Verb::Commit(xid)), Reply::Done);
}
