//! Whether a proxy stands before a PostgreSQL, and what it keeps from recovery.
//!
//! Walk: [`look`] opens a second connection as recovery does, and asks both who serves them · [`judge`].
//! Why that proves it: of two connections that are open at the same time a server serves each by a process of its own, and so
//! does a pool by session.
//! Source: PgBouncer's manual, `pool_mode` and `ignore_startup_parameters`; tried on PgBouncer 1.18.
//! Deliberately absent: a proxy that changes nothing.

use std::time::Duration;

use tokio_postgres::Config;

use super::rows;
use crate::doctor::Sheet;
use crate::kept::Limits;
use crate::postgres::line::Line;
use crate::postgres::{Address, ask_for_limits, unconnected};

const PROCESS: &str = "SELECT pg_catalog.pg_backend_pid()";
/// How often two connections are asked who serves them: a pool that is busy need not give both the same at once.
const GLANCES: usize = 8;
/// How the refusal of a startup parameter begins, in the words of PgBouncer.
const NO_PARAMETER: &str = "unsupported startup parameter";

/// What shows of a proxy before the server; nothing, if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Two connections that were open at once were served by one session of the server.
    pub shares_sessions: bool,
    /// Why it does not take the limits that recovery's session asks for.
    pub refuses_options: Option<String>,
}

/// What a second connection shows, opened as recovery opens its own. Nothing, where there is no room for it.
pub(super) fn look(first: &mut Line, address: &Address, limits: Limits) -> Proxy {
    let mut config = address.config.clone();
    config.application_name("assent doctor");
    let at_most = Duration::from_millis(limits.connect_ms_max);
    let open = |config: &Config| Line::connect(config, at_most, Box::new(|_| {})).map_err(unconnected);
    let plain = config.clone();
    ask_for_limits(&mut config, limits.answer_ms_max);
    let (second, refuses_options) = match open(&config) {
        Ok(line) => (Some(line), None),
        Err((_, native)) if native.message.contains(NO_PARAMETER) => (open(&plain).ok(), Some(native.message)),
        Err(_) => (None, None),
    };
    let shares_sessions = second.is_some_and(|mut second| {
        let process = |line: &mut Line| {
            line.limit(Some(Duration::from_millis(limits.answer_ms_max)));
            rows(line, &address.place, PROCESS).ok().and_then(|rows| rows.into_iter().flatten().next())
        };
        (0..GLANCES).any(|_| {
            let serves = process(first);
            serves.is_some() && serves == process(&mut second)
        })
    });
    Proxy { shares_sessions, refuses_options }
}

/// What that means.
pub(super) fn judge(proxy: &Proxy, sheet: &mut Sheet<'_>) {
    if proxy.shares_sessions {
        sheet.error(
            "a proxy pools its connections by transaction, so recovery cannot claim its branches for one process",
            "name the server itself in its url, or let the proxy pool by session (PgBouncer: pool_mode = session)",
        );
    }
    if let Some(words) = &proxy.refuses_options {
        sheet.error(
            format!("a proxy refuses the time limits that recovery asks the server for, and recovery with them: {words}"),
            "name the server itself in its url, or let the proxy pass over them (PgBouncer: ignore_startup_parameters = \
             options)",
        );
    }
}
