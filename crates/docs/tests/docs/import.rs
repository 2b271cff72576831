//! A new version of a document, read as JSON: it is there to the last digit, and what stayed has its keys.

use assent_docs::{
    At, Config, Diff, Difference, Document, Form, Imported, Look, Meta, NodeKey, Revision, Scope, Value, Versioning,
};
use assent_kind::Kind;
use assent_sim::Rng;

use super::model::Model;
use super::tree::read;
use super::{Desk, fresh, fresh_with};

fn put(desk: &Desk, json: &str) -> Document {
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    doc
}

fn import(doc: &Document, json: &str) -> (Revision, Imported) {
    let mut edit = doc.edit().unwrap();
    let told = edit.import(json.as_bytes()).unwrap();
    let revision = edit.commit(&Meta::default()).unwrap();
    assert_eq!(Form::default().text(&revision).unwrap(), json);
    revision.verify().unwrap();
    (revision, told)
}

fn keys(revision: &Revision) -> Vec<u64> {
    read(revision).unwrap().all().iter().map(|tree| tree.key.0).collect()
}

#[test]
fn whatever_was_there_becomes_whatever_is_new() {
    for (seed, config) in [(300, Config::default()), (301, Config { edit_nodes_max: 3, ..Config::default() })] {
        let desk = fresh_with(config);
        let versions = desk.db.create("versions", Versioning::default()).unwrap();
        let imported = desk.db.create("imported", Versioning::default()).unwrap();
        let mut model = Model { rng: Rng::new(seed), tree: None, texts: 0, key: NodeKey(0) };
        for _ in 0..60 {
            let before = versions.latest();
            let mut edit = versions.edit().unwrap();
            for _ in 0..=model.rng.below(25) {
                model.step(&mut edit, &before);
            }
            edit.commit(&Meta::default()).unwrap();
        }
        for _ in 0..120 {
            let newest = u64::from(versions.latest().number());
            let version = versions.at(1 + model.rng.below(newest) as u32).unwrap();
            let json = Form::default().text(&version).unwrap();
            if json.is_empty() {
                continue;
            }
            let before = imported.latest();
            let there = before.value().map_or(0, |_| before.verify().unwrap());
            let (after, told) = import(&imported, &json);
            assert_eq!(told.kept + told.removed, there, "{told:?}");
            assert_eq!(told.kept + told.inserted, after.verify().unwrap(), "{told:?}");
            if after.number() > before.number() {
                let diff = Diff::between(&before, &after, Scope::default()).unwrap();
                let of = |what: fn(&&Difference) -> bool| diff.differences().iter().filter(what).count() as u64;
                assert_eq!(of(|one| matches!(one, Difference::Updated { .. })), told.updated, "{told:?}");
                assert!(of(|one| matches!(one, Difference::Moved { .. })) <= told.moved, "{told:?}");
            }
            let (_, again) = import(&imported, &json);
            assert_eq!((again.updated, again.moved, again.inserted, again.removed), (0, 0, 0, 0), "{again:?}");
        }
    }
}

#[test]
fn what_stays_keeps_its_key() {
    // (before, after, keys afterwards in document order; new ones from where the old ones ended)
    let table: [(&str, &str, &[u64]); 11] = [
        (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":3}"#, &[1, 2, 3]),
        (r#"{"a":1,"b":2}"#, r#"{"b":"x","a":null}"#, &[1, 3, 2]),
        (r#"{"a":1,"b":{"c":2}}"#, r#"{"a":[1],"b":{"c":2,"d":3}}"#, &[1, 5, 6, 3, 4, 7]),
        ("[1,2,3]", "[1,7,2,3]", &[1, 2, 5, 3, 4]),
        ("[1,2,3]", "[2,3]", &[1, 3, 4]),
        ("[1,2,3,4]", "[4,1,2,3]", &[1, 5, 2, 3, 4]),
        ("[1,[2],3]", "[1,[2,5],3]", &[1, 2, 3, 4, 6, 5]),
        (r#"[{"id":1,"n":"x"},{"id":2}]"#, r#"[{"id":9},{"id":1,"n":"y"},{"id":2}]"#, &[1, 7, 8, 2, 3, 4, 5, 6]),
        (r#"[{"id":1},[2],3]"#, r#"[4,[5],{"id":6}]"#, &[1, 6, 4, 5, 7, 8]),
        ("[1,2]", r#"{"a":1}"#, &[4, 5]),
        ("1", "2", &[1]),
    ];
    for (before, after, expected) in table {
        let desk = fresh();
        let doc = put(&desk, before);
        let (revision, told) = import(&doc, after);
        let found = keys(&revision);
        if before.starts_with(r#"[{"id":1},"#) {
            // Which of the three stays is open: the array does, or an other one, and no key is used twice.
            assert!(found.len() == 6 && told.kept >= 2, "{found:?}");
            continue;
        }
        assert_eq!(found, expected, "{before} -> {after}: {told:?}");
    }
}

#[test]
fn a_small_change_of_a_large_document_is_a_small_commit() {
    let desk = fresh_with(Config { cache_bytes: 256 << 20, ..Config::default() });
    let object = |number: u64, count: u64| format!(r#"{{"id":{number},"tags":["a","b"],"count":{count}}}"#);
    let all = |change: &dyn Fn(u64) -> Option<String>| {
        let objects: Vec<String> = (0..20_000).filter_map(change).collect();
        format!("[{}]", objects.join(","))
    };
    let doc = put(&desk, &all(&|number| Some(object(number, 5))));
    let end = || assent_journal::Log::end(&*desk.log).0;
    let mut from = end();
    let mut cost = || {
        let bytes = end() - from;
        from = end();
        bytes
    };
    let (_, told) = import(&doc, &all(&|number| Some(object(number, if number == 7000 { 6 } else { 5 }))));
    let bytes = cost();
    assert_eq!((told.updated, told.moved, told.inserted, told.removed), (1, 0, 0, 0));
    assert!(bytes <= 2048, "{bytes} bytes for a field");
    let with_new = |number| match number {
        300 => None,
        15_000 => Some(format!("{},{}", object(99_999, 1), object(number, 5))),
        number => Some(object(number, if number == 7000 { 6 } else { 5 })),
    };
    let (_, told) = import(&doc, &all(&with_new));
    let bytes = cost();
    assert_eq!((told.updated, told.moved, told.inserted, told.removed), (0, 0, 6, 6));
    assert!(bytes <= 6000, "{bytes} bytes for an object that is new and one that is gone");
    let (revision, told) = import(&doc, &all(&with_new));
    assert_eq!((told.updated, told.moved, told.inserted, told.removed, cost()), (0, 0, 0, 0, 0));
    assert_eq!(revision.number(), 3);
}

#[test]
fn what_is_no_json_or_too_much_changes_nothing() {
    let desk = fresh_with(Config { depth_max: 5, text_bytes_max: 100, ..Config::default() });
    let doc = put(&desk, r#"{"a":[1,2]}"#);
    let long = format!("[\"{}\"]", "x".repeat(101));
    let mut edit = doc.edit().unwrap();
    for json in ["", "[1", r#"{"a":[7],"a":1}"#, "[1] 2", "[[[[[[1]]]]]]", &long, r#"{"a":[3],"b":"\ud800"}"#] {
        let error = edit.import(json.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{json}: {error}");
    }
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 1, "nothing has changed");
    assert_eq!(import(&doc, "[[[[[]]]]]").1.inserted, 5);
    let empty = desk.db.create("empty", Versioning::default()).unwrap();
    assert_eq!(import(&empty, "7").1, Imported { inserted: 1, ..Imported::default() });
}

#[test]
fn an_import_that_is_refused_in_its_middle_changes_nothing() {
    // What was removed and put before it was refused was committed: half of a new version.
    let desk = fresh_with(Config { paths_max: 3, edit_nodes_max: 4, ..Config::default() });
    let doc = put(&desk, r#"{"a":1}"#);
    let many = format!(r#"{{"b":[{}]}}"#, vec!["1"; 200].join(","));
    let mut edit = doc.edit().unwrap();
    let first = edit.member(edit.value().unwrap(), "a").unwrap().unwrap();
    edit.set(first, Value::Number("2")).unwrap();
    let error = edit.import(r#"{"b":1,"c":2,"d":3}"#.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "the distinct paths of a document of 4; at most 3 is taken");
    // What this edit had changed before stays.
    let revision = edit.commit(&Meta::default()).unwrap();
    assert_eq!((Form::default().text(&revision).unwrap().as_str(), revision.verify().unwrap()), (r#"{"a":2}"#, 2));
    // The disk is full for a while.
    let mut edit = doc.edit().unwrap();
    desk.fill();
    assert_eq!(edit.import(many.as_bytes()).unwrap_err().kind(), Kind::Full);
    desk.disk.set_capacity(None);
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 2, "nothing has changed");
    assert_eq!(import(&doc, r#"{"b":1,"c":2}"#).1.inserted, 2);
    assert_eq!(import(&doc, &many).1.inserted, 201);
}

#[test]
fn what_an_import_takes_in_memory_is_bounded() {
    // A new version is read whole before anything is changed: of two gigabytes of "[0,0,..]" the process died.
    let desk = fresh_with(Config { import_bytes_max: 100_000, ..Config::default() });
    let doc = put(&desk, "[0]");
    let zeros = |count: usize| format!("[{}]", vec!["0"; count].join(","));
    assert_eq!(import(&doc, &zeros(700)).1.inserted, 699);
    let error = doc.edit().unwrap().import(zeros(900).as_bytes()).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().starts_with("an import's memory of 100"), "{error}");
    // Names and texts count too.
    for large in [format!(r#"{{"{}":1}}"#, "n".repeat(60_000)), format!(r#"["{}"]"#, "t".repeat(100_000))] {
        assert_eq!(doc.edit().unwrap().import(large.as_bytes()).unwrap_err().kind(), Kind::Invalid);
    }
    assert_eq!(doc.latest().number(), 2);
}
