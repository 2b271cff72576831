//! The processes of the matrix: a coordinator and a key-value store of this binary, private SQL servers through their hook.
//!
//! Walk: [`House::open`] starts all and makes the tables · [`House::arm`] starts a server again with a stop point ·
//! [`House::kill`] and [`House::revive`] · [`House::prepared`] and [`House::noted`] look into the stores over connections
//! of their own, not through Assent's recovery.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use assent_ids::NodeId;
use assent_kind::Kind;
use assent_world::{Dice as _, RealDice};

use super::Arguments;
use super::cell::Victim;
use super::oracle::Noted;
use crate::demo::bank::Bank;
use crate::demo::now;
use crate::demo::plan::{Plan, Store, StoreKind, write};
use crate::demo::process::{Heard, Stage, Told};
use crate::demo::sql::Hook;
use crate::failure::Failure;
use crate::tx::admin;

/// How long a server may take to be ready.
const READY: Duration = Duration::from_secs(30);
/// Complaints that are kept, to be shown with a fault.
const COMPLAINTS: usize = 40;

/// Everything that runs.
pub(super) struct House {
    pub(super) stage: Stage,
    folder: PathBuf,
    hook: Hook,
    /// How each server is started again: its arguments, with the port it first took.
    servers: BTreeMap<String, Vec<String>>,
    /// Killed and not started again yet.
    down: BTreeSet<String>,
    /// Heard while something else was waited for.
    waiting: VecDeque<Heard>,
    pub(super) complaints: VecDeque<String>,
    plan: Plan,
    node: NodeId,
    /// Connections to look into the stores, in the plan's order.
    looks: Vec<Option<Bank>>,
}

impl House {
    /// Starts the servers and makes the tables.
    pub(super) fn open(arguments: &Arguments, folder: &Path) -> Result<Self, Failure> {
        let plan = Plan {
            coordinator: String::new(),
            stores: Vec::new(),
            accounts: 0,
            seed: arguments.seed,
            table: format!("assent_matrix_{:016x}", RealDice.roll()),
            last_resource: arguments.last_resource,
        };
        let mut house = Self {
            stage: Stage::new(),
            folder: folder.to_owned(),
            hook: Hook::new(&arguments.kill_hook, &arguments.kill_dir),
            servers: BTreeMap::new(),
            down: BTreeSet::new(),
            waiting: VecDeque::new(),
            complaints: VecDeque::new(),
            plan,
            node: NodeId(0),
            looks: Vec::new(),
        };
        let quiet = "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
        let kv = house.serve("kv", &format!("{quiet}[kv]\n"))?;
        house.plan.stores = [
            (Victim::Postgres, StoreKind::Postgres, arguments.postgres.clone()),
            (Victim::Mariadb, StoreKind::Mariadb, arguments.mariadb.clone()),
            (Victim::Kv, StoreKind::Assent, kv),
        ]
        .map(|(victim, kind, url)| Store { name: victim.name().to_owned(), kind, url })
        .into();
        let mut configuration = format!("{quiet}[coordinator]\n");
        for store in &house.plan.stores {
            Bank::open(store, &house.plan)?.open_ledger()?;
            house.looks.push(None);
            let (name, kind, url) = (&store.name, store.kind.name(), toml::Value::String(store.url.clone()));
            configuration += &format!("[[resource]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = {url}\n");
        }
        house.plan.coordinator = house.serve("coordinator", &configuration)?;
        house.node = admin(&house.plan.coordinator)?.welcome().node;
        house.plan.save(&house.plan_file())?;
        Ok(house)
    }

    fn plan_file(&self) -> PathBuf {
        self.folder.join("plan.json")
    }

    fn serve(&mut self, name: &str, configuration: &str) -> Result<String, Failure> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("make", folder.display(), &error))?;
        let file = folder.join("assent.toml");
        write(&file, configuration)?;
        let arguments = vec!["serve".to_owned(), "--config".to_owned(), file.display().to_string()];
        self.servers.insert(name.to_owned(), arguments.clone());
        let address = self.start(name, None)?;
        let fixed = [&arguments[..], &["--listen".to_owned(), address.clone()]].concat();
        self.servers.insert(name.to_owned(), fixed);
        Ok(address)
    }

    fn start(&mut self, name: &str, stop: Option<&str>) -> Result<String, Failure> {
        let arguments = self.servers.get(name).cloned().unwrap_or_default();
        let run = self.stage.start(name, &arguments, stop)?;
        self.down.remove(name);
        let began = now();
        while began.elapsed() < READY {
            let Some(heard) = self.stage.hear(Duration::from_millis(100)) else { continue };
            let ours = heard.actor == name && heard.run == run;
            match &heard.told {
                Told::Said(line) if ours => {
                    let address = line.strip_prefix("ready protocol=").and_then(|rest| rest.split(' ').next());
                    if let Some(address) = address {
                        return Ok(address.to_owned());
                    }
                }
                // It serves before it says so: clients that waited for it may have brought it to its stop point already.
                Told::Stopped { .. } if ours => {
                    self.waiting.push_back(heard);
                    return Ok(String::new());
                }
                Told::Ended if ours => return Err(self.trouble(&format!("{name} did not start"))),
                _ => self.waiting.push_back(heard),
            }
        }
        Err(self.trouble(&format!("{name} was not ready within {} s", READY.as_secs())))
    }

    /// Starts a server of ours again, to freeze at a stop point if one is given.
    pub(super) fn arm(&mut self, name: &str, stop: Option<&str>) -> Result<(), Failure> {
        self.stage.kill(name)?;
        self.start(name, stop).map(drop)
    }

    /// Starts a client.
    pub(super) fn client(
        &mut self,
        actor: &str,
        name: &str,
        (many, threads): (u64, u32),
        stop: Option<&str>,
    ) -> Result<(), Failure> {
        let plan = self.plan_file().display().to_string();
        let (many, threads) = (many.to_string(), threads.to_string());
        let arguments = ["matrix-client", "--plan", &plan, "--name", name, "--many", &many, "--threads", &threads]
            .map(str::to_owned);
        self.stage.start(actor, &arguments, stop).map(drop)
    }

    /// What is heard next of the present run of an actor, or what the dead said before.
    pub(super) fn hear(&mut self, at_most: Duration) -> Option<Heard> {
        let heard = self.waiting.pop_front().or_else(|| self.stage.hear(at_most))?;
        if let Told::Complained(line) = &heard.told {
            if self.complaints.len() == COMPLAINTS {
                self.complaints.pop_front();
            }
            self.complaints.push_back(format!("{}: {line}", heard.actor));
        }
        Some(heard)
    }

    /// SIGKILL, and the death is waited for.
    pub(super) fn kill(&mut self, actor: &str) -> Result<(), Failure> {
        if self.is_foreign(actor) {
            return self.hook.call("kill", actor);
        }
        self.down.insert(actor.to_owned());
        self.stage.kill(actor)
    }

    /// Whether a server ended that nobody killed.
    pub(super) fn is_unexpected(&self, heard: &Heard) -> bool {
        self.stage.is_present(heard) && !self.down.contains(&heard.actor)
    }

    /// Starts a server that was killed; a client stays dead.
    pub(super) fn revive(&mut self, actor: &str) -> Result<(), Failure> {
        if self.is_foreign(actor) {
            return self.hook.call("revive", actor);
        }
        if self.servers.contains_key(actor) { self.start(actor, None).map(drop) } else { Ok(()) }
    }

    fn is_foreign(&self, actor: &str) -> bool {
        [Victim::Postgres, Victim::Mariadb].iter().any(|victim| victim.name() == actor)
    }

    /// How many branches the stores list as prepared, by store; an error if one does not answer.
    pub(super) fn prepared(&mut self) -> Result<BTreeMap<String, u64>, Failure> {
        let node = self.node;
        self.look(|bank| bank.left_prepared(node))
    }

    /// The names that begin so, in every store.
    pub(super) fn noted(&mut self, prefix: &str) -> Result<Vec<Noted>, Failure> {
        let noted = self.look(|bank| bank.noted(prefix))?;
        Ok(noted.into_iter().map(|(store, names)| Noted { store, names }).collect())
    }

    fn look<T>(&mut self, mut at: impl FnMut(&mut Bank) -> Result<T, Failure>) -> Result<BTreeMap<String, T>, Failure> {
        let mut seen = BTreeMap::new();
        for (place, store) in self.looks.iter_mut().zip(&self.plan.stores) {
            let mut bank = match place.take() {
                Some(bank) => bank,
                None => Bank::open(store, &self.plan)?,
            };
            // Only a connection that answered is used again.
            seen.insert(store.name.clone(), at(&mut bank)?);
            *place = Some(bank);
        }
        Ok(seen)
    }

    pub(super) fn trouble(&self, what: &str) -> Failure {
        let heard: Vec<&str> = self.complaints.iter().map(String::as_str).collect();
        Failure::new(Kind::Internal, format!("{what}; the last that was said:\n  {}", heard.join("\n  ")))
    }

    /// The name of its table in every store.
    pub(super) fn table(&self) -> &str {
        &self.plan.table
    }

    /// Drops the tables and stops the servers in an orderly way.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        for store in &self.plan.stores {
            Bank::open(store, &self.plan)?.drop_table()?;
        }
        ["coordinator", "kv"].iter().try_for_each(|name| self.stage.stop(name, Duration::from_secs(10)))
    }
}
