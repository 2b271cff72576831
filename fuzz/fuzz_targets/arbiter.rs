//! Everything that an arbiter reads, and a ledger behind a good checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assent_arbiter::fuzzing::arbiter(bytes);
    assent_arbiter::fuzzing::ledger(bytes);
});
