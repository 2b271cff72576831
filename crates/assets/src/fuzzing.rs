//! Plain functions that fuzzers feed: bytes never panic, and what is taken does the same twice.

use assent_frame::{PAYLOAD_BYTES_MAX, Reader, Writer, parse};
use assent_membership::Sequence;

use crate::run::{self, Item};
use crate::{Answer, Command, Limits, Loading, Logics, Machine, SessionName};

/// Reads these bytes as commands, each behind its length (2 bytes), executes them on two machines in the two ways, and compares.
pub fn fuzz_commands(bytes: &[u8]) {
    let limits = Limits { sessions_max: 3, answer_bytes_max: 200, prepared_max: 2, finished_max: 2 };
    let (mut one, mut other) = (Machine::new(limits, Logics::default()), Machine::new(limits, Logics::default()));
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (command, behind) = behind.split_at_checked(length).unwrap_or((behind, &[]));
        rest = behind;
        let mut answers = Vec::new();
        let sequence = Sequence(one.sequence().0 + 1);
        let time_ms = u64::from(command.first().copied().unwrap_or(0));
        if one.take(sequence, time_ms, command, &mut answers).is_err() {
            assert!(Command::read(command).is_err());
            continue;
        }
        assert!(Answer::read(&answers).is_ok(), "an answer that cannot be read");
        let Ok(read) = Command::read(command) else { continue };
        let (hash, mut again) = (other.hash(), Vec::new());
        let begun = other.begin(time_ms, &read, &mut again);
        other.cancel();
        assert_eq!(other.hash(), hash, "a cancelled command left something");
        again.clear();
        _ = (begun, other.begin(time_ms, &read, &mut again));
        other.finish(&again);
        assert_eq!((one.hash(), answers), (other.hash(), again), "two ways, two states");
    }
    let view = one.view();
    let mut loading = Loading::new(limits, Logics::default());
    let written = view.write(7, |frame| match parse(frame, PAYLOAD_BYTES_MAX) {
        Ok(Some((frame, _))) => loading.take(&frame).map_err(|error| error.to_string()),
        _ => Err("no frame".to_owned()),
    });
    assert_eq!(written, Ok(()));
    let loaded = loading.finish().map(|(machine, head)| (machine.hash(), head.place));
    assert_eq!(loaded, Ok((one.hash(), 7)), "a snapshot is another state");
}

/// Executes these bytes as the items of a run, for a session that is open and for nobody, on two machines, and compares.
pub fn fuzz_run(bytes: &[u8]) {
    let limits = Limits { sessions_max: 3, answer_bytes_max: 200, prepared_max: 2, finished_max: 2 };
    // As many commands as can be read, so that the head is seldom what is refused.
    let mut reader = Reader::new(bytes);
    let items = std::iter::from_fn(|| Item::read(&mut reader).ok());
    let commands = items.filter(|item| matches!(item, Item::Command(_))).count();
    let head = run::head(5, u32::try_from(commands).unwrap_or(u32::MAX));
    let run = [&head[..], bytes].concat();
    let execute = || {
        let mut machine = Machine::new(limits, Logics::default());
        let (mut open, mut answers) = (Writer::new(), Vec::new());
        Command::lay_open(&mut open, SessionName(1));
        let opened = machine.take(Sequence(1), 0, open.as_slice(), &mut answers);
        assert_eq!(opened.map_err(|error| error.to_string()), Ok(()));
        answers.clear();
        let taken = machine.take_run(Sequence(2), &run, &mut answers);
        (taken.map_err(|error| error.to_string()), machine.hash(), answers)
    };
    let (taken, hash, answers) = execute();
    assert!(run::answers(&answers).all(|answer| Answer::read(answer).is_ok()), "an answer that cannot be read");
    assert_eq!(execute(), (taken, hash, answers), "two machines, two states");
}

/// Reads these bytes as the frames of a snapshot, and as an answer.
pub fn fuzz_image(bytes: &[u8]) {
    _ = Answer::read(bytes).is_ok();
    let mut loading = Loading::new(Limits::default(), Logics::default());
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = parse(rest, PAYLOAD_BYTES_MAX) {
        if loading.take(&frame).is_err() {
            return;
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    _ = loading.finish().is_ok();
}
