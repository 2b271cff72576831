//! The processes of a pair, or of one server alone: its members, the arbiter, and the network between all of them.
//!
//! Walk: [`House::open`] starts all, each behind links of its own · [`House::kill`], [`House::freeze`] and their ends · [`House::status`]
//! asks one member over a way of its own · [`House::await_whole`] waits until all members have the same and hold it together ·
//! [`House::stop`] ends the members, so that their folders can be compared.
//! Deliberately absent: which harm is done; that is `fault` and `play`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use assent_bench::host::without_settings;
use assent_kind::Kind;
use assent_world::net::{Address, Stream, tcp_listener};
use assent_world::{Clock as _, RealClock};

use super::Arguments;
use super::disk::SmallDisk;
use super::net::{End, Net};
use super::state::State;
use crate::demo::now;
use crate::demo::process::{Stage, Told};
use crate::failure::Failure;

/// How long anything may take that must come.
pub(super) const LONG: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(15);
/// What processes said last, to be shown with a fault.
const COMPLAINTS: usize = 60;
pub(super) const ARBITER: &str = "arbiter";

/// Everything that runs.
pub(super) struct House {
    stage: Stage,
    pub(super) net: Net,
    /// Members, by number; one of them is a server alone.
    pub(super) members: Vec<u8>,
    /// Where clients reach them: through the network.
    pub(super) servers: Vec<Address>,
    commands: BTreeMap<String, Launch>,
    folder: PathBuf,
    disks: Vec<(u8, SmallDisk)>,
    complaints: VecDeque<String>,
}

/// How a process is started, again and again.
#[derive(Clone, Debug)]
struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// What its line on stdout begins with when it is ready; none: its port answers.
    ready: Option<&'static str>,
    at: Address,
}

/// The name of a member's process.
pub(super) fn member(number: u8) -> String {
    format!("node-{number}")
}

impl House {
    /// Starts everything, and waits until it is whole.
    pub(super) fn open(arguments: &Arguments, folder: &Path) -> Result<Self, Failure> {
        let members = if arguments.solo { vec![1] } else { vec![1, 2] };
        let mut house = Self {
            stage: Stage::new(),
            net: Net::new(arguments.seed),
            members: members.clone(),
            servers: Vec::new(),
            commands: BTreeMap::new(),
            folder: folder.to_owned(),
            disks: Vec::new(),
            complaints: VecDeque::new(),
        };
        for number in &members {
            let server = house.net.link(End::Clients, End::Node(*number), &house.socket(*number, "client")?)?;
            house.servers.push(server);
            if let Some(disk) = SmallDisk::mount(&house.data(*number), arguments.disk_mib) {
                house.disks.push((*number, disk));
            }
        }
        if !arguments.solo {
            house.set_arbiter(arguments)?;
            house.start(ARBITER)?;
        }
        for number in &members {
            let launch = house.launch(arguments, *number)?;
            house.commands.insert(member(*number), launch);
        }
        members.iter().try_for_each(|number| house.start(&member(*number)))?;
        house.await_whole()?;
        Ok(house)
    }

    fn socket(&self, number: u8, what: &str) -> Result<Address, Failure> {
        let path = format!("unix:{}", self.folder.join(format!("{number}.{what}")).display());
        path.parse().map_err(|error| Failure::invalid(format!("{path}: {error}")))
    }

    /// Where a member keeps everything.
    pub(super) fn data(&self, number: u8) -> PathBuf {
        self.folder.join(format!("data-{number}"))
    }

    fn set_arbiter(&mut self, arguments: &Arguments) -> Result<(), Failure> {
        let data = self.folder.join(ARBITER).display().to_string();
        let launch = if arguments.arbiter == "etcd" {
            let free = || tcp_listener(&Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 });
            let port = || free().and_then(|listener| listener.local_addr()).map(|at| at.port());
            let port = || port().map_err(|error| Failure::io("find", "a free port", &error));
            let (client, peer) = (port()?, port()?);
            let urls = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
            let [client_url, peer_url] = &urls;
            let cluster = format!("default={peer_url}");
            let arguments = [
                ["--data-dir", &data],
                ["--listen-client-urls", client_url],
                ["--advertise-client-urls", client_url],
                ["--listen-peer-urls", peer_url],
                ["--initial-advertise-peer-urls", peer_url],
                ["--initial-cluster", &cluster],
            ];
            Launch {
                program: "etcd".into(),
                arguments: arguments.concat().into_iter().map(str::to_owned).collect(),
                environment: Vec::new(),
                ready: None,
                at: Address::Tcp { host: "127.0.0.1".to_owned(), port: client },
            }
        } else {
            let at = self.socket(0, "witness")?;
            let arguments = ["witness", "--data", &data, "--listen", &at.to_string()].map(str::to_owned).to_vec();
            Launch { program: this()?, arguments, environment: Vec::new(), ready: Some("ready witness="), at }
        };
        self.commands.insert(ARBITER.to_owned(), launch);
        Ok(())
    }

    /// How a member is started: every other one is reached through a link of this member's own.
    fn launch(&mut self, arguments: &Arguments, number: u8) -> Result<Launch, Failure> {
        let at = self.socket(number, "client")?;
        let data = self.data(number).display().to_string();
        let mut words: Vec<String> =
            ["assets", "serve", "--data", &data, "--ack", &arguments.ack].map(str::to_owned).to_vec();
        if arguments.solo {
            words.extend(["--listen".to_owned(), at.to_string()]);
        } else {
            words.extend(["--node".to_owned(), number.to_string()]);
            for other in self.members.clone() {
                let peer = self.socket(other, "peer")?;
                let (peer, client) = if other == number {
                    (peer, at.clone())
                } else {
                    let link = self.net.link(End::Node(number), End::Node(other), &peer)?;
                    let place = self.members.iter().position(|member| *member == other).unwrap_or(0);
                    (link, self.servers.get(place).cloned().unwrap_or_else(|| at.clone()))
                };
                words.extend(["--member".to_owned(), format!("{other}={peer},{client}")]);
            }
            let arbiter = self.commands.get(ARBITER).map(|launch| launch.at.clone());
            if let Some(arbiter) = arbiter {
                let link = self.net.link(End::Node(number), End::Arbiter, &arbiter)?;
                let scheme = if arguments.arbiter == "etcd" { "etcd://" } else { "" };
                words.extend(["--witness".to_owned(), format!("{scheme}{link}")]);
            }
            words.extend(arguments.serve.iter().cloned());
        }
        let environment = arguments.clocks.as_ref().map(|library| {
            let file = self.clock(number).display().to_string();
            [("LD_PRELOAD", library.display().to_string()), ("FAKETIME_TIMESTAMP_FILE", file)]
                .into_iter()
                .chain(
                    [("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1")]
                        .map(|(key, value)| (key, value.to_owned())),
                )
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Vec<_>>()
        });
        if environment.is_some() {
            self.set_clock(number, 0)?;
        }
        let environment = environment.unwrap_or_default();
        Ok(Launch { program: this()?, arguments: words, environment, ready: Some("ready assets="), at })
    }

    fn clock(&self, number: u8) -> PathBuf {
        self.folder.join(format!("clock-{number}"))
    }

    /// The wall clock of a member is that many seconds from the true one.
    pub(super) fn set_clock(&self, number: u8, by_s: i64) -> Result<(), Failure> {
        crate::demo::write(&self.clock(number), &format!("{by_s:+}\n"))
    }

    /// The small disk of a member, where there is one.
    pub(super) fn disk(&self, number: u8) -> Option<&SmallDisk> {
        self.disks.iter().find(|(of, _)| *of == number).map(|(_, disk)| disk)
    }

    /// Starts a process, and waits until it is ready.
    pub(super) fn start(&mut self, name: &str) -> Result<(), Failure> {
        let Some(launch) = self.commands.get(name).cloned() else {
            return Err(Failure::new(Kind::Internal, format!("{name} is nobody")));
        };
        let mut command = Command::new(&launch.program);
        without_settings(&mut command);
        command.args(&launch.arguments).envs(launch.environment.iter().cloned());
        let run = self.stage.launch(name, command)?;
        let began = now();
        while began.elapsed() < LONG {
            let Some(ready) = launch.ready else {
                if Stream::connect(&launch.at, PAUSE).is_ok() {
                    return Ok(());
                }
                self.listen();
                RealClock.sleep(PAUSE);
                continue;
            };
            let Some(heard) = self.stage.hear(PAUSE) else { continue };
            match heard.told {
                Told::Said(line) if heard.actor == name && heard.run == run && line.starts_with(ready) => return Ok(()),
                Told::Ended if heard.actor == name && heard.run == run => {
                    return Err(self.trouble(&format!("{name} did not start")));
                }
                Told::Complained(line) => self.note(format!("{}: {line}", heard.actor)),
                _ => {}
            }
        }
        Err(self.trouble(&format!("{name} was not ready within {} s", LONG.as_secs())))
    }

    /// Takes what was said, so that pipes do not fill.
    pub(super) fn listen(&mut self) {
        while let Some(heard) = self.stage.hear(Duration::ZERO) {
            match heard.told {
                Told::Complained(line) => self.note(format!("{}: {line}", heard.actor)),
                Told::Ended => self.note(format!("{}: ended", heard.actor)),
                _ => {}
            }
        }
    }

    fn note(&mut self, line: String) {
        if self.complaints.len() == COMPLAINTS {
            self.complaints.pop_front();
        }
        self.complaints.push_back(line);
    }

    /// What was said last.
    pub(super) fn said(&mut self) -> Vec<String> {
        self.listen();
        self.complaints.iter().cloned().collect()
    }

    pub(super) fn kill(&mut self, name: &str) -> Result<(), Failure> {
        self.stage.kill(name)
    }

    pub(super) fn freeze(&self, name: &str) -> Result<(), Failure> {
        self.stage.freeze(name)
    }

    pub(super) fn resume(&self, name: &str) -> Result<(), Failure> {
        self.stage.resume(name)
    }

    /// How a member says that it is; nothing if it does not answer.
    pub(super) fn status(&self, number: u8) -> Option<State> {
        let at = self.socket(number, "client").ok()?.to_string();
        self.own(&["--json", "assets", "status", "--server", &at]).ok().and_then(|(_, text)| State::read(&text))
    }

    /// A person's word to the group.
    pub(super) fn hand_over(&self, to: u8) -> Result<(), Failure> {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let (good, text) = self.own(&["assets", "hand-over", &to.to_string(), "--server", &servers.join(",")])?;
        if good { Ok(()) } else { Err(Failure::new(Kind::Internal, format!("hand-over: {text}"))) }
    }

    /// Runs this program; whether it ended well, and what it said.
    pub(super) fn own(&self, arguments: &[&str]) -> Result<(bool, String), Failure> {
        let mut command = Command::new(this()?);
        without_settings(&mut command);
        command.args(arguments);
        let output = command.output().map_err(|error| Failure::io("run", "this program", &error))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), text))
    }

    /// Waits until one leads, all hold everything together, and all have applied the same. Their last answers.
    pub(super) fn await_whole(&mut self) -> Result<Vec<State>, Failure> {
        let began = now();
        loop {
            self.listen();
            let states: Vec<Option<State>> = self.members.iter().map(|number| self.status(*number)).collect();
            let known: Vec<State> = states.iter().flatten().cloned().collect();
            if known.len() == states.len() && State::are_whole(&known) {
                return Ok(known);
            }
            if began.elapsed() > LONG {
                let texts: Vec<String> = states.iter().map(|state| format!("{state:?}")).collect();
                return Err(self.trouble(&format!("not whole again within {} s: {}", LONG.as_secs(), texts.join(" "))));
            }
            RealClock.sleep(PAUSE);
        }
    }

    /// Ends the members, all at the same time, so that their folders are at rest.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        let names: Vec<String> = self.members.iter().map(|number| member(*number)).collect();
        names.iter().try_for_each(|name| self.stage.tell_to_stop(name))?;
        names.iter().try_for_each(|name| self.stage.stop(name, LONG))
    }

    fn trouble(&mut self, what: &str) -> Failure {
        let said = self.said();
        Failure::new(Kind::Unavailable, format!("{what}; the last that was said:\n  {}", said.join("\n  ")))
    }
}

fn this() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))
}
