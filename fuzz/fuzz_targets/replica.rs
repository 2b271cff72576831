//! Everything that a member of a group reads: messages, payloads behind a good checksum, its own files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assent_replica::fuzzing::message(bytes);
    assent_replica::fuzzing::payload(bytes);
    assent_replica::fuzzing::folder(bytes);
});
