//! The processes of a row: a server, or a pair with its witness, or a floor; and the network between them, where one is added.
//!
//! Walk: [`Program`] is what the processes are of · [`Subject::open`] starts what a case wants, and returns when it can be loaded · dropped, all of it
//! is killed. Deliberately absent: what a server is told beside its folder, its places and its acknowledgement.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assent_assets::Role as NodeRole;
use assent_kind::Kind;
use assent_world::net::{Address, tcp_listener};
use assent_world::{Clock as _, Disk as _, RealClock, RealDisk};

use super::peers::{self, Peer};
use super::speech::Speech;
use super::{Case, Role, audit, failed};
use crate::BenchError;
use crate::host::without_settings;
use crate::proxy::{Delay, Proxy};

/// The label of a floor, in the place of an acknowledgement.
pub(super) const FLOOR: &str = "floor";
/// What a server says first.
const SERVES: &str = "ready assets=";
/// How long a pair may take until it holds together.
const WHOLE_AT_MOST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(3);

/// The program that knows `assets serve`, `witness` and `bench assets-floor`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What every server is told beside what a case says.
    pub extra: Vec<String>,
}

/// What is loaded, and its processes. Dropped, they are killed.
#[derive(Debug)]
pub struct Subject {
    /// `floor`, or the acknowledgement.
    pub ack: String,
    /// Where clients send their commands.
    pub at: Address,
    /// Where its nodes are asked, without a network in between; none of a floor.
    pub nodes: Vec<Address>,
    /// How it is spoken to.
    pub speech: Speech,
    pub(super) processes: Vec<Process>,
    pub(super) proxies: Vec<Proxy>,
}

/// One process of a subject, killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: &'static str,
    pub(super) child: Child,
    /// What it was told, where it can be started again.
    pub(super) told: Vec<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended by itself: then there is nothing to kill.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Program {
    /// Starts one; where it says that it is ready.
    fn start(&self, name: &'static str, words: &[String], ready: &str) -> Result<(Process, Address), BenchError> {
        let mut command = Command::new(&self.path);
        without_settings(&mut command);
        command.args(words).env("ASSENT_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::null()).spawn().map_err(|error| failed("starting a server", &error))?;
        let (mut line, mut process) = (String::new(), Process { name, child, told: words.to_vec() });
        if let Some(out) = process.child.stdout.take() {
            // Without a line it has ended, and says nothing.
            _ = BufReader::new(out).read_line(&mut line);
        }
        let at = line.trim().strip_prefix(ready).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let refused = || BenchError::new(Kind::Unavailable, format!("the {name} of the race did not start: {line:?}"));
        Ok((process, at.ok_or_else(refused)?))
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A port that nobody has now.
pub(super) fn free() -> Result<Address, BenchError> {
    let here = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    let port = tcp_listener(&here)
        .and_then(|listener| listener.local_addr())
        .map_err(|error| failed("a free port", &error))?;
    Ok(Address::from(port))
}

/// The places of the network: each way in leads through a proxy of its own, where there is a delay.
pub(super) struct Network {
    delay: Delay,
    pub(super) proxies: Vec<Proxy>,
}

impl Network {
    pub(super) fn to(&mut self, server: &Address) -> Result<Address, BenchError> {
        if self.delay == Delay::default() {
            return Ok(server.clone());
        }
        let proxy = Proxy::start(server, self.delay)?;
        let at = proxy.address().clone();
        self.proxies.push(proxy);
        Ok(at)
    }
}

impl Subject {
    /// Starts the processes over an empty folder; an `ack` of [`FLOOR`] is a floor.
    ///
    /// # Errors
    /// `Unavailable` with what did not start.
    pub fn open(program: &Program, folder: &Path, case: &Case, ack: &str) -> Result<Self, BenchError> {
        let delay = Delay { rtt_us: case.rtt_us, jitter_us: 0 };
        let network = Network { delay, proxies: Vec::new() };
        if let Some(peer) = Peer::named(ack) {
            return peers::open(peer, network, folder, case.role);
        }
        match (ack, case.role) {
            (FLOOR, role) => Self::floor(program, network, role),
            (_, Role::Solo) => Self::solo(program, network, folder, ack),
            (_, Role::Pair) => Self::pair(program, network, folder, ack),
        }
    }

    fn floor(program: &Program, mut network: Network, role: Role) -> Result<Self, BenchError> {
        let ready = "ready floor=";
        let (echo, mut at) = program.start("echo", &words(&["bench", "assets-floor"]), ready)?;
        let mut processes = vec![echo];
        if role == Role::Pair {
            let next = network.to(&at)?.to_string();
            let (relay, its) = program.start("relay", &words(&["bench", "assets-floor", "--next", &next]), ready)?;
            processes.insert(0, relay);
            at = its;
        }
        let at = network.to(&at)?;
        Ok(Self {
            ack: FLOOR.to_owned(),
            at,
            nodes: Vec::new(),
            speech: Speech::Echo,
            processes,
            proxies: network.proxies,
        })
    }

    fn solo(program: &Program, mut network: Network, folder: &Path, ack: &str) -> Result<Self, BenchError> {
        let data = folder.join("data").display().to_string();
        let listen = free()?.to_string();
        let mut serve = words(&["assets", "serve", "--data", &data, "--listen", &listen, "--ack", ack]);
        serve.extend_from_slice(&program.extra);
        let (server, node) = program.start("server", &serve, SERVES)?;
        let (at, processes) = (network.to(&node)?, vec![server]);
        Ok(Self {
            ack: ack.to_owned(),
            at,
            nodes: vec![node],
            speech: Speech::Assets,
            processes,
            proxies: network.proxies,
        })
    }

    fn pair(program: &Program, mut network: Network, folder: &Path, ack: &str) -> Result<Self, BenchError> {
        let witness_data = folder.join("witness").display().to_string();
        let witness = words(&["witness", "--data", &witness_data, "--listen", "127.0.0.1:0"]);
        let (witness, arbiter) = program.start("witness", &witness, "ready witness=")?;
        let (mut processes, mut nodes) = (Vec::new(), Vec::new());
        let peers = [free()?, free()?];
        let clients = [free()?, free()?];
        for (number, name) in [(1_usize, "primary"), (2, "standby")] {
            let data = folder.join(format!("node-{number}")).display().to_string();
            let mut serve = words(&["assets", "serve", "--node", &number.to_string(), "--data", &data, "--ack", ack]);
            serve.extend(words(&["--witness", &arbiter.to_string()]));
            for (other, (peer, client)) in (1..).zip(peers.iter().zip(&clients)) {
                let peer = if other == number { peer.clone() } else { network.to(peer)? };
                serve.extend(words(&["--member", &format!("{other}={peer},{client}")]));
            }
            serve.extend_from_slice(&program.extra);
            let (process, node) = program.start(name, &serve, SERVES)?;
            processes.push(process);
            nodes.push(node);
        }
        processes.push(witness);
        let at = network.to(&whole(&nodes)?)?;
        Ok(Self { ack: ack.to_owned(), at, nodes, speech: Speech::Assets, processes, proxies: network.proxies })
    }

    /// The processes that serve, by name.
    pub fn processes(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.processes.iter().map(|process| (process.name, process.child.id()))
    }

    /// The places of those that are asked, in the order of their processes.
    pub(super) fn servers(&self) -> Vec<usize> {
        (0..self.nodes.len()).collect()
    }

    /// These die at once.
    pub(super) fn kill(&mut self, which: &[usize]) {
        for at in which {
            if let Some(process) = self.processes.get_mut(*at) {
                _ = process.child.kill();
                _ = process.child.wait();
            }
        }
    }

    /// These are started again, all at once, where they were, over what they left.
    ///
    /// # Errors
    /// `Unavailable` with what did not start.
    pub(super) fn again(&mut self, program: &Program, which: &[usize]) -> Result<(), BenchError> {
        let told: Vec<(usize, &'static str, Vec<String>)> = which
            .iter()
            .filter_map(|at| self.processes.get(*at).map(|process| (*at, process.name, process.told.clone())))
            .collect();
        let started = std::thread::scope(|scope| {
            let start = |(at, name, words): &(usize, &'static str, Vec<String>)| {
                let (at, name, words) = (*at, *name, words.clone());
                (at, scope.spawn(move || program.start(name, &words, SERVES)))
            };
            let threads: Vec<_> = told.iter().map(start).collect();
            let panicked = |_| Err(BenchError::new(Kind::Internal, "who starts a server panicked"));
            threads.into_iter().map(|(at, thread)| (at, thread.join().unwrap_or_else(panicked))).collect::<Vec<_>>()
        });
        for (at, process) in started {
            let (process, _) = process?;
            if let Some(place) = self.processes.get_mut(at) {
                *place = process;
            }
        }
        Ok(())
    }

    /// Processor time that the network took: it is this process's, and none of the clients'.
    #[must_use]
    pub fn network_cpu_s(&self) -> f64 {
        self.proxies.iter().map(|proxy| proxy.cpu().as_secs_f64()).sum()
    }
}

/// Waits until one of them leads, and all are in sync; which leads.
pub(super) fn whole(nodes: &[Address]) -> Result<Address, BenchError> {
    let holds = |node: &&Address| {
        let group = audit::status(node).ok().and_then(|status| status.group);
        group.is_some_and(|group| group.role == NodeRole::Primary && group.in_sync.len() == nodes.len())
    };
    let mut leads = None;
    until("the pair of the race holds together", WHOLE_AT_MOST, || {
        leads = nodes.iter().find(holds).cloned();
        Ok(leads.is_some())
    })?;
    leads.ok_or_else(|| BenchError::new(Kind::Internal, "a pair without a primary"))
}

/// Looks again and again.
///
/// # Errors
/// `Unavailable` with what did not come true in its time.
pub(super) fn until(
    what: &str,
    at_most: Duration,
    is_so: impl FnMut() -> Result<bool, BenchError>,
) -> Result<(), BenchError> {
    until_each(LOOK, what, at_most, is_so)
}

/// As [`until`], for what is asked of somebody who is being measured: seldom.
pub(super) fn until_each(
    look: Duration,
    what: &str,
    at_most: Duration,
    mut is_so: impl FnMut() -> Result<bool, BenchError>,
) -> Result<(), BenchError> {
    let end = RealClock.now().after(at_most);
    while !is_so()? {
        if RealClock.now() >= end {
            let limit = at_most.as_secs();
            return Err(BenchError::new(Kind::Unavailable, format!("in {limit} s it did not come true that {what}")));
        }
        RealClock.sleep(look);
    }
    Ok(())
}

/// A folder that is there.
pub(super) fn make(folder: &Path) -> Result<(), BenchError> {
    RealDisk.create_dir(folder).map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))
}

/// A folder that is not there.
pub(super) fn remove(folder: &Path) {
    // What cannot be removed stays in a temporary folder, or in the user's.
    _ = std::fs::remove_dir_all(folder);
}
