//! Parts of long messages of the binary protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_wire::fuzzing::parts(bytes));
