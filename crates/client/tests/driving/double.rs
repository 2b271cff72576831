//! A resource of a few lines: writes down what it is told, answers what the test says.

use std::sync::{Arc, Mutex};

use assent_ids::{Mark, Xid};
use assent_xa::{Native, Reply, Resource, Verb, Vote};

/// What all doubles of a test were told, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tale(Arc<Mutex<Vec<String>>>);

impl Tale {
    fn tell(&self, name: &str, what: &str) {
        self.0.lock().unwrap().push(format!("{name} {what}"));
    }

    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(", ")
    }
}

type Answers = Box<dyn FnMut(&str) -> Option<Reply> + Send>;

pub(crate) struct Double {
    name: &'static str,
    tale: Tale,
    answers: Answers,
    sent: Option<&'static str>,
    /// Where it can decide.
    pub(crate) table: Option<Mark>,
    /// The branch that was started last.
    pub(crate) xid: Option<Xid>,
    /// Whether it would rather work in `receive`.
    pub(crate) defers: bool,
    pub(crate) work: u32,
    /// What its connection knows of its vote, until that is let go.
    pub(crate) witness: Vec<u8>,
}

impl Double {
    pub(crate) fn new(name: &'static str, tale: &Tale) -> Self {
        Self::answering(name, tale, |_| None)
    }

    /// Answers by the verb's name; `None` is what all expect.
    pub(crate) fn answering(
        name: &'static str,
        tale: &Tale,
        answers: impl FnMut(&str) -> Option<Reply> + Send + 'static,
    ) -> Self {
        Self {
            name,
            tale: tale.clone(),
            answers: Box::new(answers),
            sent: None,
            table: None,
            xid: None,
            defers: false,
            work: 0,
            witness: Vec::new(),
        }
    }

    /// Answers this the first `times` that it is told this verb.
    pub(crate) fn stumbling(name: &'static str, tale: &Tale, verb: &'static str, times: u32, reply: Reply) -> Self {
        let mut left = times;
        Self::answering(name, tale, move |told| {
            let stumbles = told == verb && left > 0;
            left -= u32::from(stumbles);
            stumbles.then(|| reply.clone())
        })
    }
}

pub(crate) fn said(message: &str) -> Native {
    Native { code: "42".to_owned(), message: message.to_owned() }
}

const fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Start(_) => "start",
        Verb::End { success: true, .. } => "end",
        Verb::End { success: false, .. } => "fail",
        Verb::Prepare(_) => "prepare",
        Verb::Commit(_) => "commit",
        Verb::CommitOnePhase(_) => "one-phase",
        Verb::Rollback(_) => "rollback",
        Verb::Recover(_) => "recover",
        Verb::Forget(_) => "forget",
        Verb::Claim(_) => "claim",
        Verb::Inquire { .. } => "inquire",
        Verb::Evict(_) => "evict",
        Verb::Freed { .. } => "freed",
        Verb::CommitLast { .. } => "commit-last",
        Verb::Settle { .. } => "settle",
        Verb::Rows { .. } => "rows",
        Verb::Clear { .. } => "clear",
    }
}

impl Resource for Double {
    fn name(&self) -> &str {
        self.name
    }

    fn send(&mut self, verb: Verb) {
        if let Verb::Start(xid) = verb {
            self.xid = Some(xid);
        }
        let verb = name(&verb);
        self.tale.tell(self.name, verb);
        assert_eq!(self.sent.replace(verb), None, "a verb before the answer to the last");
    }

    fn defer(&mut self, verb: Verb) -> Option<Verb> {
        if !self.defers {
            return Some(verb);
        }
        let verb = name(&verb);
        self.tale.tell(self.name, &format!("({verb})"));
        assert_eq!(self.sent.replace(verb), None, "a verb before the answer to the last");
        None
    }

    fn receive(&mut self) -> Reply {
        let verb = self.sent.take().unwrap();
        self.tale.tell(self.name, "!");
        let usual = match verb {
            "prepare" => Reply::Vote(Vote::Yes),
            "end" if self.table.is_some() => Reply::Vote(Vote::Decides),
            _ => Reply::Done,
        };
        (self.answers)(verb).unwrap_or(usual)
    }

    fn decides(&mut self) -> Option<Mark> {
        self.table
    }

    fn witness(&mut self) -> Vec<u8> {
        self.witness.clone()
    }

    fn let_go(&mut self) {
        self.witness.clear();
        assert_eq!(self.sent, None, "let go with an answer on its way");
        self.tale.tell(self.name, "let go");
    }
}
