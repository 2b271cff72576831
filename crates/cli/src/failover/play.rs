//! One play: clients at work, a blow, its end, and what became of every command.
//!
//! Walk: [`Scene::begin`] waits until all is whole, looks at the assets, starts clients · [`play`] strikes · holds until commands that were begun behind
//! the blow are answered, where they should be · ends the blow, waits for answers again · [`Scene::end`] takes histories, looks, judges.

use std::time::Duration;

use assent_sim::Rng;
use assent_world::{Clock as _, RealClock};

use super::fault::{Fault, Role, Way};
use super::house::{ARBITER, House, LONG, member};
use super::judge::judge;
use super::load::{Flood, History, Load, Orders, Told, look};
use super::net::{End, Weather};
use super::report::Played;
use crate::demo::now;
use crate::failure::Failure;

const PAUSE: Duration = Duration::from_millis(5);
/// More than two segments of a log.
const FLOOD_BYTES: usize = 40 << 20;
const CUT: Weather = Weather { is_cut: true, delay: Duration::ZERO, lost_of_100: 0 };
const SLOW: Weather = Weather { is_cut: false, delay: Duration::from_millis(5), lost_of_100: 0 };
const LOSSY: Weather = Weather { is_cut: false, delay: Duration::ZERO, lost_of_100: 10 };

/// Who is who when the blow falls.
#[derive(Clone, Copy, Debug)]
struct Cast {
    primary: u8,
    standby: u8,
}

impl Cast {
    const fn node(&self, role: Role) -> Option<u8> {
        match role {
            Role::Primary => Some(self.primary),
            Role::Standby => Some(self.standby),
            Role::Arbiter | Role::Clients => None,
        }
    }

    const fn end(&self, role: Role) -> End {
        match role {
            Role::Primary => End::Node(self.primary),
            Role::Standby => End::Node(self.standby),
            Role::Arbiter => End::Arbiter,
            Role::Clients => End::Clients,
        }
    }

    fn process(&self, role: Role) -> String {
        self.node(role).map_or_else(|| ARBITER.to_owned(), member)
    }
}

/// How a play goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long a blow lasts at least.
    pub(super) hold: Duration,
    pub(super) solo: bool,
}

/// Clients at work, between two looks at all assets.
pub(super) struct Scene {
    cast: Cast,
    epoch: u64,
    before: Vec<Told>,
    pub(super) load: Load,
    /// So many answers are some from everybody.
    pub(super) some: u64,
}

impl Scene {
    /// Waits until all is whole, looks, and starts the clients.
    pub(super) fn begin(house: &mut House, orders: &Orders) -> Result<Self, Failure> {
        let whole = house.await_whole()?;
        let primary =
            house.members.iter().zip(&whole).find(|(_, state)| state.leads()).map_or(1, |(number, _)| *number);
        let standby = house.members.iter().copied().find(|number| *number != primary).unwrap_or(primary);
        let epoch = whole.iter().map(|state| state.epoch).max().unwrap_or(0);
        let before = look(&house.servers, orders.assets, None)?;
        let some = orders.clients.saturating_mul(u64::from(orders.window));
        Ok(Self { cast: Cast { primary, standby }, epoch, before, load: Load::start(orders), some })
    }

    pub(super) const fn primary(&self) -> u8 {
        self.cast.primary
    }

    pub(super) const fn standby(&self) -> u8 {
        self.cast.standby
    }

    /// Takes the histories, looks again, judges, and waits until all is whole. `blow`: when the harm was done, and when it was done at
    /// the latest; with a death of the primary the first answer to a command that was begun behind it is that of the next one.
    pub(super) fn end(
        self,
        house: &mut House,
        orders: &Orders,
        played: &mut Played,
        (blow, is_fail_over): ((u64, u64), bool),
    ) -> Result<(), Failure> {
        let began = self.load.began();
        let histories = self.load.end()?;
        let after = look(&house.servers, orders.assets, Some(began))?;
        fill(played, &histories, blow, is_fail_over);
        let told = histories.into_iter().flat_map(|history| history.told).collect();
        played.judged(judge(&self.before, told, &after));
        let last = house.await_whole()?.iter().map(|state| state.epoch).max().unwrap_or(0);
        played.fail_overs = last.saturating_sub(self.epoch);
        if !played.faults.is_empty() {
            played.said = house.said();
        }
        Ok(())
    }
}

/// Plays one fault. An error: nothing more can be played with this house.
pub(super) fn play(house: &mut House, fault: Fault, orders: &Orders, pace: Pace) -> Result<Played, Failure> {
    let began = now();
    let mut played = Played { fault: fault.to_string(), kind: fault.kind(), ..Played::default() };
    let scene = Scene::begin(house, orders)?;
    let load = &scene.load;
    played.expect(wait(house, || load.answers() > scene.some), "no answers before any fault");
    let blow = load.now();
    strike(house, fault, scene.cast)?;
    let flood = matches!(fault, Fault::FullDisk(_)).then(|| Flood::start(&house.servers, orders.assets, FLOOD_BYTES));
    let (struck, held) = (load.now(), now());
    let must = fault.leaves_service(pace.solo);
    let is_long = || held.elapsed() >= pace.hold && flood.as_ref().is_none_or(Flood::has_ended);
    let answered = wait(house, || is_long() && (!must || load.newest() > struck));
    drop(flood);
    played.expect(answered, "no answer while one member and the arbiter were well");
    let is_dead = Rng::new(orders.seed).below(2) == 0;
    end(house, fault, scene.cast, is_dead)?;
    let (healed, many) = (load.now(), load.answers() + scene.some);
    played.expect(wait(house, || load.newest() > healed && load.answers() > many), "no answers after the fault");
    scene.end(house, orders, &mut played, ((blow, struck), fault.is_fail_over() && !pace.solo))?;
    if fault == Fault::Calm {
        played.expect(played.fail_overs == 0, "a fail-over without a fault");
    }
    played.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(played)
}

/// Waits for something, and takes what processes say meanwhile; false if it did not come.
pub(super) fn wait(house: &mut House, is_so: impl Fn() -> bool) -> bool {
    let began = now();
    while !is_so() {
        if began.elapsed() > LONG {
            return false;
        }
        house.listen();
        RealClock.sleep(PAUSE);
    }
    true
}

fn strike(house: &mut House, fault: Fault, cast: Cast) -> Result<(), Failure> {
    match fault {
        Fault::Calm => Ok(()),
        Fault::Kill(role) => house.kill(&cast.process(role)),
        Fault::KillBoth => [Role::Primary, Role::Standby].iter().try_for_each(|role| house.kill(&cast.process(*role))),
        Fault::Freeze(role) => house.freeze(&cast.process(role)),
        Fault::HandOver => house.hand_over(cast.standby),
        Fault::Cut(one, other, way) => {
            set(house, cast, (one, other), way, CUT);
            Ok(())
        }
        Fault::Isolate => {
            set(house, cast, (Role::Primary, Role::Standby), Way::Both, CUT);
            set(house, cast, (Role::Primary, Role::Arbiter), Way::Both, CUT);
            Ok(())
        }
        Fault::Delay(one, other) => {
            set(house, cast, (one, other), Way::Both, SLOW);
            Ok(())
        }
        Fault::Loss(one, other) => {
            set(house, cast, (one, other), Way::Both, LOSSY);
            Ok(())
        }
        Fault::FullDisk(role) => match cast.node(role).and_then(|number| house.disk(number)) {
            Some(disk) => disk.fill(),
            None => Ok(()),
        },
        Fault::Clock(role, by) => cast.node(role).map_or(Ok(()), |number| house.set_clock(number, by)),
    }
}

fn set(house: &House, cast: Cast, (one, other): (Role, Role), way: Way, weather: Weather) {
    let (one, other) = (cast.end(one), cast.end(other));
    if way != Way::Back {
        house.net.set(one, other, weather);
    }
    if way != Way::There {
        house.net.set(other, one, weather);
    }
}

/// Takes the blow back. What a cut has parted finds its connections dead, or goes on with them.
fn end(house: &mut House, fault: Fault, cast: Cast, is_dead: bool) -> Result<(), Failure> {
    match fault {
        Fault::Kill(role) => return house.start(&cast.process(role)),
        Fault::KillBoth => {
            return [Role::Standby, Role::Primary].iter().try_for_each(|role| house.start(&cast.process(*role)));
        }
        Fault::Freeze(role) => return house.resume(&cast.process(role)),
        Fault::Clock(role, _) => return cast.node(role).map_or(Ok(()), |number| house.set_clock(number, 0)),
        Fault::FullDisk(role) => {
            if let Some(disk) = cast.node(role).and_then(|number| house.disk(number)) {
                disk.free()?;
            }
            // A member whose disk failed has stopped, and is started again by a person.
            house.kill(&cast.process(role))?;
            return house.start(&cast.process(role));
        }
        Fault::Calm | Fault::HandOver => return Ok(()),
        Fault::Cut(one, other, _) | Fault::Loss(one, other) if is_dead => {
            house.net.end_all(cast.end(one), cast.end(other));
        }
        Fault::Isolate if is_dead => house.net.end_all(cast.end(Role::Primary), cast.end(Role::Standby)),
        Fault::Cut(..) | Fault::Loss(..) | Fault::Delay(..) | Fault::Isolate => {}
    }
    house.net.clear();
    Ok(())
}

fn fill(played: &mut Played, histories: &[History], (blow, struck): (u64, u64), is_fail_over: bool) {
    played.again = histories.iter().map(|history| history.again).sum();
    played.refused = histories.iter().map(|history| history.refused).sum();
    played.reconnected = histories.iter().map(|history| history.reconnected).sum();
    played.doubts = histories.iter().flat_map(|history| history.doubts.iter().cloned()).take(5).collect();
    let mut answered: Vec<u64> = histories.iter().flat_map(|history| history.answered.iter().copied()).collect();
    answered.sort_unstable();
    played.silence_us = longest_silence(&answered, blow).unwrap_or_default();
    if is_fail_over {
        let told = histories.iter().flat_map(|history| &history.told);
        let behind = told.filter(|told| told.timed.invoked > struck).filter_map(|told| told.timed.returned);
        played.first_answer_us = behind.min().map(|first| first.saturating_sub(blow) / 1_000);
    }
}

/// The longest time without an answer that ends behind the blow, in microseconds.
fn longest_silence(answered: &[u64], blow: u64) -> Option<u64> {
    let gaps = answered.iter().zip(answered.iter().skip(1)).filter(|(_, end)| **end > blow);
    gaps.map(|(start, end)| end.saturating_sub(*start) / 1_000).max()
}

#[cfg(test)]
mod tests {
    use super::longest_silence;

    #[test]
    fn the_longest_silence_is_one_that_ends_behind_the_blow() {
        let answered = [0, 50_000, 900_000, 910_000, 1_300_000, 1_310_000];
        assert_eq!(longest_silence(&answered, 905_000), Some(390));
        assert_eq!(longest_silence(&answered, 100_000), Some(850));
        assert_eq!(longest_silence(&answered, 1_310_000), None);
        assert_eq!(longest_silence(&[], 0), None);
    }
}
