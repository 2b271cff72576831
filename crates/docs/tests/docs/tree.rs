//! A document as a plain tree in memory: read from any revision, and compared.

use std::collections::BTreeMap;

use assent_docs::{At, Edit, Kind, Look, NodeKey, Value};

/// A value with the key of its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    pub key: NodeKey,
    pub name: Option<String>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Object(Vec<Tree>),
    Array(Vec<Tree>),
    String(String),
    Number(String),
    Bool(bool),
    Null,
}

impl Tree {
    pub fn children(&self) -> &[Tree] {
        match &self.what {
            What::Object(children) | What::Array(children) => children,
            _ => &[],
        }
    }

    pub fn children_mut(&mut self) -> Option<&mut Vec<Tree>> {
        match &mut self.what {
            What::Object(children) | What::Array(children) => Some(children),
            _ => None,
        }
    }

    pub fn count(&self) -> u64 {
        self.children().iter().map(|child| 1 + child.count()).sum()
    }

    /// All nodes, this one first.
    pub fn all(&self) -> Vec<&Tree> {
        std::iter::once(self).chain(self.children().iter().flat_map(Tree::all)).collect()
    }

    pub fn find(&mut self, key: NodeKey) -> Option<&mut Tree> {
        if self.key == key {
            return Some(self);
        }
        self.children_mut()?.iter_mut().find_map(|child| child.find(key))
    }

    /// The node that has this one as a child, and which child it is.
    pub fn parent(&mut self, key: NodeKey) -> Option<(&mut Tree, usize)> {
        match self.children().iter().position(|child| child.key == key) {
            Some(at) => Some((self, at)),
            None => self.children_mut()?.iter_mut().find_map(|child| child.parent(key)),
        }
    }

    pub fn value(&self) -> Value<'_> {
        match &self.what {
            What::Object(_) => Value::Object,
            What::Array(_) => Value::Array,
            What::String(text) => Value::String(text),
            What::Number(digits) => Value::Number(digits),
            What::Bool(value) => Value::Bool(*value),
            What::Null => Value::Null,
        }
    }

    /// How many nodes have each path.
    pub fn paths(&self) -> BTreeMap<String, u64> {
        let mut paths = BTreeMap::new();
        self.count_paths("$", &mut paths);
        paths
    }

    fn count_paths(&self, path: &str, paths: &mut BTreeMap<String, u64>) {
        *paths.entry(path.to_owned()).or_default() += 1;
        for child in self.children() {
            let step = child.name.as_ref().map_or("[*]".to_owned(), |name| format!("[{name:?}]"));
            child.count_paths(&format!("{path}{step}"), paths);
        }
    }
}

/// Reads a whole tree, and holds every link and count against what it finds.
pub fn read(look: &impl Look) -> Option<Tree> {
    look.value().map(|value| read_node(look, value, NodeKey::DOCUMENT, None))
}

/// Reads a subtree as [`read`] does.
pub fn read_from(look: &impl Look, key: NodeKey) -> Tree {
    let node = look.item(key).unwrap().node;
    read_node(look, key, node.parent, node.left)
}

fn read_node(look: &impl Look, key: NodeKey, parent: NodeKey, left: Option<NodeKey>) -> Tree {
    let item = look.item(key).unwrap();
    assert_eq!((item.node.parent, item.node.left), (parent, left), "of {key}");
    let name = look.name(&item.node).unwrap().map(|name| name.as_str().to_owned());
    let mut children = Vec::new();
    let (mut next, mut before) = (item.node.first, None);
    while let Some(child) = next {
        children.push(read_node(look, child, key, before));
        (before, next) = (Some(child), look.item(child).unwrap().node.right);
    }
    assert_eq!(item.node.last, before, "the last child of {key}");
    assert_eq!(item.node.children, children.len() as u64, "children of {key}");
    let text = item.text().to_owned();
    let what = match item.node.kind {
        Kind::Object => What::Object(children),
        Kind::Array => What::Array(children),
        Kind::String => What::String(text),
        Kind::Number => What::Number(text),
        Kind::True => What::Bool(true),
        Kind::False => What::Bool(false),
        Kind::Null => What::Null,
    };
    let tree = Tree { key, name, what };
    assert_eq!(item.node.descendants, tree.count(), "below {key}");
    tree
}

/// Puts one value behind all others of a container, and says what came of it.
pub fn push(edit: &mut Edit, parent: NodeKey, name: Option<&str>, value: Value<'_>) -> NodeKey {
    edit.insert(At::Last(parent), name, value).unwrap()
}
