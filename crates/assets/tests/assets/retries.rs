//! Exactly once: a request that is sent again is answered again, through restarts and snapshots, and never executed twice.

use assent_assets::{Answer, Command, Config, Limits, Refusal, Request, SessionName};
use assent_sim::SimDisk;

use super::{add, batch, create, done, fresh, laid, try_open};

#[test]
fn a_retry_gets_the_first_answer_also_behind_a_restart_and_a_snapshot() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    let session = house.session();
    assert_eq!(house.asked(session, 1, &[add(1, 5)]), done(&[(5, 1)]));
    let refused = house.asked(session, 2, &[add(9, 1)]);
    assert!(matches!(refused, Answer::Refused { op: 0, refusal: Refusal::Unknown { .. } }));
    house.run(&[create(9, 0), add(1, 100)]);
    let again = |house: &super::House| {
        assert_eq!(house.asked(session, 1, &[add(1, 5)]), done(&[(5, 1)]));
        assert_eq!(house.asked(session, 2, &[add(9, 1)]), refused, "as it was, though the asset is there now");
        assert_eq!(house.asked(session, 4, &[add(1, 5)]), Answer::Gap { expected: 3 });
        assert_eq!((house.value(1), house.value(9)), (Some(105), Some(0)));
    };
    again(&house);
    let house = house.again(2);
    again(&house);
    house.engine.snapshot().unwrap().unwrap();
    let house = house.again(3);
    assert_eq!(house.recovery.replayed, 0);
    again(&house);
    assert_eq!(house.asked(session, 3, &[add(1, 1)]), done(&[(106, 3)]));
}

#[test]
fn a_retry_of_an_evicted_or_unknown_session_is_in_doubt_and_not_executed() {
    let limits = Limits { sessions_max: 2, ..Limits::default() };
    let house = try_open(&SimDisk::new(), 1, Config { limits, ..Config::default() }).unwrap();
    house.run(&[create(1, 0)]);
    let (one, two) = (house.session(), house.session());
    assert_eq!(house.asked(one, 1, &[add(1, 1)]), done(&[(1, 1)]));
    let three = house.session();
    assert_eq!(house.asked(two, 1, &[add(1, 1)]), Answer::InDoubt, "two was silent longest");
    assert_eq!(house.asked(SessionName(77), 1, &[add(1, 1)]), Answer::InDoubt, "nobody opened it");
    assert_eq!(house.asked(one, 1, &[add(1, 1)]), done(&[(1, 1)]));
    house.engine.execute(&laid(|out| Command::lay_close(out, three))).unwrap();
    assert_eq!(house.asked(three, 1, &[add(1, 1)]), Answer::InDoubt, "it was closed");
    assert_eq!((house.value(1), house.engine.stats().sessions), (Some(1), 1));
}

#[test]
fn a_window_lets_go_of_answers_that_the_client_has() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    let session = house.session();
    let ask = |number, window| {
        let request = Request { session, number, window };
        house.engine.execute(&batch(Some(request), &[add(1, 1)])).unwrap()
    };
    for number in 1..=10 {
        assert_eq!(ask(number, 3), done(&[(number as i64, number)]));
    }
    assert_eq!(ask(8, 3), done(&[(8, 8)]));
    assert_eq!(ask(7, 3), Answer::InDoubt);
    assert_eq!(house.value(1), Some(10));
}
