//! What a server says to its operator: lines on stderr, chosen by `ASSENT_LOG` (as `info` or `assent_server=debug`).

use tracing_subscriber::EnvFilter;

/// Turns logging on for this process.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("ASSENT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A second start in one process keeps the first.
    _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
}
