//! What people will see: a standby that is too slow, a standby that was away for long, damage, states that differ, too much at once.

use assent_ids::Epoch;
use assent_membership::{Ack, Body, Configuration, History, InSync, Reach, Sequence, Setup, Standing, Word};

use crate::desk::Shown;
use crate::rules::Rule;
use crate::simulation_test::{Play as _, Shape};
use crate::stage_test::{A, B, digest, formed, life, primary, said, sent, shape};
use crate::toy_test::Request;
use crate::{Chain, Fault, Input, Mark, Message, Opened, Output, Replica, Said, Settings, Told};

#[test]
fn a_vote_waits_for_every_disk_in_the_set_and_what_asks_for_less_does_not() {
    for ack in [Ack::None, Ack::Received, Ack::Written] {
        let mut group = formed(&shape(ack));
        group.stuck_disks.insert(1);
        group.run(60);
        let (before, voted) = (group.play.acked.len(), group.play.voted);
        assert!(voted > Sequence(0), "{}", group.brief());
        // Two clients: what is no vote is answered, until each of them waits for one.
        group.run(100);
        assert_eq!(group.play.voted, voted, "{ack:?}: told, and not on the standby's disk");
        assert!(group.arbiter.in_sync.len() == 2 && group.play.acked.len() >= before, "{}", group.brief());
        // The disk stays as it is: its member is taken out, for a vote's sake alone.
        group.run(900);
        assert!(group.arbiter.in_sync.is_only(A), "{ack:?}: {}", group.brief());
        assert!(group.play.voted > voted && group.play.acked.len() > before + 5, "{}", group.brief());
        group.stuck_disks.clear();
        group.run(2_000);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
    }
}

#[test]
fn a_standby_that_confirms_nothing_is_taken_out_and_comes_back() {
    let mut group = formed(&shape(Ack::Durable));
    group.stuck_disks.insert(1);
    let before = group.play.acked.len();
    group.run(1_000);
    assert!(group.arbiter.in_sync.is_only(A), "{}", group.brief());
    assert!(group.play.acked.len() > before + 5, "the primary goes on alone: {}", group.brief());
    group.stuck_disks.clear();
    group.run(1_000);
    assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
    // And without the rule it is waited for, as its heartbeats come.
    let mut group = formed(&Shape { left_out: Some(Rule::SlowGoes), ..shape(Ack::Durable) });
    group.stuck_disks.insert(1);
    group.run(100);
    let before = group.play.acked.len();
    group.run(1_500);
    assert_eq!((group.play.acked.len(), group.arbiter.in_sync.len()), (before, 2), "{}", group.brief());
}

#[test]
fn a_standby_that_was_away_for_long_gets_a_snapshot_and_then_the_log() {
    let mut group = formed(&shape(Ack::Received));
    group.crash(1, None, 9_000);
    group.run(9_000);
    let floor = group.seats[0].up.as_ref().unwrap().shelf.base().end.sequence;
    let end = group.seats[1].disk.used_bytes();
    assert!(floor > Sequence(100) && end > 0, "{}", group.brief());
    group.run(1_500);
    let standby = group.seats[1].up.as_ref().unwrap();
    assert!(standby.installs > 0, "{}", group.brief());
    assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
    group.play.quiet();
    group.run(500);
    assert!(group.is_healed(), "{}", group.brief());
    group.audit();
    assert_eq!(group.broken, None);
}

#[test]
fn a_state_that_differs_is_noticed_and_its_member_stops() {
    for left_out in [None, Some(Rule::Compare)] {
        let mut group = formed(&Shape { left_out, ..shape(Ack::Received) });
        let toy = &mut group.seats[1].up.as_mut().unwrap().machine;
        *toy.assets.entry(0).or_default() += 1;
        group.run(1_000);
        let noticed = group.broken.as_ref().is_some_and(|broken| broken.contains("member 1 halts: after entry"));
        assert_eq!(noticed, left_out.is_none(), "{:?}", group.broken);
    }
}

#[test]
fn a_lost_primarys_state_of_entries_that_are_not_here_is_not_compared() {
    // The standby had not caught up, heard of the primary's state farther on, and a person forced it to lead: at the entry with that
    // number it compared its own state with the lost one's, and stopped. So did one that followed another primary then.
    let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack: Ack::Received };
    let (mut standby, _) = Replica::start(Settings::new(setup), Opened::default(), 0).unwrap();
    let in_sync = InSync::only(A, life(A));
    let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: false };
    let leads = |configuration: &Configuration| {
        let body = Body::Lead { configuration: configuration.clone(), base: History::default(), beat: 0, aside: false };
        Message { from: A, to: B, told: digest(Ack::Received), epoch: configuration.epoch, said: Said::Letter(body) }
    };
    standby.step(Input::Heard(leads(&led)), 1);
    assert_eq!(standby.standing(), Standing::Follows(A));
    standby.step(said(A, B, Said::State { at: Sequence(64), hash: 1 }), 2);
    let mut other = standby.clone();
    standby.word(Word::Force, 3).unwrap();
    standby.step(Input::Arbiter(led.clone()), 4);
    let out = standby.step(Input::Arbiter(led.alone(B, life(B), true)), 5);
    assert!(out.contains(&Output::Lead(Epoch(2))), "{out:?}");
    let halts = |out: &[Output]| out.iter().any(|output| matches!(output, Output::Halt(_)));
    assert!(!halts(&standby.step(Input::State { at: Sequence(64), hash: 2 }, 6)), "it is its own history now");
    // Nothing is cut where the logs meet at the end.
    let next = Configuration { version: 2, epoch: Epoch(2), ..led };
    let out = other.step(Input::Heard(leads(&next)), 3);
    assert!(sent(out).iter().any(|said| matches!(said, Said::Resume(_))) && other.standing() == Standing::Follows(A));
    assert!(!halts(&other.step(Input::State { at: Sequence(64), hash: 2 }, 4)));
}

#[test]
fn a_log_that_is_not_what_its_history_says_is_refused() {
    for left_out in [None, Some(Rule::SameChain)] {
        let mut primary = primary();
        primary.left_out = left_out;
        primary.submit(1, b"one").unwrap();
        primary.submit(1, b"two").unwrap();
        let out = primary.step(Input::Time, 1);
        assert!(matches!(out.as_slice(), [Output::Append(run), ..] if run.len() == 2), "one run of both: {out:?}");
        let damaged = Mark { sequence: Sequence(1), chain: Chain(4711) };
        let said = sent(primary.step(said(B, A, Said::Resume(damaged)), 2));
        let refused = said.contains(&Said::Differs(Sequence(1)));
        let streams = said.iter().any(|said| matches!(said, Said::Stream { .. }));
        assert_eq!((refused, streams), (left_out.is_none(), left_out.is_some()), "{said:?}");
    }
    // And who is told so stops.
    let mut group = formed(&shape(Ack::Received));
    let up = group.seats[1].up.as_mut().unwrap();
    let epoch = up.replica.configuration().epoch;
    let message = Message { from: A, to: B, told: digest(Ack::Received), epoch, said: Said::Differs(Sequence(1)) };
    let out = up.replica.step(Input::Heard(message), u64::MAX / 2);
    assert!(out.contains(&Output::Halt(Fault::LogDiffers { at: Sequence(1) })), "{out:?}");
    assert_eq!(up.replica.step(Input::Time, u64::MAX / 2), [], "it says nothing any more");
}

#[test]
fn a_lower_epoch_is_refused_in_every_message_of_the_stream() {
    let mut primary = primary();
    let out = primary.step(
        Input::Heard(Message {
            from: B,
            to: A,
            told: digest(Ack::Received),
            epoch: Epoch(0),
            said: Said::Resume(Mark::default()),
        }),
        1,
    );
    assert!(!sent(out).iter().any(|said| matches!(said, Said::Stream { .. })));
    primary.submit(1, b"one").unwrap();
    let out = primary.step(Input::Time, 1);
    assert!(!sent(out).iter().any(|said| matches!(said, Said::Stream { .. })), "nobody resumed");
    let out = primary.step(said(B, A, Said::Resume(Mark::default())), 1);
    assert!(sent(out).iter().any(|said| matches!(said, Said::Stream { entries, .. } if entries.len() == 1)));
}

#[test]
fn a_paused_primary_acknowledges_nothing_and_its_standby_leads_soon() {
    let mut group = formed(&shape(Ack::Received));
    group.pause(0, 2_000);
    group.run(500);
    let standing = group.seats[1].up.as_ref().unwrap().replica.standing();
    assert_eq!((standing, group.arbiter.epoch), (Standing::Leads, Epoch(2)), "{}", group.brief());
    group.run(3_000);
    assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
}

#[test]
fn an_arbiter_whose_disk_is_full_stops_no_pair_that_was_apart_for_a_moment() {
    let mut group = formed(&shape(Ack::Received));
    group.is_full = true;
    group.cut_off(0, false, 200);
    group.run(400);
    let before = group.play.acked.len();
    group.run(600);
    assert!(group.play.acked.len() > before + 5, "{}", group.brief());
    assert_eq!((group.arbiter.in_sync.len(), group.arbiter.epoch), (2, Epoch(1)), "{}", group.brief());
    group.is_full = false;
    group.run(600);
    assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
}

#[test]
fn a_primary_cut_off_from_everybody_acknowledges_nothing() {
    let mut group = formed(&shape(Ack::Received));
    group.cut_off(0, true, 1_500);
    group.run(1_400);
    let up = group.seats[0].up.as_mut().unwrap();
    let before = up.replica.confirmed();
    for number in 1..4 {
        up.submit(Request { client: 9, number }.payload(), false);
    }
    group.run(90);
    assert_eq!(group.seats[0].up.as_ref().unwrap().replica.confirmed(), before);
    assert_eq!(group.seats[1].up.as_ref().unwrap().replica.standing(), Standing::Leads);
    group.run(3_000);
    assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
    group.audit();
    assert_eq!(group.broken, None);
}

#[test]
fn a_primary_at_rest_says_its_heartbeats_and_asks_the_arbiter_seldom() {
    let mut primary = primary();
    let held = || {
        let body = Body::Held { life: life(B), reach: Reach::default(), beat: 0, out: false, promised_ms: 0 };
        said(B, A, Said::Letter(body))
    };
    let (mut reads, mut leads) = (0, 0);
    for now in (20..=3_000).step_by(20) {
        for out in [primary.step(Input::Time, now), primary.step(held(), now)].concat() {
            match out {
                Output::Read => reads += 1,
                Output::Send(Message { said: Said::Letter(Body::Lead { .. }), .. }) => leads += 1,
                Output::Send(Message { said: Said::Stream { entries, .. }, .. }) if entries.is_empty() => {}
                other => panic!("at rest it wants {other:?}"),
            }
        }
    }
    assert_eq!((reads, leads), (3_000 / 160, 150), "with every tick it says that it leads, and in 150 ms it asks once");
    let asks = |out: Vec<Output>| out.contains(&Output::Read);
    assert!(!asks(primary.step(Input::Time, 3_020)), "nobody waits for the answer");
    assert!(asks(primary.word(Word::HandOver(B), 3_021).unwrap()), "who gives the lead away does");
    assert!(asks(primary.step(Input::Time, 3_040)));
}

#[test]
fn who_watches_is_told_of_changes_and_of_nothing_else() {
    let (mut primary, mut shown) = (primary(), Shown::default());
    let mut look = |primary: &mut Replica, input, now| {
        primary.step(input, now);
        shown.look(primary);
        shown.changes.value()
    };
    assert_eq!(look(&mut primary, Input::Time, 1), 1, "it leads");
    for now in 2..140 {
        primary.submit(1, b"command").unwrap();
        assert_eq!(look(&mut primary, Input::Time, now), 1, "at {now}");
    }
    let told = Told::new(Ack::Durable, "", "");
    let message =
        Message { from: B, to: A, told: told.digest(), epoch: Epoch(1), said: Said::Told { told, asks: false } };
    assert_eq!(look(&mut primary, Input::Heard(message), 140), 1, "not with each turn");
    assert_eq!(look(&mut primary, Input::Time, 190), 2, "another one was told otherwise");
    let in_sync = InSync::only(B, life(B)).with(A, life(A));
    let led = Configuration { version: 2, epoch: Epoch(2), primary: Some(B), in_sync, forced: false };
    assert_eq!(look(&mut primary, Input::Arbiter(led), 250), 3, "another one leads");
}

#[test]
fn a_cut_behind_the_snapshot_stops_the_member() {
    let mut history = History::default();
    history.grew(Epoch(1), Sequence(9));
    let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack: Ack::None };
    let end = Mark { sequence: Sequence(9), chain: Chain(9) };
    let opened = Opened { history, end, base: Sequence(8), ..Opened::default() };
    let (mut replica, _) = Replica::start(Settings::new(setup), opened, 0).unwrap();
    let configuration = Configuration {
        version: 5,
        epoch: Epoch(2),
        primary: Some(A),
        in_sync: InSync::only(A, life(A)),
        forced: true,
    };
    let mut base = History::default();
    base.grew(Epoch(1), Sequence(5));
    let lead = Body::Lead { configuration, base, beat: 0, aside: false };
    let lead = Message { from: A, to: B, told: digest(Ack::None), epoch: Epoch(2), said: Said::Letter(lead) };
    let out = replica.step(Input::Heard(lead), 1);
    assert!(out.contains(&Output::Halt(Fault::CutBehindSnapshot { to: Sequence(5), base: Sequence(8) })), "{out:?}");
}

#[test]
fn a_snapshot_under_way_when_its_entries_are_cut_is_not_kept() {
    // A acknowledges without anybody (ack none), captures its state for a snapshot, and is replaced by B, which lacks the last of it. A
    // cuts those entries. Then its snapshot was done: a restart began with what nobody else had, and vouched for it.
    for never_revokes in [false, true] {
        let calm = Shape { snapshot_ms: 60_000..60_001, pause_ms: 60_000..60_001, ..shape(Ack::None) };
        let mut group = formed(&Shape { never_revokes, ..calm });
        group.cut_off(0, false, 600);
        for number in 1..4 {
            let request = Request { client: 9, number };
            assert!(group.seats[0].up.as_mut().unwrap().submit(request.payload(), false));
        }
        group.run(80);
        assert!(group.seats[0].snap(), "{}", group.brief());
        let captured = group.seats[0].up.as_ref().unwrap().applied;
        // Its clients would not understand that their commands are gone.
        group.play.quiet();
        group.run(1_500);
        assert_eq!((group.arbiter.primary, &group.broken), (Some(B), &None), "{}", group.brief());
        assert!(group.seats[0].up.as_ref().unwrap().replica.counts.cuts > 0, "{}", group.brief());
        let (shape, now) = (group.shape.clone(), group.now_ms);
        group.seats[0].snapped(&shape, now);
        let kept = group.seats[0].up.as_ref().unwrap().shelf.base().end;
        let ends = group.seats[0].up.as_ref().unwrap().log.end().sequence;
        assert!(ends < captured.sequence, "it was cut: {}", group.brief());
        assert_eq!(kept == captured, never_revokes, "{kept:?}");
        if !never_revokes {
            group.crash(0, None, 50);
            group.run(1_500);
            let applied = group.seats.iter().map(|seat| seat.up.as_ref().unwrap().applied).collect::<Vec<_>>();
            assert_eq!((applied[0], group.arbiter.in_sync.len()), (applied[1], 2), "{}", group.brief());
        }
    }
}

#[test]
fn a_standby_joins_although_a_snapshot_takes_longer_to_send_than_there_is_between_two() {
    for left_out in [None, Some(Rule::Hold)] {
        let often = Shape { snapshot_ms: 1..4, pause_ms: 10..20, piece_bytes: 1, ..shape(Ack::Received) };
        let mut group = formed(&Shape { left_out, ..often });
        // Longer than anything is held for it.
        group.crash(1, None, 5_000);
        group.run(5_000);
        let floor = group.seats[0].up.as_ref().unwrap().replica.trimmed;
        group.run(12_000);
        let (primary, standby) = (group.seats[0].up.as_ref().unwrap(), group.seats[1].up.as_ref().unwrap());
        assert!(standby.installs > 0 && group.broken.is_none(), "{}", group.brief());
        assert!(primary.replica.trimmed > floor, "in the end it is let go: {}", group.brief());
        let joined = group.arbiter.in_sync.len() == 2;
        assert_eq!(joined, left_out.is_none(), "{} installations; {}", standby.installs, group.brief());
        assert!(joined == (standby.installs == 1), "{}", standby.installs);
    }
}
