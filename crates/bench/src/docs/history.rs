//! The scenario of a long history: a tiny document, one field set again and again, each commit durable.
//!
//! Walk: [`run`] commits, and at each depth opens · then what a history is read by, warm and cold: revisions, lists, differences, JSON ·
//! then writers of many documents and readers beside a writer (`readers`) · then depths beyond ([`deep`]), filled without syncs.

use std::hint::black_box;
use std::time::Duration;

use assent_docs::{At, Diff, Document, Form, Look as _, Meta, NodeKey, Scope, Value, Versioning};

use super::desk::Desk;
use super::{Stage, failed, now, number, open_and_read, readers, wrong};
use crate::BenchError;
use crate::record::Recorder;
use crate::report::Cell;

/// The document.
pub(super) const NAME: &str = "tiny";
/// A history is read by pages of so many.
const PAGE: usize = 100;
/// So many durable commits are measured at a depth that was filled.
const DEEP_COMMITS: u32 = 200;

/// What every commit sets: as many digits at any depth.
pub(super) fn count(revision: u32) -> String {
    (1_000_000_000 + u64::from(revision)).to_string()
}

/// Makes the document with revision 1; the field that commits set.
pub(super) fn make(desk: &Desk, name: &str) -> Result<(Document, NodeKey), BenchError> {
    let doc = desk.db.create(name, Versioning::default()).map_err(failed)?;
    let mut edit = doc.edit().map_err(failed)?;
    let json = format!(r#"{{"name":"ann","count":{}}}"#, count(1));
    let value = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).map_err(failed)?;
    let field = edit.member(value, "count").map_err(failed)?.ok_or_else(|| wrong("the field is not there"))?;
    edit.commit(&Meta::default()).map_err(failed)?;
    Ok((doc, field))
}

/// One durable commit.
pub(super) fn commit(doc: &Document, field: NodeKey) -> Result<u32, BenchError> {
    let mut edit = doc.edit().map_err(failed)?;
    let next = doc.latest().number() + 1;
    edit.set(field, Value::Number(&count(next))).map_err(failed)?;
    Ok(edit.commit(&Meta::default()).map_err(failed)?.number())
}

pub(super) fn run(stage: &Stage<'_>) -> Result<(), BenchError> {
    let mut desk = Desk::open(stage.folder, stage.given.cache_bytes)?;
    let (mut doc, field) = make(&desk, NAME)?;
    let mut commits = Commits::default();
    let newest = stage.given.commits.max(2);
    while doc.latest().number() < newest && !stage.sink.interrupted() {
        let from = doc.latest().number();
        let next_depth = stage.given.depths.iter().copied().filter(|depth| *depth > from).min();
        let to = (from / stage.given.step * stage.given.step + stage.given.step).min(newest);
        let to = next_depth.map_or(to, |depth| to.min(depth));
        commits.slice(stage, &desk, &doc, field, to)?;
        stage.tell(&format!("history: {to} of {newest} commits"));
        if stage.given.depths.contains(&to) || to == newest {
            drop(doc);
            desk = opens(stage, desk, to)?;
            doc = desk.document(NAME)?;
        }
    }
    commits.put(stage, "one field, one thread")?;
    drop(doc);
    if stage.sink.interrupted() {
        return Ok(());
    }
    desk = reads(stage, desk, newest)?;
    stage.tell("history: writers and readers");
    readers::writers(stage, &desk)?;
    readers::readers(stage, &desk, newest)?;
    deep(stage, desk)
}

/// Depths beyond the commits that were measured one by one.
fn deep(stage: &Stage<'_>, mut desk: Desk) -> Result<(), BenchError> {
    let mut depths = stage.given.depths.clone();
    depths.sort_unstable();
    for depth in depths {
        let doc = desk.document(NAME)?;
        let begun = doc.latest().number();
        drop(doc);
        if depth <= begun.saturating_add(DEEP_COMMITS) || stage.sink.interrupted() {
            continue;
        }
        desk = deepen(stage, desk, depth - DEEP_COMMITS)?;
        if stage.sink.interrupted() {
            break;
        }
        let doc = desk.document(NAME)?;
        let field = super::three_steps(&doc.latest())?.0;
        let mut commits = Commits::default();
        commits.slice(stage, &desk, &doc, field, depth)?;
        commits.put(stage, &format!("one field, {depth} revisions deep"))?;
        drop(doc);
        desk = opens(stage, desk, depth)?;
        for revision in [1, depth / 2, depth] {
            let on = format!("revision {revision} of {depth}");
            desk = both(stage, desk, (NAME, "open and read", &on), |doc| open_and_read(doc, revision))?;
        }
        let on = format!("a page of {PAGE} of {depth}");
        desk = both(stage, desk, (NAME, "history", &on), |doc| list(doc, PAGE, depth))?;
    }
    Ok(())
}

/// Commits up to a depth that are durable when all of them are.
fn deepen(stage: &Stage<'_>, desk: Desk, to: u32) -> Result<Desk, BenchError> {
    let desk = desk.close()?.open_unsynced()?;
    let doc = desk.document(NAME)?;
    let field = super::three_steps(&doc.latest())?.0;
    while doc.latest().number() < to && !stage.sink.interrupted() {
        let newest = commit(&doc, field)?;
        if newest.is_multiple_of(10_000) {
            stage.tell(&format!("history: filled to {newest} of {to}"));
        }
    }
    drop(doc);
    desk.again()
}

/// So many of the newest revisions, as a list.
fn list(doc: &Document, limit: usize, newest: u32) -> Result<(), BenchError> {
    let told = doc.history(0..=u32::MAX, limit).map_err(failed)?;
    let expected = limit.min(usize::try_from(newest).unwrap_or(usize::MAX));
    if told.len() == expected && told.first().is_some_and(|told| told.revision == newest) {
        return Ok(());
    }
    Err(wrong(format!("a history of {} revisions, {expected} were asked for", told.len())))
}

/// Commits and what each slice of them cost.
#[derive(Default)]
struct Commits {
    recorder: Recorder,
    series: Vec<(f64, f64)>,
    took: Duration,
    bytes: u64,
    syncs: u64,
    writes: u64,
    count: u64,
    floors: Vec<f64>,
    ratios: Vec<f64>,
}

impl Commits {
    fn slice(
        &mut self,
        stage: &Stage<'_>,
        desk: &Desk,
        doc: &Document,
        field: NodeKey,
        to: u32,
    ) -> Result<(), BenchError> {
        let (before, bytes, start) = (desk.journal.counts(), desk.end_bytes(), now());
        let mut commits = 0;
        while doc.latest().number() < to {
            let begun = now();
            commit(doc, field)?;
            self.recorder.record("commit", begun.elapsed());
            commits += 1;
        }
        let (took, after) = (start.elapsed(), desk.journal.counts());
        let bytes = desk.end_bytes() - bytes;
        let floor_us = stage.floor(bytes / commits.max(1), stage.given.slice)?;
        let rate = number(commits) / took.as_secs_f64().max(1e-9);
        self.series.push((f64::from(to), rate));
        self.floors.push(floor_us);
        self.ratios.push(rate * floor_us / 1e6);
        (self.took, self.bytes, self.count) = (self.took + took, self.bytes + bytes, self.count + commits);
        self.syncs += after.syncs - before.syncs;
        self.writes += after.writes - before.writes;
        Ok(())
    }

    fn put(self, stage: &Stage<'_>, on: &str) -> Result<(), BenchError> {
        let mut cell = stage.row("commit", on);
        let count = number(self.count.max(1));
        let figures = [
            ("per_s", count / self.took.as_secs_f64().max(1e-9)),
            ("bytes_each", number(self.bytes) / count),
            ("syncs_each", number(self.syncs) / count),
            ("writes_each", number(self.writes) / count),
            ("floor_us", crate::stats::median(&self.floors)),
            ("ratio_to_floor", crate::stats::median(&self.ratios)),
        ];
        fill(&mut cell, &figures);
        self.recorder.fill(&mut cell)?;
        cell.series.insert("commits_per_s".to_owned(), self.series);
        stage.sink.put(cell)
    }
}

pub(super) fn fill(cell: &mut Cell, figures: &[(&str, f64)]) {
    cell.figures.extend(figures.iter().map(|(name, value)| ((*name).to_owned(), *value)));
}

/// How long it takes to open the database, and a document of it.
fn opens(stage: &Stage<'_>, mut desk: Desk, depth: u32) -> Result<Desk, BenchError> {
    let mut recorder = Recorder::default();
    for _ in 0..stage.given.cold {
        // The close is not timed: what is there then is what the open finds.
        desk = again(desk, &mut recorder)?;
        let begun = now();
        let doc = desk.document(NAME)?;
        let newest = black_box(doc.latest().number());
        recorder.record("document_cold", begun.elapsed());
        if newest != depth {
            return Err(wrong(format!("after an open the newest revision is {newest}, {depth} was committed")));
        }
    }
    for _ in 0..stage.given.warm {
        let begun = now();
        black_box(desk.document(NAME)?.latest());
        recorder.record("document_warm", begun.elapsed());
    }
    let mut cell = stage.row("open", &format!("{depth} revisions"));
    recorder.fill(&mut cell)?;
    stage.sink.put(cell)?;
    Ok(desk)
}

/// Closes a database and opens it again, and keeps what that took: journal, index and all.
fn again(desk: Desk, recorder: &mut Recorder) -> Result<Desk, BenchError> {
    let closed = desk.close()?;
    let begun = now();
    let desk = closed.open()?;
    recorder.record("database", begun.elapsed());
    Ok(desk)
}

/// What is done to a document, warm and cold.
pub(super) fn both(
    stage: &Stage<'_>,
    mut desk: Desk,
    (name, row, on): (&str, &str, &str),
    call: impl Fn(&Document) -> Result<(), BenchError>,
) -> Result<Desk, BenchError> {
    let mut recorder = Recorder::default();
    for _ in 0..stage.given.cold {
        desk = desk.again()?;
        let doc = desk.document(name)?;
        let begun = now();
        call(&doc)?;
        recorder.record("cold", begun.elapsed());
    }
    let doc = desk.document(name)?;
    call(&doc)?;
    for _ in 0..stage.given.warm {
        let begun = now();
        call(&doc)?;
        recorder.record("warm", begun.elapsed());
    }
    drop(doc);
    let mut cell = stage.row(row, on);
    recorder.fill(&mut cell)?;
    stage.sink.put(cell)?;
    stage.tell(&format!("{}: {row}, {on}", stage.scenario.name()));
    Ok(desk)
}

fn reads(stage: &Stage<'_>, mut desk: Desk, newest: u32) -> Result<Desk, BenchError> {
    for revision in [1, (newest / 2).max(1), newest] {
        let on = format!("revision {revision}");
        desk = both(stage, desk, (NAME, "open and read", &on), |doc| open_and_read(doc, revision))?;
    }
    let all = format!("{newest} revisions");
    desk = both(stage, desk, (NAME, "history", &all), |doc| list(doc, usize::MAX, newest))?;
    desk = both(stage, desk, (NAME, "history", "a page of 100"), |doc| list(doc, PAGE, newest))?;
    for (from, to) in [(1, 2), (newest - 1, newest), (1, newest)] {
        let on = format!("revisions {from} and {to}");
        desk = both(stage, desk, (NAME, "diff", &on), |doc| differ(doc, from, to, 1))?;
    }
    for revision in [1, newest] {
        let on = format!("revision {revision}");
        desk = both(stage, desk, (NAME, "serialise", &on), |doc| {
            let text = Form::default().text(&doc.at(revision).map_err(failed)?).map_err(failed)?;
            let expected = format!(r#"{{"name":"ann","count":{}}}"#, count(revision));
            if text == expected { Ok(()) } else { Err(wrong(format!("revision {revision} is {text}"))) }
        })?;
    }
    Ok(desk)
}

/// Takes the difference of two revisions, which is so many nodes, and lays it as JSON.
pub(super) fn differ(doc: &Document, from: u32, to: u32, nodes: usize) -> Result<(), BenchError> {
    let (old, new) = (doc.at(from).map_err(failed)?, doc.at(to).map_err(failed)?);
    let diff = Diff::between(&old, &new, Scope::default()).map_err(failed)?;
    let mut out = Vec::new();
    diff.write("bench", true, &mut out).map_err(failed)?;
    black_box(out);
    if diff.differences().len() == nodes {
        return Ok(());
    }
    Err(wrong(format!("{} nodes differ in revisions {from} and {to}", diff.differences().len())))
}
