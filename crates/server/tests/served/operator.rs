//! What an operator may do and read: decide what nobody has decided, forget what went its own way, the log and its chain.

use assent_ids::{ResourceId, TxId};
use assent_journal::Log;
use assent_kind::Kind;
use assent_link::{Link, LinkConfig, LinkError};
use assent_wire::{
    Action, Answer, BranchRecord, By, Decide, Detail, Deviation, Fate, Hello, Heuristic, LogQuery, LogState, Native,
    OperatorWord, Outcome, PastView, Request, Role, Standing, TransactionView, VERSIONS, Versions, Vote, Voted,
    WireError,
};

use crate::house::{Rules, Street, eventually, get, is_yes, refusal, street};

/// The kind of a seal's record.
const SEAL: u16 = 0x0801;

const ANNA: OperatorWord<'static> = OperatorWord { who: "anna", reason: "ticket 7" };

fn with<T>(link: &Link, request: &Request<'_>, read: impl FnOnce(Answer<'_>) -> T) -> T {
    let arrived = link.request(request).unwrap();
    read(arrived.answer().unwrap())
}

fn view<T>(link: &Link, tx: TxId, read: impl FnOnce(Option<&TransactionView<'_>>) -> T) -> T {
    with(link, &Request::TxShow(tx), |answer| match answer {
        Answer::Transactions { list, .. } => read(list.first()),
        other => panic!("{other:?}"),
    })
}

fn log<T>(link: &Link, query: LogQuery<'_>, read: impl FnOnce(bool, &[PastView<'_>]) -> T) -> T {
    with(link, &Request::TxLog(query), |answer| match answer {
        Answer::Log { more, detail: Detail::Fates, list } => read(more, &list),
        other => panic!("{other:?}"),
    })
}

/// Prepared in both stores, and its client gone, who may come back for a long time.
fn orphan(street: &Street) -> (Link, TxId) {
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    let admin = street.coordinator.link(Role::Admin);
    // Recovery has seen it.
    admin.request(&Request::TxRecover).unwrap();
    let force = Request::TxForce { tx, outcome: Outcome::Committed, word: ANNA };
    let (kind, why) = refusal(admin.request(&force).and_then(|it| it.answer().map(|_| ())));
    assert_eq!(kind, Kind::Conflict, "{why}");
    committer.decisions.close("the client dies");
    eventually("the client is lost", || {
        view(&admin, tx, |view| view.is_some_and(|view| view.standing == Standing::Lost))
    });
    (admin, tx)
}

#[test]
fn an_operator_decides_what_nobody_has_decided_and_the_log_says_who_and_why() {
    let street = street(&Rules { client_lost_ms: 60_000, ..Rules::default() });
    let (admin, tx) = orphan(&street);
    let forced = |outcome| {
        with(&admin, &Request::TxForce { tx, outcome, word: ANNA }, |answer| match answer {
            Answer::Decided(outcome) => outcome,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(forced(Outcome::Committed), Outcome::Committed);
    assert_eq!(forced(Outcome::RolledBack), Outcome::Committed, "the first word stands");
    eventually("both stores have it", || {
        [&street.a, &street.b].iter().all(|store| get(&store.store_link(), b"key") == Some(b"v".to_vec()))
    });
    let query = LogQuery { state: Some(LogState::Forced), limit: 10, ..LogQuery::default() };
    log(&admin, query, |more, list| {
        assert!(!more && list.len() == 1, "{list:?}");
        assert_eq!((list[0].tx, list[0].outcome, list[0].by), (tx, Outcome::Committed, By::Operator));
        let said: Vec<_> = list[0].words.iter().map(|word| (word.action, word.who, word.reason)).collect();
        assert_eq!(said, [(Action::Commit, "anna", "ticket 7")]);
    });
}

/// For history: told by its own client alone, in a message of version 3; an older reader is told the same without votes.
#[test]
fn votes_that_a_client_tells_are_in_the_log_and_those_of_another_are_not() {
    let street = street(&Rules { client_lost_ms: 60_000, ..Rules::default() });
    let mut committer = street.committer();
    let tx = committer.begin();
    let voted = |vote, code| {
        let native = Native { code, message: "" };
        Voted { resource: ResourceId::of("a"), number: 0, vote, retries: 0, native }
    };
    let told = |vote, code| Request::Votes { tx, outcome: Outcome::RolledBack, votes: vec![voted(vote, code)] };
    let other = street.committer();
    other.decisions.one_way(&told(Vote::Yes, "forged")).unwrap();
    other.decisions.request(&Request::Ping).unwrap();
    let admin = street.coordinator.link(Role::Admin);
    let query = LogQuery { tx: Some(tx), limit: 10, ..LogQuery::default() };
    log(&admin, query, |_, list| assert!(list.is_empty(), "not his: {list:?}"));
    committer.decisions.one_way(&told(Vote::No, "23505")).unwrap();
    committer.decisions.request(&Request::Ping).unwrap();
    log(&admin, query, |_, list| {
        let branch = list[0].branches[0];
        assert_eq!((list.len(), branch.resource, branch.vote, branch.native.code), (1, "a", None, "23505"));
    });
    with(&admin, &Request::TxLogVotes(query), |answer| match answer {
        Answer::Log { detail: Detail::Votes, list, .. } => {
            assert_eq!((list[0].outcome, list[0].branches[0].vote), (Outcome::RolledBack, Some(Vote::No)));
        }
        other => panic!("{other:?}"),
    });
}

/// An operator's program of an older release is told what it asks for, as before; it cannot ask for more.
#[test]
fn what_a_decision_keeps_of_a_vote_is_told_in_version_4_and_older_programs_go_on_without() {
    let street = street(&Rules { client_lost_ms: 60_000, ..Rules::default() });
    let mut committer = street.committer();
    let tx = committer.begin();
    let record =
        |number, witness| BranchRecord { resource: ResourceId::of("a"), number, flags: 0, mark: None, witness };
    let branches = vec![record(0, &b"pg1 role=\x1b[31m"[..]), record(1, b"")];
    let decide = Request::Decide(Decide { tx, outcome: Outcome::Committed, first: true, branches });
    with(&committer.decisions, &decide, |answer| assert_eq!(answer, Answer::Decided(Outcome::Committed)));
    let query = LogQuery { tx: Some(tx), limit: 10, ..LogQuery::default() };
    let told = |link: &Link, request: Request<'_>, expected: Detail| {
        with(link, &request, |answer| match answer {
            Answer::Log { detail, list, .. } if detail == expected => {
                list[0].branches.iter().map(|it| (it.has_witness, it.vote, it.witness.to_vec())).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        })
    };
    let (yes, none) = (Some(Vote::Yes), Vec::new);
    for max in 1..=VERSIONS.max {
        let hello = Hello { versions: Versions { min: 1, max }, ..Hello::new(Role::Admin) };
        let link = Link::connect(street.coordinator.address(), &hello, &LinkConfig::default()).unwrap();
        let fates = told(&link, Request::TxLog(query), Detail::Fates);
        assert_eq!(fates, [(true, None, none()), (false, None, none())]);
        if max >= 3 {
            let votes = told(&link, Request::TxLogVotes(query), Detail::Votes);
            assert_eq!(votes, [(true, yes, none()), (false, yes, none())]);
        }
        let request = Request::TxLogWitnesses(query);
        if max >= 4 {
            let witnesses = told(&link, request, Detail::Witnesses);
            assert_eq!(witnesses, [(true, yes, b"pg1 role=\x1b[31m".to_vec()), (false, yes, none())]);
        } else {
            let expected = WireError::Since { since: 4, version: max };
            assert_eq!(link.send(&request).map(drop), Err(LinkError::Wire(expected)));
        }
    }
}

#[test]
fn a_heuristic_outcome_that_a_client_tells_stays_listed_until_a_person_forgets_it() {
    let street = street(&Rules { client_lost_ms: 60_000, ..Rules::default() });
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    assert_eq!(committer.decide(tx), Outcome::Committed);
    let strayed = |tx| {
        let native = Native { code: "XA_HEURRB", message: "rolled back by hand" };
        let heuristic = Heuristic::RolledBack;
        let branch = Deviation { resource: ResourceId::of("a"), number: 0, flags: 0, heuristic, native };
        Request::Heuristic { tx, told: Outcome::Committed, branches: vec![branch] }
    };
    let other = street.committer();
    // Not his.
    other.decisions.one_way(&strayed(tx)).unwrap();
    other.decisions.request(&Request::Ping).unwrap();
    let admin = street.coordinator.link(Role::Admin);
    let fates = || view(&admin, tx, |view| view.unwrap().branches.iter().map(|it| it.fate).collect::<Vec<_>>());
    assert!(!fates().contains(&Fate::Heuristic(Heuristic::RolledBack)), "{:?}", fates());
    committer.decisions.one_way(&strayed(tx)).unwrap();
    committer.decisions.request(&Request::Ping).unwrap();
    assert!(fates().contains(&Fate::Heuristic(Heuristic::RolledBack)), "{:?}", fates());
    view(&admin, tx, |view| {
        let branch = view.unwrap().branches.iter().find(|it| it.resource == "a").unwrap();
        assert_eq!((branch.native.code, branch.by), ("XA_HEURRB", Some(By::Client)));
    });
    committer.decisions.one_way(&Request::Acknowledged(vec![tx])).unwrap();
    assert_eq!(street.coordinator.number("assent_heuristic"), 1.0);
    with(&admin, &Request::TxForget { tx, word: ANNA }, |answer| assert_eq!(answer, Answer::Forgotten));
    assert_eq!(street.coordinator.number("assent_heuristic"), 0.0);
    let refused = admin.request(&Request::TxForget { tx, word: ANNA });
    let (kind, why) = refusal(refused.and_then(|it| it.answer().map(|_| ())));
    assert_eq!(kind, Kind::NotFound, "{why}");
}

#[test]
fn the_log_comes_in_pages_and_its_chain_is_checked_while_the_server_works() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let done: Vec<TxId> = (0..5_u8).map(|number| committer.commit(&[number], b"v")).collect();
    // Whatever is told after them, they are finished.
    committer.decisions.request(&Request::Ping).unwrap();
    let admin = street.coordinator.link(Role::Admin);
    let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let query = LogQuery { after, limit: 2, resource: Some("a"), ..LogQuery::default() };
        let more = log(&admin, query, |more, list| {
            assert!(list.len() <= 2);
            all.extend(list.iter().map(|past| past.tx));
            assert!(list.iter().all(|past| past.client == "committer" && past.branches.len() == 2), "{list:?}");
            more
        });
        (after, pages) = (all.last().copied(), pages + 1);
        if !more {
            break;
        }
    }
    all.sort_unstable();
    assert_eq!((all, pages), (done, 3));
    log(&admin, LogQuery { resource: Some("nobody"), limit: 5, ..LogQuery::default() }, |_, list| {
        assert!(list.is_empty(), "{list:?}");
    });
    eventually("a seal stands over what was written", || {
        with(&admin, &Request::TxVerify { kept: None }, |answer| match answer {
            Answer::Verified(found) => found.head.is_some() && found.is_whole && found.records > 5,
            other => panic!("{other:?}"),
        })
    });
    let refused = admin.request(&Request::TxVerify { kept: Some((1, [7; 32])) });
    let (kind, why) = refusal(refused.and_then(|it| it.answer().map(|_| ())));
    assert_eq!(kind, Kind::Corrupt, "{why}");
    let word = OperatorWord { who: &"x".repeat(200), reason: "" };
    let refused = admin.request(&Request::TxForget { tx: TxId { counter: 9, ..after.unwrap() }, word });
    let (kind, why) = refusal(refused.and_then(|it| it.answer().map(|_| ())));
    assert!(kind == Kind::Invalid && why.contains("128"), "{why}");
}

#[test]
fn a_head_that_is_told_is_on_disk() {
    let street = street(&Rules { rpo_ms: 60_000, ..Rules::default() });
    street.committer().commit(b"key", b"v");
    let admin = street.coordinator.link(Role::Admin);
    let mut number = 0;
    eventually("a seal is told", || {
        number = with(&admin, &Request::TxVerify { kept: None }, |answer| match answer {
            Answer::Verified(found) => found.head.map_or(0, |head| head.number),
            other => panic!("{other:?}"),
        });
        number > 0
    });
    // What a power cut at this moment leaves; every seal counts one more.
    let journal = &street.coordinator.journal;
    let durable = journal.durable();
    let on_disk = journal.read(journal.oldest()).unwrap().map(Result::unwrap).filter(|entry| entry.end <= durable);
    let seals = on_disk.filter(|entry| entry.kind == SEAL).count();
    assert!(u64::try_from(seals).unwrap() >= number, "seal {number} was told, {seals} are on disk");
}

#[test]
fn the_number_of_held_transactions_is_told_in_its_own_words() {
    let street = street(&Rules::default());
    let text = street.coordinator.metrics.text();
    let help: Vec<&str> = text.lines().filter(|line| line.starts_with("# HELP assent_held ")).collect();
    assert!(help.len() == 1 && help[0].contains("Undecided") && help[0].contains("RPO > 0"), "{help:?}");
}
