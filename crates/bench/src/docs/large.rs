//! The scenario of large documents: loaded as a stream, then one field at a time, each commit durable, against a tiny document.
//!
//! Walk: [`run`] takes size by size · [`Text`] is JSON that is made while it is read.

use std::io::Read;

use assent_docs::{At, Document, Form, Look as _, Meta, NodeKey, Value, Versioning};

use super::desk::Desk;
use super::history::{both, commit, differ, fill, make};
use super::{Stage, failed, now, number, wrong};
use crate::BenchError;
use crate::record::Recorder;
use crate::stats::median;

const MB: f64 = 1e6;
/// Nodes of an object.
const OBJECT_NODES: u64 = 4;

/// An array of objects of about 90 bytes, made while it is read.
struct Text {
    objects: u64,
    next: u64,
    rest: Vec<u8>,
    taken: usize,
    bytes: u64,
}

fn object(number: u64) -> String {
    let (id, price) = (1_000_000_000 + number, 100 + number % 900);
    format!(r#"{{"id":{id},"name":"a name of some length, of object {id}","price":{price}.50}}"#)
}

impl Text {
    fn of(bytes: u64) -> Self {
        let objects = (bytes / u64::try_from(object(0).len() + 1).unwrap_or(1)).max(2);
        Self { objects, next: 0, rest: b"[".to_vec(), taken: 0, bytes: 0 }
    }
}

impl Read for Text {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.rest.len() && self.next < self.objects {
            self.rest.clear();
            self.taken = 0;
            // A good piece at a time: a parser asks for a few kilobytes.
            while self.rest.len() < 64 << 10 && self.next < self.objects {
                self.rest.extend_from_slice(object(self.next).as_bytes());
                self.next += 1;
                self.rest.push(if self.next == self.objects { b']' } else { b',' });
            }
        }
        let rest = self.rest.get(self.taken..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        self.taken += count;
        self.bytes += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }
}

pub(super) fn run(stage: &Stage<'_>) -> Result<(), BenchError> {
    let mut desk = Desk::open(stage.folder, stage.given.cache_bytes)?;
    let (tiny, field) = make(&desk, "tiny")?;
    let mut recorder = Recorder::default();
    for _ in 0..stage.given.large_commits {
        let begun = now();
        commit(&tiny, field)?;
        recorder.record("commit", begun.elapsed());
    }
    drop(tiny);
    let tiny_us = recorder.latency("commit").p50;
    for size in &stage.given.sizes {
        if stage.sink.interrupted() {
            return Ok(());
        }
        let name = size.to_string();
        #[expect(clippy::cast_precision_loss, reason = "sizes below 2^52")]
        let on = format!("{} MB", crate::report::shown(*size as f64 / MB));
        stage.tell(&format!("large: loading {on}"));
        load(stage, &desk, &name, *size, &on)?;
        commits(stage, &desk, &name, &on, tiny_us)?;
        let newest = desk.document(&name)?.latest().number();
        let neighbours = |doc: &Document| differ(doc, newest - 1, newest, 1);
        desk = both(stage, desk, (&name, "diff", &format!("neighbours of {on}")), neighbours)?;
        let far = |doc: &Document| differ(doc, 1, 2, 1);
        desk = both(stage, desk, (&name, "diff", &format!("revisions 1 and 2 of {on}")), far)?;
        serialise(stage, &desk, &name, &on)?;
    }
    Ok(())
}

/// Streamed in, committed, durable.
fn load(stage: &Stage<'_>, desk: &Desk, name: &str, size: u64, on: &str) -> Result<(), BenchError> {
    let doc = desk.db.create(name, Versioning::default()).map_err(failed)?;
    let (mut text, log, begun) = (Text::of(size), desk.end_bytes(), now());
    let mut edit = doc.edit().map_err(failed)?;
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, &mut text).map_err(failed)?;
    let revision = edit.commit(&Meta::default()).map_err(failed)?;
    let took = begun.elapsed();
    let value = revision.value().ok_or_else(|| wrong("nothing was loaded"))?;
    let found = revision.item(value).map_err(failed)?.node.descendants;
    if found != OBJECT_NODES * text.objects {
        return Err(wrong(format!("{found} nodes were loaded of {} objects", text.objects)));
    }
    let mut cell = stage.row("load", on);
    let written = number(desk.end_bytes() - log);
    let rate = number(text.bytes) / MB / took.as_secs_f64().max(1e-9);
    let figures =
        [("mb", number(text.bytes) / MB), ("mb_per_s", rate), ("written_per_byte", written / number(text.bytes))];
    fill(&mut cell, &figures);
    stage.sink.put(cell)
}

/// One field each, all over the document.
fn commits(stage: &Stage<'_>, desk: &Desk, name: &str, on: &str, tiny_us: f64) -> Result<(), BenchError> {
    let doc = desk.document(name)?;
    let value = doc.latest().value().ok_or_else(|| wrong("the document is empty"))?;
    let objects = doc.latest().item(value).map_err(failed)?.node.children;
    let (mut recorder, mut most, mut floors) = (Recorder::default(), 0, Vec::new());
    let (start, mut spent) = (desk.end_bytes(), std::time::Duration::ZERO);
    let count = u64::from(stage.given.large_commits.max(2));
    for number in 0..count {
        // Keys are given in document order: the fourth node of an object is its price.
        let price = NodeKey(value.0 + OBJECT_NODES * (1 + number * 7_919 % objects));
        let (before, begun) = (desk.end_bytes(), now());
        let mut edit = doc.edit().map_err(failed)?;
        edit.set(price, Value::Number(&format!("{}.25", 1_000 + number))).map_err(failed)?;
        edit.commit(&Meta::default()).map_err(failed)?;
        let took = begun.elapsed();
        spent += took;
        recorder.record("commit", took);
        most = most.max(desk.end_bytes() - before);
        if number % (count / 4).max(1) == 0 {
            floors.push(stage.floor((desk.end_bytes() - start) / (number + 1), stage.given.slice)?);
        }
    }
    let (rate, floor) = (number(count) / spent.as_secs_f64().max(1e-9), median(&floors));
    let mut cell = stage.row("commit", &format!("one field of {on}"));
    let p50 = recorder.latency("commit").p50;
    let figures = [
        ("per_s", rate),
        ("bytes_each", number(desk.end_bytes() - start) / number(count)),
        ("bytes_most", number(most)),
        ("floor_us", floor),
        ("ratio_to_floor", rate * floor / 1e6),
        ("p50_ratio_to_tiny", p50 / tiny_us.max(1e-9)),
    ];
    fill(&mut cell, &figures);
    recorder.fill(&mut cell)?;
    stage.sink.put(cell)
}

/// All of it written as JSON, once.
fn serialise(stage: &Stage<'_>, desk: &Desk, name: &str, on: &str) -> Result<(), BenchError> {
    let revision = desk.document(name)?.latest();
    let (mut bytes, begun) = (0, now());
    for chunk in Form::default().chunks(&revision) {
        bytes += u64::try_from(chunk.map_err(failed)?.len()).unwrap_or(0);
    }
    let took = begun.elapsed();
    let mut cell = stage.row("serialise", on);
    fill(&mut cell, &[("mb", number(bytes) / MB), ("mb_per_s", number(bytes) / MB / took.as_secs_f64().max(1e-9))]);
    stage.sink.put(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_json_of_about_that_size() {
        let mut text = String::new();
        let mut source = Text::of(100_000);
        source.read_to_string(&mut text).unwrap();
        assert!((95_000..105_000).contains(&text.len()), "{} bytes", text.len());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let all = value.as_array().unwrap();
        assert_eq!((all.len() as u64, source.bytes), (source.objects, text.len() as u64));
        assert!(all.iter().all(|object| object.as_object().unwrap().len() == 3));
        assert_eq!(all[7]["id"], 1_000_000_007);
    }
}
