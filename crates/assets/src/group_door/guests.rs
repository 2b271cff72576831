//! Who is here: connections that come in, have a place, and leave.
//!
//! Walk: [`GroupDoor::accept`] · [`GroupDoor::place`] and [`GroupDoor::enter`] · [`GroupDoor::leave`], and at the end of the turn what is
//! nobody's any more is forgotten ([`GroupDoor::forget_left`]).

use assent_world::net::{Interest, Listener, Token};

use super::{FIRST, GroupDoor, QUESTIONS_MAX};
use crate::caller::Caller;
use crate::guest::{CLIENTS_MAX, Guest};

impl GroupDoor {
    pub(super) fn accept(&mut self) {
        self.accept_again = false;
        loop {
            let accepted = self.listener.as_ref().map_or(Ok(None), Listener::accept);
            let mut peer = match accepted {
                Ok(Some(peer)) => peer,
                Ok(None) => return,
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            };
            let Some((token, only_asks)) = self.place() else { continue };
            let Some(registry) = &self.registry else { return };
            let both = Interest::READABLE | Interest::WRITABLE;
            if registry.register(&mut peer, Token(token), both).is_ok() {
                self.enter(token, only_asks, Guest::new(peer));
            }
        }
    }

    /// A token for one more connection, and whether its place is kept for questions; none where there is no room.
    pub(crate) fn place(&mut self) -> Option<(usize, bool)> {
        let most = self.config.clients_max.min(CLIENTS_MAX);
        // Who has a place for questions has had his time when there is another one.
        if self.clients.len() >= most
            && let Some(oldest) = self.asking.first().copied()
        {
            self.leave(oldest);
        }
        if self.clients.len() >= most {
            return None;
        }
        let only_asks = self.clients.len() >= most.saturating_sub((most / 8).clamp(1, QUESTIONS_MAX));
        let token = self.next;
        self.next = self.next.wrapping_add(1).max(FIRST);
        Some((token, only_asks))
    }

    /// A client is here.
    pub(crate) fn enter(&mut self, token: usize, only_asks: bool, guest: Guest) {
        self.clients.insert(token, Caller::new(guest, only_asks));
        if only_asks {
            self.asking.insert(token);
        }
        self.again.insert(token);
    }

    pub(super) fn leave(&mut self, token: usize) {
        self.again.remove(&token);
        self.subscribers.remove(&token);
        self.listening.remove(&token);
        self.asking.remove(&token);
        let Some(client) = self.clients.remove(&token) else { return };
        if let Some((id, _)) = client.subscription {
            self.subscriptions.remove(id);
        }
        self.owed_bytes = self.owed_bytes.saturating_sub(client.owed_bytes);
        if client.owed_bytes > 0 {
            self.left.insert(token);
        }
    }

    /// What those who have left ordered has its turn all the same; what they asked, or wait to be told, is nobody's.
    pub(super) fn forget_left(&mut self) {
        let left = std::mem::take(&mut self.left);
        if !left.is_empty() {
            self.reads.retain(|_, asked| !left.contains(&asked.whose.token));
            self.held.retain(|held| !left.contains(&held.whose.token));
        }
    }
}
