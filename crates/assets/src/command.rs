//! What can be asked, and how it is laid: the same bytes from the client, in the log, and to a standby.
//!
//! ```text
//!   0      1       2         4
//!   | what | flags | count   | session 8, request 8, window 4 (flag 1) | body …
//!   op:    | kind | asset 8 | no, one or three numbers of 8 |
//!   open, close:  | session 8 |
//! ```
//! `count` is how many ops follow, or which business logic is called.
//! Walk: [`Command::lay`] · [`Command::read`] checks everything, so that [`Ops`] cannot fail afterwards.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Xid;

use crate::asset::AssetId;
use crate::refusal::{signed, signless};

/// Operations of one command, at most.
pub const OPS_MAX: usize = 1_024;
/// Bytes of the input of business logic, at most.
pub const INPUT_BYTES_MAX: usize = 1 << 16;
/// Bytes of a command, at most: so is every answer below a megabyte.
pub const COMMAND_BYTES_MAX: usize = INPUT_BYTES_MAX + 1_024;
const FLAG_SESSION: u8 = 1;
const FLAG_KEPT: u8 = 2;

const _: () = assert!(OPS_MAX * 33 + 256 <= COMMAND_BYTES_MAX, "a batch of the longest ops is a command");

/// One step of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new asset with this value; refused if it is there.
    Create {
        /// Its name.
        id: AssetId,
        /// Its first value.
        value: i64,
    },
    /// The asset is gone. Its result is what it was.
    Remove {
        /// Which.
        id: AssetId,
    },
    /// What it is.
    Get {
        /// Which.
        id: AssetId,
    },
    /// Another value.
    Set {
        /// Which.
        id: AssetId,
        /// The value.
        value: i64,
    },
    /// So much more; refused where the sum leaves 64 bits.
    Add {
        /// Which.
        id: AssetId,
        /// How much, or how much less.
        by: i64,
    },
    /// So much more; refused where the sum is below `min` or above `max`.
    AddWithin {
        /// Which.
        id: AssetId,
        /// How much, or how much less.
        by: i64,
        /// The least that it may be then.
        min: i64,
        /// The most that it may be then.
        max: i64,
    },
    /// Another value, if it is what is expected.
    CompareAndSet {
        /// Which.
        id: AssetId,
        /// What it must be.
        expected: i64,
        /// The value.
        value: i64,
    },
}

impl Op {
    /// Which asset.
    #[must_use]
    pub const fn id(&self) -> AssetId {
        match self {
            Self::Create { id, .. }
            | Self::Remove { id }
            | Self::Get { id }
            | Self::Set { id, .. }
            | Self::Add { id, .. }
            | Self::AddWithin { id, .. }
            | Self::CompareAndSet { id, .. } => *id,
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Get { .. })
    }

    /// Its kind and its numbers, so many of them.
    const fn parts(&self) -> (u8, [i64; 3], usize) {
        match *self {
            Self::Get { .. } => (1, [0; 3], 0),
            Self::Create { value, .. } => (2, [value, 0, 0], 1),
            Self::Remove { .. } => (3, [0; 3], 0),
            Self::Set { value, .. } => (4, [value, 0, 0], 1),
            Self::Add { by, .. } => (5, [by, 0, 0], 1),
            Self::AddWithin { by, min, max, .. } => (6, [by, min, max], 3),
            Self::CompareAndSet { expected, value, .. } => (7, [expected, value, 0], 2),
        }
    }

    #[inline]
    fn of_parts(kind: u8, id: AssetId, mut number: impl FnMut() -> Result<i64, Malformed>) -> Result<Self, Malformed> {
        Ok(match kind {
            1 => Self::Get { id },
            2 => Self::Create { id, value: number()? },
            3 => Self::Remove { id },
            4 => Self::Set { id, value: number()? },
            5 => Self::Add { id, by: number()? },
            6 => Self::AddWithin { id, by: number()?, min: number()?, max: number()? },
            7 => Self::CompareAndSet { id, expected: number()?, value: number()? },
            _ => return Err(Malformed { field: "op" }),
        })
    }

    fn lay(&self, out: &mut Writer) {
        let (kind, numbers, count) = self.parts();
        out.u8(kind).u64(self.id().0);
        numbers.iter().take(count).for_each(|number| _ = out.u64(signless(*number)));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (kind, id) = (reader.u8("op")?, AssetId(reader.u64("asset")?));
        Self::of_parts(kind, id, || reader.u64("number").map(signed))
    }

    /// As short as its numbers are small.
    pub(crate) fn pack(&self, out: &mut Writer) {
        let (kind, numbers, count) = self.parts();
        out.u8(kind).varint(self.id().0);
        // The sign is the lowest bit: what is near zero is short on either side of it.
        numbers.iter().take(count).for_each(|number| _ = out.varint(signless(number << 1 ^ number >> 63)));
    }

    fn unpack(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (kind, id) = (reader.u8("op")?, AssetId(reader.varint("asset")?));
        let unsign = |packed: u64| signed(packed >> 1) ^ -signed(packed & 1);
        Self::of_parts(kind, id, || reader.varint("number").map(unsign))
    }
}

/// Operations as they were read: checked, and not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops<'a> {
    /// Most commands have no other one: it is looked at again and again, and read once.
    first: Op,
    behind: &'a [u8],
    count: u16,
    is_packed: bool,
}

impl<'a> Ops<'a> {
    fn read(bytes: &'a [u8], count: u16) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let ops = Self::take(&mut reader, count, false)?;
        reader.end()?;
        Ok(ops)
    }

    /// So many that [`Op::pack`] laid; what stands behind them is left.
    #[inline]
    pub(crate) fn unpack(reader: &mut Reader<'a>, count: u16) -> Result<Self, Malformed> {
        Self::take(reader, count, true)
    }

    #[inline]
    fn take(reader: &mut Reader<'a>, count: u16, is_packed: bool) -> Result<Self, Malformed> {
        if !(1..=OPS_MAX).contains(&usize::from(count)) {
            return Err(Malformed { field: "count" });
        }
        let first = next(reader, is_packed)?;
        let from = reader.rest();
        for _ in 1..count {
            next(reader, is_packed)?;
        }
        let behind = from.get(..from.len() - reader.rest().len()).unwrap_or_default();
        Ok(Self { first, behind, count, is_packed })
    }

    /// One after the other.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Op> + use<'a> {
        let (mut reader, is_packed) = (Reader::new(self.behind), self.is_packed);
        let behind = (1..self.count).map_while(move |_| next(&mut reader, is_packed).ok());
        std::iter::once(self.first).chain(behind)
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Whether none of them changes anything.
    #[must_use]
    pub fn are_reads(&self) -> bool {
        self.iter().all(|op| op.is_read())
    }
}

fn next(reader: &mut Reader<'_>, is_packed: bool) -> Result<Op, Malformed> {
    if is_packed { Op::unpack(reader) } else { Op::read(reader) }
}

/// Names a session: bits that its client rolled. Not a place in the log: one that a crash took back is given out again, and then two clients
/// would have one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName(pub u64);

/// Whose request it is, so that it is executed once, however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The session, which was opened before.
    pub session: SessionName,
    /// Counts the requests of the session, from 1.
    pub number: u64,
    /// So many of the last answers, this one counted, may be asked for again; earlier ones are forgotten.
    pub window: u32,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// All of these, or none.
    Batch(Ops<'a>),
    /// Business logic, in one atomic command.
    Call {
        /// Its number.
        logic: u16,
        /// For it.
        input: &'a [u8],
    },
    /// A session. Opened again before its first request, it is the same.
    Open {
        /// Its name, which its client rolled.
        session: SessionName,
    },
    /// The client of the session has all answers.
    Close {
        /// Which.
        session: SessionName,
    },
    /// A branch of a distributed transaction votes: what it will do, and until then nobody else changes these assets.
    Prepare {
        /// Its name.
        xid: Xid,
        /// What it does.
        ops: Ops<'a>,
    },
    /// The prepared branch takes place.
    Commit {
        /// Its name.
        xid: Xid,
    },
    /// The prepared branch does not.
    Rollback {
        /// Its name.
        xid: Xid,
    },
    /// Which branches wait for their outcome.
    InDoubt,
    /// What is known of a branch.
    Branch {
        /// Its name.
        xid: Xid,
    },
}

/// One command, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Whose request it is. Only batches and calls have one.
    pub request: Option<Request>,
    /// A batch that is all of a branch, committed in one phase: its answer is an outcome.
    pub is_branch: bool,
    /// What is asked.
    pub what: What<'a>,
}

impl<'a> Command<'a> {
    /// Reads a command, all of it.
    ///
    /// # Errors
    /// [`Malformed`] names the field: also for no operation, more than [`OPS_MAX`], and input beyond [`INPUT_BYTES_MAX`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (what, flags) = (reader.u8("what")?, reader.u8("flags")?);
        let count = reader.u16("count")?;
        let is_branch = flags & FLAG_KEPT != 0 && what == 1;
        let request = match if is_branch { flags & !FLAG_KEPT } else { flags } {
            0 => None,
            FLAG_SESSION if what <= 2 => Some(Request {
                session: SessionName(reader.u64("session")?),
                number: reader.u64("request")?,
                window: reader.u32("window")?,
            }),
            _ => return Err(Malformed { field: "flags" }),
        };
        let none = |reader: &Reader<'_>| if count == 0 { reader.end() } else { Err(Malformed { field: "count" }) };
        let what = match what {
            1 => What::Batch(Ops::read(reader.rest(), count)?),
            2 if reader.rest().len() <= INPUT_BYTES_MAX => What::Call { logic: count, input: reader.rest() },
            2 => return Err(Malformed { field: "input" }),
            3 | 4 => {
                let session = SessionName(reader.u64("session")?);
                none(&reader)?;
                if what == 3 { What::Open { session } } else { What::Close { session } }
            }
            5 => What::Prepare { xid: read_xid(&mut reader)?, ops: Ops::read(reader.rest(), count)? },
            6 | 7 | 9 => {
                let xid = read_xid(&mut reader)?;
                none(&reader)?;
                match what {
                    6 => What::Commit { xid },
                    7 => What::Rollback { xid },
                    _ => What::Branch { xid },
                }
            }
            8 => {
                none(&reader)?;
                What::InDoubt
            }
            _ => return Err(Malformed { field: "what" }),
        };
        Ok(Self { request, is_branch, what })
    }

    /// Lays a batch of operations.
    pub fn lay_batch(out: &mut Writer, request: Option<Request>, ops: &[Op]) {
        head(out, 1, request, u16::try_from(ops.len()).unwrap_or(u16::MAX));
        ops.iter().for_each(|op| op.lay(out));
    }

    /// Lays a batch that is all of a branch: what it does is told when it is on every disk that counts.
    pub fn lay_one_phase(out: &mut Writer, request: Option<Request>, ops: &[Op]) {
        let session = if request.is_some() { FLAG_SESSION } else { 0 };
        flagged(out, 1, session | FLAG_KEPT, request, u16::try_from(ops.len()).unwrap_or(u16::MAX));
        ops.iter().for_each(|op| op.lay(out));
    }

    /// Lays a call of business logic.
    pub fn lay_call(out: &mut Writer, request: Option<Request>, logic: u16, input: &[u8]) {
        head(out, 2, request, logic);
        out.raw(input);
    }

    /// Lays the opening of a session.
    pub fn lay_open(out: &mut Writer, session: SessionName) {
        head(out, 3, None, 0);
        out.u64(session.0);
    }

    /// Lays the end of a session.
    pub fn lay_close(out: &mut Writer, session: SessionName) {
        head(out, 4, None, 0);
        out.u64(session.0);
    }

    /// Lays what a branch will do.
    pub fn lay_prepare(out: &mut Writer, xid: &Xid, ops: &[Op]) {
        head(out, 5, None, u16::try_from(ops.len()).unwrap_or(u16::MAX));
        lay_xid(out, xid);
        ops.iter().for_each(|op| op.lay(out));
    }

    /// Lays the outcome of a prepared branch.
    pub fn lay_outcome(out: &mut Writer, xid: &Xid, committed: bool) {
        head(out, if committed { 6 } else { 7 }, None, 0);
        lay_xid(out, xid);
    }

    /// Lays the question which branches wait.
    pub fn lay_in_doubt(out: &mut Writer) {
        head(out, 8, None, 0);
    }

    /// Lays the question what is known of a branch.
    pub fn lay_branch(out: &mut Writer, xid: &Xid) {
        head(out, 9, None, 0);
        lay_xid(out, xid);
    }

    /// Whether it leaves everything as it is, and so needs no place in the log.
    #[must_use]
    pub fn is_read(&self) -> bool {
        match &self.what {
            What::Batch(ops) => self.request.is_none() && ops.are_reads(),
            What::InDoubt | What::Branch { .. } => true,
            _ => false,
        }
    }

    /// Whether its answer may be told only when it is on every disk that counts, whatever `ack` asks for. DESIGN, 5: a vote and a
    /// branch's outcome are durable in every policy. So is what is told again of them: the first answer may not have been.
    #[must_use]
    pub const fn is_of_branch(&self) -> bool {
        match self.what {
            What::Batch(_) => self.is_branch,
            What::Call { .. } | What::Open { .. } | What::Close { .. } => false,
            What::Prepare { .. } | What::Commit { .. } | What::Rollback { .. } => true,
            What::InDoubt | What::Branch { .. } => true,
        }
    }
}

fn head(out: &mut Writer, what: u8, request: Option<Request>, count: u16) {
    flagged(out, what, if request.is_some() { FLAG_SESSION } else { 0 }, request, count);
}

fn flagged(out: &mut Writer, what: u8, flags: u8, request: Option<Request>, count: u16) {
    out.u8(what).u8(flags).u16(count);
    if let Some(Request { session, number, window }) = request {
        out.u64(session.0).u64(number).u32(window);
    }
}

pub(crate) fn lay_xid(out: &mut Writer, xid: &Xid) {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    out.u32(xid.format().unsigned_abs()).u8(length(xid.gtrid())).u8(length(xid.bqual())).u16(0);
    out.raw(xid.gtrid()).raw(xid.bqual());
}

pub(crate) fn read_xid(reader: &mut Reader<'_>) -> Result<Xid, Malformed> {
    let format = i32::try_from(reader.u32("xid format")?).map_err(|_| Malformed { field: "xid format" })?;
    let (gtrid, bqual) = (reader.u8("gtrid length")?, reader.u8("bqual length")?);
    if reader.u16("xid reserved")? != 0 {
        return Err(Malformed { field: "xid reserved" });
    }
    let gtrid = reader.raw(gtrid.into(), "gtrid")?;
    let bqual = reader.raw(bqual.into(), "bqual")?;
    Xid::new(format, gtrid, bqual).map_err(|_| Malformed { field: "xid" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(count: usize) -> Vec<Op> {
        let id = AssetId(7);
        let all = [
            Op::Create { id, value: -1 },
            Op::Get { id },
            Op::Set { id, value: i64::MIN },
            Op::Add { id, by: 5 },
            Op::AddWithin { id, by: 1, min: -2, max: i64::MAX },
            Op::CompareAndSet { id, expected: 4, value: 9 },
            Op::Remove { id },
        ];
        all.into_iter().cycle().take(count).collect()
    }

    #[test]
    fn a_command_survives_and_every_cut_of_it_is_refused() {
        let request = Some(Request { session: SessionName(3), number: 9, window: 4 });
        let xid = Xid::new(5, b"global", b"branch").unwrap();
        let mut laid: Vec<Vec<u8>> = Vec::new();
        let mut lay = |lay: &dyn Fn(&mut Writer)| {
            let mut out = Writer::new();
            lay(&mut out);
            laid.push(out.into_vec());
        };
        lay(&|out| Command::lay_batch(out, request, &ops(9)));
        lay(&|out| Command::lay_one_phase(out, request, &ops(9)));
        lay(&|out| Command::lay_prepare(out, &xid, &ops(7)));
        lay(&|out| Command::lay_open(out, SessionName(u64::MAX)));
        lay(&|out| Command::lay_close(out, SessionName(8)));
        lay(&|out| Command::lay_outcome(out, &xid, true));
        lay(&|out| Command::lay_outcome(out, &xid, false));
        lay(&Command::lay_in_doubt);
        lay(&|out| Command::lay_branch(out, &xid));
        for bytes in &laid {
            assert!(Command::read(bytes).is_ok(), "{bytes:?}");
            for end in 0..bytes.len() {
                assert!(Command::read(&bytes[..end]).is_err(), "{end} of {bytes:?}");
            }
        }
        let Ok(Command { request: read, what: What::Batch(read_ops), .. }) = Command::read(&laid[0]) else { panic!() };
        assert_eq!((read, read_ops.iter().collect::<Vec<_>>()), (request, ops(9)));
        let mut out = Writer::new();
        Command::lay_call(&mut out, request, 300, b"input");
        let Ok(Command { what: What::Call { logic: 300, input: b"input" }, .. }) = Command::read(out.as_slice()) else {
            panic!()
        };
    }

    #[test]
    fn the_limits_of_a_command_are_taken_and_one_beyond_is_refused() {
        let laid = |count| {
            let mut out = Writer::new();
            Command::lay_batch(&mut out, None, &ops(count));
            out.into_vec()
        };
        assert!(Command::read(&laid(OPS_MAX)).is_ok());
        assert_eq!(Command::read(&laid(OPS_MAX + 1)), Err(Malformed { field: "count" }));
        assert_eq!(Command::read(&laid(0)), Err(Malformed { field: "count" }));
        assert_eq!(Command::read(&[laid(1), vec![0]].concat()), Err(Malformed { field: "end" }));
        let call = |bytes| {
            let mut out = Writer::new();
            Command::lay_call(&mut out, None, 1, &vec![0; bytes]);
            out.into_vec()
        };
        assert!(Command::read(&call(INPUT_BYTES_MAX)).is_ok());
        assert_eq!(Command::read(&call(INPUT_BYTES_MAX + 1)), Err(Malformed { field: "input" }));
        let mut wrong = laid(1);
        wrong[1] = 4;
        assert_eq!(Command::read(&wrong), Err(Malformed { field: "flags" }));
    }
}
