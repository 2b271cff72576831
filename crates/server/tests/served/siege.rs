//! A whole town under attack: a coordinator and two stores, and a healthy client whose commits never cease.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use assent_door::Limits;
use assent_frame::{Head, lay};
use assent_wire::{PAYLOAD_BYTES_MAX, Role};
use assent_world::{Clock, Dice, Moment, RealClock, RealDice};

use crate::hostile::{hello, raw};
use crate::house::{House, Rules, Street, eventually, get, put, street};

/// Connections at a time, where nobody asks for more: `make hostile` does.
const CONNECTIONS: usize = 1_000;
/// Commits that show that the healthy client is served.
const ENOUGH: u64 = 10;
/// Descriptors beside the attackers' and their servers'.
const SPARE: usize = 300;

/// A town and how many transactions its healthy client has committed.
struct Siege {
    street: Street,
    commits: Arc<AtomicU64>,
}

impl Siege {
    fn houses(&self) -> [&House; 3] {
        [&self.street.coordinator, &self.street.a, &self.street.b]
    }

    /// The healthy client commits on.
    fn goes_on(&self, meanwhile: &str) {
        let before = self.commits.load(Ordering::Relaxed);
        eventually(&format!("commits go on ({meanwhile})"), || self.commits.load(Ordering::Relaxed) >= before + ENOUGH);
    }
}

/// Attacks a town; every promise is looked at in the end.
fn besieged(rules: &Rules, attack: impl FnOnce(&Siege)) {
    let street = street(rules);
    let (client, mut remotes) = (street.client(), street.remotes());
    let siege = Siege { street, commits: Arc::default() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut tx = client.begin().unwrap();
                let number = siege.commits.load(Ordering::Relaxed).to_be_bytes();
                let [a, b] = &mut remotes;
                let enlisted = [tx.enlist(a), tx.enlist(b)];
                for store in &enlisted {
                    store.work().unwrap().put(0, b"healthy", &number).unwrap();
                }
                drop(enlisted);
                tx.commit().unwrap();
                siege.commits.fetch_add(1, Ordering::Relaxed);
            }
        });
        siege.goes_on("before the attack");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            attack(&siege);
            siege.goes_on("after the attack");
        }));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let last = siege.commits.load(Ordering::Relaxed) - 1;
    for house in [&siege.street.a, &siege.street.b] {
        assert_eq!(get(&house.store_link(), b"healthy"), Some(last.to_be_bytes().to_vec()), "its last commit is there");
    }
    eventually("nothing is left prepared", || siege.street.prepared() == 0);
    for house in siege.houses() {
        assert_eq!(house.health.report().checks["server"].state, assent_door::State::Ok);
    }
}

fn random(bytes: u64) -> Vec<u8> {
    (0..bytes / 8 + 1).flat_map(|_| RealDice.roll().to_le_bytes()).collect()
}

/// What an attacker sends first, by its number.
fn opening(number: usize, role: Role<'_>) -> Vec<u8> {
    let mut bytes = hello(role);
    match number % 8 {
        // Nothing at all, half a handshake, a whole one and then silence.
        0 => bytes.clear(),
        1 => bytes.truncate(bytes.len() / 2),
        2 => {}
        // Random bytes, before and after the handshake.
        3 => bytes = random(200),
        4 => bytes.extend(random(200)),
        // A length that no machine holds.
        5 => bytes.extend(u32::MAX.to_le_bytes().into_iter().chain([0; 28])),
        // A frame that never ends.
        6 => {
            let mut frame = Vec::new();
            put(None, b"never", &[1; 500]).lay(&mut frame, 2, PAYLOAD_BYTES_MAX).unwrap();
            bytes.extend_from_slice(&frame[..frame.len() - 1]);
        }
        // A sound frame of any kind with any payload.
        _ => {
            let kind = u16::from_le_bytes(RealDice.roll().to_le_bytes()[..2].try_into().unwrap()) % 0x60;
            lay(&mut bytes, Head { mark: 7, kind, ..Head::default() }, &[&random(64)]);
        }
    }
    bytes
}

/// Raises this process's limit of descriptors as far as it may; how many there are then.
fn descriptors() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap())
}

/// How many attackers there are.
#[allow(clippy::print_stderr, reason = "what is not tested is said aloud")]
fn connections() -> usize {
    let asked = std::env::var("ASSENT_HOSTILE_CONNECTIONS").ok();
    let many = asked.map_or(CONNECTIONS, |text| text.parse().expect("ASSENT_HOSTILE_CONNECTIONS is a number"));
    let most = descriptors().saturating_sub(SPARE);
    if most < many {
        eprintln!("ONLY {most} of {many} connections: that many descriptors are allowed (ulimit -Hn)");
    }
    many.min(most)
}

/// Which servers the attackers attack: their addresses, and how many attackers there are.
const ATTACK: &str = "ASSENT_TEST_ATTACK";

/// The process of the attackers, so that servers and attackers do not share their descriptors: this very test, told whom.
/// It says a number when that many have begun, waits for a line after each, and leaves when there is none.
#[test]
#[allow(clippy::print_stdout, reason = "it talks to the test that started it")]
fn attackers() {
    let Ok(attack) = std::env::var(ATTACK) else { return };
    let mut words = attack.split(' ');
    let many: usize = words.next().unwrap().parse().unwrap();
    let addresses: Vec<&str> = words.collect();
    assert!(descriptors() > many, "too few descriptors");
    let mut attackers: Vec<TcpStream> = Vec::with_capacity(many);
    let mut lines = std::io::stdin().lines();
    for (number, address) in (0..many).zip(addresses.into_iter().cycle()) {
        let mut stream = TcpStream::connect(address).unwrap();
        let roles = [Role::Store { label: "x" }, Role::Admin];
        // It may be closed before all is written.
        _ = stream.write_all(&opening(number, roles[number / 8 % 2].clone()));
        attackers.push(stream);
        if (number + 1) % (many / 4) == 0 {
            println!("attackers {}", number + 1);
            lines.next().unwrap().unwrap();
        }
    }
    // Half of them leave by a reset, the others quietly.
    for stream in attackers.iter().step_by(2) {
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn a_thousand_hostile_connections_at_once_do_not_stop_a_healthy_client() {
    let many = connections();
    let limits =
        Limits { connections_max: u32::try_from(many + 100).unwrap(), partial_frame_ms: 2_000, ..Limits::default() };
    besieged(&Rules::limited(limits), |siege| {
        let addresses = siege.houses().map(|house| house.address().to_string()).join(" ");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "siege::attackers", "--nocapture"])
            .env(ATTACK, format!("{many} {addresses}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut go_on = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut begun = 0;
        for line in lines.filter(|line| line.contains("attackers ")) {
            siege.goes_on(&line);
            begun += 1;
            _ = writeln!(go_on);
        }
        assert!(child.wait().unwrap().success() && begun >= 4, "the attackers gave up after {begun} quarters");
        // The healthy client, its stores' connections, the agent's, and whoever asks.
        eventually("all attackers are gone", || {
            siege.houses().iter().all(|house| house.stat("server.connections") < 10)
        });
    });
}

#[test]
fn a_client_that_sends_sound_frames_of_every_kind_with_nonsense_in_them_harms_only_itself() {
    let limits = Limits { partial_frame_ms: 1_000, ..Limits::default() };
    besieged(&Rules::limited(limits), |siege| {
        for kind in 0..0x60 {
            for length in [0, 8, 24, 100] {
                let mut stream = raw(&siege.street.coordinator);
                let mut bytes = hello(Role::Client { label: "wild", resume: None, resources: vec!["a"] });
                for mark in 2..6 {
                    lay(&mut bytes, Head { mark, kind, ..Head::default() }, &[&random(length)]);
                }
                _ = stream.write_all(&bytes);
                _ = stream.shutdown(std::net::Shutdown::Write);
                // Until it closes: nothing is left open for nonsense.
                _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
}

/// A clock whose wall time somebody sets.
#[derive(Debug, Default)]
struct Stepped {
    by_ms: AtomicI64,
}

impl Clock for Stepped {
    fn now(&self) -> Moment {
        RealClock.now()
    }

    fn wall_ms(&self) -> u64 {
        RealClock.wall_ms().saturating_add_signed(self.by_ms.load(Ordering::Relaxed))
    }

    fn sleep(&self, pause: Duration) {
        RealClock.sleep(pause);
    }

    fn boot_id(&self) -> u128 {
        RealClock.boot_id()
    }
}

const DAY_MS: i64 = 86_400_000;

#[test]
fn a_wall_clock_that_steps_by_a_day_forth_or_back_fences_nobody_who_comes_back_in_time() {
    let clock = Arc::new(Stepped::default());
    let rules = Rules { client_lost_ms: 60_000, clock: Arc::clone(&clock) as _, ..Rules::default() };
    besieged(&rules, |siege| {
        let coordinator = &siege.street.coordinator;
        let mut link = coordinator.client_link(None);
        let session = link.welcome().session.unwrap();
        for step in [DAY_MS, -DAY_MS, 0, 365 * DAY_MS, -365 * DAY_MS] {
            link.close("a cable was pulled");
            clock.by_ms.store(step, Ordering::Relaxed);
            // Longer than several ticks, each of which could have fenced somebody.
            RealClock.sleep(Duration::from_millis(300));
            siege.goes_on(&format!("the clock stepped by {step} ms"));
            link = coordinator.client_link(Some(session));
            assert_eq!(link.welcome().session, Some(session), "it was fenced when the clock stepped by {step} ms");
        }
        assert_eq!(coordinator.stat("coordinator.fenced"), 0, "nobody was fenced");
    });
}

#[test]
fn a_wall_clock_that_steps_back_by_a_day_keeps_no_lost_client_s_branches_prepared() {
    let clock = Arc::new(Stepped::default());
    let rules = Rules { client_lost_ms: 600, clock: Arc::clone(&clock) as _, ..Rules::default() };
    let street = street(&rules);
    for step in [-DAY_MS, DAY_MS] {
        let mut committer = street.committer();
        let tx = committer.begin();
        committer.work(tx, b"lost", b"never");
        committer.all(tx, assent_wire::Request::Prepare);
        assert_eq!(street.prepared(), 2);
        drop(committer);
        // The time it may be lost for begins before the step and ends after it.
        eventually("the loss is noticed", || street.coordinator.stat("server.connections") == 1);
        clock.by_ms.store(step, Ordering::Relaxed);
        eventually("recovery rolls back", || street.prepared() == 0);
    }
}
