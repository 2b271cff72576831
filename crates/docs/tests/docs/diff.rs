//! Diffs judged by what they are for: applied to one revision they give the other, by three ways of saying them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use assent_docs::{
    At, Config, Diff, Difference, DocsError, Document, Edit, Form, Look, Meta, NodeKey, Pointers, Revision, Scope,
    Spot, Value, Versioning,
};
use assent_kind::Kind;
use assent_sim::Rng;

use super::model::Model;
use super::tree::{Tree, What, read, read_from};
use super::{Desk, fresh, fresh_with};

/// A tree laid flat: of each node its name, itself without children, and its children.
#[derive(Default)]
struct Flat {
    nodes: HashMap<NodeKey, (Option<String>, What, Vec<NodeKey>)>,
    parents: HashMap<NodeKey, NodeKey>,
}

impl Flat {
    /// Takes a subtree in; what is there already stays where it is.
    fn take(&mut self, tree: &Tree, parent: NodeKey, is_there: &impl Fn(NodeKey) -> bool) {
        let mut bare = tree.what.clone();
        if let What::Object(children) | What::Array(children) = &mut bare {
            children.clear();
        }
        let children: Vec<&Tree> = tree.children().iter().filter(|child| !is_there(child.key)).collect();
        let keys = children.iter().map(|child| child.key).collect();
        self.nodes.insert(tree.key, (tree.name.clone(), bare, keys));
        self.parents.insert(tree.key, parent);
        children.into_iter().for_each(|child| self.take(child, tree.key, is_there));
    }

    fn tree(&self, key: NodeKey) -> Tree {
        let (name, what, children) = &self.nodes[&key];
        let mut tree = Tree { key, name: name.clone(), what: what.clone() };
        if let Some(list) = tree.children_mut() {
            list.extend(children.iter().map(|child| self.tree(*child)));
        }
        tree
    }

    fn children(&mut self, parent: NodeKey) -> &mut Vec<NodeKey> {
        &mut self.nodes.entry(parent).or_insert_with(|| (None, What::Null, Vec::new())).2
    }

    fn out(&mut self, key: NodeKey) {
        let parent = self.parents[&key];
        self.children(parent).retain(|child| *child != key);
    }

    fn put(&mut self, key: NodeKey, Spot { parent, left }: Spot) {
        let children = self.children(parent);
        let at = left.map_or(0, |left| 1 + children.iter().position(|child| *child == left).expect("the left one"));
        children.insert(at, key);
        self.parents.insert(key, parent);
    }
}

/// Applies a diff as its documentation says, knowing of the new revision only what it names.
fn applied(diff: &Diff) -> Option<Tree> {
    let (old, new) = (diff.before(), diff.after());
    let mut flat = Flat::default();
    if let Some(tree) = read(old) {
        flat.take(&tree, NodeKey::DOCUMENT, &|_| false);
        flat.children(NodeKey::DOCUMENT).push(tree.key);
    }
    let there: HashSet<NodeKey> = flat.nodes.keys().copied().collect();
    let is_there = |key| there.contains(&key);
    for difference in diff.differences() {
        match *difference {
            Difference::Removed { key, .. } | Difference::Moved { key, .. } => flat.out(key),
            Difference::Replaced { old, .. } => flat.out(old),
            _ => {}
        }
    }
    let named = |key| new.name(&new.item(key).unwrap().node).unwrap().map(|name| name.as_str().to_owned());
    for difference in diff.differences() {
        match *difference {
            Difference::Removed { .. } => {}
            Difference::Renamed { key } => flat.nodes.get_mut(&key).unwrap().0 = named(key),
            Difference::Updated { key } => flat.nodes.get_mut(&key).unwrap().1 = read_from(new, key).what,
            Difference::Inserted { key, to } | Difference::Replaced { new: key, to, .. } => {
                flat.take(&read_from(new, key), to.parent, &is_there);
                flat.put(key, to);
            }
            Difference::Moved { key, to, .. } => {
                flat.put(key, to);
                flat.nodes.get_mut(&key).unwrap().0 = named(key);
            }
        }
    }
    let value = flat.children(NodeKey::DOCUMENT).first().copied();
    value.map(|value| flat.tree(value))
}

fn text(revision: &Revision) -> String {
    Form::default().text(revision).unwrap()
}

fn json(revision: &Revision) -> serde_json::Value {
    let text = text(revision);
    if text.is_empty() { serde_json::Value::Null } else { serde_json::from_str(&text).unwrap() }
}

/// Whether an object within objects has a member that is null.
fn has_null(value: &serde_json::Value) -> bool {
    value.as_object().is_some_and(|members| members.values().any(|member| member.is_null() || has_null(member)))
}

/// Holds the diff of two revisions against both, in each way of saying it.
fn judge(old: &Revision, new: &Revision) -> Diff {
    let told = format!("from revision {} to {}", old.number(), new.number());
    let diff = Diff::between(old, new, Scope::default()).unwrap();
    let walked = Diff::walked(old, new, Scope::default()).unwrap();
    assert_eq!(diff.differences(), walked.differences(), "{told}");
    assert_eq!(applied(&diff), read(new), "{told}: {:?}", diff.differences());
    let said = diff.patch().and_then(|patch| patch.text());
    match said {
        Err(error) => assert!(new.value().is_none() && error.kind() == Kind::Invalid, "{told}: {error}"),
        Ok(patch) => {
            let mut patched = json(old);
            let parsed: json_patch::Patch = serde_json::from_str(&patch).unwrap();
            json_patch::patch(&mut patched, &parsed)
                .unwrap_or_else(|error| panic!("{told}: {error}: {patch}\n{}\n{}", text(old), text(new)));
            assert_eq!(patched, json(new), "{told}: {patch}\n{}\n{}", text(old), text(new));
        }
    }
    let mut merge = Vec::new();
    match diff.merge_patch(&mut merge) {
        Err(error) => {
            assert!(matches!(error, DocsError::Inexpressible { .. }), "{told}: {error}");
            assert!(merge.is_empty() && (new.value().is_none() || has_null(&json(new))), "{told}: {error}");
        }
        Ok(()) => {
            let mut merged = json(old);
            json_patch::merge(&mut merged, &serde_json::from_slice(&merge).unwrap());
            assert_eq!(merged, json(new), "{told}: {}", String::from_utf8_lossy(&merge));
        }
    }
    let mut native = Vec::new();
    diff.write("db", true, &mut native).unwrap();
    let native: serde_json::Value = serde_json::from_slice(&native).unwrap();
    assert_eq!(native["diffs"].as_array().unwrap().len(), diff.differences().len());
    diff
}

fn at(doc: &Document, revision: usize) -> Revision {
    doc.at(u32::try_from(revision).unwrap()).unwrap()
}

fn play(seed: u64, config: Config, steps: u64) {
    println!("seed {seed}");
    let desk: Desk = fresh_with(config);
    let doc = desk.db.create("model", Versioning::SlidingSnapshot { window: 1 + (seed % 4) as u8 }).unwrap();
    let mut model = Model { rng: Rng::new(seed), tree: None, texts: 0, key: NodeKey(0) };
    for _ in 0..40 {
        let newest = doc.latest();
        let mut edit = doc.edit().unwrap();
        if model.rng.below(12) == 0 {
            let to = at(&doc, model.rng.index(newest.number() as usize + 1));
            edit.revert(&to).unwrap();
            model.tree = read(&to);
        }
        for _ in 0..=model.rng.below(steps) {
            model.step(&mut edit, &newest);
        }
        edit.commit(&Meta::default()).unwrap();
    }
    let newest = doc.latest().number() as usize;
    for revision in 1..=newest {
        let (before, after) = (at(&doc, revision - 1), at(&doc, revision));
        judge(&before, &after);
        judge(&after, &before);
    }
    for _ in 0..30 {
        judge(&at(&doc, model.rng.index(newest + 1)), &at(&doc, model.rng.index(newest + 1)));
    }
}

#[test]
fn every_diff_applied_forward_and_back_gives_the_other_revision() {
    for seed in 200..206 {
        play(seed, Config::default(), 12);
    }
    for seed in 206..208 {
        play(seed, Config { cache_bytes: 16 << 10, edit_nodes_max: 7, ..Config::default() }, 60);
    }
}

fn put(desk: &Desk, json: &str) -> Document {
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    doc
}

/// What the patch says of one edit of a document.
fn patched(json: &str, change: impl FnOnce(&mut Edit)) -> String {
    let desk = fresh();
    let doc = put(&desk, json);
    let mut edit = doc.edit().unwrap();
    change(&mut edit);
    edit.commit(&Meta::default()).unwrap();
    judge(&at(&doc, 2), &at(&doc, 1));
    judge(&at(&doc, 1), &at(&doc, 2)).patch().unwrap().text().unwrap()
}

#[test]
fn a_patch_says_of_an_array_only_what_changed_in_it() {
    let json = "[1,2,3,4,5,6]";
    let [one, two, five] = [2, 3, 6].map(NodeKey);
    let root = NodeKey(1);
    assert_eq!(patched(json, |edit| edit.remove(two).unwrap()), r#"[{"op":"remove","path":"/1"}]"#);
    let set = |edit: &mut Edit| edit.set(five, Value::Null).unwrap();
    assert_eq!(patched(json, set), r#"[{"op":"replace","path":"/4","value":null}]"#);
    let insert = |edit: &mut Edit| _ = edit.insert(At::After(one), None, Value::Number("1.50")).unwrap();
    assert_eq!(patched(json, insert), r#"[{"op":"add","path":"/1","value":1.50}]"#);
    let replace = |edit: &mut Edit| _ = edit.replace(two, b"[]".as_slice()).unwrap();
    assert_eq!(patched(json, replace), r#"[{"op":"replace","path":"/1","value":[]}]"#);
    // Only the one that was moved is.
    let to_end = |edit: &mut Edit| edit.relocate(one, At::Last(root), None).unwrap();
    assert_eq!(patched(json, to_end), r#"[{"op":"move","from":"/0","path":"/5"}]"#);
    let many = |edit: &mut Edit| {
        edit.remove(one).unwrap();
        edit.relocate(five, At::First(root), None).unwrap();
        edit.insert(At::Last(root), None, Value::Bool(true)).unwrap();
        edit.insert(At::Last(root), None, Value::Bool(false)).unwrap();
    };
    let expected = r#"[{"op":"remove","path":"/0"},{"op":"move","from":"/3","path":"/0"},{"op":"add","path":"/5","value":true},{"op":"add","path":"/6","value":false}]"#;
    assert_eq!(patched(json, many), expected);
}

#[test]
fn what_changes_places_is_moved_as_far_as_it_can_be() {
    let json = r#"{"a":{"x":[1]},"b":{"y":2},"c~/":3}"#;
    let [a, x, b, y, c] = [2, 3, 5, 6, 7].map(NodeKey);
    let rename = |edit: &mut Edit| edit.rename(c, "d").unwrap();
    assert_eq!(patched(json, rename), r#"[{"op":"move","from":"/c~0~1","path":"/d"}]"#);
    let across = |edit: &mut Edit| edit.relocate(x, At::First(b), Some("z")).unwrap();
    assert_eq!(patched(json, across), r#"[{"op":"move","from":"/a/x","path":"/b/z"}]"#);
    // Two names change places: one is moved, the other is removed and added.
    let swap = |edit: &mut Edit| {
        edit.rename(a, "t").unwrap();
        edit.rename(b, "a").unwrap();
        edit.rename(a, "b").unwrap();
    };
    let expected = r#"[{"op":"remove","path":"/a"},{"op":"move","from":"/b","path":"/a"},{"op":"add","path":"/b","value":{"x":[1]}}]"#;
    assert_eq!(patched(json, swap), expected);
    // What was inside is outside now.
    let inside_out = |edit: &mut Edit| {
        edit.relocate(x, At::First(NodeKey(1)), Some("x")).unwrap();
        edit.relocate(a, At::Last(x), None).unwrap();
    };
    let expected = r#"[{"op":"move","from":"/a/x","path":"/x"},{"op":"move","from":"/a","path":"/x/1"}]"#;
    assert_eq!(patched(json, inside_out), expected);
    // Into what is new, and out of what is gone.
    let into_new = |edit: &mut Edit| {
        let new = edit.insert(At::First(NodeKey(1)), Some("new"), Value::Array).unwrap();
        edit.relocate(y, At::Last(new), None).unwrap();
        edit.relocate(x, At::After(c), Some("saved")).unwrap();
        edit.remove(a).unwrap();
    };
    let expected = r#"[{"op":"remove","path":"/a"},{"op":"remove","path":"/b/y"},{"op":"add","path":"/new","value":[2]},{"op":"add","path":"/saved","value":[1]}]"#;
    assert_eq!(patched(json, into_new), expected);
    let whole = |edit: &mut Edit| _ = edit.replace(NodeKey(1), b"7".as_slice()).unwrap();
    assert_eq!(patched(json, whole), r#"[{"op":"replace","path":"","value":7}]"#);
}

#[test]
fn what_moves_into_its_neighbour_goes_by_way_of_the_end() {
    // The neighbour took its place: `from` was a prefix of `path`, and whoever read the patch by the letter refused it.
    let into = |edit: &mut Edit| edit.relocate(NodeKey(2), At::Last(NodeKey(3)), None).unwrap();
    let expected = r#"[{"op":"move","from":"/0","path":"/2"},{"op":"move","from":"/2","path":"/0/0"}]"#;
    assert_eq!(patched("[1,[],2]", into), expected);
}

#[test]
fn a_merge_patch_says_what_it_can_and_names_what_it_cannot() {
    let desk = fresh();
    let doc = put(&desk, r#"{"a":{"b":1,"c":{"d":2}},"e":[1,null],"f":"x","g":null}"#);
    let merge = |from: u32, to: u32| -> Result<String, DocsError> {
        let mut out = Vec::new();
        Diff::between(&doc.at(from)?, &doc.at(to)?, Scope::default())?.merge_patch(&mut out)?;
        Ok(String::from_utf8(out).unwrap())
    };
    let mut edit = doc.edit().unwrap();
    let find =
        |edit: &Edit, path: &[&str]| path.iter().fold(NodeKey(1), |key, name| edit.member(key, name).unwrap().unwrap());
    edit.set(find(&edit, &["a", "c", "d"]), Value::Number("2.0")).unwrap();
    edit.remove(find(&edit, &["a", "b"])).unwrap();
    edit.insert(At::First(find(&edit, &["e"])), None, Value::Null).unwrap();
    edit.relocate(find(&edit, &["f"]), At::First(NodeKey(1)), Some("f")).unwrap();
    edit.commit(&Meta::default()).unwrap();
    judge(&at(&doc, 1), &at(&doc, 2));
    assert_eq!(merge(1, 2).unwrap(), r#"{"a":{"c":{"d":2.0},"b":null},"e":[null,1,null]}"#);
    assert_eq!(merge(2, 2).unwrap(), "{}");
    let mut edit = doc.edit().unwrap();
    edit.set(find(&edit, &["f"]), Value::Null).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let error = merge(2, 3).unwrap_err().to_string();
    assert!(error.contains("a JSON merge patch") && error.contains("null as a member's value"), "{error}");
    assert_eq!(merge(3, 2).unwrap(), r#"{"f":"x"}"#);
    // An object that is new may have no such member either, but for what an array has.
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey(1)), Some("n"), br#"{"o":[{"p":null}]}"#.as_slice()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    assert_eq!(merge(3, 4).unwrap(), r#"{"n":{"o":[{"p":null}]}}"#);
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey(1)), Some("q"), br#"{"o":{"p":null}}"#.as_slice()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    assert_eq!(merge(4, 5).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(merge(5, 0).unwrap_err().kind(), Kind::Invalid, "a document without a value");
    assert_eq!(merge(0, 2).unwrap_err().kind(), Kind::Invalid, "g is null");
    let part = Scope { start: Some(NodeKey(2)), max_level: None };
    let part = Diff::between(&at(&doc, 1), &at(&doc, 2), part).unwrap();
    assert_eq!(part.merge_patch(&mut Vec::new()).unwrap_err().kind(), Kind::Invalid, "a part");
    assert_eq!(part.patch().unwrap_err().kind(), Kind::Invalid, "a part");
}

#[test]
fn a_difference_is_told_with_key_path_place_type_and_values() {
    let desk = fresh();
    let doc = put(&desk, r#"{"a":[1,{"b":"x"}],"c":{"d":true}}"#);
    let [a, one, object, b, c, d] = [2, 3, 4, 5, 6, 7].map(NodeKey);
    let mut edit = doc.edit().unwrap();
    edit.set(b, Value::Number("1.50")).unwrap();
    edit.rename(c, "k").unwrap();
    edit.relocate(d, At::After(object), None).unwrap();
    edit.replace(one, b"[2]".as_slice()).unwrap();
    edit.insert(At::Last(c), Some("new"), Value::Null).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let (old, new) = (at(&doc, 1), at(&doc, 2));
    judge(&new, &old);
    let diff = judge(&old, &new);
    let said = |data| {
        let mut out = Vec::new();
        diff.write("shop", data, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let expected = concat!(
        r#"{"database":"shop","resource":"orders","old-revision":1,"new-revision":2,"diffs":["#,
        r#"{"rename":{"nodeKey":6,"oldName":"c","path":"$[\"k\"]","depth":2,"type":"object","name":"k"}},"#,
        r#"{"update":{"nodeKey":5,"oldType":"string","path":"$[\"a\"][*][\"b\"]","depth":4,"type":"number","name":"b","oldValue":"x","value":1.50}},"#,
        r#"{"replace":{"oldNodeKey":3,"newNodeKey":8,"oldType":"number","insertPositionNodeKey":2,"insertPosition":"asFirstChild","path":"$[\"a\"][*]","depth":3,"type":"array","oldData":1,"data":[2]}},"#,
        r#"{"insert":{"nodeKey":10,"insertPositionNodeKey":6,"insertPosition":"asFirstChild","path":"$[\"k\"][\"new\"]","depth":3,"type":"null","name":"new","data":null}},"#,
        r#"{"move":{"nodeKey":7,"oldPath":"$[\"c\"][\"d\"]","oldName":"d","insertPositionNodeKey":4,"insertPosition":"asRightSibling","path":"$[\"a\"][*]","depth":3,"type":"boolean"}}]}"#,
    );
    assert_eq!(said(true), expected);
    assert!(!said(false).contains("alue\"") && !said(false).contains("ata\""), "{}", said(false));
    let within = |start, max_level| {
        let diff = Diff::between(&old, &new, Scope { start, max_level }).unwrap();
        diff.differences().iter().map(|difference| difference.keys()).collect::<Vec<_>>()
    };
    assert_eq!(within(Some(a), Some(2)), [(Some(one), Some(NodeKey(8))), (Some(d), Some(d))]);
    assert_eq!(within(Some(object), None), [(Some(b), Some(b))]);
    assert_eq!(within(Some(c), Some(1)), [(Some(c), Some(c))]);
    assert_eq!(within(None, Some(2)), [(Some(c), Some(c))]);
    // It was there.
    assert_eq!(within(Some(c), None), [(Some(c), Some(c)), (None, Some(NodeKey(10))), (Some(d), Some(d))]);
    let none = Diff::between(&old, &new, Scope { start: Some(NodeKey(99)), max_level: None });
    assert_eq!(none.unwrap_err().kind(), Kind::NotFound);
    let other = desk.db.create("other", Versioning::default()).unwrap();
    assert_eq!(Diff::between(&old, &other.latest(), Scope::default()).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_dropped_revision_is_compared_by_names_and_not_by_what_their_numbers_mean_now() {
    // The number of the path `b` was given to `c` after the truncation: the member seemed to have kept its name.
    let desk = fresh();
    let doc = put(&desk, r#"{"a":1,"z":[true]}"#);
    let rename = |name: &str| {
        let mut edit = doc.edit().unwrap();
        edit.rename(NodeKey(2), name).unwrap();
        edit.commit(&Meta::default()).unwrap()
    };
    let dropped = rename("b");
    doc.truncate(1).unwrap();
    let newest = rename("c");
    for (old, new) in [(&dropped, &newest), (&newest, &dropped), (&at(&doc, 1), &dropped), (&dropped, &at(&doc, 1))] {
        assert_eq!(judge(old, new).differences(), [Difference::Renamed { key: NodeKey(2) }]);
    }
}

/// An array of so many objects, a hundred bytes each.
fn objects(count: u64) -> String {
    let text = "x".repeat(160);
    let object = |number: u64| format!(r#"{{"name":"{text}","count":{}}}"#, 100_000 + number);
    format!("[{}]", (0..count).map(object).collect::<Vec<_>>().join(","))
}

#[test]
fn a_diff_of_neighbours_reads_as_few_pages_of_ten_megabytes_as_of_a_page() {
    let pages = |count: u64, walked: bool| {
        let desk = fresh_with(Config { cache_bytes: 256 << 20, ..Config::default() });
        let doc = put(&desk, &objects(count));
        for number in 0..40 {
            let mut edit = doc.edit().unwrap();
            // The third node of an object, of some objects far apart.
            let field = NodeKey(4 + 3 * (number * 7919 % count));
            edit.set(field, Value::Number("7")).unwrap();
            if number == 39 {
                edit.remove(NodeKey(2 + 3 * (count / 2))).unwrap();
                edit.relocate(NodeKey(2), At::Last(NodeKey(1)), None).unwrap();
            }
            edit.commit(&Meta::default()).unwrap();
        }
        let desk = desk.again();
        let doc = desk.db.document("orders").unwrap();
        let (old, new) = (doc.at(30).unwrap(), doc.at(31).unwrap());
        let before = desk.db.stats().pages;
        let diff = if walked { Diff::walked } else { Diff::between }(&old, &new, Scope::default()).unwrap();
        assert_eq!(diff.differences().len(), 1);
        let read = desk.db.stats().pages - before;
        let far = judge(&doc.at(1).unwrap(), &doc.latest());
        assert!((3..=42).contains(&far.differences().len()), "{}", far.differences().len());
        read
    };
    for walked in [false, true] {
        let (small, large) = (pages(60, walked), pages(50_000, walked));
        println!("walked {walked}: {small} pages of a small document, {large} of a large one");
        // One with its name, and of each revision: three pages down to the field; without the list of the commit two more to what
        // it is in, whose hash has changed.
        assert!(small <= 3 && large <= if walked { 11 } else { 7 }, "{small} and {large} pages");
    }
}

#[test]
fn pointers_to_many_values_are_those_of_each() {
    // Each counted the values before it: of 200,000 that differ 20,000,000,000.
    let desk = fresh();
    let items: Vec<String> = (0..300).map(|number| format!(r#"{{"a/b":[{number},[]]}}"#)).collect();
    let revision = put(&desk, &format!("{{\"list\":[{}],\"~\":0}}", items.join(","))).latest();
    let mut pointers = Pointers::of(&revision);
    let mut next = 1;
    while let Some(item) = revision.find(NodeKey(next)).unwrap() {
        assert_eq!(pointers.to(item.node.key).unwrap(), revision.pointer(item.node.key).unwrap());
        next += 1;
    }
    assert_eq!((next, pointers.to(NodeKey(3 + 4 * 299 + 1)).unwrap().as_str()), (1204, "/list/299/a~1b"));
    assert_eq!(pointers.to(NodeKey(9999)).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_comparison_ends_when_nobody_waits_for_it_any_more() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let list = edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array).unwrap();
    let all: Vec<NodeKey> = (0..5_000).map(|_| edit.insert(At::Last(list), None, Value::Null).unwrap()).collect();
    edit.commit(&Meta::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    for key in all {
        edit.set(key, Value::Bool(true)).unwrap();
    }
    edit.commit(&Meta::default()).unwrap();
    let compare = |turns: u32| {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let is_wanted = Arc::new(move || counted.fetch_add(1, Ordering::Relaxed) < turns);
        let [old, new] = [1, 2].map(|number| doc.at(number).unwrap().while_wanted(is_wanted.clone()));
        let told = Diff::walked(&old, &new, Scope::default()).map(|diff| diff.differences().len());
        (told, asked.load(Ordering::Relaxed))
    };
    let (told, asked) = compare(u32::MAX);
    assert_eq!(told, Ok(5_000));
    assert!(asked > 2 * 5_000 / 256, "asked {asked} times for 20 pages of each");
    for turns in [0, 10, asked - 1] {
        assert_eq!(compare(turns), (Err(DocsError::Unwanted), turns + 1), "{turns}");
    }
    assert_eq!(DocsError::Unwanted.kind(), Kind::Unavailable);
}
