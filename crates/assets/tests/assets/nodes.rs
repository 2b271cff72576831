//! Nodes of a group that die one after the other: of three, and of a pair whose arbiter is etcd. And strangers at the door of a pair.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use assent_arbiter::Arbiter;
use assent_assets::{Answer, Client, OPS_MAX, Options, Refusal, Role};
use assent_frame::{Head, lay};
use assent_kind::Kind;
use assent_membership::Ack;
use assent_world::net::{Stream, tcp_listener};
use assent_world::{Clock as _, RealClock};

use super::group::{Group, LIMIT, Plan};
use super::{add, batch, create, done, get};

/// So many more, each answered.
fn count_on(client: &mut Client, count: &mut i64) {
    for _ in 0..20 {
        *count += 1;
        let answer = client.execute(&[add(1, 1)]).unwrap();
        assert_eq!(answer, done(&[(*count, u64::try_from(*count).unwrap())]), "each once, in order");
    }
}

fn until_the_same(group: &Group) {
    group.until("all have executed the same", |group| {
        let states: Vec<_> = group.members.keys().map(|at| group.status(*at)).collect();
        states.iter().all(|one| (one.applied, one.hash) == (states[0].applied, states[0].hash)).then_some(())
    });
}

#[test]
fn of_three_nodes_two_may_die_one_after_the_other_and_come_back() {
    for ack in [Ack::Received, Ack::Durable] {
        let mut group = Group::new(Plan::calm(3, ack));
        let mut client = group.client(&[0, 1, 2]);
        client.execute(&[create(1, 0)]).unwrap();
        let mut count = 0;
        count_on(&mut client, &mut count);
        // The primary, and then the next one: the last goes on alone.
        let mut gone = Vec::new();
        for left in [2, 1] {
            let leader = group.until("one leads", Group::leader);
            drop(group.members.remove(&leader));
            gone.push(leader);
            count_on(&mut client, &mut count);
            let leader = group.until("another one leads", Group::leader);
            group.until("who is gone is not counted on", |group| {
                (group.status(leader).configuration.in_sync.len() == left).then_some(())
            });
        }
        for at in gone {
            group.start(at);
            count_on(&mut client, &mut count);
        }
        group.until_whole();
        count_on(&mut client, &mut count);
        until_the_same(&group);
    }
}

/// The first of two leads, the second one was told otherwise: what each is, and says.
fn told_otherwise(otherwise: impl FnOnce(&mut Plan)) -> (Group, Client, [(Role, String); 2]) {
    let mut group = Group::new(Plan::calm(2, Ack::Received));
    let mut client = group.client(&[0, 1]);
    client.execute(&[create(1, 0)]).unwrap();
    drop(group.members.remove(&1));
    otherwise(&mut group.plan);
    group.start(1);
    let says = [0, 1].map(|at| {
        group.until("each says so", |group| Some(why(group, at)).filter(|(_, why)| why.contains(", this one, node ")))
    });
    assert_eq!(client.execute(&[add(1, 1)]).unwrap(), done(&[(1, 1)]), "the primary goes on");
    (group, client, says)
}

fn why(group: &Group, at: usize) -> (Role, String) {
    let options = Options { session: false, ..group.options(&[at]) };
    let status = Client::connect(options, Arc::new(RealClock)).unwrap().status().unwrap();
    status.group.map(|status| (status.role, status.why.unwrap_or_default())).unwrap()
}

#[test]
fn a_node_that_was_told_another_ack_or_group_is_refused_and_both_say_which() {
    let plan = Plan::calm(2, Ack::Received);
    let [ack, group]: [fn(&mut Plan); 2] = [|plan| plan.ack = Ack::Durable, |plan| plan.group = "other"];
    let told = [(ack, ["ack received", "ack durable"]), (group, ["group one", "group other"])];
    for (otherwise, [own, other]) in told {
        let (mut group, _client, [first, second]) = told_otherwise(otherwise);
        assert_eq!(first.0, Role::Primary);
        assert!(
            first.1.starts_with(&format!("node 1 has {other}, this one, node 0, has {own}: they must")),
            "{first:?}"
        );
        assert!(
            second.1.contains(&format!("node 0 has {own}, this one, node 1, has {other}: they must")),
            "{second:?}"
        );
        // Told the same again, it comes back, and nothing is said any more.
        drop(group.members.remove(&1));
        group.plan = plan.clone();
        group.start(1);
        group.until_whole();
        assert_eq!(why(&group, 0), (Role::Primary, String::new()));
        assert_eq!(why(&group, 1), (Role::Standby, String::new()));
    }
}

#[test]
fn a_node_that_was_told_another_witness_is_in_sync_and_both_say_so() {
    let (group, _client, [first, _]) = told_otherwise(|plan| plan.witness = "host:2");
    group.until_whole();
    let said = "node 1 has the witness host:2, this one, node 0, has host:1: if these are two";
    assert!(first.0 == Role::Primary && first.1.starts_with(said), "{first:?}");
    let (_, second) = group.until("it follows", |group| Some(why(group, 1)).filter(|(role, _)| *role == Role::Standby));
    assert!(
        second.contains("node 0 has the witness host:1, this one, node 1, has host:2: if these are two"),
        "{second}"
    );
}

struct Etcd {
    process: Child,
    folder: tempfile::TempDir,
    ports: [u16; 2],
}

impl Etcd {
    fn start() -> Option<Self> {
        let places = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&places).map(|place| place.join("etcd")).find(|path| path.exists());
        let Some(program) = program else {
            println!("SKIPPED: no etcd on PATH; scripts/servers install brings it");
            return None;
        };
        for _ in 0..8 {
            // Free a moment ago; whoever takes one first, we try others.
            let free = || tcp_listener(&"127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap().port();
            let (folder, ports) = (tempfile::tempdir().unwrap(), [free(), free()]);
            let process = Self::spawn(&program, &folder, ports);
            let mut etcd = Self { process, folder, ports };
            if etcd.answers() {
                return Some(etcd);
            }
        }
        panic!("etcd is installed and does not start");
    }

    fn spawn(program: &PathBuf, folder: &tempfile::TempDir, ports: [u16; 2]) -> Child {
        let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(program);
        command.env_clear().stdout(Stdio::null()).stderr(Stdio::null());
        command.args(["--data-dir", &folder.path().join("data").display().to_string()]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]).spawn().unwrap()
    }

    fn again(&mut self) {
        let program = PathBuf::from("etcd");
        self.process = Self::spawn(&program, &self.folder, self.ports);
        assert!(self.answers(), "etcd starts again");
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn opens(&self, group: &str) -> Box<dyn Fn() -> Box<dyn Arbiter>> {
        let (at, group) = (format!("etcd://127.0.0.1:{}", self.ports[0]), group.to_owned());
        let open =
            move || assent_arbiter::open(&at, group.parse().unwrap(), Arc::new(RealClock), Duration::from_secs(1));
        Box::new(move || open().unwrap())
    }

    fn answers(&mut self) -> bool {
        let (end, open) = (RealClock.now().after(LIMIT), self.opens("ready"));
        while RealClock.now() < end && self.process.try_wait().unwrap().is_none() {
            if open().read().is_ok() {
                return true;
            }
            RealClock.sleep(Duration::from_millis(50));
        }
        false
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[test]
fn a_pair_over_etcd_fails_over_and_needs_it_for_nothing_else() {
    let Some(mut etcd) = Etcd::start() else { return };
    let plan = Plan { arbiter: Some(Arc::from(etcd.opens("pair"))), ..Plan::calm(2, Ack::Received) };
    let mut group = Group::new(plan);
    let mut client = group.client(&[0, 1]);
    client.execute(&[create(1, 0)]).unwrap();
    let mut count = 0;
    // Without etcd the pair goes on: nothing of a command asks it.
    etcd.kill();
    count_on(&mut client, &mut count);
    etcd.again();
    let leader = group.until_whole();
    drop(group.members.remove(&leader));
    count_on(&mut client, &mut count);
    group.start(leader);
    group.until_whole();
    count_on(&mut client, &mut count);
    until_the_same(&group);
    assert!(group.status(leader).configuration.epoch.0 >= 2);
}

fn frame(mark: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    lay(&mut out, Head { mark, kind, ..Head::default() }, &[payload]);
    out
}

/// The kind and the mark of the next answer.
fn answered(stream: &Stream) -> (u16, u64) {
    let mut bytes = Vec::new();
    loop {
        if let Ok(Some((frame, _))) = assent_frame::parse(&bytes, 1 << 20) {
            return (frame.kind, frame.mark);
        }
        let mut byte = [0; 1];
        let read = (&*stream).read(&mut byte).unwrap();
        assert_eq!(read, 1, "the connection ends");
        bytes.push(byte[0]);
    }
}

#[test]
fn strangers_at_the_door_of_a_pair_get_an_answer_or_a_close_and_harm_nobody() {
    let group = Group::new(Plan::calm(2, Ack::Received));
    let mut client = group.client(&[0]);
    client.execute(&[create(1, i64::MAX - 1), create(2, 0)]).unwrap();
    // Unknown, too much, and a batch of which one step cannot be: all or nothing.
    let refused = |answer: Answer| match answer {
        Answer::Refused { op, refusal } => (op, refusal),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(client.execute(&[add(9, 1)]).unwrap()), (0, Refusal::Unknown { id: assent_assets::AssetId(9) }));
    let (op, refusal) = refused(client.execute(&[add(2, 1), add(1, 2)]).unwrap());
    assert!(op == 1 && matches!(refusal, Refusal::Overflow { by: 2, .. }), "{refusal:?}");
    assert_eq!(client.execute(&[get(2)]).unwrap(), done(&[(0, 0)]));
    // The longest batch is taken, one more is not.
    let most = vec![add(2, 1); OPS_MAX];
    assert!(matches!(client.execute(&most).unwrap(), Answer::Done(_)));
    assert_eq!(client.send(&[most, vec![add(2, 1)]].concat()).unwrap_err().kind, Kind::Invalid);
    let connect = || {
        let stream = Stream::connect(&group.options(&[0]).servers[0], LIMIT).unwrap();
        stream.set_timeouts(Some(LIMIT), Some(LIMIT)).unwrap();
        stream
    };
    let good = frame(5, 0x51, &batch(None, &[add(2, 1)]));
    for run in 0..200 {
        let bytes = assent_sim::input(7, run, &[&good, b"GET / HTTP/1.1\r\n\r\n"]);
        _ = (&connect()).write_all(&bytes);
    }
    let stream = connect();
    for payload in [&[1, 2, 3][..], &[0xff; 80_000]] {
        (&stream).write_all(&frame(6, 0x51, payload)).unwrap();
        assert_eq!(answered(&stream), (0x53, 6), "refused, with its mark");
    }
    good.chunks(5).for_each(|piece| (&stream).write_all(piece).unwrap());
    assert_eq!(answered(&stream), (0x52, 5));
    // A thousand at once, on each a command.
    let mut streams = Vec::new();
    for mark in 0..1_000 {
        let Ok(stream) = Stream::connect(&group.options(&[0]).servers[0], LIMIT) else { break };
        stream.set_timeouts(Some(LIMIT), Some(LIMIT)).unwrap();
        (&stream).write_all(&frame(mark, 0x51, &batch(None, &[add(2, 1)]))).unwrap();
        streams.push((stream, mark));
    }
    assert!(streams.len() >= 200, "a machine that allows fewer descriptors shows it with fewer: {}", streams.len());
    streams.iter().for_each(|(stream, mark)| assert_eq!(answered(stream), (0x52, *mark)));
    assert!(matches!(client.execute(&[get(2)]).unwrap(), Answer::Done(_)));
    until_the_same(&group);
}
