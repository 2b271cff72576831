//! The scenarios over HTTP: one page of a large document, asked for again and again, by more and more clients; and readers beside a
//! writer. Servers, floor and generator are processes of their own.
//!
//! Each answer is made anew from the nodes and checked: its status, its length, and a hash of its body against the first one, whose
//! values are checked one by one. The writer sets a field that the page does not show.
//!
//! Walk: [`run`] starts servers (`server`) and makes the document (`page`) · [`Ladder`] asks, subject by subject in each round ·
//! [`mixed`] readers alone, a writer alone, both, and beside a writer that does not go flat out.
//! Deliberately absent: a cache of answers. What a client keeps by its tag is a row of its own.

mod mixed;
mod page;
mod server;

use std::path::Path;
use std::time::Duration;

use assent_kind::Kind;

use self::page::{DOCUMENT, PAGE};
use self::server::{Server, User};
use super::scenario::Scenario;
use super::{Stage, number};
use crate::BenchError;
use crate::record::Recorder;
use crate::report::{Cell, Floor};
use crate::web::{Expected, Group, Outcome, Plan};

/// The folder of the server that asks nobody who he is.
const OPEN: &str = "open";
/// With a long history the ladder has these rungs.
const RUNGS: [u32; 2] = [1, 16];

/// Runs one of the two.
pub(super) fn run(stage: &Stage<'_>) -> Result<(), BenchError> {
    let missing = || BenchError::new(Kind::Invalid, "the scenarios over HTTP need the program that has the servers");
    let program = stage.given.program.as_deref().ok_or_else(missing)?;
    let ran = match stage.scenario {
        Scenario::Mixed => mixed::run(stage, program),
        _ => ladders(stage, program),
    };
    // A signal of the terminal ends the servers too.
    if stage.sink.interrupted() { Ok(()) } else { ran }
}

fn ladders(stage: &Stage<'_>, program: &Path) -> Result<(), BenchError> {
    let mut depths = stage.given.revisions.clone();
    depths.sort_unstable();
    let first = depths.first().copied().unwrap_or(1);
    stage.tell("rest: making the document");
    let open = Server::start(program, &stage.folder.join(OPEN), None)?;
    let mut open = Subject::page(open, "read", stage.given.objects, first)?;
    let user = User::new(program)?;
    let known = Server::start(program, &stage.folder.join("known"), Some(&user))?;
    let known = Subject::page(known, "read, a token checked in every request", stage.given.objects, first)?;
    let floor = Subject::floor(program, open.expected.body.map_or(0, |(bytes, _)| bytes))?;
    let cached = open.cached(first)?;
    for clients in &stage.given.clients {
        ladder(stage, &[&floor, &open, &known, &cached], *clients, first)?;
    }
    drop((known, cached));
    for depth in depths.into_iter().skip(1) {
        open = open.grown(stage, program, depth)?;
        for clients in RUNGS {
            ladder(stage, &[&floor, &open], clients, depth)?;
        }
    }
    Ok(())
}

/// One rung: rounds of all subjects in turn, then a row of each.
fn ladder(stage: &Stage<'_>, subjects: &[&Subject], clients: u32, revisions: u32) -> Result<(), BenchError> {
    let mut taken = vec![Taken::default(); subjects.len()];
    for round in 0..stage.given.rounds {
        stage.tell(&format!("rest: {clients} clients, {revisions} revisions, round {}", round + 1));
        for (subject, taken) in subjects.iter().zip(&mut taken) {
            if stage.sink.interrupted() {
                return Ok(());
            }
            taken.add(subject.load(stage, vec![subject.group(clients)])?);
        }
    }
    let rate = |of: Option<&Taken>| of.map_or(0.0, |taken| taken.rate(0));
    for (subject, of) in subjects.iter().zip(&taken) {
        let mut cell = stage.row(&subject.row, &on(clients, revisions));
        cell.labels.insert("clients".to_owned(), clients.to_string());
        of.fill(&mut cell, &["read"])?;
        let ratio = of.rate(0) / rate(taken.first());
        cell.figures.insert("ratio_to_floor".to_owned(), ratio);
        if subject.is_known {
            cell.figures.insert("ratio_to_open".to_owned(), of.rate(0) / rate(taken.get(1)));
        }
        if subject.server.is_floor {
            let name = format!("constant answer over HTTP, {clients} clients");
            let figures = cell.figures.iter().filter_map(|(name, value)| Some((name.strip_prefix("read_")?, *value)));
            let figures = figures.map(|(name, value)| (name.trim_end_matches("_us").to_owned(), value)).collect();
            stage.sink.put_floor(Floor { name, unit: "us".to_owned(), figures })?;
        }
        stage.sink.put(cell)?;
    }
    Ok(())
}

fn on(clients: u32, revisions: u32) -> String {
    let plural = if clients == 1 { "" } else { "s" };
    format!("{clients} client{plural}, {} revisions", crate::report::shown(f64::from(revisions)))
}

/// Up to so many revisions.
fn fill(stage: &Stage<'_>, server: &Server, revisions: u32) -> Result<(), BenchError> {
    let mut line = server.line()?;
    while let at = page::newest(&mut line, &server.headers)?
        && at < revisions
        && !stage.sink.interrupted()
    {
        stage.tell(&format!("rest: {at} of {revisions} revisions"));
        page::commits(&mut line, &server.headers, at + 1, revisions.min(at + 1_000))?;
    }
    Ok(())
}

fn page_of(server: &Server) -> String {
    server.head("GET", &format!("{DOCUMENT}?{PAGE}"), "")
}

/// What is asked, of whom.
struct Subject {
    server: std::sync::Arc<Server>,
    row: String,
    head: String,
    expected: Expected,
    is_known: bool,
}

impl Subject {
    /// A server with the document in so many revisions.
    fn page(server: Server, row: &str, objects: u32, revisions: u32) -> Result<Self, BenchError> {
        let mut line = server.line()?;
        page::make(&mut line, &server.headers, objects, revisions)?;
        let body = page::checked(&mut line, &server.headers, objects)?;
        let expected = Expected { status: 200, body: Some((body.len(), crate::web::body_hash(&body))) };
        let head = page_of(&server);
        let is_known = !server.headers.is_empty();
        Ok(Self { server: std::sync::Arc::new(server), row: row.to_owned(), head, expected, is_known })
    }

    fn floor(program: &Path, bytes: usize) -> Result<Self, BenchError> {
        let server = Server::floor(program, bytes)?;
        let body = crate::web::floor::body(bytes);
        let expected = Expected { status: 200, body: Some((body.len(), crate::web::body_hash(&body))) };
        let (row, head) =
            ("floor: a constant answer".to_owned(), server.head("GET", &format!("{DOCUMENT}?{PAGE}"), ""));
        Ok(Self { server: std::sync::Arc::new(server), row, head, expected, is_known: false })
    }

    /// The same page of a revision that never changes, by clients who have it and send its tag.
    fn cached(&self, revision: u32) -> Result<Self, BenchError> {
        let path = format!("{DOCUMENT}?revision={revision}&{PAGE}");
        let tag = self.server.line()?.tag(&path, &self.server.headers)?;
        let head = self.server.head("GET", &path, &format!("If-None-Match: {tag}\r\n"));
        let row = "read, not changed by its tag".to_owned();
        let expected = Expected { status: 304, body: Some((0, crate::web::body_hash(b""))) };
        Ok(Self { server: std::sync::Arc::clone(&self.server), row, head, expected, is_known: false })
    }

    /// More revisions; the page stays as it is. A process of its own makes them without waiting for the disk: how long that takes is no
    /// part of this race. What it had not written when it was killed is made again.
    fn grown(self, stage: &Stage<'_>, program: &Path, revisions: u32) -> Result<Self, BenchError> {
        let folder = stage.folder.join(OPEN);
        // One process has a folder at a time.
        drop(self.server);
        fill(stage, &Server::lazy(program, &folder)?, revisions)?;
        let server = Server::start(program, &folder, None)?;
        fill(stage, &server, revisions)?;
        let head = page_of(&server);
        Ok(Self { server: std::sync::Arc::new(server), head, ..self })
    }

    fn group(&self, connections: u32) -> Group {
        Group { connections, head: self.head.clone(), counted: None, per_s_max: None, expected: self.expected }
    }

    /// One slice, by a generator of its own.
    fn load(&self, stage: &Stage<'_>, groups: Vec<Group>) -> Result<Outcome, BenchError> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let plan = Plan {
            at: self.server.at.to_string(),
            process: self.server.process(),
            warm_up_ms: ms(stage.given.warm_up),
            window_ms: ms(stage.given.window / stage.given.rounds.max(1)),
            groups,
        };
        self.server.generate(&plan)
    }
}

/// The slices of one row.
#[derive(Clone, Default)]
struct Taken(Vec<Outcome>);

impl Taken {
    fn add(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    fn nanos(&self, group: usize) -> impl Iterator<Item = u64> {
        self.0.iter().filter_map(move |outcome| outcome.nanos.get(group)).flatten().copied()
    }

    fn count(&self, group: usize) -> f64 {
        number(u64::try_from(self.nanos(group).count()).unwrap_or(u64::MAX))
    }

    fn seconds(&self) -> f64 {
        self.0.iter().map(|outcome| outcome.took_s).sum::<f64>().max(1e-9)
    }

    /// Answers a second to one group.
    fn rate(&self, group: usize) -> f64 {
        self.count(group) / self.seconds()
    }

    /// Answers to a group, before the windows too.
    fn answered(&self, group: usize) -> u64 {
        self.0.iter().filter_map(|outcome| outcome.answered.get(group)).sum()
    }

    /// Rates, percentiles of each group's calls, and processor time of an answer.
    fn fill(&self, cell: &mut Cell, calls: &[&'static str]) -> Result<(), BenchError> {
        let mut recorder = Recorder::default();
        for (group, call) in calls.iter().enumerate() {
            self.nanos(group).for_each(|nanos| recorder.record(call, Duration::from_nanos(nanos)));
        }
        let answers = (0..calls.len()).map(|group| self.count(group)).sum::<f64>().max(1.0);
        let sum = |of: fn(&Outcome) -> f64| self.0.iter().map(of).sum::<f64>();
        let bytes = self.0.iter().map(|outcome| outcome.bytes).sum::<u64>();
        let figures = [
            ("per_s", self.rate(0)),
            ("server_cpu_us", sum(|outcome| outcome.server_cpu_s) * 1e6 / answers),
            ("client_cpu_us", sum(|outcome| outcome.client_cpu_s) * 1e6 / answers),
            ("bytes_each", number(bytes) / answers),
        ];
        cell.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        recorder.fill(cell)
    }
}
