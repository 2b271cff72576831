//! Every role against every event, the ones that do not fit too. One member of a pair, with one entry in its log that is not
//! synced yet; the other one is `1`, and leads where somebody else does.

use assent_ids::Epoch;

use crate::{
    Ack, Action, Body, Configuration, Event, History, InSync, Letter, Life, Member, Node, Place, Reach, Sequence, Setup,
};

const ME: Member = Member(0);
const OTHER: Member = Member(1);
const LIFE: Life = Life { disk: 1, memory: 1 };

#[derive(Clone, Copy, Debug)]
enum Role {
    /// Just started, and in the set.
    Started,
    /// The primary is lost, and the arbiter has not spoken.
    Lost,
    /// It has asked to lead.
    Asked,
    Follows,
    /// It leads, the other one is in sync.
    Leads,
    /// It leads alone.
    Alone,
}

fn configuration(version: u64, epoch: u32, primary: Member, both: bool) -> Configuration {
    let set = InSync::only(primary, LIFE);
    let set = if both { set.with(ME, LIFE).with(OTHER, LIFE) } else { set };
    Configuration { version, epoch: Epoch(epoch), primary: Some(primary), in_sync: set, forced: false }
}

fn said(epoch: u32, body: Body) -> Event {
    Event::Heard(Letter { from: OTHER, to: ME, epoch: Epoch(epoch), body })
}

fn lead(version: u64, epoch: u32, aside: bool) -> Event {
    let configuration = configuration(version, epoch, OTHER, true);
    said(epoch, Body::Lead { configuration, base: History::default(), beat: 3, aside })
}

fn held(epoch: u32, received: u64, beat: u64) -> Event {
    let end = Sequence(received);
    let reach = Reach { received: end, ..Reach::default() };
    said(epoch, Body::Held { life: LIFE, reach, beat, out: false, promised_ms: 0 })
}

fn hello(epoch: u32, memory: u64) -> Event {
    let place = Place { epoch: Epoch(1), sequence: Sequence(1) };
    said(epoch, Body::Hello { version: 5, life: Life { disk: 1, memory }, place })
}

fn log(durable: u64) -> Event {
    let reach = Reach { received: Sequence(1), written: Sequence(durable), durable: Sequence(durable) };
    Event::Log { epoch: Epoch(2), reach }
}

/// Epoch 2, version 5: whoever leads, both are in the set, but for the one alone.
fn standing(role: Role) -> Node {
    let leads = matches!(role, Role::Leads | Role::Alone);
    let known = configuration(5, 2, if leads { ME } else { OTHER }, !matches!(role, Role::Alone));
    let setup = Setup { me: ME, members: vec![ME, OTHER], preferred: ME, life: LIFE, ack: Ack::Received };
    let before = if leads { Configuration::default() } else { known.clone() };
    let (mut node, _) = Node::start(setup, before, History::default(), false).unwrap();
    let way: Vec<Event> = match role {
        Role::Started => vec![log(0)],
        Role::Lost => vec![lead(5, 2, false), log(0), Event::Silent(OTHER)],
        Role::Asked => vec![lead(5, 2, false), log(1), Event::Silent(OTHER), Event::Arbiter(known)],
        Role::Follows => vec![lead(5, 2, false), log(0)],
        Role::Leads => vec![Event::Arbiter(known), held(2, 0, 0), log(0)],
        Role::Alone => vec![Event::Arbiter(known), log(0)],
    };
    for event in way {
        node.step(event);
    }
    node
}

fn events(role: Role) -> Vec<(&'static str, Event)> {
    let (leader, other) = if matches!(role, Role::Leads | Role::Alone) { (ME, OTHER) } else { (OTHER, ME) };
    let known = configuration(5, 2, leader, !matches!(role, Role::Alone));
    vec![
        ("tick", Event::Tick),
        ("arbiter holds what is known", Event::Arbiter(known)),
        ("arbiter holds a new epoch of mine", Event::Arbiter(configuration(6, 3, ME, true))),
        ("arbiter holds a new epoch of the other", Event::Arbiter(configuration(6, 3, OTHER, true))),
        ("arbiter holds an old one", Event::Arbiter(configuration(3, 1, OTHER, true))),
        ("arbiter holds another one of this version", Event::Arbiter(configuration(5, 2, other, true))),
        ("arbiter holds this epoch of another one", Event::Arbiter(configuration(7, 2, other, true))),
        ("arbiter refuses", Event::Refused { expect: 5, to: configuration(6, 3, ME, false) }),
        ("arbiter silent", Event::ArbiterSilent),
        ("other silent", Event::Silent(OTHER)),
        ("patience", Event::Patience),
        ("synced", log(1)),
        ("keep", Event::Keep(Sequence(1))),
        ("ask", Event::Ask),
        ("hello", hello(2, 1)),
        ("hello of another life", hello(2, 2)),
        ("hello of a higher epoch", hello(3, 1)),
        ("leads, lower epoch", lead(4, 1, false)),
        ("leads, this epoch", lead(5, 2, false)),
        ("leads, this epoch, aside", lead(5, 2, true)),
        ("leads, higher epoch", lead(6, 3, false)),
        ("held, lower epoch", held(1, 1, 9)),
        ("held, this epoch", held(2, 1, 9)),
        ("held, higher epoch", held(3, 1, 9)),
        ("news", said(3, Body::News(configuration(6, 3, OTHER, true)))),
    ]
}

fn cell(mut node: Node, event: Event) -> String {
    let words: Vec<String> = node.step(event).iter().map(word).collect();
    let role = match node.standing() {
        crate::Standing::Leads => "leads",
        crate::Standing::Stalls(_) => "stalls",
        crate::Standing::Follows(_) => "follows",
        crate::Standing::Waits(_) => "waits",
    };
    format!("{role}: {}", words.join(" "))
}

fn word(action: &Action) -> String {
    match action {
        Action::Store(known) => format!("store{}", known.version),
        Action::Send(letter) => match &letter.body {
            Body::Hello { .. } => "hello".to_owned(),
            Body::Lead { aside: true, .. } => "lead-aside".to_owned(),
            Body::Lead { .. } => "lead".to_owned(),
            Body::Held { beat, .. } => format!("held@{beat}"),
            Body::News(_) => "news".to_owned(),
        },
        Action::Read => "read".to_owned(),
        Action::Change { to, .. } => {
            let set: Vec<String> = to.in_sync.iter().map(|(member, _)| member.to_string()).collect();
            format!("change(e{} {{{}}})", to.epoch, set.join(","))
        }
        Action::Lead(epoch) => format!("LEAD{epoch}"),
        Action::Yield => "YIELD".to_owned(),
        Action::Follow { cut, .. } => format!("FOLLOW(cut {cut})"),
        Action::Sync => "sync".to_owned(),
        Action::Release(to) => format!("RELEASE{to}"),
        Action::Kept(to) => format!("KEPT{to}"),
        Action::Confirmed(beat) => format!("CONFIRMED{beat}"),
    }
}

#[rustfmt::skip]
const TABLE: &[(Role, &[&str])] = &[
    // tick; the arbiter holds: what is known, a new epoch of mine, one of the other's, an old one, another one of this version, this epoch
    // of another one; the arbiter refuses to let it lead, is silent;
    // the other is silent, patience, synced, a vote waits, a read asks; hello: of this life, another life, a higher epoch;
    // leads: a lower epoch, this one, this one and aside, a higher one; held: a lower epoch, this one, a higher one; news
    (Role::Started, &[
        "waits: hello read",
        "waits: ", "stalls: store6 LEAD3 lead", "waits: store6 hello read", "waits: ", "waits: ", "waits: ", "waits: ", "waits: ",
        "waits: ", "waits: ", "waits: ", "waits: ", "waits: ",
        "waits: ", "waits: ", "waits: ",
        "waits: news", "follows: FOLLOW(cut 1) held@3", "follows: FOLLOW(cut 1) read held@3", "follows: store6 hello read FOLLOW(cut 0) held@3",
        "waits: ", "waits: ", "waits: ", "waits: store6 hello read",
    ]),
    (Role::Lost, &[
        "waits: hello read",
        "waits: sync", "stalls: store6 LEAD3 lead", "waits: store6 hello read", "waits: ", "waits: ", "waits: ", "waits: ", "waits: ",
        "waits: ", "waits: ", "waits: ", "waits: ", "waits: ",
        "waits: ", "waits: ", "waits: ",
        "waits: news", "follows: FOLLOW(cut 1) held@3", "follows: FOLLOW(cut 1) read held@3", "follows: store6 hello read FOLLOW(cut 0) held@3",
        "waits: ", "waits: ", "waits: ", "waits: store6 hello read",
    ]),
    (Role::Asked, &[
        "waits: hello read change(e3 {0})",
        "waits: ", "stalls: store6 LEAD3 lead", "waits: store6 hello read", "waits: ", "waits: ", "waits: ", "waits: ", "waits: ",
        "waits: ", "waits: ", "waits: ", "waits: ", "waits: ",
        "waits: ", "waits: ", "waits: ",
        "waits: news", "waits: ", "waits: ", "follows: store6 hello read FOLLOW(cut 0) held@3",
        "waits: ", "waits: ", "waits: ", "waits: store6 hello read",
    ]),
    (Role::Follows, &[
        "follows: held@3",
        "follows: ", "stalls: store6 LEAD3 lead", "waits: store6 hello read", "follows: ", "follows: ", "follows: ", "follows: ", "follows: ",
        "waits: hello read", "follows: ", "follows: held@3", "follows: ", "follows: ",
        "waits: hello read", "waits: hello read", "waits: hello read",
        "follows: news", "follows: held@3", "follows: read held@3", "follows: store6 hello read FOLLOW(cut 0) held@3",
        "follows: ", "follows: ", "follows: ", "waits: store6 hello read",
    ]),
    (Role::Leads, &[
        "leads: lead read",
        "leads: ", "stalls: store6 YIELD LEAD3 lead", "waits: store6 YIELD hello read", "leads: ", "waits: YIELD hello read", "waits: YIELD hello read", "leads: ", "leads: ",
        "stalls: change(e2 {0})", "leads: ", "leads: ", "leads: ", "leads: lead",
        "leads: lead", "stalls: lead change(e2 {0})", "waits: YIELD hello read",
        "leads: news", "leads: ", "leads: ", "follows: YIELD hello read store6 hello read FOLLOW(cut 0) held@3",
        "leads: ", "leads: RELEASE1", "waits: YIELD hello read", "waits: YIELD hello read store6 hello read",
    ]),
    (Role::Alone, &[
        "leads: lead read sync",
        "leads: sync", "stalls: store6 YIELD LEAD3 lead", "waits: store6 YIELD hello read", "leads: sync", "waits: YIELD hello read", "waits: YIELD hello read", "leads: sync", "leads: sync",
        "leads: sync", "leads: sync", "leads: RELEASE1", "leads: sync", "leads: lead sync CONFIRMED1",
        "leads: lead sync", "leads: lead sync", "waits: YIELD hello read",
        "leads: news sync", "leads: sync", "leads: sync", "follows: YIELD hello read store6 hello read FOLLOW(cut 0) held@3",
        "leads: sync", "leads: change(e2 {0,1}) sync", "waits: YIELD hello read", "waits: YIELD hello read store6 hello read",
    ]),
];

#[test]
fn every_role_answers_every_event_as_the_table_says() {
    let mut wrong = String::new();
    for role in [Role::Started, Role::Lost, Role::Asked, Role::Follows, Role::Leads, Role::Alone] {
        let row = TABLE.iter().find(|(of, _)| format!("{of:?}") == format!("{role:?}")).map_or(&[][..], |(_, row)| row);
        assert_eq!(row.len(), 25, "{role:?} has a row of {} cells", row.len());
        for (at, (name, event)) in events(role).into_iter().enumerate() {
            let seen = cell(standing(role), event);
            let expected = row.get(at).copied().unwrap_or("(missing)");
            if seen != expected {
                wrong.push_str(&format!("{role:?} x {name}:\n        {seen:?}, the table says {expected:?}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
