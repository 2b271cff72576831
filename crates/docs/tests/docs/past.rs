//! What a node, or a path, was in all revisions: against a walk over each of them.

use assent_docs::{At, Look, Meta, NodeKey, Revision, Run, Value, Versioning};
use assent_kind::Kind;
use assent_sim::Rng;

use super::{fresh, tree};

/// Runs as a walk over every revision finds them.
fn walked<T: PartialEq>(
    revisions: &[Revision],
    state: impl Fn(&Revision) -> Option<(NodeKey, T)>,
) -> Vec<(u32, u32, Option<NodeKey>)> {
    let mut runs: Vec<(u32, u32, Option<NodeKey>)> = Vec::new();
    let mut last = None;
    for revision in revisions.iter().rev() {
        let state = state(revision);
        match runs.last_mut() {
            Some(run) if last.as_ref() == Some(&state) => run.0 = revision.number(),
            _ => runs.push((revision.number(), revision.number(), state.as_ref().map(|(key, _)| *key))),
        }
        last = Some(state);
    }
    runs
}

fn told(runs: &[Run]) -> Vec<(u32, u32, Option<NodeKey>)> {
    let told = |run: &Run| (*run.revisions.start(), *run.revisions.end(), run.node.map(|(key, _)| key));
    runs.iter().map(told).collect()
}

#[test]
fn runs_are_those_that_a_walk_over_all_revisions_finds() {
    for seed in 0..8 {
        let desk = fresh();
        let doc = desk.db.create("orders", Versioning::default()).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..40 {
            let mut edit = doc.edit().unwrap();
            let Some(root) = edit.value() else {
                let json = br#"{"a":[1,2,{"b":3}],"c":4}"#.as_slice();
                edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json).unwrap();
                edit.commit(&Meta::default()).unwrap();
                continue;
            };
            let at = |edit: &assent_docs::Edit, pointer: &str| edit.at_pointer(pointer).unwrap();
            let digits = rng.below(4).to_string();
            match (rng.below(10), at(&edit, "/c"), at(&edit, "/a")) {
                (0, Some(c), _) => edit.remove(c).unwrap(),
                (1, None, _) => _ = edit.insert(At::Last(root), Some("c"), Value::Number(&digits)).unwrap(),
                (2, _, Some(a)) => _ = edit.insert(At::First(a), None, Value::Number(&digits)).unwrap(),
                (3, _, _) => {
                    let to = u32::try_from(rng.below(u64::from(doc.latest().number()) + 1)).unwrap();
                    edit.revert(&doc.at(to).unwrap()).unwrap();
                }
                (4, Some(c), _) => edit.rename(c, "d").unwrap_or_default(),
                (5, _, Some(_)) if at(&edit, "/a/0").is_some() => edit.remove(at(&edit, "/a/0").unwrap()).unwrap(),
                (_, Some(c), _) => edit.set(c, Value::Number(&digits)).unwrap(),
                _ => {
                    if let Some(b) = at(&edit, "/a/2/b") {
                        edit.set(b, Value::Number(&digits)).unwrap();
                    }
                }
            }
            edit.commit(&Meta::default()).unwrap();
        }
        let newest = doc.latest().number();
        let all: Vec<Revision> = (0..=newest).map(|revision| doc.at(revision).unwrap()).collect();
        for pointer in ["", "/a", "/a/0", "/a/2/b", "/c", "/d", "/none"] {
            let state = |revision: &Revision| {
                let key = revision.at_pointer(pointer).unwrap()?;
                Some((key, (tree::read_from(revision, key), revision.item(key).unwrap().node.parent)))
            };
            let expected = walked(&all, state);
            let runs = doc.path_runs(pointer, 0..=u32::MAX, 1000).unwrap();
            assert_eq!(told(&runs), expected, "{pointer:?}, seed {seed}");
            for run in &runs {
                let first = &all[*run.revisions.start() as usize];
                assert_eq!(run.time_ms, first.time_ms());
            }
            assert_eq!(told(&doc.path_runs(pointer, 0..=u32::MAX, 2).unwrap()), expected[..expected.len().min(2)]);
            let some = &all[5..=9];
            assert_eq!(told(&doc.path_runs(pointer, 5..=9, 1000).unwrap()), walked(some, state), "{pointer:?}");
        }
        for key in 1..12 {
            let key = NodeKey(key);
            let state = |revision: &Revision| {
                let item = revision.find(key).unwrap()?;
                Some((key, (tree::read_from(revision, key), item.node.parent)))
            };
            assert_eq!(told(&doc.node_runs(key, 0..=newest, 1000).unwrap()), walked(&all, state), "{key}, seed {seed}");
        }
    }
}

#[test]
fn a_walk_over_many_revisions_goes_page_by_page_and_ends_where_there_is_nothing() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    assert_eq!(told(&doc.path_runs("", 0..=9, 9).unwrap()), [(0, 0, None)]);
    let mut edit = doc.edit().unwrap();
    let leaf = edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Number("0")).unwrap();
    edit.commit(&Meta::default()).unwrap();
    for number in 2..=600 {
        let mut edit = doc.edit().unwrap();
        edit.set(leaf, Value::Number(&(number / 200).to_string())).unwrap();
        edit.commit(&Meta::default()).unwrap();
    }
    // What changes nothing is no revision.
    assert_eq!(doc.latest().number(), 4);
    assert_eq!(told(&doc.node_runs(leaf, 1..=4, 9).unwrap()).len(), 4);
    for number in 0..600 {
        let mut edit = doc.edit().unwrap();
        edit.set(leaf, Value::Number(&(10 + number % 2).to_string())).unwrap();
        edit.commit(&Meta::default()).unwrap();
    }
    assert_eq!(told(&doc.node_runs(leaf, 0..=u32::MAX, 9999).unwrap()).len(), 605);
    assert_eq!(doc.path_runs("a", 0..=4, 9).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(doc.node_runs(leaf, 9000..=9001, 9).unwrap(), []);
}

#[test]
fn a_walk_ends_when_nobody_waits_for_it_any_more() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    for _ in 0..600 {
        let mut edit = doc.edit().unwrap();
        match edit.value() {
            None => _ = edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array).unwrap(),
            Some(value) => _ = edit.insert(At::Last(value), None, Value::Null).unwrap(),
        }
        edit.commit(&Meta::default()).unwrap();
    }
    let walk = |turns: u32| {
        let mut asked = 0;
        let go_on = || {
            asked += 1;
            asked <= turns
        };
        (doc.node_runs_while(NodeKey(1), 1..=600, usize::MAX, go_on).unwrap().map(|runs| runs.len()), asked)
    };
    assert_eq!([walk(0), walk(2), walk(3)], [(None, 1), (None, 3), (Some(600), 3)]);
}

#[test]
fn a_history_is_what_was_committed_looked_up_or_kept_and_behind_a_truncation_too() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let (mut said, mut rng) = (Vec::new(), Rng::new(6));
    for (left, round) in [(0, "first"), (200, "second"), (128, "third"), (127, "fourth")] {
        doc.truncate(u32::try_from(left).unwrap()).unwrap();
        said.truncate(left);
        // A page of it is whole with its last revision.
        while said.len() < 385 {
            said.push(format!("{round} {}", said.len()));
            let mut edit = doc.edit().unwrap();
            let at = edit.value().unwrap_or(NodeKey::DOCUMENT);
            edit.insert(At::Last(at), None, if at == NodeKey::DOCUMENT { Value::Array } else { Value::Null }).unwrap();
            edit.commit(&super::says(said.last().unwrap())).unwrap();
            if said.len() % 128 < 2 {
                assert_eq!(doc.history(0..=u32::MAX, usize::MAX).unwrap().len(), said.len());
            }
        }
        for _ in 0..200 {
            let mut below = |end: u64| u32::try_from(rng.below(end)).unwrap();
            let (from, to, limit) = (below(400), below(500), [1, 7, 100, 128, 1000][below(5) as usize]);
            let told = doc.history(from..=to, limit).unwrap();
            let told: Vec<_> = told.into_iter().map(|told| (told.revision, told.message)).collect();
            let expected = (from.max(1)..=to.min(385)).rev().take(limit);
            let expected: Vec<_> = expected.map(|revision| (revision, said[revision as usize - 1].clone())).collect();
            assert_eq!(told, expected, "{from} to {to}, {limit} of them, {round}");
        }
    }
}
