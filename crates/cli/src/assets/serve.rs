//! `assent assets serve`: assets, until it is told to stop. `assent serve` has the same where `[assets]` is written.
//!
//! Walk: [`Served::open`] log and snapshots first, so that damage is found before anyone asks · one line on stdout says that it is ready ·
//! SIGTERM or SIGINT: connections close, the log too, so that the next open has nothing in doubt. A node of a group: `group`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assent_assets::{CLIENTS_MAX, Config, Door, Engine, Logics, Promise};
use assent_door::{Health, Limits, Metrics, Shield, listen_address, shielded_address};
use assent_ids::NodeId;
use assent_journal::{Journal, Keeper};
use assent_kind::Kind;
use assent_membership::Ack;
use assent_rest::{Admin, Entrance, LogLevel, Rest, Service, Settings};
use assent_world::net::Address;
use assent_world::{Clock, Disk as _, RealClock, RealDice, RealDisk};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use super::group::{self, Member};
use super::numbers::Numbers;
use super::options::{Acknowledge, Serve};
use super::{LOG, SNAPSHOTS};
use crate::config::Identity;
use crate::descriptors::{ADMIN as ADMIN_CONNECTIONS_MAX, Descriptors, Engines};
use crate::failure::Failure;
use crate::logging;

/// How long the keeper leaves a log alone that nobody waits for.
const KEEPER_MS: u64 = 100;

/// How long a stop of the admin listener waits for what is under way.
const DRAIN: Duration = Duration::from_secs(1);

/// Assets that are served: by a server alone, or by a node of a group.
pub(crate) enum Served {
    Alone { door: Door, keeper: Keeper, log: Arc<Journal> },
    Node(Box<Member>),
}

/// Runs until it is told to stop.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode, Failure> {
    let log_level = logging::start();
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| Failure::io("watch", "signals", &error))?;
    let mut served = Served::open(arguments, places()?)?;
    let admin = arguments.admin.as_deref().map(|at| admin(at, arguments, &served, log_level)).transpose()?;
    let told = admin.as_ref().map(|(rest, _)| format!(" admin={}", rest.address())).unwrap_or_default();
    say!("ready {}{told}", served.ready())?;
    let signal = served.wait(&mut signals)?;
    info!("stopping on signal {signal}");
    served.stop()?;
    if let Some((rest, numbers)) = admin {
        drop(numbers);
        rest.stop(DRAIN);
    }
    Ok(ExitCode::SUCCESS)
}

impl Served {
    /// Opens what the options say, for so many clients.
    pub(crate) fn open(arguments: &Serve, clients_max: usize) -> Result<Self, Failure> {
        match arguments.group.node {
            Some(node) => Member::open(arguments, node, clients_max).map(|member| Self::Node(Box::new(member))),
            None => alone(arguments, clients_max),
        }
    }

    /// Where its clients ask.
    pub(crate) const fn address(&self) -> &Address {
        match self {
            Self::Alone { door, .. } => door.address(),
            Self::Node(member) => member.address(),
        }
    }

    /// What is said when it is ready.
    pub(crate) fn ready(&self) -> String {
        match self {
            Self::Alone { door, .. } => format!("assets={}", door.address()),
            Self::Node(member) => member.ready(),
        }
    }

    /// Waits for a signal; which.
    pub(crate) fn wait(&mut self, signals: &mut Signals) -> Result<i32, Failure> {
        match self {
            // There is nothing to read again.
            Self::Alone { .. } => Ok(signals.forever().find(|signal| *signal != SIGHUP).unwrap_or(SIGTERM)),
            Self::Node(member) => member.watch(signals),
        }
    }

    /// Closes all connections, and the log. A node gives its lead away before.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        match self {
            Self::Alone { door, keeper, log } => {
                door.stop();
                keeper.stop();
                log.close()?;
            }
            Self::Node(member) => member.stop(),
        }
        Ok(())
    }
}

/// The other nodes of its group.
pub(crate) fn others(arguments: &Serve) -> Vec<u8> {
    let node = arguments.group.node;
    arguments.group.member.iter().map(|one| one.number).filter(|number| Some(*number) != node).collect()
}

/// Health and metrics over HTTP, as every server of this program has them.
fn admin(
    at: &str,
    arguments: &Serve,
    served: &Served,
    log_level: Option<LogLevel>,
) -> Result<(Rest, Numbers), Failure> {
    let address = shielded_address("--admin", at, Shield::default(), arguments.insecure)?;
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let numbers = Numbers::start(served.address(), &others(arguments), &metrics, &health)?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let limits = Limits { connections_max: ADMIN_CONNECTIONS_MAX, ..Limits::default() };
    let entrance = Entrance {
        settings: Settings { limits, ..Settings::default() },
        identity: Arc::new(Identity::default().open(Arc::clone(&clock))?),
        certificates: None,
        clock,
        metrics: Arc::clone(&metrics),
    };
    let service = Service::admin(Admin {
        metrics,
        health,
        node: NodeId(arguments.group.node.map_or(0, u64::from)),
        coordinator: None,
        coordinator_log: None,
        kv: None,
        own_store: None,
        documents: None,
        own_documents: None,
        resources: Vec::new(),
        // What it was told stands on its command line.
        configuration: json!({}),
        log_level,
    });
    Ok((Rest::start(&address, entrance, service)?, numbers))
}

fn alone(arguments: &Serve, clients_max: usize) -> Result<Served, Failure> {
    let listen = listen_address("--listen", &arguments.listen, arguments.insecure)?;
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let data = data(arguments)?;
    refuse_other(&data, group::FOLDER, "one node of a group")?;
    disk.create_dir(&data).map_err(|error| Failure::io("make", data.display(), &error))?;
    let ack = match arguments.ack {
        Acknowledge::Received => {
            let message = "--ack received: it is a group's word; without --node there is nobody to receive anything";
            return Err(Failure::invalid(message.to_owned()));
        }
        Acknowledge::Durable => Ack::Durable,
        Acknowledge::Written => Ack::Written,
        Acknowledge::None => Ack::None,
    };
    let window_ms = if ack == Ack::Durable { 0 } else { arguments.max_elapsed_sync_time };
    let log_config = assent_journal::Config { max_elapsed_sync_time: window_ms, ..Default::default() };
    let folder = data.join(LOG);
    let (log, recovered) = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder, log_config)?;
    let keeper = Keeper::start(Arc::clone(&log), clock.clone());
    if recovered.may_have_lost {
        warn!("the machine went down while the log was lazy: up to its window of answered commands may be lost");
    }
    let config = Config {
        ack,
        snapshot_log_bytes: arguments.snapshot_log_bytes,
        snapshot_bytes_per_second: arguments.snapshot_bytes_per_second,
        trace_every: arguments.trace_every,
        ..Config::default()
    };
    let folder = data.join(SNAPSHOTS);
    let opened = Engine::open(log.clone(), disk, clock.clone(), &folder, config, Logics::default());
    let (engine, recovery) = opened?;
    for (file, what) in &recovery.damaged {
        warn!("snapshot {}: {what}; the other one and the log gave the same", file.display());
    }
    info!("snapshot of command {}, {} replayed behind it", recovery.snapshot, recovery.replayed);
    // Without a wait for the kernel, what is in the buffer is written by the keeper in its time.
    let window_ms = if ack == Ack::None { window_ms + KEEPER_MS } else { window_ms };
    let promise = Promise { window_ms, clients_max: Some(clients_max) };
    let door = Door::open(Arc::new(engine), promise, &listen, clock);
    let door = door.map_err(|error| Failure::io("listen at", &listen, &error))?;
    Ok(Served::Alone { door, keeper, log })
}

/// Connections that the process has descriptors for, beside what its log needs.
fn places() -> Result<usize, Failure> {
    let most = u32::try_from(CLIENTS_MAX).unwrap_or(u32::MAX);
    let places = Descriptors::raised().places(most, 0, Engines::default())?;
    Ok(usize::try_from(places.protocol).unwrap_or(CLIENTS_MAX))
}

/// The folder that is named.
pub(super) fn data(arguments: &Serve) -> Result<PathBuf, Failure> {
    arguments.data.clone().ok_or_else(|| Failure::invalid("--data is missing".to_owned()))
}

/// Nobody opens the folder of the other kind: what is in it would not be served, and nobody would notice.
pub(super) fn refuse_other(data: &Path, other: &str, whose: &str) -> Result<(), Failure> {
    let there = RealDisk.list(data).unwrap_or_default();
    if !there.iter().any(|name| name == other) {
        return Ok(());
    }
    Err(Failure::new(Kind::Conflict, format!("{} holds the assets of {whose}: name another folder", data.display())))
}
