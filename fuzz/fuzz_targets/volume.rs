//! A volume of values.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_kv::fuzzing::fuzz_volume(bytes));
