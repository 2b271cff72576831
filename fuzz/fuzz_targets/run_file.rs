//! A run file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_runs::fuzzing::fuzz_run_file(bytes));
