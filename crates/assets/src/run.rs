//! A run: commands that were read together, as one entry of a group's log. One header, one checksum and one link of the chain for all.
//!
//! ```text
//!   kind 3 run:  | when the primary ordered it, milliseconds 8 | commands 4 | item | item | ...
//!   item:   1    a batch: count, then each op: kind 1, asset, numbers (the sign is the lowest bit)
//!           2    a call of business logic: its number, the length of the input, the input
//!           3    session 8, request 8, window 4: what follows is of this session, this request the first, and each the next
//!           4    what follows is of no session
//!   All numbers without a size are varints. At first nothing is of a session.
//! ```
//! Walk: a door pushes commands ([`Run::push`]) and lays them ([`Run::head`], [`Run::items`]) · [`Machine::take_run`](crate::Machine) reads
//! [`Item`]s, and lays [`answers`].
//! Deliberately absent: what sessions and branches begin and end with. Those commands are entries of their own.

use assent_frame::{Malformed, Reader, Writer};
use assent_replica::COMMAND_BYTES_MAX as ENTRY_BYTES_MAX;

use crate::answer::OUTPUT_BYTES_MAX;
use crate::command::{COMMAND_BYTES_MAX, Command, INPUT_BYTES_MAX, Ops, Request, SessionName, What};

/// What the entry of a group's log is that holds a run.
pub(crate) const KIND_RUN: u16 = 3;
/// With so many bytes a run takes no more.
const FULL_BYTES: usize = 64 << 10;
/// With so many operations a run takes no more; a call is one. Each command has one at least.
///
/// A run is executed at a stretch, and a subscriber hears of its changes at its end.
pub(crate) const COMMANDS_MAX: u32 = 1_024;
/// With so many bytes of answers a run takes no more: they are laid before the first is sent, by all members. What a session is told again
/// is not among them, since nobody knows of it yet; [`COMMANDS_MAX`] bounds that.
const FULL_ANSWER_BYTES: usize = 1 << 20;
/// An answer but its results and its output: its length, status, how many, length.
const ANSWER_HEAD_BYTES: usize = 4 + 1 + 2 + 4;
const RESULT_BYTES: usize = 16;
/// Bytes before the items.
const HEAD_BYTES: usize = 12;
const BATCH: u8 = 1;
const CALL: u8 = 2;
const SESSION: u8 = 3;
const NOBODY: u8 = 4;

// A number of eight bytes takes ten at most.
const _: () = assert!(
    HEAD_BYTES + FULL_BYTES + COMMAND_BYTES_MAX / 8 * 10 + 64 <= ENTRY_BYTES_MAX,
    "what fills a run, and the longest command, are an entry"
);

/// Commands, laid one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Run {
    items: Writer,
    commands: u32,
    ops: u32,
    /// What the answers take at most.
    answer_bytes: usize,
    /// The request that the next command has, if it follows the last one.
    next: Option<Request>,
}

impl Run {
    /// Whether such a command may stand with others.
    pub(crate) const fn takes(command: &Command<'_>) -> bool {
        !command.is_branch && matches!(command.what, What::Batch(_) | What::Call { .. })
    }

    /// A command that [`Run::takes`] takes.
    pub(crate) fn push(&mut self, command: &Command<'_>) {
        if command.request != self.next {
            match command.request {
                Some(Request { session, number, window }) => {
                    self.items.u8(SESSION).u64(session.0).u64(number).u32(window);
                }
                None => _ = self.items.u8(NOBODY),
            }
        }
        self.next = command.request.map(following);
        self.commands += 1;
        match command.what {
            What::Batch(ops) => {
                self.ops += u32::from(ops.count());
                self.answer_bytes += ANSWER_HEAD_BYTES + RESULT_BYTES * usize::from(ops.count());
                self.items.u8(BATCH).varint(u64::from(ops.count()));
                ops.iter().for_each(|op| op.pack(&mut self.items));
            }
            What::Call { logic, input } => {
                let length = u64::try_from(input.len()).unwrap_or(u64::MAX);
                self.ops += 1;
                self.answer_bytes += ANSWER_HEAD_BYTES + OUTPUT_BYTES_MAX;
                self.items.u8(CALL).varint(u64::from(logic)).varint(length).raw(input);
            }
            _ => {}
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.commands == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items.as_slice().len() >= FULL_BYTES || self.ops >= COMMANDS_MAX || self.answer_bytes >= FULL_ANSWER_BYTES
    }

    /// What stands before the items.
    pub(crate) fn head(&self, time_ms: u64) -> [u8; HEAD_BYTES] {
        head(time_ms, self.commands)
    }

    pub(crate) fn items(&self) -> &[u8] {
        self.items.as_slice()
    }

    /// Nothing is in it, and it keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        (self.commands, self.ops, self.answer_bytes, self.next) = (0, 0, 0, None);
    }
}

/// What stands in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A batch or a call.
    Command(What<'a>),
    /// Whose request the next command is.
    Whose(Option<Request>),
}

impl<'a> Item<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let small = |number: u64, field| u16::try_from(number).map_err(|_| Malformed { field });
        Ok(match reader.u8("item")? {
            BATCH => {
                let count = small(reader.varint("count")?, "count")?;
                Self::Command(What::Batch(Ops::unpack(reader, count)?))
            }
            CALL => {
                let logic = small(reader.varint("logic")?, "logic")?;
                let length = usize::try_from(reader.varint("length")?).unwrap_or(usize::MAX);
                if length > INPUT_BYTES_MAX {
                    return Err(Malformed { field: "length" });
                }
                Self::Command(What::Call { logic, input: reader.raw(length, "input")? })
            }
            SESSION => {
                let (session, number) = (SessionName(reader.u64("session")?), reader.u64("request")?);
                Self::Whose(Some(Request { session, number, window: reader.u32("window")? }))
            }
            NOBODY => Self::Whose(None),
            _ => return Err(Malformed { field: "item" }),
        })
    }
}

/// What stands before so many commands.
pub(crate) fn head(time_ms: u64, commands: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (time, count) = head.split_at_mut(8);
    time.copy_from_slice(&time_ms.to_le_bytes());
    count.copy_from_slice(&commands.to_le_bytes());
    head
}

/// When a run was ordered, how many commands it says it has, and its items.
pub(crate) fn read(run: &[u8]) -> Result<(u64, u32, &[u8]), Malformed> {
    let mut reader = Reader::new(run);
    let (time_ms, commands) = (reader.u64("time")?, reader.u32("commands")?);
    if commands > COMMANDS_MAX {
        return Err(Malformed { field: "commands" });
    }
    Ok((time_ms, commands, reader.rest()))
}

/// How many commands a run has, as its head says.
pub(crate) fn commands(run: &[u8]) -> u64 {
    let mut reader = Reader::new(run);
    let commands = reader.u64("time").and_then(|_| reader.u32("commands"));
    commands.map_or(1, u64::from)
}

/// The answers to the commands of a run.
pub(crate) fn answers(laid: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(laid);
    std::iter::from_fn(move || reader.bytes("answer").ok())
}

/// Commands of a run that are of one session, or of none.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// The request of the first.
    pub(crate) first: Option<Request>,
    /// How many were executed.
    pub(crate) commands: u32,
    /// The first is the session's next: so is each behind it.
    pub(crate) is_new: bool,
    /// Where their answers begin.
    pub(crate) from: usize,
}

impl Stretch {
    /// The request of the next one.
    pub(crate) fn request(&self) -> Option<Request> {
        self.first.map(|first| Request { number: first.number.saturating_add(u64::from(self.commands)), ..first })
    }
}

const fn following(request: Request) -> Request {
    Request { number: request.number.saturating_add(1), ..request }
}

#[cfg(test)]
mod tests {
    use assent_membership::Sequence;
    use assent_sim::SimDice;
    use assent_world::Dice as _;

    use super::*;
    use crate::{Answer, AssetId, Limits, Logics, Machine, Op};

    const ONE: SessionName = SessionName(0xfedc_ba98_7654_3210);
    const TWO: SessionName = SessionName(7);

    fn lay(request: Option<Request>, ops: &[Op]) -> Vec<u8> {
        let mut out = Writer::new();
        Command::lay_batch(&mut out, request, ops);
        out.into_vec()
    }

    fn run_of(commands: &[Vec<u8>]) -> Vec<u8> {
        let mut run = Run::default();
        for command in commands {
            let command = Command::read(command).unwrap();
            assert!(Run::takes(&command));
            run.push(&command);
        }
        [&run.head(9)[..], run.items()].concat()
    }

    fn machine() -> Machine {
        machine_of(Limits::default())
    }

    fn machine_of(limits: Limits) -> Machine {
        let mut machine = Machine::new(limits, Logics::default());
        for (at, session) in [(1, ONE), (2, TWO)] {
            let mut open = Writer::new();
            Command::lay_open(&mut open, session);
            machine.take(Sequence(at), 0, open.as_slice(), &mut Vec::new()).unwrap();
        }
        let create: Vec<Op> = (0..4).map(|id| Op::Create { id: AssetId(id), value: 0 }).collect();
        machine.take(Sequence(3), 0, &lay(None, &create), &mut Vec::new()).unwrap();
        machine
    }

    /// Each as an entry, and all as one: the same answers, the same assets, the same changes, and sessions that answer the same again.
    fn same(commands: &[Vec<u8>]) {
        same_of(Limits::default(), commands);
    }

    fn same_of(limits: Limits, commands: &[Vec<u8>]) {
        let (mut each, mut all) = (machine_of(limits), machine_of(limits));
        let (mut expected, mut changes) = (Vec::new(), Vec::new());
        for (at, command) in (4..).zip(commands) {
            let mut answer = Vec::new();
            each.take(Sequence(at), 9, command, &mut answer).unwrap();
            expected.push(answer);
            changes.extend(each.changes().into_iter().map(|change| (change.id, change.asset)));
        }
        let (run, mut laid) = (run_of(commands), Vec::new());
        all.take_run(Sequence(4), &run, &mut laid).unwrap();
        assert_eq!(super::commands(&run), commands.len() as u64);
        assert_eq!(answers(&laid).collect::<Vec<_>>(), expected);
        assert_eq!((all.sequence(), all.time_ms()), (Sequence(4), 9));
        assert!(all.changes().iter().all(|change| change.sequence == Sequence(4)));
        assert_eq!(all.changes().into_iter().map(|change| (change.id, change.asset)).collect::<Vec<_>>(), changes);
        assert_eq!((0..6).map(|id| all.get(AssetId(id))).collect::<Vec<_>>(), {
            (0..6).map(|id| each.get(AssetId(id))).collect::<Vec<_>>()
        });
        assert_eq!(all.sessions(), each.sessions());
        // Sent again, as entries and as one run: each session knows the same.
        let is_of_session = |command: &&Vec<u8>| Command::read(command).unwrap().request.is_some();
        let again: Vec<Vec<u8>> = commands.iter().filter(is_of_session).cloned().collect();
        expected.clear();
        for command in &again {
            let (mut answer, next) = (Vec::new(), Sequence(each.sequence().0 + 1));
            each.take(next, 9, command, &mut answer).unwrap();
            expected.push(answer);
        }
        laid.clear();
        all.take_run(Sequence(5), &run_of(&again), &mut laid).unwrap();
        assert_eq!(answers(&laid).collect::<Vec<_>>(), expected, "sent again");
    }

    #[test]
    fn a_run_does_what_its_commands_do_one_after_the_other() {
        let by = |session, number, window| Some(Request { session, number, window });
        let add = |id, by| Op::Add { id: AssetId(id), by };
        same(&[]);
        same(&[lay(None, &[add(1, 5)]), lay(None, &[add(9, 1)]), lay(None, &[add(1, i64::MAX)])]);
        // A retry, a gap and what nobody opened stand among new ones.
        same(&[
            lay(by(ONE, 1, 8), &[add(1, 1)]),
            lay(by(ONE, 2, 8), &[add(9, 1)]),
            lay(by(TWO, 1, 1), &[add(2, 1), add(2, 1), add(1, -4)]),
            lay(by(ONE, 2, 8), &[add(9, 1)]),
            lay(by(ONE, 3, 2), &[add(1, 1)]),
            lay(by(TWO, 3, 1), &[add(1, 1)]),
            lay(None, &[Op::Remove { id: AssetId(3) }, Op::Create { id: AssetId(3), value: -1 }]),
            lay(by(TWO, 2, 1), &[add(1, 1)]),
            lay(by(SessionName(3), 1, 1), &[add(1, 1)]),
        ]);
    }

    /// Where the answers of all sessions have little room, the one that was used before goes, and not the one with the least name.
    #[test]
    fn a_run_leaves_the_sessions_that_its_commands_leave() {
        let by = |session, number| Some(Request { session, number, window: 8 });
        let add = [Op::Add { id: AssetId(1), by: 1 }];
        for answer_bytes_max in 20..200 {
            let limits = Limits { answer_bytes_max, ..Limits::default() };
            same_of(limits, &[lay(by(ONE, 1), &add), lay(by(TWO, 1), &add)]);
            same_of(limits, &[lay(by(TWO, 1), &add), lay(by(ONE, 1), &add)]);
            same_of(
                limits,
                &[lay(by(ONE, 1), &add), lay(by(ONE, 2), &add), lay(by(TWO, 1), &add), lay(by(TWO, 2), &add)],
            );
            same_of(
                limits,
                &[lay(by(ONE, 1), &add), lay(by(TWO, 1), &add), lay(by(ONE, 2), &add), lay(by(ONE, 3), &add)],
            );
        }
    }

    #[test]
    fn of_any_commands_a_run_does_the_same() {
        let dice = SimDice::new(0x52);
        let roll = |most: u64| dice.roll() % most;
        for _ in 0..300 {
            let mut numbers = [0_u64; 2];
            let commands: Vec<Vec<u8>> = (0..roll(40))
                .map(|_| {
                    let ops: Vec<Op> = (0..=roll(3))
                        .map(|_| {
                            let (id, value) =
                                (AssetId(roll(6)), i64::from_le_bytes(dice.roll().to_le_bytes()) >> roll(64));
                            match roll(7) {
                                0 => Op::Create { id, value },
                                1 => Op::Remove { id },
                                2 => Op::Set { id, value },
                                3 => Op::AddWithin { id, by: value, min: -1_000, max: i64::MAX },
                                4 => Op::CompareAndSet { id, expected: value, value: 3 },
                                _ => Op::Add { id, by: value },
                            }
                        })
                        .collect();
                    let which = usize::try_from(roll(3)).unwrap();
                    let request = [ONE, TWO].get(which).map(|session| {
                        // Most follow each other, some are sent again, some are missing.
                        numbers[which] =
                            (numbers[which] + [1, 1, 1, 1, 1, 0, 2][usize::try_from(roll(7)).unwrap()]).max(1);
                        Request {
                            session: *session,
                            number: numbers[which],
                            window: 4 + u32::try_from(roll(2)).unwrap(),
                        }
                    });
                    lay(request, &ops)
                })
                .collect();
            same(&commands);
        }
    }

    #[test]
    fn a_command_takes_few_bytes_and_every_cut_of_a_run_is_refused() {
        let commands: Vec<Vec<u8>> = (0..100).map(|id| lay(None, &[Op::Add { id: AssetId(id), by: 1 }])).collect();
        assert_eq!(run_of(&commands).len(), HEAD_BYTES + 100 * 5);
        let mut call = Writer::new();
        Command::lay_call(&mut call, Some(Request { session: ONE, number: 1, window: 4 }), 300, b"input");
        let set = Op::AddWithin { id: AssetId(u64::MAX), by: i64::MIN, min: -1, max: i64::MAX };
        let run = run_of(&[call.into_vec(), lay(None, &[set])]);
        let items = read(&run).unwrap().2;
        let mut reader = Reader::new(items);
        let mut found = Vec::new();
        while !reader.rest().is_empty() {
            found.push(Item::read(&mut reader).unwrap());
        }
        let [Item::Whose(Some(_)), Item::Command(What::Call { logic: 300, input: b"input" }), Item::Whose(None), last] =
            found.as_slice()
        else {
            panic!("{found:?}")
        };
        let Item::Command(What::Batch(ops)) = last else { panic!("{last:?}") };
        assert_eq!(ops.iter().collect::<Vec<_>>(), [set]);
        for end in 0..run.len() {
            assert!(machine().take_run(Sequence(4), &run[..end], &mut Vec::new()).is_err(), "{end}");
        }
        for items in [&[0][..], &[5], &[1, 0], &[1, 0x81, 8, 5, 1, 2], &[2, 0x80, 0x80, 4, 0], &[2, 1, 0x81, 0x80, 4]] {
            let run = [&head(0, 1)[..], items].concat();
            assert!(machine().take_run(Sequence(4), &run, &mut Vec::new()).is_err(), "{items:?}");
        }
    }

    #[test]
    fn an_answer_of_a_run_is_an_answer() {
        let mut laid = Vec::new();
        let run = run_of(&[lay(None, &[Op::Add { id: AssetId(1), by: 1 }]), lay(None, &[Op::Get { id: AssetId(1) }])]);
        machine().take_run(Sequence(4), &run, &mut laid).unwrap();
        assert!(answers(&laid).all(|answer| matches!(Answer::read(answer), Ok(Answer::Done(_)))));
        assert_eq!(answers(&laid).count(), 2);
    }

    /// A run was bounded by its own bytes alone: 20,000 calls of three bytes with 64 KiB of output each were one entry, and 1.4 GB of answers
    /// on every member, at each start again.
    #[test]
    fn a_run_is_full_before_its_answers_or_its_changes_are_many() {
        let push = |run: &mut Run, command: &[u8]| run.push(&Command::read(command).unwrap());
        let until_full = |command: &[u8]| {
            let mut run = Run::default();
            (1..100_000).find(|_| {
                push(&mut run, command);
                run.is_full()
            })
        };
        let batch = |ops: usize| lay(None, &vec![Op::Get { id: AssetId(1) }; ops]);
        assert_eq!(until_full(&batch(1)), Some(1_024), "operations");
        assert_eq!(until_full(&batch(3)), Some(342), "operations");
        assert_eq!(until_full(&batch(1_024)), Some(1), "operations");
        let mut call = Writer::new();
        Command::lay_call(&mut call, None, 1, b"");
        assert_eq!(until_full(call.as_slice()), Some(16), "what calls may answer");
        let mut call = Writer::new();
        Command::lay_call(&mut call, None, 1, &[0; INPUT_BYTES_MAX / 2]);
        assert_eq!(until_full(call.as_slice()), Some(2), "bytes");
        // One that was laid and taken out again is empty.
        let mut run = Run::default();
        (0..16).for_each(|_| push(&mut run, call.as_slice()));
        run.clear();
        assert!(!run.is_full() && run.is_empty());
        push(&mut run, &batch(1_023));
        assert!(!run.is_full());
    }

    #[test]
    fn the_answer_of_a_command_takes_what_its_run_reckons_with_at_most() {
        let mut run = Run::default();
        let (mut laid, commands) =
            (Vec::new(), [lay(None, &[Op::Get { id: AssetId(1) }; 7]), lay(None, &[Op::Get { id: AssetId(1) }])]);
        commands.iter().for_each(|command| run.push(&Command::read(command).unwrap()));
        machine().take_run(Sequence(4), &run_of(&commands), &mut laid).unwrap();
        assert_eq!(laid.len(), run.answer_bytes);
    }

    /// A head that says more than there is was believed, and counted.
    #[test]
    fn a_run_has_as_many_commands_as_its_head_says() {
        let commands = vec![lay(None, &[Op::Add { id: AssetId(1), by: 1 }]); 2];
        let run = run_of(&commands);
        for (says, is_so) in [(0, false), (1, false), (2, true), (3, false), (COMMANDS_MAX, false), (u32::MAX, false)] {
            let (mut one, run) = (machine(), [&head(9, says)[..], &run[HEAD_BYTES..]].concat());
            let taken = one.take_run(Sequence(4), &run, &mut Vec::new());
            assert_eq!(taken.is_ok(), is_so, "{says}");
            assert_eq!(one.sequence(), Sequence(if is_so { 4 } else { 3 }), "{says}");
            if let Err(error) = taken {
                assert!(error.to_string().contains("commands"), "{error}");
            }
        }
        // The most there may be, and one more.
        for (count, is_so) in [(1_024, true), (1_025, false)] {
            let commands = vec![lay(None, &[Op::Add { id: AssetId(1), by: 1 }]); count];
            assert_eq!(machine().take_run(Sequence(4), &run_of(&commands), &mut Vec::new()).is_ok(), is_so, "{count}");
        }
    }

    #[test]
    fn the_memory_of_many_changes_is_given_back() {
        let mut one = machine();
        let commands =
            vec![lay(None, &[Op::Add { id: AssetId(1), by: 1 }, Op::Add { id: AssetId(2), by: 1 }].repeat(512)); 40];
        one.take_run(Sequence(4), &run_of(&commands), &mut Vec::new()).unwrap();
        assert_eq!(one.changes().len(), 80);
        one.changed.reserve_exact(1 << 20);
        one.pass(Sequence(5)).unwrap();
        assert!(one.changed.capacity() * size_of::<crate::Change>() <= 1 << 20);
    }
}
