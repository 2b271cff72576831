//! The client against servers that misbehave: each story is what was sent, what came back, and what the caller was told.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_assets::{
    Answer, AssetId, AsyncClient, Client, Command, Event, OPS_MAX, Op, Options, Refusal, RemoteAssets, Results, What,
};
use assent_frame::{Head, Writer, lay};
use assent_kind::Kind;
use assent_world::net::Address;
use assent_world::{Clock as _, RealClock, RealDice};
use assent_xa::{Reply, Resource as _, Verb};

use super::{add, done, get};

const LONG: Duration = Duration::from_secs(30);
const ANSWER: u16 = 0x52;
const REFUSED: u16 = 0x53;
const ELSEWHERE: u16 = 0x57;

/// What a server of a test says to a request: the mark of the frame and the command in it.
type Script = Box<dyn FnMut(u64, &Command<'_>) -> Said + Send>;

enum Said {
    Answer(Answer),
    Refused(Kind),
    Elsewhere(String),
    Nothing,
    /// The connection ends here.
    Gone,
}

/// A server of a test, which follows a script on one connection after the other.
struct Town {
    at: Address,
    _folder: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
    _thread: JoinHandle<()>,
}

fn town(mut script: Script) -> Town {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let thread = std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            serve(stream.unwrap(), &mut script);
        }
    });
    Town { at: Address::Unix(path), _folder: folder, connections, _thread: thread }
}

fn serve(mut stream: std::os::unix::net::UnixStream, script: &mut Script) {
    let (mut inbox, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Ok(Some((frame, laid))) = assent_frame::parse(&inbox, 1 << 20) {
            let command = Command::read(frame.payload).unwrap();
            let mark = frame.mark;
            let (kind, payload) = match script(mark, &command) {
                Said::Answer(answer) => (ANSWER, laid_answer(&answer)),
                Said::Refused(kind) => (REFUSED, [&[kind.wire()][..], b"said the test"].concat()),
                Said::Elsewhere(primary) => {
                    let mut out = Writer::new();
                    out.text(&primary).text("ask there");
                    (ELSEWHERE, out.into_vec())
                }
                Said::Nothing => {
                    inbox.drain(..laid);
                    continue;
                }
                Said::Gone => return,
            };
            let mut out = Vec::new();
            lay(&mut out, Head { mark, kind, ..Head::default() }, &[&payload]);
            inbox.drain(..laid);
            if stream.write_all(&out).is_err() {
                return;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => inbox.extend_from_slice(&buffer[..read]),
        }
    }
}

fn laid_answer(answer: &Answer) -> Vec<u8> {
    let mut out = Writer::new();
    answer.lay(&mut out);
    out.into_vec()
}

fn empty() -> Said {
    Said::Answer(Answer::Done(Results::default()))
}

/// Opens sessions, and leaves the rest to the script.
fn with_sessions(mut script: impl FnMut(u64, &Command<'_>) -> Said + Send + 'static) -> Town {
    town(Box::new(move |mark, command| match command.what {
        What::Open { session } => Said::Answer(Answer::Opened(session)),
        _ => script(mark, command),
    }))
}

fn options(towns: &[&Town]) -> Options {
    let servers = towns.iter().map(|town| town.at.clone()).collect();
    Options { patience: LONG, silence: LONG, ..Options::to_all(servers) }
}

fn connect(options: Options) -> Client {
    Client::connect(options, Arc::new(RealClock)).unwrap()
}

#[test]
fn a_refused_number_is_free_again_and_what_came_behind_it_was_not_done() {
    // The first of three is refused, as by a full disk. Before, its number stayed spent, and the session was of no use for ever.
    let (told, heard) = channel();
    let mut expected = 1;
    let mut refusals = 1;
    let town = with_sessions(move |_, command| {
        let request = command.request.unwrap();
        told.send(request.number).unwrap();
        if refusals > 0 {
            refusals -= 1;
            return Said::Refused(Kind::Full);
        }
        if request.number != expected {
            return Said::Answer(Answer::Gap { expected });
        }
        expected += 1;
        empty()
    });
    let mut client = connect(options(&[&town]));
    (0..3).for_each(|_| _ = client.send(&[add(1, 1)]).unwrap());
    assert_eq!(client.receive().unwrap_err().kind, Kind::Full);
    let behind = client.send(&[add(1, 1)]).unwrap_err();
    assert_eq!((behind.kind, client.waiting()), (Kind::Busy, 2), "{behind}");
    for _ in 0..2 {
        let gap = client.receive().unwrap_err();
        assert!(gap.kind == Kind::Busy && gap.message.contains("not done"), "{gap}");
    }
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
    drop(client);
    drop(town.at);
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2, 3, 1, 2]);
}

#[test]
fn a_number_that_was_sent_before_and_is_refused_now_is_in_doubt_and_never_given_to_another_command() {
    // The first connection ends with the command in the log, as far as anybody knows; the next server is too busy to say so.
    let (told, heard) = channel();
    let mut sessions = Vec::new();
    let mut said = 0;
    let town = town(Box::new(move |_, command| match command.what {
        What::Open { session } => {
            sessions.push(session);
            Said::Answer(Answer::Opened(session))
        }
        _ => {
            let request = command.request.unwrap();
            told.send((sessions.iter().position(|one| *one == request.session).unwrap(), request.number)).unwrap();
            said += 1;
            match said {
                1 => Said::Gone,
                2 => Said::Refused(Kind::Busy),
                3 => Said::Answer(Answer::Gap { expected: 1 }),
                _ => empty(),
            }
        }
    }));
    let mut client = connect(options(&[&town]));
    client.send(&[add(1, 1)]).unwrap();
    client.send(&[add(1, 1)]).unwrap();
    assert_eq!(client.receive().unwrap_err().kind, Kind::InDoubt);
    assert_eq!(client.receive().unwrap_err().kind, Kind::InDoubt, "it stood behind the one");
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
    assert!(client.events().contains(&Event::SessionLost));
    // Of the first connection both, or only the first, were read.
    let heard: Vec<(usize, u64)> = heard.try_iter().collect();
    assert_eq!(heard.last(), Some(&(1, 1)), "{heard:?}");
    assert!(heard.iter().all(|(session, number)| *session == 0 || *number == 1), "{heard:?}");
}

#[test]
fn an_outcome_that_nobody_answers_leaves_nothing_behind_for_the_next_one_to_be_mistaken_for() {
    let town = town(Box::new(|_, command| match command.what {
        What::InDoubt => Said::Answer(Answer::Listed(Vec::new())),
        _ => Said::Nothing,
    }));
    let patience = Duration::from_secs(2);
    let mut client = connect(Options { session: false, patience, silence: patience, ..options(&[&town]) });
    let xid = super::xid(1);
    assert_eq!(client.outcome(&xid, true).unwrap_err().kind, Kind::Unavailable);
    assert_eq!(client.waiting(), 0);
    assert_eq!(client.in_doubt().unwrap(), []);
}

#[test]
fn an_outcome_is_never_answered_by_what_an_earlier_one_has_left_behind() {
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&is_open);
    let town = town(Box::new(move |_, command| match command.what {
        _ if !opened.load(Ordering::SeqCst) => Said::Nothing,
        What::Rollback { .. } => empty(),
        _ => Said::Answer(Answer::Refused { op: 0, refusal: Refusal::BranchUnknown }),
    }));
    let patience = Duration::from_secs(2);
    let options = Options { session: false, patience, silence: patience, ..options(&[&town]) };
    let mut assets = RemoteAssets::connect("assets", options, Arc::new(RealClock)).unwrap();
    let lost = assets.call(Verb::Rollback(super::xid(1)));
    assert!(matches!(lost, Reply::Lost(_)), "{lost:?}");
    is_open.store(true, Ordering::SeqCst);
    let other = assets.call(Verb::Commit(super::xid(2)));
    assert!(matches!(other, Reply::Unknown(_)), "{other:?}");
}

#[test]
fn what_is_too_long_is_refused_before_it_has_a_number() {
    let town = with_sessions(|_, command| {
        assert_eq!(command.request.unwrap().number, 1);
        empty()
    });
    let mut client = connect(options(&[&town]));
    assert_eq!(client.send(&vec![add(1, 1); OPS_MAX + 1]).unwrap_err().kind, Kind::Invalid);
    assert_eq!(client.send(&[]).unwrap_err().kind, Kind::Invalid);
    assert_eq!(client.send_call(1, &vec![0; (1 << 16) + 1]).unwrap_err().kind, Kind::Invalid);
    assert_eq!(client.execute(&vec![add(1, 1); OPS_MAX]).unwrap(), done(&[]));
}

#[test]
fn a_session_that_is_forgotten_is_told_once_and_the_next_command_has_another_one() {
    let mut names = Vec::new();
    let mut answers = 0;
    let (told, heard) = channel();
    let town = town(Box::new(move |_, command| match command.what {
        What::Open { session } => {
            names.push(session);
            told.send(session).unwrap();
            Said::Answer(Answer::Opened(session))
        }
        _ => {
            answers += 1;
            if answers < 3 { Said::Answer(Answer::InDoubt) } else { empty() }
        }
    }));
    let mut client = connect(options(&[&town]));
    let first = client.session();
    client.send(&[add(1, 1)]).unwrap();
    client.send(&[add(1, 1)]).unwrap();
    assert_eq!(client.receive().unwrap().1, Answer::InDoubt);
    assert_eq!(client.receive().unwrap().1, Answer::InDoubt);
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
    assert_ne!(client.session(), first);
    assert_eq!(client.events(), [Event::SessionLost]);
    assert_eq!(heard.try_iter().count(), 2);
}

#[test]
fn a_server_that_takes_connections_and_closes_them_is_given_up_after_the_patience() {
    // Before, this was a loop without a pause and without an end.
    let town = with_sessions(|_, _| Said::Gone);
    let mut client = connect(Options { patience: Duration::from_secs(2), ..options(&[&town]) });
    let error = client.execute(&[add(1, 1)]).unwrap_err();
    assert_eq!((error.kind, client.waiting()), (Kind::Unavailable, 1), "{error}");
    let tried = town.connections.load(Ordering::SeqCst);
    assert!(tried < 300, "{tried} connections in 2 s");
    assert!(client.events().is_empty(), "nobody answered");
    assert_eq!(
        client.receive().unwrap_err().kind,
        Kind::Unavailable,
        "it has its patience again, and the command is kept"
    );
}

#[test]
fn a_server_that_says_nothing_is_given_up_after_the_patience() {
    let town = with_sessions(|_, _| Said::Nothing);
    let mut client = connect(Options { patience: Duration::from_secs(2), ..options(&[&town]) });
    assert_eq!(client.execute(&[add(1, 1)]).unwrap_err().kind, Kind::Unavailable);
    assert_eq!(client.waiting(), 1);
}

#[test]
fn one_of_several_that_says_nothing_is_left_for_the_next_with_everything_of_the_session() {
    let frozen = with_sessions(|_, _| Said::Nothing);
    let mut number = 0;
    let lively = with_sessions(move |_, command| {
        number += 1;
        assert_eq!(command.request.unwrap().number, number);
        empty()
    });
    let mut client = connect(Options { silence: Duration::from_secs(2), ..options(&[&frozen, &lively]) });
    (0..5).for_each(|_| _ = client.send(&[add(1, 1)]).unwrap());
    (0..5).for_each(|_| assert_eq!(client.receive().unwrap().1, done(&[])));
    let events = client.events();
    let [Event::FailedOver { from, to, again: 5, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((from, to), (&frozen.at.to_string(), &lively.at.to_string()));
}

#[test]
fn who_does_not_lead_says_who_does_and_even_a_command_without_a_session_goes_there() {
    let mut count = 0;
    let primary = with_sessions(move |_, _| {
        count += 1;
        if count == 1 { Said::Answer(Answer::Done(Results::default())) } else { empty() }
    });
    let name = primary.at.to_string();
    let standby = with_sessions(move |_, _| Said::Elsewhere(name.clone()));
    let third = with_sessions(|_, _| panic!("nobody was sent here"));
    let mut client = connect(Options { session: false, ..options(&[&standby, &third, &primary]) });
    client.send(&[add(1, 1)]).unwrap();
    client.send(&[get(1)]).unwrap();
    assert_eq!(client.receive().unwrap().1, done(&[]), "nothing of it was done where it was refused: no doubt");
    assert_eq!(client.receive().unwrap().1, done(&[]));
    assert_eq!(third.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn a_window_of_long_commands_does_not_stop_a_server_that_waits_to_be_read() {
    // The server reads no more once so many of its answers are unread; the client wrote everything before it read.
    let town = with_sessions(|_, command| {
        let What::Batch(ops) = command.what else { panic!() };
        let assets = vec![assent_assets::Asset::default(); ops.count().into()];
        Said::Answer(Answer::Done(Results { assets, output: Vec::new() }))
    });
    let mut client = connect(Options { window: 1_024, ..options(&[&town]) });
    for _ in 0..1_024 {
        client.send(&vec![Op::Set { id: AssetId(1), value: 1 }; 500]).unwrap();
    }
    client.flush().unwrap();
    for _ in 0..1_024 {
        let (_, Answer::Done(results)) = client.receive().unwrap() else { panic!() };
        assert_eq!(results.assets.len(), 500);
    }
    assert!(client.events().is_empty(), "one connection was enough");
}

#[test]
fn a_command_laid_on_a_lost_connection_is_sent_and_not_in_doubt() {
    // The connection goes with an answer missing; the command laid behind that was dropped, and called in doubt after five seconds.
    let mut first = true;
    let town = with_sessions(move |_, _| if std::mem::take(&mut first) { Said::Gone } else { empty() });
    let mut client = connect(Options { session: false, ..options(&[&town]) });
    client.send(&[add(1, 1)]).unwrap();
    assert_eq!(client.receive().unwrap_err().kind, Kind::InDoubt);
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
}

/// Waits for a future as a runtime does, on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => return answer,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn many_tasks_share_one_client_whose_answers_find_them() {
    let mut number = 0;
    let mut lost = false;
    let town = with_sessions(move |_, command| {
        let request = command.request.unwrap().number;
        // In the middle the connection goes, once.
        if request == 50 && !std::mem::replace(&mut lost, true) {
            return Said::Gone;
        }
        number += 1;
        assert_eq!(request, number);
        let asset = assent_assets::Asset { value: request as i64, updates: request };
        Said::Answer(Answer::Done(Results { assets: vec![asset], output: Vec::new() }))
    });
    let client = AsyncClient::connect(options(&[&town]), Arc::new(RealClock)).unwrap();
    let futures: Vec<_> = (0..100).map(|_| client.execute(&[add(1, 1)])).collect();
    for (number, future) in (1..).zip(futures) {
        assert_eq!(wait(future).unwrap(), done(&[(number, number as u64)]));
    }
    let task = client.clone();
    let other = std::thread::spawn(move || wait(task.execute(&[add(1, 1)])));
    assert_eq!(other.join().unwrap().unwrap(), done(&[(101, 101)]));
    assert_eq!(wait(client.execute(&[])).unwrap_err().kind, Kind::Invalid);
    assert!(matches!(client.events()[..], [Event::Reconnected { .. }]));
}

/// A command that came into the queue once others had been sent was told of by nobody, for as long as nobody answered.
#[test]
fn a_task_hears_that_nobody_answers_though_its_command_was_not_sent_yet() {
    let (says, hears) = channel();
    let town = with_sessions(move |mark, _| {
        _ = says.send(mark);
        Said::Nothing
    });
    let few = Options { window: 1, patience: Duration::from_secs(2), ..options(&[&town]) };
    let client = AsyncClient::connect(few, Arc::new(RealClock)).unwrap();
    let sent = client.execute(&[add(1, 1)]);
    // The server has it, and the queue has room.
    _ = hears.recv().unwrap();
    let queued = client.execute(&[add(1, 1)]);
    assert_eq!(wait(sent).unwrap_err().kind, Kind::InDoubt);
    assert_eq!(wait(queued).unwrap_err().kind, Kind::Unavailable, "nothing was done");
}

#[test]
fn a_task_hears_that_nobody_answers_and_a_full_window_says_so() {
    let town = with_sessions(|_, _| Said::Nothing);
    let few = Options { window: 2, patience: Duration::from_secs(2), ..options(&[&town]) };
    let client = AsyncClient::connect(few, Arc::new(RealClock)).unwrap();
    let futures: Vec<_> = (0..20).map(|_| client.execute(&[add(1, 1)])).collect();
    let kinds: Vec<Kind> = futures.into_iter().map(|future| wait(future).unwrap_err().kind).collect();
    assert_eq!(kinds[0], Kind::InDoubt, "it was sent, and may be done yet");
    assert!(kinds.contains(&Kind::Busy), "{kinds:?}");
}

/// The servers had lost commands that were answered, as their mode allows: each command behind them was answered `Gap`, for ever.
#[test]
fn a_session_that_its_servers_know_less_of_is_over_and_another_one_goes_on() {
    let mut sessions = Vec::new();
    let town = town(Box::new(move |_, command| match command.what {
        What::Open { session } => {
            sessions.push(session);
            Said::Answer(Answer::Opened(session))
        }
        _ => {
            let request = command.request.unwrap();
            let is_first = sessions.first() == Some(&request.session);
            if is_first && request.number > 1 { Said::Answer(Answer::Gap { expected: 1 }) } else { empty() }
        }
    }));
    let mut client = connect(options(&[&town]));
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
    (0..2).for_each(|_| _ = client.send(&[add(1, 1)]).unwrap());
    for _ in 0..2 {
        let gap = client.receive().unwrap_err();
        assert!(gap.kind == Kind::Busy && gap.message.contains("answered are lost"), "{gap}");
    }
    assert_eq!(client.events(), [Event::SessionLost]);
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]), "another session");
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
}

/// Servers that are slower than the silence were never heard: each reconnection stood behind the queue again.
#[test]
fn servers_that_are_slower_than_the_silence_are_given_more_time() {
    let slow = || {
        with_sessions(|_, _| {
            RealClock.sleep(Duration::from_millis(150));
            empty()
        })
    };
    let (one, two) = (slow(), slow());
    let mut client = connect(Options { silence: Duration::from_millis(20), ..options(&[&one, &two]) });
    for _ in 0..3 {
        assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[]));
    }
    let connections = one.connections.load(Ordering::SeqCst) + two.connections.load(Ordering::SeqCst);
    assert!(connections < 60, "{connections}");
}

/// The thread behind the handles went on for ever where its servers did not come back.
#[test]
fn the_thread_of_handles_that_are_gone_ends_where_nobody_answers() {
    let town = with_sessions(|_, _| Said::Nothing);
    let dice = Arc::new(RealDice);
    let patience = Duration::from_secs(2);
    let options = Options { patience, silence: patience, dice: dice.clone(), ..options(&[&town]) };
    let client = AsyncClient::connect(options, Arc::new(RealClock)).unwrap();
    let answering = client.execute(&[add(1, 1)]);
    drop(client);
    drop(answering);
    let begun = RealClock.now();
    while Arc::strong_count(&dice) > 1 {
        assert!(RealClock.now().since(begun) < LONG, "the thread goes on");
        RealClock.sleep(Duration::from_millis(5));
    }
}
