//! `assent assets serve --node`: one node of a group, until it is told to stop.
//!
//! Walk: [`Member::open`] the folder first, so that damage is found before anyone asks · ready is who runs, whether it leads or not ·
//! [`Member::watch`] who leads is told in the log as it changes · [`Member::stop`] the lead goes to a standby that has everything,
//! if there is one; then connections close, and the log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use assent_assets::{GroupDoor, GroupDoorConfig, Limits, Logics, Machine};
use assent_door::listen_address;
use assent_ids::Epoch;
use assent_kind::Kind;
use assent_membership::{Ack, Member as Id, Standing, Word};
use assent_replica::{CallError, Doors, Home, LeaseSettings, Running, Status, Told, Tuning};
use assent_world::net::Address;
use assent_world::{Clock as _, Disk as _, RealClock, RealDice, RealDisk};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use super::options::{Acknowledge, Node, Read, Serve};
use super::{LOG, serve};
use crate::failure::Failure;

/// Below a node's folder.
pub(super) const FOLDER: &str = "group";
/// One question to the arbiter takes at most so long.
const ARBITER_LIMIT: Duration = Duration::from_secs(1);
/// Who leads is looked at when that changes; and so often, since a thread that has panicked says nothing.
const LOOK: Duration = Duration::from_secs(1);
/// No signal has this number.
const NOTHING: i32 = 0;
/// How long a stop waits until another node leads.
const HAND_OVER_AT_MOST: Duration = Duration::from_secs(2);

/// A node that runs.
pub(crate) struct Member {
    running: Running<Machine>,
    me: Id,
    address: Address,
}

impl Member {
    /// Opens the folder that the options name, and begins.
    pub(super) fn open(arguments: &Serve, node: u8, clients_max: usize) -> Result<Self, Failure> {
        let group = &arguments.group;
        let (me, nodes) = (Id(node), nodes(&group.member)?);
        let own = nodes.get(&me).ok_or_else(|| {
            Failure::invalid(format!("--node {node}, and no --member {node}=PEER,CLIENT says where it is"))
        })?;
        // Who reaches them can change everything: beyond loopback only where that was said.
        for place in [&own.peer, &own.client] {
            listen_address("--member", &place.to_string(), arguments.insecure)?;
        }
        let witness = group.witness.as_deref().unwrap_or_default();
        let arbiter = assent_arbiter::open(witness, group.group.parse()?, Arc::new(RealClock), ARBITER_LIMIT)?;
        let home = Home {
            me,
            members: nodes.iter().map(|(member, node)| (*member, node.peer.clone())).collect(),
            preferred: preferred(group.preferred, &nodes)?,
            told: Told::new(ack(arguments.ack), &group.group, witness),
            folder: folder(arguments)?,
            tuning: tuning(arguments),
        };
        let config = GroupDoorConfig {
            nodes: nodes.iter().map(|(member, node)| (*member, node.client.clone())).collect(),
            trace_every: arguments.trace_every,
            clients_max,
            window_ms: if home.told.ack == Ack::Durable { 0 } else { arguments.max_elapsed_sync_time },
        };
        let door = GroupDoor::bind(&own.client, config, Arc::new(RealClock));
        let door = door.map_err(|error| Failure::io("listen at", &own.client, &error))?;
        let address = door.address().map_err(|error| Failure::io("listen at", &own.client, &error))?;
        let doors = Doors { disk: Arc::new(RealDisk), clock: Arc::new(RealClock), dice: Arc::new(RealDice) };
        let machine = Machine::new(Limits::default(), Logics::default());
        let running = Running::start(&home, &doors, arbiter, machine, door)?;
        Ok(Self { running, me, address })
    }

    pub(super) const fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn ready(&self) -> String {
        format!("assets={} node={} members={}", self.address, self.me, self.running.address())
    }

    /// Tells the log who leads, as it changes, until a signal comes.
    pub(super) fn watch(&self, signals: &mut Signals) -> Result<i32, Failure> {
        watch(&self.running, signals, self.me)
    }

    pub(super) fn stop(self) {
        hand_over(&self.running, self.me);
        self.running.stop();
    }
}

fn tuning(arguments: &Serve) -> Tuning {
    let group = &arguments.group;
    Tuning {
        silent_ms: group.silent_ms,
        patience_ms: group.patience_ms,
        slow_ms: group.slow_ms,
        lease: (group.read == Read::Lease)
            .then_some(LeaseSettings { length_ms: group.silent_ms, drift_ppm: group.lease_drift_ppm }),
        sync_ms: arguments.max_elapsed_sync_time,
        snapshot_every: group.snapshot_every,
        snapshot_log_bytes: arguments.snapshot_log_bytes,
        snapshot_bytes_per_s: arguments.snapshot_bytes_per_second,
        ..Tuning::default()
    }
}

const fn ack(ack: Acknowledge) -> Ack {
    match ack {
        Acknowledge::Durable => Ack::Durable,
        Acknowledge::Written => Ack::Written,
        Acknowledge::Received => Ack::Received,
        Acknowledge::None => Ack::None,
    }
}

fn nodes(members: &[Node]) -> Result<BTreeMap<Id, Node>, Failure> {
    let mut nodes = BTreeMap::new();
    let mut places: BTreeSet<&Address> = BTreeSet::new();
    for node in members {
        let is_new = places.insert(&node.peer) && places.insert(&node.client);
        if !is_new || nodes.insert(Id(node.number), node.clone()).is_some() {
            let message = format!("--member {}: its number or a place of it is another one's too", node.number);
            return Err(Failure::invalid(message));
        }
    }
    Ok(nodes)
}

fn preferred(preferred: Option<u8>, nodes: &BTreeMap<Id, Node>) -> Result<Id, Failure> {
    let member = preferred.map(Id).or_else(|| nodes.keys().next().copied());
    let known = member.filter(|member| nodes.contains_key(member));
    known
        .ok_or_else(|| Failure::invalid(format!("--preferred {}: no --member has that number", preferred.unwrap_or(0))))
}

/// The member's own folder: one of its own, or one that a dead node of its number left.
fn folder(arguments: &Serve) -> Result<PathBuf, Failure> {
    let Some(left) = &arguments.group.take_over else {
        let data = serve::data(arguments)?;
        serve::refuse_other(&data, LOG, "a server alone")?;
        RealDisk.create_dir(&data).map_err(|error| Failure::io("make", data.display(), &error))?;
        return Ok(data.join(FOLDER));
    };
    let folder = left.join(FOLDER);
    let there = RealDisk.list(&folder).map_err(|error| Failure::io("look into", folder.display(), &error))?;
    if !there.iter().any(|name| name == "epochs") {
        let message = format!("{} holds nothing of a node: name the folder that its --data was", left.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    warn!("taking over {}: whoever has its number elsewhere must not run again", left.display());
    Ok(folder)
}

/// Tells the log who leads, as it changes, until a signal comes; which. A node whose thread has ended would stand there without a
/// door: the process ends, so that whoever watches it starts it again.
fn watch(running: &Running<Machine>, signals: &mut Signals, me: Id) -> Result<i32, Failure> {
    let (changes, listener, heard) = (running.changes(), signals.handle(), AtomicI32::new(NOTHING));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(signal) = signals.forever().find(|signal| *signal != SIGHUP) {
                heard.store(signal, Ordering::SeqCst);
                changes.bump();
                changes.wake_all();
            }
        });
        let mut before = Before::default();
        loop {
            let seen = changes.value();
            match heard.load(Ordering::SeqCst) {
                NOTHING => {}
                signal => return Ok(signal),
            }
            if let Err(failure) = before.tell(running.status(), me) {
                // Else its thread would wait for a signal.
                listener.close();
                return Err(failure);
            }
            changes.wait(seen, Some(LOOK));
        }
    })
}

/// What the log was told last.
#[derive(Default)]
struct Before {
    node: Option<(Option<String>, Standing, Epoch, Vec<Id>)>,
    otherwise: Option<String>,
}

impl Before {
    /// Tells what is new.
    fn tell(&mut self, status: Result<Status, CallError>, me: Id) -> Result<(), Failure> {
        let status = match status {
            Ok(status) => status,
            Err(CallError::Stopped { why }) => {
                let why = why.unwrap_or_else(|| "a fault of its own, told on stderr".to_owned());
                return Err(Failure::new(Kind::Internal, format!("node {me} has ended without being told to: {why}")));
            }
            // Many ask at once; it is asked again.
            Err(_) => return Ok(()),
        };
        let told = status.told_otherwise();
        if let Some(told) = told.as_ref().filter(|_| told != self.otherwise) {
            warn!("{told}");
        }
        self.otherwise = told;
        let configuration = status.configuration;
        let in_sync: Vec<Id> = configuration.in_sync.iter().map(|(member, _)| member).collect();
        let now = Some((status.halted, status.standing, configuration.epoch, in_sync));
        match now.as_ref().filter(|_| self.node != now) {
            Some((Some(why), ..)) => error!("node {me} has stopped: {why}"),
            Some((None, standing, epoch, in_sync)) => {
                info!("node {me}, epoch {epoch}: {standing:?}, in sync: {in_sync:?}");
            }
            None => {}
        }
        self.node = now;
        Ok(())
    }
}

/// Gives the lead to a node that has everything, if there is one, so that clients wait as little as possible.
fn hand_over(running: &Running<Machine>, me: Id) {
    let leads =
        || running.status().is_ok_and(|status| matches!(status.standing, Standing::Leads | Standing::Stalls(_)));
    let Ok(status) = running.status() else { return };
    let to = status.others.iter().find(|other| other.is_in_sync && other.is_connected).map(|other| other.member);
    let Some(to) = to.filter(|_| leads()) else { return };
    if !matches!(running.word(Word::HandOver(to)), Ok(Ok(()))) {
        return;
    }
    let until = RealClock.now().after(HAND_OVER_AT_MOST);
    while leads() && RealClock.now() < until {
        RealClock.sleep(Duration::from_millis(2));
    }
    if leads() {
        warn!("node {me} still leads: the lead was not taken over by node {to} in {} s", HAND_OVER_AT_MOST.as_secs());
    } else {
        info!("node {me} has handed the lead to node {to}");
    }
}
