//! Queries of the documents' listener.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_rest::fuzzing::fuzz_jsoniq(bytes));
