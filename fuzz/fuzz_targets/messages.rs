//! A message of the binary protocol: its kind, then its payload.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_wire::fuzzing::messages(bytes));
