//! What the engines say of themselves, to meters and to health: asked at each scrape, nothing is counted twice.

use std::sync::{Arc, PoisonError};

use assent_coordinator::{Coordinator, Gauges};
use assent_door::{Check, Health, Metrics};
use assent_journal::{Log, State};
use assent_kv::{Kv, LedgerDebt, LedgerFacts, LevelFacts, Stats, ValueCache};

use crate::report;
use crate::shared::Shared;

pub(crate) fn server(shared: &Arc<Shared>, metrics: &Metrics, health: &Health) {
    let most = i64::from(shared.slots.most());
    metrics.sample_gauge("connections_max", None, "Places for connections of the binary protocol", move || most);
    let budget = shared.budget.clone();
    let help = "Bytes of messages longer than a frame that are under way";
    metrics.sample_gauge("long_bytes", None, help, move || signed(budget.taken()));
    if let Some(attendance) = shared.recovery.attendance() {
        let weak = Arc::downgrade(attendance);
        health.watch("recovery", move || match weak.upgrade() {
            Some(attendance) => report::check(&attendance.last()),
            None => Check::failed("it has stopped"),
        });
    }
    let weak = Arc::downgrade(shared);
    health.watch("server", move || {
        let Some(shared) = weak.upgrade() else { return Check::failed("it has stopped") };
        if let Some(why) = shared.failed.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Check::failed(why.clone());
        }
        if shared.drain.until().is_some() {
            return Check::failed("it is stopping");
        }
        let (taken, most) = (shared.slots.taken(), shared.slots.most());
        if taken >= most {
            return Check::degraded(format!("all {most} connections are taken; newcomers are answered busy"));
        }
        Check::ok(format!("{taken} of {most} connections"))
    });
}

pub(crate) fn coordinator(it: &Arc<Coordinator>, log: &Arc<dyn Log>, metrics: &Metrics, health: &Health) {
    let counter = |name, label, help, of: fn(&Gauges) -> u64| {
        let it = Arc::clone(it);
        metrics.sample_counter(name, label, help, move || of(&it.gauges()));
    };
    let gauge = |name, help, of: fn(&Gauges) -> u64| {
        let it = Arc::clone(it);
        metrics.sample_gauge(name, None, help, move || signed(of(&it.gauges())));
    };
    let decided = "Decisions, by whoever made them";
    counter("decisions", Some(("outcome", "committed")), decided, |it| it.decided_committed);
    counter("decisions", Some(("outcome", "rolled_back")), decided, |it| it.decided_rolled_back);
    counter("decisions_forgotten", None, "Decisions that nobody can contradict any more", |it| it.forgotten);
    counter("clients_fenced", None, "Clients that were lost for too long", |it| it.fenced);
    counter("coordinator_checkpoints", None, "Checkpoints of the coordinator", |it| it.checkpoints);
    gauge("clients", "Connected clients", |it| it.clients);
    gauge("transactions", "Decided transactions that must still be known", |it| it.live);
    gauge("in_doubt", "Transactions whose branches recovery saw prepared in its last look", |it| it.prepared);
    gauge("heuristic", "Transactions with a branch that ended otherwise than decided", |it| it.heuristic);
    let rivalled = Arc::clone(it);
    let help = "Resources where another process of this node resolves: a copied data folder";
    metrics.sample_gauge("rivals", None, help, move || i64::try_from(rivalled.rivals().len()).unwrap_or(i64::MAX));
    gauge("decisions_unsynced", "Decisions that may have been told and are not on disk yet (RPO > 0)", |it| {
        it.decisions_unsynced
    });
    gauge("rows_awaited", "Transactions that wait for what a row of their last resource says", |it| it.rows_awaited);
    gauge("held", "Undecided transactions that wait for a person: their decision may be lost (RPO > 0)", |it| it.held);
    let (it, log) = (Arc::clone(it), Arc::clone(log));
    health.watch("coordinator", move || {
        let gauges = it.gauges();
        if let Some(why) = it.unclaimed() {
            return Check::failed(format!("no commit is taken: {why}"));
        }
        if let Some(check) = journal(&*log) {
            return check;
        }
        let Gauges { heuristic, held, clients, prepared, .. } = gauges;
        match (heuristic, held) {
            (0, 0) => Check::ok(format!("epoch {}, {clients} clients, {prepared} in doubt", it.epoch())),
            (0, held) => Check::degraded(format!(
                "{held} transactions are held, their decision may be lost: assent tx list, then commit or rollback"
            )),
            (many, _) => Check::degraded(format!("{many} heuristic outcomes wait for a person: assent tx list")),
        }
    });
}

pub(crate) fn store(it: &Arc<Kv>, log: &Arc<dyn Log>, metrics: &Metrics, health: &Health) {
    let gauge = |name, help, of: fn(&Stats) -> u64| {
        let it = Arc::clone(it);
        metrics.sample_gauge(name, None, help, move || signed(of(&it.stats())));
    };
    let counter = |name, help, of: fn(&Stats) -> u64| {
        let it = Arc::clone(it);
        metrics.sample_counter(name, None, help, move || of(&it.stats()));
    };
    gauge("kv_keys", "Keys; a write that is not written out and merged yet counts as one more", |it| it.keys);
    gauge("kv_value_bytes", "Bytes of their values, counted likewise", |it| it.value_bytes);
    gauge("kv_branches", "Branches known to the store", |it| it.branches);
    gauge("kv_prepared", "Branches that wait for their outcome", |it| it.prepared);
    gauge("kv_held_keys", "Keys that prepared branches hold", |it| it.held_keys);
    gauge("kv_waiting", "Writers that wait for such keys", |it| it.waiting);
    gauge("kv_unpublished", "Writes appended and not yet visible", |it| it.unpublished);
    counter("kv_checkpoints", "How often the ledger's memory was written out", |it| it.checkpoints);
    counter("kv_checkpoints_failed", "How often that failed; the journal has everything", |it| it.checkpoints_failed);
    counter("kv_merges_failed", "Merges of the ledger's files that failed; they are tried again", |it| {
        it.merges_failed
    });
    counter("kv_panics", "Panics of the store's work in the background: report them", |it| it.panics);
    gauge("kv_broken", "1: nothing more is taken until the store is opened again", |it| it.broken);
    gauge("kv_ledger_memory_bytes", "Bytes of the ledger that only memory has", |it| it.memory_bytes);
    gauge("kv_ledger_runs", "Sorted files of the ledger", |it| it.runs);
    gauge("kv_ledger_bytes", "Their bytes", |it| it.runs_bytes);
    gauge("kv_snapshots", "Moments of the store that readers and branches keep", |it| it.snapshots);
    gauge("kv_leases", "Of these, those that the store may end, of branches and connections", |it| it.leases);
    gauge("kv_branches_bytes", "Bytes of writes of branches that are not prepared", |it| it.branches_bytes);
    counter("kv_delayed", "Writes that waited for what is behind in the background", |it| it.delayed);
    counter("kv_delayed_microseconds", "How long they waited together", |it| it.delayed_us);
    counter("kv_readers_stood", "Reads, and pieces of walks, that stood in line behind others", |it| it.readers_stood);
    gauge("kv_live_bytes", "Bytes of values, with what is kept beside them, that are not dead", |it| it.live_bytes);
    gauge("kv_values_disk_bytes", "Bytes on disk in which they stand: journal and volumes", |it| {
        it.value_bytes_on_disk
    });
    gauge("kv_value_debt_bytes", "Of these, what is beyond the bound", |it| it.value_debt_bytes);
    gauge(
        "kv_space_amplification_percent",
        "Bytes on disk up to the checkpoint for each hundred of values that live there; 0 where none do",
        |it| it.space_amplification_percent,
    );
    counter("kv_put_bytes", "Bytes of values that were put, by branches too, and are visible", |it| it.put_bytes);
    gauge("kv_volumes", "Compacted volumes", |it| it.volumes);
    counter("kv_compactions", "Compactions of values", |it| it.compactions);
    counter("kv_compactions_failed", "Compactions of values that failed; the store goes on", |it| {
        it.compactions_failed
    });
    counter("kv_releases_failed", "How often room could not be given back; it is tried again", |it| it.releases_failed);
    gauge("kv_passed_stretches", "Stretches of the journal that are left as they are, for they are full", |it| {
        it.passed_stretches
    });
    gauge("kv_unreadable_stretches", "Stretches of the journal that compactions could not read: they stay", |it| {
        it.unreadable_stretches
    });
    counter("kv_compacted_read_bytes", "Bytes that compactions of values read", |it| it.compacted_bytes_in);
    counter("kv_compacted_written_bytes", "Bytes that compactions of values wrote", |it| it.compacted_bytes_out);
    counter("kv_reclaimed_bytes", "Bytes that compactions of values gave back", |it| it.reclaimed_bytes);
    ledger(it, metrics);
    let (it, log) = (Arc::clone(it), Arc::clone(log));
    health.watch("kv", move || {
        let stats = it.stats();
        if stats.broken > 0 {
            return Check::failed("the ledger is closed after a failure: restart, it goes on from the journal");
        }
        let fine = || Check::ok(format!("{} keys, {} prepared branches", stats.keys, stats.prepared));
        journal(&*log).unwrap_or_else(fine)
    });
}

/// Levels that are told one by one; an eighth one would begin at a thousand billion keys.
const LEVELS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];

/// What the store's ledger is like on disk.
fn ledger(it: &Arc<Kv>, metrics: &Metrics) {
    let facts = |of: fn(&LedgerFacts, &LedgerDebt) -> u64| {
        let it = Arc::clone(it);
        move || {
            let (facts, debt) = it.ledger_facts();
            of(&facts, &debt)
        }
    };
    let gauge = |name, help, of| {
        let ask = facts(of);
        metrics.sample_gauge(name, None, help, move || signed(ask()));
    };
    let counter = |name, help, of| metrics.sample_counter(name, None, help, facts(of));
    gauge("kv_ledger_spare_bytes", "Bytes of memory that its rows took and that wait for the next ones", |facts, _| {
        facts.spare_bytes
    });
    gauge("kv_ledger_runs_unreadable", "Files of the ledger that merges go round: they cannot be read", |facts, _| {
        facts.runs_unreadable
    });
    gauge("kv_ledger_debt_bytes", "Bytes that merges of the ledger would have to read now", |_, debt| debt.merge_bytes);
    gauge("kv_ledger_unwritten_bytes", "Bytes of its memory that are closed and not yet written out", |_, debt| {
        debt.immutable_bytes
    });
    gauge(
        "kv_cache_bytes",
        "Bytes that are kept in memory: of the ledger's files, of its rows, and of small values",
        |facts, _| facts.cache_bytes,
    );
    counter(
        "kv_cache_hits",
        "Pieces and rows of the ledger's files that were in memory when they were looked for",
        |facts, _| facts.cache_hits,
    );
    counter("kv_cache_misses", "Pieces that had to be read from disk", |facts, _| facts.cache_misses);
    values(it, metrics);
    counter("kv_ledger_flushed_bytes", "Bytes that the ledger's memory took when it was written out", |facts, _| {
        facts.flushed_bytes
    });
    counter("kv_ledger_merged_bytes", "Bytes that merges of the ledger wrote", |facts, _| facts.merged_bytes);
    for (number, level) in LEVELS.into_iter().enumerate() {
        let gauge = |name, help, of: fn(&LevelFacts) -> u64| {
            let it = Arc::clone(it);
            let ask = move || it.ledger_facts().0.levels.get(number).map_or(0, |level| signed(of(level)));
            metrics.sample_gauge(name, Some(("level", level)), help, ask);
        };
        gauge("kv_level_runs", "Sorted files of a level of the ledger", |it| it.runs);
        gauge("kv_level_bytes", "Their bytes", |it| it.bytes);
        gauge("kv_level_tombstones", "Rows of removed keys that a level still has", |it| it.tombstones);
    }
}

/// What is kept of long values.
fn values(it: &Arc<Kv>, metrics: &Metrics) {
    let facts = |of: fn(&ValueCache) -> u64| {
        let it = Arc::clone(it);
        move || of(&it.value_cache())
    };
    let bytes = facts(|it| it.bytes);
    let help = "Bytes that values of more than 4 KiB take in memory, of value_cache_bytes";
    metrics.sample_gauge("kv_value_cache_bytes", None, help, move || signed(bytes()));
    let help = "Reads of such values that found them there; 0 where they have no memory";
    metrics.sample_counter("kv_value_cache_hits", None, help, facts(|it| it.hits));
    let help = "And those that read the disk";
    metrics.sample_counter("kv_value_cache_misses", None, help, facts(|it| it.misses));
}

/// What is wrong with a journal.
fn journal(log: &dyn Log) -> Option<Check> {
    match log.state() {
        State::Open => None,
        State::Full => Some(Check::failed("the disk is full: make room, writing goes on by itself")),
        State::Closed => Some(Check::failed("the journal is closed after a failure: restart, recovery decides")),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
