//! The whole disk as a value: cheap to clone, so that a recording keeps one after every operation.
//!
//! Walk: [`State::find`] goes from the root by names · [`Folder`] keeps entries and their changes on the way to the
//! platter · [`State::hash`] says when two disks are the same.
//! Deliberately absent: faults, locks, recordings (`disk`), and the choice of what survives (`survive`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::content::{Content, mix};
use crate::inode::Inode;

pub(crate) type Entries = BTreeMap<Arc<str>, u64>;

/// Contents of deleted files whose blocks may come back; more would only make choices longer.
const FREED_MAX: usize = 2;
const ROOT: u64 = 0;

/// One change of a folder's entries: all of it survives or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) operation: u64,
    pub(crate) what: Vec<(Arc<str>, Option<u64>)>,
}

impl Change {
    pub(crate) fn touches(&self, other: &Change) -> bool {
        self.what.iter().any(|(name, _)| other.what.iter().any(|(other, _)| other == name))
    }

    pub(crate) fn apply(&self, entries: &mut Entries) {
        for (name, node) in &self.what {
            match node {
                Some(node) => _ = entries.insert(name.clone(), *node),
                None => _ = entries.remove(name),
            }
        }
    }
}

/// A folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder {
    pub(crate) seen: Entries,
    pub(crate) durable: Entries,
    pub(crate) changes: Vec<Change>,
}

impl Folder {
    fn change(&mut self, operation: u64, what: Vec<(Arc<str>, Option<u64>)>) {
        let change = Change { operation, what };
        change.apply(&mut self.seen);
        self.changes.push(change);
    }
}

/// All files and folders.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<u64, Arc<Inode>>,
    pub(crate) folders: BTreeMap<u64, Arc<Folder>>,
    /// What deleted files held, the latest first.
    pub(crate) freed: Vec<Content>,
    next_node: u64,
    operation: u64,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: u64,
    pub(crate) name: Arc<str>,
    pub(crate) node: Option<u64>,
}

impl State {
    pub(crate) fn new() -> Self {
        let folders = BTreeMap::from([(ROOT, Arc::default())]);
        State { files: BTreeMap::new(), folders, freed: Vec::new(), next_node: ROOT + 1, operation: 0 }
    }

    /// Numbers the operation that begins.
    pub(crate) fn begin(&mut self) -> u64 {
        self.operation += 1;
        self.operation
    }

    /// The folder, by its path.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<u64> {
        let mut folder = ROOT;
        for name in names(path)? {
            let node = self.folders.get(&folder).and_then(|folder| folder.seen.get(name)).copied();
            folder = node.ok_or(io::ErrorKind::NotFound)?;
            if !self.folders.contains_key(&folder) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(folder)
    }

    /// The place of a name that may be there or not; its folder must be.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Place> {
        let names = names(path)?;
        let Some(name) = names.last() else { return Err(io::ErrorKind::IsADirectory.into()) };
        let folder = self.folder(path.parent().unwrap_or(Path::new("")))?;
        let node = self.folders.get(&folder).and_then(|folder| folder.seen.get(*name)).copied();
        Ok(Place { folder, name: Arc::from(*name), node })
    }

    pub(crate) fn add_file(&mut self, place: &Place) -> u64 {
        let node = self.add(place);
        self.files.insert(node, Arc::default());
        node
    }

    pub(crate) fn add_folder(&mut self, place: &Place) {
        let node = self.add(place);
        self.folders.insert(node, Arc::default());
    }

    fn add(&mut self, place: &Place) -> u64 {
        let node = self.next_node;
        self.next_node += 1;
        self.change(place.folder, vec![(place.name.clone(), Some(node))]);
        node
    }

    pub(crate) fn change(&mut self, folder: u64, what: Vec<(Arc<str>, Option<u64>)>) {
        let operation = self.operation;
        if let Some(folder) = self.folders.get_mut(&folder) {
            Arc::make_mut(folder).change(operation, what);
        }
    }

    pub(crate) fn file_mut(&mut self, node: u64) -> io::Result<&mut Inode> {
        self.files.get_mut(&node).map(Arc::make_mut).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// A folder's sync. Files that no durable entry and no pending change leads to any more give their blocks back.
    pub(crate) fn settle_folder(&mut self, node: u64) {
        let Some(folder) = self.folders.get_mut(&node) else { return };
        let folder = Arc::make_mut(folder);
        folder.durable.clone_from(&folder.seen);
        folder.changes.clear();
        let lost = |(node, file): (&u64, &Arc<Inode>)| (!file.freed && !self.is_linked(*node)).then_some(*node);
        let lost: Vec<u64> = self.files.iter().filter_map(lost).collect();
        for node in lost {
            // The file itself stays: an open handle goes on reading it.
            let Some(file) = self.files.get_mut(&node).map(Arc::make_mut) else { continue };
            file.freed = true;
            let content = file.durable.clone();
            self.free(content);
        }
    }

    fn is_linked(&self, node: u64) -> bool {
        self.folders.values().any(|folder| {
            let changed = folder.changes.iter().flat_map(|change| &change.what).filter_map(|(_, node)| node.as_ref());
            folder.seen.values().chain(folder.durable.values()).chain(changed).any(|linked| *linked == node)
        })
    }

    /// Blocks that may come back, under another file, with these bytes in them.
    pub(crate) fn free(&mut self, content: Content) {
        if !content.is_empty() {
            let hash = content.hash();
            self.freed.retain(|freed| freed.hash() != hash);
            self.freed.insert(0, content);
            self.freed.truncate(FREED_MAX);
        }
    }

    /// A disk that holds this durably, built from its root.
    pub(crate) fn with(&self, files: BTreeMap<u64, Arc<Inode>>, folders: BTreeMap<u64, Arc<Folder>>) -> State {
        State { files, folders, freed: self.freed.clone(), next_node: self.next_node, operation: self.operation }
    }

    /// What a reader can see, as one number.
    pub(crate) fn hash(&self) -> u64 {
        self.hash_folder(ROOT, 1)
    }

    fn hash_folder(&self, folder: u64, path: u64) -> u64 {
        let Some(folder) = self.folders.get(&folder) else { return 0 };
        folder.seen.iter().fold(mix(path, 2), |sum, (name, node)| {
            let path = xxh3_64_with_seed(name.as_bytes(), path);
            sum.wrapping_add(match self.files.get(node) {
                Some(file) => mix(path ^ file.seen.hash().rotate_left(17), file.seen_bytes),
                None => self.hash_folder(*node, path),
            })
        })
    }

    /// What a person calls a file or folder: a name that leads there or did.
    pub(crate) fn name(&self, node: u64) -> String {
        let mut names = self.folders.values().flat_map(|folder| {
            let changed = folder.changes.iter().rev().flat_map(|change| &change.what);
            let changed = changed.filter_map(|(name, node)| node.map(|node| (name, node)));
            folder.seen.iter().chain(&folder.durable).map(|(name, node)| (name, *node)).chain(changed)
        });
        match names.find(|(_, found)| *found == node) {
            Some((name, _)) => format!("{name} (node {node})"),
            None => format!("node {node}"),
        }
    }

    pub(crate) const fn root() -> u64 {
        ROOT
    }
}

/// The names on the way, from the root. A simulated disk has one root, whether a path begins with a slash or not.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(io::ErrorKind::InvalidInput)?),
            Component::ParentDir | Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}
