//! The adapters against real servers, a fake one, and scripts.
//!
//! Walk: `stories` what holds for both databases · `postgres`, `mariadb` what is special to each · `owners` who may resolve
//! MariaDB's branches and who holds them · `ended` sessions that recovery ends · `leaving` the same while holders go · `read_only` branches that wrote nothing · `standby` servers that follow another · `connect` how connections fail · `doctor` the same
//! servers looked at · `scripted` · `servers` finds or starts the servers · `fake` a server that misbehaves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

#[cfg(all(feature = "postgres", feature = "mariadb"))]
mod databases {
    mod connect;
    mod doctor;
    mod ended;
    mod engine;
    mod fake;
    mod leaving;
    mod mariadb;
    mod owners;
    mod postgres;
    mod read_only;
    mod servers;
    mod standby;
    mod stories;
}
mod scripted;
