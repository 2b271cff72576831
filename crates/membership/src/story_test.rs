//! What people will see: the cold start, a hand-over, the operator's word, a witness that forgot, a node held out.

use std::collections::VecDeque;

use assent_ids::Epoch;

use crate::group_test::{Crash, Group, Seat, Shape, Wire};
use crate::progress_test::{Faults, formed, settle};
use crate::{
    Ack, Action, Body, Configuration, Event, History, InSync, Letter, Member, Node, Setup, SetupError, Standing, Why,
    Word, WordError,
};

const A: Member = Member(0);
const B: Member = Member(1);

fn standing(group: &Group, at: usize) -> Standing {
    group.seats[at].node.as_ref().unwrap().standing()
}

fn pair() -> (Shape, Group) {
    let shape = Shape::pair(Ack::Received);
    (shape, formed(&shape))
}

#[test]
fn a_first_start_waits_for_everybody_and_the_preferred_one_leads() {
    let shape = Shape::pair(Ack::Received);
    let mut group = Group::new(&shape);
    group.start(&shape, 0);
    settle(&mut group, &shape, &Faults { up: vec![true, false], ..Faults::none(2) });
    assert_eq!(standing(&group, 0), Standing::Waits(Why::Missing(vec![B])), "patience does not decide that");
    group.start(&shape, 1);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), standing(&group, 1)), (Standing::Leads, Standing::Follows(A)));
    assert_eq!((group.arbiter.epoch, group.arbiter.in_sync.len()), (Epoch(1), 2));
}

#[test]
fn after_a_power_cut_of_both_the_better_disk_leads_and_the_other_cuts_its_tail() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    // The primary has one more on its disk, which nobody acknowledged.
    group.submit(&shape, 0, 2);
    group.sync(0, true);
    for at in 0..2 {
        group.crash(at, Crash::Power);
    }
    group.start(&shape, 1);
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    assert_eq!(standing(&group, 1), Standing::Waits(Why::Missing(vec![A])), "one node alone waits");
    group.start(&shape, 0);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), standing(&group, 1)), (Standing::Leads, Standing::Follows(A)));
    assert_eq!((group.arbiter.epoch, group.seats[0].log.len()), (Epoch(2), 2));
    assert_eq!(group.seats[0].log, group.seats[1].log);
}

#[test]
fn a_longer_log_of_a_dead_epoch_does_not_win() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    group.submit(&shape, 0, 2);
    group.submit(&shape, 0, 3);
    group.sync(0, true);
    group.crash(0, Crash::Kill);
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    assert_eq!(standing(&group, 1), Standing::Leads);
    group.submit(&shape, 1, 2);
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    group.start(&shape, 0);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!(standing(&group, 0), Standing::Follows(B), "its three entries lost to two of a higher epoch");
    let written: Vec<(u32, u8)> = group.seats[0].log.iter().map(|entry| (entry.epoch, entry.request)).collect();
    assert_eq!(written, [(1, 1), (2, 2)]);
    assert_eq!(group.arbiter.in_sync.len(), 2, "caught up and counted on again");
}

#[test]
fn a_hand_over_gives_the_lead_away_without_a_silence() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    assert!(group.word(0, Word::HandOver(B)));
    group.tell(0);
    assert_eq!(standing(&group, 0), Standing::Stalls(Why::HandingOver));
    assert!(!group.submit(&shape, 0, 2), "nothing new while it is under way");
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), standing(&group, 1)), (Standing::Follows(B), Standing::Leads));
    assert_eq!((group.arbiter.epoch, group.arbiter.in_sync.len(), group.acked.len()), (Epoch(2), 2, 1));
    assert!(group.submit(&shape, 1, 2));
}

#[test]
fn a_hand_over_to_a_member_that_dies_comes_back() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    for heard in [false, true] {
        let mut group = group.clone();
        assert!(group.word(0, Word::HandOver(B)));
        if heard {
            group.tell(0);
        }
        group.crash(1, Crash::Power);
        let faults = Faults { up: vec![true, false], ..Faults::none(2) };
        settle(&mut group, &shape, &faults);
        assert_eq!((standing(&group, 0), group.acked.len()), (Standing::Leads, 1));
        assert!(group.submit(&shape, 0, 2));
        assert!(!group.word(0, Word::HandOver(A)), "nothing is left of it");
    }
}

#[test]
fn while_the_arbiter_is_away_a_hand_over_stops_nobody_and_is_done_when_it_is_back() {
    let (shape, mut group) = pair();
    let deaf = Faults { hears_arbiter: vec![false, false], ..Faults::none(2) };
    assert!(group.word(0, Word::HandOver(B)));
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &deaf);
    assert_eq!((standing(&group, 0), group.acked.len()), (Standing::Leads, 1));
    assert!(group.word(0, Word::HandOver(A)), "it may be taken back");
    assert!(!group.word(0, Word::HandOver(A)));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!(standing(&group, 0), Standing::Leads);
    assert!(group.word(0, Word::HandOver(B)));
    settle(&mut group, &shape, &deaf);
    assert!(group.submit(&shape, 0, 2), "or wait");
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 1), group.acked.len()), (Standing::Leads, 2));
}

#[test]
fn a_person_forces_a_lead_and_it_stays_written_in_the_configuration() {
    let (shape, mut group) = pair();
    group.crash(1, Crash::Power);
    let alone = Faults { up: vec![true, false], ..Faults::none(2) };
    settle(&mut group, &shape, &alone);
    assert_eq!(standing(&group, 0), Standing::Leads);
    group.crash(0, Crash::Burn);
    group.start(&shape, 1);
    let alone = Faults { up: vec![false, true], ..Faults::none(2) };
    settle(&mut group, &shape, &alone);
    assert_eq!(standing(&group, 1), Standing::Waits(Why::NotInSync(vec![A])), "it was taken out before");
    assert!(group.force(&shape, 1));
    settle(&mut group, &shape, &alone);
    assert_eq!(standing(&group, 1), Standing::Leads);
    assert!(group.arbiter.forced);
    assert_eq!(group.arbiter.epoch, Epoch(2));
    // Neither a restart nor another primary makes it forgotten; a person does.
    group.crash(1, Crash::Power);
    group.start(&shape, 1);
    settle(&mut group, &shape, &alone);
    assert_eq!((standing(&group, 1), group.arbiter.epoch, group.arbiter.forced), (Standing::Leads, Epoch(3), true));
    group.start(&shape, 0);
    settle(&mut group, &shape, &Faults::none(2));
    assert!(group.word(1, Word::HandOver(A)));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), group.arbiter.epoch, group.arbiter.forced), (Standing::Leads, Epoch(4), true));
    assert!(!group.word(1, Word::Settle), "it does not lead");
    assert!(group.word(0, Word::Settle));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((group.arbiter.epoch, group.arbiter.forced, group.arbiter.in_sync.len()), (Epoch(4), false, 2));
}

#[test]
fn a_hand_over_that_the_arbiter_does_not_hear_of_can_be_taken_back() {
    // The arbiter went away just then, and no command was taken until it was back, although both members saw each other.
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    let deaf = Faults { hears_arbiter: vec![false, false], ..Faults::none(2) };
    settle(&mut group, &shape, &deaf);
    assert!(group.word(0, Word::HandOver(B)));
    group.tell(0);
    // What is asked is on its way for long.
    let late: Vec<Wire> = group.net.iter().filter(|wire| matches!(wire, Wire::Change { .. })).cloned().collect();
    assert_eq!(late.len(), 1);
    settle(&mut group, &shape, &deaf);
    assert!(!group.submit(&shape, 0, 2));
    assert!(group.word(0, Word::HandOver(A)), "it keeps the lead after all");
    assert!(group.seats[0].node.as_ref().unwrap().gives_away(), "as far as anybody knows");
    assert!(group.submit(&shape, 0, 2));
    settle(&mut group, &shape, &deaf);
    assert_eq!(group.acked.len(), 2);
    // It comes true all the same: then the other one leads, with everything.
    let mut other = group.clone();
    late.iter().for_each(|wire| other.deliver(&shape, wire));
    settle(&mut other, &shape, &Faults::none(2));
    assert_eq!((standing(&other, 1), other.seats[1].log.len(), other.broken), (Standing::Leads, 2, None));
    // Or what was asked instead does, and nothing is left of it.
    settle(&mut group, &shape, &Faults { hears_arbiter: vec![true, false], ..Faults::none(2) });
    late.iter().for_each(|wire| group.deliver(&shape, wire));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), group.arbiter.epoch), (Standing::Leads, Epoch(1)));
    assert!(!group.seats[0].node.as_ref().unwrap().gives_away());
}

#[test]
fn a_witness_that_forgot_changes_nothing_until_a_person_speaks() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    group.arbiter = Configuration::default();
    // The pair goes on without it.
    group.submit(&shape, 0, 2);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), group.acked.len()), (Standing::Leads, 2));
    group.crash(0, Crash::Power);
    let alone = Faults { up: vec![false, true], ..Faults::none(2) };
    settle(&mut group, &shape, &alone);
    let (holds, seen) = (0, 2);
    assert_eq!(standing(&group, 1), Standing::Waits(Why::ArbiterForgot { holds, seen }));
    assert!(group.force(&shape, 1));
    settle(&mut group, &shape, &alone);
    assert_eq!((standing(&group, 1), group.seats[1].log.len()), (Standing::Leads, 2));
    assert!(group.arbiter.version > 2 && group.arbiter.epoch == Epoch(2), "above all that was ever seen");
}

#[test]
fn a_witness_restored_from_a_backup_that_counts_a_version_again_is_not_believed() {
    // A took B out of the set, as version 3, and died. The witness was restored from a copy of version 2, by which B led, as version 3
    // again, and acknowledged. A came back, saw the version that it knew, asked for the lead as version 4, and led without that.
    let shape = Shape::pair(Ack::Durable);
    let mut group = formed(&shape);
    let copy = group.arbiter.clone();
    group.crash(1, Crash::Power);
    settle(&mut group, &shape, &Faults { up: vec![true, false], ..Faults::none(2) });
    assert!(group.arbiter.in_sync.is_only(A));
    let version = group.arbiter.version;
    let mut alive = group.clone();
    group.crash(0, Crash::Power);
    group.arbiter = copy.clone();
    group.start(&shape, 1);
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    group.submit(&shape, 1, 1);
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    assert_eq!((standing(&group, 1), group.arbiter.version, group.acked.len()), (Standing::Leads, version, 1));
    group.start(&shape, 0);
    settle(&mut group, &shape, &Faults::none(2));
    let forgot = Standing::Waits(Why::ArbiterForgot { holds: version, seen: version });
    assert_eq!((standing(&group, 0), standing(&group, 1), group.broken), (forgot.clone(), Standing::Leads, None));
    group.submit(&shape, 1, 2);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((group.acked.len(), group.arbiter.version), (2, version));
    // A person says which of them goes on, and the other one cuts what only it has.
    let epoch = group.arbiter.epoch;
    group.crash(1, Crash::Power);
    assert!(group.force(&shape, 0));
    group.start(&shape, 1);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((standing(&group, 0), standing(&group, 1)), (Standing::Leads, Standing::Follows(A)));
    assert_eq!((group.arbiter.epoch, group.seats[1].log.len(), group.broken), (Epoch(epoch.0 + 1), 0, None));
    // A may also live, out of B's earshot: it acknowledges no more as soon as it hears that somebody else leads.
    alive.arbiter = copy;
    alive.start(&shape, 1);
    let apart = Faults { cut: vec![(0, 1)], ..Faults::none(2) };
    settle(&mut alive, &shape, &apart);
    assert_eq!((standing(&alive, 0), standing(&alive, 1)), (forgot, Standing::Leads));
    alive.submit(&shape, 0, 1);
    settle(&mut alive, &shape, &apart);
    assert_eq!((alive.acked.len(), alive.broken), (0, None));
}

#[test]
fn who_leads_an_epoch_that_the_witness_gave_to_another_one_stops_and_waits_for_a_person() {
    // Restored, it gave the epoch once more, and its versions had gone on. The first primary of it believed them, led on in another
    // one's name, took commands and answered none.
    let told = |configuration: &Configuration| Event::Arbiter(configuration.clone());
    let leads = |configuration: &Configuration| {
        let (configuration, base) = (configuration.clone(), History::default());
        let body = Body::Lead { configuration, base, beat: 0, aside: false };
        Event::Heard(Letter { from: B, to: A, epoch: Epoch(1), body })
    };
    for heard in [&told as &dyn Fn(&Configuration) -> Event, &leads] {
        let (_, mut group) = pair();
        let known = group.arbiter.clone();
        let other = Configuration { version: known.version + 3, primary: Some(B), ..known.clone() };
        let primary = group.seats[0].node.as_mut().unwrap();
        let actions = primary.step(heard(&other));
        assert!(actions.contains(&Action::Yield) && actions.contains(&Action::Read), "{actions:?}");
        assert!(!primary.takes_commands() && *primary.configuration() == known);
        primary.step(told(&other));
        let (holds, seen) = (other.version, known.version);
        assert_eq!(primary.standing(), Standing::Waits(Why::ArbiterForgot { holds, seen }));
        // What it asked before is not said again: of that version the arbiter may hold something else.
        assert!(!primary.step(Event::Tick).iter().any(|action| matches!(action, Action::Change { .. })));
    }
}

#[test]
fn an_arbiter_without_room_stops_no_pair_that_hears_each_other() {
    // Its disk was full: it answered, and refused each change. The pair was apart for a moment, both asked, and neither counted on the
    // other one any more until the disk had room.
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    let full = Faults { takes_changes: false, ..Faults::none(2) };
    settle(&mut group, &shape, &Faults { cut: vec![(0, 1)], ..full.clone() });
    assert_eq!(standing(&group, 0), Standing::Stalls(Why::Unconfirmed(vec![B])));
    group.submit(&shape, 0, 2);
    settle(&mut group, &shape, &full);
    assert_eq!((standing(&group, 0), standing(&group, 1)), (Standing::Leads, Standing::Follows(A)));
    assert_eq!((group.acked.len(), group.arbiter.version), (2, 2));
    // Whoever is apart asks again, and says why nothing comes of it.
    group.crash(0, Crash::Power);
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..full });
    assert_eq!(standing(&group, 1), Standing::Waits(Why::ArbiterRefuses));
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    assert_eq!((standing(&group, 1), group.seats[1].log.len()), (Standing::Leads, 2));
}

#[test]
fn a_hand_over_that_the_arbiter_refuses_stops_nobody() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    let full = Faults { takes_changes: false, ..Faults::none(2) };
    assert!(group.word(0, Word::HandOver(B)));
    settle(&mut group, &shape, &full);
    assert_eq!(standing(&group, 0), Standing::Leads);
    assert!(group.submit(&shape, 0, 2), "it keeps the lead, and says so");
    settle(&mut group, &shape, &full);
    assert_eq!((group.acked.len(), group.seats[0].node.as_ref().unwrap().gives_away()), (2, false));
    assert!(group.word(0, Word::HandOver(B)));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!(standing(&group, 1), Standing::Leads);
}

#[test]
fn who_may_not_lead_stays_with_a_primary_that_asks_for_somebody_who_reaches_the_arbiter() {
    // The primary was deaf to the arbiter, and had asked to take the other one in. That one left it, as somebody was asked to lead, could
    // not lead, and came back, as fast as the arbiter answered: each time what was on its way to it began anew.
    let (shape, mut group) = pair();
    group.crash(1, Crash::Power);
    settle(&mut group, &shape, &Faults { up: vec![true, false], ..Faults::none(2) });
    group.start(&shape, 1);
    let deaf = Faults { hears_arbiter: vec![false, true], ..Faults::none(2) };
    settle(&mut group, &shape, &deaf);
    assert!(group.arbiter.in_sync.is_only(A) && group.seats[0].node.as_ref().unwrap().asked.is_some());
    let mut nodes: Vec<Node> = group.seats.iter().map(|seat| seat.node.clone().unwrap()).collect();
    let mut under_way: VecDeque<(usize, Action)> = VecDeque::new();
    let (mut left, mut said) = (0, 0);
    for (at, node) in nodes.iter_mut().enumerate() {
        under_way.extend(node.step(Event::Tick).into_iter().map(|action| (at, action)));
    }
    while let Some((at, action)) = under_way.pop_front().filter(|_| said < 200) {
        said += 1;
        let (to, event) = match action {
            Action::Send(letter) => (usize::from(letter.to.0), Event::Heard(letter)),
            Action::Read if at == 1 => (1, Event::Arbiter(group.arbiter.clone())),
            Action::Follow { .. } => {
                left += 1;
                continue;
            }
            _ => continue,
        };
        under_way.extend(nodes[to].step(event).into_iter().map(|action| (to, action)));
    }
    assert!(left <= 1 && said < 200, "it came back {left} times, in {said} actions");
    assert_eq!(nodes[1].standing(), Standing::Follows(A));
    // As soon as it is in the set it steps in.
    group.arbiter = group.seats[0].node.as_ref().unwrap().asked.clone().unwrap().to;
    settle(&mut group, &shape, &deaf);
    assert_eq!((standing(&group, 1), group.broken), (Standing::Leads, None));
}

#[test]
fn a_question_that_is_open_while_the_witness_forgets_holds_up_no_person() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    group.crash(0, Crash::Power);
    group.step(1, Event::Silent(A));
    group.tell(1);
    // Its disk is full: it takes no change, and stands again as it was set up.
    group.net.retain(|wire| !matches!(wire, Wire::Change { .. }));
    assert_eq!(standing(&group, 1), Standing::Waits(Why::Asked));
    group.arbiter = Configuration::default();
    group.tell(1);
    assert_eq!(standing(&group, 1), Standing::Waits(Why::ArbiterForgot { holds: 0, seen: 2 }));
    assert!(group.force(&shape, 1));
    settle(&mut group, &shape, &Faults { up: vec![false, true], ..Faults::none(2) });
    assert_eq!((standing(&group, 1), group.seats[1].log.len()), (Standing::Leads, 1));
    assert!(group.arbiter.version > 2 && group.arbiter.forced);
}

#[test]
fn who_is_forced_over_a_witness_that_forgot_has_everything_on_its_own_disk_first() {
    let (shape, mut group) = pair();
    group.submit(&shape, 0, 1);
    let streamed = group.net.iter().find(|wire| matches!(wire, Wire::Stream { .. })).unwrap().clone();
    group.deliver(&shape, &streamed);
    group.crash(0, Crash::Power);
    group.arbiter = Configuration::default();
    group.step(1, Event::Silent(A));
    group.tell(1);
    let standby = group.seats[1].node.as_mut().unwrap();
    let asks = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Change { .. }));
    let actions = standby.word(Word::Force).unwrap();
    assert!(actions.contains(&Action::Sync) && !asks(&actions), "{actions:?}");
    assert_eq!(standby.standing(), Standing::Waits(Why::Unsynced));
    assert!(group.sync(1, true));
    let asked = group.seats[1].node.as_ref().unwrap().asked.clone();
    assert_eq!(asked.map(|asked| asked.expect), Some(0));
}

#[test]
fn a_living_primary_tells_a_witness_that_forgot_by_a_persons_word() {
    let (shape, mut group) = pair();
    group.arbiter = Configuration::default();
    settle(&mut group, &shape, &Faults::none(2));
    assert!(group.word(0, Word::Force));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((group.arbiter.epoch, group.arbiter.in_sync.len()), (Epoch(1), 2));
    assert_eq!(standing(&group, 0), Standing::Leads);
    assert!(!group.word(0, Word::Force), "once is enough");
}

#[test]
fn an_old_letter_makes_nobody_lead_whom_a_person_has_replaced() {
    let (_, mut group) = pair();
    // The arbiter held once that the standby leads, and a letter says so late: somebody may have been forced since.
    let old = Configuration {
        version: group.arbiter.version + 1,
        epoch: Epoch(2),
        primary: Some(B),
        ..group.arbiter.clone()
    };
    let standby = group.seats[1].node.as_mut().unwrap();
    let letter = Letter { from: A, to: B, epoch: Epoch(2), body: Body::News(old.clone()) };
    assert_eq!((standby.step(Event::Heard(letter)), standby.leads()), (vec![Action::Read], None));
    // The arbiter itself is believed.
    standby.step(Event::Arbiter(old));
    assert_eq!(standby.leads(), Some(Epoch(2)));
}

#[test]
fn a_member_held_out_leads_nothing_and_is_not_counted_on() {
    let (shape, mut group) = pair();
    assert!(group.word(1, Word::Out(true)));
    settle(&mut group, &shape, &Faults::none(2));
    assert!(group.arbiter.in_sync.is_only(A));
    group.submit(&shape, 0, 1);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((group.acked.len(), group.seats[1].log.len()), (1, 1), "it still follows");
    assert!(!group.word(0, Word::HandOver(B)));
    group.word(1, Word::Out(false));
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!(group.arbiter.in_sync.len(), 2);
}

#[test]
fn a_member_told_to_stay_out_after_it_asked_to_lead_does_not_lead() {
    // The primary died, its standby asked the arbiter, which was away, and a person told the standby to stay out. When the arbiter was
    // back, what had been asked came true, and the standby led.
    for comes_true in [false, true] {
        let (shape, mut group) = pair();
        group.submit(&shape, 0, 1);
        settle(&mut group, &shape, &Faults::none(2));
        group.crash(0, Crash::Power);
        let alone = Faults { up: vec![false, true], ..Faults::none(2) };
        group.tell(1);
        group.step(1, Event::Silent(A));
        group.tell(1);
        let late: Vec<Wire> = group.net.iter().filter(|wire| matches!(wire, Wire::Change { .. })).cloned().collect();
        assert_eq!(late.len(), 1);
        settle(&mut group, &shape, &Faults { hears_arbiter: vec![false, false], ..alone.clone() });
        assert_eq!(standing(&group, 1), Standing::Waits(Why::Asked));
        assert!(group.word(1, Word::Out(true)));
        // What it had asked may come true late. Else what it asks in its place does, and that is what it was.
        if comes_true {
            late.iter().for_each(|wire| group.deliver(&shape, wire));
        }
        settle(&mut group, &shape, &alone);
        late.iter().for_each(|wire| group.deliver(&shape, wire));
        settle(&mut group, &shape, &alone);
        let led = if comes_true { (Some(B), Epoch(2)) } else { (Some(A), Epoch(1)) };
        assert_eq!((group.arbiter.primary, group.arbiter.epoch), led);
        assert_eq!(standing(&group, 1), Standing::Waits(Why::Out));
        // Once it may, it leads, with everything.
        assert!(group.word(1, Word::Out(false)));
        settle(&mut group, &shape, &alone);
        assert_eq!((standing(&group, 1), group.seats[1].log.len()), (Standing::Leads, 1));
        assert_eq!(group.broken, None);
    }
}

#[test]
fn a_standby_that_comes_back_with_an_older_copy_is_not_counted_on_for_what_it_said_before() {
    // Under ack durable a restart is the same life. The standby's folder was replaced by an older copy, it was taken into the set at once
    // for what it had confirmed before, and when the primary died it led without that.
    let shape = Shape::pair(Ack::Durable);
    for (taken_out, greets) in [(true, true), (true, false), (false, true)] {
        let mut group = formed(&shape);
        let older = group.seats[1].clone();
        for request in 1..=2 {
            group.submit(&shape, 0, request);
            settle(&mut group, &shape, &Faults::none(2));
        }
        assert_eq!(group.acked.len(), 2);
        group.crash(1, Crash::Power);
        if taken_out {
            settle(&mut group, &shape, &Faults { up: vec![true, false], ..Faults::none(2) });
            assert!(group.arbiter.in_sync.is_only(A));
        }
        let boots = group.seats[1].boots;
        group.seats[1] = Seat { node: None, boots, ..older };
        group.start(&shape, 1);
        for _ in 0..6 {
            (0..2).for_each(|at| group.step(at, Event::Tick));
            for wire in std::mem::take(&mut group.net) {
                // The lead may be told to it before its greeting arrives: then it sends none.
                let is_greeting = matches!(&wire, Wire::Letter(letter) if matches!(letter.body, Body::Hello { .. }));
                if !matches!(wire, Wire::Stream { .. }) && (greets || !is_greeting) {
                    group.deliver(&shape, &wire);
                }
            }
            (0..2).for_each(|at| group.tell(at));
        }
        assert_eq!((standing(&group, 1), group.seats[1].log.len()), (Standing::Follows(A), 0));
        assert!(group.arbiter.in_sync.is_only(A), "{taken_out}: {:?}", group.arbiter);
        // With everything it is counted on again.
        settle(&mut group, &shape, &Faults::none(2));
        assert_eq!((group.arbiter.in_sync.len(), group.seats[1].log.len(), group.broken), (2, 2, None));
    }
}

/// So often a command is executed, and the standby dies and comes back.
fn restarts(group: &mut Group, shape: &Shape, times: u8) {
    for request in 1..=times {
        group.submit(shape, 0, request);
        settle(group, shape, &Faults::none(2));
        group.crash(1, Crash::Power);
        settle(group, shape, &Faults { up: vec![true, false], ..Faults::none(2) });
        group.start(shape, 1);
        settle(group, shape, &Faults::none(2));
        assert_eq!(group.arbiter.in_sync.len(), 2);
    }
}

#[test]
fn a_standby_whose_folder_went_back_in_time_is_counted_on_again() {
    // Its starts were counted from an older number on, and what it said passed for late messages of an earlier life: as long as that
    // primary led, it was in no set, and nothing said why.
    for (ack, tells) in [(Ack::Received, true), (Ack::Written, true), (Ack::Received, false)] {
        let shape = Shape::pair(ack);
        let mut group = formed(&shape);
        let alone = Faults { up: vec![true, false], ..Faults::none(2) };
        let older = group.seats[1].clone();
        restarts(&mut group, &shape, 2);
        group.step(1, Event::Tick);
        let is_from_b = |wire: &&Wire| matches!(wire, Wire::Letter(letter) if letter.from == B);
        let late: Vec<Wire> = group.net.iter().filter(is_from_b).cloned().collect();
        assert!(!late.is_empty());
        group.crash(1, Crash::Power);
        if tells {
            settle(&mut group, &shape, &alone);
        } else {
            group.step(0, Event::Silent(B));
        }
        let back = older.back + 1;
        group.seats[1] = Seat { node: None, back, ..older };
        group.start(&shape, 1);
        settle(&mut group, &shape, &Faults::none(2));
        assert_eq!((group.arbiter.in_sync.len(), group.seats[1].log.len(), group.broken), (2, 2, None), "{ack:?}");
        // What its lost life said is late, and counts for nothing, whatever its number.
        let life = group.seats[1].life(ack);
        late.iter().for_each(|wire| group.deliver(&shape, wire));
        settle(&mut group, &shape, &Faults::none(2));
        assert_eq!(group.arbiter.in_sync.life(B), Some(life));
        // And it may start again.
        group.crash(1, Crash::Power);
        settle(&mut group, &shape, &alone);
        group.start(&shape, 1);
        settle(&mut group, &shape, &Faults::none(2));
        assert_eq!((group.arbiter.in_sync.len(), group.broken), (2, None), "{ack:?}");
    }
}

#[test]
fn a_life_that_was_asked_and_died_before_it_answered_keeps_no_later_one_out() {
    let shape = Shape::pair(Ack::Received);
    let mut group = formed(&shape);
    let alone = Faults { up: vec![true, false], ..Faults::none(2) };
    let older = group.seats[1].clone();
    restarts(&mut group, &shape, 3);
    group.crash(1, Crash::Power);
    settle(&mut group, &shape, &alone);
    let back = older.back + 1;
    group.seats[1] = Seat { node: None, back, ..older };
    group.start(&shape, 1);
    group.step(1, Event::Tick);
    let greets = |wire: &&Wire| matches!(wire, Wire::Letter(letter) if letter.from == B && matches!(letter.body, Body::Hello { .. }));
    let greeting: Vec<Wire> = group.net.iter().filter(greets).cloned().collect();
    assert!(!greeting.is_empty());
    greeting.iter().for_each(|wire| group.deliver(&shape, wire));
    group.crash(1, Crash::Power);
    group.start(&shape, 1);
    settle(&mut group, &shape, &Faults::none(2));
    assert_eq!((group.arbiter.in_sync.len(), group.seats[1].log.len(), group.broken), (2, 3, None));
}

#[test]
fn what_was_asked_of_an_arbiter_before_it_was_set_back_is_not_asked_of_it_again() {
    // It had gone on by as many changes under another primary, in an earlier epoch: what was asked before would have taken the lead from that one, and
    // what that one had acknowledged was gone; and both led.
    let (_, mut group) = pair();
    let known = group.arbiter.clone();
    let primary = group.seats[0].node.as_mut().unwrap();
    let asks = |action: &Action| matches!(action, Action::Change { .. });
    assert!(primary.step(Event::Silent(B)).iter().chain(&primary.step(Event::Tick)).any(asks));
    let earlier = Epoch(known.epoch.0 - 1);
    let only_b = InSync::only(B, known.in_sync.life(B).unwrap());
    let other = Configuration { epoch: earlier, primary: Some(B), in_sync: only_b, ..known };
    let actions = primary.step(Event::Arbiter(other.clone()));
    assert!(actions.contains(&Action::Yield) && !actions.iter().any(asks), "{actions:?}");
    assert!(!primary.step(Event::Tick).iter().any(asks));
    let (holds, seen) = (other.version, known.version);
    assert_eq!(primary.standing(), Standing::Waits(Why::ArbiterForgot { holds, seen }));
}

#[test]
fn words_that_cannot_be_followed_say_why() {
    let (_, mut group) = pair();
    let mut say = |at: usize, word| group.seats[at].node.as_mut().unwrap().word(word);
    assert_eq!(say(1, Word::HandOver(A)), Err(WordError::NotLeading));
    assert_eq!(say(0, Word::HandOver(Member(2))), Err(WordError::NotInSync(Member(2))));
    assert_eq!(say(0, Word::HandOver(A)), Err(WordError::Leading));
    assert_eq!(say(0, Word::Out(true)), Err(WordError::Leading));
    assert_eq!(say(1, Word::Out(true)).map(drop), Ok(()));
    assert_eq!(say(1, Word::Force), Err(WordError::Out));
}

#[test]
fn a_group_that_cannot_be_is_refused_at_the_door() {
    let life = crate::Life { disk: 1, memory: 1 };
    let start = |members: Vec<Member>, me, preferred| {
        let setup = Setup { me, members, preferred, life, ack: Ack::Durable };
        Node::start(setup, Configuration::default(), History::default(), false).map(drop)
    };
    assert_eq!(start(Vec::new(), A, A), Err(SetupError::Members(0)));
    assert_eq!(start((0..8).map(Member).collect(), A, A), Err(SetupError::Members(8)));
    assert_eq!(start((0..7).map(Member).collect(), A, A), Ok(()));
    assert_eq!(start(vec![A, B, A], A, A), Err(SetupError::Twice(A)));
    assert_eq!(start(vec![A], B, A), Err(SetupError::Unknown(B)));
    assert_eq!(start(vec![A], A, B), Err(SetupError::Unknown(B)));
}

#[test]
fn a_group_of_one_leads_and_acknowledges_what_is_on_its_disk() {
    let shape = Shape { members: 1, ..Shape::pair(Ack::Received) };
    let mut group = formed(&shape);
    group.submit(&shape, 0, 1);
    assert!(group.acked.is_empty());
    group.sync(0, true);
    assert_eq!(group.acked.len(), 1);
}

#[test]
fn what_is_stored_comes_before_what_follows_from_it() {
    let (_, mut group) = pair();
    let known = group.arbiter.promoted(B, group.seats[1].life(Ack::Received));
    let node = group.seats[1].node.as_mut().unwrap();
    let actions = node.step(Event::Arbiter(known.clone()));
    assert_eq!(actions[..2], [Action::Store(known), Action::Lead(Epoch(2))]);
}
