//! One run of the demo: the stage is set, the clients play, somebody dies, and it is counted.
//!
//! Walk: [`Scene::set`] starts the stores, fills the accounts, starts the coordinator · [`Scene::play`] runs the clients
//! and carries out the kills · [`Scene::settle`] waits until nothing is in doubt · [`Scene::count`] stops everything
//! and reads what the stores' own files say.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assent_bench::stats::Samples;
use assent_kind::Kind;
use assent_wire::{Answer, Request};
use indicatif::ProgressBar;

use super::kill::{Kill, who_passes};
use super::plan::{Plan, write};
use super::process::{Heard, Stage, Told};
use super::report::{KillReport, ResolvedBranch};
use super::sql::Hook;
use crate::failure::Failure;
use crate::tx::admin;

/// Nothing of the demo waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the agent is waited for at the end.
const SETTLE: Duration = Duration::from_secs(10);

/// What is going on.
#[derive(Debug)]
pub(super) struct Scene {
    stage: Stage,
    folder: PathBuf,
    hook: Option<Hook>,
    /// How each server is started again: its arguments, with the port it first took.
    servers: BTreeMap<String, Vec<String>>,
    /// Kills that wait for their actor.
    orders: BTreeMap<String, VecDeque<Kill>>,
    armed: BTreeMap<String, Kill>,
    /// What each client still has to do.
    left: BTreeMap<String, u64>,
    clients: BTreeMap<String, u32>,
    pub(super) tally: Tally,
}

/// What the clients said.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) committed: u64,
    pub(super) rolled_back: u64,
    pub(super) asked_again: u64,
    pub(super) latency: Samples,
    pub(super) kills: Vec<KillReport>,
    /// What the recovery agent said it finished.
    pub(super) resolved: Vec<ResolvedBranch>,
    pub(super) complaints: VecDeque<String>,
}

impl Tally {
    /// Counts a branch once: a coordinator that is killed behind its end finds that out again, and says it again.
    fn resolve(&mut self, line: &str) {
        let Some(branch) = resolved(line) else { return };
        let is_known = |known: &ResolvedBranch| (&known.tx, &known.resource) == (&branch.tx, &branch.resource);
        if !self.resolved.iter().any(is_known) {
            self.resolved.push(branch);
        }
    }
}

impl Scene {
    pub(super) fn new(folder: &Path, hook: Option<Hook>) -> Self {
        Self {
            stage: Stage::new(),
            folder: folder.to_owned(),
            hook,
            servers: BTreeMap::new(),
            orders: BTreeMap::new(),
            armed: BTreeMap::new(),
            left: BTreeMap::new(),
            clients: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// Gives each kill to an actor that passes its stop point; actors of a kind take turns.
    pub(super) fn order(&mut self, kills: Vec<Kill>, stores: &[String], clients: u32) {
        let mut turn: BTreeMap<&str, usize> = BTreeMap::new();
        for kill in kills {
            let kind = who_passes(kill.order.stop);
            let names: Vec<String> = match kind {
                "client" => (0..clients).map(|number| format!("client-{number}")).collect(),
                "store" => stores.to_vec(),
                _ => vec!["coordinator".to_owned()],
            };
            let next = turn.entry(kind).or_default();
            if let Some(name) = names.get(*next % names.len().max(1)) {
                self.orders.entry(name.clone()).or_default().push_back(kill);
            }
            *next += 1;
        }
    }

    /// Starts a server of this binary with that configuration and answers its address.
    pub(super) fn serve(&mut self, name: &str, configuration: &str) -> Result<String, Failure> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("make", folder.display(), &error))?;
        let file = folder.join("assent.toml");
        write(&file, configuration)?;
        let arguments = vec!["serve".to_owned(), "--config".to_owned(), file.display().to_string()];
        let address = self.start_server(name, &arguments)?;
        let fixed = [&arguments[..], &["--listen".to_owned(), address.clone()]].concat();
        self.servers.insert(name.to_owned(), fixed);
        Ok(address)
    }

    fn start_server(&mut self, name: &str, arguments: &[String]) -> Result<String, Failure> {
        let stop = self.arm(name);
        let run = self.stage.start(name, arguments, stop.as_deref())?;
        let deadline = deadline();
        while now() < deadline {
            let Some(heard) = self.stage.hear(Duration::from_millis(100)) else { continue };
            match (&heard.told, heard.actor == name && heard.run == run) {
                (Told::Said(line), true) => {
                    if let Some(address) = line.strip_prefix("ready protocol=").and_then(|rest| rest.split(' ').next())
                    {
                        return Ok(address.to_owned());
                    }
                }
                (Told::Ended, true) => {
                    let ended = self.stage.ended(name)?.and_then(|status| status.code());
                    return Err(self.trouble(kind_of(ended), format!("{name} did not start")));
                }
                // The others go on playing meanwhile.
                _ => self.take(heard)?,
            }
        }
        Err(self.trouble(Kind::Unavailable, format!("{name} did not say that it is ready")))
    }

    /// Takes the actor's next kill, as `ASSENT_STOP` wants it.
    fn arm(&mut self, name: &str) -> Option<String> {
        let kill = self.orders.get_mut(name).and_then(VecDeque::pop_front)?;
        let text = format!("{}:{}", kill.order.stop.name(), kill.order.nth);
        self.armed.insert(name.to_owned(), kill);
        Some(text)
    }

    /// Runs the clients until all transfers are done.
    pub(super) fn play(&mut self, plan: &Plan, transfers: u64, clients: u32, bar: &ProgressBar) -> Result<(), Failure> {
        plan.save(&self.folder.join("plan.json"))?;
        for number in 0..clients {
            let name = format!("client-{number}");
            let share = transfers / u64::from(clients) + u64::from(u64::from(number) < transfers % u64::from(clients));
            self.left.insert(name.clone(), share);
            self.clients.insert(name.clone(), number);
            self.start_client(&name)?;
        }
        let mut quiet_since = now();
        while self.left.values().any(|left| *left > 0) {
            match self.stage.hear(Duration::from_millis(200)) {
                Some(heard) => {
                    quiet_since = now();
                    self.take(heard)?;
                    bar.set_position(transfers - self.left.values().sum::<u64>());
                }
                None if quiet_since + PATIENCE < now() => {
                    return Err(self.trouble(Kind::Internal, "the clients make no progress".to_owned()));
                }
                None => {}
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn start_client(&mut self, name: &str) -> Result<(), Failure> {
        let stop = self.arm(name);
        let number = self.clients.get(name).copied().unwrap_or_default();
        let left = self.left.get(name).copied().unwrap_or_default();
        let run = self.stage.runs(name) + 1;
        let plan = self.folder.join("plan.json").display().to_string();
        let arguments = ["demo-client", "--plan", &plan, "--number", &number.to_string(), "--run", &run.to_string()]
            .into_iter()
            .map(str::to_owned)
            .chain(["--transfers".to_owned(), left.to_string()])
            .collect::<Vec<_>>();
        self.stage.start(name, &arguments, stop.as_deref()).map(drop)
    }

    fn take(&mut self, heard: Heard) -> Result<(), Failure> {
        if !self.stage.is_present(&heard) {
            // A dead run's last words still count, its end means nothing.
            match &heard.told {
                Told::Said(line) => self.count_line(&heard.actor, line),
                Told::Complained(line) => self.tally.resolve(line),
                Told::Stopped { .. } | Told::Ended => {}
            }
            return Ok(());
        }
        match heard.told {
            Told::Said(line) => self.count_line(&heard.actor, &line),
            Told::Stopped { stop, about } => self.carry_out(&heard.actor, &stop, about)?,
            Told::Complained(line) => {
                self.tally.resolve(&line);
                if self.tally.complaints.len() == 200 {
                    self.tally.complaints.pop_front();
                }
                self.tally.complaints.push_back(format!("{}: {line}", heard.actor));
            }
            Told::Ended if self.clients.contains_key(&heard.actor) => {
                let status = self.stage.ended(&heard.actor)?;
                if self.left.get(&heard.actor).is_some_and(|left| *left > 0) {
                    return Err(self.trouble(Kind::Internal, format!("{} ended early: {status:?}", heard.actor)));
                }
            }
            Told::Ended => {
                let status = self.stage.ended(&heard.actor)?;
                return Err(self.trouble(Kind::Internal, format!("{} ended by itself: {status:?}", heard.actor)));
            }
        }
        Ok(())
    }

    /// `c 812` committed in 812 us · `r` rolled back · `a` asked again for a lost answer.
    fn count_line(&mut self, actor: &str, line: &str) {
        let done = match line.split_once(' ').unwrap_or((line, "")) {
            ("c", micros) => {
                self.tally.committed += 1;
                self.tally.latency.push(Duration::from_micros(micros.parse().unwrap_or(0)));
                true
            }
            ("r", _) => {
                self.tally.rolled_back += 1;
                true
            }
            ("a", _) => {
                self.tally.asked_again += 1;
                false
            }
            _ => false,
        };
        if done && let Some(left) = self.left.get_mut(actor) {
            *left = left.saturating_sub(1);
        }
    }

    /// Somebody froze: its kill is due.
    fn carry_out(&mut self, actor: &str, stop: &str, about: String) -> Result<(), Failure> {
        let Some(kill) = self.armed.remove(actor) else {
            return Err(self.trouble(Kind::Internal, format!("{actor} stopped at {stop} unasked")));
        };
        self.stage.await_frozen(actor)?;
        let victim = kill.victim.unwrap_or_else(|| actor.to_owned());
        self.tally.kills.push(KillReport {
            victim: victim.clone(),
            frozen: actor.to_owned(),
            stop: stop.to_owned(),
            about,
            fate: String::new(),
        });
        if victim == actor {
            self.stage.kill(actor)?;
            return self.revive(actor);
        }
        if self.servers.contains_key(&victim) {
            self.stage.kill(&victim)?;
            // The frozen one meets the dead server first, as it would.
            self.stage.resume(actor)?;
            return self.revive(&victim);
        }
        let Some(hook) = &self.hook else {
            return Err(Failure::invalid(format!("victim {victim:?} is no process of the demo's own")));
        };
        hook.call("kill", &victim)?;
        self.stage.resume(actor)?;
        hook.call("revive", &victim)
    }

    fn revive(&mut self, name: &str) -> Result<(), Failure> {
        match self.servers.get(name).cloned() {
            Some(arguments) => self.start_server(name, &arguments).map(drop),
            None if self.left.get(name).is_some_and(|left| *left == 0) => Ok(()),
            None => self.start_client(name),
        }
    }

    /// Waits until the agent finds nothing more to do; what it cannot finish in time, the count will show.
    pub(super) fn settle(&mut self, coordinator: &str) -> Result<(), Failure> {
        let deadline = now() + SETTLE;
        let link = admin(coordinator)?;
        while now() < deadline {
            let arrived = link.request(&Request::TxRecover)?;
            let Answer::Round(round) = arrived.answer()? else {
                return Err(
                    self.trouble(Kind::Internal, "the coordinator answered something else than was asked".to_owned())
                );
            };
            let open = round.resolved.iter().any(|branch| {
                !["committed", "rolled back", "finished before"].iter().any(|fate| branch.fate.starts_with(fate))
            });
            // Whatever was finished just now is looked for once more.
            if round.resolved.is_empty() && round.unreachable.is_empty() && !open {
                break;
            }
            self.listen(Duration::from_millis(100))?;
        }
        self.listen(Duration::from_millis(100))
    }

    fn listen(&mut self, quiet: Duration) -> Result<(), Failure> {
        while let Some(heard) = self.stage.hear(quiet) {
            self.take(heard)?;
        }
        Ok(())
    }

    /// Kills that were ordered and never came.
    pub(super) fn missed(&self) -> Vec<String> {
        let waiting = self.orders.values().flatten().chain(self.armed.values());
        waiting.map(|kill| format!("{}:{}", kill.order.stop.name(), kill.order.nth)).collect()
    }

    /// Stops all servers in an orderly way, stores last.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        let mut names: Vec<String> = self.servers.keys().cloned().collect();
        names.sort_by_key(|name| name != "coordinator");
        names.iter().try_for_each(|name| self.stage.stop(name, Duration::from_secs(10)))
    }

    fn trouble(&self, kind: Kind, what: String) -> Failure {
        let heard: Vec<&str> = self.tally.complaints.iter().rev().take(12).map(String::as_str).collect();
        let heard: Vec<&str> = heard.into_iter().rev().collect();
        Failure::new(kind, format!("{what}; the last that was said:\n  {}", heard.join("\n  ")))
    }
}

/// What an actor's exit code says; no code is a death by a signal.
fn kind_of(code: Option<i32>) -> Kind {
    let known = |kind: &&Kind| Some(i32::from(kind.exit_code())) == code;
    Kind::ALL.iter().find(known).copied().unwrap_or(Kind::Internal)
}

/// A line of the coordinator's log about a branch that its agent finished.
fn resolved(line: &str) -> Option<ResolvedBranch> {
    let (_, fields) = line.split_once("recovery tx=")?;
    let (tx, rest) = fields.split_once(" resource=\"")?;
    let (resource, rest) = rest.split_once("\" fate=\"")?;
    let how = rest.strip_suffix('"')?;
    Some(ResolvedBranch { tx: tx.to_owned(), resource: resource.to_owned(), how: how.to_owned() })
        .filter(|branch| branch.how.starts_with("committed") || branch.how.starts_with("rolled back"))
}

#[expect(clippy::disallowed_methods, reason = "a harness watches real processes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn deadline() -> Instant {
    now() + PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_s_lines_are_understood() {
        let line = "2026-01-01T00:00:00Z  INFO assent_server::report: recovery tx=3.1.42 resource=\"bank-a\" fate=\"rolled back\"";
        let branch = resolved(line).unwrap();
        assert_eq!(
            (branch.tx.as_str(), branch.resource.as_str(), branch.how.as_str()),
            ("3.1.42", "bank-a", "rolled back")
        );
        assert!(resolved("INFO recovery tx=3.1.42 resource=\"b\" fate=\"tried again later: gone\"").is_none());
        assert!(resolved("something else").is_none());
    }

    #[test]
    fn a_branch_that_is_told_of_twice_is_counted_once() {
        let mut tally = Tally::default();
        for (tx, resource, fate) in [
            ("3.1.4", "a", "committed"),
            ("3.1.4", "b", "committed"),
            ("3.1.4", "a", "committed (inferred)"),
            ("3.1.5", "a", "rolled back"),
        ] {
            tally.resolve(&format!("INFO recovery tx={tx} resource=\"{resource}\" fate=\"{fate}\""));
        }
        let counted: Vec<_> =
            tally.resolved.iter().map(|it| (it.tx.as_str(), it.resource.as_str(), it.how.as_str())).collect();
        assert_eq!(counted, [("3.1.4", "a", "committed"), ("3.1.4", "b", "committed"), ("3.1.5", "a", "rolled back")]);
    }
}
