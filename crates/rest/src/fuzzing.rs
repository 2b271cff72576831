//! A plain function that fuzzers feed: no query makes the reader fall.

/// Takes these bytes for a query in JSONiq.
pub fn fuzz_jsoniq(bytes: &[u8]) {
    crate::jsoniq::fuzz(bytes);
}
