//! XID texts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_ids::fuzzing::xid_text(bytes));
