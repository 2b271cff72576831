//! How a client connects, and what it tells beside answers.

use std::sync::Arc;
use std::time::Duration;

use assent_world::net::Address;
use assent_world::{Dice, RealDice};

/// How a client connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers: one, or all nodes of a group, in any order.
    pub servers: Vec<Address>,
    /// Without any answer for so long, `Unavailable` is told.
    pub patience: Duration,
    /// Where there are several servers: one that leaves a command without an answer for so long is left for the next, and after that for
    /// twice as long. Default 2 s: longer than a group needs to take out a node that is slow (`--slow-ms`, `--silent-ms`, and the arbiter's
    /// answer), so that only who hears nothing any more leaves. A server whose process has died is left at once.
    pub silence: Duration,
    /// Commands that may have no answer at the same time; 1 to 1,024.
    pub window: u32,
    /// Whether commands that change something belong to a session, and so are executed once.
    pub session: bool,
    /// Rolls the names of sessions.
    pub dice: Arc<dyn Dice>,
}

impl Options {
    /// One server, five seconds, a window of 256, with a session.
    #[must_use]
    pub fn to(server: Address) -> Self {
        Self::to_all(vec![server])
    }

    /// The same, for all nodes of a group.
    #[must_use]
    pub fn to_all(servers: Vec<Address>) -> Self {
        Self {
            servers,
            patience: Duration::from_secs(5),
            silence: Duration::from_secs(2),
            window: 256,
            session: true,
            dice: Arc::new(RealDice),
        }
    }
}

/// What happened on the way, beside answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection was lost, and the same server answers again; so many commands were sent again.
    Reconnected {
        /// The server.
        server: String,
        /// Commands without an answer then.
        again: usize,
    },
    /// Another server answers now.
    FailedOver {
        /// Who answered before.
        from: String,
        /// Who answers now.
        to: String,
        /// Commands without an answer then.
        again: usize,
        /// From the last answer of the one to the first of the other.
        gap: Duration,
    },
    /// The session is forgotten, in doubt as a whole, or its server knows fewer commands of it than were answered. What has no answer is told as in doubt; the next command opens another one.
    SessionLost,
}
