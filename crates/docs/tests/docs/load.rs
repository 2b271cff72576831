//! Lines that become values of an array, and writers that commit by themselves.

use std::io::{BufReader, Read};
use std::time::Duration;

use assent_docs::{At, Config, DocsError, Every, Form, Loaded, Look, Meta, NodeKey, Value, Versioning};
use assent_kind::Kind;

use super::{Desk, fresh, fresh_with};

#[test]
fn every_line_is_a_value_and_blank_ones_are_skipped() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let lines = "{\"a\":1.50}\n\n  \r\n[1,\r [2]]\r\n\"x\\ny\"\n \t-0";
    for buffer in [1, 3, 4096] {
        doc.truncate(0).unwrap();
        let mut told = Vec::new();
        let input = BufReader::with_capacity(buffer, lines.as_bytes());
        let loaded = doc.load_lines(input, Every::default(), &Meta::default(), |at| told.push(at)).unwrap();
        let bytes = lines.len() as u64;
        assert_eq!(loaded, Loaded { bytes, lines: 6, values: 4, committed: 4, revision: 1 });
        assert_eq!(told, [loaded]);
        let text = Form::default().text(&doc.latest()).unwrap();
        assert_eq!(text, r#"[{"a":1.50},[1,[2]],"x\ny",-0]"#);
        doc.latest().verify().unwrap();
    }
    // More behind what is there; and nothing is no change.
    let more = doc.load_lines("7\n".as_bytes(), Every::default(), &Meta::default(), |_| {}).unwrap();
    assert_eq!((more.values, more.revision, doc.latest().item(NodeKey(1)).is_ok()), (1, 2, false));
    let none = doc.load_lines("\n".as_bytes(), Every::default(), &Meta::default(), |_| {}).unwrap();
    assert_eq!((none.values, none.revision), (0, 2));
}

#[test]
fn what_was_committed_before_a_wrong_line_stays_and_the_line_is_named() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let every = Every { changes: Some(2), ms: None };
    let wrong = [("1\n2\n3\n4\n5\nnull null\n6\n", 6), ("1\n2\n3\n4\n5\n\n\n[1,\n2]\n", 8)];
    for (lines, line_of) in wrong {
        doc.truncate(0).unwrap();
        let mut told = Vec::new();
        let error =
            doc.load_lines(lines.as_bytes(), every, &Meta::default(), |at| told.push(at.committed)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        let DocsError::Line { line, committed, .. } = error else { panic!("{error}") };
        assert_eq!((line, committed), (line_of, 4));
        assert_eq!((told, doc.latest().number()), (vec![2, 4], 2));
        assert_eq!(Form::default().text(&doc.latest()).unwrap(), "[1,2,3,4]");
    }
    let other = desk.db.create("object", Versioning::default()).unwrap();
    let mut edit = other.edit().unwrap();
    edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Object).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let error = other.load_lines("1\n".as_bytes(), every, &Meta::default(), |_| {}).unwrap_err();
    assert_eq!((error.kind(), other.latest().number()), (Kind::Invalid, 1), "{error}");
    other.edit().unwrap();
}

/// Lines that are made while they are read.
struct Endless {
    left: u32,
    buffer: Vec<u8>,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.buffer.is_empty() && self.left > 0 {
            self.left -= 1;
            self.buffer = format!("{{\"number\":{},\"text\":\"some text\"}}\n", self.left).into_bytes();
        }
        let count = self.buffer.len().min(out.len());
        out[..count].copy_from_slice(&self.buffer[..count]);
        self.buffer.drain(..count);
        Ok(count)
    }
}

#[test]
fn a_load_tells_how_far_it_is_and_nothing_is_visible_before_its_commit() {
    const LINES: u32 = 60_000;
    let desk = fresh_with(Config { edit_nodes_max: 1024, ..Config::default() });
    let doc = desk.db.create("loaded", Versioning::default()).unwrap();
    let input = BufReader::new(Endless { left: LINES, buffer: Vec::new() });
    let (mut told, mut seen) = (Vec::new(), Vec::new());
    let loaded = doc.load_lines(input, Every::default(), &Meta::default(), |at| {
        told.push(at);
        seen.push(doc.latest().number());
    });
    assert!(told.len() > 2 && told.is_sorted_by_key(|at| at.bytes), "{told:?}");
    assert!(seen.iter().rev().skip(1).all(|revision| *revision == 0), "{seen:?}");
    assert_eq!(loaded.unwrap().values, u64::from(LINES));
    assert_eq!(doc.latest().verify().unwrap(), 1 + 3 * u64::from(LINES));
}

#[test]
fn a_writer_commits_by_count_and_by_time_and_what_is_left_when_it_is_finished() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let newest = || doc.latest().number();
    let mut writer = doc.writer(Every { changes: Some(3), ms: Some(1000) }, super::says("by itself"));
    let root = writer.change(|edit| edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array)).unwrap();
    let push = |writer: &mut assent_docs::Writer| {
        writer.change(|edit| edit.insert(At::Last(root), None, Value::Null)).unwrap();
    };
    push(&mut writer);
    assert_eq!((newest(), writer.uncommitted()), (0, 2));
    assert_eq!(doc.edit().unwrap_err().kind(), Kind::Busy, "it has the seat");
    push(&mut writer);
    assert_eq!((newest(), writer.uncommitted()), (1, 0));
    drop(doc.edit().unwrap());
    push(&mut writer);
    desk.clock.advance(Duration::from_millis(999));
    assert!(!writer.commit_due().unwrap());
    desk.clock.advance(Duration::from_millis(1));
    assert!(writer.commit_due().unwrap());
    assert_eq!((newest(), doc.latest().meta().message.as_str()), (2, "by itself"));
    push(&mut writer);
    assert_eq!(writer.finish().unwrap().number(), 3);
    let mut dropped = doc.writer(Every::default(), Meta::default());
    push(&mut dropped);
    drop(dropped);
    assert_eq!((newest(), doc.latest().item(root).unwrap().node.children), (3, 4));
}

#[test]
fn an_edit_of_long_texts_is_laid_while_it_is_made() {
    let desk = fresh_with(Config { cache_bytes: 0, ..Config::default() });
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array).unwrap();
    let text = "x".repeat(1 << 20);
    let entries = desk.log.counts().entries;
    let keys: Vec<NodeKey> =
        (0..20).map(|_| edit.insert(At::Last(root), None, Value::String(&text)).unwrap()).collect();
    assert!(desk.log.counts().entries > entries + 10, "twenty megabytes are not kept in memory");
    keys.iter().for_each(|key| edit.set(*key, Value::String(&text[1..])).unwrap());
    let revision = edit.commit(&Meta::default()).unwrap();
    assert_eq!(revision.verify().unwrap(), 21);
    assert_eq!(revision.item(keys[7]).unwrap().text().len(), text.len() - 1);
}

/// A document of two members, `many` with 60,000 values in it, in an edit that keeps a thousand nodes.
fn of_many() -> (Desk, assent_docs::Document, NodeKey) {
    let desk = fresh_with(Config { edit_nodes_max: 1024, ..Config::default() });
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let rows = vec!["{\"n\":0}"; 20_000].join(",");
    let json = format!("{{\"many\":[{rows},[[]],{}],\"few\":[1,2]}}", vec!["0"; 19_998].join(","));
    let top = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    let many = edit.member(top, "many").unwrap().unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().verify().unwrap(), 60_000 + 5);
    (desk, doc, many)
}

/// All of them were in memory until the commit.
#[test]
fn an_edit_that_takes_many_values_away_is_laid_while_it_does() {
    type Change = fn(&mut assent_docs::Edit, NodeKey) -> Result<(), DocsError>;
    let changes: [(Change, &str); 4] = [
        (|edit, many| edit.remove(many), r#"{"few":[1,2]}"#),
        (|edit, many| edit.replace(many, &b"[7]"[..]).map(drop), r#"{"many":[7],"few":[1,2]}"#),
        (|edit, _| edit.remove(edit.value().unwrap()), ""),
        (
            |edit, many| edit.patch(br#"[{"op":"move","from":"/few","path":"/many"}]"#).map(|_| _ = many),
            r#"{"many":[1,2]}"#,
        ),
    ];
    for (number, (change, left)) in changes.into_iter().enumerate() {
        let (desk, doc, many) = of_many();
        let mut edit = doc.edit().unwrap();
        let entries = desk.log.counts().entries;
        change(&mut edit, many).unwrap();
        assert!(desk.log.counts().entries > entries + 10, "{number}: they are kept in memory");
        assert_eq!(Form::default().text(&edit).unwrap(), left, "{number}");
        let revision = edit.commit(&Meta::default()).unwrap();
        revision.verify().unwrap();
        assert_eq!(Form::default().text(&revision).unwrap(), left, "{number}");
    }
}

#[test]
fn an_edit_that_gives_many_values_another_path_is_laid_while_it_does() {
    let (desk, doc, many) = of_many();
    let mut edit = doc.edit().unwrap();
    let entries = desk.log.counts().entries;
    edit.rename(many, "more").unwrap();
    assert!(desk.log.counts().entries > entries + 10, "they are kept in memory");
    let revision = edit.commit(&Meta::default()).unwrap();
    assert_eq!(revision.verify().unwrap(), 60_000 + 5);
    assert!(Form::default().text(&revision).unwrap().starts_with(r#"{"more":[{"n":0},"#));
}

#[test]
fn what_a_full_disk_refuses_in_the_middle_of_a_removal_is_not_committed() {
    let (desk, doc, many) = of_many();
    desk.fill();
    let mut edit = doc.edit().unwrap();
    assert_eq!(edit.remove(many).unwrap_err().kind(), Kind::Full);
    desk.disk.set_capacity(None);
    assert_eq!(edit.commit(&Meta::default()).map(drop).unwrap_err().kind(), Kind::Full);
    assert_eq!(doc.latest().verify().unwrap(), 60_000 + 5);
    doc.edit().unwrap().remove(many).unwrap();
}
