//! A group that stands still, or has stopped: who asks hears why, and nobody's memory or place is taken for ever.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use assent_assets::{
    Answer, Client, Command, Feed, Logic, Logics, Op, Options, Refusal, Request, SessionName, Word, Work,
};
use assent_frame::{Head, lay};
use assent_kind::Kind;
use assent_membership::{Ack, Member, Standing};
use assent_world::RealClock;

use super::group::{Group, LIMIT, Plan};
use super::{add, batch, create, done, get, laid, xid};

const COMMAND: u16 = 0x51;
/// An entry of a kind that is not of assets: whoever executes it stops.
const NO_KIND: u16 = 9;

fn framed(command: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    lay(&mut out, Head { mark: 7, kind: COMMAND, ..Head::default() }, &[command]);
    out
}

/// A primary whose standby and arbiter are away.
fn stalled(clients_max: usize) -> Group {
    stalled_after(clients_max, |_| ())
}

/// As [`stalled`], after this.
fn stalled_after(clients_max: usize, before: impl FnOnce(&Group)) -> Group {
    let mut group = Group::new(Plan { clients_max, ..Plan::calm(2, Ack::Received) });
    let mut client = group.client(&[0]);
    client.execute(&[create(1, 0)]).unwrap();
    before(&group);
    group.arbiter.go_away(true);
    drop(group.members.remove(&1));
    group.until("it stalls", |group| matches!(group.status(0).standing, Standing::Stalls(_)).then_some(()));
    group
}

fn ask(group: &Group) -> Result<assent_assets::Status, assent_assets::ClientError> {
    let options = Options { session: false, ..group.options(&[0]) };
    Client::connect(options, Arc::new(RealClock))?.status()
}

/// Each connection whose client had left kept its place: after some seconds nobody could ask why nothing goes on.
#[test]
fn whoever_left_a_stalled_primary_leaves_his_place() {
    let group = stalled(100);
    let command = framed(&batch(None, &[add(1, 1)]));
    for _ in 0..400 {
        let mut stream = UnixStream::connect(group.path(0)).unwrap();
        stream.write_all(&command).unwrap();
    }
    let status = ask(&group).unwrap();
    assert!(status.group.is_some_and(|group| group.why.is_some()), "whoever asks hears why");
    // A place that is kept for questions sends a command elsewhere; one for clients takes it, and it waits.
    group.until("there are places for clients", |group| {
        let mut streams: Vec<_> = (0..10).map(|_| UnixStream::connect(group.path(0)).unwrap()).collect();
        for stream in &mut streams {
            stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            stream.write_all(&command).unwrap();
        }
        // Whoever came later has an answer: these would have theirs, if there were any.
        ask(group).unwrap();
        streams.iter_mut().all(|stream| stream.read(&mut [0; 64]).is_err()).then_some(())
    });
}

#[test]
fn when_all_places_are_taken_there_is_one_for_a_question_and_a_client_is_sent_on() {
    let group = Group::new(Plan { clients_max: 24, ..Plan::calm(1, Ack::Received) });
    let idle: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(group.path(0)).unwrap()).collect();
    for _ in 0..10 {
        assert!(ask(&group).is_ok(), "a question has a place");
    }
    let options = Options { patience: Duration::from_millis(300), ..group.options(&[0]) };
    let refused = Client::connect(options, Arc::new(RealClock)).and_then(|mut client| client.execute(&[create(1, 0)]));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, Kind::Unavailable, "{refused:?}");
    drop(idle);
    group.client(&[0]).execute(&[create(1, 0)]).unwrap();
}

/// Reads that wait hold their commands: a connection could leave 75 MB of them.
#[test]
fn what_waits_for_a_stalled_primary_is_bounded_by_its_bytes() {
    let group = stalled(100);
    let command = framed(&batch(None, &[get(1); 1_024]));
    let mut stream = UnixStream::connect(group.path(0)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut written = 0;
    while written < 24 << 20 {
        match stream.write_all(&command) {
            Ok(()) => written += command.len(),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                assert!(written > 256 << 10, "some are taken: {written}");
                return;
            }
        }
    }
    panic!("{written} bytes of reads are taken from one connection");
}

/// Answers from a connection, this many.
fn answers(stream: &mut UnixStream, count: usize) -> Vec<usize> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut bytes, mut buffer, mut found) = (Vec::new(), vec![0; 1 << 16], Vec::new());
    while found.len() < count {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{} answers, and the end", found.len());
        bytes.extend_from_slice(&buffer[..read]);
        let mut used = 0;
        while let Ok(Some((frame, laid))) = assent_frame::parse(&bytes[used..], 1 << 20) {
            found.push(frame.payload.len());
            used += laid;
        }
        bytes.drain(..used);
    }
    found
}

/// What a session is told again was booked as what the repetition would be answered: a batch of one Get under the number of one of 1,024, 8,000
/// times, left 134 MB of answers that nobody read.
#[test]
fn what_is_told_again_is_bounded_by_its_bytes() {
    const SESSION: SessionName = SessionName(77);
    let asked = |number, ops: &[Op]| framed(&batch(Some(Request { session: SESSION, number, window: 4 }), ops));
    for is_known in [true, false] {
        let first = asked(1, &[get(1); 1_024]);
        let opened = [framed(&laid(|out| Command::lay_open(out, SESSION))), first.clone()];
        let group = stalled_after(100, |group| {
            let mut stream = UnixStream::connect(group.path(0)).unwrap();
            for command in opened.iter().take(if is_known { 2 } else { 1 }) {
                stream.write_all(command).unwrap();
                answers(&mut stream, 1);
            }
        });
        let before = group.status(0).counts.ordered;
        let mut stream = UnixStream::connect(group.path(0)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let again = if is_known { asked(1, &[get(1)]) } else { first };
        let writes = std::thread::spawn(move || {
            writer.write_all(&again).unwrap();
            (1..8_000).for_each(|_| writer.write_all(&asked(1, &[get(1)])).unwrap());
        });
        group.until("some are taken", |group| (group.status(0).counts.ordered - before > 3).then_some(()));
        // Each question has a turn, in which more of them would be taken.
        for _ in 0..300 {
            ask(&group).unwrap();
            let taken = group.status(0).counts.ordered - before;
            assert!(taken < 100, "{taken} answers of 16 KiB are owed to one connection");
        }
        // Whoever reads has all of them.
        group.arbiter.go_away(false);
        let found = answers(&mut stream, 8_000);
        assert!(found.iter().all(|bytes| *bytes == found[0] && *bytes > 16 << 10), "{found:?}");
        writes.join().unwrap();
    }
}

#[test]
fn many_lists_of_branches_are_answered_one_after_the_other() {
    let group = Group::new(Plan::calm(2, Ack::Received));
    let mut client = group.client(&[0]);
    client.execute(&(0..64).map(|id| create(id, 0)).collect::<Vec<_>>()).unwrap();
    for id in 0..64 {
        client.prepare(&xid(id), &[add(id, 1)]).unwrap();
    }
    let mut asking: Vec<Client> = (0..4).map(|_| group.client(&[0])).collect();
    for _ in 0..20 {
        for client in &mut asking {
            assert_eq!(client.in_doubt().unwrap().len(), 64);
        }
    }
}

#[test]
fn a_subscriber_hears_that_its_node_has_stopped_and_nobody_subscribes_there() {
    let group = Group::new(Plan::calm(1, Ack::Received));
    group.client(&[0]).execute(&[create(1, 0)]).unwrap();
    let server = group.options(&[0]).servers.remove(0);
    let mut feed = Feed::open(&server, &[], 100, LIMIT).unwrap();
    group.members[&0].execute(NO_KIND, b"x").unwrap_err();
    let status = group.until("it has stopped", |group| group.status(0).halted);
    assert!(status.contains("kind 9"), "{status}");
    let ended = feed.next(LIMIT).unwrap_err();
    assert_eq!(ended.kind, Kind::Unavailable, "{ended:?}");
    let refused = Feed::open(&server, &[], 100, LIMIT).unwrap_err();
    assert!(refused.kind == Kind::Closed && refused.message.contains("has stopped"), "{refused:?}");
    // A person's word to it is not followed, and told why.
    let mut client = Client::connect(Options { session: false, ..group.options(&[0]) }, Arc::new(RealClock)).unwrap();
    for word in [Word::Release, Word::Force, Word::HandOver(Member(0))] {
        let refused = client.word(word).unwrap_err();
        assert!(refused.message.contains("has stopped: restart it"), "{refused:?}");
    }
}

/// Logic that panics where its input says so, after it has changed something.
#[derive(Debug)]
struct Panics;

impl Logic for Panics {
    fn run(&self, work: &mut Work<'_>, input: &[u8], _: &mut Vec<u8>) -> Result<(), Refusal> {
        work.op(&add(1, 5))?;
        assert!(input != b"panic", "as the test says");
        Ok(())
    }
}

/// The desk of the primary unwound, then that of the standby, and then each at its next start: nobody served these assets again.
#[test]
fn logic_that_panics_is_refused_everywhere_and_nobody_ends() {
    let logics = Logics::default().with(3, Arc::new(Panics));
    for members in [1, 2] {
        let mut group = Group::new(Plan { logics: logics.clone(), ..Plan::calm(members, Ack::Received) });
        let servers: Vec<usize> = (0..usize::from(members)).collect();
        let mut client = group.client(&servers);
        client.execute(&[create(1, 0)]).unwrap();
        let mut call = |input: &[u8]| {
            client.send_call(3, input).unwrap();
            client.receive().unwrap().1
        };
        assert_eq!(call(b"panic"), Answer::Refused { op: 0, refusal: Refusal::Panicked { logic: 3 } });
        assert!(matches!(call(b"fine"), Answer::Done(_)));
        assert!(matches!(call(b"panic"), Answer::Refused { .. }));
        assert_eq!(client.execute(&[get(1)]).unwrap(), done(&[(5, 1)]), "nothing of it remains");
        group.until("all have executed the same", |group| {
            let states: Vec<_> = servers.iter().map(|at| group.status(*at)).collect();
            states.iter().all(|one| (one.applied, one.hash) == (states[0].applied, states[0].hash)).then_some(())
        });
        // And at the next start.
        for at in &servers {
            drop(group.members.remove(at));
        }
        servers.iter().for_each(|at| group.start(*at));
        group.until_whole();
        assert_eq!(group.client(&servers).execute(&[get(1)]).unwrap(), done(&[(5, 1)]));
    }
}
