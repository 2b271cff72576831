//! Fuzzing without a nightly toolchain: a plain function is fed mutations of good inputs for a few seconds. The same
//! functions are targets of `make fuzz`, which is guided by coverage.

use std::time::Duration;

use assent_world::{Clock, RealClock};

use crate::Rng;

const INPUT_BYTES_MAX: usize = 1 << 16;

/// Feeds `target` with mutations of `corpus` for `ASSENT_FUZZ_SECONDS` (5 if not said). A panic is the failure; the input
/// can be had again from the seed and the run that the panic's line names. Answers how many inputs there were.
pub fn fuzz(seed: u64, corpus: &[&[u8]], mut target: impl FnMut(&[u8])) -> u64 {
    let seconds = std::env::var("ASSENT_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let clock = RealClock;
    let start = clock.now();
    let mut runs = 0;
    // A thousand in any case, however busy the machine is.
    while runs < 1_024 || clock.now().since(start) < Duration::from_secs(seconds) {
        // The clock is looked at every few hundred inputs: most targets take a microsecond.
        for _ in 0..256 {
            target(&input(seed, runs, corpus));
            runs += 1;
        }
    }
    runs
}

/// The input of one run.
#[must_use]
pub fn input(seed: u64, run: u64, corpus: &[&[u8]]) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ run.wrapping_mul(0x9e37_79b9));
    let mut bytes = corpus.get(rng.index(corpus.len())).copied().unwrap_or_default().to_vec();
    for _ in 0..rng.below(8) {
        mutate(&mut bytes, &mut rng, corpus);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng, corpus: &[&[u8]]) {
    let at = rng.index(bytes.len());
    match rng.below(7) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0x7f, 0x80, 0xff].get(rng.index(5)).copied().unwrap_or(0);
            }
        }
        2 => bytes.truncate(at),
        3 => {
            let piece = corpus.get(rng.index(corpus.len())).copied().unwrap_or_default();
            bytes.extend_from_slice(piece.get(rng.index(piece.len())..).unwrap_or_default());
        }
        4 => {
            let copy: Vec<u8> = bytes.iter().skip(at).take(16).copied().collect();
            bytes.splice(at..at, copy);
        }
        5 => drop(bytes.splice(at.., rng.roll().to_le_bytes())),
        _ => {
            if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                *place = [u32::MAX, 0, 1 << 31, 24].get(rng.index(4)).copied().unwrap_or(0).to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_same_again_and_runs_differ() {
        let corpus: &[&[u8]] = &[b"hello", b"world, how are you"];
        assert_eq!(input(1, 5, corpus), input(1, 5, corpus));
        let distinct: std::collections::BTreeSet<_> = (0..1_000).map(|run| input(1, run, corpus)).collect();
        assert!(distinct.len() > 500, "{}", distinct.len());
    }
}
