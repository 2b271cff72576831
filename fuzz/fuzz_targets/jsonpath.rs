//! Queries, regular expressions and numbers of JSONPath.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assent_docs::fuzzing::fuzz_jsonpath(bytes));
