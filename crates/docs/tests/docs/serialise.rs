//! JSON out in parts: pages, pieces, several revisions.

use std::fmt::Write;

use assent_docs::{
    At, Cursor, Document, Form, Kind as NodeKind, Look, Meta, Metadata, NodeKey, Revision, Value, Versioning, Written,
};
use assent_kind::Kind;

use super::{Desk, fresh};

fn put(desk: &Desk, json: &str) -> Document {
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    doc
}

#[test]
fn pages_put_together_are_the_whole() {
    let desk = fresh();
    let items: Vec<String> = (0..25).map(|number| format!("[{number},{{\"a\":{number}.0}}]")).collect();
    let json = format!("{{\"list\":[{}],\"rest\":null}}", items.join(","));
    let revision = put(&desk, &json).latest();
    let list = NodeKey(2);
    for top in [1, 7, 24, 25, 26] {
        let mut form = Form { start: Some(list), max_top: Some(top), ..Form::default() };
        let (mut pages, mut nodes) = (Vec::new(), 0);
        loop {
            let mut out = Vec::new();
            let written = form.page(&revision, &mut out).unwrap();
            nodes += written.nodes - 1;
            let page = String::from_utf8(out).unwrap();
            pages.push(page.strip_prefix('[').unwrap().strip_suffix(']').unwrap().to_owned());
            let Some(next) = written.next else { break };
            form.after = Some(next);
        }
        assert_eq!((pages.len() as u64, nodes), (25_u64.div_ceil(top), 25 * 4), "{top} a page");
        assert_eq!(pages.join(","), items.join(","), "{top} a page");
    }
    // Other limits end a page too; what they cut within a child is not on the next one.
    let form = Form { start: Some(list), max_nodes: Some(6), ..Form::default() };
    let mut out = Vec::new();
    let written = form.page(&revision, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), r#"[[0,{"a":0.0}],[]]"#);
    assert_eq!(written, Written { nodes: 6, next: Some(NodeKey(7)), more: true, is_short: true });
    // A page that has room for nothing but the brackets ended the walk as if nothing followed.
    for (after, form) in [(None, form), (Some(NodeKey(7)), Form { after: Some(NodeKey(7)), ..form })] {
        for none in [Form { max_nodes: Some(1), ..form }, Form { max_top: Some(0), max_nodes: None, ..form }] {
            let expected = Written { nodes: 1, next: after, more: true, is_short: false };
            assert_eq!(none.page(&revision, &mut Vec::new()).unwrap(), expected);
        }
    }
    let last = Form { start: Some(list), after: Some(NodeKey(95)), max_nodes: Some(3), ..Form::default() };
    assert_eq!(
        last.page(&revision, &mut Vec::new()).unwrap(),
        Written { nodes: 3, is_short: true, ..Written::default() }
    );
    let first = Form { max_children: Some(1), ..Form::default() };
    assert_eq!(first.page(&revision, &mut Vec::new()).unwrap().next, Some(list));
    let behind = |after| Form { start: Some(list), after: Some(NodeKey(after)), ..Form::default() }.text(&revision);
    assert_eq!(behind(3).unwrap(), format!("[{}]", items[1..].join(",")));
    let last = revision.item(list).unwrap().node.last.unwrap().0;
    assert_eq!(behind(last).unwrap(), "[]");
    assert_eq!(behind(4).unwrap_err().kind(), Kind::Invalid, "a child of a child");
    assert_eq!(behind(9999).unwrap_err().kind(), Kind::NotFound);
    let with_keys = Form { start: Some(list), max_top: Some(1), metadata: Metadata::NodeKey, ..Form::default() };
    let expected = concat!(
        r#"{"metadata":{"nodeKey":2},"value":[{"metadata":{"nodeKey":3},"value":[{"metadata":{"nodeKey":4},"value":0},"#,
        r#"{"metadata":{"nodeKey":5},"value":[{"key":"a","metadata":{"nodeKey":6},"value":0.0}]}]}]}"#,
    );
    assert_eq!(with_keys.text(&revision).unwrap(), expected);
}

#[test]
fn pieces_put_together_are_the_whole_and_none_is_large() {
    let desk = fresh();
    let items: Vec<String> =
        (0..20_000).map(|number| format!("{{\"number\":{number},\"text\":\"some text\"}}")).collect();
    let json = format!("[{}]", items.join(","));
    let revision = put(&desk, &json).latest();
    let mut chunks = Form::default().chunks(revision.clone());
    let (mut whole, mut count) = (Vec::new(), 0);
    for chunk in chunks.by_ref() {
        let chunk = chunk.unwrap();
        assert!(!chunk.is_empty() && chunk.len() < (32 << 10) + 100, "{} bytes", chunk.len());
        whole.extend(chunk);
        count += 1;
    }
    assert!(count > 10 && whole == json.as_bytes(), "{count} pieces");
    assert_eq!(chunks.written(), Written { nodes: 60_001, ..Written::default() });
    assert!(chunks.next().is_none());
    let mut none = Form { start: Some(NodeKey(1 << 40)), ..Form::default() }.chunks(&revision);
    assert_eq!(none.next().unwrap().unwrap_err().kind(), Kind::NotFound);
    assert!(none.next().is_none(), "after an error there is no more");
    let empty = desk.db.create("empty", Versioning::default()).unwrap().latest();
    assert!(Form::default().chunks(&empty).next().is_none());
}

#[test]
fn a_long_value_alone_is_a_piece_behind_which_others_may_come() {
    // It was known to be the last one: whoever asks for no more than one piece took a text of any length for a short answer.
    let desk = fresh();
    let json = |letters: usize| format!("\"{}\"", "a".repeat(letters));
    let piece = (32 << 10) - 2;
    for (name, letters, is_short) in [("short", piece - 1, true), ("a piece", piece, false), ("long", 40_000, false)] {
        let doc = desk.db.create(name, Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json(letters).as_bytes()).unwrap();
        let mut chunks = Form::default().chunks(edit.commit(&Meta::default()).unwrap());
        let written = Written { nodes: 1, ..Written::default() };
        assert!(chunks.next().unwrap().unwrap() == json(letters).as_bytes(), "{name}");
        assert_eq!((chunks.is_over(), chunks.written()), (is_short, written), "{name}");
        assert!(chunks.next().is_none() && chunks.is_over(), "{name}");
        assert_eq!(chunks.written(), written, "{name}");
    }
}

#[test]
fn siblings_over_many_pages_read_the_same_however_often_wherever_they_end_and_whatever_was_laid_over_them() {
    const ITEMS: u64 = 5_000;
    let desk = fresh();
    let mut items: Vec<String> = (0..ITEMS)
        .map(|number| match number % 4 {
            0 => number.to_string(),
            1 => format!("\"text {number}\""),
            2 => format!("\"a \\\"quote\\\" of {number}\""),
            _ => format!("\"more letters than are copied as one block, of number {number}\""),
        })
        .collect();
    let doc = put(&desk, &format!("[{}]", items.join(",")));
    let reads_as = |number: u32, items: &[String]| {
        for most in [1, 255, 256, 257, 4_999, u64::MAX] {
            let is_cut = most <= ITEMS;
            let all = items.len().min(most as usize - 1);
            let next = (is_cut && all > 0).then(|| NodeKey(all as u64 + 1));
            let expected = Written { nodes: all as u64 + 1, next, more: is_cut, is_short: false };
            for metadata in [Metadata::None, Metadata::NodeKey, Metadata::NodeKeyAndChildCount, Metadata::All] {
                let form = Form { max_nodes: Some(most), metadata, ..Form::default() };
                let revision = doc.at(number).unwrap();
                let with = |key: u64, more: &str, value: &str| {
                    format!("{{\"metadata\":{{\"nodeKey\":{key}{more}}},\"value\":{value}}}")
                };
                let keyed = |(key, item): (u64, &String)| with(key, "", item);
                let list = |items: &[String]| format!("[{}]", items.join(","));
                let keyed = || list(&(2..).zip(&items[..all]).map(keyed).collect::<Vec<_>>());
                let whole = match metadata {
                    Metadata::None => list(&items[..all]),
                    Metadata::NodeKey => with(1, "", &keyed()),
                    Metadata::NodeKeyAndChildCount => with(1, &format!(",\"childCount\":{ITEMS}"), &keyed()),
                    // As the first time: it asks for hashes, and for nothing that a page keeps.
                    Metadata::All => form.text(&revision).unwrap(),
                };
                for round in 0..4 {
                    let told = format!("revision {number}, {most} nodes, {metadata:?}, {round}");
                    assert!(form.text(&revision).unwrap() == whole, "{told}");
                    let mut chunks = form.chunks(&revision);
                    let pieces: Vec<u8> = chunks.by_ref().flat_map(Result::unwrap).collect();
                    assert!(pieces == whole.as_bytes(), "{told}, in pieces");
                    assert_eq!(chunks.written(), expected, "{told}");
                }
            }
        }
    };
    reads_as(1, &items);
    let older = items.clone();
    // The first and the last of a page, its neighbours, and one alone.
    let mut edit = doc.edit().unwrap();
    for key in [2, 255, 256, 511, 512, 3_000] {
        let text = format!("\"anew\", {key}");
        edit.set(NodeKey(key), Value::String(&text)).unwrap();
        items[key as usize - 2] = format!("\"\\\"anew\\\", {key}\"");
    }
    edit.commit(&Meta::default()).unwrap();
    reads_as(2, &items);
    reads_as(1, &older);
}

/// A node as JSON, a part of it after the other, of what everyone can look at.
fn laid(revision: &Revision, key: NodeKey, form: Form, level: usize) -> String {
    let node = revision.item(key).unwrap().node;
    let (blank, line) = if form.pretty { (" ", format!("\n{}", "  ".repeat(level))) } else { ("", String::new()) };
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let (has_metadata, all) = (form.metadata != Metadata::None, form.metadata == Metadata::All);
    let value = if node.kind.is_container() {
        let [begin, end] = if node.kind == NodeKind::Object && !has_metadata { ["{", "}"] } else { ["[", "]"] };
        let next = |key: &NodeKey| revision.item(*key).unwrap().node.right;
        let children = std::iter::successors(node.first, next).map(|child| laid(revision, child, form, level + 1));
        let children = children.collect::<Vec<_>>().join(",");
        format!("{begin}{children}{}{end}", if children.is_empty() { "" } else { &line })
    } else {
        match node.kind {
            NodeKind::String => quoted(revision.item(key).unwrap().text()),
            NodeKind::Number => revision.item(key).unwrap().text().to_owned(),
            NodeKind::Null => "null".to_owned(),
            kind => (kind == NodeKind::True).to_string(),
        }
    };
    let line = if level > 0 { &line } else { "" };
    let mut cursor = Cursor::new(revision);
    assert!(cursor.to(key).unwrap());
    let name = cursor.name().unwrap().map(|name| quoted(name.as_str()));
    if !has_metadata {
        return format!("{line}{}{value}", name.map_or(String::new(), |name| format!("{name}:{blank}")));
    }
    let name = name.map_or(String::new(), |name| format!("\"key\":{blank}{name},"));
    let mut known = format!("\"nodeKey\":{}", key.0);
    if all {
        let hash = revision.hash(&revision.item(key).unwrap()).unwrap();
        write!(known, ",\"hash\":\"{hash:016x}\",\"type\":\"{}\"", node.kind.name()).unwrap();
    }
    if node.kind.is_container() && form.metadata != Metadata::NodeKey {
        write!(known, ",\"childCount\":{}", node.children).unwrap();
        if all {
            write!(known, ",\"descendantCount\":{}", node.descendants).unwrap();
        }
    }
    format!("{line}{{{name}\"metadata\":{blank}{{{known}}},\"value\":{blank}{value}}}")
}

#[test]
fn a_name_and_a_value_of_any_length_are_written_as_they_are_in_each_form() {
    let desk = fresh();
    let texts = [0, 31, 32, 33].map(|letters| format!("\"{}\"", "v".repeat(letters)));
    let number = "1234567890".repeat(4);
    let values: Vec<&str> = { texts.iter().map(String::as_str) }
        .chain([&*number, "7", "true", "false", "null", "{}", "[]", "\"a \\\"é\\n\""])
        .collect();
    // What stands around a name has 3 to 34 letters, and 64 are a block.
    let names = [0, 1].into_iter().chain(28..=66).map(|letters| "n".repeat(letters));
    let names: Vec<String> = names.chain(["a \\\"\\né".to_owned()]).collect();
    let member = |(at, name): (usize, &String)| format!("\"{name}\":{}", values[at % values.len()]);
    let object = format!("{{{}}}", names.iter().enumerate().map(member).collect::<Vec<_>>().join(","));
    let json = format!("[{object},[{}],{object}]", values.join(","));
    let revision = put(&desk, &json).latest();
    assert_eq!(Form::default().text(&revision).unwrap(), json);
    for metadata in [Metadata::None, Metadata::NodeKey, Metadata::NodeKeyAndChildCount, Metadata::All] {
        for pretty in [false, true] {
            let form = Form { metadata, pretty, ..Form::default() };
            let expected = laid(&revision, revision.value().unwrap(), form, 0);
            serde_json::from_str::<serde_json::Value>(&expected).unwrap();
            // From the third reading on its pages keep what is written of their nodes.
            for round in 0..4 {
                assert_eq!(form.text(&revision).unwrap(), expected, "{form:?}, {round}");
                let pieces: Vec<u8> = form.chunks(&revision).flat_map(Result::unwrap).collect();
                assert!(pieces == expected.as_bytes(), "{form:?}, {round}, in pieces");
            }
        }
    }
}

#[test]
fn names_whose_paths_take_each_others_place_are_each_written_as_they_are() {
    const PATHS: usize = 2 * 4_096 + 10;
    let desk = fresh();
    // Of two that are 4,096 apart: both short, both longer than what is kept as a block, and one of each.
    let name = |at: usize| if at % 5 < 2 { format!("{at:070}") } else { at.to_string() };
    let members: Vec<String> = (0..PATHS).map(|at| format!("\"{}\":{at}", name(at))).collect();
    let json = format!("[{{{0}}},{{{0}}}]", members.join(","));
    let revision = put(&desk, &json).latest();
    for round in 0..3 {
        assert!(Form::default().text(&revision).unwrap() == json, "{round}");
    }
}

#[test]
fn several_revisions_are_one_object() {
    let desk = fresh();
    let doc = put(&desk, r#"{"price":1.50}"#);
    let price = NodeKey(2);
    for digits in ["1.750", "2e0"] {
        desk.clock.advance(std::time::Duration::from_millis(1500));
        let mut edit = doc.edit().unwrap();
        edit.set(price, Value::Number(digits)).unwrap();
        edit.commit(&Meta::default()).unwrap();
    }
    let envelope = |form: Form, revisions: &[u32]| {
        let mut out = Vec::new();
        form.envelope("revisions", revisions.iter().map(|revision| doc.at(*revision)), &mut out)
            .map(|()| String::from_utf8(out).unwrap())
    };
    let whole = envelope(Form::default(), &[0, 1, 3]).unwrap();
    let value: serde_json::Value = serde_json::from_str(&whole).unwrap();
    let told = |at: usize, field: &str| value["revisions"][at][field].clone();
    assert_eq!(
        (told(0, "revisionNumber"), told(1, "revisionNumber"), told(2, "revisionNumber")),
        (0.into(), 1.into(), 3.into())
    );
    assert_eq!(told(0, "revision"), serde_json::Value::Null, "an empty document has none");
    assert!(whole.contains(r#""revision":{"price":1.50}"#) && whole.contains(r#""revision":{"price":2e0}"#), "{whole}");
    let times =
        [told(1, "revisionTimestamp"), told(2, "revisionTimestamp")].map(|time| time.as_str().unwrap().to_owned());
    assert!(times[0] < times[1] && times.iter().all(|time| time.len() == 24 && time.ends_with('Z')), "{times:?}");
    assert_eq!(envelope(Form::default(), &[]).unwrap(), r#"{"revisions":[]}"#);
    assert_eq!(envelope(Form::default(), &[9]).unwrap_err().kind(), Kind::NotFound);
    let keyed = Form { start: Some(price), metadata: Metadata::NodeKey, ..Form::default() };
    assert!(envelope(keyed, &[2]).unwrap().ends_with(r#""revision":{"metadata":{"nodeKey":2},"value":1.750}}]}"#));
}

#[test]
fn a_deep_document_in_lines_does_not_become_a_vast_one() {
    // A line of level n was indented by 2n blanks: 20 KB of brackets became 200 MB.
    let desk = fresh();
    let json = format!("{}1{}", "[".repeat(9_999), "]".repeat(9_999));
    let revision = put(&desk, &json).latest();
    let lines = Form { pretty: true, ..Form::default() }.text(&revision).unwrap();
    assert!(lines.len() < 3_000_000, "{} bytes", lines.len());
    let bare: String = lines.chars().filter(|character| !character.is_whitespace()).collect();
    assert_eq!(bare, json);
}
