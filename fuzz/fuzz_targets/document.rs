//! Entries and pages of a document.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assent_docs::fuzzing::fuzz_entry(bytes);
    assent_docs::fuzzing::fuzz_page(bytes);
});
