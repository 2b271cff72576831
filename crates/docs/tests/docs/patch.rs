//! JSON Patch and merge patch: as the RFCs say, as another implementation does it, and with the nodes that stay.

use assent_docs::{At, Config, DocsError, Document, Form, KIND_COMMIT, Look, Meta, NodeKey, Versioning};
use assent_journal::Log;
use assent_kind::Kind;
use assent_sim::Rng;
use serde_json::{Value as Json, json};

use super::{Desk, fresh, fresh_with};

fn document(desk: &Desk, name: &str, json: &str) -> Document {
    let doc = desk.db.create(name, Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    doc
}

fn text(look: &impl Look) -> String {
    Form::default().text(look).unwrap()
}

/// The document after a patch.
fn patched(desk: &Desk, json: &str, patch: &str) -> Result<String, DocsError> {
    let name = format!("doc {}", desk.db.names(None, 9999).unwrap().len());
    let doc = document(desk, &name, json);
    let mut edit = doc.edit().unwrap();
    let done = edit.patch(patch.as_bytes());
    if done.is_err() {
        assert_eq!(text(&edit), text(&doc.latest()), "nothing has changed");
        assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 1);
    } else {
        edit.commit(&Meta::default()).unwrap().verify().unwrap();
    }
    done.map(|()| text(&doc.latest()))
}

#[test]
fn the_examples_of_rfc_6902_come_out_as_it_says() {
    let desk = fresh();
    let fine = [
        (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux"}]"#, r#"{"foo":"bar","baz":"qux"}"#),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            r#"{"foo":["bar","qux","baz"]}"#,
        ),
        (r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, r#"{"foo":"bar"}"#),
        (r#"{"foo":["bar","qux","baz"]}"#, r#"[{"op":"remove","path":"/foo/1"}]"#, r#"{"foo":["bar","baz"]}"#),
        (
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            r#"{"baz":"boo","foo":"bar"}"#,
        ),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
        ),
        (
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            r#"{"foo":["all","cows","eat","grass"]}"#,
        ),
        (
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2.0}]"#,
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            r#"{"foo":"bar","child":{"grandchild":{}}}"#,
        ),
        (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#, r#"{"foo":"bar","baz":"qux"}"#),
        (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, r#"{"/":9,"~1":10}"#),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            r#"{"foo":["bar",["abc","def"]]}"#,
        ),
        // What the examples leave out.
        (r#"{"a":1}"#, r#"[{"op":"replace","path":"","value":[1.50]}]"#, "[1.50]"),
        (r#"{"a":1}"#, r#"[{"op":"remove","path":""},{"op":"add","path":"","value":7}]"#, "7"),
        (r#"{"a":{"b":[1]}}"#, r#"[{"op":"copy","from":"/a","path":"/a/b/0"}]"#, r#"{"a":{"b":[{"b":[1]},1]}}"#),
        (r#"{"a":{"b":[1]}}"#, r#"[{"op":"move","from":"/a/b","path":"/a"}]"#, r#"{"a":[1]}"#),
        (r#"{"a":{"b":[1]}}"#, r#"[{"op":"move","from":"/a/b","path":""}]"#, "[1]"),
        (r#"{"a":1}"#, r#"[{"op":"move","from":"/a","path":"/a"}]"#, r#"{"a":1}"#),
        (r#"{"a":1}"#, r#"[{"op":"test","path":"","value":{"a":1e0}}]"#, r#"{"a":1}"#),
        (r#"{"a":{"x":1,"y":[]}}"#, r#"[{"op":"test","path":"/a","value":{"y":[],"x":1}}]"#, r#"{"a":{"x":1,"y":[]}}"#),
        ("[1,2]", "[]", "[1,2]"),
    ];
    for (json, patch, expected) in fine {
        assert_eq!(patched(&desk, json, patch).unwrap(), expected, "{json} {patch}");
    }
}

#[test]
fn what_is_no_patch_or_does_not_fit_is_refused_by_its_operation_and_has_changed_nothing() {
    let desk = fresh();
    let json = r#"{"a":[1,{"b":2}],"c":"x"}"#;
    let add = r#"{"op":"add","path":"/new","value":{"d":[1,2,3]}}"#;
    let unfit = [
        r#"{"op":"add","path":"/x/y","value":1}"#,
        r#"{"op":"add","path":"/a/3","value":1}"#,
        r#"{"op":"add","path":"/a/01","value":1}"#,
        r#"{"op":"add","path":"/a/x","value":1}"#,
        r#"{"op":"add","path":"/c/x","value":1}"#,
        r#"{"op":"remove","path":"/x"}"#,
        r#"{"op":"remove","path":"/a/-"}"#,
        r#"{"op":"replace","path":"/a/2","value":1}"#,
        r#"{"op":"move","from":"/a","path":"/a/0"}"#,
        r#"{"op":"move","from":"/x","path":"/y"}"#,
        r#"{"op":"move","from":"/a/0","path":"/a/2"}"#,
        r#"{"op":"copy","from":"/x","path":"/y"}"#,
        r#"{"op":"test","path":"/a/0","value":"1"}"#,
        r#"{"op":"test","path":"/a","value":[1]}"#,
        r#"{"op":"test","path":"/a/1","value":{"b":3}}"#,
        r#"{"op":"test","path":"/x","value":null}"#,
    ];
    for op in unfit {
        let error = patched(&desk, json, &format!("[{add},{op}]")).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{op}: {error}");
        let DocsError::Unpatched { operation, op: name, pointer, .. } = &error else { panic!("{error}") };
        let told = serde_json::from_str::<Json>(op).unwrap();
        assert_eq!((*operation, &json!(name), &json!(pointer)), (1, &told["op"], &told["path"]));
    }
    let wrong = [
        r#"{"op":"put","path":"/x","value":1}"#,
        r#"{"op":"add","path":"x","value":1}"#,
        r#"{"op":"add","path":"/~2","value":1}"#,
        r#"{"op":"add","path":"/x"}"#,
        r#"{"op":"add","path":7,"value":1}"#,
        r#"{"path":"/x"}"#,
        r#"{"op":"move","path":"/x"}"#,
        "7",
    ];
    for op in wrong {
        let error = patched(&desk, json, &format!("[{add},{op}]")).unwrap_err();
        assert!(matches!(error, DocsError::Patch { operation: 1, .. }), "{op}: {error}");
        assert_eq!(error.kind(), Kind::Invalid);
    }
    for patch in ["", "{}", "[", r#"[{"op":"add","op":"add","path":"/x","value":1}]"#] {
        assert_eq!(patched(&desk, json, patch).unwrap_err().kind(), Kind::Invalid, "{patch}");
    }
    let desk = fresh_with(Config { depth_max: 4, text_bytes_max: 8, ..Config::default() });
    for op in [
        r#"{"op":"add","path":"/123456789","value":1}"#,
        r#"{"op":"add","path":"/x","value":"123456789"}"#,
        r#"{"op":"add","path":"/a/1/e","value":[1]}"#,
        r#"{"op":"move","from":"/a","path":"/123456789"}"#,
        r#"{"op":"move","from":"/new","path":"/a/1/e"}"#,
    ] {
        let error = patched(&desk, json, &format!("[{add},{op}]")).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{op}: {error}");
        assert!(matches!(error, DocsError::Unpatched { operation: 1, .. }), "{op}: {error}");
    }
}

#[test]
fn the_examples_of_rfc_7396_come_out_as_it_says() {
    let desk = fresh();
    let examples = [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        (r#"{"n":1}"#, r#"{"n":1.0}"#, r#"{"n":1.0}"#),
        (r#"{"n":[1]}"#, r#"{"n":[1.0]}"#, r#"{"n":[1.0]}"#),
    ];
    for (number, (json, patch, expected)) in examples.into_iter().enumerate() {
        let doc = document(&desk, &number.to_string(), json);
        let mut edit = doc.edit().unwrap();
        edit.merge_patch(patch.as_bytes()).unwrap();
        let revision = edit.commit(&Meta::default()).unwrap();
        assert_eq!(text(&revision), expected, "{json} {patch}");
        revision.verify().unwrap();
    }
    let doc = desk.db.create("empty", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    for wrong in ["", "{", "{\"a\":1,\"a\":2}"] {
        assert_eq!(edit.merge_patch(wrong.as_bytes()).unwrap_err().kind(), Kind::Invalid);
    }
    edit.merge_patch(r#"{"a":{"b":null,"c":[null]}}"#.as_bytes()).unwrap();
    assert_eq!(text(&edit), r#"{"a":{"c":[null]}}"#);
}

#[test]
fn a_patch_keeps_the_keys_of_what_it_does_not_name_and_writes_only_what_changed() {
    let desk = fresh();
    let items: Vec<String> = (0..500).map(|n| format!(r#"{{"name":"item {n}","price":{n}}}"#)).collect();
    let doc = document(&desk, "orders", &format!(r#"{{"items":[{}],"total":1}}"#, items.join(",")));
    let at = |pointer: &str| doc.latest().at_pointer(pointer).unwrap();
    let (price, item, total) = (at("/items/250/price"), at("/items/3"), at("/total"));
    let end = || desk.log.end().0;
    let patches = [
        r#"[{"op":"replace","path":"/items/250/price","value":7.50},{"op":"test","path":"/total","value":1}]"#,
        r#"[{"op":"move","from":"/items/3","path":"/items/400"},{"op":"replace","path":"/total","value":"x"}]"#,
    ];
    for patch in patches {
        let before = end();
        let mut edit = doc.edit().unwrap();
        edit.patch(patch.as_bytes()).unwrap();
        edit.commit(&Meta::default()).unwrap().verify().unwrap();
        assert!(end() - before < 700, "{} bytes for {patch}", end() - before);
    }
    assert_eq!((at("/items/249/price"), at("/items/400"), at("/total")), (price, item, total));
    let before = end();
    let mut edit = doc.edit().unwrap();
    edit.merge_patch(r#"{"total":2,"none":null}"#.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    assert!(end() - before < 300, "{} bytes", end() - before);
    assert_eq!((at("/total"), at("/items/400")), (total, item));
    // What says what is there already changes nothing.
    let all = text(&doc.latest());
    let mut edit = doc.edit().unwrap();
    edit.merge_patch(all.as_bytes()).unwrap();
    edit.patch(format!(r#"[{{"op":"replace","path":"","value":{all}}}]"#).as_bytes()).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 4);
    let commits = desk.log.read(desk.log.start()).unwrap().filter(|entry| entry.as_ref().unwrap().kind == KIND_COMMIT);
    assert_eq!(commits.count(), 4);
}

fn some_json(rng: &mut Rng, depth: u32) -> Json {
    match rng.below(if depth == 0 { 4 } else { 7 }) {
        0 => Json::Null,
        1 => json!(rng.below(3) == 0),
        2 => json!(rng.below(5)),
        3 => json!(["x", "", "a/b~"][rng.index(3)]),
        4 | 5 => {
            let member = |_| (["a", "b", "c/", "~d"][rng.index(4)].to_owned(), some_json(rng, depth - 1));
            Json::Object((0..4).map(member).collect())
        }
        _ => Json::Array((0..rng.below(4)).map(|_| some_json(rng, depth - 1)).collect()),
    }
}

/// A pointer that leads somewhere, or nearly.
fn some_pointer(rng: &mut Rng, json: &Json) -> String {
    let (mut at, mut pointer) = (json, String::new());
    while rng.below(3) > 0 {
        let (step, next) = match at {
            Json::Object(members) if !members.is_empty() && rng.below(9) > 0 => {
                let (name, value) = members.iter().nth(rng.index(members.len())).unwrap();
                (name.replace('~', "~0").replace('/', "~1"), value)
            }
            Json::Array(values) if rng.below(8) > 0 => {
                let index = rng.index(values.len() + 1);
                (index.to_string(), values.get(index).unwrap_or(&Json::Null))
            }
            _ => (["a", "e", "-", "0", "01"][rng.index(5)].to_owned(), &Json::Null),
        };
        (at, pointer) = (next, format!("{pointer}/{step}"));
    }
    pointer
}

#[test]
fn random_patches_do_what_another_implementation_does() {
    let desk = fresh();
    let (mut made, mut refused) = (0, 0);
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let members = ["a", "b", "c/"].map(|name| (name.to_owned(), some_json(&mut rng, 3)));
        let mut expected = Json::Object(members.into_iter().collect());
        let doc = document(&desk, &seed.to_string(), &expected.to_string());
        for _ in 0..4 {
            let mut ops = Vec::new();
            for _ in 0..[1, 1, 2, 3][rng.index(4)] {
                let (path, from) = (some_pointer(&mut rng, &expected), some_pointer(&mut rng, &expected));
                // What a patch makes of the whole document when it takes that away is no two implementations' common ground.
                ops.push(match rng.below(6) {
                    1 if !path.is_empty() => json!({"op": "remove", "path": path}),
                    2 => json!({"op": "replace", "path": path, "value": some_json(&mut rng, 2)}),
                    3 if !from.is_empty() => json!({"op": "move", "from": from, "path": path}),
                    4 => json!({"op": "copy", "from": from, "path": path}),
                    5 => json!({"op": "test", "path": path, "value": expected.pointer(&path).unwrap_or(&Json::Null)}),
                    _ => json!({"op": "add", "path": path, "value": some_json(&mut rng, 2)}),
                });
            }
            let patch = Json::Array(ops);
            let before = expected.clone();
            let parsed: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
            // Its own undoing cannot undo everything.
            let theirs = json_patch::patch_unsafe(&mut expected, &parsed);
            if theirs.is_err() {
                expected = before.clone();
            }
            let mut edit = doc.edit().unwrap();
            let ours = edit.patch(patch.to_string().as_bytes());
            assert_eq!(ours.is_ok(), theirs.is_ok(), "seed {seed}: {before} {patch}: {ours:?} {theirs:?}");
            let now: Json = serde_json::from_str(&text(&edit)).unwrap();
            assert_eq!(now, expected, "seed {seed}: {before} {patch}");
            *(if ours.is_ok() { &mut made } else { &mut refused }) += 1;
            edit.commit(&Meta::default()).unwrap().verify().unwrap();
        }
        let merge = some_json(&mut rng, 4);
        json_patch::merge(&mut expected, &merge);
        let mut edit = doc.edit().unwrap();
        edit.merge_patch(merge.to_string().as_bytes()).unwrap();
        let revision = edit.commit(&Meta::default()).unwrap();
        revision.verify().unwrap();
        assert_eq!(serde_json::from_str::<Json>(&text(&revision)).unwrap(), expected, "seed {seed}: {merge}");
    }
    assert!(made > 500 && refused > 500, "{made} made, {refused} refused");
}

#[test]
fn a_long_patch_finds_its_way_by_what_it_has_done_so_far() {
    let desk = fresh();
    let mut made = 0;
    for seed in 0..150 {
        let mut rng = Rng::new(1000 + seed);
        // Few containers of many, so that each is looked into again and again.
        let list: Vec<Json> = (0..rng.below(12)).map(|number| json!(number)).collect();
        let mut expected = json!({"list": list, "object": {"a": 1, "b": [2, 3, 4, 5]}, "c": some_json(&mut rng, 2)});
        let doc = document(&desk, &seed.to_string(), &expected.to_string());
        let mut ops = Vec::new();
        while ops.len() < 40 {
            let (path, from) = (some_pointer(&mut rng, &expected), some_pointer(&mut rng, &expected));
            let op = match rng.below(8) {
                0 if path.matches('/').count() > 1 => json!({"op": "remove", "path": path}),
                1 => json!({"op": "replace", "path": path, "value": some_json(&mut rng, 1)}),
                2 | 3 if from.matches('/').count() > 1 => json!({"op": "move", "from": from, "path": path}),
                4 => json!({"op": "copy", "from": from, "path": path}),
                5 => json!({"op": "test", "path": path, "value": expected.pointer(&path).unwrap_or(&Json::Null)}),
                _ => json!({"op": "add", "path": path, "value": some_json(&mut rng, 1)}),
            };
            let one: json_patch::Patch = serde_json::from_value(json!([op])).unwrap();
            let mut after = expected.clone();
            let is_small = |after: &Json| after.to_string().len() < 4000;
            // What takes the whole document's place leaves nothing to look into again.
            if !path.is_empty() && json_patch::patch_unsafe(&mut after, &one).is_ok() && is_small(&after) {
                (expected, made) = (after, made + 1);
                ops.push(op);
            } else if rng.below(200) == 0 {
                break;
            }
        }
        let patch = Json::Array(ops);
        let mut edit = doc.edit().unwrap();
        edit.patch(patch.to_string().as_bytes()).unwrap_or_else(|error| panic!("seed {seed}: {error}: {patch}"));
        assert_eq!(serde_json::from_str::<Json>(&text(&edit)).unwrap(), expected, "seed {seed}: {patch}");
        edit.commit(&Meta::default()).unwrap().verify().unwrap();
    }
    assert!(made > 1000, "{made} made");
}

#[test]
fn what_a_patch_copies_is_bounded_and_leaves_nothing_behind() {
    // A body of a megabyte copied one of sixty megabytes twenty thousand times: a terabyte of journal, and it is kept.
    let desk = fresh();
    let doc = document(&desk, "a", &format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20)));
    let copies = |count: u32| {
        let copy = |number| format!(r#"{{"op":"copy","from":"/a","path":"/b{number}"}}"#);
        let ops: Vec<String> = (0..count).map(copy).collect();
        let mut edit = doc.edit().unwrap();
        edit.patch(format!("[{}]", ops.join(",")).as_bytes()).map(|()| edit)
    };
    copies(63).unwrap();
    let error = copies(64).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("operation 63") && error.to_string().contains("67108864"), "{error}");
    assert_eq!(doc.edit().unwrap().commit(&Meta::default()).unwrap().number(), 1, "nothing has changed");
}

#[test]
fn a_merge_patch_of_many_new_members_looks_for_each_of_them_once() {
    // Each was looked for among all before it, with the writer's seat held: 1,250,000,000 looks here.
    let desk = fresh();
    let doc = document(&desk, "a", r#"{"old":1,"gone":2}"#);
    let members: Vec<String> = (0..50_000).map(|number| format!(r#""m{number}":{{"n":{number}}}"#)).collect();
    let patch = format!(r#"{{"gone":null,"old":3,{}}}"#, members.join(","));
    let mut edit = doc.edit().unwrap();
    edit.merge_patch(patch.as_bytes()).unwrap();
    let revision = edit.commit(&Meta::default()).unwrap();
    assert_eq!(text(&revision), format!(r#"{{"old":3,{}}}"#, members.join(",")));
    revision.verify().unwrap();
}

#[test]
fn a_test_takes_numbers_for_equal_only_if_they_are() {
    // Exponents that no integer holds counted as the same one.
    let desk = fresh();
    let (far, near) = (format!("1e1{}", "0".repeat(39)), format!("1e-1{}", "0".repeat(40)));
    let doc = document(&desk, "a", &format!("[{far}]"));
    let test = |digits: &str| {
        let patch = format!(r#"[{{"op":"test","path":"/0","value":{digits}}}]"#);
        doc.edit().unwrap().patch(patch.as_bytes()).map_err(|error| error.kind())
    };
    assert_eq!((test(&far), test(&near)), (Ok(()), Err(Kind::Conflict)));
}
