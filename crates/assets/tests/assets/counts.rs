//! What the walk of a command costs: counts, not times.

use assent_assets::Trace;
use assent_journal::Log;

use super::{add, batch, create, fresh, get};

#[test]
fn a_command_is_one_append_and_one_sync_and_many_that_are_confirmed_together_share_it() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    let before = house.log.counts();
    house.run(&[add(1, 1), add(1, 1)]);
    let one = house.log.counts();
    assert_eq!((one.entries - before.entries, one.syncs - before.syncs), (1, 1));
    let (mut answers, mut ordered) = (Vec::new(), None);
    for _ in 0..100 {
        let next = house.engine.order(&batch(None, &[add(1, 1)]), &mut answers, &mut Trace::default()).unwrap();
        ordered = Some(ordered.map_or(next, |before: assent_assets::Ordered| before.and(next)));
    }
    house.engine.confirm(ordered.unwrap()).unwrap();
    let many = house.log.counts();
    assert_eq!((many.entries - one.entries, many.syncs - one.syncs), (100, 1));
    assert_eq!(house.value(1), Some(102));
}

#[test]
fn what_changes_nothing_takes_no_place_in_the_log() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    let end = house.log.end();
    house.run(&[get(1)]);
    house.run(&[get(7)]);
    house.run(&[add(7, 1)]);
    house.run(&[add(1, 5), add(7, 1)]);
    house.prepare(1, &[get(1)]);
    assert_eq!((house.log.end(), house.value(1)), (end, Some(0)));
    let session = house.session();
    let end = house.log.end();
    house.asked(session, 1, &[add(7, 1)]);
    let behind = house.log.end();
    assert!(behind > end, "a session must hear the same refusal again");
    house.asked(session, 1, &[add(7, 1)]);
    assert_eq!(house.log.end(), behind);
}

#[test]
fn a_sampled_command_has_a_stamp_of_each_step() {
    let house = fresh();
    house.run(&[create(1, 0)]);
    let (names, count) = house.engine.steps(|steps| {
        let names: Vec<_> = steps.last().flat_map(|trace| trace.rows().map(|(step, _, _)| step.name())).collect();
        (names, steps.last().count())
    });
    assert_eq!(names, ["arrived", "ordered", "executed", "queued", "confirmed"]);
    (0..127).for_each(|_| drop(house.run(&[add(1, 1)])));
    assert_eq!((count, house.engine.steps(|steps| steps.last().count())), (1, 2), "one in 64");
}
