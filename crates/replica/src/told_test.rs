//! Members that were told different things of their group: who believes whom, and what a person hears.

use assent_membership::{Ack, Member};

use crate::Told;
use crate::rules::Rule;
use crate::simulation_test::{Group, Play as _, Shape};
use crate::stage_test::{A, B, begun, formed, shape};
use crate::toy_test::Toys;

fn otherwise(group: &Group<Toys>, at: usize) -> Vec<(Member, Told)> {
    let replica = &group.seats[at].up.as_ref().unwrap().replica;
    replica.otherwise.iter().map(|(member, (_, told))| (*member, told.clone())).collect()
}

#[test]
fn who_was_told_another_acknowledgement_or_group_is_not_listened_to_and_both_say_so() {
    // B said that its memory outlives its process, as `durable` has no need of it, in a group that acknowledges what is in memory; or
    // asked for the lead of another group, whose configuration says nothing of this one's log.
    let own = Told::new(Ack::Received, "", "");
    for other in
        [Told::new(Ack::Durable, "", ""), Told::new(Ack::Received, "other", ""), Told::new(Ack::None, "o", "p")]
    {
        let mut group = formed(&shape(Ack::Received));
        group.shape.otherwise = Some(other.clone());
        group.crash(1, None, 50);
        group.run(1_500);
        let acked = group.play.acked.len();
        group.run(500);
        assert!(group.play.acked.len() > acked, "the primary goes on alone: {}", group.brief());
        assert_eq!((group.arbiter.primary, group.arbiter.in_sync.len()), (Some(A), 1), "{}", group.brief());
        assert_eq!(otherwise(&group, 0), [(B, other.clone())]);
        assert_eq!(otherwise(&group, 1), [(A, own.clone())]);
        group.shape.otherwise = None;
        group.crash(1, None, 50);
        group.run(1_500);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
        assert!(otherwise(&group, 0).is_empty() && otherwise(&group, 1).is_empty());
        // Without the rule it is counted on.
        group.shape.left_out = Some(Rule::ToldAlike);
        group.shape.otherwise = Some(other);
        for at in [0, 1] {
            group.crash(at, None, 50);
            group.run(1_500);
        }
        assert_eq!(group.arbiter.in_sync.len(), 2, "{}", group.brief());
    }
}

#[test]
fn two_that_begin_with_different_acknowledgements_or_groups_never_lead_together() {
    for other in [Told::new(Ack::Written, "", ""), Told::new(Ack::Received, "other", "")] {
        let mut group = begun(&Shape { otherwise: Some(other), ..shape(Ack::Received) });
        group.run(3_000);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (0, &None), "nobody begins: {}", group.brief());
        assert!(otherwise(&group, 0).len() == 1 && otherwise(&group, 1).len() == 1);
        group.shape.otherwise = None;
        group.crash(1, None, 50);
        group.run(1_500);
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
    }
}

#[test]
fn who_was_told_another_place_of_the_arbiter_is_believed_and_both_know() {
    let other = Told::new(Ack::Received, "", "elsewhere:1");
    let mut group = formed(&Shape { otherwise: Some(other.clone()), ..shape(Ack::Received) });
    assert_eq!(otherwise(&group, 0), [(B, other.clone())]);
    assert_eq!(otherwise(&group, 1), [(A, Told::new(Ack::Received, "", ""))]);
    // What is said is the same after the other one has led.
    group.crash(0, None, 400);
    group.run(2_000);
    assert_eq!((group.arbiter.primary, group.arbiter.in_sync.len()), (Some(B), 2), "{}", group.brief());
    assert_eq!((otherwise(&group, 0), &group.broken), (vec![(B, other)], &None));
}

#[test]
fn a_person_hears_what_two_members_were_told_and_what_follows() {
    let own = Told::new(Ack::Received, "one", "host:1");
    let says = |ack, group, arbiter| Told::new(ack, group, arbiter).against(B, &own, A);
    let must = "they must have the same; until then neither listens to the other";
    let two = "if these are two and not one, neither can lead after the other";
    let said = [
        (says(Ack::None, "one", "host:1"), format!("node 1 has ack none, this one, node 0, has ack received: {must}")),
        (
            says(Ack::Received, "two", "host:2"),
            format!("node 1 has group two, this one, node 0, has group one: {must}"),
        ),
        (
            says(Ack::Durable, "two", "host:1"),
            format!("node 1 has ack durable and group two, this one, node 0, has ack received and group one: {must}"),
        ),
        (
            says(Ack::Received, "one", "host:2"),
            format!("node 1 has the witness host:2, this one, node 0, has host:1: {two}"),
        ),
    ];
    for (said, expected) in said {
        assert_eq!(said, expected);
    }
}

#[test]
fn a_group_is_told_another_acknowledgement_by_stopping_the_standby_and_then_the_primary() {
    for (before, then) in [(Ack::Received, Ack::Durable), (Ack::Durable, Ack::Received), (Ack::Written, Ack::Received)]
    {
        let mut group = formed(&shape(before));
        group.crash(1, None, 3_000);
        group.run(600);
        assert_eq!(group.arbiter.in_sync.len(), 1, "{}", group.brief());
        group.shape.ack = then;
        group.crash(0, None, 50);
        group.run(1_500);
        let acked = group.play.acked.len();
        group.run(2_500);
        assert!(group.play.acked.len() > acked, "{before:?} to {then:?}: {}", group.brief());
        assert_eq!((group.arbiter.in_sync.len(), &group.broken), (2, &None), "{}", group.brief());
        group.play.quiet();
        group.run(500);
        group.audit();
        assert_eq!(group.broken, None);
    }
}
