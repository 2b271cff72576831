//! The state machine as a member of a group has it: commands of the group's log, tried when they are confirmed.
//!
//! ```text
//!   kind 1 command: | when the primary ordered it, milliseconds 8 | the command as it came |
//!   kind 2 rules:   | limits 4 x 8 | logics 2, each 2 |   laid by each primary before anything of a client
//!   kind 3 run:     commands that were read together, and the time of all of them (`run`)
//! ```
//! Deliberately absent: sockets, and who leads.

use std::io;

use assent_frame::{PAYLOAD_BYTES_MAX, Reader, Writer, parse};
use assent_membership::Sequence;
use assent_replica::{Next, Put};

use crate::engine::{KIND_COMMAND, KIND_RULES};
use crate::image::{ImageHead, Loading, View};
use crate::machine::Machine;
use crate::rules::Rules;
use crate::run::{self, KIND_RUN};

impl assent_replica::Machine for Machine {
    type View = View;

    fn apply(&mut self, at: Sequence, kind: u16, command: &[u8], answer: &mut Vec<u8>) -> Result<(), String> {
        match kind {
            KIND_COMMAND => {
                let (time, command) = command.split_first_chunk().ok_or_else(|| format!("entry {at} has no time"))?;
                let taken = self.take(at, u64::from_le_bytes(*time), command, answer);
                taken.map_err(|error| format!("entry {at}: {error}"))
            }
            KIND_RUN => {
                let taken = self.take_run(at, command, answer);
                taken.map_err(|error| format!("entry {at}: {error}"))
            }
            KIND_RULES => {
                let kept = Rules::read(&mut Reader::new(command)).map_err(|error| format!("entry {at}: {error}"))?;
                self.rules().check(&kept)?;
                self.pass(at).map_err(|error| error.to_string())
            }
            other => Err(format!("entry {at} is of kind {other}, which is not of assets")),
        }
    }

    fn commands(kind: u16, command: &[u8]) -> u64 {
        if kind == KIND_RUN { run::commands(command) } else { 1 }
    }

    fn hash(&self) -> u64 {
        Self::hash(self)
    }

    fn view(&self) -> View {
        Self::view(self)
    }

    fn lay(view: &View, put: Put<'_>) -> io::Result<()> {
        view.write(0, put)
    }

    fn empty(&self) -> Self {
        Self::empty(self)
    }

    fn load(&mut self, next: Next<'_>) -> Result<(), String> {
        let mut loading = Loading::of(self.empty());
        let mut is_first = true;
        while let Some(chunk) = next() {
            let frame = match parse(&chunk, PAYLOAD_BYTES_MAX) {
                Ok(Some((frame, bytes))) if bytes == chunk.len() => frame,
                Ok(_) => return Err("a frame of the state is cut".to_owned()),
                Err(error) => return Err(error.to_string()),
            };
            if is_first && let Ok(head) = ImageHead::read(&frame) {
                self.rules().check(&head.rules)?;
            }
            is_first = false;
            loading.take(&frame).map_err(|error| error.to_string())?;
        }
        *self = loading.finish().map_err(|error| error.to_string())?.0;
        Ok(())
    }
}

/// What a primary lays first.
pub(crate) fn rules_of(machine: &Machine) -> Vec<u8> {
    let mut out = Writer::new();
    machine.rules().lay(&mut out);
    out.into_vec()
}

#[cfg(test)]
mod tests {
    use assent_frame::{Head, lay};
    use assent_replica::Machine as _;

    use super::*;
    use crate::{Answer, AssetId, Command, Limits, Logics, Op};

    fn command(time_ms: u64, ops: &[Op]) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(time_ms);
        Command::lay_batch(&mut out, None, ops);
        out.into_vec()
    }

    /// As a member does it, and not as a replay.
    fn apply(one: &mut Machine, at: Sequence, kind: u16, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        assent_replica::Machine::apply(one, at, kind, bytes, out)
    }

    #[test]
    fn what_changes_nothing_has_its_place_and_a_state_travels_in_chunks() {
        let mut one = Machine::new(Limits::default(), Logics::default());
        let mut answer = Vec::new();
        let create = [Op::Create { id: AssetId(7), value: 5 }];
        let rules = rules_of(&one);
        apply(&mut one, Sequence(1), KIND_RULES, &rules, &mut answer).unwrap();
        assert!(answer.is_empty());
        apply(&mut one, Sequence(2), KIND_COMMAND, &command(9, &create), &mut answer).unwrap();
        let end = answer.len();
        apply(&mut one, Sequence(3), KIND_COMMAND, &command(4, &create), &mut answer).unwrap();
        assert!(matches!(Answer::read(&answer[end..]), Ok(Answer::Refused { op: 0, .. })), "it is there already");
        assert!(one.changes().is_empty(), "what was refused changed nothing");
        assert_eq!((one.sequence(), one.time_ms()), (Sequence(3), 9), "a clock that goes back is passed over");
        let mut chunks = Vec::new();
        let laid = Machine::lay(&one.view(), &mut |chunk: &[u8]| {
            chunks.push(chunk.to_vec());
            Ok(())
        });
        laid.unwrap();
        let mut two = one.empty();
        let mut rest = chunks.clone().into_iter();
        two.load(&mut || rest.next()).unwrap();
        assert_eq!((two.hash(), two.sequence()), (one.hash(), one.sequence()));
        let mut cut = chunks.into_iter().take(1);
        assert!(one.empty().load(&mut || cut.next()).is_err());
    }

    /// A program from before runs calls two sessions of one entry damage: it is to refuse the version.
    #[test]
    fn a_snapshot_from_before_runs_is_read() {
        let mut one = Machine::new(Limits::default(), Logics::default());
        let create = command(9, &[Op::Create { id: AssetId(7), value: 5 }]);
        apply(&mut one, Sequence(1), KIND_COMMAND, &create, &mut Vec::new()).unwrap();
        let mut chunks = Vec::new();
        let mut put = |chunk: &[u8]| {
            chunks.push(chunk.to_vec());
            Ok(())
        };
        Machine::lay(&one.view(), &mut put).unwrap();
        let (first, _) = parse(&chunks[0], PAYLOAD_BYTES_MAX).unwrap().unwrap();
        assert_eq!(first.payload[..2], [3, 0]);
        for (version, is_read) in [(1, false), (2, true), (3, true), (4, false)] {
            let (mut two, mut head) = (one.empty(), Vec::new());
            let marks = Head { mark: first.mark, kind: first.kind, flags: 0, chain: first.chain };
            lay(&mut head, marks, &[&[version, 0], &first.payload[2..]]);
            let mut rest = std::iter::once(head).chain(chunks[1..].iter().cloned());
            let loaded = two.load(&mut || rest.next());
            assert_eq!((loaded.is_ok(), two.hash() == one.hash()), (is_read, is_read), "{version}: {loaded:?}");
        }
    }

    #[test]
    fn an_entry_that_no_primary_lays_stops_a_member_by_its_name() {
        let mut one = Machine::new(Limits::default(), Logics::default());
        let other = Machine::new(Limits { prepared_max: 5, ..Limits::default() }, Logics::default());
        let mut says =
            |at, kind, bytes: &[u8]| apply(&mut one, Sequence(at), kind, bytes, &mut Vec::new()).unwrap_err();
        let differs = says(1, KIND_RULES, &rules_of(&other));
        assert!(differs.starts_with("prepared_max is 4096 here, and 5"), "{differs}");
        assert!(says(2, KIND_COMMAND, &command(0, &[Op::Get { id: AssetId(1) }])).contains("1 was expected"));
        assert!(says(1, KIND_COMMAND, &[1; 9]).contains("malformed"));
        assert!(says(1, KIND_COMMAND, &[1; 7]).contains("no time"));
        assert!(says(1, 9, &[]).contains("kind 9"));
        let mut chunks = Vec::new();
        let mut put = |chunk: &[u8]| {
            chunks.push(chunk.to_vec());
            Ok(())
        };
        Machine::lay(&other.view(), &mut put).unwrap();
        let mut chunks = chunks.into_iter();
        let refused = one.load(&mut || chunks.next()).unwrap_err();
        assert!(refused.starts_with("prepared_max"), "{refused}");
    }
}
