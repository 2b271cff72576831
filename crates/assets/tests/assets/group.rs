//! Groups in this process: members over simulated disks and real sockets, an arbiter in memory, clients as they are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assent_arbiter::{Arbiter, ArbiterError};
use assent_assets::{
    Answer, AssetId, Client, GroupDoor, GroupDoorConfig, Known, Limits, Logics, Machine, Op, Options, RemoteAssets,
    Results,
};
use assent_membership::{Ack, Configuration, Member, Standing};
use assent_replica::{Doors, Home, Running, Status, Told, Tuning};
use assent_sim::{SimDisk, Survival};
use assent_world::net::Address;
use assent_world::{Clock as _, RealClock, RealDice};
use assent_xa::{Reply, Resource as _, Verb};

use super::{add, create, results, xid};

pub const LIMIT: Duration = Duration::from_secs(60);

/// An arbiter in memory, shared by all members.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Configuration>>, Arc<AtomicBool>);

impl Memory {
    pub fn held(&self) -> Configuration {
        self.0.lock().unwrap().clone()
    }

    /// Nobody reaches it, or everybody again.
    pub fn go_away(&self, away: bool) {
        self.1.store(away, Ordering::SeqCst);
    }

    fn look(&self) -> Result<(), ArbiterError> {
        let away = self.1.load(Ordering::SeqCst);
        if away { Err(ArbiterError::Groups { name: "away".to_owned() }) } else { Ok(()) }
    }
}

impl Arbiter for Memory {
    fn read(&self) -> Result<Configuration, ArbiterError> {
        self.look()?;
        Ok(self.held())
    }

    fn change(&self, expect: u64, to: &Configuration) -> Result<Configuration, ArbiterError> {
        self.look()?;
        let mut held = self.0.lock().unwrap();
        if held.version == expect {
            *held = to.clone();
        }
        Ok(held.clone())
    }

    fn watch(&self, _: u64, _: Duration) -> Result<Configuration, ArbiterError> {
        self.read()
    }
}

/// What a group is made of.
#[derive(Clone)]
pub struct Plan {
    pub members: u8,
    pub ack: Ack,
    pub group: &'static str,
    pub witness: &'static str,
    pub tuning: Tuning,
    pub logics: Logics,
    pub clients_max: usize,
    /// Opens the arbiter of a member, where it is not the one in memory.
    pub arbiter: Option<Arc<dyn Fn() -> Box<dyn Arbiter>>>,
}

impl Plan {
    /// Nobody is taken for silent or slow because the machine is busy, and nothing is synced that nobody waits for.
    pub fn calm(members: u8, ack: Ack) -> Self {
        let tuning =
            Tuning { silent_ms: 30_000, slow_ms: 60_000, patience_ms: 100, sync_ms: 600_000, ..Tuning::default() };
        Self {
            members,
            ack,
            group: "one",
            witness: "host:1",
            tuning,
            logics: Logics::default(),
            clients_max: 4_096,
            arbiter: None,
        }
    }
}

/// Members that run.
pub struct Group {
    pub plan: Plan,
    folder: tempfile::TempDir,
    pub arbiter: Memory,
    pub disks: Vec<SimDisk>,
    pub members: BTreeMap<usize, Running<Machine>>,
}

impl Group {
    /// The first one leads, all are in sync.
    pub fn new(plan: Plan) -> Self {
        let disks = (0..plan.members).map(|_| SimDisk::new()).collect();
        let mut group = Self::of(plan, Memory::default(), disks);
        (0..group.disks.len()).for_each(|at| group.start(at));
        group.until_whole();
        group
    }

    /// Of which nobody is started.
    pub fn of(plan: Plan, arbiter: Memory, disks: Vec<SimDisk>) -> Self {
        Self { plan, folder: tempfile::tempdir().unwrap(), arbiter, disks, members: BTreeMap::new() }
    }

    fn place(&self, name: &str, at: usize) -> Address {
        Address::Unix(self.folder.path().join(format!("{name}{at}")))
    }

    /// Where clients find this one.
    pub fn path(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("client{at}"))
    }

    fn all(&self, name: &str) -> BTreeMap<Member, Address> {
        (0..self.disks.len()).map(|at| (Member(u8::try_from(at).unwrap()), self.place(name, at))).collect()
    }

    pub fn start(&mut self, at: usize) {
        let home = Home {
            me: Member(u8::try_from(at).unwrap()),
            members: self.all("peer"),
            preferred: Member(0),
            told: Told::new(self.plan.ack, self.plan.group, self.plan.witness),
            folder: PathBuf::from("group"),
            tuning: self.plan.tuning,
        };
        let config = GroupDoorConfig {
            nodes: self.all("client"),
            trace_every: 0,
            clients_max: self.plan.clients_max,
            window_ms: 0,
        };
        let doors =
            Doors { disk: Arc::new(self.disks[at].clone()), clock: Arc::new(RealClock), dice: Arc::new(RealDice) };
        let door = GroupDoor::bind(&self.place("client", at), config, Arc::new(RealClock)).unwrap();
        let machine = Machine::new(Limits::default(), self.plan.logics.clone());
        let arbiter: Box<dyn Arbiter> = match &self.plan.arbiter {
            Some(open) => open(),
            None => Box::new(self.arbiter.clone()),
        };
        self.members.insert(at, Running::start(&home, &doors, arbiter, machine, door).unwrap());
    }

    pub fn status(&self, at: usize) -> Status {
        self.members[&at].status().unwrap()
    }

    /// Who leads.
    pub fn leader(&self) -> Option<usize> {
        self.members.keys().copied().find(|at| self.status(*at).standing == Standing::Leads)
    }

    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let begun = RealClock.now();
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(RealClock.now().since(begun) < LIMIT, "{what}");
            RealClock.sleep(Duration::from_millis(2));
        }
    }

    pub fn until_whole(&self) -> usize {
        self.until("one leads and all are in sync", |group| {
            let leader = group.leader()?;
            (group.status(leader).configuration.in_sync.len() == group.disks.len()).then_some(leader)
        })
    }

    pub fn options(&self, servers: &[usize]) -> Options {
        let servers = servers.iter().map(|at| self.place("client", *at)).collect();
        Options { patience: LIMIT, silence: LIMIT, ..Options::to_all(servers) }
    }

    pub fn client(&self, servers: &[usize]) -> Client {
        Client::connect(self.options(servers), Arc::new(RealClock)).unwrap()
    }

    /// Both machines lose power now, and come up again with what was on their disks.
    pub fn power_cut(self) -> Self {
        let disks = self.disks.iter().map(SimDisk::copy).collect::<Vec<_>>();
        disks.iter().for_each(|disk| disk.cut_power(Survival::Nothing));
        let mut again =
            Self::of(self.plan.clone(), Memory(Arc::new(Mutex::new(self.arbiter.held())), Arc::default()), disks);
        drop(self);
        (0..again.disks.len()).for_each(|at| again.start(at));
        again.until_whole();
        again
    }
}

/// A branch voted yes, and both machines lost power: a standby that had the vote in memory alone, or a primary, had forgotten it, and
/// recovery rolled back what the coordinator had committed.
#[test]
fn votes_and_outcomes_in_a_group_survive_the_power_of_all_in_every_mode() {
    for (members, ack) in [(2, Ack::None), (2, Ack::Received), (3, Ack::Received), (2, Ack::Written), (1, Ack::None)] {
        let servers: Vec<usize> = (0..usize::from(members)).collect();
        let group = Group::new(Plan::calm(members, ack));
        let mut client = group.client(&servers);
        client.execute(&[create(1, 10), create(2, 20)]).unwrap();
        assert_eq!(client.prepare(&xid(1), &[add(1, 5)]).unwrap(), Answer::Voted(results(&[(15, 1)])), "{ack:?}");
        assert_eq!(client.prepare(&xid(2), &[add(2, 5)]).unwrap(), Answer::Voted(results(&[(25, 1)])));
        let group = group.power_cut();
        let mut client = group.client(&servers);
        assert_eq!(client.in_doubt().unwrap(), [xid(1), xid(2)], "{ack:?}: a vote that was told is gone");
        assert_eq!(client.outcome(&xid(1), true).unwrap(), Answer::Done(Results::default()));
        assert_eq!(client.outcome(&xid(2), false).unwrap(), Answer::Done(Results::default()));
        let group = group.power_cut();
        assert_eq!(group.client(&servers).in_doubt().unwrap(), [], "{ack:?}: an outcome that was told is gone");
        let leader = group.leader().unwrap();
        let known = group.members[&leader].read(|machine| (machine.branch(&xid(1)), machine.branch(&xid(2))));
        assert_eq!(known, Ok((Known::Committed, Known::RolledBack)));
    }
}

/// A branch that is all of a transaction has no vote: its commit is the one thing that a coordinator hears, and may forget.
#[test]
fn a_branch_in_one_phase_survives_the_power_of_all_in_every_mode() {
    for (members, ack) in [(2, Ack::None), (2, Ack::Received), (2, Ack::Written), (1, Ack::None)] {
        let servers: Vec<usize> = (0..usize::from(members)).collect();
        let group = Group::new(Plan::calm(members, ack));
        let mut assets = RemoteAssets::connect("assets", group.options(&servers), Arc::new(RealClock)).unwrap();
        assert_eq!(assets.call(Verb::Start(xid(1))), Reply::Done);
        assets.work(create(1, 10)).unwrap();
        assert_eq!(assets.call(Verb::End { xid: xid(1), success: true }), Reply::Done);
        assert_eq!(assets.call(Verb::CommitOnePhase(xid(1))), Reply::Done);
        let group = group.power_cut();
        let kept = group.client(&servers).execute(&[Op::Get { id: AssetId(1) }]);
        assert_eq!(kept.unwrap(), Answer::Done(results(&[(10, 0)])), "{ack:?}: a commit that was told is gone");
    }
}
