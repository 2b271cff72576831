//! Numbers for people and dashboards, in the OpenMetrics text format.
//!
//! Walk: a hot place holds a [`Counter`], [`Gauge`] or [`Histogram`] and counts without a lock · an engine that counts
//! by itself is asked at each scrape ([`Metrics::sample_counter`], [`Metrics::sample_gauge`], [`Metrics::sample_spread`]; behind
//! [`Metrics::before_each_scrape`]) · [`Metrics::text`] lays all of them, sorted by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Counts events; only grows.
pub type Counter = prometheus_client::metrics::counter::Counter;
/// A number that goes up and down.
pub type Gauge = prometheus_client::metrics::gauge::Gauge;
/// How values are spread over buckets.
pub type Histogram = prometheus_client::metrics::histogram::Histogram;

/// What tells the members of one family apart: a name and a value, as `("kind", "decide")`; `None` for a lone number.
pub type Label<'a> = Option<(&'a str, &'a str)>;

/// How values that somebody else counts are spread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// All values together.
    pub sum: f64,
    /// Upper bounds and how many values each holds that the one before does not; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
}

/// What is asked at each scrape; without an answer nothing is told.
type Question<T> = Box<dyn Fn() -> Option<T> + Send + Sync>;

enum Source {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    AskedCounter(Question<u64>),
    AskedGauge(Question<i64>),
    AskedSpread(Question<Spread>),
}

struct Family {
    help: String,
    members: BTreeMap<Option<(String, String)>, Source>,
}

/// What is done before the first question of a scrape.
type Before = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Families(Mutex<Known>);

#[derive(Default)]
struct Known {
    families: BTreeMap<String, Family>,
    before: Vec<Before>,
}

/// The numbers of one process.
pub struct Metrics {
    families: Arc<Families>,
    registry: Registry,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let families = Arc::new(Families::default());
        let mut registry = Registry::with_prefix("assent");
        registry.register_collector(Box::new(Arc::clone(&families)));
        Self { families, registry }
    }
}

impl Metrics {
    /// The counter of that name and label; the same one whenever it is asked for. `_total` is added to its name.
    #[must_use]
    pub fn counter(&self, name: &str, label: Label<'_>, help: &str) -> Counter {
        let counter = Counter::default();
        match self.families.put(name, label, help, Source::Counter(counter.clone())) {
            Some(Source::Counter(known)) => known,
            _ => counter,
        }
    }

    /// The gauge of that name and label; the same one whenever it is asked for.
    #[must_use]
    pub fn gauge(&self, name: &str, label: Label<'_>, help: &str) -> Gauge {
        let gauge = Gauge::default();
        match self.families.put(name, label, help, Source::Gauge(gauge.clone())) {
            Some(Source::Gauge(known)) => known,
            _ => gauge,
        }
    }

    /// The histogram of that name and label, with those upper bounds; the same one whenever it is asked for.
    #[must_use]
    pub fn histogram(&self, name: &str, label: Label<'_>, help: &str, bounds: &[f64]) -> Histogram {
        let histogram = Histogram::new(bounds.iter().copied());
        match self.families.put(name, label, help, Source::Histogram(histogram.clone())) {
            Some(Source::Histogram(known)) => known,
            _ => histogram,
        }
    }

    /// Asks for this counter at each scrape; an earlier question of that name and label is replaced. The question must
    /// not block.
    pub fn sample_counter(
        &self,
        name: &str,
        label: Label<'_>,
        help: &str,
        question: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.sample_counter_if(name, label, help, move || Some(question()));
    }

    /// The same; where there is no answer, nothing is told.
    pub fn sample_counter_if(
        &self,
        name: &str,
        label: Label<'_>,
        help: &str,
        question: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) {
        _ = self.families.put(name, label, help, Source::AskedCounter(Box::new(question)));
    }

    /// Asks for this gauge at each scrape; an earlier question of that name and label is replaced. The question must
    /// not block.
    pub fn sample_gauge(
        &self,
        name: &str,
        label: Label<'_>,
        help: &str,
        question: impl Fn() -> i64 + Send + Sync + 'static,
    ) {
        self.sample_gauge_if(name, label, help, move || Some(question()));
    }

    /// The same; where there is no answer, nothing is told.
    pub fn sample_gauge_if(
        &self,
        name: &str,
        label: Label<'_>,
        help: &str,
        question: impl Fn() -> Option<i64> + Send + Sync + 'static,
    ) {
        _ = self.families.put(name, label, help, Source::AskedGauge(Box::new(question)));
    }

    /// Asks at each scrape how values are spread; where there is no answer, nothing is told.
    pub fn sample_spread(
        &self,
        name: &str,
        label: Label<'_>,
        help: &str,
        question: impl Fn() -> Option<Spread> + Send + Sync + 'static,
    ) {
        _ = self.families.put(name, label, help, Source::AskedSpread(Box::new(question)));
    }

    /// Does this at each scrape before the first question is asked, so that questions about one thing have answers of one moment: it
    /// keeps what they are to tell. No two scrapes are at once. It must not block.
    pub fn before_each_scrape(&self, step: impl Fn() + Send + Sync + 'static) {
        self.families.0.lock().unwrap_or_else(PoisonError::into_inner).before.push(Box::new(step));
    }

    /// All numbers, in the OpenMetrics text format 1.0.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String does not fail.
        _ = encode(&mut text, &self.registry);
        text
    }
}

impl Source {
    const fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) | Self::AskedCounter(_) => MetricType::Counter,
            Self::Gauge(_) | Self::AskedGauge(_) => MetricType::Gauge,
            Self::Histogram(_) | Self::AskedSpread(_) => MetricType::Histogram,
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Counter(_) | Self::AskedCounter(_) => "counter",
            Self::Gauge(_) | Self::AskedGauge(_) => "gauge",
            Self::Histogram(_) | Self::AskedSpread(_) => "histogram",
        }
    }

    fn same(&self) -> Option<Source> {
        match self {
            Self::Counter(counter) => Some(Self::Counter(counter.clone())),
            Self::Gauge(gauge) => Some(Self::Gauge(gauge.clone())),
            Self::Histogram(histogram) => Some(Self::Histogram(histogram.clone())),
            Self::AskedCounter(_) | Self::AskedGauge(_) | Self::AskedSpread(_) => None,
        }
    }

    /// What is to be told now, if anything is.
    fn told(&self) -> Option<Told<'_>> {
        match self {
            Self::AskedCounter(question) => question().map(Told::Counter),
            Self::AskedGauge(question) => question().map(Told::Gauge),
            Self::AskedSpread(question) => question().map(Told::Spread),
            counts => Some(Told::Counted(counts)),
        }
    }
}

/// One number, or several of one thing, as they are now.
enum Told<'a> {
    Counted(&'a Source),
    Counter(u64),
    Gauge(i64),
    Spread(Spread),
}

impl Told<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counted(Source::Counter(counter)) => counter.encode(encoder),
            Self::Counted(Source::Gauge(gauge)) => gauge.encode(encoder),
            Self::Counted(Source::Histogram(histogram)) => histogram.encode(encoder),
            // What is asked was asked.
            Self::Counted(_) => Ok(()),
            Self::Counter(count) => ConstCounter::new(*count).encode(encoder),
            Self::Gauge(number) => ConstGauge::new(*number).encode(encoder),
            Self::Spread(Spread { sum, buckets }) => {
                let count = buckets.iter().map(|(_, count)| count).sum();
                encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
            }
        }
    }
}

impl Families {
    /// Takes a member in, unless one that counts by itself is there: then that one is the answer.
    fn put(&self, name: &str, label: Label<'_>, help: &str, source: Source) -> Option<Source> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let family = known
            .families
            .entry(name.to_owned())
            .or_insert_with(|| Family { help: help.to_owned(), members: BTreeMap::new() });
        let kind = source.word();
        let fits = |(known, other): (&Option<_>, &Source)| other.word() == kind && known.is_none() == label.is_none();
        if !family.members.iter().all(fits) {
            // Two types under one name make the whole text unreadable: the late one counts unseen.
            tracing::error!(name, kind, "a metric of this name has another type, or only one of them has a label");
            return None;
        }
        let label = label.map(|(name, value)| (name.to_owned(), value.to_owned()));
        if let Some(known) = family.members.get(&label).and_then(Source::same) {
            return Some(known);
        }
        family.members.insert(label, source);
        None
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.before.iter().for_each(|step| step());
        for (name, family) in &known.families {
            let Some((_, first)) = family.members.first_key_value() else { continue };
            let told: Vec<_> =
                family.members.iter().filter_map(|(label, source)| Some((label, source.told()?))).collect();
            let Some((label, one)) = told.first() else { continue };
            let mut encoder = encoder.encode_descriptor(name, &family.help, None, first.metric_type())?;
            if label.is_none() {
                // Alone by the rule of `put`. An empty label set would be laid as `{}`, which few tools expect.
                one.encode(encoder)?;
                continue;
            }
            for (label, one) in &told {
                let label: Vec<(&str, &str)> =
                    label.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                one.encode(encoder.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_sorted_typed_and_ends_as_open_metrics_asks() {
        let metrics = Metrics::default();
        let decide = metrics.counter("requests", Some(("kind", "decide")), "Requests taken");
        let get = metrics.counter("requests", Some(("kind", "get")), "Requests taken");
        let connections = metrics.gauge("connections", None, "Open connections");
        let group = metrics.histogram("sync_group", None, "Answers that shared a sync", &[1.0, 8.0]);
        metrics.sample_gauge("in_doubt", None, "Transactions in doubt", || 3);
        metrics.sample_counter("syncs", Some(("log", "kv")), "Syncs of a journal", || 11);
        decide.inc_by(2);
        get.inc();
        connections.set(5);
        group.observe(4.0);
        let expected = "\
# HELP assent_connections Open connections
# TYPE assent_connections gauge
assent_connections 5
# HELP assent_in_doubt Transactions in doubt
# TYPE assent_in_doubt gauge
assent_in_doubt 3
# HELP assent_requests Requests taken
# TYPE assent_requests counter
assent_requests_total{kind=\"decide\"} 2
assent_requests_total{kind=\"get\"} 1
# HELP assent_sync_group Answers that shared a sync
# TYPE assent_sync_group histogram
assent_sync_group_sum 4.0
assent_sync_group_count 1
assent_sync_group_bucket{le=\"1.0\"} 0
assent_sync_group_bucket{le=\"8.0\"} 1
assent_sync_group_bucket{le=\"+Inf\"} 1
# HELP assent_syncs Syncs of a journal
# TYPE assent_syncs counter
assent_syncs_total{log=\"kv\"} 11
# EOF
";
        assert_eq!(metrics.text(), expected);
    }

    #[test]
    fn what_has_no_answer_is_not_told_and_a_spread_is_told_as_a_histogram() {
        let metrics = Metrics::default();
        let spread = Spread { sum: 9.0, buckets: vec![(4.0, 2), (f64::INFINITY, 1)] };
        metrics.sample_spread("step_us", Some(("step", "sent")), "What a step took", move || Some(spread.clone()));
        metrics.sample_spread("step_us", Some(("step", "queued")), "What a step took", || None);
        metrics.sample_gauge_if("lag", Some(("node", "2")), "How far behind", || None);
        metrics.sample_gauge_if("epoch", None, "Which", || None);
        let expected = "\
# HELP assent_step_us What a step took
# TYPE assent_step_us histogram
assent_step_us_sum{step=\"sent\"} 9.0
assent_step_us_count{step=\"sent\"} 3
assent_step_us_bucket{le=\"4.0\",step=\"sent\"} 2
assent_step_us_bucket{le=\"+Inf\",step=\"sent\"} 3
# EOF
";
        assert_eq!(metrics.text(), expected);
    }

    #[test]
    fn one_name_is_one_number_and_never_two_types() {
        let metrics = Metrics::default();
        metrics.counter("requests", None, "Requests").inc();
        metrics.counter("requests", None, "Requests").inc();
        metrics.gauge("requests", Some(("kind", "get")), "Not a gauge").set(7);
        assert!(metrics.text().contains("assent_requests_total 2\n"));
        assert!(!metrics.text().contains("gauge"));
    }
}
