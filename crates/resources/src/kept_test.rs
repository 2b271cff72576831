//! Scripted sessions and helpers that hang.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use assent_ids::NodeId;

use super::*;

struct Told {
    begun: SyncSender<()>,
    go: Receiver<()>,
}

impl Session for Told {
    fn step(&mut self, verb: &Verb) -> Reply {
        assert!(!matches!(verb, Verb::Forget(_)), "this driver breaks on forget");
        self.begun.send(()).unwrap();
        let _ = self.go.recv();
        Reply::Done
    }
    fn occupant(&self) -> Option<Xid> {
        Some(xid())
    }
    fn at_once(&mut self, verb: &Verb) -> Option<Reply> {
        matches!(verb, Verb::End { .. }).then_some(Reply::Done)
    }
}

fn kept(answer_ms_max: u64, stuck: &Stuck) -> (Kept<Told>, Receiver<()>, SyncSender<()>) {
    let (begun, has_begun) = sync_channel(8);
    let (say, go) = sync_channel(8);
    let limits = Limits { connect_ms_max: 1_000, answer_ms_max };
    (Kept::new(Told { begun, go }, limits, stuck.clone()), has_begun, say)
}

fn xid() -> Xid {
    Xid::new(1, b"g", b"b").unwrap()
}

#[test]
fn verbs_overlap_and_nobody_works_meanwhile() {
    let stuck = Stuck::default();
    let (mut a, a_begun, a_go) = kept(60_000, &stuck);
    let (mut b, b_begun, b_go) = kept(60_000, &stuck);
    a.send(Verb::Prepare(xid()));
    b.send(Verb::Prepare(xid()));
    // Both are under way before either has been answered.
    a_begun.recv().unwrap();
    b_begun.recv().unwrap();
    assert!(matches!(a.with(|_| ()), Err(NotHere::UnderWay)));
    a.send(Verb::Commit(xid()));
    b_go.send(()).unwrap();
    a_go.send(()).unwrap();
    assert_eq!((a.receive(), b.receive()), (Reply::Done, Reply::Done));
    assert!(matches!(a.receive(), Reply::Refused(Kind::Internal, _)), "the second verb was not done");
    assert!(a.with(|_| ()).is_ok());
    a.send(Verb::End { xid: xid(), success: true });
    assert_eq!(a.receive(), Reply::Done, "without a helper");
}

/// Answers at once, on whatever thread.
struct Bounded {
    limited: Arc<AtomicBool>,
    steps: Arc<Mutex<Vec<(ThreadId, bool)>>>,
}

impl Session for Bounded {
    fn step(&mut self, _verb: &Verb) -> Reply {
        let limited = self.limited.load(Ordering::SeqCst);
        self.steps.lock().unwrap().push((std::thread::current().id(), limited));
        Reply::Done
    }
    fn occupant(&self) -> Option<Xid> {
        None
    }
    fn limit(&mut self, longest: Duration) -> bool {
        assert_eq!(longest, Duration::from_millis(60_000));
        self.limited.store(true, Ordering::SeqCst);
        true
    }
}

#[test]
fn a_deferred_verb_is_done_by_its_receiver_within_the_sessions_own_limit() {
    let (limited, steps) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let session = Bounded { limited: Arc::clone(&limited), steps: Arc::clone(&steps) };
    let mut kept = Kept::new(session, Limits::WORK, Stuck::default());
    assert_eq!(kept.defer(Verb::Prepare(xid())), None);
    assert!(steps.lock().unwrap().is_empty(), "not before it is received");
    assert!(matches!(kept.with(|_| ()), Err(NotHere::UnderWay)), "and nothing comes before it");
    assert_eq!(kept.defer(Verb::Commit(xid())), Some(Verb::Commit(xid())), "one verb at a time");
    assert_eq!(kept.receive(), Reply::Done);
    limited.store(false, Ordering::SeqCst);
    kept.send(Verb::Commit(xid()));
    assert_eq!(kept.receive(), Reply::Done);
    let steps = std::mem::take(&mut *steps.lock().unwrap());
    let me = std::thread::current().id();
    let by: Vec<_> = steps.into_iter().map(|(thread, limited)| (thread == me, limited)).collect();
    assert_eq!(by, [(true, true), (false, false)], "what was sent has the helper's limit");
}

/// Has words for every verb that can be sent before anybody waits.
struct Ahead(Arc<Mutex<Vec<&'static str>>>);

impl Session for Ahead {
    fn step(&mut self, _verb: &Verb) -> Reply {
        self.0.lock().unwrap().push("read");
        Reply::Done
    }
    fn occupant(&self) -> Option<Xid> {
        None
    }
    fn limit(&mut self, _longest: Duration) -> bool {
        true
    }
    fn goes_ahead(&self, verb: &Verb) -> bool {
        matches!(verb, Verb::Commit(_))
    }
    fn ahead(&mut self, verb: &Verb, _longest: Duration) -> bool {
        self.0.lock().unwrap().extend(self.goes_ahead(verb).then_some("sent"));
        self.goes_ahead(verb)
    }
}

#[test]
fn what_can_be_sent_at_once_is_sent_to_all_before_anything_is_read() {
    let told = Arc::default();
    let mut sessions = [(); 2].map(|()| Kept::new(Ahead(Arc::clone(&told)), Limits::WORK, Stuck::default()));
    for kept in &mut sessions {
        let back = kept.defer(Verb::Commit(xid())).expect("not to be done on this thread before the others");
        kept.send(back);
    }
    for kept in &mut sessions {
        assert_eq!(kept.receive(), Reply::Done);
        assert_eq!(kept.defer(Verb::Prepare(xid())), None, "what cannot be sent is done here");
        assert_eq!(kept.receive(), Reply::Done);
        assert!(kept.lane.is_none(), "and nobody helped");
    }
    assert_eq!(*told.lock().unwrap(), ["sent", "sent", "read", "read", "read", "read"]);
}

#[test]
fn a_session_without_a_limit_of_its_own_defers_nothing_but_a_start() {
    let (mut kept, begun, go) = kept(60_000, &Stuck::default());
    assert_eq!(kept.defer(Verb::Prepare(xid())), Some(Verb::Prepare(xid())));
    kept.send(Verb::Start(xid()));
    assert!(begun.try_recv().is_err(), "nobody has begun it");
    assert!(matches!(kept.with(|_| ()), Err(NotHere::UnderWay)));
    go.send(()).unwrap();
    assert_eq!(kept.receive(), Reply::Done);
    begun.recv().unwrap();
}

#[test]
fn a_driver_that_never_comes_back_loses_the_answer_and_not_the_caller() {
    let stuck = Stuck::default();
    let (mut kept, begun, go) = kept(1, &stuck);
    kept.send(Verb::Commit(xid()));
    begun.recv().unwrap();
    assert!(matches!(kept.receive(), Reply::Lost(_)));
    assert_eq!(stuck.count(), 1);
    assert!(matches!(kept.with(|_| ()), Err(NotHere::Gone(_))));
    kept.send(Verb::Rollback(xid()));
    assert!(matches!(kept.receive(), Reply::Lost(_)));
    kept.send(Verb::Recover(NodeId(1)));
    assert!(matches!(kept.receive(), Reply::Refused(Kind::Unavailable, _)), "surely not sent");
    drop(go);
    while stuck.count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_connection_that_is_let_go_ends_at_once_or_with_its_verb() {
    let stuck = Stuck::default();
    let (mut idle, begun, _go) = kept(60_000, &stuck);
    idle.let_go();
    assert!(begun.recv().is_err(), "its session was dropped");
    let Err(NotHere::Gone(native)) = idle.with(|_| ()) else { panic!() };
    assert!(native.message.contains("left to recovery"), "{}", native.message);

    let (mut kept, begun, go) = kept(60_000, &stuck);
    kept.send(Verb::Commit(xid()));
    begun.recv().unwrap();
    kept.let_go();
    assert!(matches!(kept.receive(), Reply::Lost(_)));
    assert_eq!(stuck.count(), 1);
    go.send(()).unwrap();
    assert!(begun.recv().is_err(), "its session was dropped when the verb was done");
}

#[test]
fn a_helper_that_dies_loses_the_answer() {
    let (mut kept, _begun, _go) = kept(60_000, &Stuck::default());
    kept.send(Verb::Forget(xid()));
    assert!(matches!(kept.receive(), Reply::Lost(_)));
    kept.send(Verb::Start(xid()));
    assert!(matches!(kept.receive(), Reply::Refused(Kind::Unavailable, _)));
}

#[test]
fn connecting_has_a_limit_and_so_have_those_who_hang() {
    let stuck = Stuck::default();
    let limits = Limits { connect_ms_max: 1, answer_ms_max: 1 };
    let mut hanging = Vec::new();
    for _ in 0..STUCK_MAX {
        let (say, go) = sync_channel::<()>(1);
        hanging.push(say);
        let opened = Kept::<Told>::open(limits, stuck.clone(), move || {
            let _ = go.recv();
            Err((Kind::Denied, said("too late".to_owned())))
        });
        assert!(matches!(opened, Err((Kind::Unavailable, _))));
    }
    let refused = Kept::<Told>::open(limits, stuck.clone(), || unreachable!("it must not even try"));
    let Err((Kind::Unavailable, native)) = refused else { panic!() };
    assert!(native.message.contains("4 earlier connections"));
    drop(hanging);
    while stuck.count() > 0 {
        std::thread::yield_now();
    }
    let limits = Limits { connect_ms_max: 60_000, answer_ms_max: 1 };
    let opened = Kept::<Told>::open(limits, stuck, || Err((Kind::Denied, said("no".to_owned()))));
    assert!(matches!(opened, Err((Kind::Denied, _))));
}
