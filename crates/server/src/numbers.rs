//! What the server counts.

use std::collections::BTreeMap;

use assent_door::{Counter, Gauge, Histogram, Metrics};
use assent_kind::Kind;

/// Handles of the hot places; counting takes no lock but the histogram's own.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) connections: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) overdue: Counter,
    pub(crate) rounds: Counter,
    pub(crate) crossings: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    requests: BTreeMap<&'static str, Counter>,
    refused: BTreeMap<Kind, Counter>,
    group: Histogram,
}

impl Numbers {
    pub(crate) fn new(metrics: &Metrics, kinds: &[&'static str]) -> Self {
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
            bytes_in: metrics.counter("received_bytes", None, "Bytes read by the binary protocol"),
            bytes_out: metrics.counter("sent_bytes", None, "Bytes written by the binary protocol"),
            requests: kinds.iter().map(request).collect(),
            refused: Kind::ALL.iter().map(refused).collect(),
            group: metrics.histogram("sync_group", None, group, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
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
