//! A record of the coordinator's log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_coordinator::fuzzing::records(bytes));
