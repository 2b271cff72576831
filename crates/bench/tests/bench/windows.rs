//! The windowed statistics of the race of stores against a naive implementation that keeps every event.

use std::time::Duration;

use assent_bench::kv::windows::{Seconds, Tail};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq, proptest};

/// Something that ended: when, in milliseconds, and how long it took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Event {
    at_ms: u64,
    took: u64,
    is_get: bool,
    is_operation: bool,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0_u64..130_000, 0_u64..5_000_000_000, proptest::bool::ANY, proptest::bool::ANY);
    vec(event.prop_map(|(at_ms, took, is_get, is_operation)| Event { at_ms, took, is_get, is_operation }), 0..200)
}

fn kept(events: &[Event], clients: usize) -> Seconds {
    let mut all = Seconds::default();
    for client in 0..clients {
        let mut own = Seconds::default();
        for event in events.iter().skip(client).step_by(clients) {
            let at = Duration::from_millis(event.at_ms);
            let tail = if event.is_get { Tail::Get } else { Tail::Put };
            own.latency(tail, at, Duration::from_nanos(event.took));
            own.ended(u64::from(event.is_operation), at);
        }
        all.merge(&own);
    }
    all
}

/// Windows of so many seconds: those that are whole, or the only one.
fn windows(seconds: u64, elapsed_ms: u64) -> Vec<std::ops::Range<u64>> {
    let whole = elapsed_ms / 1_000 / seconds;
    (0..whole.max(1)).map(|number| number * seconds * 1_000..(number + 1) * seconds * 1_000).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the naive way")]
fn mean_of_maxima(events: &[Event], is_get: bool, elapsed_ms: u64) -> Option<f64> {
    let of = |window: std::ops::Range<u64>| {
        let own = events.iter().filter(|event| event.is_get == is_get && window.contains(&event.at_ms));
        own.map(|event| event.took).max()
    };
    let maxima: Vec<f64> = windows(10, elapsed_ms).into_iter().filter_map(of).map(|nanos| nanos as f64 / 1e3).collect();
    (!maxima.is_empty()).then(|| maxima.iter().sum::<f64>() / maxima.len() as f64)
}

#[expect(clippy::cast_precision_loss, reason = "the naive way")]
fn counts(events: &[Event], seconds: u64, elapsed_ms: u64) -> Vec<f64> {
    let of = |window: std::ops::Range<u64>| {
        events.iter().filter(|event| event.is_operation && window.contains(&event.at_ms)).count() as f64
    };
    windows(seconds, elapsed_ms).into_iter().map(of).collect()
}

fn close(one: Option<f64>, two: Option<f64>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => (one - two).abs() <= 1e-9 * one.abs().max(two.abs()).max(1.0),
        (one, two) => one.is_none() && two.is_none(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn tails_and_rates_are_what_every_event_says(events in events(), clients in 1_usize..4, elapsed_ms in 1_u64..130_000) {
        let (seconds, elapsed) = (kept(&events, clients), Duration::from_millis(elapsed_ms));
        for (tail, is_get) in [(Tail::Get, true), (Tail::Put, false)] {
            let naive = mean_of_maxima(&events, is_get, elapsed_ms);
            prop_assert!(close(seconds.mean_of_maxima_us(tail, elapsed), naive), "{:?} {:?}", tail, naive);
        }
        let twenties = counts(&events, 20, elapsed_ms);
        let ratio = |pair: &[f64]| pair[0].max(pair[1]).max(1.0) / pair[0].min(pair[1]).max(1.0);
        let largest = twenties.windows(2).map(ratio).reduce(f64::max);
        prop_assert!(close(seconds.largest_ratio(elapsed), largest), "{:?}", largest);
        let operations = events.iter().filter(|event| event.is_operation).count();
        prop_assert_eq!(seconds.operations(), u64::try_from(operations).unwrap());
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "the naive way")]
    fn the_last_sixth_and_the_rate_over_time_are_counted(events in events(), elapsed_ms in 1_u64..130_000) {
        let (seconds, elapsed) = (kept(&events, 2), Duration::from_millis(elapsed_ms));
        let (whole, sixth) = (elapsed_ms / 1_000, elapsed_ms / 6_000);
        let operations = |from: u64, to: u64| {
            events.iter().filter(|event| event.is_operation && (from * 1_000..to * 1_000).contains(&event.at_ms)).count() as f64
        };
        let naive = match sixth {
            0 => operations(0, u64::MAX / 1_000) / (elapsed_ms as f64 / 1e3),
            sixth => operations(whole - sixth, whole) / sixth as f64,
        };
        prop_assert!(close(Some(seconds.last_sixth(elapsed)), Some(naive)));
        let rate = seconds.rate(elapsed);
        prop_assert!(!rate.is_empty() && rate.len() <= 60);
        if whole > 0 {
            let step = whole.div_ceil(60);
            let naive: Vec<f64> = counts(&events, step, elapsed_ms).iter().map(|count| count / step as f64).collect();
            let told: Vec<f64> = rate.iter().map(|(_, rate)| *rate).collect();
            prop_assert_eq!(told, naive);
            let ends: Vec<f64> = (1..=rate.len()).map(|number| (number as u64 * step) as f64).collect();
            prop_assert_eq!(rate.iter().map(|(at, _)| *at).collect::<Vec<_>>(), ends);
        }
    }
}

#[test]
fn nothing_that_ended_is_no_figure_and_not_zero() {
    let minute = Duration::from_secs(60);
    let figures = Seconds::default().figures(minute);
    assert!(!figures.contains_key("get_max_10s_mean_us") && !figures.contains_key("put_max_10s_mean_us"));
    assert_eq!((figures["operations"], figures["ops_per_s"], figures["ops_ratio_20s_max"]), (0.0, 0.0, 1.0));
}
