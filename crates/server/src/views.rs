//! The coordinator's views in the words of the wire.
//!
//! Walk: [`transaction`] one that is in doubt or unfinished · [`past`] one as the log tells it. Both borrow: a message is
//! laid from them at once.

use assent_coordinator::history::{Past, PastBranch, Vote};
use assent_coordinator::{Action, By, Fate, Finish, Standing, TransactionView};
use assent_ids::{Branch, NodeId};
use assent_wire as wire;
use assent_xa::{Heuristic, Native, Outcome};

/// An outcome.
#[must_use]
pub const fn outcome(outcome: Outcome) -> wire::Outcome {
    match outcome {
        Outcome::Committed => wire::Outcome::Committed,
        Outcome::RolledBack => wire::Outcome::RolledBack,
    }
}

/// Who.
#[must_use]
pub const fn by(by: By) -> wire::By {
    match by {
        By::Client => wire::By::Client,
        By::Agent => wire::By::Agent,
        By::Timeout => wire::By::Timeout,
        By::Operator => wire::By::Operator,
    }
}

const fn standing(standing: Standing) -> wire::Standing {
    match standing {
        Standing::Connected => wire::Standing::Connected,
        Standing::Lost => wire::Standing::Lost,
        Standing::Resumable => wire::Standing::Resumable,
        Standing::Fencing => wire::Standing::Fencing,
        Standing::Fenced => wire::Standing::Fenced,
        Standing::Never => wire::Standing::Never,
    }
}

const fn heuristic(heuristic: Heuristic) -> wire::Heuristic {
    match heuristic {
        Heuristic::Committed => wire::Heuristic::Committed,
        Heuristic::RolledBack => wire::Heuristic::RolledBack,
        Heuristic::Mixed => wire::Heuristic::Mixed,
        Heuristic::Hazard => wire::Heuristic::Hazard,
    }
}

const fn vote(vote: &Vote) -> wire::Vote {
    match vote {
        Vote::Yes => wire::Vote::Yes,
        Vote::ReadOnly => wire::Vote::ReadOnly,
        Vote::No => wire::Vote::No,
    }
}

const fn fate(fate: &Fate) -> wire::Fate {
    match fate {
        Fate::Open => wire::Fate::Open,
        Fate::Prepared => wire::Fate::Prepared,
        Fate::Finished(Finish::Committed) => wire::Fate::Committed,
        Fate::Finished(Finish::CommittedInferred) => wire::Fate::CommittedInferred,
        Fate::Finished(Finish::RolledBack) => wire::Fate::RolledBack,
        Fate::Finished(Finish::NotListed) => wire::Fate::NotListed,
        Fate::Heuristic(how, _) => wire::Fate::Heuristic(heuristic(*how)),
        Fate::Cleared => wire::Fate::Cleared,
    }
}

/// A fate in a word, for the log of what is over.
const fn word(fate: Option<&Fate>) -> &'static str {
    match fate {
        None => "",
        Some(Fate::Open) => "open",
        Some(Fate::Prepared) => "prepared",
        Some(Fate::Finished(Finish::Committed)) => "committed",
        Some(Fate::Finished(Finish::CommittedInferred)) => "committed (inferred)",
        Some(Fate::Finished(Finish::RolledBack)) => "rolled back",
        Some(Fate::Finished(Finish::NotListed)) => "finished",
        Some(Fate::Heuristic(..)) => "ended on its own",
        Some(Fate::Cleared) => "ended on its own, forgotten since",
    }
}

fn native<'a>(fate: &'a Fate, own: &'a Native) -> wire::Native<'a> {
    let native = if let Fate::Heuristic(_, native) = fate { native } else { own };
    words(native)
}

fn words(native: &Native) -> wire::Native<'_> {
    wire::Native { code: &native.code, message: &native.message }
}

/// A resource as people know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The registered name, or the id of one that is not registered.
    pub name: String,
    /// Where it is; empty where that is not known.
    pub place: String,
}

/// A transaction that is in doubt or unfinished; `names`: those of its branches' resources, in their order.
#[must_use]
pub fn transaction<'a>(node: NodeId, view: &'a TransactionView, names: &'a [Named]) -> wire::TransactionView<'a> {
    let branch = |(branch, named): (&'a assent_coordinator::BranchView, &'a Named)| {
        let assent_coordinator::BranchView { resource, number, flags, mark, .. } = branch;
        let xid = Branch { node, tx: view.tx, resource: *resource, number: *number, flags: *flags, mark: *mark }.xid();
        wire::BranchView {
            resource: &named.name,
            xid,
            fate: fate(&branch.fate),
            by: branch.by.map(by),
            retries: branch.retries,
            native: native(&branch.fate, &branch.native),
            place: &named.place,
            prepared_ms: branch.stay.since_ms,
            listed: &branch.stay.words,
            witness: &branch.witness,
        }
    };
    wire::TransactionView {
        tx: view.tx,
        decided: view.decided.map(|(it, who)| (outcome(it), by(who))),
        decided_ms: view.decided_ms.unwrap_or(0),
        is_durable: view.is_durable,
        is_acknowledged: view.is_acknowledged,
        may_be_lost: view.may_be_lost,
        client: &view.label,
        standing: standing(view.client),
        age_ms: u64::try_from(view.age.as_millis()).unwrap_or(u64::MAX),
        branches: view.branches.iter().zip(names).map(branch).collect(),
    }
}

/// A transaction as the log tells it; `names`: as above.
#[must_use]
pub fn past<'a>(past: &'a Past, names: &'a [String]) -> wire::PastView<'a> {
    let branch = |(branch, name): (&'a PastBranch, &'a String)| wire::PastBranch {
        resource: name,
        number: branch.number,
        has_witness: !branch.witness.is_empty(),
        fate: word(branch.fate.as_ref()),
        heuristic: branch.heuristic.map(heuristic),
        by: branch.by.map(by),
        retries: branch.retries,
        native: words(&branch.native),
        noted_ms: branch.noted_ms,
        vote: branch.vote.as_ref().map(vote),
        witness: &branch.witness,
    };
    let said = |word: &'a assent_coordinator::history::PastWord| wire::PastWord {
        at_ms: word.at_ms,
        action: match word.action {
            Action::Commit => wire::Action::Commit,
            Action::Rollback => wire::Action::Rollback,
            Action::Forget => wire::Action::Forget,
        },
        who: &word.who,
        reason: &word.reason,
    };
    wire::PastView {
        tx: past.tx,
        outcome: outcome(past.outcome),
        by: by(past.by),
        client: &past.client,
        decided_ms: past.decided_ms,
        finished_ms: past.finished_ms,
        branches: past.branches.iter().zip(names).map(branch).collect(),
        words: past.words.iter().map(said).collect(),
    }
}

/// The gauges of a store, by their names.
#[must_use]
pub fn store(it: &assent_kv::Stats) -> Vec<(&'static str, u64)> {
    vec![
        ("kv.live_bytes", it.live_bytes),
        ("kv.values_disk_bytes", it.value_bytes_on_disk),
        ("kv.value_debt_bytes", it.value_debt_bytes),
        ("kv.space_amplification_percent", it.space_amplification_percent),
        ("kv.put_bytes", it.put_bytes),
        ("kv.volumes", it.volumes),
        ("kv.compactions", it.compactions),
        ("kv.compactions_failed", it.compactions_failed),
        ("kv.releases_failed", it.releases_failed),
        ("kv.unreadable_stretches", it.unreadable_stretches),
        ("kv.passed_stretches", it.passed_stretches),
        ("kv.compacted_read_bytes", it.compacted_bytes_in),
        ("kv.compacted_written_bytes", it.compacted_bytes_out),
        ("kv.reclaimed_bytes", it.reclaimed_bytes),
        ("kv.keys", it.keys),
        ("kv.value_bytes", it.value_bytes),
        ("kv.branches", it.branches),
        ("kv.prepared", it.prepared),
        ("kv.branches_bytes", it.branches_bytes),
        ("kv.held_keys", it.held_keys),
        ("kv.waiting", it.waiting),
        ("kv.snapshots", it.snapshots),
        ("kv.leases", it.leases),
        ("kv.leases_ended", it.leases_ended),
        ("kv.unpublished", it.unpublished),
        ("kv.checkpoints", it.checkpoints),
        ("kv.checkpoints_failed", it.checkpoints_failed),
        ("kv.merges_failed", it.merges_failed),
        ("kv.panics", it.panics),
        ("kv.broken", it.broken),
        ("kv.replayed", it.replayed),
        ("kv.delayed", it.delayed),
        ("kv.delayed_us", it.delayed_us),
        ("kv.readers_stood", it.readers_stood),
        ("kv.rebuilt", it.rebuilt),
        ("kv.ledger_memory_bytes", it.memory_bytes),
        ("kv.ledger_runs", it.runs),
        ("kv.ledger_bytes", it.runs_bytes),
    ]
}

/// Names of a level's gauges: its sorted files, and their bytes.
const LEVELS: [(&str, &str); 8] = [
    ("kv.level_0_runs", "kv.level_0_bytes"),
    ("kv.level_1_runs", "kv.level_1_bytes"),
    ("kv.level_2_runs", "kv.level_2_bytes"),
    ("kv.level_3_runs", "kv.level_3_bytes"),
    ("kv.level_4_runs", "kv.level_4_bytes"),
    ("kv.level_5_runs", "kv.level_5_bytes"),
    ("kv.level_6_runs", "kv.level_6_bytes"),
    ("kv.level_7_runs", "kv.level_7_bytes"),
];

/// The gauges of a store's ledger and of its values in memory, by their names; levels as far as there are any.
#[must_use]
pub fn ledger(kv: &assent_kv::Kv) -> Vec<(&'static str, u64)> {
    let ((facts, debt), values) = (kv.ledger_facts(), kv.value_cache());
    let levels = LEVELS.iter().zip(&facts.levels);
    let levels = levels.flat_map(|((runs, bytes), level)| [(*runs, level.runs), (*bytes, level.bytes)]);
    let others = [
        ("kv.cache_bytes", facts.cache_bytes),
        ("kv.cache_hits", facts.cache_hits),
        ("kv.cache_misses", facts.cache_misses),
        ("kv.ledger_debt_bytes", debt.merge_bytes),
        ("kv.ledger_flushed_bytes", facts.flushed_bytes),
        ("kv.ledger_merged_bytes", facts.merged_bytes),
        ("kv.ledger_runs_unreadable", facts.runs_unreadable),
        ("kv.ledger_unwritten_bytes", debt.immutable_bytes),
        ("kv.value_cache_bytes", values.bytes),
        ("kv.value_cache_hits", values.hits),
        ("kv.value_cache_misses", values.misses),
    ];
    levels.chain(others).collect()
}
