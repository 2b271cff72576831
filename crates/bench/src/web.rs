//! Load over HTTP/1.1: a generator for a process of its own, that takes far less processor time than a server, and the floor of a
//! server: one constant answer.
//!
//! Walk: a [`Plan`] says which requests, over how many connections, for how long, and what each answer must be · [`drive`] runs it
//! and gives an [`Outcome`]: what each request of the window took · [`generate`] does that for a process that is told its plan on
//! stdin · `answer` reads answers · [`Line`] is one connection for what is asked beside a race · [`floor`] serves.
//! Deliberately absent: TLS, HTTP/2, pipelining. A connection has one request under way.

mod answer;
mod drive;
pub mod floor;
mod line;

use std::io::{Read, Write};

use assent_kind::Kind;
use serde::{Deserialize, Serialize};

pub use answer::{Answer, body_hash};
pub use drive::drive;
pub use line::Line;

use crate::BenchError;

/// A server that says nothing for so long is dead.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// What a generator is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// `host:port`.
    pub at: String,
    /// The server's process, for its processor time.
    pub process: u32,
    /// Milliseconds before the window: requests are sent and not counted.
    pub warm_up_ms: u64,
    /// Milliseconds of the window.
    pub window_ms: u64,
    /// Who asks for what.
    pub groups: Vec<Group>,
}

/// Connections that ask for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// So many.
    pub connections: u32,
    /// Request line and headers, each with its line end; without the length of a body and the empty line.
    pub head: String,
    /// With a body: what stands before and behind a number that counts up from here.
    pub counted: Option<(String, String, u64)>,
    /// Each connection asks no more often in a second; where an answer was late it makes up for that.
    pub per_s_max: Option<u32>,
    /// What each answer must be.
    pub expected: Expected,
}

/// What an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Its status.
    pub status: u16,
    /// How long its body is, and [`body_hash`] of it, where that is known.
    pub body: Option<(usize, u64)>,
}

/// What came of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Seconds of the window, until its last answer.
    pub took_s: f64,
    /// Processor time of the server in the window.
    pub server_cpu_s: f64,
    /// And of the generator.
    pub client_cpu_s: f64,
    /// Nanoseconds of each request of the window, group by group.
    pub nanos: Vec<Vec<u64>>,
    /// Answers to each group, before the window too.
    pub answered: Vec<u64>,
    /// Bytes of all answers of the window, heads included.
    pub bytes: u64,
}

/// Runs a plan that stands on `from` as JSON; tells the outcome on `to`.
///
/// # Errors
/// [`Kind::Invalid`] for what is no plan; as [`drive`].
pub fn generate(mut from: impl Read, mut to: impl Write) -> Result<(), BenchError> {
    let pipe = |error: std::io::Error| BenchError::new(Kind::Unavailable, format!("a generator's pipe: {error}"));
    let mut text = String::new();
    from.read_to_string(&mut text).map_err(pipe)?;
    let plan = serde_json::from_str(&text).map_err(|error| BenchError::new(Kind::Invalid, error))?;
    let outcome = serde_json::to_vec(&drive(&plan)?).map_err(|error| BenchError::new(Kind::Internal, error))?;
    to.write_all(&outcome).and_then(|()| to.flush()).map_err(pipe)
}

fn network(error: &std::io::Error) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("a client of the race: {error}"))
}

fn wrong(what: impl std::fmt::Display) -> BenchError {
    BenchError::new(Kind::Corrupt, format!("the server of the race answered {what}"))
}
