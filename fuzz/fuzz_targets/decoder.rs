//! A stream of the binary protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_wire::fuzzing::decoder(bytes));
