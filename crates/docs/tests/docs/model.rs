//! Random edits against a plain tree: every revision, whatever the strategy, also after reopening and with little memory.

use assent_docs::{At, Config, Edit, Look, Meta, NodeKey, Revision, Value, Versioning};
use assent_sim::Rng;

use super::tree::{Tree, What, read, read_from};
use super::{Desk, fresh_with};

/// What is in the document, and what is done to it.
pub struct Model {
    pub rng: Rng,
    pub tree: Option<Tree>,
    pub texts: u64,
    /// No node gets the key that another has had.
    pub key: NodeKey,
}

impl Model {
    fn what(&mut self) -> What {
        self.texts += 1;
        match self.rng.below(9) {
            0 | 1 => What::Object(Vec::new()),
            2 | 3 => What::Array(Vec::new()),
            4 => What::String("long ".repeat(self.rng.index(400))),
            5 => What::String(format!("\"\u{1f600}\n{}", self.texts)),
            6 => What::Number(format!("-{}.50e+7", self.texts)),
            7 => What::Bool(self.rng.below(2) == 0),
            _ => What::Null,
        }
    }

    fn some_node(&mut self) -> Option<NodeKey> {
        let all: Vec<NodeKey> = self.tree.as_ref()?.all().iter().map(|node| node.key).collect();
        Some(all[self.rng.index(all.len())])
    }

    fn insert(&mut self, edit: &mut Edit) {
        let what = self.what();
        let mut new = Tree { key: NodeKey(0), name: None, what };
        let Some(at) = self.some_node() else {
            new.key = edit.insert(At::Last(NodeKey::DOCUMENT), None, new.value()).unwrap();
            self.tree = Some(new);
            return;
        };
        let tree = self.tree.as_mut().unwrap();
        let into = tree.find(at).unwrap().children().len();
        let is_container = tree.find(at).unwrap().children_mut().is_some();
        let (place, parent, index) = match self.rng.below(4) {
            0 if is_container => (At::First(at), at, 0),
            1 if is_container => (At::Last(at), at, into),
            which => {
                let Some((parent, index)) = tree.parent(at) else { return };
                let parent = parent.key;
                if which % 2 == 0 { (At::Before(at), parent, index) } else { (At::After(at), parent, index + 1) }
            }
        };
        let parent = tree.find(parent).unwrap();
        if matches!(parent.what, What::Object(_)) {
            // Few names, so that paths are shared and come again.
            let name = format!("name {}", self.rng.below(12));
            if parent.children().iter().any(|child| child.name.as_deref() == Some(&name)) {
                assert!(edit.insert(place, Some(&name), new.value()).is_err());
                return;
            }
            new.name = Some(name);
        }
        new.key = edit.insert(place, new.name.as_deref(), new.value()).unwrap();
        assert!(new.key > self.key, "{} after {}", new.key, self.key);
        self.key = new.key;
        parent.children_mut().unwrap().insert(index, new);
    }

    fn set(&mut self, edit: &mut Edit) {
        let Some(key) = self.some_node() else { return };
        let what = self.what();
        let node = self.tree.as_mut().unwrap().find(key).unwrap();
        let is_leaf = |what: &What| !matches!(what, What::Object(_) | What::Array(_));
        if is_leaf(&what) && is_leaf(&node.what) {
            node.what = what;
            edit.set(key, node.value()).unwrap();
        }
    }

    fn rename(&mut self, edit: &mut Edit) {
        let Some(key) = self.some_node() else { return };
        let name = format!("name {}", self.rng.below(20));
        let tree = self.tree.as_mut().unwrap();
        let siblings = tree.parent(key).filter(|(parent, _)| matches!(parent.what, What::Object(_)));
        let taken = |tree: &Tree| tree.name.as_ref() == Some(&name) && tree.key != key;
        match siblings {
            Some((parent, at)) if !parent.children().iter().any(taken) => {
                edit.rename(key, &name).unwrap();
                parent.children_mut().unwrap()[at].name = Some(name);
            }
            _ => assert!(edit.rename(key, &name).is_err()),
        }
    }

    fn relocate(&mut self, edit: &mut Edit) {
        let (Some(key), Some(to)) = (self.some_node(), self.some_node()) else { return };
        let tree = self.tree.as_mut().unwrap();
        let moved = tree.find(key).unwrap().clone();
        let is_inside = moved.all().iter().any(|node| node.key == to);
        let object = |tree: &Tree| matches!(tree.what, What::Object(_));
        let which = self.rng.below(4);
        let parent = if which < 2 { Some(to) } else { tree.parent(to).map(|(parent, _)| parent.key) };
        let at = [At::First(to), At::Last(to), At::Before(to), At::After(to)][which as usize];
        let Some(parent) = parent.filter(|_| !is_inside) else {
            assert!(edit.relocate(key, at, None).is_err());
            return;
        };
        let into = tree.find(parent).unwrap();
        let name = object(into).then(|| format!("name {}", self.texts % 25));
        let taken = |tree: &Tree| tree.name == name && tree.key != key;
        if into.children_mut().is_none() || (name.is_some() && into.children().iter().any(taken)) {
            assert!(edit.relocate(key, at, name.as_deref()).is_err());
            return;
        }
        edit.relocate(key, at, name.as_deref()).unwrap();
        let (old, index) = tree.parent(key).unwrap();
        old.children_mut().unwrap().remove(index);
        let children = tree.find(parent).unwrap().children_mut().unwrap();
        let index = match which {
            0 => 0,
            1 => children.len(),
            which => children.iter().position(|child| child.key == to).unwrap() + usize::from(which == 3),
        };
        children.insert(index, Tree { name, ..moved });
    }

    /// Copies a node of some revision to the end of the first array that there is.
    fn copy(&mut self, edit: &mut Edit, from: &Revision) {
        let Some(source) = read(from) else { return };
        let all = source.all();
        let source = all[self.rng.index(all.len())];
        let Some(tree) = self.tree.as_mut() else { return };
        let arrays = tree.all();
        let Some(array) = arrays.iter().find(|node| matches!(node.what, What::Array(_))).map(|node| node.key) else {
            return;
        };
        if source.count() > 30 {
            return;
        }
        let key = edit.insert_copy(At::Last(array), None, from, source.key).unwrap();
        let copied = read_from(edit, key);
        assert_eq!(stripped(&copied), stripped(&Tree { name: None, ..source.clone() }));
        tree.find(array).unwrap().children_mut().unwrap().push(copied);
    }

    fn replace(&mut self, edit: &mut Edit) {
        let leaf = self.some_node().filter(|key| self.tree.as_mut().unwrap().find(*key).unwrap().count() < 3);
        let Some(key) = leaf else { return };
        assert!(edit.replace(key, br#"{"a":1,"a":2}"#.as_slice()).is_err(), "and nothing has changed");
        let new = edit.replace(key, br#"{"a":[1.50,"x"],"name 1":{}}"#.as_slice()).unwrap();
        let node = self.tree.as_mut().unwrap().find(key).unwrap();
        let name = node.name.take();
        *node = Tree { name, ..read_from(edit, new) };
        assert_eq!(node.count(), 4);
    }

    fn remove(&mut self, edit: &mut Edit) {
        let Some(key) = self.some_node() else { return };
        let tree = self.tree.as_mut().unwrap();
        edit.remove(key).unwrap();
        match tree.parent(key) {
            Some((parent, at)) => _ = parent.children_mut().unwrap().remove(at),
            None => self.tree = None,
        }
    }

    pub fn step(&mut self, edit: &mut Edit, before: &Revision) {
        match self.rng.below(28) {
            0..12 => self.insert(edit),
            20 | 21 => self.rename(edit),
            22 | 23 => self.relocate(edit),
            24 => self.copy(edit, before),
            25 => self.replace(edit),
            12..18 => self.set(edit),
            18 if self.rng.below(8) == 0 => self.remove(edit),
            // A small one only, so that documents grow.
            _ => {
                let leaf = self.some_node().filter(|key| self.tree.as_mut().unwrap().find(*key).unwrap().count() < 3);
                if leaf.is_some() {
                    self.remove(edit);
                }
            }
        }
    }
}

/// A tree without keys.
fn stripped(tree: &Tree) -> Tree {
    let mut tree = Tree { key: NodeKey(0), ..tree.clone() };
    if let Some(children) = tree.children_mut() {
        children.iter_mut().for_each(|child| *child = stripped(child));
    }
    tree
}

fn compare(revision: &Revision, tree: Option<&Tree>) {
    assert_eq!(read(revision).as_ref(), tree, "revision {}", revision.number());
    assert_eq!(revision.verify().unwrap(), tree.map_or(0, |tree| 1 + tree.count()));
    let paths = revision.paths().unwrap().into_iter().map(|path| (path.path, path.references)).collect();
    assert_eq!(tree.map(Tree::paths).unwrap_or_default(), paths, "revision {}", revision.number());
}

fn play(versioning: Versioning, seed: u64, config: Config) {
    println!("{versioning:?}, seed {seed}");
    let mut desk: Desk = fresh_with(config);
    desk.db.create("model", versioning).unwrap();
    let mut model = Model { rng: Rng::new(seed), tree: None, texts: 0, key: NodeKey(0) };
    let mut kept = vec![None];
    for _ in 0..70 {
        let doc = desk.db.document("model").unwrap();
        if model.rng.below(12) == 0 {
            let to = kept.len() - 1 - model.rng.index(kept.len().min(4));
            kept.truncate(to + 1);
            model.tree = kept[to].clone();
            let newest = doc.truncate(u32::try_from(to).unwrap()).unwrap();
            assert_eq!((newest.number(), doc.latest().number()), (to as u32, to as u32));
            compare(&newest, model.tree.as_ref());
        }
        let newest = doc.latest().number();
        let before_it = doc.at(newest - newest.min(3)).unwrap();
        let mut edit = doc.edit().unwrap();
        let before = (model.tree.clone(), model.texts, model.key);
        if model.rng.below(8) == 0 {
            let to = model.rng.index(kept.len());
            edit.revert(&doc.at(u32::try_from(to).unwrap()).unwrap()).unwrap();
            model.tree = kept[to].clone();
        }
        for _ in 0..=model.rng.below(30) {
            model.step(&mut edit, &before_it);
        }
        assert_eq!(read(&edit), model.tree, "before the commit");
        if model.rng.below(8) == 0 {
            drop(edit);
            (model.tree, model.texts, model.key) = before;
            continue;
        }
        let revision = edit.commit(&Meta::default()).unwrap();
        if revision.number() as usize == kept.len() {
            kept.push(model.tree.clone());
        }
        assert_eq!(revision.number() as usize + 1, kept.len());
        compare(&revision, model.tree.as_ref());
        if model.rng.below(10) == 0 {
            desk.db.checkpoint().unwrap();
        }
        if model.rng.below(10) == 0 {
            desk = desk.again();
        }
    }
    let doc = desk.db.document("model").unwrap();
    assert_eq!(doc.verify().unwrap() as usize + 1, kept.len());
    for (revision, tree) in kept.iter().enumerate() {
        compare(&doc.at(u32::try_from(revision).unwrap()).unwrap(), tree.as_ref());
    }
    assert!(kept.iter().flatten().map(Tree::count).max() > Some(50), "the documents were small");
}

#[test]
fn every_revision_is_what_a_plain_tree_says() {
    let strategies = [
        Versioning::Full,
        Versioning::Incremental { window: 4 },
        Versioning::Differential,
        Versioning::SlidingSnapshot { window: 1 },
        Versioning::SlidingSnapshot { window: 3 },
        Versioning::SlidingSnapshot { window: 16 },
    ];
    for (seed, versioning) in (1..).zip(strategies) {
        play(versioning, seed, Config { cache_bytes: 32 << 10, ..Config::default() });
    }
}

#[test]
fn an_edit_that_is_laid_piece_by_piece_is_what_a_plain_tree_says() {
    for seed in 100..104 {
        play(Versioning::default(), seed, Config { edit_nodes_max: 5, cache_bytes: 0, ..Config::default() });
    }
}

#[test]
fn a_document_of_many_pages_is_read_back_and_changed_anywhere() {
    const NODES: u64 = 70_000;
    let mut desk = fresh_with(Config { edit_nodes_max: 3000, ..Config::default() });
    let doc = desk.db.create("large", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array).unwrap();
    for number in 2..NODES {
        edit.insert(At::Last(root), None, Value::Number(&number.to_string())).unwrap();
    }
    assert_eq!(edit.commit(&Meta::default()).unwrap().changes(), None, "too many to list");
    for (count, key) in [5_u64, 255, 300, 40_000, 69_999].into_iter().enumerate() {
        desk = desk.again();
        let doc = desk.db.document("large").unwrap();
        let mut edit = doc.edit().unwrap();
        edit.set(NodeKey(key), Value::Number("0.0")).unwrap();
        let revision = edit.commit(&Meta::default()).unwrap();
        assert_eq!(revision.changes().map(<[_]>::len), Some(1));
        for (number, expected) in [(key, "0.0".to_owned()), (key - 1, (key - 1).to_string())] {
            assert_eq!(revision.item(NodeKey(number)).unwrap().text(), expected);
        }
        let before = doc.at(count as u32 + 1).unwrap();
        assert_eq!(before.item(NodeKey(key)).unwrap().text(), key.to_string());
        assert_eq!(revision.verify().unwrap(), NODES - 1);
    }

    // Many small fragments of one commit: some stand in it and some before it, and all that lead to them lead there.
    desk = desk.again();
    let doc = desk.db.document("large").unwrap();
    let mut edit = doc.edit().unwrap();
    let many: Vec<u64> = (2..NODES).step_by(200).collect();
    many.iter().for_each(|key| edit.set(NodeKey(*key), Value::Number("7e7")).unwrap());
    edit.commit(&Meta::default()).unwrap();
    let desk = desk.again();
    let revision = desk.db.document("large").unwrap().latest();
    for key in many {
        assert_eq!(revision.item(NodeKey(key)).unwrap().text(), "7e7");
    }
    assert_eq!(revision.verify().unwrap(), NODES - 1);
}
