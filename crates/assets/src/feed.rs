//! News of a subscription, on a connection of their own.
//!
//! Walk: [`Feed::open`] · [`Feed::next`]. Deliberately absent: opening it again: what was missed meanwhile nobody can tell.

use std::io::ErrorKind;
use std::time::Duration;

use assent_frame::Malformed;
use assent_world::net::Address;

use crate::asset::AssetId;
use crate::line::{ClientError, Line, lost, malformed};
use crate::message::{self, Ask, KIND_NEWS};
use crate::subscribe::News;

/// News of a subscription. A lost connection ends it: subscribe again, and look again.
#[derive(Debug)]
pub struct Feed {
    line: Line,
}

impl Feed {
    /// Subscribes to these assets, or to all; the server keeps up to `most` changes for a slow reader.
    ///
    /// # Errors
    /// `Unavailable`, and what the server refuses.
    pub fn open(server: &Address, wanted: &[AssetId], most: u32, patience: Duration) -> Result<Self, ClientError> {
        let line = Line::open(server, patience, patience);
        let mut line = line.map_err(|error| lost(&format!("connecting to {server}"), &error))?;
        line.ask(&Ask::Subscribe { wanted: wanted.to_vec(), most }, 1)?;
        Ok(Self { line })
    }

    /// The next news; `None` if none came for this long.
    ///
    /// # Errors
    /// `Unavailable` when the connection is lost.
    pub fn next(&mut self, at_most: Duration) -> Result<Option<Vec<News>>, ClientError> {
        self.line.stream.set_read_timeout(Some(at_most)).map_err(|error| lost("waiting for news", &error))?;
        let news = self.line.next(|frame| match frame.kind {
            KIND_NEWS => message::read_news(frame.payload).map_err(malformed),
            _ => Err(malformed(Malformed { field: "kind" })),
        });
        match news {
            Ok(news) => news.map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(lost("waiting for news", &error)),
        }
    }
}
