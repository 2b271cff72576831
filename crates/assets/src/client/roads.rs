//! Which server has the connection, and when it is left for the next one.
//!
//! Walk: [`Client::reconnect`] goes round, or where a server said that the lead is · [`Client::lose`] where the connection is lost or silent ·
//! [`Client::go_elsewhere`] where the server does not lead · [`Client::was_served`] an answer came.

use std::time::Duration;

use assent_kind::Kind;
use assent_world::net::Address;

use super::{CONNECT_AT_MOST, Client, RETRY_PAUSE, nobody};
use crate::line::{ClientError, Line, lost};
use crate::message;
use crate::options::Event;

/// A silence is doubled so often at most.
const DOUBLED_MAX: u32 = 16;

impl Client {
    /// An answer came.
    pub(super) fn was_served(&mut self) {
        let now = self.clock.now();
        if let Some(again) = self.again.take() {
            let name = |at: Option<usize>| {
                at.and_then(|at| self.options.servers.get(at)).map(ToString::to_string).unwrap_or_default()
            };
            let (to, from) = (name(Some(self.at)), name(self.served_by));
            let event = match self.served_by {
                None => None,
                Some(before) if before == self.at => Some(Event::Reconnected { server: to, again }),
                Some(_) => Some(Event::FailedOver { from, to, again, gap: now.since(self.served_at) }),
            };
            event.into_iter().for_each(|event| self.tell(event));
        }
        (self.served_at, self.served_by) = (now, Some(self.at));
        // Who is slow once is slow for a while.
        (self.tries, self.silences, self.why) = (0, self.silences.saturating_sub(1), None);
    }

    /// The connection is lost. What may be sent again will be; the rest is in doubt when its turn comes.
    pub(super) fn lose(&mut self, why: ClientError) {
        for sent in self.sent.iter_mut().take(self.written) {
            sent.is_lost |= !sent.may_repeat;
            sent.may_be_kept = true;
        }
        self.leave(why);
    }

    fn leave(&mut self, why: ClientError) {
        (self.line, self.why) = (None, Some(why));
        (self.written, self.flying) = (0, 0);
    }

    /// The server does not lead, and has done nothing of what has no answer.
    pub(super) fn go_elsewhere(&mut self, payload: &[u8]) {
        let (primary, why) = message::read_elsewhere(payload).unwrap_or_default();
        let primary = primary.parse::<Address>().ok();
        // Only to servers that it was told of: an address of the inside of a network is of no use here.
        self.hint = primary.and_then(|primary| self.options.servers.iter().position(|server| *server == primary));
        self.leave(ClientError::new(Kind::Unavailable, why));
    }

    /// Connects to the next server that lets it; what has no answer goes out there.
    pub(super) fn reconnect(&mut self) -> Result<(), ClientError> {
        let count = self.options.servers.len();
        loop {
            let until = self.since.after(self.options.patience);
            if self.clock.now() >= until
                && let Some(why) = self.why.take()
            {
                return Err(unreached(why, self.sent.iter().any(|sent| sent.may_be_kept)));
            }
            if self.tries > 0 && self.tries.is_multiple_of(count) {
                self.clock.sleep(RETRY_PAUSE);
            }
            self.at = self.hint.take().unwrap_or((self.at + 1) % count);
            self.tries += 1;
            let Some(server) = self.options.servers.get(self.at) else { return Err(nobody()) };
            let left = until.since(self.clock.now()).max(Duration::from_millis(1));
            let connecting = if count > 1 { left.min(CONNECT_AT_MOST) } else { left };
            let silence = if count > 1 { self.silence() } else { self.options.patience };
            match Line::open(server, connecting, silence.max(Duration::from_millis(1))) {
                Ok(line) => {
                    self.line = Some(line);
                    self.again = Some(self.sent.iter().filter(|sent| !sent.is_lost).count());
                    return Ok(());
                }
                Err(error) => self.why = Some(lost(&format!("connecting to {server}"), &error)),
            }
        }
    }

    /// How long a server may leave a command without an answer. Who was left stands at the end of the queue when he comes back: servers
    /// that are slower than that are given twice the time, and then twice that.
    fn silence(&self) -> Duration {
        let silence = self.options.silence.saturating_mul(1 << self.silences.min(DOUBLED_MAX));
        silence.min(self.options.patience.max(self.options.silence))
    }
}

/// Nobody was reached any more. What a server may have is not refused by who lets nobody in behind it.
fn unreached(why: ClientError, may_be_kept: bool) -> ClientError {
    if may_be_kept { ClientError::new(Kind::Unavailable, why.message) } else { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A one-phase commit that was done, and whose server let nobody in any more, was told as rolled back.
    #[test]
    fn what_a_server_may_have_is_not_refused_by_who_lets_nobody_in() {
        for kind in [Kind::Denied, Kind::Unavailable, Kind::Internal] {
            let told = |may_be_kept| unreached(ClientError::new(kind, "connecting: why".to_owned()), may_be_kept);
            assert_eq!(told(true), ClientError::new(Kind::Unavailable, "connecting: why".to_owned()));
            assert_eq!(told(false).kind, kind);
        }
    }
}
