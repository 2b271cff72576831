//! `assent assets serve`: one server of assets, until it is told to stop.
//!
//! Walk: log and snapshots open first, so that damage is found before anyone asks · one line on stdout says that it is ready ·
//! SIGTERM or SIGINT: connections close, the log too, so that the next open has nothing in doubt.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use assent_assets::{CLIENTS_MAX, Config, Door, Engine, Logics, Promise};
use assent_door::listen_address;
use assent_journal::{Journal, Keeper};
use assent_kind::Kind;
use assent_membership::Ack;
use assent_world::{Disk as _, RealClock, RealDice, RealDisk};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use super::options::{Acknowledge, Serve};
use super::{LOG, SNAPSHOTS, group};
use crate::descriptors;
use crate::failure::Failure;
use crate::logging;

/// How long the keeper leaves a log alone that nobody waits for.
const KEEPER_MS: u64 = 100;

/// Runs until it is told to stop.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode, Failure> {
    if let Some(node) = arguments.group.node {
        return group::run(arguments, node);
    }
    logging::start();
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| Failure::io("watch", "signals", &error))?;
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
    let promise = Promise { window_ms, clients_max: Some(places()?) };
    let door = Door::open(Arc::new(engine), promise, &listen, clock);
    let door = door.map_err(|error| Failure::io("listen at", &listen, &error))?;
    println!("ready assets={}", door.address());
    let signal = signals.forever().next();
    info!("stopping on signal {}", signal.unwrap_or_default());
    door.stop();
    keeper.stop();
    log.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Connections that the process has descriptors for, beside what its log needs.
pub(super) fn places() -> Result<usize, Failure> {
    let most = u32::try_from(CLIENTS_MAX).unwrap_or(u32::MAX);
    let places = descriptors::places(most, 0, false, false)?;
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
