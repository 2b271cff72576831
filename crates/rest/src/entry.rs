//! Strangers at the door: `/token` and `/logout`, which have to read what is sent before they know from whom it comes.
//!
//! They have places of their own, so that who is known keeps his; a few from one address, so that one address does not take all;
//! and a rate by address, so that names without end cost whoever invents them time, not the server passwords to look at.
//!
//! Walk: [`Entry::enter`] a place, or 429 or 503.
//! Deliberately absent: who is behind a proxy. All of its callers have one address here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_door::Rates;
use assent_kind::Kind;
use assent_world::Moment;

use crate::problem::Problem;

/// Strangers at a time.
pub(crate) const ENTRY_MAX: usize = 128;
/// From one address.
pub(crate) const ENTRY_FROM_MAX: usize = 8;
/// From one address in a second, and at once.
const PER_SECOND: u32 = 20;
const BURST: u32 = 200;

#[derive(Debug)]
pub(crate) struct Entry {
    inside: Arc<Mutex<Inside>>,
    rates: Rates,
}

#[derive(Debug, Default)]
struct Inside {
    all: usize,
    from: BTreeMap<String, usize>,
}

impl Default for Entry {
    fn default() -> Self {
        Self { inside: Arc::default(), rates: Rates::new(PER_SECOND, Duration::from_secs(1), BURST) }
    }
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    inside: Arc<Mutex<Inside>>,
    from: String,
}

impl Entry {
    pub(crate) fn enter(&self, from: &str, now: Moment) -> Result<Stranger, Problem> {
        let from = neighbourhood(from);
        let often = |wait| Problem::of(Kind::Busy, "this address asks too often; wait").retry(wait);
        self.rates.take(&from, now).map_err(often)?;
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |most: usize, where_: &str| {
            Err(Problem::of(Kind::Unavailable, format!("{most} logins{where_} are under way; ask again")))
        };
        if inside.all >= ENTRY_MAX {
            return full(ENTRY_MAX, "");
        }
        let own = inside.from.entry(from.clone()).or_default();
        if *own >= ENTRY_FROM_MAX {
            return full(ENTRY_FROM_MAX, " from this address");
        }
        *own += 1;
        inside.all += 1;
        drop(inside);
        Ok(Stranger { inside: Arc::clone(&self.inside), from })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.all = inside.all.saturating_sub(1);
        let left = inside.from.get_mut(&self.from).map(|own| {
            *own = own.saturating_sub(1);
            *own
        });
        if left == Some(0) {
            inside.from.remove(&self.from);
        }
    }
}

/// An IPv4 address; of IPv6 the first half, since the second is whatever its owner likes.
fn neighbourhood(from: &str) -> String {
    match from.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => from.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_its_places_and_not_those_of_others_and_gives_them_back() {
        let entry = Entry::default();
        let enter = |from: &str| entry.enter(from, Moment(0));
        let mut held: Vec<_> = (0..ENTRY_FROM_MAX).map(|_| enter("10.0.0.1").unwrap()).collect();
        assert!(enter("10.0.0.1").is_err() && enter("::ffff:10.0.0.1").is_err());
        assert!(enter("10.0.0.2").is_ok());
        held.pop();
        held.push(enter("10.0.0.1").unwrap());
        for other in 0.. {
            match enter(&format!("10.1.0.{other}")) {
                Ok(place) => held.push(place),
                Err(_) => break,
            }
        }
        assert_eq!(held.len(), ENTRY_MAX);
        drop(held);
        assert!(entry.inside.lock().unwrap().from.is_empty() && enter("10.0.0.1").is_ok());
    }

    #[test]
    fn who_asks_without_end_waits_and_one_network_of_ipv6_is_one_address() {
        let entry = Entry::default();
        let mut addresses = (0..).map(|it| format!("2001:db8:1:2::{it:x}"));
        let slowed = addresses.by_ref().take(1_000).filter(|from| entry.enter(from, Moment(0)).is_err()).count();
        assert_eq!(slowed, 1_000 - usize::try_from(BURST).unwrap());
        assert!(entry.enter("2001:db8:1:3::1", Moment(0)).is_ok());
        let later = Moment(0).after(Duration::from_secs(1));
        assert!(entry.enter(&addresses.next().unwrap(), later).is_ok());
    }
}
