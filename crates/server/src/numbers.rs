//! What the server counts.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_door::{Counter, Gauge, Histogram, Metrics};
use assent_kind::Kind;

/// Handles of the hot places; counting takes no lock but the histogram's own.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) connections: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) overdue: Counter,
    pub(crate) rounds: Counter,
    pub(crate) walks: Counter,
    pub(crate) crossings: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    requests: BTreeMap<&'static str, Counter>,
    refused: BTreeMap<Kind, Counter>,
    group: Histogram,
    works: BTreeMap<&'static str, Works>,
}

/// How one verb of the store went.
#[derive(Debug)]
struct Works {
    done: Counter,
    failed: Counter,
    seconds: Histogram,
}

/// Upper bounds of latencies, in seconds.
const SECONDS: [f64; 16] =
    [50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The names of requests to a store, as they are counted.
const WORKS: [&str; 22] = [
    "get",
    "look",
    "scan",
    "rows",
    "write",
    "write_if",
    "expect",
    "patience",
    "as_of",
    "keyspace_create",
    "keyspace_drop",
    "keyspaces",
    "start",
    "end",
    "prepare",
    "commit",
    "commit_one_phase",
    "rollback",
    "recover",
    "inquire",
    "claim",
    "forget",
];

impl Works {
    fn new(metrics: &Metrics, verb: &'static str) -> Self {
        let label = Some(("op", verb));
        Self {
            done: metrics.counter("kv_operations", label, "Requests that the store answered"),
            failed: metrics.counter("kv_operations_failed", label, "Requests that the store answered with an error"),
            seconds: metrics.histogram(
                "kv_operation_seconds",
                label,
                "From when a request was taken off its socket to when its answer was laid",
                &SECONDS,
            ),
        }
    }
}

impl Numbers {
    /// `with_store`: also how its verbs go.
    pub(crate) fn new(metrics: &Metrics, kinds: &[&'static str], with_store: bool) -> Self {
        let request = |kind: &&'static str| {
            (*kind, metrics.counter("requests", Some(("kind", kind)), "Requests taken by the binary protocol"))
        };
        let refused = |kind: &Kind| {
            let label = Some(("kind", kind.name()));
            (*kind, metrics.counter("refused", label, "Requests and connections answered with an error"))
        };
        let group = "Requests that a turn answered after one wait for the journals";
        Self {
            connections: metrics.gauge("connections", None, "Open connections of the binary protocol"),
            accepted: metrics.counter("connections_accepted", None, "Connections taken in, or told that all are taken"),
            overdue: metrics.counter("connections_overdue", None, "Connections closed because patience had ended"),
            crossings: metrics.counter(
                "thread_crossings",
                None,
                "Connections and answers handed from one thread to another",
            ),
            rounds: metrics.counter("recovery_rounds", None, "Rounds of the recovery agent"),
            walks: metrics.counter(
                "kv_long_walks",
                None,
                "Scans with more dead keys in between than a desk steps over",
            ),
            bytes_in: metrics.counter("received_bytes", None, "Bytes read by the binary protocol"),
            bytes_out: metrics.counter("sent_bytes", None, "Bytes written by the binary protocol"),
            requests: kinds.iter().map(request).collect(),
            refused: Kind::ALL.iter().map(refused).collect(),
            works: WORKS.iter().filter(|_| with_store).map(|verb| (*verb, Works::new(metrics, verb))).collect(),
            group: metrics.histogram("sync_group", None, group, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
        }
    }

    /// A request to the store is answered.
    pub(crate) fn worked(&self, verb: &str, took: Duration, failed: bool) {
        if let Some(works) = self.works.get(verb) {
            if failed {
                works.failed.inc()
            } else {
                works.done.inc()
            };
            works.seconds.observe(took.as_secs_f64());
        }
    }

    pub(crate) fn request(&self, kind: &str) {
        if let Some(counter) = self.requests.get(kind) {
            counter.inc();
        }
    }

    pub(crate) fn refused(&self, kind: Kind) {
        if let Some(counter) = self.refused.get(&kind) {
            counter.inc();
        }
    }

    pub(crate) fn turn(&self, answers: usize) {
        self.group.observe(f64::from(u32::try_from(answers).unwrap_or(u32::MAX)));
    }
}
