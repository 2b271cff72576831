//! Work on the whole store that somebody asked for: reading everything, and compacting as long as that is worth it.

use std::time::Duration;

use assent_kind::Kind;
use assent_kv::{Go, Kv, Pace};
use assent_wire::{Answer, Checked, Compacted};

use crate::inquiry::{Caller, Refusal, lay};
use crate::shared::Shared;

/// Damages that are told one by one; all are counted.
const DAMAGES_MAX: usize = 1_000;

fn kv(shared: &Shared) -> Result<&Kv, Refusal> {
    shared.kv.as_deref().ok_or_else(|| (Kind::NotFound, "this server has no store; connect to one that has".to_owned()))
}

/// How long it waits for another compaction before it looks again.
const WAIT: Duration = Duration::from_millis(50);

/// As fast as it goes, until the server stops or whoever asked for it is gone.
struct Errand<'a>(&'a Shared, &'a Caller);

impl Errand<'_> {
    fn is_over(&self) -> bool {
        self.0.drain.until().is_some() || self.1.is_gone()
    }
}

impl Pace for Errand<'_> {
    fn wrote(&self, _: u64) -> Go {
        if self.is_over() { Go::Stop } else { Go::On }
    }
}

/// Reads everything, until the server stops or the caller is gone.
pub(crate) fn check(shared: &Shared, mark: u64, caller: &Caller) -> Result<Vec<u8>, Refusal> {
    let mut damages = Vec::new();
    let errand = Errand(shared, caller);
    let found = kv(shared)?.verify_until(&|| errand.is_over(), &mut |error| {
        if damages.len() < DAMAGES_MAX {
            damages.push(error.to_string());
        }
    });
    if found.stopped {
        return Err((Kind::Closed, "the server stops, or nobody waits: not everything was read".to_owned()));
    }
    let mut told: Vec<&str> = damages.iter().map(String::as_str).collect();
    loop {
        let checked = Checked {
            runs: found.runs,
            volumes: found.volumes,
            items: found.items,
            entries: found.entries,
            values: found.values,
            damaged: found.damaged,
            damages: told.clone(),
        };
        match lay(shared, mark, &Answer::Checked(checked)) {
            Err(_) if !told.is_empty() => told.truncate(told.len() / 2),
            laid => return laid,
        }
    }
}

/// Compacts until nothing is worth it, the server stops or the caller is gone.
pub(crate) fn compact(shared: &Shared, mark: u64, caller: &Caller) -> Result<Vec<u8>, Refusal> {
    let kv = kv(shared)?;
    let before = kv.stats();
    let (mut compactions, mut is_done) = (0, false);
    let errand = Errand(shared, caller);
    while !is_done && !errand.is_over() {
        match kv.compact_asked(&errand) {
            Ok(true) => compactions += 1,
            Ok(false) => is_done = true,
            // The work in the background is at it.
            Err(error) if error.kind() == Kind::Busy => _ = shared.drain.sleep(WAIT),
            Err(error) => return Err((error.kind(), error.to_string())),
        }
    }
    if !is_done {
        return Err((Kind::Closed, "the server stops, or nobody waits: not everything was compacted".to_owned()));
    }
    let after = kv.stats();
    let compacted = Compacted {
        compactions,
        read_bytes: after.compacted_bytes_in.saturating_sub(before.compacted_bytes_in),
        written_bytes: after.compacted_bytes_out.saturating_sub(before.compacted_bytes_out),
        reclaimed_bytes: after.reclaimed_bytes.saturating_sub(before.reclaimed_bytes),
    };
    lay(shared, mark, &Answer::Compacted(compacted))
}
