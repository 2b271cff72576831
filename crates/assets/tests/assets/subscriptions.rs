//! Subscribers hear of confirmed changes only, in order, and of what they missed.

use assent_assets::{Asset, AssetId, Change, News, Op, Trace};
use assent_membership::Sequence;

use super::{add, batch, create, fresh, get};

fn change(sequence: u64, id: u64, value: i64, updates: u64) -> News {
    let asset = Some(Asset { value, updates });
    News::Change(Change { sequence: Sequence(sequence), id: AssetId(id), asset })
}

#[test]
fn a_change_is_told_when_it_is_confirmed_and_once_for_each_command() {
    let house = fresh();
    house.run(&[create(1, 0), create(2, 0), create(3, 0)]);
    let chosen = house.engine.subscribe(Some(&[AssetId(1), AssetId(2)]), 100).unwrap();
    let mut answers = Vec::new();
    let ops = [add(1, 1), add(3, 1), add(1, 1)];
    let ordered = house.engine.order(&batch(None, &ops), &mut answers, &mut Trace::default()).unwrap();
    assert_eq!(house.engine.news(chosen, 10), [], "nobody knows yet whether it stays");
    let next = house.engine.order(&batch(None, &[add(2, 1)]), &mut answers, &mut Trace::default()).unwrap();
    house.engine.confirm(ordered).unwrap();
    assert_eq!(house.engine.news(chosen, 10), [change(2, 1, 2, 2)], "and not of the next one");
    house.engine.confirm(next).unwrap();
    assert_eq!(house.engine.news(chosen, 10), [change(3, 2, 1, 1)]);
    house.run(&[get(1)]);
    house.run(&[add(1, 1), add(9, 1)]);
    house.run(&[Op::Remove { id: AssetId(2) }]);
    let gone = News::Change(Change { sequence: Sequence(4), id: AssetId(2), asset: None });
    assert_eq!(house.engine.news(chosen, 10), [gone], "reads and refusals are no news");
    house.prepare(4, &[add(1, 5)]);
    assert_eq!(house.engine.news(chosen, 10), []);
    house.outcome(4, true);
    assert_eq!(house.engine.news(chosen, 10), [change(6, 1, 7, 3)]);
    house.engine.unsubscribe(chosen);
    house.run(&[add(1, 1)]);
    assert_eq!((house.engine.news(chosen, 10).len(), house.engine.stats().subscriptions), (0, 0));
}

#[test]
fn a_slow_subscriber_stops_nobody_and_is_told_what_it_missed() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    let slow = house.engine.subscribe(None, 3).unwrap();
    (0..10).for_each(|_| drop(house.run(&[add(1, 1)])));
    let news = house.engine.news(slow, 100);
    let missed = News::Missed { changes: 7, first: Sequence(5), last: Sequence(11) };
    assert_eq!(news, [change(2, 1, 1, 1), change(3, 1, 2, 2), change(4, 1, 3, 3), missed]);
    assert_eq!(house.value(1), Some(10));
}
