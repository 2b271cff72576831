//! The log read back: what became of whom, by every filter, in pages.

use std::ops::ControlFlow;
use std::time::Duration;

use assent_coordinator::history::{self, Filter, Past, State, Vote};
use assent_coordinator::{By, CoordinatorError, Fate, Finish};
use assent_ids::{ResourceId, TxId};
use assent_journal::Log as _;
use assent_kind::Kind;
use assent_world::Clock;
use assent_xa::{Ballot, BranchRecord, Decider, Decision, Native, Outcome, Voice, Voted};

use crate::memory::MemoryLog;
use crate::stand::{IDENTITY, NAMES, Stand, branch, commit, tx};

fn page(log: &MemoryLog, filter: &Filter) -> Result<(Vec<Past>, bool), CoordinatorError> {
    let mut all = Vec::new();
    let more = history::read(log, filter, &mut |past| {
        all.push(past.clone());
        ControlFlow::Continue(())
    })?;
    Ok((all, more))
}

fn names(log: &MemoryLog, filter: &Filter) -> Vec<TxId> {
    page(log, filter).unwrap().0.iter().map(|past| past.tx).collect()
}

/// Committed and finished by its client; in doubt; rolled back by the agent, whose client is fenced; and their times.
fn told() -> (Stand, [TxId; 3], [u64; 3]) {
    let mut stand = Stand::new();
    let (shop, bank) = (stand.coordinator.handshake("shop").unwrap(), stand.coordinator.handshake("bank").unwrap());
    let all = [tx(&shop, 1), tx(&shop, 2), tx(&bank, 1)];
    let mut times = [0; 3];
    let mut step = |stand: &Stand, at: usize| {
        stand.clock.advance(Duration::from_secs(10));
        times[at] = stand.clock.wall_ms();
    };
    step(&stand, 0);
    let with_witness = BranchRecord { witness: b"xid8".to_vec(), ..branch(NAMES[2], 7) };
    let decision = Decision { branches: vec![branch(NAMES[0], 0), with_witness], ..commit(all[0]) };
    stand.coordinator.decide(&decision).unwrap();
    step(&stand, 1);
    stand.coordinator.finished(all[0]);
    stand.coordinator.decide(&commit(all[1])).unwrap();
    stand.banks[0].prepare(IDENTITY.node, all[2], 0);
    stand.coordinator.lost(bank.incarnation);
    stand.fence();
    stand.round();
    step(&stand, 2);
    (0..3).for_each(|_| _ = stand.round());
    stand.coordinator.tick().unwrap();
    (stand, all, times)
}

#[test]
fn the_log_tells_who_decided_what_when_and_how_each_branch_ended() {
    let (stand, [one, two, three], times) = told();
    let (all, more) = page(&stand.log, &Filter::default()).unwrap();
    assert_eq!((all.iter().map(|past| past.tx).collect::<Vec<_>>(), more), (vec![one, three, two], false));
    let [first, third, second] = <[Past; 3]>::try_from(all).unwrap();
    assert_eq!((first.outcome, first.by, first.client.as_str()), (Outcome::Committed, By::Client, "shop"));
    assert_eq!((first.decided_ms, first.finished_ms), (Some(times[0]), Some(times[1])), "told with the next decision");
    assert_eq!(first.branches.iter().map(|it| it.witness.as_slice()).collect::<Vec<_>>(), [&b""[..], b"xid8"]);
    assert!(first.branches.iter().all(|it| it.fate.is_none()), "its client finished it");
    assert_eq!((second.finished_ms, second.is(State::InDoubt)), (None, true));
    assert_eq!((third.outcome, third.by, third.client.as_str()), (Outcome::RolledBack, By::Agent, "bank"));
    let branch = &third.branches[0];
    assert_eq!((branch.resource, branch.number), (ResourceId::of(NAMES[0]), 0));
    assert_eq!((&branch.fate, branch.by), (&Some(Fate::Finished(Finish::RolledBack)), Some(By::Agent)));
    assert!(branch.noted_ms >= third.decided_ms && third.finished_ms >= branch.noted_ms);
}

fn voice(ballot: Ballot) -> Voice {
    Voice { ballot, retries: 0, native: Native::default() }
}

fn ballots(list: &[Ballot]) -> Vec<Voted> {
    let voted = |(number, ballot): (u16, &Ballot)| {
        let resource = ResourceId::of(NAMES[usize::from(number)]);
        Voted { resource, number, voice: voice(*ballot) }
    };
    (0..).zip(list).map(voted).collect()
}

/// A decision names who said yes; who only read, and who said no where nobody decided, stood nowhere.
#[test]
fn every_vote_is_told_of_what_was_decided_and_of_what_nobody_decided() {
    let mut stand = Stand::new();
    let shop = stand.coordinator.embedded().unwrap();
    let begin = || shop.begin().unwrap().1;
    let [plain, reader, refused, asked] = [begin(), begin(), begin(), begin()];
    shop.decide(&commit(plain)).unwrap();
    shop.voted(reader, Outcome::Committed, &ballots(&[Ballot::Yes, Ballot::Yes, Ballot::ReadOnly]));
    shop.decide(&commit(reader)).unwrap();
    // Its decision never came: it was rolled back for another reason.
    shop.voted(refused, Outcome::Committed, &ballots(&[Ballot::Yes, Ballot::ReadOnly]));
    let mut said = ballots(&[Ballot::Yes, Ballot::No, Ballot::ReadOnly]);
    said[1].voice.native = Native { code: "23505".to_owned(), message: "m".repeat(600) };
    shop.voted(refused, Outcome::RolledBack, &said);
    shop.voted(asked, Outcome::Committed, &ballots(&[Ballot::Yes, Ballot::ReadOnly]));
    // A commit that was told three times.
    let mut told = ballots(&[Ballot::Yes, Ballot::Yes]);
    told[1].voice.retries = 2;
    told[1].voice.native.code = "08006".to_owned();
    shop.voted(plain, Outcome::Committed, &told);
    let votes = |stand: &Stand| {
        let (all, _) = page(&stand.log, &Filter::default()).unwrap();
        all.into_iter()
            .map(|past| (past.tx, past.branches.iter().map(|it| it.vote).collect::<Vec<_>>()))
            .collect::<Vec<_>>()
    };
    let [yes, no, read_only] = [Vote::Yes, Vote::No, Vote::ReadOnly].map(Some);
    let expected = [(refused, vec![yes, no, read_only]), (plain, vec![yes, yes]), (reader, vec![yes, yes, read_only])];
    assert_eq!(votes(&stand), expected, "what nobody decided is over at once");
    let (list, _) = page(&stand.log, &Filter { tx: Some(refused), ..Filter::default() }).unwrap();
    assert_eq!((list[0].outcome, list[0].by, list[0].client.as_str()), (Outcome::RolledBack, By::Client, "embedded"));
    assert!(list[0].decided_ms.is_some() && list[0].finished_ms == list[0].decided_ms);
    let native = &list[0].branches[1].native;
    assert_eq!((native.code.as_str(), native.message.len()), ("23505", 512), "its words, cut");
    let one = |tx| page(&stand.log, &Filter { tx: Some(tx), ..Filter::default() }).unwrap().0.remove(0);
    let again = &one(plain).branches[1];
    assert_eq!((again.retries, again.native.code.as_str(), &again.fate), (2, "08006", &None));
    let by = |filter: Filter| names(&stand.log, &filter);
    assert_eq!(by(Filter { state: Some(State::RolledBack), ..Filter::default() }), [refused]);
    let read_only = Filter { resource: Some(ResourceId::of(NAMES[2])), ..Filter::default() };
    assert_eq!(by(read_only), [refused, reader], "by a resource that only read, too");
    assert!(history::verify(&stand.log, None).is_ok(), "votes are in the chain");
    // Votes change nothing: a restart knows what it knew, and they are still told.
    stand.log.sync().unwrap();
    let listed: Vec<TxId> = stand.coordinator.list().iter().map(|one| one.tx).collect();
    drop(shop);
    stand.restart(false);
    assert_eq!(stand.coordinator.list().iter().map(|one| one.tx).collect::<Vec<_>>(), listed);
    assert_eq!(votes(&stand), expected);
}

#[test]
fn votes_of_strangers_and_of_more_branches_than_there_are_leave_no_trace() {
    let stand = Stand::new();
    let shop = stand.coordinator.handshake("shop").unwrap();
    let mine = tx(&shop, 1);
    let before = stand.log.stored().appends;
    let many = vec![ballots(&[Ballot::ReadOnly])[0].clone(); assent_coordinator::BRANCHES_MAX + 1];
    stand.coordinator.voted(mine, Outcome::RolledBack, &many);
    stand.coordinator.lost(shop.incarnation);
    stand.fence();
    let fenced = stand.log.stored().appends;
    stand.coordinator.voted(mine, Outcome::RolledBack, &ballots(&[Ballot::ReadOnly]));
    assert_eq!(stand.log.stored().appends, fenced, "it is fenced");
    assert!(fenced > before && page(&stand.log, &Filter::default()).unwrap().0.is_empty());
}

#[test]
fn filters_take_what_they_name_and_nothing_else() {
    let (stand, [one, two, three], times) = told();
    let by = |filter: Filter| names(&stand.log, &filter);
    let all = Filter::default;
    assert_eq!(by(Filter { since_ms: Some(times[1]), ..all() }), [three, two], "from that moment on");
    assert_eq!(by(Filter { since_ms: Some(times[0] + 1), until_ms: Some(times[1]), ..all() }), []);
    assert_eq!(by(Filter { until_ms: Some(times[1]), ..all() }), [one], "before that moment");
    assert_eq!(by(Filter { state: Some(State::Committed), ..all() }), [one, two]);
    assert_eq!(by(Filter { state: Some(State::RolledBack), ..all() }), [three]);
    assert_eq!(by(Filter { state: Some(State::InDoubt), ..all() }), [two]);
    assert_eq!(by(Filter { state: Some(State::Heuristic), ..all() }), []);
    assert_eq!(by(Filter { state: Some(State::Forced), ..all() }), []);
    assert_eq!(by(Filter { resource: Some(ResourceId::of(NAMES[2])), ..all() }), [one]);
    assert_eq!(by(Filter { tx: Some(three), ..all() }), [three]);
}

#[test]
fn pages_go_on_behind_the_last_one_told() {
    let (stand, [one, two, three], _) = told();
    let of = |after, limit| {
        let (page, more) = page(&stand.log, &Filter { after, limit, ..Filter::default() }).unwrap();
        (page.iter().map(|past| past.tx).collect::<Vec<_>>(), more)
    };
    assert_eq!(of(None, 2), (vec![one, three], true));
    assert_eq!(of(Some(three), 2), (vec![two], false));
    assert_eq!(of(Some(one), 2), (vec![three, two], false), "exactly full is not more");
    assert_eq!(of(Some(two), 2), (vec![], false));
    let gone = Some(tx(&stand.coordinator.handshake("late").unwrap(), 9));
    let error = page(&stand.log, &Filter { after: gone, ..Filter::default() }).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    let mut seen = 0;
    let stopped = history::read(&stand.log, &Filter::default(), &mut |_| {
        seen += 1;
        ControlFlow::Break(())
    });
    assert_eq!((stopped, seen), (Ok(true), 1), "the visitor may stop");
}

#[test]
fn reading_ends_when_nobody_waits_for_it_any_more() {
    let (stand, ..) = told();
    let read = |turns: u32| {
        let (mut seen, mut asked) = (0, 0);
        let mut see = |_: &Past| {
            seen += 1;
            ControlFlow::Continue(())
        };
        let mut go_on = || {
            asked += 1;
            asked <= turns
        };
        let more = history::read_while(&stand.log, &Filter::default(), &mut see, &mut go_on).unwrap();
        (more, seen, asked)
    };
    let (more, seen, entries) = read(u32::MAX);
    assert_eq!((more, seen), (Some(false), 3));
    assert!(entries > 3, "asked at each entry, told or not: {entries}");
    assert_eq!((read(0), read(entries - 1).0), ((None, 0, 1), None));
}

#[test]
fn a_name_outlives_restarts_and_checkpoints() {
    let config = assent_coordinator::Config { checkpoint_bytes: 1, ..Default::default() };
    let mut stand = Stand::with(config);
    stand.fence();
    let shop = stand.coordinator.handshake("shop").unwrap();
    for life in 1..=3 {
        stand.coordinator.decide(&commit(tx(&shop, life))).unwrap();
        stand.coordinator.tick().unwrap();
        stand.restart(false);
        stand.coordinator.resume(shop.incarnation, shop.secret).unwrap();
        assert_eq!(stand.coordinator.list()[0].label, "shop");
        stand.fence();
    }
    let (past, _) = page(&stand.log, &Filter::default()).unwrap();
    assert_eq!(past.iter().map(|past| past.client.as_str()).collect::<Vec<_>>(), ["shop"; 3]);
}

/// Recovery has not been there yet, and a person looks whose it is.
#[test]
fn what_a_fenced_client_left_behind_is_shown_with_its_name() {
    let config = assent_coordinator::Config { checkpoint_bytes: 1, ..Default::default() };
    let mut stand = Stand::with(config);
    stand.fence();
    let shop = stand.coordinator.handshake("shop").unwrap();
    let mine = tx(&shop, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.coordinator.lost(shop.incarnation);
    let label = |stand: &Stand| stand.coordinator.show(mine).unwrap().label;
    for life in 1..=3 {
        stand.fence();
        assert!(stand.coordinator.gauges().checkpoints > 0);
        assert_eq!((label(&stand).as_str(), life), ("shop", life), "fenced");
        stand.restart(false);
        assert_eq!((label(&stand).as_str(), life), ("shop", life), "restarted");
    }
}

#[test]
fn the_name_of_a_client_that_is_gone_stays_with_what_recovery_decided_for_it() {
    let config = assent_coordinator::Config { checkpoint_bytes: 1, ..Default::default() };
    let mut stand = Stand::with(config);
    stand.log.stored().is_archived = true;
    stand.fence();
    let bank = stand.coordinator.handshake("bank").unwrap();
    stand.banks[0].prepare(IDENTITY.node, tx(&bank, 1), 0);
    stand.coordinator.lost(bank.incarnation);
    // Fenced, and a checkpoint behind it that does not name it any more.
    stand.fence();
    (0..3).for_each(|_| _ = stand.round());
    let (past, _) = page(&stand.log, &Filter::default()).unwrap();
    assert_eq!(past.iter().map(|past| (past.client.as_str(), past.by)).collect::<Vec<_>>(), [("bank", By::Agent)]);
}
