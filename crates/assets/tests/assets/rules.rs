//! What every opening must have the same: limits, business logic, and the names of sessions, which are nobody else's.

use assent_assets::{Answer, AssetsError, Command, Config, Limits, Logics, Machine, Request, SessionName};
use assent_kind::Kind;
use assent_membership::Sequence;
use assent_sim::SimDisk;

use super::{add, batch, create, done, fresh, laid, open, try_open};

fn with(sessions_max: usize) -> Config {
    Config { limits: Limits { sessions_max, ..Limits::default() }, ..Config::default() }
}

#[test]
fn other_limits_are_refused_by_name_by_the_log_and_by_a_snapshot() {
    // Under fewer sessions a replay forgets what the server remembered, and takes a command of such a session for none.
    let disk = SimDisk::new();
    let house = open(&disk, 1);
    house.run(&[create(1, 0)]);
    drop(house);
    let refused = |salt| try_open(&disk, salt, with(7)).err().unwrap_or_default();
    assert_eq!(
        refused(2),
        "the log of the assets: sessions_max is 7 here, and 65536 where these assets were made: give it that"
    );
    let house = open(&disk, 3);
    house.engine.snapshot().unwrap().unwrap();
    drop(house);
    let said = refused(4);
    assert!(said.contains("assets-1: sessions_max is 7 here"), "{said}");
    assert_eq!(open(&disk, 5).value(1), Some(0));
}

#[test]
fn a_log_says_its_rules_before_its_first_command() {
    let disk = SimDisk::new();
    // Nothing is executed, only waited for: and yet it is known whose log this is.
    try_open(&disk, 1, with(7)).unwrap().engine.in_doubt().unwrap();
    let said = try_open(&disk, 2, Config::default()).err().unwrap_or_default();
    assert!(said.contains("sessions_max is 65536 here, and 7"), "{said}");
    let house = try_open(&disk, 3, with(7)).unwrap();
    house.run(&[create(1, 0)]);
    assert_eq!(house.engine.stats().sequence, Sequence(1), "rules are no command");
}

#[test]
fn a_log_that_holds_what_nobody_would_lay_is_damage_and_not_passed_over() {
    let mut machine = Machine::new(Limits::default(), Logics::default());
    let mut answers = Vec::new();
    machine.apply(Sequence(1), 0, &batch(None, &[create(1, 5)]), &mut answers).unwrap();
    let (hash, length) = (machine.hash(), answers.len());
    let request = Request { session: SessionName(9), number: 1, window: 1 };
    for needless in [batch(Some(request), &[add(1, 1)]), batch(None, &[create(1, 5)])] {
        let refused = machine.apply(Sequence(2), 0, &needless, &mut answers).unwrap_err();
        assert_eq!((refused.kind(), &refused), (Kind::Corrupt, &AssetsError::NotLaid { found: Sequence(2) }));
    }
    assert_eq!((machine.hash(), answers.len()), (hash, length));
    // In a group's log, which holds commands before anyone has tried them, the same has its place.
    machine.take(Sequence(2), 0, &batch(Some(request), &[add(1, 1)]), &mut answers).unwrap();
    assert_eq!(Answer::read(&answers[length..]), Ok(Answer::InDoubt));
}

#[test]
fn a_session_of_a_lost_tail_is_nobody_elses() {
    // One session was opened at command 2, and that was lost: a restored backup, or a power cut with `ack = none`. Another client opened
    // one at command 2 then. The name was the command's number: the first one's request was executed as the second one's.
    let (lost, other) = (SessionName(0xaaaa), SessionName(0xbbbb));
    let house = fresh();
    house.run(&[create(1, 0)]);
    let opened = house.engine.execute(&laid(|out| Command::lay_open(out, other))).unwrap();
    assert_eq!(opened, Answer::Opened(other));
    assert_eq!(house.asked(lost, 1, &[add(1, 100)]), Answer::InDoubt);
    assert_eq!(house.asked(other, 1, &[add(1, 1)]), done(&[(1, 1)]));
    assert_eq!(house.value(1), Some(1));
    // Opened again it is the same, as long as it has done nothing.
    let again = |name| house.engine.execute(&laid(|out| Command::lay_open(out, name))).unwrap();
    assert_eq!((again(lost), again(lost), again(other)), (Answer::Opened(lost), Answer::Opened(lost), Answer::InDoubt));
    assert_eq!(house.engine.stats().sessions, 2);
}
