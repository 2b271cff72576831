//! The coordinator in the same process, resources of a few lines.

use std::path::Path;
use std::sync::Arc;

use assent_client::{Client, Counts, Known, Retries};
use assent_coordinator::history::{self, Filter, Vote as Voted};
use assent_coordinator::{Agent, Config, Coordinator, Identity};
use assent_ids::{Mark, ResourceId};
use assent_journal::{Config as JournalConfig, Journal};
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock, RealDice, RealDisk};
use assent_xa::{Connector, Heuristic, Native, Past, Reply, Resource, Vote};
use tempfile::TempDir;

use super::double::{Double, Tale, said};

struct House {
    coordinator: Arc<Coordinator>,
    client: Client,
    log: Arc<Journal>,
    tale: Tale,
    _folder: TempDir,
}

fn coordinator(folder: &Path) -> (Arc<Coordinator>, Arc<Journal>) {
    let config = JournalConfig { log_size: 1 << 20, ..JournalConfig::default() };
    let doors = (Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice));
    let (log, _) = Journal::open(doors.0, doors.1, doors.2, &folder.join("log"), config).unwrap();
    let identity = Identity::load_or_create(&RealDisk, &RealDice, folder).unwrap();
    let coordinator = Coordinator::open(Arc::clone(&log) as _, Arc::new(RealClock), identity, Config::default());
    (Arc::new(coordinator.unwrap()), log)
}

fn house() -> House {
    let folder = tempfile::tempdir().unwrap();
    let (coordinator, log) = coordinator(folder.path());
    let client = Client::embedded(&coordinator, Retries { pause_ms: 0, ..Retries::default() }).unwrap();
    House { coordinator, client, log, tale: Tale::default(), _folder: folder }
}

impl House {
    fn commits_decided(&self) -> u64 {
        self.coordinator.gauges().decided_committed
    }
}

#[test]
fn two_branches_are_told_in_rounds_all_sends_before_all_answers() {
    let house = house();
    let (mut a, mut b) = (Double::new("a", &house.tale), Double::new("b", &house.tale));
    let mut tx = house.client.begin().unwrap();
    let (at_a, at_b) = (tx.enlist(&mut a), tx.enlist(&mut b));
    assert_eq!(house.tale.take(), "a start, b start", "sent, not waited for");
    at_a.work().unwrap().work += 1;
    at_b.work().unwrap().work += 2;
    at_a.work().unwrap().work += 3;
    assert_eq!(house.tale.take(), "a !, b !", "received once, with the first work");
    let name = tx.tx();
    let committed = tx.commit().unwrap();
    assert_eq!((committed.tx, committed.unfinished.len(), committed.inferred.len()), (name, 0, 0));
    assert_eq!(
        house.tale.take(),
        "a end, b end, a !, b !, a prepare, b prepare, a !, b !, a commit, b commit, a !, b !"
    );
    assert_eq!(at_a.work().unwrap_err().kind(), Kind::Invalid, "the transaction has ended");
    drop((at_a, at_b));
    assert_eq!((a.work, b.work), (4, 2));
    assert_eq!(house.commits_decided(), 1);
    assert_eq!(house.client.counts(), Counts::default());
}

#[test]
fn a_branch_that_works_in_its_receive_comes_first_while_the_others_are_under_way() {
    let house = house();
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| Double::new(name, &house.tale));
    (b.defers, c.defers) = (true, true);
    let mut tx = house.client.begin().unwrap();
    [&mut a, &mut b, &mut c].into_iter().for_each(|branch| drop(tx.enlist(branch)));
    tx.commit().unwrap();
    let told = house.tale.take();
    assert!(
        told.starts_with("a start, b start, c start, a !, b !, c !, a end, b (end), c end, b !, c !, a !"),
        "{told}"
    );
    assert!(
        told.ends_with("a commit, b (commit), c commit, b !, c !, a !"),
        "{told}: one at most, or they would queue"
    );
    assert_eq!(told.matches('!').count(), 12, "start, end, prepare, commit: {told}");
}

#[test]
fn one_branch_decides_for_itself_and_readers_drop_out() {
    let house = house();
    let mut a = Double::new("a", &house.tale);
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.commit().unwrap();
    assert_eq!(house.tale.take(), "a start, a !, a end, a !, a one-phase, a !", "what is finished is not let go");
    let readers = |verb: &'static str| {
        let tale = &house.tale;
        ["a", "b"].map(|name| Double::stumbling(name, tale, verb, 1, Reply::Vote(Vote::ReadOnly)))
    };
    for mut readers in [readers("end"), readers("prepare")] {
        let mut tx = house.client.begin().unwrap();
        readers.iter_mut().for_each(|reader| drop(tx.enlist(reader)));
        tx.commit().unwrap();
        assert!(!house.tale.take().contains("commit"));
    }
    let (mut reader, mut writer) =
        (Double::stumbling("r", &house.tale, "end", 1, Reply::Vote(Vote::ReadOnly)), Double::new("w", &house.tale));
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut reader);
    tx.enlist(&mut writer);
    tx.commit().unwrap();
    assert_eq!(house.tale.take(), "r start, w start, r !, w !, r end, w end, r !, w !, w one-phase, w !");
    assert_eq!(house.commits_decided(), 0, "nothing to agree on");
}

#[test]
fn a_transaction_of_nothing_commits() {
    house().client.begin().unwrap().commit().unwrap();
}

/// The verb that is answered so, the branches' answers, and the votes that are told.
type Case = (&'static str, [Option<Reply>; 3], Option<[Option<Voted>; 3]>);

/// Each branch's vote, whatever came of it; a branch that was not asked has none, and where nobody had to agree nothing is kept.
#[test]
fn the_log_tells_what_each_branch_voted() {
    const YES: Option<Voted> = Some(Voted::Yes);
    let read_only = || Reply::Vote(Vote::ReadOnly);
    let no = || Reply::RolledBack(said("too late"));
    const READ_ONLY: Option<Voted> = Some(Voted::ReadOnly);
    const NO: Option<Voted> = Some(Voted::No);
    let cases: [Case; 9] = [
        ("prepare", [None, None, None], Some([YES; 3])),
        ("prepare", [None, Some(read_only()), None], Some([YES, READ_ONLY, YES])),
        ("end", [Some(read_only()), None, None], Some([READ_ONLY, YES, YES])),
        ("prepare", [Some(read_only()), Some(no()), None], Some([READ_ONLY, NO, YES])),
        ("end", [None, Some(no()), None], Some([None, NO, None])),
        ("start", [None, Some(Reply::Refused(Kind::Busy, said("full"))), None], Some([None, NO, None])),
        ("end", [Some(read_only()), Some(read_only()), None], None),
        ("prepare", [Some(read_only()), Some(read_only()), Some(read_only())], None),
        ("commit", [None, Some(Reply::Lost(said("once"))), None], Some([YES; 3])),
    ];
    let house = house();
    for (verb, answers, expected) in cases {
        let mut branches: Vec<Double> = ["a", "b", "c"]
            .into_iter()
            .zip(answers)
            .map(|(name, answer)| match answer {
                Some(reply) => Double::stumbling(name, &house.tale, verb, 1, reply),
                None => Double::new(name, &house.tale),
            })
            .collect();
        let mut tx = house.client.begin().unwrap();
        branches.iter_mut().for_each(|branch| drop(tx.enlist(branch)));
        let name = tx.tx();
        _ = tx.commit();
        let mut told = Vec::new();
        let filter = Filter { tx: Some(name), ..Filter::default() };
        history::read(&*house.log, &filter, &mut |past| {
            told.push(past.clone());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        let branch = |number: u16| told.first()?.branches.iter().find(|it| it.number == number);
        let votes = told.first().map(|_| [0, 1, 2].map(|number| branch(number).and_then(|it| it.vote)));
        assert_eq!((votes, told.len()), (expected, usize::from(expected.is_some())), "{verb}");
        let words = branch(1).map(|it| (it.retries, it.native.code.as_str())).unwrap_or_default();
        let speaks = votes.is_some_and(|votes| votes[1] == NO) || verb == "commit";
        assert_eq!(words, (u32::from(verb == "commit"), if speaks { "42" } else { "" }), "{verb}");
    }
    // One left to commit, which cannot: it said no, and nobody decided.
    let mut reader = Double::stumbling("a", &house.tale, "end", 1, read_only());
    let mut writer = Double::stumbling("b", &house.tale, "one-phase", 1, no());
    let mut tx = house.client.begin().unwrap();
    drop((tx.enlist(&mut reader), tx.enlist(&mut writer)));
    let filter = Filter { tx: Some(tx.tx()), ..Filter::default() };
    assert_eq!(tx.commit().unwrap_err().kind, Kind::RolledBack);
    let mut votes = Vec::new();
    history::read(&*house.log, &filter, &mut |past| {
        votes.extend(past.branches.iter().map(|it| it.vote));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(votes, [READ_ONLY, NO]);
}

#[test]
fn a_no_undoes_everything_and_says_who_and_why() {
    let house = house();
    let mut a = Double::new("a", &house.tale);
    let mut b = Double::stumbling("b", &house.tale, "prepare", 1, Reply::RolledBack(said("too late")));
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let name = tx.tx();
    let error = tx.commit().unwrap_err();
    assert_eq!((error.kind, error.tx), (Kind::RolledBack, name));
    assert!(error.message.contains("\"b\"") && error.message.contains("42 too late"), "{error}");
    assert!(house.tale.take().ends_with("a prepare, b prepare, a !, b !, a rollback, a !"), "b is gone already");
    assert_eq!(house.commits_decided(), 0);
}

#[test]
fn what_did_not_start_is_told_with_the_work_and_undoes_the_rest() {
    let house = house();
    let mut a = Double::new("a", &house.tale);
    let mut b = Double::stumbling("b", &house.tale, "start", 1, Reply::Refused(Kind::Busy, said("full house")));
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    let at_b = tx.enlist(&mut b);
    let error = at_b.work().unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.to_string().contains("full house"), "{error}");
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind, Kind::RolledBack);
    assert!(error.message.contains("full house"), "{error}");
    assert_eq!(house.tale.take(), "a start, b start, b !, a !, a fail, a !, a rollback, a !");
}

#[test]
fn a_dropped_transaction_is_rolled_back() {
    let house = house();
    let mut a = Double::new("a", &house.tale);
    {
        let mut tx = house.client.begin().unwrap();
        tx.enlist(&mut a);
    }
    assert_eq!(house.tale.take(), "a start, a !, a fail, a !, a rollback, a !");
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.rollback().unwrap();
    assert_eq!(house.tale.take(), "a start, a !, a fail, a !, a rollback, a !");
}

#[test]
fn a_branch_that_cannot_be_told_is_told_again_and_then_left_to_recovery() {
    let house = house();
    let lost = || Reply::Lost(said("gone"));
    let mut a = Double::new("a", &house.tale);
    let mut b = Double::stumbling("b", &house.tale, "commit", 2, lost());
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let committed = tx.commit().unwrap();
    assert!(committed.unfinished.is_empty());
    assert!(house.tale.take().ends_with("a commit, b commit, a !, b !, b commit, b !, b commit, b !"));
    assert_eq!(house.client.ask(committed.tx).unwrap(), Known::Unknown, "finished, so it may be forgotten");

    let mut b = Double::stumbling("b", &house.tale, "commit", 4, lost());
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let committed = tx.commit().unwrap();
    assert_eq!(committed.unfinished, [("b".to_owned(), said("gone"))]);
    let tale = house.tale.take();
    assert!(tale.ends_with("b commit, b !, b let go") && !tale.contains("a let go"), "only what is left: {tale}");
    assert_eq!(house.client.ask(committed.tx).unwrap(), Known::Committed, "recovery still needs to know");
    let view = house.coordinator.show(committed.tx).unwrap();
    assert!(view.is_acknowledged);
}

#[test]
fn a_rollback_that_cannot_be_told_is_decided_so_that_recovery_need_not_wait() {
    let house = house();
    let mut a = Double::stumbling("a", &house.tale, "rollback", 9, Reply::Lost(said("gone")));
    a.witness = b"voted here".to_vec();
    let mut b = Double::stumbling("b", &house.tale, "prepare", 1, Reply::RolledBack(said("no")));
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind, Kind::RolledBack);
    assert!(error.message.contains("recovery tells a"), "{error}");
    let tale = house.tale.take();
    assert!(tale.ends_with("a rollback, a !, a let go"), "{tale}");
    assert_eq!(house.client.ask(error.tx).unwrap(), Known::RolledBack);
    // Recovery asks by it whether the session that voted has gone.
    let view = house.coordinator.show(error.tx).unwrap();
    assert_eq!(view.branches[0].witness, b"voted here");
}

#[test]
fn a_rollback_that_was_asked_for_names_what_could_not_be_told() {
    let house = house();
    let mut a = Double::stumbling("a", &house.tale, "rollback", 9, Reply::Lost(said("gone")));
    let mut b = Double::new("b", &house.tale);
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let name = tx.tx();
    let done = tx.rollback().unwrap();
    assert_eq!((done.tx, done.unfinished), (name, vec![("a".to_owned(), said("gone"))]));
}

#[test]
fn the_only_branch_without_an_answer_is_in_doubt() {
    let house = house();
    let mut a = Double::stumbling("a", &house.tale, "one-phase", 1, Reply::Lost(said("line cut")));
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    let name = tx.tx();
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind, Kind::InDoubt);
    assert!(error.message.contains(&name.to_string()) && error.message.contains("line cut"), "{error}");
}

#[test]
fn a_branch_that_went_its_own_way_is_told_by_name() {
    let house = house();
    let own = Reply::Heuristic(Heuristic::RolledBack, said("by the operator"));
    let mut a = Double::new("a", &house.tale);
    let mut b = Double::stumbling("b", &house.tale, "commit", 1, own);
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    tx.enlist(&mut b);
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind, Kind::Heuristic);
    assert!(error.message.contains("b RolledBack 42 by the operator"), "{error}");
}

#[test]
fn a_branch_that_went_its_own_way_is_the_operator_s_whatever_it_was_told() {
    use assent_coordinator::{By, Fate};
    use assent_xa::Outcome;
    let own = |heuristic| Reply::Heuristic(heuristic, said("by hand"));
    // Decided; alone and never decided; rolled back and never decided.
    let cases = [
        ("commit", Heuristic::RolledBack, Outcome::Committed),
        ("one-phase", Heuristic::Mixed, Outcome::Committed),
        ("rollback", Heuristic::Committed, Outcome::RolledBack),
    ];
    for (verb, heuristic, told) in cases {
        let house = house();
        let mut a = Double::stumbling("a", &house.tale, verb, 1, own(heuristic));
        let mut b = Double::new("b", &house.tale);
        let mut tx = house.client.begin().unwrap();
        tx.enlist(&mut a);
        if verb != "one-phase" {
            tx.enlist(&mut b);
        }
        let name = tx.tx();
        let kind = if verb == "rollback" { tx.rollback().map(|_| ()) } else { tx.commit().map(|_| ()) };
        assert_eq!(kind.map_err(|error| error.kind), Err(Kind::Heuristic), "{verb}");
        let view = house.coordinator.show(name).expect(verb);
        assert_eq!(view.decided, Some((told, By::Client)), "{verb}");
        let kept = view.branches.iter().find(|it| matches!(&it.fate, Fate::Heuristic(is, _) if *is == heuristic));
        assert_eq!(kept.map(|it| it.by), Some(Some(By::Client)), "{verb}: {view:?}");
    }
}

/// Was: a rollback in the log, though its program heard that it is committed, as it is.
#[test]
fn a_branch_that_committed_by_itself_and_cannot_be_forgotten_yet_is_not_undone() {
    let house = house();
    let mut a = Double::answering("a", &house.tale, |verb| match verb {
        "one-phase" => Some(Reply::Heuristic(Heuristic::Committed, said("by hand"))),
        "forget" => Some(Reply::Lost(said("line cut"))),
        _ => None,
    });
    let mut tx = house.client.begin().unwrap();
    tx.enlist(&mut a);
    let name = tx.tx();
    let committed = tx.commit().unwrap();
    assert_eq!(committed.unfinished, [("a".to_owned(), said("line cut"))]);
    assert_eq!(house.coordinator.show(name).and_then(|view| view.decided), None);
}

#[test]
fn a_branch_that_is_unknown_to_its_commit_is_asked_for_what_became_of_it() {
    let words = || said("another timeline");
    let cases = [
        (Reply::Past(Past::Committed), "committed"),
        (Reply::Past(Past::Forgotten), "inferred"),
        (Reply::Past(Past::Open), "unfinished"),
        (Reply::Lost(words()), "unfinished"),
        // A person rolled it back, or it was lost by a fail-over: half a commit, and said so.
        (Reply::Past(Past::RolledBack), "heuristic"),
        (Reply::Past(Past::Elsewhere(words())), "heuristic"),
    ];
    for (past, expected) in cases {
        let house = house();
        let asked = past.clone();
        let mut a = Double::answering("a", &house.tale, move |verb| match verb {
            "commit" => Some(Reply::Unknown(said("no such branch"))),
            "inquire" => Some(asked.clone()),
            _ => None,
        });
        let mut b = Double::new("b", &house.tale);
        let mut tx = house.client.begin().unwrap();
        tx.enlist(&mut a);
        tx.enlist(&mut b);
        let found = match tx.commit() {
            Ok(committed) if !committed.inferred.is_empty() => "inferred",
            Ok(committed) if !committed.unfinished.is_empty() => "unfinished",
            Ok(_) => "committed",
            Err(error) => error.kind.name(),
        };
        assert_eq!(found, expected, "{past:?}");
        assert!(house.tale.take().contains("a inquire"), "{past:?}");
        assert_eq!(
            house.coordinator.gauges().heuristic,
            u64::from(expected == "heuristic"),
            "{past:?}: the operator's"
        );
    }
}

struct Far;

impl Connector for Far {
    fn name(&self) -> &str {
        "far"
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        RealClock.sleep(std::time::Duration::from_millis(30));
        Ok(Box::new(assent_resources::Dummy::new("far")))
    }
}

#[test]
fn who_has_started_a_caretaker_may_begin_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (coordinator, _log) = coordinator(folder.path());
    let agent = Agent::new(Arc::clone(&coordinator), vec![Box::new(Far)], Arc::new(RealClock));
    assert!(coordinator.handshake("early").is_err(), "another process of this node may be at work");
    let clock = Arc::new(RealClock);
    let caretaker =
        assent_coordinator::Caretaker::start(Arc::clone(&coordinator), Some(agent), clock, Box::new(|_| ()));
    let client = Client::embedded(&coordinator, Retries::default()).unwrap();
    client.begin().unwrap().commit().unwrap();
    drop((caretaker, client));
}

#[test]
fn threads_share_a_client_and_never_a_name() {
    let house = house();
    let names = std::sync::Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let (mut a, mut b) = (Double::new("a", &house.tale), Double::new("b", &house.tale));
                    let mut tx = house.client.begin().unwrap();
                    tx.enlist(&mut a);
                    tx.enlist(&mut b);
                    let committed = tx.commit().unwrap();
                    assert!(names.lock().unwrap().insert(committed.tx));
                }
            });
        }
    });
    assert_eq!(house.commits_decided(), 200);
}

/// Registered, and away.
struct Away(&'static str);

impl Connector for Away {
    fn name(&self) -> &str {
        self.0
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        Err((Kind::Unavailable, said("away")))
    }
}

fn mark(table: u64) -> Mark {
    Mark { resource: ResourceId::of("a"), table, timeline: 3 }
}

fn attended(house: &House, names: &[&'static str]) -> Agent {
    let connectors = names.iter().map(|name| Box::new(Away(name)) as Box<dyn Connector>).collect();
    Agent::new(Arc::clone(&house.coordinator), connectors, Arc::new(RealClock))
}

#[test]
fn the_last_resource_decides_with_its_commit_and_nobody_else_is_asked() {
    let house = house();
    let _agent = attended(&house, &["a", "b"]);
    let (mut a, mut b) = (Double::new("a", &house.tale), Double::new("b", &house.tale));
    a.table = Some(mark(7));
    let mut tx = house.client.begin().unwrap();
    [&mut a, &mut b].into_iter().for_each(|branch| drop(tx.enlist(branch)));
    let name = tx.tx();
    tx.commit().unwrap();
    let told = "a start, b start, a !, b !, a end, b end, a !, b !, b prepare, b !, a commit-last, a !, b commit, b !";
    assert_eq!(house.tale.take(), told);
    // Also the first one: where it is prepared after all, its siblings are looked for by its mark.
    for branch in [&a, &b] {
        assert_eq!(branch.xid.and_then(|xid| xid.branch()).and_then(|it| it.mark), Some(mark(7)));
    }
    assert_eq!(house.commits_decided(), 1, "kept for history");
    assert_eq!(house.client.ask(name), Ok(Known::Unknown), "finished, and forgotten");

    // It could not commit: the other one is rolled back, and nothing was decided.
    let refused = Reply::RolledBack(said("recovery was first"));
    let mut a = Double::stumbling("a", &house.tale, "commit-last", 1, refused);
    a.table = Some(mark(7));
    let mut tx = house.client.begin().unwrap();
    [&mut a, &mut b].into_iter().for_each(|branch| drop(tx.enlist(branch)));
    assert_eq!(tx.commit().unwrap_err().kind, Kind::RolledBack);
    assert!(house.tale.take().ends_with("a commit-last, a !, b rollback, b !"));
    assert_eq!(house.commits_decided(), 1);
}

/// Somebody has changed the table: its work is committed, and no row says so. The log does, for the others.
#[test]
fn a_last_resource_that_kept_no_decision_is_followed_all_the_same() {
    let house = house();
    let _agent = attended(&house, &["a", "b"]);
    RealClock.sleep(std::time::Duration::from_millis(1_050));
    let committed = Reply::Heuristic(Heuristic::Committed, said("no row"));
    let mut a = Double::stumbling("a", &house.tale, "commit-last", 1, committed);
    let mut b = Double::new("b", &house.tale);
    a.table = Some(mark(7));
    let mut tx = house.client.begin().unwrap();
    [&mut a, &mut b].into_iter().for_each(|branch| drop(tx.enlist(branch)));
    let syncs = house.log.counts().syncs;
    tx.commit().unwrap();
    assert!(house.log.counts().syncs > syncs, "decided, durably, before the other one is told");
    assert!(house.tale.take().ends_with("a commit-last, a !, b commit, b !"));
    assert_eq!(house.commits_decided(), 1);
}

#[test]
fn the_ordinary_way_is_taken_where_a_row_could_not_be_asked_for_or_does_not_decide() {
    let ordinary = "b prepare, c prepare, b !, c !";
    let all = "a prepare, b prepare, c prepare, a !, b !, c !";
    // Registered; in which place the one that can decide is enlisted; what is told.
    let cases: [(&[&'static str], usize, &str); 4] = [
        (&["a", "b", "c"], 0, ordinary),
        // Recovery does not reach all branches; or none: nobody attends.
        (&["a", "b"], 0, all),
        (&["b", "c"], 0, all),
        // Who began before it cannot say so in its name.
        (&["a", "b", "c"], 1, "b prepare"),
    ];
    for (registered, place, expected) in cases {
        let house = house();
        let _agent = attended(&house, registered);
        RealClock.sleep(std::time::Duration::from_millis(1_050));
        let mut branches = ["a", "b", "c"].map(|name| Double::new(name, &house.tale));
        branches[0].table = Some(mark(7));
        branches.rotate_right(place);
        let mut tx = house.client.begin().unwrap();
        branches.iter_mut().for_each(|branch| drop(tx.enlist(branch)));
        tx.commit().unwrap();
        let told = house.tale.take();
        assert!(told.contains(expected), "{registered:?} {place}: {told}");
        assert_eq!(told.contains("commit-last"), expected == ordinary, "{told}");
    }
}
