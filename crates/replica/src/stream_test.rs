//! What a primary sends, and what a standby says of it: how much at once, from where, and how often.

use assent_ids::Epoch;
use assent_membership::{Ack, Body, Configuration, History, InSync, Reach, Sequence, Setup};

use crate::stage_test::{A, B, digest, holds, life, primary, primary_of, said, said_of, sent, streamed};
use crate::{Chain, Entry, Input, Mark, Message, Opened, Output, Refused, Replica, Said, Settings};

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
