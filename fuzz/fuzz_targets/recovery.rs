//! A journal folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_journal::fuzzing::fuzz_recovery(bytes));
