//! Members of an object, many at a time: put in, found, and held against a sample.

use assent_docs::{At, Config, Edit, Form, Look, Meta, NodeKey, Sample, Versioning};
use assent_kind::Kind;

use super::{Desk, fresh, fresh_with};

type Members<'a> = &'a [(&'a str, &'a [u8])];

fn edited(desk: &Desk, json: &str) -> (Edit, NodeKey) {
    let doc = desk.db.create("doc", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let top = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    (edit, top)
}

fn text(look: &impl Look) -> String {
    Form::default().text(look).unwrap()
}

#[test]
fn members_come_in_order_wherever_they_are_put_and_all_of_them_or_none() {
    let desk = fresh();
    let (mut edit, top) = edited(&desk, r#"{"b":1,"c":[2]}"#);
    let b = edit.member(top, "b").unwrap().unwrap();
    let two: [(&str, &[u8]); 2] = [("x", b"{\"y\":1.50}"), ("z", b"[]")];
    edit.insert_members(At::Before(b), &two).unwrap();
    assert_eq!(text(&edit), r#"{"x":{"y":1.50},"z":[],"b":1,"c":[2]}"#);
    edit.insert_members(At::After(b), &[("d", b"4")]).unwrap();
    edit.insert_members(At::First(top), &[("first", b"null")]).unwrap();
    edit.insert_members(At::Last(top), &[("last", b"\"\"")]).unwrap();
    edit.insert_members(At::Last(top), &[]).unwrap();
    let whole = r#"{"first":null,"x":{"y":1.50},"z":[],"b":1,"d":4,"c":[2],"last":""}"#;
    assert_eq!(text(&edit), whole);
    let c = edit.member(top, "c").unwrap().unwrap();
    let wrong: [(At, Members<'_>); 6] = [
        (At::Last(top), &[("new", b"1"), ("x", b"1")]),
        (At::Last(top), &[("new", b"1"), ("newer", b"2"), ("new", b"3")]),
        (At::Last(top), &[("new", b"1"), ("newer", b"{")]),
        (At::Last(top), &[("new", b"1"), ("newer", b"1 2")]),
        (At::Last(c), &[("new", b"1")]),
        (At::Last(NodeKey(999)), &[("new", b"1")]),
    ];
    for (at, members) in wrong {
        let error = edit.insert_members(at, members).unwrap_err();
        assert!(matches!(error.kind(), Kind::Invalid | Kind::NotFound), "{members:?}: {error}");
        assert_eq!(text(&edit), whole, "{members:?}");
    }
    let revision = edit.commit(&Meta::default()).unwrap();
    revision.verify().unwrap();
    assert_eq!(text(&revision), whole);
}

/// The first of them stayed, and was committed: it took room to take it out again.
#[test]
fn members_that_a_full_disk_refuses_in_their_middle_leave_nothing_to_commit() {
    let desk = fresh();
    let (edit, top) = edited(&desk, r#"{"there":1}"#);
    let before = text(&edit.commit(&Meta::default()).unwrap());
    let doc = desk.db.document("doc").unwrap();
    let mut edit = doc.edit().unwrap();
    let long = format!("\"{}\"", "x".repeat(5 << 20));
    let both: [(&str, &[u8]); 2] = [("a", long.as_bytes()), ("b", long.as_bytes())];
    desk.disk.set_capacity(Some(desk.disk.used_bytes()));
    let refused = edit.insert_members(At::Last(top), &both).unwrap_err();
    assert_eq!(refused.kind(), Kind::Full, "{refused}");
    desk.disk.set_capacity(None);
    assert_eq!(text(&edit).len(), before.len(), "what is left of them");
    edit.commit(&Meta::default()).map(drop).unwrap();
    assert_eq!(text(&doc.latest()), before);
    let mut edit = doc.edit().unwrap();
    edit.insert_members(At::Last(top), &both).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().verify().unwrap(), 4);
}

/// The first of them is in the edit still, as it takes room to take it out, and the edit says so when it is committed.
#[test]
fn members_that_a_full_disk_does_not_even_take_back_are_not_committed() {
    let desk = fresh_with(Config { edit_nodes_max: 1, ..Config::default() });
    let (edit, top) = edited(&desk, r#"{"there":1}"#);
    let before = text(&edit.commit(&Meta::default()).unwrap());
    let doc = desk.db.document("doc").unwrap();
    let mut edit = doc.edit().unwrap();
    desk.fill();
    assert_eq!(edit.insert_members(At::Last(top), &[("a", b"1"), ("b", b"2")]).unwrap_err().kind(), Kind::Full);
    desk.disk.set_capacity(None);
    assert_eq!(edit.commit(&Meta::default()).map(drop).unwrap_err().kind(), Kind::Full);
    assert_eq!(text(&doc.latest()), before);
}

/// It was counted on its path, and was not there.
#[test]
fn a_value_that_a_full_disk_refuses_is_not_counted() {
    let desk = fresh();
    let (mut edit, top) = edited(&desk, "[0]");
    let long = format!("\"{}\"", "x".repeat(5 << 20));
    desk.disk.set_capacity(Some(desk.disk.used_bytes()));
    edit.insert_json(At::Last(top), None, long.as_bytes()).unwrap();
    assert_eq!(edit.insert_json(At::Last(top), None, long.as_bytes()).unwrap_err().kind(), Kind::Full);
    desk.disk.set_capacity(None);
    assert_eq!(edit.commit(&Meta::default()).unwrap().verify().unwrap(), 3);
}

#[test]
fn members_are_found_by_their_names_in_one_walk() {
    let desk = fresh();
    let (edit, top) = edited(&desk, r#"{"a":1,"b":{"a":2},"c":3}"#);
    let one = |name| edit.member(top, name).unwrap();
    let all = edit.members(top, &["c", "none", "a", "c"]).unwrap();
    assert_eq!(all, [one("c"), None, one("a"), one("c")]);
    assert_eq!(edit.members(top, &[]).unwrap(), []);
    assert_eq!(edit.members(one("b").unwrap(), &["a", "b"]).unwrap().iter().flatten().count(), 1);
}

#[test]
fn a_sample_is_part_of_what_says_the_same_in_each_of_its_members() {
    let desk = fresh();
    let (edit, top) = edited(&desk, r#"{"id":9007199254740993,"o":{"a":1,"b":[1,{"c":null}]},"s":"1","t":true}"#);
    let is_part = |like: &str| Sample::of(like.as_bytes()).unwrap().is_part_of(&edit, top, &|| true).unwrap().unwrap();
    for like in
        ["{}", r#"{"s":"1"}"#, r#"{"t":true,"id":9007199254740993.0}"#, r#"{"o":{"b":[1.0,{"c":null}],"a":1e0}}"#]
    {
        assert!(is_part(like), "{like}");
    }
    for like in [
        r#"{"s":1}"#,
        r#"{"id":9007199254740992}"#,
        r#"{"o":{"a":1}}"#,
        r#"{"o":{"a":1,"b":[{"c":null},1]}}"#,
        r#"{"t":true,"none":1}"#,
        r#"{"none":null}"#,
    ] {
        assert!(!is_part(like), "{like}");
    }
    let o = edit.member(top, "s").unwrap().unwrap();
    assert_eq!(Sample::of(b"{}").unwrap().is_part_of(&edit, o, &|| true).unwrap(), Some(false), "it is no object");
    for wrong in ["[]", "1", "{", r#"{"a":1,"a":1}"#, ""] {
        assert_eq!(Sample::of(wrong.as_bytes()).unwrap_err().kind(), Kind::Invalid, "{wrong}");
    }
    // Whoever waits is asked after within a large record.
    let many: Vec<String> = (0..1_000).map(|number| format!("\"k{number}\":1")).collect();
    let doc = desk.db.create("many", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let large =
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, format!("{{{}}}", many.join(",")).as_bytes()).unwrap();
    let like = Sample::of(br#"{"k999":1}"#).unwrap();
    assert_eq!(like.is_part_of(&edit, large, &|| false).unwrap(), None);
    assert_eq!(like.is_part_of(&edit, large, &|| true).unwrap(), Some(true));
}
