//! A graceful stop: nobody new, what is under way is finished, and time is bounded.

use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_wire::{Outcome, Reply, Request, Role};

use crate::house::{LONG, Rules, branch, eventually, expect, get, put, store, street, xid};

#[test]
fn a_branch_that_is_under_way_is_finished_and_no_new_one_is_started() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| street.a.server.stop(LONG));
        eventually("it is stopping", || street.a.health.report().checks["server"].sentence == "it is stopping");
        eventually("nobody new comes in", || street.a.try_link(Role::Store { label: "late" }).is_err());
        let another = committer.begin();
        let refused = committer.stores["a"].request(&Request::Start(xid(committer.node(), another, "a", 0))).unwrap();
        assert!(matches!(branch(&refused), Reply::Refused(Kind::Unavailable, _)), "{refused:?}");
        // The one under way goes to its end.
        assert!(committer.all(tx, Request::Prepare).iter().all(|vote| branch(vote) == Reply::Yes));
        assert_eq!(committer.decide(tx), Outcome::Committed);
        assert!(committer.all(tx, Request::Commit).iter().all(|done| branch(done) == Reply::Done));
        stopping.join().unwrap();
    });
    assert!(committer.stores["a"].request(&Request::Ping).is_err(), "then the connection ends");
    assert_eq!(street.a.kv.as_ref().unwrap().get(0, b"key").unwrap(), Some(b"v".to_vec()));
    assert_eq!(get(&committer.stores["b"], b"key"), Some(b"v".to_vec()), "others go on");
}

#[test]
fn somebody_who_never_ends_does_not_hold_the_stop_up() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules { threads: 2, ..Rules::default() });
    let links: Vec<_> = (0..4).map(|_| house.store_link()).collect();
    let incarnation = assent_ids::Incarnation { epoch: assent_ids::Epoch(1), number: 1 };
    for (link, counter) in links.iter().zip(0..) {
        let xid = xid(crate::house::NODE, assent_ids::TxId { incarnation, counter }, "a", 0);
        expect(link, &Request::Start(xid), &Reply::Done);
    }
    let start = Instant::now();
    house.server.stop(Duration::from_millis(100));
    assert!(start.elapsed() < LONG);
    assert!(links.iter().all(|link| link.request(&Request::Ping).is_err()));
    assert_eq!(house.kv.as_ref().unwrap().stats().branches, 0, "what was not prepared is dropped");
}

#[test]
fn a_stop_without_work_is_quick_and_everything_acknowledged_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    for key in 0..100_u8 {
        link.request(&put(None, &[key], b"v")).unwrap().answer().unwrap();
    }
    house.server.stop(LONG);
    house.server.stop(LONG);
    house.journal.close().unwrap();
    drop((house, link));
    let again = store(folder.path(), &Rules::default());
    assert_eq!(again.stat("kv.keys"), 100);
}
