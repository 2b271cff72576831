//! `assent assets serve`: one server of assets, until it is told to stop.
//!
//! Walk: log and snapshots open first, so that damage is found before anyone asks · one line on stdout says that it is ready ·
//! SIGTERM or SIGINT: connections close, the log too, so that the next open has nothing in doubt.

use std::process::ExitCode;
use std::sync::Arc;

use assent_assets::{Config, Door, Engine, Logics, Promise};
use assent_door::listen_address;
use assent_journal::{Journal, Keeper};
use assent_membership::Ack;
use assent_world::{Disk as _, RealClock, RealDice, RealDisk};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use super::options::{Acknowledge, Serve};
use super::{LOG, SNAPSHOTS};
use crate::failure::Failure;
use crate::logging;

/// Runs until it is told to stop.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode, Failure> {
    logging::start();
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| Failure::io("watch", "signals", &error))?;
    let listen = listen_address("--listen", &arguments.listen, arguments.insecure)?;
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    disk.create_dir(&arguments.data).map_err(|error| Failure::io("make", arguments.data.display(), &error))?;
    let ack = match arguments.ack {
        Acknowledge::Durable => Ack::Durable,
        Acknowledge::Written => Ack::Written,
        Acknowledge::None => Ack::None,
    };
    let window_ms = if ack == Ack::Durable { 0 } else { arguments.max_elapsed_sync_time };
    let log_config = assent_journal::Config { max_elapsed_sync_time: window_ms, ..Default::default() };
    let folder = arguments.data.join(LOG);
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
    let folder = arguments.data.join(SNAPSHOTS);
    let opened = Engine::open(log.clone(), disk, clock.clone(), &folder, config, Logics::default());
    let (engine, recovery) = opened?;
    for (file, what) in &recovery.damaged {
        warn!("snapshot {}: {what}; the other one and the log gave the same", file.display());
    }
    info!("snapshot of command {}, {} replayed behind it", recovery.snapshot, recovery.replayed);
    let door = Door::open(Arc::new(engine), Promise { window_ms }, &listen, clock);
    let door = door.map_err(|error| Failure::io("listen at", &listen, &error))?;
    println!("ready assets={}", door.address());
    let signal = signals.forever().next();
    info!("stopping on signal {}", signal.unwrap_or_default());
    door.stop();
    keeper.stop();
    log.close()?;
    Ok(ExitCode::SUCCESS)
}
