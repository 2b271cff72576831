//! JSON in and out: exact, bounded, and nothing left behind by what is none.

use assent_docs::{At, Config, Cursor, DocsError, Form, Look, Meta, Metadata, NodeKey, Versioning};
use assent_kind::Kind;
use proptest::prelude::*;

use super::tree::read;
use super::{Desk, fresh, fresh_with};

fn put(desk: &Desk, json: &str) -> Result<String, DocsError> {
    static NAMES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let name = NAMES.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
    let doc = desk.db.create(&name, Versioning::default())?;
    let mut edit = doc.edit()?;
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes())?;
    let revision = edit.commit(&Meta::default())?;
    revision.verify()?;
    Form::default().text(&revision)
}

fn json() -> impl Strategy<Value = String> {
    let text =
        prop_oneof!["[a-z ]{0,6}", Just("\u{1f600}\\u0001\\n\\\"\\\\".to_owned()), Just("\u{e4}\u{4e2d}".to_owned()),];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        text.clone().prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        let members = prop::collection::vec((text.clone(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            members.prop_map(|members| {
                let member = |(at, (name, value)): (usize, (String, String))| format!("\"{at}{name}\":{value}");
                format!("{{{}}}", members.into_iter().enumerate().map(member).collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out_to_the_last_digit(json in json(), edit_nodes_max in 1_u32..20) {
        let desk = fresh_with(Config { edit_nodes_max, ..Config::default() });
        prop_assert_eq!(put(&desk, &json).unwrap(), json);
    }
}

#[test]
fn numbers_and_texts_are_kept_as_they_are() {
    let desk = fresh();
    let exact = r#"[-0,1.10,1e400,123456789012345678901234567890.000000000000000000001,1E-9,"\u0000","äöü😀"]"#;
    assert_eq!(put(&desk, exact).unwrap(), exact);
    assert_eq!(put(&desk, " { \"a\" : [ 1 , \"\\u00e4\\uD83D\\uDE00\\/\" ] } \n").unwrap(), r#"{"a":[1,"ä😀/"]}"#);
}

#[test]
fn what_is_no_json_is_refused_and_leaves_nothing_behind() {
    for edit_nodes_max in [1, 1 << 16] {
        let desk = fresh_with(Config { edit_nodes_max, ..Config::default() });
        let doc = desk.db.create("orders", Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        let root = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, br#"{"a":[1,2,{"b":3}]}"#.as_slice()).unwrap();
        let before = read(&edit);
        let refused: [&[u8]; 22] = [
            b"",
            b" ",
            b"[1,2,3",
            b"[1,2,3]]",
            b"[1 2]",
            b"[1,]",
            b"{\"a\":1,}",
            b"{\"a\" 1}",
            b"{a:1}",
            b"{\"new\":1,\"x\":[{\"y\":1,\"y\":2}]}",
            b"nul",
            b"NaN",
            b"[Infinity]",
            b"[01]",
            b"[1.]",
            b"'a'",
            b"[\"\xff\xfe\"]",
            b"[\"\\ud800\"]",
            b"[\"\\ud800x\"]",
            b"[\"\\x\"]",
            b"[\"a\nb\"]",
            b"1 2",
        ];
        for json in refused {
            let error = edit.insert_json(At::Last(root), Some("new"), json).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{}: {error}", json.escape_ascii());
            assert_eq!(read(&edit), before, "{}", json.escape_ascii());
        }
        let error = edit.insert_json(At::Last(root), Some("new"), b"[1,\n  x]".as_slice()).unwrap_err();
        assert!(error.to_string().contains("line 2, column 3"), "{error}");
        let new = edit.insert_json(At::Last(root), Some("new"), b"[true]".as_slice()).unwrap();
        assert_eq!(edit.pointer(new).unwrap(), "/new");
        let revision = edit.commit(&Meta::default()).unwrap();
        assert_eq!(Form::default().text(&revision).unwrap(), r#"{"a":[1,2,{"b":3}],"new":[true]}"#);
        revision.verify().unwrap();
        let paths: Vec<String> = revision.paths().unwrap().into_iter().map(|path| path.path).collect();
        assert_eq!(paths, ["$", "$[\"a\"]", "$[\"a\"][*]", "$[\"a\"][*][\"b\"]", "$[\"new\"]", "$[\"new\"][*]"]);
    }
}

#[test]
fn nesting_and_texts_have_limits() {
    let desk = fresh_with(Config { depth_max: 10_000, text_bytes_max: 1 << 20, ..Config::default() });
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(put(&desk, &nested(10_000)).unwrap(), nested(10_000));
    let error = put(&desk, &nested(10_001)).unwrap_err();
    assert_eq!(error.to_string(), "nesting of 10001; at most 10000 is taken");
    let text = |bytes: usize| format!("[\"{}\"]", "x".repeat(bytes));
    assert_eq!(put(&desk, &text(1 << 20)).unwrap(), text(1 << 20));
    assert_eq!(put(&desk, &text((1 << 20) + 1)).unwrap_err().kind(), Kind::Invalid);
    let doc = desk.db.create("moved", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let json = format!("[{},{}]", nested(6000), nested(6000));
    let root = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    let first = edit.item(root).unwrap().node.first.unwrap();
    let inner = NodeKey(first.0 + 5000);
    let last = edit.item(root).unwrap().node.last.unwrap();
    let error = edit.relocate(last, At::Last(inner), None).unwrap_err();
    assert_eq!(error.to_string(), "nesting of 11002; at most 10000 is taken");
    edit.relocate(last, At::Last(NodeKey(first.0 + 3998)), None).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
}

#[test]
fn a_form_says_how_much_is_written_and_with_what() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let json = r#"{"a":[1,[2],3],"b":{"c":null},"d":"x"}"#;
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    let revision = edit.commit(&Meta::default()).unwrap();
    let text = |form: Form| form.text(&revision).unwrap();
    let form = Form::default();
    assert_eq!(text(form), json);
    assert_eq!(text(Form { start: Some(NodeKey(2)), ..form }), "[1,[2],3]");
    assert_eq!(text(Form { max_level: Some(1), ..form }), "{}");
    assert_eq!(text(Form { max_level: Some(2), ..form }), r#"{"a":[],"b":{},"d":"x"}"#);
    assert_eq!(text(Form { max_level: Some(3), ..form }), r#"{"a":[1,[],3],"b":{"c":null},"d":"x"}"#);
    assert_eq!(text(Form { max_children: Some(1), ..form }), r#"{"a":[1]}"#);
    assert_eq!(text(Form { max_nodes: Some(3), ..form }), r#"{"a":[1]}"#);
    assert_eq!(text(Form { max_nodes: Some(5), ..form }), r#"{"a":[1,[2]]}"#);
    let lines = "{\n  \"a\": [],\n  \"b\": {},\n  \"d\": \"x\"\n}";
    assert_eq!(text(Form { max_level: Some(2), pretty: true, ..form }), lines);
    let keys = Form { start: Some(NodeKey(7)), metadata: Metadata::NodeKey, ..form };
    let expected = r#"{"metadata":{"nodeKey":7},"value":[{"key":"c","metadata":{"nodeKey":8},"value":null}]}"#;
    assert_eq!(text(keys), expected);
    let counts = Form { metadata: Metadata::NodeKeyAndChildCount, max_level: Some(1), ..form };
    assert_eq!(text(counts), r#"{"metadata":{"nodeKey":1,"childCount":3},"value":[]}"#);
    let hash = revision.hash(&revision.item(NodeKey(9)).unwrap()).unwrap();
    let all = Form { start: Some(NodeKey(9)), metadata: Metadata::All, ..form };
    let expected = format!(r#"{{"metadata":{{"nodeKey":9,"hash":"{hash:016x}","type":"string"}},"value":"x"}}"#);
    assert_eq!(text(all), expected);
    let all = Form { metadata: Metadata::All, ..form };
    assert!(text(all).contains(r#""childCount":3,"descendantCount":8"#), "{}", text(all));
    assert_eq!(form.text(&doc.at(0).unwrap()).unwrap(), "");
    assert_eq!(Form { start: Some(NodeKey(99)), ..form }.text(&revision).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_cursor_goes_everywhere_and_stays_where_there_is_nothing() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let json = r#"{"a":[1,[2],3],"b":{"c":null},"d":"x"}"#;
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    let revision = edit.commit(&Meta::default()).unwrap();
    let mut cursor = Cursor::new(&revision);
    let mut keys = Vec::new();
    while cursor.next_node().unwrap() {
        keys.push(cursor.key().0);
    }
    assert_eq!(keys, [1, 2, 3, 4, 5, 6, 7, 8, 9], "document order");
    assert!(!cursor.right().unwrap() && !cursor.first_child().unwrap());
    assert_eq!((cursor.key(), cursor.name().unwrap().unwrap().as_str()), (NodeKey(9), "d"));
    assert!(cursor.left().unwrap() && cursor.member("c").unwrap() && !cursor.member("d").unwrap());
    assert_eq!(cursor.key(), NodeKey(8));
    assert!(cursor.parent().unwrap() && cursor.parent().unwrap() && cursor.last_child().unwrap());
    assert_eq!(cursor.key(), NodeKey(9));
    assert!(cursor.to(NodeKey(2)).unwrap() && !cursor.to(NodeKey(99)).unwrap());
    assert_eq!(cursor.key(), NodeKey(2));
    for (index, key) in [(0, 3), (1, 4), (2, 6)] {
        assert!(cursor.index(index).unwrap());
        assert_eq!(cursor.key(), NodeKey(key));
        cursor.parent().unwrap();
    }
    assert!(!cursor.index(3).unwrap() && !cursor.member("a").unwrap());
    assert!(cursor.parent().unwrap() && cursor.parent().unwrap() && !cursor.parent().unwrap());
    assert_eq!((cursor.key(), cursor.item().is_none()), (NodeKey::DOCUMENT, true));
}

#[test]
fn what_is_rearranged_keeps_its_keys_and_what_does_not_fit_is_refused() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let json = r#"{"a":[1,[2],3],"b":{"c":null},"d":"x"}"#;
    let root = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let [a, two, b, c, d] = [2, 4, 7, 8, 9].map(NodeKey);
    let refused = [
        edit.rename(a, "b").unwrap_err(),
        edit.rename(two, "x").unwrap_err(),
        edit.rename(root, "x").unwrap_err(),
        edit.relocate(a, At::Last(two), None).unwrap_err(),
        edit.relocate(a, At::After(a), Some("a")).unwrap_err(),
        edit.relocate(root, At::Last(a), None).unwrap_err(),
        edit.relocate(d, At::Last(NodeKey::DOCUMENT), None).unwrap_err(),
        edit.relocate(d, At::Last(b), Some("c")).unwrap_err(),
        edit.relocate(d, At::Last(b), None).unwrap_err(),
        edit.relocate(d, At::Last(a), Some("d")).unwrap_err(),
    ];
    for (at, error) in refused.iter().enumerate() {
        assert_eq!(error.kind(), Kind::Invalid, "{at}: {error}");
    }
    assert_eq!(Form::default().text(&edit).unwrap(), json);
    edit.rename(a, "list").unwrap();
    edit.relocate(b, At::First(two), None).unwrap();
    edit.relocate(d, At::First(root), Some("first")).unwrap();
    edit.insert_copy(At::Last(b), Some("copy"), &doc.latest(), a).unwrap();
    edit.replace(c, b"{\"new\":[]}".as_slice()).unwrap();
    let revision = edit.commit(&Meta::default()).unwrap();
    let expected = r#"{"first":"x","list":[1,[{"c":{"new":[]},"copy":[1,[2],3]},2],3]}"#;
    assert_eq!(Form::default().text(&revision).unwrap(), expected);
    revision.verify().unwrap();
    assert_eq!(revision.pointer(b).unwrap(), "/list/1/0");
    assert_eq!(revision.find(c).unwrap().map(|item| item.node.key), None);
    let mut edit = doc.edit().unwrap();
    edit.replace(root, b"7".as_slice()).unwrap();
    assert_eq!(Form::default().text(&edit.commit(&Meta::default()).unwrap()).unwrap(), "7");
    assert_eq!(Form::default().text(&doc.at(1).unwrap()).unwrap(), json);
}

/// JSON that is made while it is read: so many objects.
struct Endless {
    left: u32,
    buffer: Vec<u8>,
}

impl std::io::Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.buffer.is_empty() && self.left > 0 {
            self.left -= 1;
            let end = if self.left == 0 { "]" } else { "," };
            self.buffer = format!("{{\"number\":{},\"text\":\"some text\"}}{end}", self.left).into_bytes();
        }
        let count = self.buffer.len().min(out.len());
        out[..count].copy_from_slice(&self.buffer[..count]);
        self.buffer.drain(..count);
        Ok(count)
    }
}

#[test]
fn a_load_is_laid_while_it_is_read_and_one_entry_makes_it_visible() {
    const OBJECTS: u32 = 60_000;
    let desk = fresh_with(Config { edit_nodes_max: 4096, ..Config::default() });
    let doc = desk.db.create("loaded", Versioning::default()).unwrap();
    let end = || assent_journal::Log::end(&*desk.log).0;
    let load = Endless { left: OBJECTS, buffer: b"[".to_vec() };
    let mut edit = doc.edit().unwrap();
    let before = end();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, load).unwrap();
    let loaded = end();
    assert_eq!(doc.latest().number(), 0);
    let entries = desk.log.counts().entries;
    let revision = edit.commit(&Meta::default()).unwrap();
    println!("{} bytes before the commit, {} in it", loaded - before, end() - loaded);
    assert!(loaded - before > 20 * (end() - loaded), "{} before, {} in it", loaded - before, end() - loaded);
    assert!(desk.log.counts().entries > entries);
    assert_eq!(revision.verify().unwrap(), 1 + 3 * u64::from(OBJECTS));
    // What fails late leaves nothing behind either.
    let mut edit = doc.edit().unwrap();
    let broken = Endless { left: OBJECTS, buffer: b"[".to_vec() };
    let broken = std::io::Read::chain(broken, b"]".as_slice());
    assert_eq!(edit.insert_json(At::Last(revision.value().unwrap()), None, broken).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 1, "nothing has changed");
}
