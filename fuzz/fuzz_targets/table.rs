//! The two files of a coordinator's state table.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_coordinator::fuzzing::table(bytes));
