//! The server over real sockets: pipelined answers, lost connections, hostile bytes, a thousand connections.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use assent_assets::{
    Answer, AssetId, Client, Config, Door, Engine, Event, Feed, Logics, News, Options, Promise, Refusal,
};
use assent_journal::Journal;
use assent_kind::Kind;
use assent_membership::Ack;
use assent_sim::Rng;
use assent_world::net::{Address, Stream};
use assent_world::{Clock as _, RealClock, RealDice, RealDisk};

use super::group::{Group, Plan};
use super::{add, batch, create, done, get, results, xid};

/// A server in this process.
struct Town {
    folder: tempfile::TempDir,
    door: Door,
    engine: Arc<Engine>,
}

fn engine(folder: &std::path::Path) -> Arc<Engine> {
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let log = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), Default::default());
    let config = Config { trace_every: 4, ..Config::default() };
    let opened = Engine::open(log.unwrap().0, disk, clock, &folder.join("assets"), config, Logics::default());
    Arc::new(opened.unwrap().0)
}

impl Town {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(folder.path());
        let at = Address::Unix(folder.path().join("socket"));
        let door = Door::open(engine.clone(), Promise::default(), &at, Arc::new(RealClock)).unwrap();
        Self { folder, door, engine }
    }

    /// The server ends, in the middle of whatever it does, and another one begins.
    fn again(self) -> Self {
        let Self { folder, door, engine: old } = self;
        let at = door.address().clone();
        door.stop();
        drop(old);
        let engine = engine(folder.path());
        let door = Door::open(engine.clone(), Promise::default(), &at, Arc::new(RealClock)).unwrap();
        Self { folder, door, engine }
    }

    fn options(&self) -> Options {
        Options { patience: Duration::from_secs(30), ..Options::to(self.door.address().clone()) }
    }

    fn client(&self) -> Client {
        Client::connect(self.options(), Arc::new(RealClock)).unwrap()
    }
}

/// The next frame of a server: its mark and its kind.
fn read_frame(mut stream: &Stream) -> (u64, u16) {
    let mut bytes = vec![0; 24];
    stream.read_exact(&mut bytes).unwrap();
    let payload = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    bytes.resize(assent_frame::laid_bytes(payload), 0);
    stream.read_exact(&mut bytes[24..]).unwrap();
    let (frame, _) = assent_frame::parse(&bytes, 1 << 20).unwrap().unwrap();
    (frame.mark, frame.kind)
}

#[test]
fn commands_are_answered_in_their_order_and_a_full_window_says_so() {
    let town = Town::new();
    let mut client = Client::connect(Options { window: 100, ..town.options() }, Arc::new(RealClock)).unwrap();
    assert_eq!(client.execute(&[create(1, 5), create(2, 0)]).unwrap(), done(&[(5, 0), (0, 0)]));
    for round in 0..5 {
        let sent: Vec<u64> = (0..100).map(|step| client.send(&[add(1, step)]).unwrap()).collect();
        assert_eq!(client.send(&[add(1, 1)]).unwrap_err().kind, Kind::Busy);
        assert_eq!(client.status().unwrap_err().kind, Kind::Invalid);
        for (step, mark) in (0..100).zip(sent) {
            let value = 5 + round * 4_950 + step * (step + 1) / 2;
            let updates = (round * 100 + step + 1) as u64;
            assert_eq!(client.receive().unwrap(), (mark, done(&[(value, updates)])));
        }
    }
    let refused = client.execute(&[add(9, 1)]).unwrap();
    assert_eq!(refused, Answer::Refused { op: 0, refusal: Refusal::Unknown { id: AssetId(9) } });
    assert_eq!(client.prepare(&xid(1), &[add(2, 7)]).unwrap(), Answer::Voted(results(&[(7, 1)])));
    assert_eq!(client.outcome(&xid(1), true).unwrap(), done(&[]));
    let status = client.status().unwrap();
    assert_eq!((status.stats.assets, status.stats.in_doubt, status.closed), (2, 0, None));
    assert_eq!(status.stats.hash, town.engine.stats().hash);
    assert!(status.trace.contains("confirmed") && status.trace.contains("replied"), "{}", status.trace);
    let booked = status.steps.iter().find(|step| step.name == "total").unwrap().numbers[0];
    assert!(booked > 100, "{booked}");
}

#[test]
fn what_a_session_sent_is_done_once_though_the_server_goes_in_the_middle() {
    let mut town = Town::new();
    let mut client = town.client();
    client.execute(&[create(1, 0)]).unwrap();
    let mut rng = Rng::new(7);
    let mut expected = 0;
    for _ in 0..6 {
        let many = rng.range(20..200);
        (0..many).for_each(|_| _ = client.send(&[add(1, 1)]).unwrap());
        client.flush().unwrap();
        for _ in 0..rng.below(many) {
            expected += 1;
            assert_eq!(client.receive().unwrap().1, done(&[(expected, expected as u64)]));
        }
        town = town.again();
        while client.waiting() > 0 {
            expected += 1;
            assert_eq!(client.receive().unwrap().1, done(&[(expected, expected as u64)]));
        }
    }
    assert_eq!(town.engine.peek(AssetId(1)).unwrap().value, expected);
    let again = client.events();
    let reconnected = |event: &Event| match event {
        Event::Reconnected { again, .. } => *again,
        other => panic!("{other:?}"),
    };
    let again = again.iter().map(reconnected).collect::<Vec<_>>();
    assert!(again.len() >= 5 && again.iter().any(|again| *again > 0), "{again:?}");
}

#[test]
fn without_a_session_a_lost_answer_is_in_doubt_and_a_read_is_asked_again() {
    let town = Town::new();
    let mut client = Client::connect(Options { session: false, ..town.options() }, Arc::new(RealClock)).unwrap();
    client.execute(&[create(1, 0)]).unwrap();
    client.send(&[add(1, 1)]).unwrap();
    client.send(&[get(1)]).unwrap();
    // It goes before anything was sent: so this one was not done, which the client cannot know.
    let town = town.again();
    client.flush().unwrap();
    let first = client.receive();
    let second = client.receive().unwrap().1;
    match first {
        Err(error) => assert_eq!((error.kind, second), (Kind::InDoubt, done(&[(0, 0)]))),
        Ok((_, answer)) => assert_eq!((answer, second), (done(&[(1, 1)]), done(&[(1, 1)]))),
    }
    drop(town);
}

#[test]
fn a_feed_tells_what_was_confirmed() {
    let town = Town::new();
    let mut client = town.client();
    client.execute(&[create(1, 0), create(2, 0)]).unwrap();
    let mut feed = Feed::open(town.door.address(), &[AssetId(1)], 1_000, Duration::from_secs(30)).unwrap();
    assert_eq!(feed.next(Duration::from_millis(10)).unwrap(), None);
    for _ in 0..20 {
        client.execute(&[add(1, 1), add(2, 1)]).unwrap();
    }
    let mut values = Vec::new();
    while values.len() < 20 {
        for news in feed.next(Duration::from_secs(30)).unwrap().expect("news within the time") {
            let News::Change(change) = news else { panic!("{news:?}") };
            assert_eq!(change.id, AssetId(1));
            values.push(change.asset.unwrap().value);
        }
    }
    assert_eq!(values, (1..=20).collect::<Vec<_>>());
    drop(feed);
    while town.engine.stats().subscriptions > 0 {
        client.execute(&[add(1, 1)]).unwrap();
    }
}

#[test]
fn any_bytes_get_an_answer_or_a_close_and_harm_nobody_else() {
    let town = Town::new();
    let mut client = town.client();
    client.execute(&[create(1, 0)]).unwrap();
    let mut good = Vec::new();
    let head = assent_frame::Head { mark: 5, kind: 0x51, ..Default::default() };
    assent_frame::lay(&mut good, head, &[&batch(None, &[add(1, 1)])]);
    for run in 0..300 {
        let bytes = assent_sim::input(3, run, &[&good, b"GET / HTTP/1.1\r\n\r\n"]);
        let stream = Stream::connect(town.door.address(), Duration::from_secs(30)).unwrap();
        stream.set_timeouts(Some(Duration::from_millis(if run % 30 == 0 { 20 } else { 1 })), None).unwrap();
        // The server may have closed already.
        _ = (&stream).write_all(&bytes);
        _ = (&stream).read(&mut [0; 100]);
    }
    let answer = client.execute(&[get(1)]).unwrap();
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    // A slice of a frame, and then the rest: the answer comes when it is whole.
    let stream = Stream::connect(town.door.address(), Duration::from_secs(30)).unwrap();
    stream.set_timeouts(Some(Duration::from_secs(30)), None).unwrap();
    for piece in good.chunks(7) {
        (&stream).write_all(piece).unwrap();
    }
    assert_eq!(read_frame(&stream), (5, 0x52));
    // A version that is not ours, and a word that is none.
    for payload in [&[9, 1][..], &[1, 77], b""] {
        let mut bytes = Vec::new();
        assent_frame::lay(&mut bytes, assent_frame::Head { mark: 6, kind: 0x54, ..Default::default() }, &[payload]);
        (&stream).write_all(&bytes).unwrap();
        assert_eq!(read_frame(&stream).1, 0x53, "{payload:?}");
    }
}

#[test]
fn a_client_that_reads_nothing_stops_only_itself() {
    let town = Town::new();
    let mut client = town.client();
    client.execute(&[create(1, 0)]).unwrap();
    let deaf = Stream::connect(town.door.address(), Duration::from_secs(30)).unwrap();
    deaf.set_timeouts(Some(Duration::from_secs(30)), Some(Duration::from_millis(50))).unwrap();
    let mut frames = Vec::new();
    for mark in 0..2_000 {
        let head = assent_frame::Head { mark, kind: 0x51, ..Default::default() };
        assent_frame::lay(&mut frames, head, &[&batch(None, &[get(1); 64])]);
    }
    // Until nothing more is taken from it.
    let mut sent = 0;
    while let Ok(written @ 1..) = (&deaf).write(&frames[sent % frames.len()..]) {
        sent += written;
        assert!(sent < 1 << 28, "a client that reads nothing is served without end");
    }
    for step in 1..=50 {
        assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[(step, step as u64)]));
    }
    // It reads again: everything is answered.
    let mut read = 0;
    let answer = 24 + 3 + 64 * 16 + 4;
    let laid = (answer as usize).next_multiple_of(8);
    let frame = frames.len() / 2_000;
    let mut buffer = vec![0; 1 << 16];
    while read < sent / frame * laid {
        read += (&deaf).read(&mut buffer).unwrap();
    }
}

#[test]
fn a_thousand_connections_are_served() {
    let town = Town::new();
    let mut client = town.client();
    client.execute(&[create(1, 0)]).unwrap();
    let mut streams = Vec::new();
    for mark in 0..1_000_u64 {
        // A machine that allows fewer descriptors shows it with fewer.
        let Ok(stream) = Stream::connect(town.door.address(), Duration::from_secs(30)) else { break };
        stream.set_timeouts(Some(Duration::from_secs(60)), Some(Duration::from_secs(60))).unwrap();
        let mut frame = Vec::new();
        let head = assent_frame::Head { mark, kind: 0x51, ..Default::default() };
        assent_frame::lay(&mut frame, head, &[&batch(None, &[add(1, 1)])]);
        (&stream).write_all(&frame).unwrap();
        streams.push((stream, mark));
    }
    for (stream, mark) in &streams {
        assert_eq!(read_frame(stream), (*mark, 0x52));
    }
    let count = streams.len() as i64;
    assert!(count >= 200, "{count}");
    assert_eq!(client.execute(&[get(1)]).unwrap(), done(&[(count, count as u64)]));
    assert!(client.session().is_some());
}

#[test]
fn a_frame_cut_by_the_clients_death_leaves_nothing_behind() {
    // Bytes and the end of the connection come with one readiness: who reads less than there was room for must not wait for another.
    let town = Town::new();
    let mut client = town.client();
    let mut frame = Vec::new();
    let head = assent_frame::Head { mark: 5, kind: 0x54, ..Default::default() };
    // A subscription, so that the server says when it has let go.
    assent_frame::lay(&mut frame, head, &[&[3, 3, 1, 0, 0, 0, 0, 0, 0, 0]]);
    for _ in 0..50 {
        let stream = Stream::connect(town.door.address(), Duration::from_secs(30)).unwrap();
        stream.set_timeouts(Some(Duration::from_secs(30)), None).unwrap();
        (&stream).write_all(&frame).unwrap();
        assert_eq!(read_frame(&stream), (5, 0x55));
        (&stream).write_all(&frame[..20]).unwrap();
        drop(stream);
    }
    let until = RealClock.now().after(Duration::from_secs(60));
    while client.status().unwrap().stats.subscriptions > 0 {
        assert!(RealClock.now() < until, "{:?}", client.status());
    }
    // And who only ends its own direction reads all its answers, and the end.
    let stream = std::os::unix::net::UnixStream::connect(town.folder.path().join("socket")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut asked = Vec::new();
    assent_frame::lay(&mut asked, assent_frame::Head { mark: 6, kind: 0x54, ..Default::default() }, &[&[2, 1]]);
    (&stream).write_all(&asked).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
    (&stream).read_to_end(&mut all).unwrap();
    assert!(all.len() > 24, "{}", all.len());
}

/// Questions, of which a round takes one, and a command behind them.
fn questions_and_a_command(questions: u64) -> Vec<u8> {
    let (mut bytes, head) = (Vec::new(), assent_frame::Head::default());
    for mark in 0..questions {
        assent_frame::lay(&mut bytes, assent_frame::Head { mark, kind: 0x54, ..head }, &[&[3, 1]]);
    }
    let command = batch(None, &[add(1, 1)]);
    assent_frame::lay(&mut bytes, assent_frame::Head { mark: questions, kind: 0x51, ..head }, &[&command]);
    bytes
}

/// All that is answered to who says that, ends its own direction and reads to the end.
fn told_at_the_end(path: &std::path::Path, said: &[u8]) -> Vec<(u64, u16)> {
    let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (&stream).write_all(said).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut all, mut told, mut taken) = (Vec::new(), Vec::new(), 0);
    (&stream).read_to_end(&mut all).unwrap();
    while let Some((frame, laid)) = assent_frame::parse(&all[taken..], 1 << 20).unwrap() {
        told.push((frame.mark, frame.kind));
        taken += laid;
    }
    assert_eq!(taken, all.len());
    told
}

/// Whole commands that waited for another round were thrown away with the connection: not done, and not refused.
#[test]
fn who_ends_only_its_own_direction_has_all_of_it_done() {
    let town = Town::new();
    let mut client = town.client();
    client.execute(&[create(1, 0)]).unwrap();
    for (times, questions) in [(20, 2), (3, 300)] {
        let said = questions_and_a_command(questions);
        for _ in 0..times {
            let told = told_at_the_end(&town.folder.path().join("socket"), &said);
            let expected = (0..questions).map(|mark| (mark, 0x55)).chain([(questions, 0x52)]);
            assert_eq!(told, expected.collect::<Vec<_>>());
        }
    }
    assert_eq!(client.execute(&[get(1)]).unwrap(), done(&[(23, 23)]));
    // Whoever is gone in the middle of his questions, and reads nothing, leaves all the same.
    let mut said = Vec::new();
    let head = assent_frame::Head { mark: 5, kind: 0x54, ..Default::default() };
    assent_frame::lay(&mut said, head, &[&[3, 3, 1, 0, 0, 0, 0, 0, 0, 0]]);
    said.extend(questions_and_a_command(1_000));
    for _ in 0..20 {
        let stream = std::os::unix::net::UnixStream::connect(town.folder.path().join("socket")).unwrap();
        (&stream).write_all(&said).unwrap();
    }
    let until = RealClock.now().after(Duration::from_secs(60));
    while client.status().unwrap().stats.subscriptions > 0 {
        assert!(RealClock.now() < until, "{:?}", client.status());
    }
}

/// So they were at a member of a group.
#[test]
fn who_ends_only_its_own_direction_has_all_of_it_done_by_a_group() {
    let group = Group::new(Plan::calm(2, Ack::Received));
    let mut client = group.client(&[0]);
    client.execute(&[create(1, 0)]).unwrap();
    for (times, questions) in [(20, 2), (3, 300)] {
        let said = questions_and_a_command(questions);
        for _ in 0..times {
            let expected = (0..questions).map(|mark| (mark, 0x55)).chain([(questions, 0x52)]);
            assert_eq!(told_at_the_end(&group.path(0), &said), expected.collect::<Vec<_>>());
        }
    }
    assert_eq!(client.execute(&[get(1)]).unwrap(), done(&[(23, 23)]));
    // A question behind a command waits for another round, and for the command.
    let mut said = questions_and_a_command(2);
    said.extend(questions_and_a_command(2));
    let expected = [(0, 0x55), (1, 0x55), (2, 0x52), (0, 0x55), (1, 0x55), (2, 0x52)];
    (0..20).for_each(|_| assert_eq!(told_at_the_end(&group.path(0), &said), expected));
}

#[test]
fn what_is_confirmed_beside_the_door_is_told_to_its_subscribers_at_once() {
    let town = Town::new();
    town.engine.execute(&batch(None, &[create(1, 0)])).unwrap();
    let mut feed = Feed::open(town.door.address(), &[AssetId(1)], 10, Duration::from_secs(30)).unwrap();
    town.engine.execute(&batch(None, &[add(1, 7)])).unwrap();
    let news = feed.next(Duration::from_secs(30)).unwrap().expect("news without another command");
    assert!(matches!(&news[..], [News::Change(change)] if change.asset.unwrap().value == 7), "{news:?}");
}

#[test]
fn a_slow_subscriber_hears_what_it_missed_although_nothing_happens_any_more() {
    let town = Town::new();
    town.engine.execute(&batch(None, &(0..1_000).map(|id| create(id, 0)).collect::<Vec<_>>())).unwrap();
    let mut feed = Feed::open(town.door.address(), &[], 5, Duration::from_secs(30)).unwrap();
    // More than socket and server keep, while it reads nothing.
    let ops = batch(None, &(0..1_000).map(|id| add(id, 1)).collect::<Vec<_>>());
    (0..80).for_each(|_| _ = town.engine.execute(&ops).unwrap());
    // Nothing happens any more. All of it is told, or told as missed.
    let (mut told, mut missed) = (0, 0);
    while told + missed < 80_000 {
        for news in feed.next(Duration::from_secs(30)).unwrap().expect("the rest within the time") {
            match news {
                News::Change(_) => told += 1,
                News::Missed { changes, .. } => missed += changes,
            }
        }
    }
    assert!(told + missed == 80_000 && missed > 0, "{told} {missed}");
}
