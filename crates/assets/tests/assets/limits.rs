//! Limits and refusals: each by its name and kind, and nothing changed.

use assent_assets::{Answer, AssetId, AssetsError, COMMAND_BYTES_MAX, Command, OPS_MAX, Op, Refusal};
use assent_kind::Kind;

use super::{House, add, batch, create, done, fresh, get, laid};

const ID: AssetId = AssetId(1);

fn refusal(house: &House, op: Op) -> (Refusal, Kind) {
    match house.run(&[add(2, 1), op]) {
        Answer::Refused { op: 1, refusal } => (refusal.clone(), refusal.kind()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_refusal_says_what_it_is_and_takes_the_whole_batch_back() {
    let house = fresh();
    house.run(&[create(1, i64::MAX - 1), create(2, 0)]);
    let before = house.engine.stats().hash;
    let id = ID;
    let table = [
        (add(9, 1), Refusal::Unknown { id: AssetId(9) }, Kind::NotFound),
        (get(9), Refusal::Unknown { id: AssetId(9) }, Kind::NotFound),
        (create(1, 0), Refusal::Exists { id }, Kind::Conflict),
        (add(1, 2), Refusal::Overflow { id, value: i64::MAX - 1, by: 2 }, Kind::Invalid),
        (
            Op::AddWithin { id, by: 1, min: 0, max: i64::MAX - 1 },
            Refusal::Bounds { id, value: i64::MAX, bound: i64::MAX - 1 },
            Kind::Invalid,
        ),
        (
            Op::AddWithin { id, by: -3, min: i64::MAX - 3, max: i64::MAX },
            Refusal::Bounds { id, value: i64::MAX - 4, bound: i64::MAX - 3 },
            Kind::Invalid,
        ),
        (
            Op::CompareAndSet { id, expected: 5, value: 6 },
            Refusal::Differs { id, value: i64::MAX - 1, expected: 5 },
            Kind::Conflict,
        ),
    ];
    for (op, expected, kind) in table {
        assert_eq!(refusal(&house, op), (expected, kind), "{op:?}");
    }
    assert_eq!(house.engine.stats().hash, before);
    assert_eq!(house.run(&[add(1, 1), add(1, i64::MIN)]), done(&[(i64::MAX, 1), (-1, 2)]), "at the limit");
    let call = house.engine.execute(&laid(|out| Command::lay_call(out, None, 3, b""))).unwrap();
    assert_eq!(call, Answer::Refused { op: 0, refusal: Refusal::NoLogic { logic: 3 } });
}

#[test]
fn a_batch_at_the_limit_is_taken_and_a_huge_one_is_refused_before_the_log() {
    let house = fresh();
    let creates = |count: usize| (0..count).map(|id| create(id as u64, 1)).collect::<Vec<_>>();
    let refused = house.engine.execute(&batch(None, &creates(OPS_MAX + 1))).unwrap_err();
    assert_eq!((refused.kind(), refused), (Kind::Invalid, AssetsError::Malformed { field: "count" }));
    assert!(matches!(house.run(&creates(OPS_MAX)), Answer::Done(results) if results.assets.len() == OPS_MAX));
    let refused = house.engine.execute(&vec![1; COMMAND_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(refused.to_string(), "a command of 66561 bytes; at most 66560 are taken");
    assert_eq!(house.engine.execute(&[]).unwrap_err(), AssetsError::Malformed { field: "what" });
    assert_eq!(house.engine.stats().sequence.0, 1);
}
