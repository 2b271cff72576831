//! Statistics against a naive implementation that counts: percentiles, mean, standard deviation, merging, histograms.

use std::time::Duration;

use assent_bench::record::Recorder;
use assent_bench::report::Cell;
use assent_bench::stats::{Latency, Samples};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

fn samples(nanos: &[u64]) -> Samples {
    let mut samples = Samples::default();
    nanos.iter().for_each(|nanos| samples.push(Duration::from_nanos(*nanos)));
    samples
}

/// The smallest sample that at least so many thousandths of all do not exceed, by counting them.
fn counted(nanos: &[u64], thousandths: usize) -> u64 {
    let covers =
        |value: &&u64| nanos.iter().filter(|other| other <= value).count() * 1_000 >= nanos.len() * thousandths;
    *nanos.iter().filter(covers).min().unwrap()
}

/// Few different values, many, huge ones: each breaks something else.
fn latencies() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![0_u64..5, 0_u64..10_000, 0_u64..10_000_000_000], 1..300)
}

fn close(one: f64, two: f64) -> bool {
    (one - two).abs() <= 1e-9 * one.abs().max(two.abs()).max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "the naive way")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn percentiles_are_what_counting_finds(nanos in latencies()) {
        let latency = samples(&nanos).latency();
        let exact = [
            (0, latency.min), (250, latency.p25), (500, latency.p50), (750, latency.p75), (850, latency.p85),
            (900, latency.p90), (950, latency.p95), (980, latency.p98), (990, latency.p99), (999, latency.p999),
            (1_000, latency.max),
        ];
        for (thousandths, found) in exact {
            prop_assert_eq!(found.to_bits(), micros(counted(&nanos, thousandths)).to_bits(), "{} of 1000", thousandths);
        }
        prop_assert_eq!(usize::try_from(latency.samples).unwrap(), nanos.len());
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "the naive way")]
    fn mean_and_deviation_are_those_of_whole_numbers(nanos in latencies()) {
        let latency = samples(&nanos).latency();
        let (count, sum) = (nanos.len() as u128, nanos.iter().map(|nanos| u128::from(*nanos)).sum::<u128>());
        prop_assert!(close(latency.mean, sum as f64 / count as f64 / 1_000.0));
        // n * sum of squares - square of the sum: exact in whole numbers, so that nothing cancels.
        let squares = nanos.iter().map(|nanos| u128::from(*nanos).pow(2)).sum::<u128>();
        let variance = (count * squares - sum * sum) as f64 / (count * count) as f64;
        prop_assert!(close(latency.sd, variance.sqrt() / 1_000.0), "{} {}", latency.sd, variance.sqrt() / 1_000.0);
    }

    #[test]
    fn merged_recorders_know_what_one_would(threads in vec(latencies(), 1..5)) {
        let (mut merged, mut one) = (Recorder::default(), Recorder::default());
        for (number, nanos) in threads.iter().enumerate() {
            let call = if number % 2 == 0 { "begin" } else { "commit" };
            let mut own = Recorder::default();
            nanos.iter().for_each(|nanos| own.record(call, Duration::from_nanos(*nanos)));
            nanos.iter().for_each(|nanos| one.record(call, Duration::from_nanos(*nanos)));
            merged.merge(&own);
        }
        for call in ["begin", "commit"] {
            prop_assert_eq!(merged.latency(call), one.latency(call));
        }
        prop_assert_eq!(merged.latency("never"), Latency::default());
    }

    #[test]
    fn a_histogram_holds_every_sample_to_one_in_a_thousand(nanos in latencies()) {
        let (mut recorder, mut cell) = (Recorder::default(), Cell::default());
        nanos.iter().for_each(|nanos| recorder.record("call", Duration::from_nanos(*nanos)));
        recorder.fill(&mut cell).unwrap();
        let bytes = STANDARD.decode(&cell.histograms["call"]).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        prop_assert_eq!(usize::try_from(histogram.len()).unwrap(), nanos.len());
        for thousandths in [250_u32, 500, 950, 999] {
            let exact = micros(counted(&nanos, usize::try_from(thousandths).unwrap()));
            let told = micros(histogram.value_at_quantile(f64::from(thousandths) / 1_000.0));
            prop_assert!((told - exact).abs() <= exact * 0.001 + 0.001, "{}: {} {}", thousandths, told, exact);
        }
        let figures: Vec<&str> = cell.figures.keys().map(String::as_str).collect();
        prop_assert_eq!(figures.len(), 14);
        prop_assert!(figures.contains(&"call_samples") && figures.contains(&"call_p999_us"));
    }
}
