//! Strangers at the door: `/token` and `/logout`, which have to read what is sent before they know from whom it comes.
//!
//! They have places of their own, so that who is known keeps his; a few from one address, so that one address does not take all;
//! and a rate by address, so that names without end cost whoever invents them time, not the server passwords to look at.
//!
//! Walk: [`Entry::enter`] a place, or 429 or 503.
//! Deliberately absent: who is behind a proxy. All of its callers have one address here.

use std::net::IpAddr;
use std::time::Duration;

use assent_door::Rates;
use assent_kind::Kind;
use assent_world::Moment;

use crate::places::{Full, Place, Places};
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
    places: Places,
    rates: Rates,
}

impl Default for Entry {
    fn default() -> Self {
        let places = Places::new(ENTRY_MAX, ENTRY_FROM_MAX);
        Self { places, rates: Rates::new(PER_SECOND, Duration::from_secs(1), BURST) }
    }
}

impl Entry {
    pub(crate) fn enter(&self, from: &str, now: Moment) -> Result<Place, Problem> {
        let from = neighbourhood(from);
        let often = |wait| Problem::of(Kind::Busy, "this address asks too often; wait").retry(wait);
        self.rates.take(&from, now).map_err(often)?;
        self.places.take(&from.into()).map_err(|full| {
            let (most, whose) = match full {
                Full::All(most) => (most, ""),
                Full::Own(most) => (most, " from this address"),
            };
            Problem::of(Kind::Unavailable, format!("{most} logins{whose} are under way; ask again"))
        })
    }
}

/// An IPv4 address; of IPv6 the first half, since the second is whatever its owner likes.
pub(crate) fn neighbourhood(from: &str) -> String {
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
        assert!(enter("10.0.0.1").is_ok());
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
