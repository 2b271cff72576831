//! A resource that answers what a text file says: expected calls and XA return codes, one call a line.
//!
//! ```text
//! # verb [expected xid or the beginning of one followed by *] -> answer
//! start   *                 -> XA_OK
//! end                       -> XA_OK
//! prepare 1095978580.0a1b*  -> XA_RBROLLBACK
//! commit                    -> lost
//! recover                   -> XA_OK 1.aa.bb 1.aa.cc
//! ```
//! Verbs: start, end, end-failed, prepare, commit, commit-one-phase, rollback, recover (expects a node), forget.
//! Answers: the codes of `xa.h` by name, or `lost`. Without a pattern any XID is expected.
//!
//! Walk: [`Script::parse`] reads the lines, a wrong one is named by its number · [`Scripted`] takes them one by one ·
//! [`Script::verdict`] says at the end whether all came as written.
//! Deliberately absent: loops, conditions, variables.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_ids::Xid;
use assent_kind::Kind;
use assent_xa::{Connector, Native, Reply, Resource, Verb};

use crate::codes;
use crate::dummy::unsent;

/// The most lines of a script.
const LINES_MAX: usize = 100_000;
/// How much of a wrong line is repeated in the error.
const SHOWN_CHARS: usize = 80;

/// Why a script cannot be read, or did not come true.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A line of another form.
    #[error("line {line}: {text:?}: {reason}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// Its beginning.
        text: String,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// Too many lines.
    #[error("a script of more than {LINES_MAX} lines; split it")]
    Length,
    /// Another call came than the one that was written.
    #[error("line {line}: expected {expected}, got {got}")]
    Unexpected {
        /// The line whose call was due; one beyond the last when none was.
        line: usize,
        /// What it says.
        expected: String,
        /// What came.
        got: String,
    },
    /// Calls that were written did not come.
    #[error("line {line}: expected {expected}, but nothing more came")]
    Missing {
        /// The first line that was not reached.
        line: usize,
        /// What it says.
        expected: String,
    },
}

impl ScriptError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Line { .. } | Self::Length => Kind::Invalid,
            Self::Unexpected { .. } | Self::Missing { .. } => Kind::Internal,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Code(i32, Vec<Xid>),
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    number: usize,
    verb: &'static str,
    pattern: String,
    answer: Answer,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.pattern)
    }
}

#[derive(Debug)]
struct Progress {
    waiting: VecDeque<Line>,
    last: usize,
    first_error: Option<ScriptError>,
}

/// A script and how far it has come. Clones share both, so that a test can ask while somebody else drives.
#[derive(Clone, Debug)]
pub struct Script {
    progress: Arc<Mutex<Progress>>,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError::Line`] names the first wrong line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut waiting = VecDeque::new();
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            last = index.saturating_add(1);
            if last > LINES_MAX {
                return Err(ScriptError::Length);
            }
            let call = line.split('#').next().unwrap_or_default().trim();
            if !call.is_empty() {
                let parsed = parse_line(last, call).map_err(|reason| ScriptError::Line {
                    line: last,
                    text: call.chars().take(SHOWN_CHARS).collect(),
                    reason,
                })?;
                waiting.push_back(parsed);
            }
        }
        Ok(Self { progress: Arc::new(Mutex::new(Progress { waiting, last, first_error: None })) })
    }

    /// Whether everything has come as written, and all of it.
    ///
    /// # Errors
    /// The first call that was not expected, else the first that is missing.
    pub fn verdict(&self) -> Result<(), ScriptError> {
        let progress = self.progress();
        match (&progress.first_error, progress.waiting.front()) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(line)) => Err(ScriptError::Missing { line: line.number, expected: line.to_string() }),
            (None, None) => Ok(()),
        }
    }

    fn answer(&self, verb: &Verb) -> Reply {
        let mut progress = self.progress();
        let (got_verb, got_name) = described(verb);
        let expected = match progress.waiting.front() {
            Some(line) if line.verb == got_verb && matches(&line.pattern, &got_name) => {
                let answer = line.answer.clone();
                progress.waiting.pop_front();
                return replied(verb, answer);
            }
            Some(line) => (line.number, line.to_string()),
            None => (progress.last.saturating_add(1), "no further call".to_owned()),
        };
        let error =
            ScriptError::Unexpected { line: expected.0, expected: expected.1, got: format!("{got_verb} {got_name}") };
        let native = Native { code: "script".to_owned(), message: error.to_string() };
        progress.first_error.get_or_insert(error);
        Reply::Refused(Kind::Internal, native)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Every change under the lock is one step: a panic elsewhere leaves nothing half done.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn described(verb: &Verb) -> (&'static str, String) {
    match verb {
        Verb::Start(xid) => ("start", xid.to_string()),
        Verb::End { xid, success: true } => ("end", xid.to_string()),
        Verb::End { xid, success: false } => ("end-failed", xid.to_string()),
        Verb::Prepare(xid) => ("prepare", xid.to_string()),
        Verb::Commit(xid) => ("commit", xid.to_string()),
        Verb::CommitOnePhase(xid) => ("commit-one-phase", xid.to_string()),
        Verb::Rollback(xid) => ("rollback", xid.to_string()),
        Verb::Recover(node) => ("recover", node.to_string()),
        Verb::Forget(xid) => ("forget", xid.to_string()),
        Verb::Claim(node) => ("claim", node.to_string()),
        Verb::Inquire { xid, .. } => ("inquire", xid.to_string()),
        Verb::Evict(xid) => ("evict", xid.to_string()),
        Verb::Freed { xid, .. } => ("freed", xid.to_string()),
        Verb::CommitLast { xid, .. } => ("commit-last", xid.to_string()),
        Verb::Settle { tx, .. } => ("settle", tx.to_string()),
        Verb::Rows { node, .. } => ("rows", node.to_string()),
        Verb::Clear { node, .. } => ("clear", node.to_string()),
    }
}

const VERBS: [&str; 17] = [
    "start",
    "end",
    "end-failed",
    "prepare",
    "commit",
    "commit-one-phase",
    "rollback",
    "recover",
    "forget",
    "claim",
    "inquire",
    "evict",
    "freed",
    "commit-last",
    "settle",
    "rows",
    "clear",
];

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

fn replied(verb: &Verb, answer: Answer) -> Reply {
    match answer {
        Answer::Lost => {
            Reply::Lost(Native { code: "lost".to_owned(), message: "the script lost this answer".to_owned() })
        }
        Answer::Code(0, xids) if matches!(verb, Verb::Recover(_)) => Reply::Listed(xids),
        Answer::Code(code, _) => codes::reply(verb, code),
    }
}

fn parse_line(number: usize, text: &str) -> Result<Line, String> {
    let Some((call, answer)) = text.split_once("->") else {
        return Err("write verb [xid] -> answer".to_owned());
    };
    let mut words = call.split_whitespace();
    let word = words.next().unwrap_or_default();
    let Some(verb) = VERBS.into_iter().find(|verb| *verb == word) else {
        return Err(format!("no verb is called {word:?}; there are {}", VERBS.join(", ")));
    };
    let pattern = words.next().unwrap_or("*").to_owned();
    if words.next().is_some() {
        return Err("one XID is expected before ->".to_owned());
    }
    check_pattern(verb, &pattern)?;
    Ok(Line { number, verb, pattern, answer: parse_answer(verb, answer)? })
}

fn check_pattern(verb: &str, pattern: &str) -> Result<(), String> {
    match pattern.strip_suffix('*') {
        Some(beginning) if beginning.contains('*') => Err("* stands for the rest of an XID and comes last".to_owned()),
        Some(_) => Ok(()),
        None if matches!(verb, "recover" | "claim") => match pattern.len() {
            16 if pattern.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) => Ok(()),
            _ => Err(format!("node {pattern:?}; write 16 lower-case hexadecimal digits or *")),
        },
        None => match pattern.parse::<Xid>() {
            Ok(xid) if xid.to_string() == pattern => Ok(()),
            Ok(xid) => Err(format!("write the XID as {xid}")),
            Err(error) => Err(error.to_string()),
        },
    }
}

fn parse_answer(verb: &str, text: &str) -> Result<Answer, String> {
    let mut words = text.split_whitespace();
    let Some(name) = words.next() else {
        return Err("an answer is missing after ->; write a code of xa.h or lost".to_owned());
    };
    let xids: Vec<Xid> =
        words.map(|word| word.parse::<Xid>().map_err(|error| error.to_string())).collect::<Result<_, _>>()?;
    if name == "lost" {
        return if xids.is_empty() { Ok(Answer::Lost) } else { Err("lost has no list".to_owned()) };
    }
    let code = codes::by_name(name).ok_or_else(|| format!("no code of xa.h is called {name:?}"))?;
    match name {
        "XA_RDONLY" if !matches!(verb, "end" | "prepare") => Err("XA_RDONLY answers end and prepare only".to_owned()),
        _ if !xids.is_empty() && (verb, name) != ("recover", "XA_OK") => {
            Err("only recover -> XA_OK is followed by XIDs".to_owned())
        }
        _ => Ok(Answer::Code(code, xids)),
    }
}

/// A connection that answers from a [`Script`].
#[derive(Debug)]
pub struct Scripted {
    name: String,
    script: Script,
    answer: Option<Reply>,
}

impl Scripted {
    /// A connection of this name; several may share a script.
    #[must_use]
    pub fn new(name: &str, script: &Script) -> Self {
        Self { name: name.to_owned(), script: script.clone(), answer: None }
    }
}

impl Resource for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        // A second verb before the answer is not done; the answer that is missing for it says so.
        if self.answer.is_none() {
            self.answer = Some(self.script.answer(&verb));
        }
    }

    fn receive(&mut self) -> Reply {
        self.answer.take().unwrap_or_else(|| Reply::Refused(Kind::Internal, unsent()))
    }
}

/// Opens connections that share one script.
#[derive(Debug)]
pub struct ScriptedConnector {
    name: String,
    script: Script,
}

impl ScriptedConnector {
    /// Connections of this name.
    #[must_use]
    pub fn new(name: &str, script: &Script) -> Self {
        Self { name: name.to_owned(), script: script.clone() }
    }
}

impl Connector for ScriptedConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        Ok(Box::new(Scripted::new(&self.name, &self.script)))
    }
}
