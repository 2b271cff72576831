//! What people will see: a standby that is too slow, a standby that was away for long, damage, states that differ, too much at once.

use assent_ids::Epoch;
use assent_membership::{
    Ack, Body, Configuration, History, InSync, Life, Member, Reach, Sequence, Setup, Standing, Word,
};

use crate::desk::Shown;
use crate::rules::Rule;
use crate::simulation_test::{Group, Play as _, Shape};
use crate::toy_test::{Request, Toys};
use crate::{
    Chain, Entry, Fault, Input, Mark, Message, Opened, Output, ReadAt, Refused, Replica, Said, Settings, Told,
};

const A: Member = Member(0);
const B: Member = Member(1);

fn shape(ack: Ack) -> Shape {
    Shape::new(2, ack)
}

fn begun(shape: &Shape) -> Group<Toys> {
    Group::new(shape, 7, Toys::new(shape.ack))
}

fn formed(shape: &Shape) -> Group<Toys> {
    let mut group = begun(shape);
    group.run(600);
    assert_eq!(group.broken, None);
    assert_eq!(group.arbiter.in_sync.len(), usize::from(shape.members), "{}", group.brief());
    assert!(group.play.acked.len() > 5, "{}", group.brief());
    group
}

fn life(member: Member) -> Life {
    Life { disk: u64::from(member.0), memory: 1 }
}

/// A primary of two in epoch 1, as a value alone, with nothing in its log.
fn primary() -> Replica {
    primary_of(Ack::Received)
}

fn primary_of(ack: Ack) -> Replica {
    let setup = Setup { me: A, members: vec![A, B], preferred: A, life: life(A), ack };
    let (mut replica, _) = Replica::start(Settings::new(setup), Opened::default(), 0).unwrap();
    let in_sync = InSync::only(A, life(A)).with(B, life(B));
    let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: false };
    let out = replica.step(Input::Arbiter(led), 0);
    assert!(out.contains(&Output::Lead(Epoch(1))), "{out:?}");
    replica
}

/// Of who was told no more than this.
fn digest(ack: Ack) -> u64 {
    Told::new(ack, "", "").digest()
}

fn said(from: Member, to: Member, said: Said) -> Input {
    said_of(Ack::Received, from, to, said)
}

fn said_of(ack: Ack, from: Member, to: Member, said: Said) -> Input {
    Input::Heard(Message { from, to, told: digest(ack), epoch: Epoch(1), said })
}

/// B holds so much.
fn holds(received: u64, durable: u64) -> Said {
    let reach = Reach { received: Sequence(received), written: Sequence(durable), durable: Sequence(durable) };
    Said::Letter(Body::Held { life: life(B), reach, beat: 0, out: false, promised_ms: 0 })
}

fn streamed(said: Vec<Said>) -> Vec<Entry> {
    said.into_iter()
        .flat_map(|said| if let Said::Stream { entries, .. } = said { entries } else { Vec::new() })
        .collect()
}

fn sent(outputs: Vec<Output>) -> Vec<Said> {
    outputs
        .into_iter()
        .filter_map(|output| if let Output::Send(message) = output { Some(message.said) } else { None })
        .collect()
}

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
fn one_message_takes_all_that_was_submitted_and_the_window_bounds_what_is_on_its_way() {
    let mut primary = primary();
    primary.settings.window_bytes = 1_000;
    primary.settings.unconfirmed_bytes_max = 5_000;
    primary.step(said(B, A, Said::Resume(Mark::default())), 1);
    for _ in 0..3 {
        primary.submit(1, &[7; 80]).unwrap();
    }
    let said_first = sent(primary.step(Input::Time, 2));
    assert_eq!(said_first.iter().filter(|said| matches!(said, Said::Stream { .. })).count(), 1, "{said_first:?}");
    assert_eq!(streamed(said_first).len(), 3);
    // Twelve more, one after the other: what is on its way is bounded, what waits is too.
    let (mut sent_now, mut refused) = (3, None);
    for at in 0..60 {
        match primary.submit(1, &[7; 80]) {
            Ok(_) => sent_now += streamed(sent(primary.step(Input::Time, 3))).len(),
            Err(error) => {
                refused = Some((at, error));
                break;
            }
        }
    }
    assert_eq!(sent_now, 10, "1000 bytes are on their way");
    assert_eq!(refused, Some((47, Refused::Busy { bytes: 5_000 })));
    let out = primary.step(said(B, A, holds(10, 0)), 4);
    assert!(out.contains(&Output::Commit(Sequence(10))), "one number for all ten: {out:?}");
    assert_eq!(streamed(sent(out)).len(), 40, "and as much again as one message takes");
    assert!(primary.submit(1, b"room").is_ok());
    assert_eq!(primary.submit(0xfff0, b"x"), Err(Refused::Kind { kind: 0xfff0 }));
    let long = vec![0; crate::COMMAND_BYTES_MAX + 1];
    assert_eq!(primary.submit(1, &long), Err(Refused::Long { bytes: long.len() }));
}

#[test]
fn where_the_disk_confirms_a_standby_is_sent_no_more_than_its_disk_takes() {
    let mut primary = primary_of(Ack::Durable);
    primary.settings.window_bytes = 1_000;
    let hears = |said| said_of(Ack::Durable, B, A, said);
    let mut entries = Vec::new();
    for _ in 0..100 {
        primary.submit(1, &[7; 80]).unwrap();
        let out = primary.step(Input::Time, 1);
        entries.extend(out.into_iter().flat_map(|out| if let Output::Append(run) = out { run } else { Vec::new() }));
    }
    let mut has = streamed(sent(primary.step(hears(Said::Resume(Mark::default())), 1))).len() as u64;
    assert_eq!(has, 100, "one message is sent whatever it takes");
    for _ in 0..30 {
        primary.submit(1, &[7; 80]).unwrap();
        has += streamed(sent(primary.step(Input::Time, 2))).len() as u64;
    }
    assert_eq!(has, 100, "its disk has none of them");
    assert_eq!(streamed(sent(primary.step(hears(holds(has, 0)), 3))), [], "and its memory does not count");
    // A connection is made anew: what was sent before counts, although nobody remembers how much that was.
    let there = entries[99].mark();
    assert_eq!(streamed(sent(primary.step(hears(Said::Resume(there)), 4))), []);
    assert_eq!(streamed(sent(primary.step(hears(holds(has, 60)), 5))), []);
    assert_eq!(streamed(sent(primary.step(hears(holds(has, 100)), 6))).len(), 30);
    // And a log that is shorter than it once said is no longer held: it is in another life, on another disk.
    primary.step(hears(holds(130, 130)), 7);
    primary.submit(1, &[7; 80]).unwrap();
    primary.step(Input::Time, 7);
    assert_eq!(streamed(sent(primary.step(hears(Said::Resume(there)), 8))).len(), 31);
    primary.submit(1, &[7; 80]).unwrap();
    assert_eq!(streamed(sent(primary.step(Input::Time, 8))), [], "31 are on their way");
}

#[test]
fn a_standby_that_is_fed_from_the_log_and_asks_again_and_again_is_sent_no_more_than_its_disk_takes() {
    let mut primary = primary_of(Ack::Durable);
    primary.settings.recent_bytes_max = 0;
    primary.settings.window_bytes = 1_000;
    primary.settings.slow_ms = u64::MAX;
    let hears = |said| said_of(Ack::Durable, B, A, said);
    for _ in 0..100 {
        primary.submit(1, &[7; 80]).unwrap();
    }
    let out = primary.step(Input::Time, 1);
    let entries: Vec<_> =
        out.into_iter().flat_map(|out| if let Output::Append(run) = out { run } else { Vec::new() }).collect();
    let hundred = Sequence(100);
    primary.step(Input::Held { written: hundred, durable: hundred }, 1);
    primary.step(hears(holds(100, 100)), 1);
    assert_eq!((primary.confirmed(), primary.recent.unconfirmed_bytes()), (hundred, 0));
    // It begins anew, with an empty disk that stalls, and asks again each time for what follows all that it was sent.
    let mut has = 0;
    for turn in 0..120 {
        let (now, mark) = (100 + 60 * turn, if has == 0 { Mark::default() } else { entries[has - 1].mark() });
        let durable = if turn < 100 { 0 } else { mark.sequence.0 };
        let mut out = primary.step(hears(Said::Resume(mark)), now);
        out.extend(primary.step(hears(holds(mark.sequence.0, durable)), now));
        while let Some(next) = out.pop() {
            if let Output::Fetch { to, after, .. } = next {
                let at = usize::try_from(after.0).unwrap();
                let chain = if at == 0 { Chain::default() } else { entries[at - 1].chain };
                let found = entries[at..].iter().take(5).cloned().collect();
                out.extend(primary.step(Input::Fetched { to, after, chain: Some(chain), entries: found }, now));
            } else if let Some(last) = streamed(sent(vec![next])).last() {
                has = has.max(usize::try_from(last.sequence.0).unwrap());
            }
        }
        assert!(turn >= 100 || has == 10, "a window of it, and {has} were sent");
    }
    assert_eq!(has, 100, "once its disk goes on, all");
    // What follows all that has landed is not read from the log: it is in memory.
    for _ in 0..2 {
        primary.submit(1, &[7; 80]).unwrap();
    }
    primary.step(Input::Time, 9_000);
    primary.step(hears(holds(100, 100)), 9_000);
    let there = entries[99].mark();
    let out = primary.step(hears(Said::Resume(there)), 9_000);
    assert!(out.iter().any(|out| matches!(out, Output::Fetch { after: Sequence(100), .. })), "{out:?}");
    let read = Input::Fetched { to: B, after: there.sequence, chain: Some(there.chain), entries: Vec::new() };
    assert_eq!(streamed(sent(primary.step(read, 9_000))).len(), 2);
}

#[test]
fn a_standby_that_is_fed_asks_again_only_when_no_more_comes() {
    let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack: Ack::Durable };
    let (mut standby, _) = Replica::start(Settings::new(setup), Opened::default(), 0).unwrap();
    let in_sync = InSync::only(A, life(A)).with(B, life(B));
    let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: false };
    let hears = |said| said_of(Ack::Durable, A, B, said);
    let lead = Body::Lead { configuration: led, base: History::default(), beat: 0, aside: false };
    standby.step(hears(Said::Letter(lead.clone())), 0);
    let mut asked = Vec::new();
    for now in (10..=300).step_by(10) {
        let mut out = standby.step(hears(Said::Letter(lead.clone())), now);
        let more = now <= 200 && now % 20 == 0;
        let entries = if more { vec![Entry::behind(standby.end(), Epoch(1), 1, vec![7].into())] } else { Vec::new() };
        let (end, confirmed, keep) = (Sequence(1_000), Sequence(0), Sequence(0));
        out.extend(standby.step(hears(Said::Stream { end, confirmed, keep, entries }), now));
        let asks = sent(out).into_iter().any(|said| matches!(said, Said::Resume(_)));
        asked.extend(asks.then_some(now));
    }
    assert_eq!(asked, [260], "60 ms after what came last");
}

#[test]
fn one_letter_says_what_a_standby_took_where_only_the_disk_counts() {
    for (ack, letters) in [(Ack::Received, [1, 0, 1]), (Ack::Written, [0, 1, 1]), (Ack::Durable, [0, 0, 1])] {
        let setup = Setup { me: B, members: vec![A, B], preferred: A, life: life(B), ack };
        let (mut standby, _) = Replica::start(Settings::new(setup), Opened::default(), 0).unwrap();
        let in_sync = InSync::only(A, life(A)).with(B, life(B));
        let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: false };
        let hears = |said| said_of(ack, A, B, said);
        let lead = Body::Lead { configuration: led, base: History::default(), beat: 0, aside: false };
        standby.step(hears(Said::Letter(lead.clone())), 0);
        let held = |said: Vec<Said>| -> Vec<Reach> {
            let reach = |said| if let Said::Letter(Body::Held { reach, .. }) = said { Some(reach) } else { None };
            said.into_iter().filter_map(reach).collect()
        };
        let one = Sequence(1);
        let entry = Entry::behind(Mark::default(), Epoch(1), 1, vec![7].into());
        let stream = Said::Stream { end: one, confirmed: Sequence(0), keep: Sequence(0), entries: vec![entry] };
        let steps = [
            hears(stream),
            Input::Held { written: one, durable: Sequence(0) },
            Input::Held { written: one, durable: one },
        ];
        for (step, letters) in steps.into_iter().zip(letters) {
            assert_eq!(held(sent(standby.step(step, 1))).len(), letters, "{ack:?}");
        }
        // A heartbeat is answered with all of it, whatever counts.
        let entry = Entry::behind(standby.end(), Epoch(1), 1, vec![8].into());
        let stream = Said::Stream { end: Sequence(2), confirmed: one, keep: Sequence(0), entries: vec![entry] };
        standby.step(hears(stream), 2);
        let answers = held(sent(standby.step(hears(Said::Letter(lead)), 2)));
        assert_eq!(answers, [Reach { received: Sequence(2), written: one, durable: one }], "{ack:?}");
    }
}

#[test]
fn who_cut_what_was_on_its_way_to_the_disk_says_that_the_rest_is_there() {
    let mut old = primary_of(Ack::Durable);
    let mut entries = Vec::new();
    for _ in 0..3 {
        old.submit(1, &[7; 80]).unwrap();
        let out = old.step(Input::Time, 1);
        entries.extend(out.into_iter().flat_map(|out| if let Output::Append(run) = out { run } else { Vec::new() }));
    }
    old.step(Input::Held { written: Sequence(1), durable: Sequence(1) }, 1);
    // It was frozen there; B leads with two of the three.
    let in_sync = InSync::only(B, life(B));
    let led = Configuration { version: 2, epoch: Epoch(2), primary: Some(B), in_sync, forced: false };
    let mut base = History::default();
    base.grew(Epoch(1), Sequence(2));
    let lead = Said::Letter(Body::Lead { configuration: led.clone(), base, beat: 0, aside: false });
    old.step(Input::Arbiter(led), 2);
    let hears = Input::Heard(Message { from: B, to: A, told: digest(Ack::Durable), epoch: Epoch(2), said: lead });
    let out = old.step(hears, 2);
    assert!(out.contains(&Output::Cut(Sequence(2))), "{out:?}");
    // The sync that was under way is another log's: nobody tells of it any more.
    let said = sent(old.step(Input::WasCut(entries[1].mark()), 3));
    let two = Sequence(2);
    let held = Reach { received: two, written: two, durable: two };
    assert!(
        said.iter().any(|said| matches!(said, Said::Letter(Body::Held { reach, .. }) if *reach == held)),
        "{said:?}"
    );
    assert!(said.contains(&Said::Resume(entries[1].mark())), "{said:?}");
}

#[test]
fn catch_up_from_the_disk_goes_at_the_rate_it_is_told_and_one_read_at_a_time() {
    let mut primary = primary();
    primary.settings.recent_bytes_max = 0;
    primary.settings.catch_up_bytes_per_s = 4 * crate::STREAM_BYTES_MAX as u64;
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..40 {
        primary.submit(1, &[7; 80]).unwrap();
    }
    entries.extend(primary.step(Input::Time, 1).into_iter().flat_map(|output| match output {
        Output::Append(entries) => entries,
        _ => Vec::new(),
    }));
    primary.step(said(B, A, holds(40, 0)), 2);
    assert_eq!(primary.recent.unconfirmed_bytes(), 0, "nothing of it is in memory any more");
    let mut wanted = primary.step(said(B, A, Said::Resume(Mark::default())), 3);
    let mut reads = Vec::new();
    for now in (3..1_003).step_by(10) {
        let fetches: Vec<Sequence> = wanted
            .iter()
            .filter_map(|output| if let Output::Fetch { after, .. } = output { Some(*after) } else { None })
            .collect();
        assert!(fetches.len() <= 1, "one read at a time: {fetches:?}");
        wanted = match fetches.first() {
            Some(after) => {
                reads.push(now);
                // Each read finds one entry.
                let at = usize::try_from(after.0).unwrap();
                let chain = if at == 0 { Chain::default() } else { entries[at - 1].chain };
                let found = vec![entries[at].clone()];
                primary.step(Input::Fetched { to: B, after: *after, chain: Some(chain), entries: found }, now)
            }
            None => primary.step(Input::Time, now),
        };
    }
    assert!((3..=5).contains(&reads.len()), "four a second, of forty: {reads:?}");
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

fn otherwise(group: &Group<Toys>, at: usize) -> Vec<(Member, Told)> {
    let replica = &group.seats[at].up.as_ref().unwrap().replica;
    replica.otherwise.iter().map(|(member, (_, told))| (*member, told.clone())).collect()
}

#[test]
fn who_was_told_another_acknowledgement_or_group_is_not_listened_to_and_both_say_so() {
    // B said that its memory outlives its process, as `durable` has no need of it, in a group that acknowledges what is in memory; or
    // asked for the lead of another group, whose configuration says nothing of this one's log.
    let own = Told::new(Ack::Received, "", "");
    for other in
        [Told::new(Ack::Durable, "", ""), Told::new(Ack::Received, "other", ""), Told::new(Ack::None, "o", "p")]
    {
        let mut group = formed(&shape(Ack::Received));
        group.shape.otherwise = Some(other.clone());
        group.crash(1, None, 50);
        group.run(1_500);
        let acked = group.play.acked.len();
        group.run(500);
        assert!(group.play.acked.len() > acked, "the primary goes on alone: {}", group.brief());
        assert_eq!((group.arbiter.primary, group.arbiter.in_sync.len()), (Some(A), 1), "{}", group.brief());
        assert_eq!(otherwise(&group, 0), [(B, other.clone())]);
        assert_eq!(otherwise(&group, 1), [(A, own.clone())]);
        group.shape.otherwise = None;
        group.crash(1, None, 50);
        group.run(1_500);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
        assert!(otherwise(&group, 0).is_empty() && otherwise(&group, 1).is_empty());
        // Without the rule it is counted on.
        group.shape.left_out = Some(Rule::ToldAlike);
        group.shape.otherwise = Some(other);
        for at in [0, 1] {
            group.crash(at, None, 50);
            group.run(1_500);
        }
        assert_eq!(group.arbiter.in_sync.len(), 2, "{}", group.brief());
    }
}

#[test]
fn two_that_begin_with_different_acknowledgements_or_groups_never_lead_together() {
    for other in [Told::new(Ack::Written, "", ""), Told::new(Ack::Received, "other", "")] {
        let mut group = begun(&Shape { otherwise: Some(other), ..shape(Ack::Received) });
        group.run(3_000);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (0, &None), "nobody begins: {}", group.brief());
        assert!(otherwise(&group, 0).len() == 1 && otherwise(&group, 1).len() == 1);
        group.shape.otherwise = None;
        group.crash(1, None, 50);
        group.run(1_500);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
    }
}

#[test]
fn who_was_told_another_place_of_the_arbiter_is_believed_and_both_know() {
    let other = Told::new(Ack::Received, "", "elsewhere:1");
    let mut group = formed(&Shape { otherwise: Some(other.clone()), ..shape(Ack::Received) });
    assert_eq!(otherwise(&group, 0), [(B, other.clone())]);
    assert_eq!(otherwise(&group, 1), [(A, Told::new(Ack::Received, "", ""))]);
    // What is said is the same after the other one has led.
    group.crash(0, None, 400);
    group.run(2_000);
    assert_eq!((group.arbiter.primary, group.arbiter.in_sync.len()), (Some(B), 2), "{}", group.brief());
    assert_eq!((otherwise(&group, 0), &group.broken), (vec![(B, other)], &None));
}

#[test]
fn a_person_hears_what_two_members_were_told_and_what_follows() {
    let own = Told::new(Ack::Received, "one", "host:1");
    let says = |ack, group, arbiter| Told::new(ack, group, arbiter).against(B, &own, A);
    let must = "they must have the same; until then neither listens to the other";
    let two = "if these are two and not one, neither can lead after the other";
    let said = [
        (says(Ack::None, "one", "host:1"), format!("node 1 has ack none, this one, node 0, has ack received: {must}")),
        (
            says(Ack::Received, "two", "host:2"),
            format!("node 1 has group two, this one, node 0, has group one: {must}"),
        ),
        (
            says(Ack::Durable, "two", "host:1"),
            format!("node 1 has ack durable and group two, this one, node 0, has ack received and group one: {must}"),
        ),
        (
            says(Ack::Received, "one", "host:2"),
            format!("node 1 has the witness host:2, this one, node 0, has host:1: {two}"),
        ),
    ];
    for (said, expected) in said {
        assert_eq!(said, expected);
    }
}

#[test]
fn a_group_is_told_another_acknowledgement_by_stopping_the_standby_and_then_the_primary() {
    for (before, then) in [(Ack::Received, Ack::Durable), (Ack::Durable, Ack::Received), (Ack::Written, Ack::Received)]
    {
        let mut group = formed(&shape(before));
        group.crash(1, None, 3_000);
        group.run(600);
        assert_eq!(group.arbiter.in_sync.len(), 1, "{}", group.brief());
        group.shape.ack = then;
        group.crash(0, None, 50);
        group.run(1_500);
        let acked = group.play.acked.len();
        group.run(2_500);
        assert!(group.play.acked.len() > acked, "{before:?} to {then:?}: {}", group.brief());
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
        group.play.quiet();
        group.run(500);
        group.audit();
        assert_eq!(group.broken, None);
    }
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
