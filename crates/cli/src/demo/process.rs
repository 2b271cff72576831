//! The demo's actors: real processes that are started, listened to, frozen, killed and started again.
//!
//! Walk: [`Stage::start`] runs this same binary · a thread per pipe turns lines into [`Told`] on one channel · a process
//! that says `stopped NAME WHAT` has frozen itself at a stop point, and [`Stage::kill`] is a real SIGKILL.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use assent_bench::host::without_settings;
use assent_kind::Kind;

use super::scene::now;
use crate::failure::Failure;

/// How long an actor may take from saying that it has stopped to being stopped.
const FROZEN: Duration = Duration::from_secs(5);

/// What the stage hears of an actor.
#[derive(Debug)]
pub(crate) enum Told {
    /// A line on stdout.
    Said(String),
    /// It froze at a stop point, on behalf of a transaction or branch.
    Stopped {
        /// The stop point's name.
        stop: String,
        /// The TxId or XID, as text.
        about: String,
    },
    /// Any other line on stderr.
    Complained(String),
    /// Its stdout has ended.
    Ended,
}

/// One thing heard: which run of which actor, and what.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) actor: String,
    pub(crate) run: u32,
    pub(crate) told: Told,
}

#[derive(Debug)]
struct Actor {
    run: u32,
    child: Child,
}

/// All actors and the one channel on which they are heard.
#[derive(Debug)]
pub(crate) struct Stage {
    actors: BTreeMap<String, Actor>,
    sender: Sender<Heard>,
    receiver: Receiver<Heard>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { actors: BTreeMap::new(), sender, receiver }
    }

    /// Starts this binary with these arguments as an actor; a former run of it must have ended.
    pub(crate) fn start(&mut self, name: &str, arguments: &[String], stop: Option<&str>) -> Result<u32, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
        let mut command = Command::new(program);
        without_settings(&mut command);
        command.args(arguments);
        if let Some(stop) = stop {
            command.env("ASSENT_STOP", stop);
        }
        self.launch(name, command)
    }

    /// Starts a program as an actor; a former run of it must have ended.
    pub(crate) fn launch(&mut self, name: &str, mut command: Command) -> Result<u32, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::io("start", name, &error))?;
        let run = self.actors.get(name).map_or(1, |actor| actor.run + 1);
        if let Some(out) = child.stdout.take() {
            self.listen(name, run, out, true);
        }
        if let Some(err) = child.stderr.take() {
            self.listen(name, run, err, false);
        }
        self.actors.insert(name.to_owned(), Actor { run, child });
        Ok(run)
    }

    fn listen(&self, name: &str, run: u32, pipe: impl Read + Send + 'static, is_stdout: bool) {
        let (actor, sender) = (name.to_owned(), self.sender.clone());
        std::thread::spawn(move || {
            let tell = |told| sender.send(Heard { actor: actor.clone(), run, told });
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let told = match line.strip_prefix("stopped ").and_then(|rest| rest.split_once(' ')) {
                    Some((stop, about)) if !is_stdout => {
                        Told::Stopped { stop: stop.to_owned(), about: about.trim().to_owned() }
                    }
                    _ if is_stdout => Told::Said(line),
                    _ => Told::Complained(line),
                };
                if tell(told).is_err() {
                    return;
                }
            }
            if is_stdout {
                _ = tell(Told::Ended);
            }
        });
    }

    /// The next thing heard, if any comes in time.
    pub(crate) fn hear(&self, at_most: Duration) -> Option<Heard> {
        self.receiver.recv_timeout(at_most).ok()
    }

    /// Whether something heard comes from the actor's present run.
    pub(crate) fn is_present(&self, heard: &Heard) -> bool {
        self.actors.get(&heard.actor).is_some_and(|actor| actor.run == heard.run)
    }

    /// How often an actor has been started.
    pub(crate) fn runs(&self, name: &str) -> u32 {
        self.actors.get(name).map_or(0, |actor| actor.run)
    }

    /// Waits until an actor that said so has really stopped: a SIGCONT sent before its SIGSTOP would be lost on it.
    pub(crate) fn await_frozen(&self, name: &str) -> Result<(), Failure> {
        let Some(actor) = self.actors.get(name) else { return Ok(()) };
        let deadline = now() + FROZEN;
        while now() < deadline {
            if state(actor.child.id()) == Some('T') {
                return Ok(());
            }
            pause();
        }
        Err(Failure::new(Kind::Internal, format!("{name} should have stopped and runs on")))
    }

    /// SIGSTOP, and that it stands still is waited for.
    pub(crate) fn freeze(&self, name: &str) -> Result<(), Failure> {
        self.signal(name, rustix::process::Signal::STOP)?;
        self.await_frozen(name)
    }

    /// SIGCONT: a frozen actor goes on.
    pub(crate) fn resume(&self, name: &str) -> Result<(), Failure> {
        self.signal(name, rustix::process::Signal::CONT)
    }

    fn signal(&self, name: &str, signal: rustix::process::Signal) -> Result<(), Failure> {
        let pid = self.actors.get(name).and_then(|actor| i32::try_from(actor.child.id()).ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return Ok(()) };
        rustix::process::kill_process(pid, signal).map_err(|error| Failure::io("signal", name, &error.into()))
    }

    /// SIGKILL, and the death is waited for.
    pub(crate) fn kill(&mut self, name: &str) -> Result<(), Failure> {
        let Some(actor) = self.actors.get_mut(name) else { return Ok(()) };
        actor.child.kill().map_err(|error| Failure::io("kill", name, &error))?;
        actor.child.wait().map(drop).map_err(|error| Failure::io("wait for", name, &error))
    }

    /// SIGTERM, and nothing is waited for.
    pub(crate) fn tell_to_stop(&self, name: &str) -> Result<(), Failure> {
        self.signal(name, rustix::process::Signal::TERM)
    }

    /// SIGTERM, and the end is waited for; an actor that does not end in time is killed and that is an error.
    pub(crate) fn stop(&mut self, name: &str, at_most: Duration) -> Result<(), Failure> {
        self.signal(name, rustix::process::Signal::TERM)?;
        let Some(actor) = self.actors.get_mut(name) else { return Ok(()) };
        match wait(&mut actor.child, at_most).map_err(|error| Failure::io("wait for", name, &error))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Failure::new(Kind::Internal, format!("{name} ended with {status}"))),
            None => {
                self.kill(name)?;
                Err(Failure::new(Kind::Internal, format!("{name} did not stop within {} s", at_most.as_secs())))
            }
        }
    }

    /// How an actor whose stdout has ended went.
    pub(crate) fn ended(&mut self, name: &str) -> Result<Option<ExitStatus>, Failure> {
        let Some(actor) = self.actors.get_mut(name) else { return Ok(None) };
        wait(&mut actor.child, Duration::from_secs(5)).map_err(|error| Failure::io("wait for", name, &error))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Whatever went wrong: no actor outlives the stage.
        for actor in self.actors.values_mut() {
            _ = actor.child.kill();
            _ = actor.child.wait();
        }
    }
}

/// The letter of /proc that says what a process does; `T` is stopped.
#[expect(clippy::disallowed_methods, reason = "a harness looks at real processes")]
fn state(pid: u32) -> Option<char> {
    let line = String::from_utf8(std::fs::read(format!("/proc/{pid}/stat")).ok()?).ok()?;
    // The name in parentheses may hold anything, also blanks and parentheses.
    line.rsplit_once(") ")?.1.chars().next()
}

#[expect(clippy::disallowed_methods, reason = "a harness waits for real processes")]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

#[expect(clippy::disallowed_methods, reason = "a harness waits for real processes")]
fn wait(child: &mut Child, at_most: Duration) -> std::io::Result<Option<ExitStatus>> {
    let deadline = std::time::Instant::now() + at_most;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if std::time::Instant::now() >= deadline => return Ok(None),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
