//! The built-in witness behind its door.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_arbiter::{Arbiter, ArbiterError, CONNECTIONS_MAX, Door, GROUPS_MAX, GroupName, Ledger, Witness, open};
use assent_kind::Kind;
use assent_membership::Configuration;
use assent_sim::SimDisk;
use assent_world::net::{Address, Stream};
use assent_world::{RealClock, RealDisk};

use crate::suite::{self, LIMIT, configuration};

fn serve(folder: &Path, at: &str) -> Door {
    let ledger = Ledger::open(Arc::new(RealDisk), folder).unwrap();
    Door::open(ledger, &at.parse().unwrap(), Arc::new(RealClock)).unwrap()
}

fn group(name: &str) -> GroupName {
    name.parse().unwrap()
}

fn ask(at: &Address, name: &str) -> Box<dyn Arbiter> {
    open(&at.to_string(), group(name), Arc::new(RealClock), LIMIT).unwrap()
}

#[test]
fn a_witness_keeps_what_every_arbiter_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let door = serve(folder.path(), "127.0.0.1:0");
    suite::all(&|name| ask(door.address(), name), "tcp-");
    drop(door);
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let door = serve(folder.path(), &socket);
    suite::all(&|name| ask(door.address(), name), "unix-");
}

#[test]
fn what_was_answered_is_there_after_a_restart_and_members_find_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let door = serve(folder.path(), "127.0.0.1:0");
    let at = door.address().clone();
    let member = ask(&at, "g");
    member.change(0, &configuration(1, 1)).unwrap();
    door.stop();
    let error = member.change(1, &configuration(2, 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "nobody there: it surely was not done; {error}");
    let door = serve(folder.path(), &at.to_string());
    assert_eq!(member.read().unwrap(), configuration(1, 1));
    assert_eq!(member.change(1, &configuration(2, 1)).unwrap(), configuration(2, 1), "over a new connection");
    drop(door);
}

#[test]
fn a_folder_has_one_witness_and_a_damaged_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Ledger::open(Arc::new(RealDisk), folder.path());
    let mut ledger = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), Kind::Busy);
    ledger.change(&group("g"), 0, &configuration(1, 1)).unwrap();
    drop(ledger);
    assert_eq!(open().unwrap().read(&group("g")).unwrap(), configuration(1, 1));
    let path = folder.path().join("witness");
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        match open() {
            // Bytes of the padding, which nobody reads.
            Ok(ledger) => assert_eq!(ledger.read(&group("g")).unwrap(), configuration(1, 1), "byte {at}"),
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{error}"),
        }
    }
    std::fs::write(&path, &good[..good.len() - 8]).unwrap();
    assert_eq!(open().unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_group_more_than_the_limit_is_refused_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::open(Arc::new(RealDisk), folder.path()).unwrap();
    for number in 0..GROUPS_MAX {
        ledger.change(&group(&format!("g{number}")), 0, &configuration(1, 1)).unwrap();
    }
    let error = ledger.change(&group("one-more"), 0, &configuration(1, 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert_eq!(ledger.change(&group("g0"), 1, &configuration(2, 1)).unwrap().version, 2);
}

#[test]
fn a_witness_without_room_answers_reads_and_says_that_it_did_not_do_a_change() {
    let disk = SimDisk::new();
    let ledger = Ledger::open(Arc::new(disk.clone()), Path::new("w")).unwrap();
    let door = Door::open(ledger, &"127.0.0.1:0".parse().unwrap(), Arc::new(RealClock)).unwrap();
    let member = ask(door.address(), "g");
    member.change(0, &configuration(1, 1)).unwrap();
    disk.set_capacity(Some(0));
    let error = member.change(1, &configuration(2, 1)).unwrap_err();
    assert!(matches!(error, ArbiterError::Refused { .. }), "{error}");
    assert_eq!((member.read().unwrap(), error.kind()), (configuration(1, 1), Kind::Full));
    disk.set_capacity(None);
    assert_eq!(member.change(1, &configuration(2, 1)).unwrap(), configuration(2, 1));
}

#[test]
fn names_and_addresses_are_checked_at_the_door() {
    for good in ["a", "0", "a.b_c-9", &"x".repeat(64)] {
        assert!(good.parse::<GroupName>().is_ok(), "{good}");
    }
    for bad in ["", "A", "a/b", "ä", " ", &"x".repeat(65)] {
        assert_eq!(bad.parse::<GroupName>().unwrap_err().kind(), Kind::Invalid, "{bad}");
    }
    for bad in ["", "host", "etcd://", "etcd://unix:/x", "http://127.0.0.1:1", "host:99999"] {
        let refused = open(bad, group("g"), Arc::new(RealClock), LIMIT);
        assert!(matches!(refused, Err(ArbiterError::Address { .. })), "{bad}");
    }
}

#[test]
fn strangers_harm_only_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let door = serve(folder.path(), "127.0.0.1:0");
    let member = ask(door.address(), "g");
    member.change(0, &configuration(1, 1)).unwrap();
    let connect = || {
        let stream = Stream::connect(door.address(), LIMIT).unwrap();
        stream.set_timeouts(Some(LIMIT), Some(LIMIT)).unwrap();
        stream
    };
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n                        "[..], &[0xff; 64], &[0; 40]] {
        let stranger = connect();
        (&stranger).write_all(bytes).unwrap();
        // An answer or a close, and never a hang.
        let mut answer = [0; 256];
        _ = (&stranger).read(&mut answer);
    }
    let half = connect();
    (&half).write_all(&[9, 0, 0]).unwrap();
    // More than the house holds, all silent: the members find a place.
    let crowd: Vec<Stream> = (0..CONNECTIONS_MAX + 20).map(|_| connect()).collect();
    let other = ask(door.address(), "g");
    assert_eq!(other.read().unwrap(), configuration(1, 1));
    drop(crowd);
    assert_eq!(member.change(1, &configuration(2, 1)).unwrap().version, 2, "also the one from before");
}

#[test]
fn a_silent_witness_is_unavailable_for_a_read_and_in_doubt_for_a_change() {
    // The kernel takes the connection, and nobody ever reads.
    let silent = assent_world::net::tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let at = Address::from(silent.local_addr().unwrap());
    let member = Witness::new(at, group("g"), Duration::from_millis(50));
    assert_eq!(member.read().unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(member.change(0, &configuration(1, 1)).unwrap_err().kind(), Kind::InDoubt);
    assert_eq!(member.watch(0, Duration::from_millis(10)).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(Configuration::default().version, 0);
}
