//! The first exchange of a connection.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use assent_wire::{Answer, Decoder, Hello, Welcome};
use assent_world::net::{Address, Stream};
use assent_world::{Clock, RealClock};

use crate::LinkError;
use crate::link::write_counted;

/// How long things may take.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Connecting, and the handshake.
    pub connect_ms: u64,
    /// From waiting for an answer to giving it up; also a write that the server does not take.
    pub answer_ms: u64,
    /// Whose time that is.
    pub clock: Arc<dyn Clock>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self { connect_ms: 1_000, answer_ms: 10_000, clock: Arc::new(RealClock) }
    }
}

/// A waiting reader looks at its deadline that often.
const GLANCE: Duration = Duration::from_millis(50);

fn unavailable(to: &Address, why: &str) -> LinkError {
    LinkError::Unavailable { message: format!("server {to}: {why}") }
}

/// Connects and greets. Nothing that fails here can have done anything.
pub(crate) fn connect(to: &Address, hello: &Hello<'_>, config: &LinkConfig) -> Result<(Stream, Welcome), LinkError> {
    let mut greeting = Vec::new();
    hello.lay(&mut greeting, 1)?;
    let failed = |error: &io::Error| unavailable(to, &error.to_string());
    let at_most = Duration::from_millis(config.connect_ms.max(1));
    let stream = Stream::connect(to, at_most).map_err(|error| failed(&error))?;
    let patience = Duration::from_millis(config.answer_ms.max(1));
    stream.set_timeouts(Some(GLANCE), Some(patience)).map_err(|error| failed(&error))?;
    write_counted(&stream, &greeting).1.map_err(|error| failed(&error))?;
    let deadline = config.clock.now().after(at_most);
    let mut decoder = Decoder::new(assent_wire::PAYLOAD_BYTES_MAX);
    loop {
        match (&stream).read(decoder.space()) {
            Ok(0) => return Err(unavailable(to, "closed the connection during the handshake")),
            Ok(read) => decoder.filled(read),
            Err(error) if is_glance(&error) => {
                if config.clock.now() >= deadline {
                    let ms = config.connect_ms;
                    return Err(unavailable(to, &format!("did not answer the handshake within {ms} ms")));
                }
            }
            Err(error) => return Err(failed(&error)),
        }
        let Some(frame) = decoder.frame().map_err(|error| unavailable(to, &error.to_string()))? else { continue };
        return match Answer::parse(&frame) {
            Ok(Answer::Welcome(welcome)) => Ok((stream, welcome)),
            Ok(Answer::Error { kind, message }) => Err(LinkError::Refused { kind, message: message.to_owned() }),
            _ => Err(unavailable(to, "does not speak the Assent protocol")),
        };
    }
}

pub(crate) fn is_glance(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
