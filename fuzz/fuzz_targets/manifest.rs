//! A manifest of an ordered map.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_runs::fuzzing::fuzz_manifest(bytes));
