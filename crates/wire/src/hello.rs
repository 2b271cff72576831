//! The handshake: who calls, and in which version both go on.
//!
//! Walk: the client sends a [`Hello`] as its first frame · [`Hello::parse`] looks at the versions before anything else,
//! so that the layout behind them may change · the server answers [`Welcome`], or `Answer::Error` and closes.
//! The first twelve bytes of a hello (magic, lowest and highest version, role) never change.

use std::fmt;

use assent_frame::{Frame, Malformed, Reader, Writer};
use assent_ids::{Epoch, Incarnation, NodeId};

use crate::{WireError, field};

const KIND: u16 = 0x0001;
const MAGIC: u32 = 0x544e_5341; // "ASNT" in the order of the bytes

/// What this build speaks. While a release is rolled out, old and new meet at the highest version both know.
pub const VERSIONS: Versions = Versions { min: 1, max: 6 };

/// The first version with messages in parts.
pub const LONG: u16 = 2;

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

impl Versions {
    /// The highest version that both know.
    #[must_use]
    pub fn meet(self, other: Versions) -> Option<u16> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

/// What proves a client's right to go on as its incarnation. Never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub u128);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A client's incarnation with the right to resume it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Which.
    pub incarnation: Incarnation,
    /// Given out once, with the first handshake.
    pub secret: Secret,
}

/// What the caller is, and thereby which requests it may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// A program that commits transactions: `Decide`, `Finished`, `Acknowledged`, `Heuristic`, `Ask`, `Ping`.
    Client {
        /// For people: which program.
        label: &'a str,
        /// The incarnation of an earlier connection, to go on with it.
        resume: Option<Session>,
        /// The registered resources it will enlist; an unknown one refuses the handshake.
        resources: Vec<&'a str>,
    },
    /// A program that works on the store's keys and branches: the branch verbs, `Get`, `Write`, `Scan`, `Look`, `Rows`, `Stats`,
    /// `Ping`.
    Store {
        /// For people: which program.
        label: &'a str,
    },
    /// An operator: the `Tx` requests, `Stats`, `Ask`, `Ping`.
    Admin,
}

/// The first frame of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello<'a> {
    /// What the caller speaks.
    pub versions: Versions,
    /// Who the caller says it is, for servers that ask; empty otherwise. Never printed.
    pub token: &'a str,
    /// What it wants.
    pub role: Role<'a>,
}

impl fmt::Debug for Hello<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = if self.token.is_empty() { "none" } else { ".." };
        f.debug_struct("Hello")
            .field("versions", &self.versions)
            .field("token", &token)
            .field("role", &self.role)
            .finish()
    }
}

impl<'a> Hello<'a> {
    /// A greeting in all versions of this build, without a token.
    #[must_use]
    pub const fn new(role: Role<'a>) -> Self {
        Self { versions: VERSIONS, token: "", role }
    }

    /// Lays it as a frame behind what `out` holds.
    ///
    /// # Errors
    /// [`WireError::TooLarge`]; the buffer is as it was.
    pub fn lay(&self, out: &mut Vec<u8>, mark: u64) -> Result<(), WireError> {
        field::lay(out, mark, KIND, assent_frame::PAYLOAD_BYTES_MAX, |to| {
            to.u32(MAGIC).u16(self.versions.min).u16(self.versions.max);
            let role: u32 = match self.role {
                Role::Client { .. } => 1,
                Role::Store { .. } => 2,
                Role::Admin => 3,
            };
            to.u32(role).text(self.token);
            match &self.role {
                Role::Client { label, resume, resources } => {
                    to.text(label);
                    field::put_option(to, resume.as_ref(), put_session);
                    field::put_list(to, resources, |to, name| _ = to.text(name));
                }
                Role::Store { label } => _ = to.text(label),
                Role::Admin => {}
            }
        })
    }

    /// Reads the first frame of a connection; with it, the version in which both go on.
    ///
    /// # Errors
    /// [`WireError::NoHello`], [`WireError::Version`] before anything of another version's layout is looked at,
    /// [`WireError::Malformed`].
    pub fn parse(frame: &Frame<'a>, ours: Versions) -> Result<(Self, u16), WireError> {
        let mut from = Reader::new(frame.payload);
        if frame.kind != KIND || from.u32("magic") != Ok(MAGIC) {
            return Err(WireError::NoHello);
        }
        let theirs = Versions { min: from.u16("lowest version")?, max: from.u16("highest version")? };
        let version = ours.meet(theirs).ok_or(WireError::Version { theirs, ours })?;
        let role = from.u32("role")?;
        let token = from.text("token")?;
        let role = match role {
            1 => Role::Client {
                label: from.text("label")?,
                resume: field::option(&mut from, "resume", session)?,
                resources: field::list(&mut from, "resources", |from| from.text("resource"))?,
            },
            2 => Role::Store { label: from.text("label")? },
            3 => Role::Admin,
            _ => return Err(Malformed { field: "role" }.into()),
        };
        from.end()?;
        Ok((Self { versions: theirs, token, role }, version))
    }
}

/// What the server allows on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes of one message; at most [`crate::PAYLOAD_BYTES_MAX`].
    pub payload_bytes_max: u32,
    /// Bytes of one message, in however many parts; at most [`crate::MESSAGE_BYTES_MAX`]. In version 1 a message is one part.
    pub message_bytes_max: u32,
    /// Requests in flight on one connection; one more is `Busy`.
    pub in_flight_max: u32,
    /// A client that says nothing for three times this is lost. It pings when it has nothing else to say.
    pub heartbeat_ms: u32,
    /// How long after its connection ended a client may resume its incarnation.
    pub client_lost_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1 << 20,
            message_bytes_max: 257 << 20,
            in_flight_max: 1024,
            heartbeat_ms: 333,
            client_lost_ms: 1000,
        }
    }
}

/// The server's consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Both go on in this one.
    pub version: u16,
    /// The server's data folder: the node in the XIDs of a client's transactions.
    pub node: NodeId,
    /// The coordinator's epoch; of a store, its own.
    pub epoch: Epoch,
    /// A client's incarnation: new, or the resumed one.
    pub session: Option<Session>,
    /// What is allowed.
    pub limits: Limits,
}

fn put_session(to: &mut Writer, session: &Session) {
    field::put_incarnation(to, session.incarnation);
    to.u128(session.secret.0);
}

fn session(from: &mut Reader<'_>) -> Result<Session, Malformed> {
    Ok(Session { incarnation: field::incarnation(from)?, secret: Secret(from.u128("secret")?) })
}

impl Welcome {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.u16(self.version).u64(self.node.0).u32(self.epoch.0);
        let Limits { payload_bytes_max, message_bytes_max, in_flight_max, heartbeat_ms, client_lost_ms } = self.limits;
        to.u32(payload_bytes_max).u32(in_flight_max).u32(heartbeat_ms).u32(client_lost_ms);
        field::put_option(to, self.session.as_ref(), put_session);
        if self.version >= LONG {
            to.u32(message_bytes_max);
        }
    }

    pub(crate) fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = from.u16("version")?;
        let (node, epoch) = (NodeId(from.u64("node")?), Epoch(from.u32("epoch")?));
        let payload_bytes_max = from.u32("payload_bytes_max")?;
        let limits = Limits {
            payload_bytes_max,
            message_bytes_max: payload_bytes_max,
            in_flight_max: from.u32("in_flight_max")?,
            heartbeat_ms: from.u32("heartbeat_ms")?,
            client_lost_ms: from.u32("client_lost_ms")?,
        };
        let mut it = Self { version, node, epoch, limits, session: field::option(from, "session", session)? };
        if version >= LONG {
            it.limits.message_bytes_max = from.u32("message_bytes_max")?;
        }
        Ok(it)
    }
}
