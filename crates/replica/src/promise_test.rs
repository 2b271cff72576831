//! A lease, and what a standby promises for it: kept in each life, also where nobody asks for one any more.

use assent_ids::Epoch;
use assent_membership::{Ack, Body, Configuration, History, InSync, Setup, Standing, Word};

use crate::rules::Rule;
use crate::simulation_test::{Group, Shape};
use crate::stage_test::{A, B, formed, life, said, shape};
use crate::toy_test::Toys;
use crate::{Input, Opened, Output, ReadAt, Refused, Replica, Said, Settings};

#[test]
fn a_lease_answers_reads_alone_and_ends_when_its_standby_is_gone() {
    let shape = Shape { lease: true, ..shape(Ack::Received) };
    let mut group = formed(&shape);
    let time = group.seats[0].time(group.now_ms);
    assert_eq!(group.seats[0].up.as_mut().unwrap().replica.read(time), Ok(ReadAt::Now));
    let time = group.seats[1].time(group.now_ms);
    assert!(matches!(
        group.seats[1].up.as_mut().unwrap().replica.read(time),
        Err(Refused::NotLeading { primary: Some(A) })
    ));
    group.cut_off(0, true, 1_000);
    let reads = |group: &mut Group<Toys>| {
        let time = group.seats[0].time(group.now_ms);
        group.seats[0].up.as_mut().unwrap().replica.read(time)
    };
    let begun = group.now_ms;
    while reads(&mut group) == Ok(ReadAt::Now) {
        group.run(1);
        assert!(group.now_ms < begun + 120, "the lease is never over");
    }
    assert_ne!(group.seats[1].up.as_ref().unwrap().replica.standing(), Standing::Leads, "and nobody else leads yet");
    group.run(500);
    assert_eq!(group.seats[1].up.as_ref().unwrap().replica.standing(), Standing::Leads);
}

#[test]
fn a_standby_that_was_told_to_promise_nothing_makes_each_read_ask_the_set() {
    let shape = Shape { lease: true, mixed: true, ..shape(Ack::Received) };
    let mut group = formed(&shape);
    let time = group.seats[0].time(group.now_ms);
    assert!(matches!(group.seats[0].up.as_mut().unwrap().replica.read(time), Ok(ReadAt::Beat(_))));
}

#[test]
fn who_promised_in_an_earlier_life_keeps_it_also_where_it_is_told_of_no_lease_now() {
    // B promised A not to lead for 100 ms, and started again without a lease; A was cut off from it and answered reads from its own
    // promise still, while B led and executed what those reads did not show.
    let in_sync = InSync::only(A, life(A)).with(B, life(B));
    let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: false };
    let start = |promised_ms| {
        let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack: Ack::Received };
        let opened = Opened { known: led.clone(), promised_ms, ..Opened::default() };
        Replica::start(Settings::new(setup), opened, 1_000).unwrap()
    };
    let asks = |out: &[Output]| out.iter().any(|one| matches!(one, Output::Change { to, .. } if to.primary == Some(B)));
    for (promised_ms, left_out, free_at) in
        [(0, None, 1_010), (100, None, 1_100), (100, Some(Rule::EarlierPromise), 1_010)]
    {
        let (mut replica, first) = start(promised_ms);
        replica.left_out = left_out;
        assert!(!asks(&first));
        let lead = Body::Lead { configuration: led.clone(), base: History::default(), beat: 1, aside: false };
        replica.step(said(A, B, Said::Letter(lead)), 1_005);
        assert_eq!(replica.standing(), Standing::Follows(A));
        let mut asked_at = None;
        for now in (1_010..1_300).step_by(10) {
            let mut out = replica.step(Input::Lost(A), now);
            out.extend(replica.step(Input::Arbiter(led.clone()), now));
            // What it need not keep any more it forgets, once.
            assert!(!out.contains(&Output::Promise(0)) || (promised_ms > 0 && now >= 1_100), "at {now}");
            if asks(&out) {
                asked_at = Some(now);
                break;
            }
        }
        assert_eq!(asked_at, Some(free_at), "{promised_ms} ms were promised");
    }
}

#[test]
fn a_lead_that_was_forced_once_breaks_no_promise_later() {
    // A person had forced A's lead, and that stays in the configuration until he says that what was lost is settled. Each later candidacy
    // passed for a forced one: B led within its promise, and A answered reads that did not show what B had executed.
    let in_sync = InSync::only(A, life(A)).with(B, life(B));
    let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: true };
    for by_force in [false, true] {
        let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack: Ack::Received };
        let opened = Opened { known: led.clone(), promised_ms: 5_000, ..Opened::default() };
        let (mut replica, _) = Replica::start(Settings::new(setup), opened, 1_000).unwrap();
        let mut asked_at = None;
        for now in (1_020..8_000).step_by(20) {
            let mut out = replica.step(Input::Arbiter(led.clone()), now);
            if by_force && now == 1_500 {
                out.extend(replica.word(Word::Force, now).unwrap());
                out.extend(replica.step(Input::Arbiter(led.clone()), now));
            }
            if out.iter().any(|one| matches!(one, Output::Change { to, .. } if to.primary == Some(B))) {
                asked_at = Some(now);
                break;
            }
        }
        assert_eq!(asked_at, Some(if by_force { 1_500 } else { 6_000 }), "by force: {by_force}");
    }
}

#[test]
fn a_promise_is_durable_before_it_is_given_and_forgotten_when_it_is_over() {
    let setup = |lease| {
        let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack: Ack::Received };
        Settings { lease, ..Settings::new(setup) }
    };
    let lease = |length_ms| Some(crate::LeaseSettings { length_ms, drift_ppm: 0 });
    let first = |lease, promised_ms| {
        let opened = Opened { promised_ms, ..Opened::default() };
        Replica::start(setup(lease), opened, 0).unwrap()
    };
    assert_eq!(first(lease(100), 0).1.first(), Some(&Output::Promise(100)), "before anything is said");
    let promises = |out: &[Output]| out.iter().any(|one| matches!(one, Output::Promise(_)));
    assert!(
        !promises(&first(lease(100), 100).1) && !promises(&first(lease(100), 150).1) && !promises(&first(None, 0).1)
    );
    let (mut replica, out) = first(None, 100);
    assert!(!promises(&out) && !promises(&replica.step(Input::Time, 99)));
    assert!(replica.step(Input::Time, 120).contains(&Output::Promise(0)));
    assert!(!promises(&replica.step(Input::Time, 140)), "once");
}
