//! Who is let in, who stands in line, and that no place is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Scope};

use assent_sim::SimClock;
use assent_world::RealClock;

use super::*;

fn turnstile(clock: impl Clock + 'static, places: u32) -> Turnstiles {
    let clock: Arc<dyn Clock> = Arc::new(clock);
    Turnstiles::new(&clock, places, 1)
}

/// How many are in, and how many in line.
fn counts(turnstile: &Turnstiles) -> (u64, u64) {
    let word = turnstile.0[0].word.load(Ordering::Acquire);
    (who_is_in(word), word / IN_LINE)
}

fn until(turnstile: &Turnstiles, expected: (u64, u64)) {
    for _ in 0..20_000 {
        if counts(turnstile) == expected {
            return;
        }
        RealClock.sleep(Duration::from_millis(1));
    }
    panic!("{:?} in and in line, not {expected:?}", counts(turnstile));
}

/// Comes, and goes when it is told.
fn reader<'s>(scope: &'s Scope<'s, '_>, turnstile: &'s Turnstiles, then: impl FnOnce() + Send + 's) -> Sender<()> {
    let (tell, told) = channel();
    scope.spawn(move || {
        let pass = turnstile.enter();
        then();
        _ = told.recv();
        drop(pass);
    });
    tell
}

#[test]
fn who_comes_beyond_them_stands_in_line_and_is_given_a_place_in_order() {
    let (turnstile, order) = (turnstile(SimClock::new(), 2), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let mut first: Vec<Sender<()>> = Vec::new();
        for number in 0..2 {
            first.push(reader(scope, &turnstile, || ()));
            until(&turnstile, (number + 1, 0));
        }
        for number in 0..5 {
            let order = &order;
            // Whoever is in goes at once.
            drop(reader(scope, &turnstile, move || order.lock().unwrap().push(number)));
            until(&turnstile, (2, number + 1));
        }
        assert_eq!(order.lock().unwrap().len(), 0);
        // One after the other: of two places two would be given at a time.
        first.pop();
        until(&turnstile, (1, 4));
        first.pop();
    });
    assert_eq!((counts(&turnstile), order.into_inner().unwrap()), ((0, 0), vec![0, 1, 2, 3, 4]));
    assert_eq!(turnstile.stood(), 5);
}

#[test]
fn a_place_stays_free_for_who_goes_in_the_midst_of_his_turn_while_enough_are_in() {
    let clock = SimClock::new();
    let turnstile = turnstile(clock.clone(), 3);
    thread::scope(|scope| {
        let others: Vec<Sender<()>> = (0..3).map(|_| reader(scope, &turnstile, || ())).collect();
        until(&turnstile, (3, 0));
        let mut others = others.into_iter();
        let one = others.next();
        let turnstile = &turnstile;
        scope.spawn(move || {
            until(turnstile, (3, 1));
            drop(one);
        });
        let pass = turnstile.enter();
        until(turnstile, (3, 0));
        let next = reader(scope, turnstile, || ());
        until(turnstile, (3, 1));
        drop(pass);
        assert_eq!(counts(turnstile), (2, 1), "he is expected back");
        let pass = turnstile.enter();
        assert_eq!(counts(turnstile), (3, 1));
        clock.advance(TURN);
        drop(pass);
        assert_eq!(counts(turnstile), (3, 0), "his turn was over: the next one has it");
        drop((others, next));
    });
    assert_eq!(counts(&turnstile), (0, 0));
}

#[test]
fn who_is_in_line_finds_somebody_in() {
    for places in [1, 2] {
        let turnstile = turnstile(SimClock::new(), places);
        UNTIL.take();
        thread::scope(|scope| {
            let others: Vec<Sender<()>> = (0..places).map(|_| reader(scope, &turnstile, || ())).collect();
            until(&turnstile, (places.into(), 0));
            let turnstile = &turnstile;
            let one = scope.spawn(move || {
                until(turnstile, (places.into(), 1));
                drop(others);
            });
            // He has his turn, and nobody else is in.
            let pass = turnstile.enter();
            one.join().unwrap();
            until(turnstile, (1, 0));
            let more: Vec<Sender<()>> = (1..places).map(|_| reader(scope, turnstile, || ())).collect();
            until(turnstile, (places.into(), 0));
            let next = reader(scope, turnstile, || ());
            until(turnstile, (places.into(), 1));
            drop(pass);
            assert_eq!(counts(turnstile), (1, u64::from(places) - 1), "a place is left free where one more is taken");
            drop(more);
            until(turnstile, (1, 0));
            drop(next);
        });
        assert_eq!(counts(&turnstile), (0, 0));
    }
}

#[test]
fn a_walk_and_a_long_value_stand_in_line_and_have_no_place() {
    let turnstile = turnstile(SimClock::new(), 1);
    thread::scope(|scope| {
        let turnstile = &turnstile;
        turnstile.line_up();
        assert_eq!((counts(turnstile), turnstile.stood()), ((0, 0), 0));
        let one = reader(scope, turnstile, || ());
        until(turnstile, (1, 0));
        scope.spawn(move || {
            until(turnstile, (1, 1));
            let other = reader(scope, turnstile, || ());
            until(turnstile, (1, 2));
            drop(one);
            // The walk has come and gone, though its turn had only begun.
            until(turnstile, (1, 0));
            drop(other);
        });
        turnstile.line_up();
        assert_eq!(UNTIL.get(), None, "its turn is over");
        until(turnstile, (0, 0));
        let pass = turnstile.enter();
        turnstile.go_early();
        assert_eq!(counts(turnstile), (0, 0));
        turnstile.go_early();
        let other = reader(scope, turnstile, || ());
        until(turnstile, (1, 0));
        drop(pass);
        assert_eq!(counts(turnstile), (1, 0), "nobody gives his place away twice");
        drop(other);
    });
    assert_eq!(counts(&turnstile), (0, 0));
}

#[test]
fn who_is_in_or_serves_many_never_stands_in_line_and_a_panic_gives_its_place_back_once() {
    let [one, other] = [(); 2].map(|()| turnstile(SimClock::new(), 1));
    let pass = one.enter();
    let nested = (one.enter(), other.enter());
    other.line_up();
    other.go_early();
    assert_eq!((counts(&one), counts(&other)), ((1, 0), (0, 0)));
    thread::scope(|scope| {
        let serves = || {
            stand_in_no_line();
            let _pass = one.enter();
            one.go_early();
            counts(&one)
        };
        assert_eq!(scope.spawn(serves).join().unwrap(), (1, 0));
    });
    drop((nested, pass));
    for early in [false, true] {
        let panics = || {
            let _pass = one.enter();
            if early {
                one.go_early();
            }
            panic!("in the midst of a read");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!((counts(&one), WHERE.get()), ((0, 0), None));
    }
    let all = turnstile(SimClock::new(), 0);
    thread::scope(|scope| {
        let readers: Vec<Sender<()>> = (0..20).map(|_| reader(scope, &all, || ())).collect();
        drop(readers);
    });
    assert_eq!((counts(&all), all.stood()), ((0, 0), 0), "everybody may be in");
}

#[test]
fn processors_share_turnstiles_two_and_two() {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new());
    for (processors, expected) in [(1, vec![6]), (2, vec![12]), (3, vec![18]), (5, vec![12, 18]), (8, vec![12; 4])] {
        let all = Turnstiles::new(&clock, 6, processors);
        assert_eq!(all.0.iter().map(|one| one.least).collect::<Vec<_>>(), expected, "{processors}");
    }
}

#[test]
fn as_many_more_are_let_in_as_processors_idle_and_fewer_again_once_they_do_not() {
    let rows = [
        // Most now, least, how many are in, how many in line, busy, most then.
        (12, 12, 12, 1, 0, 24),
        (12, 12, 12, 1, 69, 24),
        (24, 12, 24, 1, 70, 24),
        (24, 12, 24, 1, 80, 24),
        (24, 12, 24, 1, 81, 12),
        (20, 12, 20, 1, 100, 12),
        (12, 12, 12, 1, 200, 12),
        (MOST, 12, 0, 1, 0, MOST),
        // Without a line no more are needed, nor as many where fewer are in.
        (12, 12, 12, 0, 0, 12),
        (48, 12, 25, 0, 0, 48),
        (48, 12, 24, 0, 0, 24),
        (48, 12, 25, 0, 81, 24),
    ];
    for (most, least, who, line, busy, expected) in rows {
        let next = next(most, least, who + line * IN_LINE, busy);
        assert_eq!(next, expected, "{most}, at least {least}, {who} in and {line} in line, {busy} % busy");
    }
}

/// A clock that knows what processors have done.
#[derive(Clone, Debug)]
struct Worked(SimClock, Arc<AtomicU64>);

impl Worked {
    fn pass(&self, passed: Duration, worked: Duration) {
        self.1.fetch_add(u64::try_from(worked.as_micros()).unwrap(), Ordering::Relaxed);
        self.0.advance(passed);
    }
}

impl Clock for Worked {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall_ms(&self) -> u64 {
        self.0.wall_ms()
    }

    fn sleep(&self, pause: Duration) {
        self.0.sleep(pause);
    }

    fn worked(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.1.load(Ordering::Relaxed)))
    }

    fn boot_id(&self) -> u128 {
        self.0.boot_id()
    }
}

#[test]
fn nobody_stands_in_line_for_long_behind_those_whom_a_disk_keeps() {
    let clock = Worked(SimClock::new(), Arc::default());
    let turnstile = turnstile(clock.clone(), 2);
    thread::scope(|scope| {
        let stuck: Vec<Sender<()>> = (0..2).map(|_| reader(scope, &turnstile, || ())).collect();
        until(&turnstile, (2, 0));
        // Of the calm before a line nothing follows.
        clock.pass(Duration::from_secs(9), Duration::ZERO);
        let behind: Vec<Sender<()>> = (0..5).map(|_| reader(scope, &turnstile, || ())).collect();
        until(&turnstile, (2, 5));
        // A busy processor has nothing left for them.
        clock.pass(LOOK, LOOK);
        while turnstile.0[0].looked.load(Ordering::Relaxed) < clock.now().0 {
            RealClock.sleep(Duration::from_millis(1));
        }
        assert_eq!(counts(&turnstile), (2, 5));
        clock.pass(LOOK, Duration::ZERO);
        until(&turnstile, (4, 3));
        clock.pass(LOOK, Duration::ZERO);
        until(&turnstile, (7, 0));
        drop((stuck, behind));
    });
    assert_eq!((counts(&turnstile), turnstile.0[0].most.load(Ordering::Relaxed)), ((0, 0), 8));
    // Though nobody is in line any more.
    for expected in [4, 2, 2] {
        clock.pass(LOOK, LOOK);
        drop(turnstile.enter());
        assert_eq!(turnstile.0[0].most.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn the_last_of_a_long_line_look_too_if_the_first_are_gone() {
    let clock = Worked(SimClock::new(), Arc::default());
    let turnstile = turnstile(clock.clone(), 1);
    thread::scope(|scope| {
        let one = reader(scope, &turnstile, || ());
        until(&turnstile, (1, 0));
        let mut line = Vec::new();
        for number in 0..20 {
            line.push(reader(scope, &turnstile, || ()));
            until(&turnstile, (1, number + 1));
        }
        // Those who look most often are in, and stay: one after the other, as they have come.
        drop(one);
        for left in (10..20).rev() {
            until(&turnstile, (1, left));
            drop(line.remove(0));
        }
        until(&turnstile, (1, 9));
        for (at, expected) in [(2, 8), (4, 6), (8, 2), (10, 0)] {
            clock.pass(3 * LOOK, Duration::ZERO);
            until(&turnstile, (at, expected));
        }
        drop(line);
    });
    assert_eq!(counts(&turnstile), (0, 0));
}

#[test]
fn who_reads_a_long_value_is_not_expected_back() {
    let turnstile = turnstile(SimClock::new(), 3);
    thread::scope(|scope| {
        let others: Vec<Sender<()>> = (0..2).map(|_| reader(scope, &turnstile, || ())).collect();
        until(&turnstile, (2, 0));
        let pass = turnstile.enter();
        UNTIL.set(Some((turnstile.0[0].address(), Moment(1))));
        let next = reader(scope, &turnstile, || ());
        until(&turnstile, (3, 1));
        turnstile.go_early();
        assert_eq!(counts(&turnstile), (3, 0), "the next one has the place");
        drop((pass, others, next));
    });
    assert_eq!(counts(&turnstile), (0, 0));
}

#[test]
fn no_place_is_lost_among_many() {
    let turnstile = turnstile(RealClock, 2);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..16_u64 {
            let (turnstile, done) = (&turnstile, &done);
            scope.spawn(move || {
                for at in 0..2_000 {
                    let _pass = turnstile.enter();
                    match (number + at) % 3 {
                        0 => turnstile.go_early(),
                        1 => thread::yield_now(),
                        _ => {}
                    }
                    if at % 5 == number % 5 {
                        turnstile.line_up();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((counts(&turnstile), done.load(Ordering::Relaxed)), ((0, 0), 32_000));
    assert!(turnstile.stood() > 0);
}
