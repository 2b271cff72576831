//! When the demo kills whom: at a named stop point, the frozen process itself or another one while it is frozen.

use std::str::FromStr;

use assent_world::stop::{Order, Stop};

/// One kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    /// Where a process freezes.
    pub(crate) order: Order,
    /// Who is killed then: the frozen process if none is named; else the frozen one goes on afterwards.
    pub(crate) victim: Option<String>,
}

impl Kill {
    fn at(stop: Stop, nth: u64, victim: Option<&str>) -> Self {
        Self { order: Order { stop, nth }, victim: victim.map(str::to_owned) }
    }

    /// The kills of a run of that many transfers by that many clients; with private SQL servers, those too.
    pub(super) fn plan(transfers: u64, clients: u32, stores: usize, sql_servers: &[&str]) -> Vec<Self> {
        let each = transfers / u64::from(clients).max(1);
        let mut kills = vec![
            // Prepared everywhere, decided nowhere: recovery must decide.
            Self::at(Stop::ClientBeforeDecision, each / 4 + 1, None),
            // Decided and durable, nobody told: the client must learn it from the next coordinator.
            Self::at(Stop::CoordinatorAfterDecision, transfers / 3 + 1, None),
            // The vote is durable and its answer lost.
            // A store sees two branches of every transfer, spread over all stores: this is about half way.
            Self::at(Stop::StoreAfterPrepare, transfers / u64::try_from(stores).unwrap_or(2).max(2) + 1, None),
        ];
        for (server, stop) in sql_servers.iter().zip([Stop::ClientBetweenPrepares, Stop::ClientBetweenCommits]) {
            kills.push(Self::at(stop, each / 3 + 1, Some(server)));
        }
        kills
    }
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (order, victim) = match text.split_once('=') {
            Some((order, victim)) if !victim.is_empty() => (order, Some(victim.to_owned())),
            Some(_) => return Err(format!("kill {text:?} names no victim; write STOP[:NTH][=VICTIM]")),
            None => (text, None),
        };
        Ok(Self { order: order.parse()?, victim })
    }
}

/// Which kind of process passes a stop point.
pub(crate) fn who_passes(stop: Stop) -> &'static str {
    match stop.name().split('-').next().unwrap_or_default() {
        // The recovery agent is a thread of its coordinator.
        "agent" => "coordinator",
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_a_place_a_passing_and_maybe_another_victim() {
        assert_eq!("store-after-prepare:7".parse(), Ok(Kill::at(Stop::StoreAfterPrepare, 7, None)));
        let other = Kill::at(Stop::ClientBetweenCommits, 1, Some("postgres"));
        assert_eq!("client-between-commits=postgres".parse(), Ok(other));
        for wrong in ["", "nowhere", "client-between-commits=", "store-after-prepare:0"] {
            assert!(wrong.parse::<Kill>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_stop_point_is_passed_by_a_process_of_the_demo() {
        for stop in Stop::ALL {
            assert!(["client", "coordinator", "store"].contains(&who_passes(*stop)), "{}", stop.name());
        }
    }
}
