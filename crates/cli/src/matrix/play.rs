//! One cell played: clients start, somebody freezes, somebody dies, all come back, and it is counted.
//!
//! Walk: [`Play::cell`] · `arm` and `freeze` bring the process to its stop point · `strike` kills and revives · `settle`
//! looks into the stores until nothing is prepared and no client is left · `end` compares what was said with what is held.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use assent_ids::{TxId, Xid};
use assent_world::stop::Stop;

use super::cell::{Cell, Mode, Victim};
use super::house::House;
use super::oracle::{Said, Word};
use super::report::{Fate, Played};
use crate::demo::now;
use crate::demo::plan::Chance;
use crate::demo::process::{Heard, Told};
use crate::failure::Failure;

/// How long a process may take to come to its stop point.
const FREEZE: Duration = Duration::from_secs(20);
/// How long living clients may take to commit again, or to end, once all are back.
const SERVICE: Duration = Duration::from_secs(30);
/// How long a branch may stay prepared; the report says how long it was.
const SETTLE: Duration = Duration::from_secs(15);
/// A client sleeps until its silence counts as lost (1 s) and it is fenced (1 s more), and its branches must be finished
/// meanwhile.
const SLEEP: Duration = Duration::from_millis(3_000);
const SLEEP_MAX: Duration = Duration::from_secs(6);
/// Commits of each living client that show that service is back.
const ENOUGH: u64 = 3;
/// Clients under load.
const CLIENTS: u32 = 4;
/// Transactions in flight of a crowd.
const CROWD: u32 = 200;
/// Until it is killed.
const FOR_EVER: u64 = 1_000_000;
/// How long a coordinator serves between two restarts, if it does not come to its stop point before.
const BETWEEN_RESTARTS: Duration = Duration::from_millis(400);

/// What is going on in one cell.
pub(super) struct Play<'h> {
    house: &'h mut House,
    prefix: String,
    chance: Chance,
    said: Said,
    /// Living clients, and what each has committed since the last death.
    clients: BTreeMap<String, u64>,
    stopped: Option<(String, String)>,
    faults: Vec<String>,
}

impl<'h> Play<'h> {
    /// The number is the play's own: names begin with it.
    pub(super) fn new(house: &'h mut House, number: u32, seed: u64) -> Self {
        Self {
            house,
            prefix: format!("m{number:05}-"),
            chance: Chance::new(seed, number, 0),
            said: Said::default(),
            clients: BTreeMap::new(),
            stopped: None,
            faults: Vec::new(),
        }
    }

    /// Plays one cell. An error is the harness's own; what Assent did wrong is among the faults.
    pub(super) fn cell(mut self, cell: Cell) -> Result<Played, Failure> {
        let began = now();
        self.arm(cell)?;
        let Some(about) = self.freeze(cell)? else {
            self.faults.push(format!("{} did not stop within {} s", cell.frozen(), FREEZE.as_secs()));
            self.end_clients()?;
            self.house.arm("coordinator", None)?;
            self.house.arm("kv", None)?;
            return self.end(cell.to_string(), Some(cell), None, None, began);
        };
        let resolved = if cell.mode == Mode::Asleep { self.sleep(cell)? } else { self.strike(cell, &about)? };
        let mut played = self.end(cell.to_string(), Some(cell), Some(&about), resolved, began)?;
        if cell.must_be_refused() && played.fate == Fate::Committed {
            played.faults.push("a client that was lost for too long has committed".to_owned());
        }
        Ok(played)
    }

    /// The coordinator killed and started again that many times while clients commit without a pause.
    pub(super) fn restarts(mut self, many: u32) -> Result<Played, Failure> {
        let began = now();
        self.start_clients(CLIENTS, (FOR_EVER, 1), None)?;
        let stops: Vec<Stop> =
            Stop::ALL.iter().copied().filter(|stop| stop.name().starts_with("coordinator")).collect();
        for _ in 0..many {
            let at = usize::try_from(self.chance.below(3)).unwrap_or_default();
            let order = stops.get(at).map(|stop| format!("{}:{}", stop.name(), 1 + self.chance.below(60)));
            self.stopped = None;
            self.house.arm("coordinator", order.as_deref())?;
            self.hear_until(BETWEEN_RESTARTS, |play| play.stopped.is_some())?;
        }
        self.house.arm("coordinator", None)?;
        self.serve_again()?;
        self.end_clients()?;
        let resolved = self.settle(now(), SETTLE)?;
        self.end(format!("coordinator restarted {many} times"), None, None, resolved, began)
    }

    fn arm(&mut self, cell: Cell) -> Result<(), Failure> {
        let nth = cell.nth(&mut self.chance);
        let order = format!("{}:{nth}", cell.stop.name());
        let mut of_client = None;
        if cell.frozen() == "client-0" {
            of_client = Some(order);
        } else {
            self.house.arm(cell.frozen(), Some(&order))?;
            if cell.is_recovery() {
                // It has something to do only after a client's death; between branches both outcomes are tried.
                let decided = cell.stop == Stop::AgentBetweenBranches && self.chance.below(2) == 0;
                let stop = if decided { Stop::ClientAfterDecision } else { Stop::ClientBeforeDecision };
                let nth = if cell.mode == Mode::Load { 3 + self.chance.below(10) } else { 1 };
                of_client = Some(format!("{}:{nth}", stop.name()));
            }
        }
        let (clients, load) = match cell.mode {
            Mode::Single | Mode::Dark | Mode::Asleep => (1, (1, 1)),
            Mode::Load => (CLIENTS, (FOR_EVER, 1)),
            Mode::Crowd => (1, (FOR_EVER, CROWD)),
        };
        self.start_clients(clients, load, of_client)
    }

    fn start_clients(&mut self, many: u32, load: (u64, u32), first: Option<String>) -> Result<(), Failure> {
        for number in 0..many {
            let (actor, name) = (format!("client-{number}"), format!("{}{number}", self.prefix));
            let stop = first.as_deref().filter(|_| number == 0);
            self.house.client(&actor, &name, load, stop)?;
            self.clients.insert(actor, 0);
        }
        Ok(())
    }

    /// Waits for the frozen process; the transaction it stands at, or nothing if it never came there.
    fn freeze(&mut self, cell: Cell) -> Result<Option<String>, Failure> {
        if cell.is_recovery() {
            let Some(first) = self.await_stop("client-0")? else { return Ok(None) };
            self.kill_client("client-0")?;
            self.stopped = None;
            // What the agent stands at is found by it, and named by it; the client's transaction is the same.
            return Ok(self.await_stop("coordinator")?.map(|_| first));
        }
        self.await_stop(cell.frozen())
    }

    fn await_stop(&mut self, actor: &str) -> Result<Option<String>, Failure> {
        let is_there = |play: &Self| play.stopped.as_ref().is_some_and(|(stopped, _)| stopped == actor);
        self.hear_until(FREEZE, is_there)?;
        if !is_there(self) {
            return Ok(None);
        }
        self.house.stage.await_frozen(actor)?;
        Ok(self.stopped.take().map(|(_, about)| about))
    }

    /// The deaths of a cell and what follows; how long anything stayed prepared after the last of them.
    fn strike(&mut self, cell: Cell, about: &str) -> Result<Option<Duration>, Failure> {
        let victim = match cell.victim {
            Victim::Client => self.owner(about)?,
            other => other.name().to_owned(),
        };
        self.kill(&victim)?;
        if cell.mode == Mode::Dark && self.clients.contains_key("client-0") {
            self.kill_client("client-0")?;
        }
        let died = now();
        let is_dead = cell.frozen().starts_with("client") && !self.clients.contains_key(cell.frozen());
        if victim != cell.frozen() && !is_dead {
            // It meets the dead first, as it would.
            self.house.stage.resume(cell.frozen())?;
        }
        self.house.revive(&victim)?;
        // How long a database of others takes to answer again is not ours; our own restarts are counted.
        let since = if matches!(cell.victim, Victim::Postgres | Victim::Mariadb) { now() } else { died };
        if cell.mode != Mode::Load {
            return self.settle(since, SERVICE);
        }
        self.serve_again()?;
        self.end_clients()?;
        self.settle(now(), SETTLE)
    }

    /// A client sleeps until it is lost and its branches are finished, then wakes to the outcome or a refusal.
    fn sleep(&mut self, cell: Cell) -> Result<Option<Duration>, Failure> {
        let fell_asleep = now();
        let mut since_empty = None;
        while fell_asleep.elapsed() < SLEEP_MAX && (since_empty.is_none() || fell_asleep.elapsed() < SLEEP) {
            since_empty = self.look(fell_asleep, since_empty);
            self.hear(Duration::from_millis(20))?;
        }
        let left = self.house.prepared();
        self.house.stage.resume(cell.frozen())?;
        if since_empty.is_none() {
            self.faults.push(format!("HELD {} s after its client fell asleep: {left:?}", SLEEP_MAX.as_secs()));
        }
        self.settle(now(), SERVICE)?;
        Ok(since_empty)
    }

    /// Which client has the transaction that somebody stands at.
    fn owner(&mut self, about: &str) -> Result<String, Failure> {
        self.hear_until(Duration::from_millis(50), |_| false)?;
        let name = transaction(about).and_then(|tx| self.said.name_of(&tx).map(str::to_owned));
        let number = name.as_deref().and_then(|name| name.strip_prefix(&self.prefix)?.split('-').next());
        Ok(format!("client-{}", number.unwrap_or("0")))
    }

    fn kill(&mut self, actor: &str) -> Result<(), Failure> {
        if self.clients.contains_key(actor) { self.kill_client(actor) } else { self.house.kill(actor) }
    }

    fn kill_client(&mut self, actor: &str) -> Result<(), Failure> {
        self.house.kill(actor)?;
        // What it said before is still to be read.
        self.hear_until(FREEZE, |play| !play.clients.contains_key(actor))
    }

    /// All clients die at once.
    fn end_clients(&mut self) -> Result<(), Failure> {
        let all: Vec<String> = self.clients.keys().cloned().collect();
        all.iter().try_for_each(|actor| self.house.kill(actor))
    }

    /// Waits until every living client commits again.
    fn serve_again(&mut self) -> Result<(), Failure> {
        self.clients.values_mut().for_each(|commits| *commits = 0);
        let is_back = |play: &Self| play.clients.values().all(|commits| *commits >= ENOUGH);
        self.hear_until(SERVICE, is_back)?;
        if !is_back(self) {
            self.faults.push(format!("NO SERVICE {} s after all were back: {:?}", SERVICE.as_secs(), self.clients));
        }
        Ok(())
    }

    /// Looks and listens until nothing is prepared and no client is left.
    fn settle(&mut self, since: Instant, at_most: Duration) -> Result<Option<Duration>, Failure> {
        let (began, mut empty, mut looks) = (now(), None, 0);
        while began.elapsed() < at_most && (looks < 2 || !self.clients.is_empty()) {
            empty = self.look(since, empty);
            looks = if empty.is_some() { looks + 1 } else { 0 };
            self.hear(Duration::from_millis(10))?;
        }
        if empty.is_none() {
            let left = self.house.prepared();
            self.faults.push(format!("LEFT PREPARED after {} ms: {left:?}", since.elapsed().as_millis()));
        }
        if !self.clients.is_empty() {
            self.faults.push(format!("clients that never end: {:?}", self.clients.keys()));
            self.end_clients()?;
        }
        Ok(empty)
    }

    /// Since when nothing is prepared anywhere, if that holds now.
    fn look(&mut self, since: Instant, before: Option<Duration>) -> Option<Duration> {
        let prepared = self.house.prepared().ok()?;
        prepared.values().all(|many| *many == 0).then(|| before.unwrap_or_else(|| since.elapsed()))
    }

    fn end(
        mut self,
        name: String,
        cell: Option<Cell>,
        about: Option<&str>,
        resolved: Option<Duration>,
        began: Instant,
    ) -> Result<Played, Failure> {
        self.hear_until(Duration::from_secs(5), |play| play.clients.is_empty())?;
        let noted = self.house.noted(&self.prefix)?;
        self.faults.extend(self.said.faults(&noted));
        let tx = about.and_then(transaction);
        let known = tx.as_deref().and_then(|tx| self.said.name_of(tx));
        let fate = match (about, known) {
            (None, _) => Fate::Missed,
            (Some(_), Some(name)) if noted.iter().any(|store| store.names.contains(name)) => Fate::Committed,
            (Some(_), _) => Fate::RolledBack,
        };
        let [begun, committed, rolled_back] = self.said.counts();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Played {
            name,
            cell,
            fate,
            resolved_ms: resolved.map(ms),
            took_ms: ms(began.elapsed()),
            begun,
            committed,
            rolled_back,
            said: if self.faults.is_empty() { Vec::new() } else { self.house.complaints.iter().cloned().collect() },
            faults: self.faults,
        })
    }

    fn hear_until(&mut self, at_most: Duration, is_there: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let began = now();
        while !is_there(self) && began.elapsed() < at_most {
            self.hear(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Takes what is to be heard, and waits that long for the first of it.
    fn hear(&mut self, at_most: Duration) -> Result<(), Failure> {
        let mut patience = at_most;
        while let Some(heard) = self.house.hear(patience) {
            patience = Duration::ZERO;
            self.take(heard)?;
        }
        Ok(())
    }

    fn take(&mut self, heard: Heard) -> Result<(), Failure> {
        let is_present = self.house.stage.is_present(&heard);
        let is_unexpected = self.house.is_unexpected(&heard);
        match heard.told {
            Told::Said(line) => {
                if self.said.take(&line) == Some(Word::Committed)
                    && let Some(commits) = self.clients.get_mut(&heard.actor)
                {
                    *commits += 1;
                }
            }
            Told::Stopped { about, .. } if is_present => self.stopped = Some((heard.actor, about)),
            Told::Ended if is_present && heard.actor.starts_with("client") => _ = self.clients.remove(&heard.actor),
            Told::Ended if is_unexpected => {
                let status = self.house.stage.ended(&heard.actor)?;
                return Err(self.house.trouble(&format!("{} ended by itself: {status:?}", heard.actor)));
            }
            Told::Stopped { .. } | Told::Ended | Told::Complained(_) => {}
        }
        Ok(())
    }
}

/// The transaction of which a frozen process speaks: by its own name, or by a branch's.
fn transaction(about: &str) -> Option<String> {
    let of_branch = || about.parse::<Xid>().ok().and_then(|xid| xid.branch()).map(|branch| branch.tx);
    about.parse::<TxId>().ok().or_else(of_branch).map(|tx| tx.to_string())
}
