//! The races in small, some over real databases: they count what they did.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod kv;
mod page;
mod proxy;
mod real;
mod report;
mod statistics;
mod tx;
mod windows;

/// A URL of the servers that `scripts/test` starts.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
}

fn databases() -> assent_bench::databases::Databases {
    let (postgres, mariadb) = (variable("ASSENT_TEST_POSTGRES"), variable("ASSENT_TEST_MARIADB"));
    assent_bench::databases::Databases { postgres, mariadb }
}
