//! The first frame of a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_wire::fuzzing::handshake(bytes));
