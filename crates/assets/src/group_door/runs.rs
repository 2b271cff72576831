//! The commands of one round as a run: they join it while connections are read, have their place in the log together, and are answered one by one.
//!
//! Walk: [`GroupDoor::join`] · [`GroupDoor::lay_run`] before whatever stands in the log alone, and at the end of the round ·
//! [`GroupDoor::answer_run`] when it is executed, or [`GroupDoor::tell_refused`] where the log had no room.

use assent_frame::{Head, lay};
use assent_membership::Sequence;
use assent_replica::Port;

use super::GroupDoor;
use crate::caller::{Ordered, Whose};
use crate::command::Command;
use crate::machine::Machine;
use crate::message::{self, KIND_ANSWER};
use crate::run::{self, KIND_RUN};

impl GroupDoor {
    /// The command stands in the run, whose place that is.
    pub(super) fn join(&mut self, command: &Command<'_>, port: &mut Port<'_, Machine>) -> Sequence {
        if self.run.is_full() {
            self.lay_run(port);
        }
        self.run.push(command);
        port.next()
    }

    /// What was read together has its place in the log.
    pub(super) fn lay_run(&mut self, port: &mut Port<'_, Machine>) {
        if self.run.is_empty() {
            return;
        }
        let at = port.next();
        let laid = port.order(KIND_RUN, &[&self.run.head(self.round_ms), self.run.items()]);
        self.run.clear();
        if let Err(refused) = laid {
            while let Some(ordered) = self.ordered.pop_back_if(|ordered| ordered.at == at) {
                self.refused.push((ordered.whose, refused.clone()));
            }
            while self.traced.pop_back_if(|trace| trace.sequence == at).is_some() {}
        }
    }

    /// Nothing of these was done.
    pub(super) fn tell_refused(&mut self) {
        for (whose, refused) in std::mem::take(&mut self.refused) {
            self.answer_to(whose, |out, mark| message::lay_refused(out, mark, refused.kind(), &refused.to_string()));
        }
    }

    /// The commands of a run were executed: each has its answer. Those of one connection stand together, so that it is looked up once.
    pub(super) fn answer_run(&mut self, at: Sequence, answers: &[u8]) {
        let mut answers = run::answers(answers).peekable();
        while let Some(Whose { token, .. }) = self.ordered.front().filter(|one| one.at == at).map(|one| one.whose)
            && answers.peek().is_some()
        {
            let mut client = self.clients.get_mut(&token);
            let mut owed_bytes = 0;
            while let Some(answer) = answers.peek()
                && let Some(Ordered { whose, .. }) =
                    self.ordered.pop_front_if(|one| one.at == at && one.whose.token == token)
            {
                if let Some(client) = &mut client {
                    owed_bytes += whose.owed_bytes;
                    client.answer(whose, |out, mark| lay_answer(out, mark, answer));
                }
                answers.next();
            }
            if client.is_some() {
                self.said.insert(token);
                self.owed_bytes = self.owed_bytes.saturating_sub(owed_bytes);
            }
        }
    }

    pub(super) fn answer_to(&mut self, whose: Whose, lay: impl FnOnce(&mut Vec<u8>, u64)) {
        // It may have gone; what it ordered was done all the same.
        if let Some(client) = self.clients.get_mut(&whose.token) {
            self.owed_bytes = self.owed_bytes.saturating_sub(whose.owed_bytes);
            client.answer(whose, lay);
            self.said.insert(whose.token);
        }
    }
}

pub(super) fn lay_answer(out: &mut Vec<u8>, mark: u64, answer: &[u8]) {
    lay(out, Head { mark, kind: KIND_ANSWER, ..Head::default() }, &[answer]);
}
