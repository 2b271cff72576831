//! What stories of a group have in common: a group that has formed, a primary as a value alone, and what a standby says to it.

use assent_ids::Epoch;
use assent_membership::{Ack, Body, Configuration, InSync, Life, Member, Reach, Sequence, Setup};

use crate::simulation_test::{Group, Shape};
use crate::toy_test::Toys;
use crate::{Entry, Input, Message, Opened, Output, Replica, Said, Settings, Told};

pub(crate) const A: Member = Member(0);
pub(crate) const B: Member = Member(1);

pub(crate) fn shape(ack: Ack) -> Shape {
    Shape::new(2, ack)
}

pub(crate) fn begun(shape: &Shape) -> Group<Toys> {
    Group::new(shape, 7, Toys::new(shape.ack))
}

pub(crate) fn formed(shape: &Shape) -> Group<Toys> {
    let mut group = begun(shape);
    group.run(600);
    assert_eq!(group.broken, None);
    assert_eq!(group.arbiter.in_sync.len(), usize::from(shape.members), "{}", group.brief());
    assert!(group.play.acked.len() > 5, "{}", group.brief());
    group
}

pub(crate) fn life(member: Member) -> Life {
    Life { disk: u64::from(member.0), memory: 1 }
}

/// A primary of two in epoch 1, as a value alone, with nothing in its log.
pub(crate) fn primary() -> Replica {
    primary_of(Ack::Received)
}

pub(crate) fn primary_of(ack: Ack) -> Replica {
    let setup = Setup { me: A, members: vec![A, B], preferred: A, life: life(A), ack };
    let (mut replica, _) = Replica::start(Settings::new(setup), Opened::default(), 0).unwrap();
    let in_sync = InSync::only(A, life(A)).with(B, life(B));
    let led = Configuration { version: 1, epoch: Epoch(1), primary: Some(A), in_sync, forced: false };
    let out = replica.step(Input::Arbiter(led), 0);
    assert!(out.contains(&Output::Lead(Epoch(1))), "{out:?}");
    replica
}

/// Of who was told no more than this.
pub(crate) fn digest(ack: Ack) -> u64 {
    Told::new(ack, "", "").digest()
}

pub(crate) fn said(from: Member, to: Member, said: Said) -> Input {
    said_of(Ack::Received, from, to, said)
}

pub(crate) fn said_of(ack: Ack, from: Member, to: Member, said: Said) -> Input {
    Input::Heard(Message { from, to, told: digest(ack), epoch: Epoch(1), said })
}

/// B holds so much.
pub(crate) fn holds(received: u64, durable: u64) -> Said {
    let reach = Reach { received: Sequence(received), written: Sequence(durable), durable: Sequence(durable) };
    Said::Letter(Body::Held { life: life(B), reach, beat: 0, out: false, promised_ms: 0 })
}

pub(crate) fn streamed(said: Vec<Said>) -> Vec<Entry> {
    said.into_iter()
        .flat_map(|said| if let Said::Stream { entries, .. } = said { entries } else { Vec::new() })
        .collect()
}

pub(crate) fn sent(outputs: Vec<Output>) -> Vec<Said> {
    outputs
        .into_iter()
        .filter_map(|output| if let Output::Send(message) = output { Some(message.said) } else { None })
        .collect()
}
