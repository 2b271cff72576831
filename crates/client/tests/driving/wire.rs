//! A coordinator at the other end of a wire: how many messages, and what becomes of those that get no answer.

use std::sync::{Barrier, mpsc};
use std::thread;

use assent_client::{Client, ClientConfig, CommitError, Committed, Known, LinkConfig, WorkError};
use assent_ids::{Epoch, Mark, NodeId, ResourceId};
use assent_kind::Kind;
use assent_wire::{Answer, Outcome, Request};
use assent_world::{Clock as _, RealClock};
use assent_xa::Reply;

use super::double::{Double, Tale, said};
use super::peer::{Coordinator, NODE, Peer, session, silent};

fn transfer(client: &Client) -> Result<Committed, CommitError> {
    told_transfer(client, &Tale::default())
}

fn told_transfer(client: &Client, tale: &Tale) -> Result<Committed, CommitError> {
    let (mut a, mut b) = (Double::new("a", tale), Double::new("b", tale));
    let mut tx = client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    tx.commit()
}

/// A first connection that greets as client 1 and then does this.
fn first(part: impl FnOnce(&mut Peer) + Send + 'static) -> Box<dyn FnOnce(Peer) + Send> {
    Box::new(move |mut peer| {
        assert_eq!(peer.greets(NODE, session(1)), None);
        part(&mut peer);
    })
}

/// A later connection that lets client 1 resume and then does this.
fn resumed(part: impl FnOnce(&mut Peer) + Send + 'static) -> Box<dyn FnOnce(Peer) + Send> {
    Box::new(move |mut peer| {
        assert_eq!(peer.greets(NODE, session(1)), Some(session(1)), "with the secret of the first handshake");
        part(&mut peer);
    })
}

#[test]
fn a_transaction_of_two_branches_is_one_round_trip_and_one_branch_none() {
    let coordinator = Coordinator::plays(vec![first(Peer::goes_on)]);
    let client = Client::connect(coordinator.config());
    assert_eq!(client.counts().handshakes, 0, "nothing is said before there is something to say");
    drop(client.begin().unwrap());
    let tale = Tale::default();
    for _ in 0..10 {
        let mut only = Double::new("a", &tale);
        let mut tx = client.begin().unwrap();
        tx.enlist(&mut only);
        tx.commit().unwrap();
    }
    let counts = client.counts();
    assert_eq!((counts.handshakes, counts.round_trips, counts.one_way), (1, 0, 0));
    for _ in 0..100 {
        transfer(&client).unwrap();
    }
    let counts = client.counts();
    assert_eq!((counts.handshakes, counts.round_trips), (1, 100));
    assert!(counts.one_way <= 100, "what may be forgotten travels with the next decision or a heartbeat: {counts:?}");
    drop(client);
    coordinator.end();
}

#[test]
fn what_may_be_forgotten_is_told_at_the_latest_when_the_client_ends() {
    let (tell, told) = mpsc::channel();
    let coordinator = Coordinator::plays(vec![first(move |peer| {
        while let Some(asked) = peer.next() {
            match asked.request() {
                Request::Finished(list) => list.iter().for_each(|tx| tell.send(*tx).unwrap()),
                Request::Decide(_) => peer.answer(asked.mark, &Answer::Decided(Outcome::Committed)),
                _ => peer.answer(asked.mark, &Answer::Pong),
            }
        }
    })]);
    let client = Client::connect(coordinator.config());
    let committed: Vec<_> = (0..3).map(|_| transfer(&client).unwrap().tx).collect();
    drop(client);
    coordinator.end();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), committed);
}

/// The coordinator writes down lazily what may be forgotten: killed while it is idle, it has forgotten that it may.
#[test]
fn what_arrived_is_told_again_to_a_coordinator_that_has_restarted_and_only_then() {
    let (tell, told) = mpsc::channel();
    let (arrived, has_arrived) = mpsc::channel();
    // Takes what is told until a heartbeat's answer proves that it arrived, or so many heartbeats told nothing.
    let hears = move |peer: &mut Peer, heartbeats: u32| {
        let mut heartbeats = heartbeats;
        let mut heard = Vec::new();
        while let Some(asked) = peer.next() {
            match asked.request() {
                Request::Finished(list) => heard.extend(list),
                Request::Decide(_) => peer.answer(asked.mark, &Answer::Decided(Outcome::Committed)),
                _ => {
                    peer.answer(asked.mark, &Answer::Pong);
                    heartbeats -= 1;
                    if heartbeats == 0 || !heard.is_empty() {
                        break;
                    }
                }
            }
        }
        heard
    };
    let (tell_again, tell_last) = (tell.clone(), tell.clone());
    let coordinator = Coordinator::plays(vec![
        first(move |peer| {
            tell.send(hears(peer, u32::MAX)).unwrap();
            // The next heartbeat is sent after the answer to the last was taken.
            _ = peer.next();
            arrived.send(()).unwrap();
        }),
        resumed(move |peer| {
            tell_again.send(hears(peer, 1)).unwrap();
        }),
        Box::new(move |mut peer| {
            assert_eq!(peer.greets_in(Epoch(2), NODE, session(1)), Some(session(1)));
            tell_last.send(hears(&mut peer, 2)).unwrap();
            peer.goes_on();
        }),
    ]);
    let client = Client::connect(coordinator.config());
    let committed = transfer(&client).unwrap().tx;
    has_arrived.recv().unwrap();
    assert_eq!(told.recv().unwrap(), [committed]);
    assert_eq!(told.recv().unwrap(), [], "a lost connection alone is no reason");
    assert_eq!(told.recv().unwrap(), [committed]);
    drop(client);
    coordinator.end();
}

#[test]
fn who_learns_a_doubtful_outcome_lets_it_be_forgotten() {
    let (tell, told) = mpsc::channel();
    let coordinator = Coordinator::plays(vec![
        first(|peer| _ = peer.next_but_pings()),
        resumed(move |peer| {
            while let Some(asked) = peer.next() {
                match asked.request() {
                    Request::Acknowledged(list) => list.iter().for_each(|tx| tell.send(*tx).unwrap()),
                    Request::Ask(_) => peer.answer(asked.mark, &Answer::Known(assent_wire::Known::Committed)),
                    Request::Ping => peer.answer(asked.mark, &Answer::Pong),
                    // Refused after the first question: still in doubt.
                    _ => peer.answer(asked.mark, &Answer::Error { kind: Kind::Closed, message: "no" }),
                }
            }
        }),
    ]);
    let client = Client::connect(coordinator.config());
    let error = transfer(&client).unwrap_err();
    assert_eq!(error.kind, Kind::InDoubt);
    let other = client.begin().unwrap().tx();
    assert_eq!(client.ask(other), Ok(Known::Committed), "of which nobody was in doubt");
    assert_eq!(client.ask(error.tx), Ok(Known::Committed));
    assert_eq!(client.ask(error.tx), Ok(Known::Committed), "it is told once");
    drop(client);
    coordinator.end();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [error.tx]);
}

#[test]
fn eight_threads_decide_over_one_connection() {
    let coordinator = Coordinator::plays(vec![first(Peer::goes_on)]);
    let client = Client::connect(coordinator.config());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..100).for_each(|_| _ = transfer(&client).unwrap()));
        }
    });
    let counts = client.counts();
    assert_eq!((counts.handshakes, counts.round_trips), (1, 800));
    drop(client);
    coordinator.end();
}

#[test]
fn a_lost_answer_is_asked_for_again_as_the_same_client_and_not_for_the_first_time() {
    let coordinator = Coordinator::plays(vec![
        first(|peer| {
            let asked = peer.next_but_pings().unwrap();
            assert!(matches!(asked.request(), Request::Decide(decide) if decide.first));
        }),
        resumed(|peer| {
            assert!(!peer.decides(Outcome::Committed), "it may have been decided by the first question");
            peer.goes_on();
        }),
    ]);
    let client = Client::connect(coordinator.config());
    transfer(&client).unwrap();
    assert_eq!(client.counts().round_trips, 2);
    drop(client);
    coordinator.end();
}

#[test]
fn recovery_that_was_first_is_believed() {
    let coordinator = Coordinator::plays(vec![first(|peer| {
        assert!(peer.decides(Outcome::RolledBack));
        peer.goes_on();
    })]);
    let client = Client::connect(coordinator.config());
    let error = transfer(&client).unwrap_err();
    assert_eq!(error.kind, Kind::RolledBack);
    assert!(error.message.contains("recovery or an operator"), "{error}");
    drop(client);
    coordinator.end();
}

#[test]
fn a_refusal_means_that_nothing_was_decided() {
    let coordinator = Coordinator::plays(vec![first(|peer| {
        let asked = peer.next_but_pings().unwrap();
        peer.answer(asked.mark, &Answer::Error { kind: Kind::Full, message: "the disk is full" });
        peer.goes_on();
    })]);
    let client = Client::connect(coordinator.config());
    let error = transfer(&client).unwrap_err();
    assert_eq!(error.kind, Kind::RolledBack);
    assert!(error.message.contains("the disk is full"), "{error}");
    drop(client);
    coordinator.end();
}

#[test]
fn a_busy_coordinator_is_asked_again_for_the_first_time() {
    let coordinator = Coordinator::plays(vec![first(|peer| {
        let asked = peer.next_but_pings().unwrap();
        peer.answer(asked.mark, &Answer::Error { kind: Kind::Busy, message: "later" });
        assert!(peer.decides(Outcome::Committed));
        peer.goes_on();
    })]);
    let client = Client::connect(coordinator.config());
    transfer(&client).unwrap();
    drop(client);
    coordinator.end();
}

#[test]
fn no_answer_within_the_time_is_in_doubt_and_names_the_transaction() {
    let coordinator = Coordinator::plays(vec![first(|peer| _ = peer.next_but_pings())]);
    let client = Client::connect(ClientConfig { decide_ms: 200, ..coordinator.config() });
    let tale = Tale::default();
    let error = told_transfer(&client, &tale).unwrap_err();
    let tale = tale.take();
    assert!(tale.ends_with("a let go, b let go"), "recovery must be able to finish them: {tale}");
    assert_eq!(error.kind, Kind::InDoubt);
    assert!(error.message.contains(&error.tx.to_string()), "{error}");
    assert!(error.message.contains("recovery tells a, b"), "nobody rolled them back: {error}");
    assert_eq!(client.ask(error.tx).unwrap_err().kind, Kind::Unavailable);
    coordinator.end();
}

/// Was: in doubt, and whoever had taken the coordinator's place was never asked.
#[test]
fn a_decision_whose_answer_was_awaited_for_longer_than_its_time_is_asked_for_once_more() {
    let coordinator = Coordinator::plays(vec![
        first(|peer| while peer.next().is_some() {}),
        resumed(|peer| {
            assert!(!peer.decides(Outcome::Committed), "it may be decided");
            peer.goes_on();
        }),
    ]);
    let link = LinkConfig { answer_ms: 300, connect_ms: 5_000, ..LinkConfig::default() };
    let client = Client::connect(ClientConfig { link, decide_ms: 100, ..coordinator.config() });
    transfer(&client).unwrap();
    drop(client);
    coordinator.end();
}

/// The same of what a last resource has decided that has not answered.
#[test]
fn a_row_whose_answer_was_awaited_for_longer_than_its_time_is_asked_for_once_more() {
    let coordinator = Coordinator::plays(vec![
        first(|peer| while peer.next().is_some() {}),
        resumed(|peer| {
            let asked = peer.next_but_pings().unwrap();
            assert!(matches!(asked.request(), Request::Settle { .. }), "{asked:?}");
            peer.answer(asked.mark, &Answer::Known(assent_wire::Known::Committed));
            while peer.next_but_pings().is_some() {}
        }),
    ]);
    let link = LinkConfig { answer_ms: 300, connect_ms: 5_000, ..LinkConfig::default() };
    let resources = vec!["a".to_owned(), "b".to_owned()];
    let client = Client::connect(ClientConfig { link, resources, decide_ms: 100, ..coordinator.config() });
    let tale = Tale::default();
    let mut a = Double::stumbling("a", &tale, "commit-last", 1, Reply::Lost(said("cut off")));
    a.table = Some(Mark { resource: ResourceId::of("a"), table: 7, timeline: 3 });
    let mut b = Double::new("b", &tale);
    let mut tx = client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    tx.commit().unwrap();
    drop(client);
    coordinator.end();
}

/// Was: each who waited tried in turn, for as long as the one before: of 64 threads the last waited 64 seconds for one answer.
#[test]
fn many_who_wait_for_a_coordinator_that_does_not_greet_hear_of_one_try() {
    let (_says_nothing, address) = silent();
    let link = LinkConfig { connect_ms: 2_000, ..LinkConfig::default() };
    let client = Client::connect(ClientConfig { link, ..ClientConfig::new(address, "many") });
    let together = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                together.wait();
                assert_eq!(client.begin().unwrap_err().kind, Kind::Unavailable);
            });
        }
    });
    let tries = client.counts().handshakes;
    assert!(tries <= 2, "{tries} tries; one, and one more if somebody came late");
    assert_eq!(client.begin().unwrap_err().kind, Kind::Unavailable);
    assert_eq!(client.counts().handshakes, tries + 1, "who comes later tries anew");
}

/// Was: it waited for itself, for ever.
#[test]
fn who_ends_a_transaction_while_it_works_on_a_resource_is_told_so() {
    let coordinator = Coordinator::plays(vec![first(Peer::goes_on)]);
    let client = Client::connect(coordinator.config());
    let tale = Tale::default();
    for end in ["commit", "rollback", "drop"] {
        let (mut a, mut b) = (Double::new("a", &tale), Double::new("b", &tale));
        let mut tx = client.begin().unwrap();
        let (enlisted, other) = (tx.enlist(&mut a), tx.enlist(&mut b));
        let mut work = enlisted.work().unwrap();
        assert_eq!(enlisted.work().err(), Some(WorkError::Held));
        assert!(format!("{enlisted:?}").starts_with("Enlisted"));
        let told = match end {
            "commit" => tx.commit().map(drop),
            "rollback" => tx.rollback().map(drop),
            _ => {
                drop(tx);
                Ok(())
            }
        };
        assert_eq!(told.err().map(|error| error.kind), (end != "drop").then_some(Kind::Invalid), "{end}");
        work.work += 1;
        assert!(matches!(other.work().err(), Some(WorkError::Over { .. })), "{end}");
        drop(work);
        assert!(matches!(enlisted.work().err(), Some(WorkError::Over { .. })), "{end}");
        assert_eq!(tale.take(), "a start, b start, a !, b !, b let go, a let go", "{end}");
    }
    // Another thread's work is waited for.
    let mut a = Double::new("a", &tale);
    let mut tx = client.begin().unwrap();
    let enlisted = tx.enlist(&mut a);
    let (began, begun) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut work = enlisted.work().unwrap();
            began.send(()).unwrap();
            thread::yield_now();
            work.work += 1;
        });
        begun.recv().unwrap();
        tx.commit().unwrap();
    });
    drop(enlisted);
    assert_eq!(a.work, 1);
    drop(client);
    coordinator.end();
}

#[test]
fn a_fenced_client_gets_another_name_and_only_asks_about_the_old_one() {
    for (known, kind) in [
        (assent_wire::Known::Committed, None),
        (assent_wire::Known::RolledBack, Some(Kind::RolledBack)),
        (assent_wire::Known::Unknown, Some(Kind::InDoubt)),
    ] {
        let coordinator = Coordinator::plays(vec![
            first(|peer| _ = peer.next_but_pings()),
            Box::new(|mut peer| peer.refuses(Kind::RolledBack)),
            Box::new(move |mut peer| {
                assert_eq!(peer.greets(NODE, session(2)), None, "as a new client");
                let asked = peer.next_but_pings().unwrap();
                assert!(matches!(asked.request(), Request::Ask(tx) if tx.incarnation == session(1).incarnation));
                peer.answer(asked.mark, &Answer::Known(known));
                assert!(peer.decides(Outcome::Committed));
                peer.goes_on();
            }),
        ]);
        let client = Client::connect(coordinator.config());
        assert_eq!(transfer(&client).err().map(|error| error.kind), kind);
        let next = transfer(&client).unwrap();
        assert_eq!((next.tx.incarnation, next.tx.counter), (session(2).incarnation, 1));
        drop(client);
        coordinator.end();
    }
}

/// The last resource has not answered, and its client is fenced meanwhile: it asks as after any other question, and settles nothing.
#[test]
fn a_fenced_client_asks_what_recovery_made_of_its_row() {
    for (known, kind) in [
        (assent_wire::Known::Committed, None),
        (assent_wire::Known::RolledBack, Some(Kind::RolledBack)),
        (assent_wire::Known::Unknown, Some(Kind::InDoubt)),
    ] {
        let coordinator = Coordinator::plays(vec![
            first(|peer| {
                let asked = peer.next_but_pings().unwrap();
                assert!(
                    matches!(asked.request(), Request::Settle { tx, .. } if tx.incarnation == session(1).incarnation)
                );
            }),
            Box::new(|mut peer| peer.refuses(Kind::RolledBack)),
            Box::new(move |mut peer| {
                assert_eq!(peer.greets(NODE, session(2)), None, "as a new client");
                let asked = peer.next_but_pings().unwrap();
                assert!(matches!(asked.request(), Request::Ask(tx) if tx.incarnation == session(1).incarnation));
                peer.answer(asked.mark, &Answer::Known(known));
                peer.goes_on();
            }),
        ]);
        let resources = vec!["a".to_owned(), "b".to_owned()];
        let client = Client::connect(ClientConfig { resources, ..coordinator.config() });
        let tale = Tale::default();
        let mut a = Double::stumbling("a", &tale, "commit-last", 1, Reply::Lost(said("cut off")));
        a.table = Some(Mark { resource: ResourceId::of("a"), table: 7, timeline: 3 });
        let mut b = Double::new("b", &tale);
        let mut tx = client.begin().unwrap();
        tx.enlist(&mut a);
        tx.enlist(&mut b);
        assert_eq!(tx.commit().err().map(|error| error.kind), kind);
        drop(client);
        coordinator.end();
    }
}

/// Its own question was never sent; a person may have decided in its place, and is not undone.
#[test]
fn a_fenced_client_s_undecided_work_is_rolled_back_and_what_a_person_decided_is_done() {
    use assent_wire::Known;

    for (known, kind) in [
        (Known::Undecided, Some(Kind::RolledBack)),
        (Known::Unknown, Some(Kind::RolledBack)),
        (Known::RolledBack, Some(Kind::RolledBack)),
        (Known::Committed, None),
    ] {
        let (go, wait) = mpsc::channel();
        let coordinator = Coordinator::plays(vec![
            first(move |_| wait.recv().unwrap()),
            Box::new(|mut peer| peer.refuses(Kind::RolledBack)),
            Box::new(move |mut peer| {
                assert_eq!(peer.greets(NODE, session(2)), None);
                let asked = peer.next_but_pings().unwrap();
                assert!(matches!(asked.request(), Request::Ask(tx) if tx.incarnation == session(1).incarnation));
                peer.answer(asked.mark, &Answer::Known(known));
                peer.goes_on();
            }),
        ]);
        let client = Client::connect(coordinator.config());
        let tale = Tale::default();
        let (mut a, mut b) = (Double::new("a", &tale), Double::new("b", &tale));
        let mut tx = client.begin().unwrap();
        tx.enlist(&mut a);
        tx.enlist(&mut b);
        go.send(()).unwrap();
        // The helper finds the connection ended and comes back under another name.
        while client.counts().handshakes < 3 {
            thread::yield_now();
        }
        let told = tx.commit();
        assert_eq!(told.as_ref().err().map(|error| error.kind), kind, "{known:?}");
        if matches!(known, Known::Undecided | Known::Unknown) {
            assert!(told.unwrap_err().message.contains("fenced"));
        }
        let tale = tale.take();
        assert_eq!((tale.contains("commit"), tale.contains("rollback")), (kind.is_none(), kind.is_some()), "{tale}");
        drop(client);
        coordinator.end();
    }
}

/// It slept before anybody had prepared, so nobody has put a row of recovery's: the last resource is not told, and the others undo.
#[test]
fn who_was_away_for_too_long_has_no_last_resource_decide() {
    let (go, wait) = mpsc::channel();
    let coordinator = Coordinator::plays(vec![
        first(move |_| wait.recv().unwrap()),
        Box::new(|mut peer| peer.refuses(Kind::RolledBack)),
        Box::new(|mut peer| {
            assert_eq!(peer.greets(NODE, session(2)), None);
            assert!(peer.next_but_pings().is_none(), "nothing was decided");
        }),
    ]);
    let resources = vec!["a".to_owned(), "b".to_owned()];
    let client = Client::connect(ClientConfig { resources, ..coordinator.config() });
    let tale = Tale::default();
    let (mut a, mut b) = (Double::new("a", &tale), Double::new("b", &tale));
    a.table = Some(Mark { resource: ResourceId::of("a"), table: 7, timeline: 3 });
    let mut tx = client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    go.send(()).unwrap();
    // What was answered just now is believed: it is to have heard that it has another name.
    while client.begin().unwrap().tx().incarnation == session(1).incarnation {
        thread::yield_now();
    }
    let error = tx.commit().unwrap_err();
    assert!(error.kind == Kind::RolledBack && error.message.contains("away for too long"), "{error}");
    assert!(tale.take().ends_with("b prepare, b !, a rollback, b rollback, a !, b !"));
    drop(client);
    coordinator.end();
}

/// Half of what a client may be away has passed since the coordinator answered last: it is asked before the last resource decides.
#[test]
fn a_silence_is_ended_before_a_last_resource_decides() {
    let coordinator = Coordinator::plays(vec![first(|peer| {
        // The heartbeat, which is not answered, and the question.
        let asked = [peer.next().unwrap(), peer.next().unwrap()];
        for one in asked {
            assert_eq!(one.request(), Request::Ping);
            peer.answer(one.mark, &Answer::Pong);
        }
        assert!(matches!(peer.next_but_pings().unwrap().request(), Request::Noted(_)), "it has decided");
        peer.goes_on();
    })]);
    let resources = vec!["a".to_owned(), "b".to_owned()];
    let client = Client::connect(ClientConfig { resources, ..coordinator.config() });
    let tale = Tale::default();
    // The prepare takes so long.
    let mut b = Double::answering("b", &tale, |verb| {
        if verb == "prepare" {
            RealClock.sleep(std::time::Duration::from_millis(600));
        }
        None
    });
    let mut a = Double::new("a", &tale);
    a.table = Some(Mark { resource: ResourceId::of("a"), table: 7, timeline: 3 });
    let mut tx = client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let before = client.counts().round_trips;
    tx.commit().unwrap();
    assert_eq!(client.counts().round_trips, before + 1);
    drop(client);
    coordinator.end();
}

#[test]
fn another_node_at_the_same_address_is_not_asked() {
    let coordinator = Coordinator::plays(vec![
        first(|peer| _ = peer.next_but_pings()),
        Box::new(|mut peer| {
            _ = peer.greets(NodeId(2), session(1));
            assert!(peer.next().is_none(), "its transactions bear the same names and are others");
        }),
    ]);
    let client = Client::connect(coordinator.config());
    let error = transfer(&client).unwrap_err();
    assert_eq!(error.kind, Kind::InDoubt);
    assert!(error.message.contains("make another client"), "{error}");
    drop(client);
    coordinator.end();
}

#[test]
fn a_quiet_client_is_heard_and_a_lost_connection_is_resumed_without_being_asked() {
    let (tell, told) = mpsc::channel();
    let coordinator = Coordinator::plays(vec![
        first(|peer| {
            let ping = peer.next().unwrap();
            assert_eq!(ping.request(), Request::Ping);
            peer.answer(ping.mark, &Answer::Pong);
        }),
        resumed(move |peer| {
            tell.send(()).unwrap();
            peer.goes_on();
        }),
    ]);
    let client = Client::connect(coordinator.config());
    drop(client.begin().unwrap());
    told.recv().unwrap();
    drop(client);
    coordinator.end();
}

#[test]
fn the_coordinator_tells_what_became_of_it() {
    let coordinator = Coordinator::plays(vec![first(|peer| {
        for known in [assent_wire::Known::Undecided, assent_wire::Known::InDoubt, assent_wire::Known::Committed] {
            let asked = peer.next_but_pings().unwrap();
            assert!(matches!(asked.request(), Request::Ask(_)));
            peer.answer(asked.mark, &Answer::Known(known));
        }
        peer.goes_on();
    })]);
    let client = Client::connect(coordinator.config());
    let tx = client.begin().unwrap().tx();
    for known in [Known::Undecided, Known::InDoubt, Known::Committed] {
        assert_eq!(client.ask(tx), Ok(known));
    }
    drop(client);
    coordinator.end();
}

#[test]
fn nobody_there_is_unavailable_and_a_token_is_not_printed() {
    let nobody = assent_world::net::tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
    let token = Some(assent_client::Token("hush".to_owned()));
    let config = ClientConfig { token, ..ClientConfig::new(nobody.into(), "test") };
    assert!(!format!("{config:?}").contains("hush"));
    assert_eq!(Client::connect(config).begin().unwrap_err().kind, Kind::Unavailable);
}
