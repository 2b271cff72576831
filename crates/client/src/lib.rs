//! What a Rust application links to make writes of several resources happen together.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use assent_client::{Client, ClientConfig, LinkConfig, Remote};
//! let client = Client::connect(ClientConfig::new("127.0.0.1:7430".parse()?, "shop"));
//! let mut stock = Remote::new("stock", "127.0.0.1:7440".parse()?, LinkConfig::default());
//! let mut bills = Remote::new("bills", "127.0.0.1:7450".parse()?, LinkConfig::default());
//! let mut tx = client.begin()?;
//! let (s, b) = (tx.enlist(&mut stock), tx.enlist(&mut bills));
//! s.work()?.put(0, b"apples", b"41")?;
//! b.work()?.put(0, b"bill-7", b"one apple")?;
//! tx.commit()?;
//! # Ok(()) }
//! ```
//! The client drives its own commits: it talks to every resource itself, and to the coordinator once for a transaction
//! of two branches or more, never for one branch and never for reading.
//!
//! Walk: [`Client`] one per process, shared by its threads · [`Transaction`] enlists, commits, rolls back; `drive` turns
//! `xa::Commit`'s commands into calls · `served` the coordinator over a link: resumed, asked again, never guessed ·
//! `notes` what the coordinator may forget · `helper` heartbeats.
//! Deliberately absent: recovery after this process died (the coordinator's agent), pools of connections.
#![forbid(unsafe_code)]

mod client;
mod drive;
mod error;
mod helper;
mod notes;
mod seat;
mod served;
mod transaction;

pub use assent_link::{Address, LinkConfig};
pub use assent_resources as resources;
pub use assent_resources::Remote;
pub use client::{Client, ClientConfig, Known, Retries, Token};
pub use error::{ClientError, CommitError, Committed, RolledBack, WorkError};
pub use seat::{Enlisted, Work};
pub use served::Counts;
pub use transaction::Transaction;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
