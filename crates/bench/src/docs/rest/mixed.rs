//! Readers of a page, a writer of the same document, and both together: a writer flat out, and one that commits so often at most. In every round all of
//! them.

use std::path::Path;

use super::page::{self, DOCUMENT};
use super::server::Server;
use super::{Subject, Taken};
use crate::BenchError;
use crate::docs::{Stage, wrong};
use crate::web::{Expected, Group};

pub(super) fn run(stage: &Stage<'_>, program: &Path) -> Result<(), BenchError> {
    let first = stage.given.revisions.iter().copied().min().unwrap_or(1);
    stage.tell("mixed: making the document");
    let server = Server::start(program, &stage.folder.join("open"), None)?;
    let subject = Subject::page(server, "read", stage.given.objects, first)?;
    let readers = subject.group(stage.given.readers);
    let mut next = u64::from(first) + 1;
    let mut alone = Taken::default();
    let (mut writing, mut both, mut paced) = (Taken::default(), Taken::default(), Taken::default());
    for round in 0..stage.given.rounds {
        stage.tell(&format!("mixed: round {}", round + 1));
        alone.add(subject.load(stage, vec![readers.clone()])?);
        let beside = || Some(readers.clone());
        for (taken, per_s_max, beside) in
            [(&mut writing, None, None), (&mut both, None, beside()), (&mut paced, Some(stage.given.pace), beside())]
        {
            let writer = Group { per_s_max, ..writer(&subject, next) };
            let groups = std::iter::once(writer).chain(beside).collect();
            let outcome = subject.load(stage, groups)?;
            next += outcome.answered.first().copied().unwrap_or(0);
            taken.add(outcome);
        }
        if stage.sink.interrupted() {
            return Ok(());
        }
    }
    let newest = page::newest(&mut subject.server.line()?, &subject.server.headers)?;
    let commits = writing.answered(0) + both.answered(0) + paced.answered(0);
    if u64::from(newest) != u64::from(first) + commits {
        return Err(wrong(format!("{newest} revisions, {first} and {commits} commits were answered")));
    }
    let slower = format!("a writer of {}/s", crate::report::shown(f64::from(stage.given.pace)));
    rows(stage, &alone, &writing, &[("a writer", &both), (&slower, &paced)])
}

fn rows(stage: &Stage<'_>, alone: &Taken, writing: &Taken, beside: &[(&str, &Taken)]) -> Result<(), BenchError> {
    let readers = stage.given.readers;
    let put = |taken: &Taken, on: &str, calls: &[&'static str], figures: &[(&str, f64)]| {
        let mut cell = stage.row("read and commit", on);
        taken.fill(&mut cell, calls)?;
        cell.figures.remove("per_s");
        cell.figures.extend(figures.iter().map(|(name, value)| ((*name).to_owned(), *value)));
        stage.sink.put(cell)
    };
    put(alone, &format!("{readers} readers alone"), &["read"], &[("per_s", alone.rate(0))])?;
    put(writing, "a writer alone", &["commit"], &[("commits_per_s", writing.rate(0))])?;
    beside.iter().try_for_each(|(writer, both)| {
        let ratio = both.rate(1) / alone.rate(0);
        let figures = [("per_s", both.rate(1)), ("ratio_to_alone", ratio), ("commits_per_s", both.rate(0))];
        put(both, &format!("{readers} readers beside {writer}"), &["commit", "read"], &figures)
    })
}

/// Commits of one field, one after the other.
fn writer(subject: &Subject, from: u64) -> Group {
    let (before, after) = page::PATCH;
    Group {
        connections: 1,
        head: subject.server.head("PATCH", DOCUMENT, page::PATCH_TYPE),
        per_s_max: None,
        counted: Some((before.to_owned(), after.to_owned(), page::COUNT_FROM + from)),
        expected: Expected { status: 200, body: None },
    }
}
