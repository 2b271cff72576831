//! Histories by hand, good and bad; and many small ones against a search that tries every order.

use assent_sim::Rng;
use assent_sim::linear::{Model as _, Timed, Verdict, linearizable};
use assent_sim::register::{Answer, Call, Did, Register, Registers};

const MANY: usize = 1_000_000;

fn timed(invoked: u64, returned: u64, call: Call, answer: Answer) -> Timed<Did> {
    Timed { op: Did { call, answer }, invoked, returned: Some(returned) }
}

fn in_doubt(invoked: u64, call: Call) -> Timed<Did> {
    Timed { op: Did { call, answer: Answer::InDoubt }, invoked, returned: None }
}

fn done(value: i64, updates: u64) -> Answer {
    Answer::Done(Register { value, updates })
}

fn judge(history: &[Timed<Did>]) -> Verdict<Register> {
    linearizable(&Registers, Register::default(), history, MANY)
}

fn is_good(history: &[Timed<Did>]) -> bool {
    judge(history) == Verdict::Linearizable
}

/// The longest order ends before this call, behind so many, in this state.
fn is_bad(history: &[Timed<Did>], at: usize, placed: usize, value: i64, updates: u64) {
    assert_eq!(judge(history), Verdict::Contradiction { at, placed, state: Register { value, updates } });
}

#[test]
fn calls_at_the_same_time_may_have_any_order_and_one_behind_the_other_only_theirs() {
    let both = |first: u64| [timed(1, 10, Call::Add(5), done(7, 2)), timed(first, 20, Call::Set(2), done(2, 1))];
    assert!(is_good(&both(9)));
    assert!(is_good(&both(10)), "touching is the same time");
    is_bad(&both(11), 0, 0, 0, 0);
}

#[test]
fn a_stale_read_is_named() {
    let set = timed(1, 2, Call::Set(8), done(8, 1));
    assert!(is_good(&[set.clone(), timed(2, 3, Call::Get, done(0, 0))]));
    is_bad(&[set, timed(3, 4, Call::Get, done(0, 0))], 1, 1, 8, 1);
}

#[test]
fn what_was_acknowledged_and_is_lost_is_named() {
    let history = [
        timed(1, 2, Call::Add(1), done(1, 1)),
        timed(3, 4, Call::Add(1), done(2, 2)),
        timed(5, 6, Call::Get, done(1, 1)),
    ];
    is_bad(&history, 2, 2, 2, 2);
}

#[test]
fn what_was_done_twice_is_named() {
    let history = [timed(1, 2, Call::Add(1), done(1, 1)), timed(3, 4, Call::Get, done(2, 2))];
    is_bad(&history, 1, 1, 1, 1);
    // The same value, reached by one change too many.
    is_bad(&[timed(1, 2, Call::Set(4), done(4, 1)), timed(3, 4, Call::Get, done(4, 2))], 1, 1, 4, 1);
}

#[test]
fn what_is_in_doubt_takes_place_at_any_time_later_or_never_but_not_earlier_and_once() {
    let add = in_doubt(5, Call::Add(3));
    let read = |at, value, updates| timed(at, at + 1, Call::Get, done(value, updates));
    assert!(is_good(&[add.clone(), read(10, 0, 0), read(20, 0, 0)]));
    assert!(is_good(&[add.clone(), read(10, 3, 1), read(20, 3, 1)]));
    assert!(is_good(&[add.clone(), read(10, 0, 0), read(20, 3, 1)]));
    assert!(is_good(&[add.clone(), read(4, 3, 1)]));
    assert!(!is_good(&[add.clone(), read(3, 3, 1)]));
    assert!(!is_good(&[add.clone(), read(10, 3, 1), read(20, 0, 0)]));
    assert!(!is_good(&[add, read(10, 3, 1), read(20, 6, 2)]));
}

#[test]
fn a_comparison_answers_what_was_there() {
    let swap = |answer| timed(3, 4, Call::CompareAndSet(8, 9), answer);
    let set = timed(1, 2, Call::Set(8), done(8, 1));
    assert!(is_good(&[set.clone(), swap(done(9, 2))]));
    assert!(!is_good(&[set.clone(), swap(Answer::Differs(8))]));
    assert!(!is_good(&[set, swap(Answer::Differs(7))]));
    assert!(is_good(&[swap(Answer::Differs(0))]));
    // In doubt and not equal: taken, and nothing changed.
    assert!(is_good(&[in_doubt(1, Call::CompareAndSet(8, 9)), timed(3, 4, Call::Get, done(0, 0))]));
}

#[test]
fn twenty_calls_in_doubt_that_are_the_same_are_one_question_and_a_bound_is_a_bound() {
    let mut history: Vec<_> = (0..20).map(|at| in_doubt(at, Call::Add(1))).collect();
    history.push(timed(100, 101, Call::Get, done(20, 20)));
    assert_eq!(linearizable(&Registers, Register::default(), &history, 1_000), Verdict::Linearizable);
    history.push(timed(102, 103, Call::Get, done(19, 19)));
    assert!(matches!(linearizable(&Registers, Register::default(), &history, 1_000), Verdict::Contradiction { .. }));
    let different: Vec<_> = (0..20).map(|at| in_doubt(1, Call::Add(1 << at))).collect();
    let history = [different, vec![timed(2, 3, Call::Get, done(-1, 20))]].concat();
    assert!(matches!(
        linearizable(&Registers, Register::default(), &history, 1_000),
        Verdict::Undecided { visited: 1_001 }
    ));
}

#[test]
fn a_long_history_of_many_callers_is_judged_in_as_many_states_as_it_has_calls() {
    let mut history = play(&mut Rng::new(3), 20_000, 16, 0);
    let verdict = linearizable(&Registers, Register::default(), &history, 100_000);
    assert_eq!(verdict, Verdict::Linearizable);
    let Answer::Done(seen) = &mut history[10_000].op.answer else { panic!("no answer is in doubt or differs here") };
    seen.updates += 1;
    let verdict = linearizable(&Registers, Register::default(), &history, 100_000);
    let Verdict::Contradiction { placed, .. } = verdict else { panic!("{verdict:?}") };
    assert!((9_900..=10_100).contains(&placed), "{placed}");
}

/// A history that a real register had: callers who overlap, each call done at one moment between its two; of a hundred, so many are
/// in doubt, done or not.
fn play(rng: &mut Rng, calls: u64, callers: u64, doubted: u64) -> Vec<Timed<Did>> {
    let (mut state, mut history) = (Register::default(), Vec::new());
    for moment in 1..=calls {
        let call = match rng.below(if doubted == 0 { 3 } else { 4 }) {
            0 => Call::Get,
            1 => Call::Set(i64::try_from(rng.below(3)).unwrap()),
            2 => Call::Add(1),
            _ => Call::CompareAndSet(i64::try_from(rng.below(3)).unwrap(), 1),
        };
        let invoked = (moment * 10).saturating_sub(rng.below(10 * callers));
        let returned = moment * 10 + rng.below(10 * callers);
        if rng.below(100) < doubted {
            if rng.below(2) == 0 {
                state = Registers.step(&state, &Did { call, answer: Answer::InDoubt }).unwrap();
            }
            history.push(in_doubt(invoked, call));
            continue;
        }
        let behind = Registers.step(&state, &Did { call, answer: Answer::InDoubt }).unwrap();
        let answer = match call {
            Call::CompareAndSet(expected, _) if expected != state.value => Answer::Differs(state.value),
            _ => Answer::Done(behind),
        };
        state = behind;
        history.push(timed(invoked, returned, call, answer));
    }
    history
}

/// Tries every order of every subset: what the search must agree with.
fn by_force(state: Register, history: &[Timed<Did>], left: u32) -> bool {
    let here = |at: usize| left >> at & 1 == 1;
    if !(0..history.len()).any(|at| here(at) && history[at].returned.is_some()) {
        return true;
    }
    let first_answer = (0..history.len()).filter(|at| here(*at)).filter_map(|at| history[at].returned).min().unwrap();
    (0..history.len()).filter(|at| here(*at) && history[*at].invoked <= first_answer).any(|at| {
        let next = Registers.step(&state, &history[at].op);
        next.is_some_and(|next| by_force(next, history, left & !(1 << at)))
    })
}

#[test]
fn the_search_agrees_with_every_order_tried_one_by_one() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed);
        let calls = 1 + rng.below(7);
        let mut history = play(&mut rng, calls, 3, 25);
        assert!(is_good(&history), "seed {seed}: a register had it: {history:?}");
        // One answer is another one, or comes at another time.
        let at = rng.index(history.len());
        let (updates, back) = (rng.below(4), rng.below(40));
        match &mut history[at].op.answer {
            Answer::Done(seen) if rng.below(2) == 0 => seen.updates = updates,
            Answer::Done(seen) => seen.value = i64::try_from(updates).unwrap(),
            Answer::Differs(value) => *value += 1,
            Answer::InDoubt => {}
        }
        history[at].invoked = history[at].invoked.saturating_sub(back);
        let forced = by_force(Register::default(), &history, (1 << history.len()) - 1);
        assert_eq!(is_good(&history), forced, "seed {seed}: {history:?}");
        if forced { good += 1 } else { bad += 1 }
    }
    assert!(good > 300 && bad > 300, "both kinds are needed: {good} good, {bad} bad");
}
