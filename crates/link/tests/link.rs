//! A link against a server of a few lines: what is answered, what is surely not done, what is in doubt.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod link {
    mod answers;
    mod peer;
    mod trouble;
}
