//! A node's place in its group, as it is told to people: who leads, who holds everything, and if nothing goes on, why.
//!
//! Walk: [`GroupStatus::of`] puts what a member says into words · it is laid into a status. Deliberately absent: deciding any of it.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Epoch;
use assent_membership::{Member, Sequence, Standing, Why};
use assent_replica::{Counts, Feeding};

/// What a node does in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads, and answers.
    Primary,
    /// It leads, and answers nothing that is new.
    Stalled,
    /// It follows the primary.
    Standby,
    /// Neither.
    Waiting,
    /// It has stopped: a person must look.
    Stopped,
}

/// A node's place in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its number.
    pub node: Member,
    /// What it does.
    pub role: Role,
    /// Why nothing goes on here, where it does not; and whom it does not listen to.
    pub why: Option<String>,
    /// Counts the primaries.
    pub epoch: Epoch,
    /// Counts the changes of who leads and who holds everything.
    pub version: u64,
    /// Who leads, as far as is known here.
    pub primary: Option<Member>,
    /// Who holds everything that was answered.
    pub in_sync: Vec<Member>,
    /// Whether a person's word made the primary.
    pub forced: bool,
    /// The end of its log.
    pub end: Sequence,
    /// Everything up to here is confirmed, as far as is known here.
    pub confirmed: Sequence,
    /// Everything up to here is executed.
    pub applied: Sequence,
    /// Everything up to here is on its disk.
    pub durable: Sequence,
    /// What its snapshot holds.
    pub snapshot: Sequence,
    /// The others, as the primary sees them.
    pub standbys: Vec<StandbyStatus>,
    /// What was counted since it started.
    pub counts: Vec<(String, u64)>,
}

/// Another member, as the primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyStatus {
    /// Its number.
    pub node: Member,
    /// Whether there is a connection.
    pub is_connected: bool,
    /// How far it has received, written and synced.
    pub held: [Sequence; 3],
    /// What it is sent: nothing, stream, log, snapshot.
    pub feeding: String,
}

impl GroupStatus {
    /// The names of what [`GroupStatus::counts`] has.
    pub fn counted() -> impl Iterator<Item = &'static str> {
        COUNTED.iter().map(|(name, _)| *name)
    }

    pub(crate) fn of(status: &assent_replica::Status) -> Self {
        let configuration = &status.configuration;
        let (role, why) = match (&status.halted, &status.standing) {
            (Some(why), _) => (Role::Stopped, Some(why.clone())),
            (None, Standing::Leads) => (Role::Primary, None),
            (None, Standing::Stalls(why)) => (Role::Stalled, Some(sentence(why))),
            (None, Standing::Follows(_)) => (Role::Standby, None),
            (None, Standing::Waits(why)) => (Role::Waiting, Some(sentence(why))),
        };
        let why = match (why, status.told_otherwise()) {
            (Some(why), Some(told)) => Some(format!("{why}; {told}")),
            (why, told) => why.or(told),
        };
        let standby = |lag: &assent_replica::Lag| StandbyStatus {
            node: lag.member,
            is_connected: lag.is_connected,
            held: [lag.held.received, lag.held.written, lag.held.durable],
            feeding: feeding(lag.feeding).to_owned(),
        };
        Self {
            node: status.member,
            role,
            why,
            epoch: configuration.epoch,
            version: configuration.version,
            primary: configuration.primary,
            in_sync: configuration.in_sync.iter().map(|(member, _)| member).collect(),
            forced: configuration.forced,
            end: status.end,
            confirmed: status.confirmed,
            applied: status.applied,
            durable: status.durable,
            snapshot: status.snapshot,
            // Only a primary knows how far the others are.
            standbys: match role {
                Role::Primary | Role::Stalled => status.others.iter().map(standby).collect(),
                _ => Vec::new(),
            },
            counts: COUNTED.map(|(name, of)| (name.to_owned(), of(&status.counts))).into(),
        }
    }
}

const fn feeding(feeding: Feeding) -> &'static str {
    match feeding {
        Feeding::Nothing => "nothing",
        Feeding::Memory => "stream",
        Feeding::Log => "log",
        Feeding::Snapshot => "snapshot",
    }
}

type Of = fn(&Counts) -> u64;

/// What a member counts, by name.
const COUNTED: [(&str, Of); 16] = [
    ("ordered", |counts| counts.ordered),
    ("refused", |counts| counts.refused),
    ("applied", |counts| counts.applied),
    ("reads", |counts| counts.reads),
    ("leads", |counts| counts.leads),
    ("yields", |counts| counts.yields),
    ("cuts", |counts| counts.cuts),
    ("slow", |counts| counts.slow),
    ("compared", |counts| counts.compared),
    ("snapshots", |counts| counts.snapshots),
    ("snapshots_failed", |counts| counts.snapshots_failed),
    ("snapshots_installed", |counts| counts.snapshots_installed),
    ("pieces_sent", |counts| counts.pieces_sent),
    ("catch_up_bytes", |counts| counts.catch_up_bytes),
    ("bytes_out", |counts| counts.bytes_out),
    ("bytes_in", |counts| counts.bytes_in),
];

/// Why a command is not taken here, in one sentence.
pub(crate) fn why_not_here(status: &assent_replica::Status) -> String {
    let node = status.member;
    match (&status.halted, &status.standing) {
        (Some(why), _) => format!("node {node} has stopped: {why}"),
        (None, Standing::Follows(primary)) => format!("node {node} is a standby of node {primary}: ask there"),
        (None, Standing::Leads) => format!("node {node} has just begun to lead: ask again"),
        (None, Standing::Stalls(why) | Standing::Waits(why)) => {
            format!("node {node} takes no commands: {}", sentence(why))
        }
    }
}

/// Why nothing goes on.
fn sentence(why: &Why) -> String {
    let nodes = |members: &[Member]| {
        let numbers: Vec<String> = members.iter().map(ToString::to_string).collect();
        format!("node{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
    };
    match why {
        Why::Unconfirmed(members) => {
            format!("{} must confirm and do not, and the arbiter has not taken them out", nodes(members))
        }
        Why::HandingOver => "it gives the lead away".to_owned(),
        Why::ArbiterUnread => "the arbiter has not said what it holds: is it reached?".to_owned(),
        Why::ArbiterForgot { holds, seen } if holds >= seen => format!(
            "the arbiter holds version {holds} of another history than {seen}, which was seen before: it was set back, and another \
             node led by it; restore it, or say `force` to the node that holds everything; if that one leads, restart it, and start the \
             other one from an empty folder"
        ),
        Why::ArbiterForgot { holds, seen } => format!(
            "the arbiter holds version {holds}, and {seen} was seen before: it has forgotten; restore it, or say `force`"
        ),
        Why::ArbiterRefuses => "the arbiter answers, and takes no change: is its disk full?".to_owned(),
        Why::Asked => "it asked the arbiter for the lead and has no answer".to_owned(),
        Why::PrimaryExpected(member) => format!("node {member} leads as far as is known, and is not heard"),
        Why::NotInSync(members) => format!(
            "it does not hold everything that was answered; {} may: start them, or say `force` and lose what is missing",
            nodes(members)
        ),
        Why::Missing(members) => format!("{} may know more and were not heard", nodes(members)),
        Why::Outranked(member) => format!("node {member} knows more"),
        Why::Unsynced => "its log must reach the disk first".to_owned(),
        Why::Out => "it was told to stay out; `release` takes that back".to_owned(),
    }
}

impl Role {
    const ALL: [Self; 5] = [Self::Primary, Self::Stalled, Self::Standby, Self::Waiting, Self::Stopped];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Stalled => "stalled",
            Self::Standby => "standby",
            Self::Waiting => "waiting",
            Self::Stopped => "stopped",
        }
    }

    fn number(self) -> u8 {
        Self::ALL.iter().position(|role| *role == self).and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
    }
}

impl GroupStatus {
    pub(crate) fn lay(&self, out: &mut Writer) {
        let flag = |is: bool| u8::from(is);
        out.u8(self.node.0).u8(self.role.number());
        out.u8(flag(self.why.is_some())).text(self.why.as_deref().unwrap_or_default());
        out.u32(self.epoch.0).u64(self.version);
        out.u8(flag(self.primary.is_some())).u8(self.primary.map_or(0, |member| member.0)).u8(flag(self.forced));
        for sequence in [self.end, self.confirmed, self.applied, self.durable, self.snapshot] {
            out.u64(sequence.0);
        }
        out.u8(u8::try_from(self.in_sync.len()).unwrap_or(u8::MAX));
        self.in_sync.iter().for_each(|member| _ = out.u8(member.0));
        out.u8(u8::try_from(self.standbys.len()).unwrap_or(u8::MAX));
        for one in &self.standbys {
            out.u8(one.node.0).u8(flag(one.is_connected)).text(&one.feeding);
            one.held.iter().for_each(|sequence| _ = out.u64(sequence.0));
        }
        out.u16(u16::try_from(self.counts.len()).unwrap_or(u16::MAX));
        self.counts.iter().for_each(|(name, count)| _ = out.text(name).u64(*count));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (node, role) = (Member(reader.u8("node")?), reader.u8("role")?);
        let role = Role::ALL.get(usize::from(role)).copied().ok_or(Malformed { field: "role" })?;
        let has_why = reader.u8("why")? == 1;
        let why = Some(reader.text("why")?.to_owned()).filter(|_| has_why);
        let (epoch, version) = (Epoch(reader.u32("epoch")?), reader.u64("version")?);
        let has_primary = reader.u8("primary")? == 1;
        let primary = Some(Member(reader.u8("primary")?)).filter(|_| has_primary);
        let forced = reader.u8("forced")? == 1;
        let mut places = [Sequence(0); 5];
        for place in &mut places {
            *place = Sequence(reader.u64("place")?);
        }
        let [end, confirmed, applied, durable, snapshot] = places;
        let in_sync = (0..reader.u8("in sync")?).map(|_| reader.u8("member").map(Member)).collect::<Result<_, _>>()?;
        let standbys =
            (0..reader.u8("standbys")?).map(|_| StandbyStatus::read(reader)).collect::<Result<Vec<_>, _>>()?;
        let mut counts = Vec::new();
        for _ in 0..reader.u16("counts")? {
            counts.push((reader.text("count")?.to_owned(), reader.u64("count")?));
        }
        Ok(Self {
            node,
            role,
            why,
            epoch,
            version,
            primary,
            in_sync,
            forced,
            end,
            confirmed,
            applied,
            durable,
            snapshot,
            standbys,
            counts,
        })
    }
}

impl StandbyStatus {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (node, is_connected) = (Member(reader.u8("standby")?), reader.u8("connected")? == 1);
        let feeding = reader.text("feeding")?.to_owned();
        let mut held = [Sequence(0); 3];
        for place in &mut held {
            *place = Sequence(reader.u64("held")?);
        }
        Ok(Self { node, is_connected, held, feeding })
    }
}

#[cfg(test)]
pub(crate) fn example() -> GroupStatus {
    let held = [Sequence(9), Sequence(8), Sequence(7)];
    GroupStatus {
        node: Member(2),
        role: Role::Stalled,
        why: Some("nobody confirms".to_owned()),
        epoch: Epoch(4),
        version: 11,
        primary: Some(Member(2)),
        in_sync: vec![Member(1), Member(2)],
        forced: true,
        end: Sequence(10),
        confirmed: Sequence(9),
        applied: Sequence(9),
        durable: Sequence(8),
        snapshot: Sequence(3),
        standbys: vec![StandbyStatus { node: Member(1), is_connected: true, held, feeding: "stream".to_owned() }],
        counts: vec![("leads".to_owned(), 1)],
    }
}
