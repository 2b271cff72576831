//! How far a server's log went, asked for by one of its connections for all that this process has to it.
//!
//! To be asked costs a server more than a branch does, and the more the more connections it has. So a connection whose place has
//! grown old takes over what another one was told, and of all of them one asks early, behind a vote of its own, before anybody's is too old.
//! Walk: [`Place::new`] when a connection is opened · [`Place::is_due`] before a vote, who then asks · [`Place::told`] what it was
//! told · [`Place::catch_up`] what another one was.
//! One server is what has the same address, the same data and the same start: its place is nothing of a connection's own.
//! A place is as old as its question: what is written down is the moment before that was sent.
//! Trap: behind one name (a load balancer) two servers with the same configuration that were started in the same second pass for one.
//! Deliberately absent: the question, and what a place is for (`witness.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use assent_world::Moment;

use super::witness::Seen;

/// Address (with its socket, where it names one), data, and the seconds in which it may have started.
type Server = (String, String, (u64, u64));

/// Those that this process has connections to.
static SERVERS: Mutex<BTreeMap<Server, Weak<Mutex<Latest>>>> = Mutex::new(BTreeMap::new());

/// What one of a server's connections was told last.
#[derive(Debug)]
struct Latest {
    lsn: Option<u64>,
    asked: Moment,
    /// Which connection asks for the next one with its vote, and since when.
    claim: Option<(u64, Moment)>,
}

/// The same as one of them knows it.
#[derive(Debug)]
pub(super) struct Place {
    connection: u64,
    asked: Moment,
    /// Nothing where the connection was opened by somebody else, who knows where it leads.
    latest: Option<Arc<Mutex<Latest>>>,
}

impl Place {
    /// Of a connection that began to look at `now`; `at` is the address that it was opened by.
    pub(super) fn new(seen: &Seen, at: Option<&str>, now: Moment) -> Self {
        // Of a server whose start is not known nobody can tell whether it is the same run.
        let known = at.filter(|_| seen.has_known_start());
        let latest = known.map(|at| latest_of((at.to_owned(), seen.server.clone(), seen.started_s), seen.lsn, now));
        Self { connection: seen.connection, asked: now, latest }
    }

    /// Whether the next vote asks: what is known by then is `longest` old, or half as old and nobody else asks.
    /// Who is told so is who asks: for half of `longest` the others leave it to him, also where he then does not vote.
    pub(super) fn is_due(&self, now: Moment, longest: Duration) -> bool {
        let Some(mut latest) = self.latest() else { return now.since(self.asked) >= longest };
        let early = longest / 2;
        let age = now.since(self.asked.max(latest.asked));
        if age < early {
            return false;
        }
        let is_claimed =
            latest.claim.is_some_and(|(who, since)| who != self.connection && now.since(since) < longest - early);
        let asks = age >= longest || !is_claimed;
        if asks {
            latest.claim = Some((self.connection, now));
        }
        asks
    }

    /// The server has answered what it was asked behind `now`. Who was asked later may have been answered first.
    pub(super) fn told(&mut self, seen: &Seen, now: Moment) {
        self.asked = now;
        if let Some(mut latest) = self.latest() {
            if now > latest.asked {
                *latest = Latest { lsn: seen.lsn, asked: now, claim: None };
            } else {
                latest.claim = latest.claim.filter(|(who, _)| *who != self.connection);
            }
        }
    }

    /// Takes over what another connection was told, where what this one knows has grown old.
    pub(super) fn catch_up(&mut self, seen: &mut Seen, now: Moment, longest: Duration) {
        if now.since(self.asked) < longest / 2 {
            return;
        }
        let Some((lsn, asked)) = self.latest().map(|latest| (latest.lsn, latest.asked)) else { return };
        if asked > self.asked {
            seen.voted_at(lsn);
            self.asked = asked;
        }
    }

    fn latest(&self) -> Option<MutexGuard<'_, Latest>> {
        Some(self.latest.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is known of that server, with what one more connection has seen.
fn latest_of(server: Server, lsn: Option<u64>, now: Moment) -> Arc<Mutex<Latest>> {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.retain(|_, latest| latest.strong_count() > 0);
    if let Some(latest) = servers.get(&server).and_then(Weak::upgrade) {
        let mut known = latest.lock().unwrap_or_else(PoisonError::into_inner);
        if now > known.asked {
            (known.lsn, known.asked) = (lsn, now);
        }
        drop(known);
        return latest;
    }
    let latest = Arc::new(Mutex::new(Latest { lsn, asked: now, claim: None }));
    servers.insert(server, Arc::downgrade(&latest));
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_millis(1_000);

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000)
    }

    fn seen(connection: u64, lsn: u64) -> Seen {
        Seen { connection, started_s: (900, 900), lsn: Some(lsn), server: "1 3306 /data/".to_owned() }
    }

    #[test]
    fn one_of_all_connections_asks_before_anybodys_place_is_too_old() {
        let mut places = [1, 2, 3].map(|connection| Place::new(&seen(connection, 7), Some("one:3306"), at(0)));
        let due = |places: &[Place], ms| [0, 1, 2].map(|it: usize| places[it].is_due(at(ms), LONGEST));
        assert_eq!(due(&places, 499), [false; 3]);
        assert_eq!(due(&places, 500), [true, false, false], "the first that votes then");
        assert_eq!(due(&places, 600), [true, false, false], "it is asked again what it does");
        assert_eq!(due(&places, 999), [true, false, false]);
        assert_eq!(due(&places, 1_000), [true; 3], "nobody was told");
        places[2].told(&seen(3, 9), at(1_010));
        assert_eq!(due(&places, 1_011), [false; 3]);
        assert_eq!(due(&places, 1_510), [true, false, false]);
        assert!(places[1].is_due(at(2_009), Duration::from_millis(999)), "too old for who wants a younger one");
    }

    #[test]
    fn an_old_place_is_caught_up_with_and_a_young_one_stays() {
        let (mut first, mut second) = (seen(1, 7), seen(2, 7));
        let mut one = Place::new(&first, Some("caught:3306"), at(0));
        let mut other = Place::new(&second, Some("caught:3306"), at(0));
        first.voted_at(Some(9));
        one.told(&first, at(400));
        other.catch_up(&mut second, at(499), LONGEST);
        assert_eq!(second.lsn, Some(7), "young enough");
        other.catch_up(&mut second, at(500), LONGEST);
        assert_eq!(second.lsn, Some(9));
        assert!(!other.is_due(at(899), LONGEST) && other.is_due(at(900), LONGEST), "as old as the one taken over");
    }

    /// After a pause all ask at once, and who comes last may have been answered first.
    #[test]
    fn a_place_that_was_asked_for_earlier_does_not_replace_a_newer_one() {
        let mut places = [1, 2, 3].map(|connection| Place::new(&seen(connection, 6), Some("late:3306"), at(0)));
        for (place, connection, lsn, ms) in [(0, 1, 9, 10), (1, 2, 7, 5), (1, 2, 8, 10)] {
            places[place].told(&seen(connection, lsn), at(ms));
            let mut known = seen(3, 6);
            // As one that was opened before all of them.
            Place { asked: at(0), connection: 3, latest: places[2].latest.clone() }.catch_up(
                &mut known,
                at(600),
                LONGEST,
            );
            assert_eq!(known.lsn, Some(9), "asked at {ms} ms");
        }
        assert!(places[1].is_due(at(510), LONGEST), "this one asks");
        places[1].told(&seen(2, 8), at(9));
        assert!(places[2].is_due(at(511), LONGEST), "it has been answered, and its claim is over");
    }

    #[test]
    fn another_address_another_start_and_a_connection_of_the_callers_share_nothing() {
        let place = |seen: &Seen, address| Place::new(seen, address, at(0));
        let restarted = |started_s| Seen { started_s, ..seen(2, 1) };
        let other_data = Seen { server: "2 3306 /data/".to_owned(), ..seen(2, 1) };
        let mut one = place(&seen(1, 7), Some("apart:3306"));
        let others = [
            place(&seen(2, 1), Some("apart:3307")),
            place(&restarted((901, 901)), Some("apart:3306")),
            place(&restarted((0, u64::MAX)), Some("apart:3306")),
            place(&other_data, Some("apart:3306")),
            place(&seen(2, 1), None),
        ];
        one.told(&seen(1, 9), at(900));
        for mut other in others {
            let mut known = seen(2, 1);
            other.catch_up(&mut known, at(1_000), LONGEST);
            assert_eq!(known.lsn, Some(1), "{other:?}");
            assert!(other.is_due(at(1_000), LONGEST));
        }
        let mut same = place(&seen(3, 1), Some("apart:3306"));
        let mut known = seen(3, 1);
        same.catch_up(&mut known, at(1_000), LONGEST);
        assert_eq!(known.lsn, Some(9));
    }

    #[test]
    fn who_wants_no_age_at_all_asks_behind_every_vote() {
        let mut place = Place::new(&seen(1, 7), Some("always:3306"), at(0));
        let other = Place::new(&seen(2, 7), Some("always:3306"), at(0));
        for ms in 0..3 {
            assert!(place.is_due(at(ms), Duration::ZERO) && other.is_due(at(ms), Duration::ZERO));
            place.told(&seen(1, 8), at(ms));
        }
    }
}
