//! The binary protocol of assets: frames, whose mark is the client's number of the request.
//!
//! ```text
//!   command 0x51   a command as it will stand in the log       -> answer 0x52, as the state machine laid it
//!   ask 0x54       | version 1 | what 1 | ... |                -> status 0x55; nothing but news for a subscription
//!                  what: 1 status · 2 write a snapshot · 3 subscribe: most 4, assets 4, each 8 (no asset: all)
//!                  a person's word: 4 hand the lead to: node 1 · 5 stay out · 6 come back · 7 lead, by force · 8 that is settled
//!   refused 0x53   | kind 1 | text |                           instead of any answer: nothing was done, or it is in doubt
//!   news 0x56      | each: what 1 (0 gone, 1 changed, 2 missed), three numbers and an asset |   under the subscription's mark
//! ```
//!   elsewhere 0x57 | length 4, where its clients find the primary, if it is known | length 4, why |   from this request on nothing
//!                  of this connection was done, or will be
//! Answers come in the order of their requests. Deliberately absent: TLS and accounts.

use assent_frame::{Head, Malformed, Reader, lay, lay_with};
use assent_kind::Kind;
use assent_membership::{Ack, Member, Sequence};

use crate::asset::{Asset, AssetId};
use crate::engine::Stats;
use crate::refusal::{signed, signless};
use crate::standing::GroupStatus;
use crate::subscribe::{Change, News, WANTED_MAX};
use crate::trace::StepTimes;

pub(crate) const KIND_COMMAND: u16 = 0x51;
pub(crate) const KIND_ANSWER: u16 = 0x52;
pub(crate) const KIND_REFUSED: u16 = 0x53;
pub(crate) const KIND_ASK: u16 = 0x54;
pub(crate) const KIND_STATUS: u16 = 0x55;
pub(crate) const KIND_NEWS: u16 = 0x56;
pub(crate) const KIND_ELSEWHERE: u16 = 0x57;
const VERSION: u8 = 3;
/// The longest message of a client: a subscription to the most assets.
pub(crate) const ASKED_BYTES_MAX: usize = 16 + 8 * WANTED_MAX;

/// What is asked beside commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Status,
    Snapshot,
    Subscribe { wanted: Vec<AssetId>, most: u32 },
    Word(Word),
}

/// A person's word to a node of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Give the lead to this node.
    HandOver(Member),
    /// Stay out: lead nothing, and be counted on for nothing.
    HoldOut,
    /// Come back.
    Release,
    /// Lead, although nothing says that you hold everything.
    Force,
    /// What that may have lost is settled: the status need not say it any more.
    Settle,
}

/// How a server is, in every state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What an answer has behind it.
    pub ack: Ack,
    /// Milliseconds after which an acknowledged command is durable at the latest; 0 where it is before.
    pub window_ms: u64,
    /// Whether it takes commands; else why not.
    pub closed: Option<String>,
    /// Its numbers.
    pub stats: Stats,
    /// What the steps of sampled commands took.
    pub steps: Vec<StepTimes>,
    /// The newest sampled command as a table.
    pub trace: String,
    /// Its place in its group, if it has one.
    pub group: Option<GroupStatus>,
}

impl Ask {
    pub(crate) fn lay(&self, out: &mut Vec<u8>, mark: u64) {
        lay_with(out, Head { mark, kind: KIND_ASK, ..Head::default() }, |out| {
            out.u8(VERSION);
            match self {
                Self::Status => _ = out.u8(1),
                Self::Snapshot => _ = out.u8(2),
                Self::Word(Word::HandOver(to)) => _ = out.u8(4).u8(to.0),
                Self::Word(Word::HoldOut) => _ = out.u8(5),
                Self::Word(Word::Release) => _ = out.u8(6),
                Self::Word(Word::Force) => _ = out.u8(7),
                Self::Word(Word::Settle) => _ = out.u8(8),
                Self::Subscribe { wanted, most } => {
                    out.u8(3).u32(*most).u32(u32::try_from(wanted.len()).unwrap_or(u32::MAX));
                    wanted.iter().for_each(|id| _ = out.u64(id.0));
                }
            }
        });
    }

    pub(crate) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        if reader.u8("version")? != VERSION {
            return Err(Malformed { field: "version" });
        }
        let ask = match reader.u8("what")? {
            1 => Self::Status,
            2 => Self::Snapshot,
            3 => {
                let (most, count) = (reader.u32("most")?, reader.u32("assets")?);
                let wanted = (0..count).map(|_| reader.u64("asset").map(AssetId)).collect::<Result<_, _>>()?;
                Self::Subscribe { wanted, most }
            }
            4 => Self::Word(Word::HandOver(Member(reader.u8("node")?))),
            5 => Self::Word(Word::HoldOut),
            6 => Self::Word(Word::Release),
            7 => Self::Word(Word::Force),
            8 => Self::Word(Word::Settle),
            _ => return Err(Malformed { field: "what" }),
        };
        reader.end()?;
        Ok(ask)
    }
}

pub(crate) fn lay_refused(out: &mut Vec<u8>, mark: u64, kind: Kind, text: &str) {
    let head = Head { mark, kind: KIND_REFUSED, ..Head::default() };
    lay(out, head, &[&[kind.wire()], text.as_bytes()]);
}

pub(crate) fn read_refused(payload: &[u8]) -> Result<(Kind, String), Malformed> {
    let mut reader = Reader::new(payload);
    let kind = Kind::from_wire(reader.u8("kind")?);
    Ok((kind, String::from_utf8_lossy(reader.rest()).into_owned()))
}

pub(crate) fn lay_elsewhere(out: &mut Vec<u8>, mark: u64, primary: &str, why: &str) {
    lay_with(out, Head { mark, kind: KIND_ELSEWHERE, ..Head::default() }, |out| _ = out.text(primary).text(why));
}

/// Where the primary is, if it is known, and why it is not here.
pub(crate) fn read_elsewhere(payload: &[u8]) -> Result<(String, String), Malformed> {
    let mut reader = Reader::new(payload);
    let (primary, why) = (reader.text("primary")?.to_owned(), reader.text("why")?.to_owned());
    reader.end()?;
    Ok((primary, why))
}

pub(crate) fn lay_news(out: &mut Vec<u8>, mark: u64, news: &[News]) {
    lay_with(out, Head { mark, kind: KIND_NEWS, ..Head::default() }, |out| {
        for one in news {
            match one {
                News::Change(Change { sequence, id, asset }) => {
                    let Asset { value, updates } = asset.unwrap_or_default();
                    out.u8(u8::from(asset.is_some())).u64(sequence.0).u64(id.0).u64(signless(value)).u64(updates);
                }
                News::Missed { changes, first, last } => {
                    out.u8(2).u64(*changes).u64(first.0).u64(last.0).u64(0);
                }
            }
        }
    });
}

pub(crate) fn read_news(payload: &[u8]) -> Result<Vec<News>, Malformed> {
    let mut reader = Reader::new(payload);
    let mut news = Vec::new();
    while !reader.rest().is_empty() {
        let what = reader.u8("news")?;
        let (one, two) = (reader.u64("sequence")?, reader.u64("asset")?);
        let (three, four) = (reader.u64("value")?, reader.u64("updates")?);
        news.push(match what {
            0 | 1 => {
                let asset = (what == 1).then_some(Asset { value: signed(three), updates: four });
                News::Change(Change { sequence: Sequence(one), id: AssetId(two), asset })
            }
            2 => News::Missed { changes: one, first: Sequence(two), last: Sequence(three) },
            _ => return Err(Malformed { field: "news" }),
        });
    }
    Ok(news)
}

const fn ack_byte(ack: Ack) -> u8 {
    match ack {
        Ack::None => 0,
        Ack::Received => 1,
        Ack::Written => 2,
        Ack::Durable => 3,
    }
}

impl Status {
    /// Commands executed: of a node of a group since it began, of one alone all that its state has.
    #[must_use]
    pub fn commands(&self) -> u64 {
        let of_group = self.group.as_ref().and_then(|group| group.counts.iter().find(|(name, _)| name == "applied"));
        of_group.map_or(self.stats.sequence.0, |(_, commands)| *commands)
    }

    pub(crate) fn lay(&self, out: &mut Vec<u8>, mark: u64) {
        let stats = &self.stats;
        let count = |many: usize| u64::try_from(many).unwrap_or(u64::MAX);
        let numbers = [
            count(stats.assets),
            count(stats.sessions),
            count(stats.session_bytes),
            count(stats.in_doubt),
            stats.sequence.0,
            stats.hash,
            stats.unsynced_bytes,
            stats.replay_bytes,
            count(stats.memory_bytes),
            count(stats.subscriptions),
        ];
        lay_with(out, Head { mark, kind: KIND_STATUS, ..Head::default() }, |out| {
            out.u8(VERSION).u8(ack_byte(self.ack)).u64(self.window_ms);
            out.u8(u8::from(self.closed.is_some())).text(self.closed.as_deref().unwrap_or_default());
            numbers.iter().for_each(|number| _ = out.u64(*number));
            out.u32(u32::try_from(self.steps.len()).unwrap_or(u32::MAX));
            for step in &self.steps {
                out.text(&step.name);
                step.numbers.iter().for_each(|number| _ = out.u64(*number));
                out.u64(step.sum_us).u8(u8::try_from(step.spread.len()).unwrap_or(u8::MAX));
                step.spread.iter().for_each(|count| _ = out.u64(*count));
            }
            out.text(&self.trace);
            out.u8(u8::from(self.group.is_some()));
            self.group.iter().for_each(|group| group.lay(out));
        });
    }

    pub(crate) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        if reader.u8("version")? != VERSION {
            return Err(Malformed { field: "version" });
        }
        let ack = match reader.u8("ack")? {
            0 => Ack::None,
            1 => Ack::Received,
            2 => Ack::Written,
            3 => Ack::Durable,
            _ => return Err(Malformed { field: "ack" }),
        };
        let window_ms = reader.u64("window")?;
        let is_closed = reader.u8("closed")? == 1;
        let reason = reader.text("reason")?.to_owned();
        let mut number = || reader.u64("number");
        let mut many = || number().map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let (assets, sessions, session_bytes, in_doubt) = (many()?, many()?, many()?, many()?);
        let (sequence, hash, unsynced_bytes, replay_bytes) = (Sequence(number()?), number()?, number()?, number()?);
        let mut many = || reader.u64("number").map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let (memory_bytes, subscriptions) = (many()?, many()?);
        let stats = Stats {
            assets,
            sessions,
            session_bytes,
            in_doubt,
            sequence,
            hash,
            unsynced_bytes,
            replay_bytes,
            memory_bytes,
            subscriptions,
        };
        let mut steps = Vec::new();
        for _ in 0..reader.u32("steps")? {
            let name = reader.text("step")?.to_owned();
            let mut numbers = [0; 5];
            for number in &mut numbers {
                *number = reader.u64("percentile")?;
            }
            let sum_us = reader.u64("sum")?;
            let spread = (0..reader.u8("counts")?).map(|_| reader.u64("count")).collect::<Result<_, _>>()?;
            steps.push(StepTimes { name, numbers, sum_us, spread });
        }
        let trace = reader.text("trace")?.to_owned();
        let group = if reader.u8("group")? == 1 { Some(GroupStatus::read(&mut reader)?) } else { None };
        reader.end()?;
        Ok(Self { ack, window_ms, closed: is_closed.then_some(reason), stats, steps, trace, group })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_every_cut_of_them_is_refused() {
        let asset = Some(Asset { value: -4, updates: 2 });
        let news = vec![
            News::Change(Change { sequence: Sequence(1), id: AssetId(2), asset }),
            News::Change(Change { sequence: Sequence(2), id: AssetId(2), asset: None }),
            News::Missed { changes: 3, first: Sequence(4), last: Sequence(9) },
        ];
        let stats = Stats {
            assets: 1,
            sessions: 2,
            session_bytes: 3,
            in_doubt: 4,
            sequence: Sequence(5),
            hash: 6,
            unsynced_bytes: 7,
            replay_bytes: 8,
            memory_bytes: 9,
            subscriptions: 10,
        };
        let status = Status {
            ack: Ack::Written,
            window_ms: 5,
            closed: Some("rot".to_owned()),
            stats,
            steps: vec![StepTimes {
                name: "queued".to_owned(),
                numbers: [1, 2, 3, 4, 5],
                sum_us: 9,
                spread: vec![1, 0, 2],
            }],
            trace: "a table".to_owned(),
            group: Some(crate::standing::example()),
        };
        let payload = |lay: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            lay(&mut out);
            let (frame, _) = assent_frame::parse(&out, 1 << 20).unwrap().unwrap();
            assert_eq!(frame.mark, 7);
            frame.payload.to_vec()
        };
        let bytes = payload(&|out| status.lay(out, 7));
        assert_eq!(Status::read(&bytes).as_ref(), Ok(&status));
        assert!((0..bytes.len()).all(|end| Status::read(&bytes[..end]).is_err()));
        let bytes = payload(&|out| lay_news(out, 7, &news));
        assert_eq!(read_news(&bytes).as_ref(), Ok(&news));
        assert!((0..bytes.len()).all(|end| read_news(&bytes[..end]).as_ref() != Ok(&news)));
        let words = [Word::HandOver(Member(2)), Word::HoldOut, Word::Release, Word::Force, Word::Settle].map(Ask::Word);
        let subscribe = Ask::Subscribe { wanted: vec![AssetId(9), AssetId(1)], most: 5 };
        for ask in [Ask::Status, Ask::Snapshot, subscribe].into_iter().chain(words) {
            let bytes = payload(&|out| ask.lay(out, 7));
            assert_eq!(Ask::read(&bytes).as_ref(), Ok(&ask));
            assert!((0..bytes.len()).all(|end| Ask::read(&bytes[..end]).is_err()));
        }
        let bytes = payload(&|out| lay_refused(out, 7, Kind::Full, "why"));
        assert_eq!(read_refused(&bytes), Ok((Kind::Full, "why".to_owned())));
        let bytes = payload(&|out| lay_elsewhere(out, 7, "here:1", "why"));
        assert_eq!(read_elsewhere(&bytes), Ok(("here:1".to_owned(), "why".to_owned())));
        assert!((0..bytes.len()).all(|end| read_elsewhere(&bytes[..end]).is_err()));
    }
}
