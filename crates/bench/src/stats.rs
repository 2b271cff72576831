//! Exact statistics over all samples: nothing is bucketed, nothing is thrown away.

use std::time::Duration;

use serde::Serialize;

/// The field's percentiles of one latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many samples.
    pub samples: u64,
    /// The smallest.
    pub min: f64,
    /// A quarter is at most this.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// Three quarters.
    pub p75: f64,
    /// 85 %.
    pub p85: f64,
    /// 90 %.
    pub p90: f64,
    /// 95 %.
    pub p95: f64,
    /// 98 %.
    pub p98: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the samples, dividing by their number.
    pub sd: f64,
}

impl Latency {
    /// The figures by their names in a report: `p25` .. `sd`, in microseconds to the nanosecond, and `samples`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
    pub fn named(&self) -> [(&'static str, f64); 14] {
        let nanos = |us: f64| (us * 1_000.0).round() / 1_000.0;
        [
            ("samples", self.samples as f64),
            ("min", self.min),
            ("p25", self.p25),
            ("p50", self.p50),
            ("p75", self.p75),
            ("p85", self.p85),
            ("p90", self.p90),
            ("p95", self.p95),
            ("p98", self.p98),
            ("p99", self.p99),
            ("p999", self.p999),
            ("max", self.max),
            ("mean", nanos(self.mean)),
            ("sd", nanos(self.sd)),
        ]
    }
}

/// Samples of one latency, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    nanos: Vec<u64>,
}

impl Samples {
    /// Room for that many.
    #[must_use]
    pub fn with_capacity(samples: usize) -> Self {
        Self { nanos: Vec::with_capacity(samples) }
    }

    /// One more.
    pub fn push(&mut self, took: Duration) {
        self.nanos.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All of another thread's.
    pub fn extend(&mut self, other: &Samples) {
        self.nanos.extend_from_slice(&other.nanos);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nanos.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nanos.is_empty()
    }

    /// Each of them, in no order.
    #[must_use]
    pub fn nanos(&self) -> &[u64] {
        &self.nanos
    }

    /// The percentiles; all zero without samples.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        let count = sorted.len();
        if count == 0 {
            return Latency::default();
        }
        // Nearest rank: the smallest sample that at least that share (in thousandths) of the samples does not exceed.
        let at = |share: usize| {
            let rank = (count * share).div_ceil(1_000).clamp(1, count);
            sorted.get(rank - 1).copied().map_or(0.0, micros)
        };
        let mean = sorted.iter().copied().map(micros).sum::<f64>() / number(count);
        let variance = sorted.iter().map(|nanos| (micros(*nanos) - mean).powi(2)).sum::<f64>() / number(count);
        Latency {
            samples: u64::try_from(count).unwrap_or(u64::MAX),
            min: at(0),
            p25: at(250),
            p50: at(500),
            p75: at(750),
            p85: at(850),
            p90: at(900),
            p95: at(950),
            p98: at(980),
            p99: at(990),
            p999: at(999),
            max: at(1000),
            mean,
            sd: variance.sqrt(),
        }
    }
}

/// The middle of some figures (the lower one of two), 0 without any.
#[must_use]
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Between which of the figures the true middle is, in 95 of 100 cases, whatever their distribution: as many of so many coins
/// show heads. Between the least and the largest, where there are too few to say more.
#[must_use]
pub fn median_within(figures: &[f64]) -> (f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = number(sorted.len());
    let below = (1..=sorted.len() / 2).filter(|rank| number(*rank) <= count / 2.0 - 0.98 * count.sqrt()).count();
    let place = below.saturating_sub(1);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
    (at(place), at(sorted.len().saturating_sub(1 + place)))
}

/// Events per second.
#[must_use]
pub fn per_second(events: usize, took: Duration) -> f64 {
    number(events) / took.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "durations below 52 days")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_many_is_known_better_than_that_of_few() {
        let upto = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(median_within(&upto(5)), (1.0, 5.0), "five say nothing but their range");
        // Binomial, p 1/2: of 24 the 7th to the 18th, of 100 the 40th to the 61st.
        assert_eq!(median_within(&upto(24)), (7.0, 18.0));
        assert_eq!(median_within(&upto(100)), (40.0, 61.0));
        assert_eq!(median_within(&[]), (0.0, 0.0));
    }

    #[test]
    fn percentiles_are_the_nearest_ranks() {
        let mut samples = Samples::default();
        // 1 to 200 us, in an order that is not theirs.
        for step in 0..200_u64 {
            samples.push(Duration::from_micros((step * 77) % 200 + 1));
        }
        let latency = samples.latency();
        assert_eq!(
            (latency.min, latency.p50, latency.p95, latency.p99, latency.max),
            (1.0, 100.0, 190.0, 198.0, 200.0)
        );
        assert!((latency.mean - 100.5).abs() < 1e-9);
        assert!((latency.sd - 57.734).abs() < 1e-3);
        assert_eq!(latency.samples, 200);
    }

    #[test]
    fn percentiles_agree_with_counting() {
        let mut state = 88_172_645_463_325_252_u64;
        for count in [1_usize, 2, 3, 10, 99, 100, 101] {
            let mut samples = Samples::default();
            for _ in 0..count {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                samples.push(Duration::from_nanos(state % 1_000_000));
            }
            let latency = samples.latency();
            for (share, value) in [(25, latency.p25), (50, latency.p50), (95, latency.p95), (98, latency.p98)] {
                let covered = samples.nanos.iter().filter(|nanos| micros(**nanos) <= value).count();
                let below = samples.nanos.iter().filter(|nanos| micros(**nanos) < value).count();
                assert!(covered * 100 >= count * share, "{share} % of {count}");
                assert!(below * 100 < count * share, "{share} % of {count} is not the smallest");
            }
        }
    }

    #[test]
    fn no_samples_are_zeroes_and_a_median_of_two_is_the_lower() {
        assert_eq!(Samples::default().latency(), Latency::default());
        assert!((median(&[4.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[9.0, 1.0, 5.0]) - 5.0).abs() < 1e-9);
    }
}
