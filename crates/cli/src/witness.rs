//! `assent witness`: the built-in arbiter, served until it is told to stop.
//!
//! Walk: the ledger opens first, so that damage is found before anyone asks · one line on stdout says that it is ready ·
//! SIGTERM or SIGINT: connections close; what was answered is on the disk anyway.

use std::process::ExitCode;
use std::sync::Arc;

use assent_arbiter::{Door, Ledger};
use assent_door::listen_address;
use assent_world::{RealClock, RealDisk};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::info;

use crate::args::Witness;
use crate::failure::Failure;
use crate::logging;

/// Runs until it is told to stop.
pub(crate) fn run(arguments: &Witness) -> Result<ExitCode, Failure> {
    _ = logging::start();
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| Failure::io("watch", "signals", &error))?;
    let listen = listen_address("--listen", &arguments.listen, arguments.insecure)?;
    let ledger = Ledger::open(Arc::new(RealDisk), &arguments.data)?;
    let door =
        Door::open(ledger, &listen, Arc::new(RealClock)).map_err(|error| Failure::io("listen at", &listen, &error))?;
    say!("ready witness={}", door.address())?;
    // There is nothing to read again.
    let signal = signals.forever().find(|signal| *signal != SIGHUP);
    info!("stopping on signal {}", signal.unwrap_or_default());
    door.stop();
    Ok(ExitCode::SUCCESS)
}
