//! What an assets server says of itself to machines: numbers for Prometheus, and in a sentence how it stands.
//!
//! Walk: [`Numbers::start`] names what is told · its thread asks the server's own door, as anybody does, once a second ([`Seen`]) · a
//! scrape tells one answer, the last when it began. What is not known, as how far standbys are where none is led, is not told.
//! Deliberately absent: counting. The door and the member under it count; a question costs them what a `status` costs.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_assets::{Client, GroupStatus, Options, Role, StandbyStatus, Status, StepTimes};
use assent_door::{Check, Drain, Health, Metrics, Spread};
use assent_world::net::Address;
use assent_world::{Clock as _, RealClock};

use crate::failure::Failure;

/// Between two questions.
const PAUSE: Duration = Duration::from_secs(1);
/// Without an answer for so long, nothing is told.
const PATIENCE: Duration = Duration::from_secs(1);
const SOLO: &str = "solo";
const ROLES: [&str; 6] = [SOLO, "primary", "stalled", "standby", "waiting", "stopped"];

/// Asks a server how it is, until it is stopped or dropped.
pub(crate) struct Numbers {
    drain: Arc<Drain>,
    thread: Option<JoinHandle<()>>,
}

/// What was answered last, and of that what the scrape under way tells: numbers of two answers side by side were never true together.
/// Nothing where there was no answer.
#[derive(Default)]
struct Seen {
    last: Mutex<Option<Arc<Status>>>,
    told: Mutex<Option<Arc<Status>>>,
}

impl Numbers {
    /// Names the numbers of the server that listens there, and of its group's other nodes.
    pub(crate) fn start(at: &Address, others: &[u8], metrics: &Metrics, health: &Health) -> Result<Self, Failure> {
        let (seen, drain) = (Arc::new(Seen::default()), Arc::new(Drain::default()));
        own(metrics, &seen);
        steps(metrics, &seen);
        group(metrics, &seen, others);
        let look = Arc::clone(&seen);
        health.watch("assets", move || {
            look.last().as_deref().map_or_else(|| Check::failed("its door does not answer"), check)
        });
        let (at, until) = (at.clone(), Arc::clone(&drain));
        let work = move || ask(&at, &seen, &until);
        let thread = std::thread::Builder::new().name("assets-numbers".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Failure::io("start", "a thread", &error))?;
        Ok(Self { drain, thread: Some(thread) })
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.drain.begin(RealClock.now(), Duration::ZERO);
        if let Some(thread) = self.thread.take() {
            // It prints what it dies of; there is nothing left to do about it.
            _ = thread.join();
        }
    }
}

fn ask(at: &Address, seen: &Seen, drain: &Drain) {
    let options = || Options { patience: PATIENCE, session: false, ..Options::to(at.clone()) };
    let mut client = None;
    loop {
        let asked = match client.take() {
            Some(client) => Ok(client),
            None => Client::connect(options(), Arc::new(RealClock)),
        };
        let answer = asked.and_then(|mut asked| {
            let status = asked.status()?;
            client = Some(asked);
            Ok(status)
        });
        seen.answered(answer.ok());
        if !drain.sleep(PAUSE) {
            return;
        }
    }
}

impl Seen {
    fn answered(&self, status: Option<Status>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = status.map(Arc::new);
    }

    fn last(&self) -> Option<Arc<Status>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From here to the next time, [`Seen::look`] is at what was answered last until now.
    fn keep(&self) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = self.last();
    }

    fn look<T>(&self, of: impl Fn(&Status) -> Option<T>) -> Option<T> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).as_deref().and_then(of)
    }
}

/// How it stands, for whoever sends it traffic or wakes somebody.
fn check(status: &Status) -> Check {
    let Some(group) = &status.group else {
        return match &status.closed {
            Some(why) => Check::failed(format!("closed: {why}")),
            None => Check::ok("takes commands"),
        };
    };
    let (node, why) = (group.node, group.why.as_deref().unwrap_or("nobody says why"));
    match group.role {
        Role::Stopped | Role::Stalled | Role::Waiting => {
            Check::failed(format!("node {node} is {}: {why}", group.role.name()))
        }
        Role::Standby => Check::ok(format!("node {node} is a standby")),
        Role::Primary if group.forced => {
            Check::degraded(format!("node {node} leads by a person's force: what that lost is to be settled"))
        }
        Role::Primary if group.in_sync.len() <= group.standbys.len() => {
            let (in_sync, all) = (group.in_sync.len(), group.standbys.len() + 1);
            Check::degraded(format!("node {node} leads, and {in_sync} of {all} nodes are in sync"))
        }
        Role::Primary => Check::ok(format!("node {node} leads, and all nodes are in sync")),
    }
}

fn gauge(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn many(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What every server has.
fn own(metrics: &Metrics, seen: &Arc<Seen>) {
    let keep = Arc::clone(seen);
    metrics.before_each_scrape(move || keep.keep());
    let look = Arc::clone(seen);
    let is_up = move || i64::from(look.look(|_| Some(())).is_some());
    metrics.sample_gauge("assets_up", None, "Whether the door of the assets answers", is_up);
    let ask = |name, help, of: fn(&Status) -> i64| {
        let look = Arc::clone(seen);
        metrics.sample_gauge_if(name, None, help, move || look.look(|status| Some(of(status))));
    };
    ask("assets", "Assets that there are", |status| many(status.stats.assets));
    ask("assets_memory_bytes", "Bytes that the assets take", |status| many(status.stats.memory_bytes));
    ask("assets_sessions", "Sessions that are remembered", |status| many(status.stats.sessions));
    ask("assets_session_bytes", "Bytes of their answers", |status| many(status.stats.session_bytes));
    ask("assets_in_doubt", "Branches that are prepared and hold their assets", |status| many(status.stats.in_doubt));
    ask("assets_subscriptions", "Subscriptions", |status| many(status.stats.subscriptions));
    ask("assets_unsynced_bytes", "Bytes of a lone server's log that are not known to be on the disk", |status| {
        gauge(status.stats.unsynced_bytes)
    });
    ask("assets_replay_bytes", "Bytes of log that a restart replays", |status| gauge(status.stats.replay_bytes));
    ask("assets_window_ms", "After so many milliseconds what was answered is on the disk", |status| {
        gauge(status.window_ms)
    });
    ask("assets_closed", "Whether it takes nothing any more", |status| i64::from(status.closed.is_some()));
    let look = Arc::clone(seen);
    metrics.sample_counter_if(
        "assets_commands",
        None,
        "Commands executed: of a node of a group since it began",
        move || look.look(|status| Some(status.commands())),
    );
    for role in ROLES {
        let look = Arc::clone(seen);
        metrics.sample_gauge_if("assets_role", Some(("role", role)), "1 for what the server is now", move || {
            let is = |status: &Status| status.group.as_ref().map_or(SOLO, |group| group.role.name());
            look.look(|status| Some(i64::from(is(status) == role)))
        });
    }
}

/// Where the time of sampled commands goes.
fn steps(metrics: &Metrics, seen: &Arc<Seen>) {
    let spread = |step: &StepTimes| {
        let bounds = StepTimes::bounds_us().map(f64::from).chain([f64::INFINITY]);
        // Sixty seconds of a billion commands are exact in it.
        #[expect(clippy::cast_precision_loss, reason = "a sum of microseconds, for a chart")]
        let sum = step.sum_us as f64;
        Spread { sum, buckets: bounds.zip(step.spread.iter().copied()).collect() }
    };
    for name in assent_assets::Step::ALL.map(assent_assets::Step::name).into_iter().chain(["total"]) {
        let (look, help) = (Arc::clone(seen), "Microseconds of sampled commands since the step before");
        metrics.sample_spread("assets_step_us", Some(("step", name)), help, move || {
            look.look(|status| status.steps.iter().find(|step| step.name == name).map(spread))
        });
    }
}

/// What a number is of.
type Of = fn(&GroupStatus) -> i64;

/// What only a node of a group has.
fn group(metrics: &Metrics, seen: &Arc<Seen>, others: &[u8]) {
    let ask = |name, label, help, of: Of| {
        let look = Arc::clone(seen);
        metrics.sample_gauge_if(name, label, help, move || look.look(|status| status.group.as_ref().map(of)));
    };
    ask("assets_epoch", None, "Counts the primaries", |group| i64::from(group.epoch.0));
    ask("assets_version", None, "Counts the changes of who leads and who is in sync", |group| gauge(group.version));
    ask("assets_in_sync", None, "Nodes that hold everything that was answered", |group| many(group.in_sync.len()));
    ask("assets_forced", None, "Whether a person's force made the primary, and is not settled", |group| {
        i64::from(group.forced)
    });
    let places: [(&str, Of); 5] = [
        ("end", |group| gauge(group.end.0)),
        ("confirmed", |group| gauge(group.confirmed.0)),
        ("applied", |group| gauge(group.applied.0)),
        ("durable", |group| gauge(group.durable.0)),
        ("snapshot", |group| gauge(group.snapshot.0)),
    ];
    for (place, of) in places {
        ask("assets_place", Some(("place", place)), "How far this node's log is, in entries", of);
    }
    for node in others {
        let (name, node) = (node.to_string(), *node);
        let label = Some(("node", name.as_str()));
        let standby = |metric, help, of: fn(&GroupStatus, &StandbyStatus) -> i64| {
            let look = Arc::clone(seen);
            metrics.sample_gauge_if(metric, label, help, move || {
                look.look(|status| {
                    let group = status.group.as_ref()?;
                    group.standbys.iter().find(|one| one.node.0 == node).map(|one| of(group, one))
                })
            });
        };
        standby("assets_lag", "Entries that another node has not received, as the primary sees it", |group, one| {
            let [received, ..] = one.held;
            gauge(group.end.0.saturating_sub(received.0))
        });
        standby("assets_connected", "Whether the primary has a connection to another node", |_, one| {
            i64::from(one.is_connected)
        });
    }
    for event in GroupStatus::counted() {
        let look = Arc::clone(seen);
        metrics.sample_counter_if("assets_events", Some(("event", event)), "What this node has counted", move || {
            look.look(|status| {
                let counts = &status.group.as_ref()?.counts;
                counts.iter().find(|(name, _)| name == event).map(|(_, count)| *count)
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use assent_door::State;

    use super::*;
    use crate::assets::show::tests::{led, solo};

    #[test]
    fn what_is_not_known_is_not_told_and_the_rest_is_told_by_its_name() {
        let (metrics, seen) = (Metrics::default(), Arc::new(Seen::default()));
        own(&metrics, &seen);
        steps(&metrics, &seen);
        group(&metrics, &seen, &[1]);
        assert_eq!(
            metrics.text().lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
            ["assent_assets_up 0"]
        );
        let has = |lines: &[&str]| {
            let text = metrics.text();
            for line in lines {
                assert!(text.lines().any(|one| one == *line), "{line} in {text}");
            }
            text
        };
        seen.answered(Some(solo()));
        let text = has(&[
            "assent_assets_up 1",
            "assent_assets 3",
            "assent_assets_commands_total 9",
            "assent_assets_role{role=\"solo\"} 1",
            "assent_assets_role{role=\"primary\"} 0",
            "assent_assets_in_doubt 2",
            "assent_assets_step_us_count{step=\"confirmed\"} 3",
            "assent_assets_step_us_sum{step=\"confirmed\"} 1034.0",
            "assent_assets_step_us_bucket{le=\"4.0\",step=\"confirmed\"} 2",
            "assent_assets_step_us_bucket{le=\"+Inf\",step=\"confirmed\"} 3",
        ]);
        assert!(!text.contains("assets_epoch") && !text.contains("assets_lag"), "{text}");
        seen.answered(Some(led(Role::Primary)));
        has(&[
            "assent_assets_role{role=\"solo\"} 0",
            "assent_assets_role{role=\"primary\"} 1",
            "assent_assets_epoch 4",
            "assent_assets_in_sync 2",
            "assent_assets_forced 0",
            "assent_assets_place{place=\"confirmed\"} 9",
            "assent_assets_lag{node=\"1\"} 1",
            "assent_assets_connected{node=\"1\"} 1",
            "assent_assets_events_total{event=\"leads\"} 1",
        ]);
    }

    #[test]
    fn a_scrape_tells_one_answer_though_another_comes_meanwhile() {
        let (metrics, seen) = (Metrics::default(), Arc::new(Seen::default()));
        own(&metrics, &seen);
        group(&metrics, &seen, &[1]);
        seen.answered(Some(solo()));
        // Sorted by name, it stands behind the first of the numbers and before the last.
        let comes = Arc::clone(&seen);
        metrics.sample_gauge("assets_m", None, "Another answer comes", move || {
            comes.answered(Some(led(Role::Primary)));
            0
        });
        let text = metrics.text();
        assert!(text.contains("assets_role{role=\"solo\"} 1") && !text.contains("assets_version"), "{text}");
        let text = metrics.text();
        assert!(text.contains("assets_role{role=\"primary\"} 1") && text.contains("assets_version"), "{text}");
    }

    #[test]
    fn each_state_is_said_as_what_it_is() {
        let state = |status: &Status| (check(status).state, check(status).sentence);
        assert_eq!(state(&solo()), (State::Ok, "takes commands".to_owned()));
        let closed = Status { closed: Some("the disk".to_owned()), ..solo() };
        assert_eq!(state(&closed), (State::Failed, "closed: the disk".to_owned()));
        let with = |role, change: fn(&mut GroupStatus)| {
            let mut status = led(role);
            status.group.iter_mut().for_each(change);
            state(&status)
        };
        assert_eq!(with(Role::Primary, |_| {}).0, State::Ok);
        assert_eq!(with(Role::Standby, |_| {}).0, State::Ok);
        assert_eq!(with(Role::Primary, |group| group.forced = true).0, State::Degraded);
        let alone = with(Role::Primary, |group| group.in_sync.truncate(1));
        assert_eq!(alone, (State::Degraded, "node 2 leads, and 1 of 2 nodes are in sync".to_owned()));
        for role in [Role::Stalled, Role::Waiting, Role::Stopped] {
            let said = with(role, |group| group.why = Some("because".to_owned()));
            assert_eq!(said, (State::Failed, format!("node 2 is {}: because", role.name())));
        }
    }
}
