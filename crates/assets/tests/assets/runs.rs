//! Commands that come together are one entry of a group's log, and each is answered, told and done once as if it stood alone.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use assent_assets::{Answer, Asset, Client, Command, Feed, INPUT_BYTES_MAX, News, Options, Results};
use assent_frame::{Head, Writer, lay, parse};
use assent_kind::Kind;
use assent_membership::Ack;
use assent_world::RealClock;

use super::group::{Group, LIMIT, Plan};
use super::{add, batch, create, done, get, xid};

const COMMAND: u16 = 0x51;
const ANSWER: u16 = 0x52;
const REFUSED: u16 = 0x53;

fn frame(mark: u64, command: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    lay(&mut out, Head { mark, kind: COMMAND, ..Head::default() }, &[command]);
    out
}

/// So many frames: the mark, the kind and the payload of each.
fn frames(stream: &mut UnixStream, count: usize) -> Vec<(u64, u16, Vec<u8>)> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut inbox, mut buffer, mut taken) = (Vec::new(), [0; 4_096], Vec::new());
    while taken.len() < count {
        while let Some((frame, laid)) = parse(&inbox, 1 << 20).unwrap() {
            taken.push((frame.mark, frame.kind, frame.payload.to_vec()));
            inbox.drain(..laid);
        }
        if taken.len() < count {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the connection ended after {} of {count}", taken.len());
            inbox.extend_from_slice(&buffer[..read]);
        }
    }
    taken
}

fn one(value: i64) -> Answer {
    done(&[(value, u64::try_from(value).unwrap())])
}

#[test]
fn what_came_together_is_one_entry_and_each_is_answered_told_and_counted() {
    const MANY: i64 = 400;
    let mut group = Group::new(Plan::calm(2, Ack::Received));
    group.client(&[0]).execute(&[create(1, 0), create(2, 7)]).unwrap();
    let mut feed = Feed::open(&group.options(&[0]).servers[0], &[], 10_000, LIMIT).unwrap();
    let before = group.status(0);
    // In the midst of them a vote, which is an entry of its own, and two reads.
    let mut all: Vec<Vec<u8>> = (1..=MANY).map(|_| batch(None, &[add(1, 1)])).collect();
    let mut prepare = Writer::new();
    Command::lay_prepare(&mut prepare, &xid(1), &[add(2, 1)]);
    all.insert(200, prepare.into_vec());
    all.insert(300, batch(None, &[get(2)]));
    all.insert(301, batch(None, &[get(1)]));
    let bytes: Vec<u8> = (0..).zip(&all).flat_map(|(mark, command)| frame(mark, command)).collect();
    let mut stream = UnixStream::connect(group.path(0)).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut answered = frames(&mut stream, all.len());
    let marks: Vec<u64> = answered.iter().map(|(mark, ..)| *mark).collect();
    assert_eq!(marks, (0..all.len() as u64).collect::<Vec<_>>(), "in the order of the requests");
    assert!(answered.iter().all(|(_, kind, _)| *kind == ANSWER));
    let mut take = |at: usize| Answer::read(&answered.remove(at).2).unwrap();
    let Answer::Done(read) = take(301) else { panic!("no value") };
    assert!((299..=MANY).contains(&read.assets[0].value), "{read:?}: it sees what its connection ordered before");
    assert_eq!(take(300), done(&[(7, 0)]), "a vote changes nothing");
    let voted = Results { assets: vec![Asset { value: 8, updates: 1 }], output: Vec::new() };
    assert_eq!(take(200), Answer::Voted(voted));
    let values = answered.iter().map(|(_, _, answer)| Answer::read(answer).unwrap());
    assert!(values.eq((1..=MANY).map(one)), "each has its own value");
    // Counted as commands, although the log has few entries.
    let status = group.status(0);
    assert_eq!(status.counts.applied - before.counts.applied, MANY as u64 + 1);
    assert_eq!(status.counts.ordered - before.counts.ordered, MANY as u64 + 1);
    let entries = status.end.0 - before.end.0;
    assert!((3..40).contains(&entries), "{entries} entries of {MANY} commands");
    // Told one by one.
    let mut told = Vec::new();
    while told.len() < usize::try_from(MANY).unwrap() {
        told.extend(feed.next(LIMIT).unwrap().expect("all changes are told"));
    }
    let updates = told.iter().map(|news| match news {
        News::Change(change) => (change.asset.unwrap().value, change.asset.unwrap().updates),
        other @ News::Missed { .. } => panic!("{other:?}"),
    });
    assert!(updates.eq((1..=MANY).map(|value| (value, u64::try_from(value).unwrap()))));
    // The same on the other one, also when it reads its log again.
    let same = |group: &Group| {
        let [one, other] = [0, 1].map(|at| group.status(at));
        ((one.applied, one.hash) == (other.applied, other.hash)).then_some(())
    };
    group.until("both have executed the same", same);
    drop(group.members.remove(&1));
    group.start(1);
    group.until_whole();
    group.until("both have executed the same again", same);
}

/// The primary goes in the midst of a session's runs: what was not answered is sent again, in other runs.
#[test]
fn a_session_under_way_is_done_once_when_the_primary_goes() {
    for ack in [Ack::Received, Ack::Durable] {
        let mut group = Group::new(Plan::calm(2, ack));
        let mut client = group.client(&[0, 1]);
        client.execute(&[create(1, 0)]).unwrap();
        let (mut sent, mut received) = (0, 0);
        while received < 3_000 {
            while sent < 3_000 && client.waiting() < 200 {
                client.send(&[add(1, 1)]).unwrap();
                sent += 1;
            }
            client.flush().unwrap();
            if received == 1_000 {
                let leader = group.leader().unwrap();
                drop(group.members.remove(&leader));
            }
            for _ in 0..50 {
                received += 1;
                assert_eq!(client.receive().unwrap().1, one(received), "each once, in order");
            }
        }
    }
}

/// A client without a session: it needs no room in the log.
fn stranger(group: &Group) -> Client {
    let options = Options { session: false, ..group.options(&[0]) };
    Client::connect(options, Arc::new(RealClock)).unwrap()
}

#[test]
fn what_the_log_has_no_room_for_is_refused_and_nothing_of_it_is_done() {
    let mut group = Group::new(Plan::calm(2, Ack::Received));
    group.client(&[0]).execute(&[create(1, 0)]).unwrap();
    group.arbiter.go_away(true);
    drop(group.members.remove(&1));
    let mut call = Writer::new();
    Command::lay_call(&mut call, None, 1, &vec![0; INPUT_BYTES_MAX]);
    let long = frame(1, call.as_slice());
    let few = [batch(None, &[add(1, 1)]), batch(None, &[add(1, 2)])];
    let few: Vec<u8> = (1..).zip(&few).flat_map(|(mark, command)| frame(mark, command)).collect();
    let mut waiting = Vec::new();
    group.until("there is no room", |group| {
        let mut stream = UnixStream::connect(group.path(0)).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        (0..8).for_each(|_| stream.write_all(&long).unwrap());
        waiting.push(stream);
        // Whoever asks later is heard later.
        stranger(group).status().unwrap();
        (group.status(0).counts.refused > 0).then_some(())
    });
    let refused = group.status(0).counts.refused;
    let mut stream = UnixStream::connect(group.path(0)).unwrap();
    stream.write_all(&few).unwrap();
    for (mark, (found, kind, payload)) in (1..).zip(frames(&mut stream, 2)) {
        assert_eq!((found, kind, payload[0]), (mark, REFUSED, Kind::Busy.wire()));
        let text = String::from_utf8_lossy(&payload[1..]).into_owned();
        assert!(text.contains("bytes of commands wait for their confirmation"), "{text}");
    }
    assert_eq!(group.status(0).counts.refused, refused + 2, "counted as commands");
    drop(waiting);
    group.arbiter.go_away(false);
    let kept = group.until("it goes on alone", |group| stranger(group).execute(&[get(1)]).ok());
    assert_eq!(kept, done(&[(0, 0)]), "nothing of what was refused is done");
}
