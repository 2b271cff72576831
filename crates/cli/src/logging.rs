//! What a server says to its operator: lines on stderr, chosen by `ASSENT_LOG` (as `info` or `assent_server=debug`), or
//! while it runs.

use assent_rest::LogLevel;
use tracing_subscriber::EnvFilter;

/// Turns logging on for this process, and gives what changes it.
pub(crate) fn start() -> Option<LogLevel> {
    let filter = EnvFilter::try_from_env("ASSENT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_filter_reloading();
    let (get, set) = (builder.reload_handle(), builder.reload_handle());
    // A second start in one process keeps the first.
    builder.try_init().ok()?;
    Some(LogLevel {
        get: Box::new(move || get.with_current(ToString::to_string).unwrap_or_default()),
        set: Box::new(move |text| {
            let filter = EnvFilter::try_new(text).map_err(|error| error.to_string())?;
            set.reload(filter).map_err(|error| error.to_string())
        }),
    })
}
