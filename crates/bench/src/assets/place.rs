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
use assent_world::{Clock as _, RealClock};

use super::peers::{self, Peer};
use super::speech::Speech;
use super::{Case, Role, audit, failed};
use crate::BenchError;
use crate::proxy::{Delay, Proxy};

/// The label of a floor, in the place of an acknowledgement.
pub(super) const FLOOR: &str = "floor";
/// How long a pair may take until it holds together.
const WHOLE_AT_MOST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// The program that knows `assets serve`, `witness` and `bench assets-floor`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
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
        command.args(words).env("ASSENT_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::null()).spawn().map_err(|error| failed("starting a server", &error))?;
        let (mut line, mut process) = (String::new(), Process { name, child });
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
        let serve = words(&["assets", "serve", "--data", &data, "--listen", "127.0.0.1:0", "--ack", ack]);
        let (server, node) = program.start("server", &serve, "ready assets=")?;
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
            let (process, node) = program.start(name, &serve, "ready assets=")?;
            processes.push(process);
            nodes.push(node);
        }
        processes.push(witness);
        whole(&nodes)?;
        let at = nodes.first().map_or_else(|| Ok(arbiter), |node| network.to(node))?;
        Ok(Self { ack: ack.to_owned(), at, nodes, speech: Speech::Assets, processes, proxies: network.proxies })
    }

    /// The processes that serve, by name.
    pub fn processes(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.processes.iter().map(|process| (process.name, process.child.id()))
    }

    /// Processor time that the network took: it is this process's, and none of the clients'.
    #[must_use]
    pub fn network_cpu_s(&self) -> f64 {
        self.proxies.iter().map(|proxy| proxy.cpu().as_secs_f64()).sum()
    }
}

/// Waits until the first node leads, and the other one is in sync.
fn whole(nodes: &[Address]) -> Result<(), BenchError> {
    let until = RealClock.now().after(WHOLE_AT_MOST);
    loop {
        let group = nodes.first().and_then(|node| audit::status(node).ok()).and_then(|status| status.group);
        if group.is_some_and(|group| group.role == NodeRole::Primary && group.in_sync.len() == nodes.len()) {
            return Ok(());
        }
        if RealClock.now() >= until {
            let limit = WHOLE_AT_MOST.as_secs();
            return Err(BenchError::new(
                Kind::Unavailable,
                format!("the pair of the race did not hold together in {limit} s"),
            ));
        }
        RealClock.sleep(LOOK);
    }
}
