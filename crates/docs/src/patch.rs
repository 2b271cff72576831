//! JSON Patch (RFC 6902): operations, one after the other, all of them or none.
//!
//! Walk: [`Edit::patch`] reads the operations, then makes them over the stored form: what a patch does not name keeps its node, a
//! leaf that becomes another leaf and what is moved keep their keys.
//! Deliberately absent: patches that are larger than memory.

mod ways;

use assent_kind::Kind as Class;

use self::ways::Ways;
use crate::edit::{At, Edit};
use crate::entry::What;
use crate::flat::{BYTES_MAX, Flat, Numbers};
use crate::link::Hook;
use crate::look::{Item, Look, Text};
use crate::node::{Kind, Node, NodeKey, field};
use crate::pointer::{Pointer, index};
use crate::serialise::Form;
use crate::{DocsError, error::within};

/// What an operation does.
enum Op {
    Add(Pointer, usize),
    Remove(Pointer),
    Replace(Pointer, usize),
    Move { from: Pointer, path: Pointer },
    Copy { from: Pointer, path: Pointer },
    Test(Pointer, usize),
}

/// A place where nothing is: under a name, or in an array with so many before it.
struct New {
    at: At,
    parent: NodeKey,
    name: Option<String>,
    index: u64,
}

/// Where something is to be put: beside what is there, or in the place of something.
enum Spot {
    New(New),
    Instead(Item),
    /// The document has no value.
    Empty,
}

/// Why an operation does not fit what is there.
type Unfit = String;

impl Edit {
    /// The most bytes that the text of a patch has, and of a merge patch.
    pub const PATCH_BYTES_MAX: u64 = BYTES_MAX;

    /// Makes the operations of a JSON Patch, all or none.
    ///
    /// # Errors
    /// [`DocsError::Json`], [`DocsError::Patch`] for what is no patch; [`DocsError::Unpatched`] naming the operation that does not fit
    /// the document, whose test fails, or with which the copies or the nodes looked at are more than a patch may have; [`DocsError::Size`], also
    /// beyond [`Edit::PATCH_BYTES_MAX`]. Nothing has changed then.
    pub fn patch(&mut self, patch: &[u8]) -> Result<(), DocsError> {
        self.patch_within(patch, &mut Ways::new())
    }

    pub(crate) fn patch_within(&mut self, patch: &[u8], ways: &mut Ways) -> Result<(), DocsError> {
        let patch = Flat::of(patch, self.store.config.depth_max)?;
        if patch.kind(Flat::TOP) != Kind::Array {
            return Err(DocsError::Patch { operation: 0, what: "a patch is an array of operations".to_owned() });
        }
        // What is no patch is refused before any of it is made.
        let ops = patch
            .children(Flat::TOP)
            .enumerate()
            .map(|(number, at)| read_op(&patch, at).map_err(|what| DocsError::Patch { operation: number, what }));
        let ops = ops.collect::<Result<Vec<_>, _>>()?;
        self.all_or_nothing(|edit| {
            for (number, (at, op)) in patch.children(Flat::TOP).zip(&ops).enumerate() {
                let failed = |kind, why| {
                    let of = |name| patch.member(at, name).map_or("", |at| patch.text(at)).to_owned();
                    DocsError::Unpatched { operation: number, op: of("op"), pointer: of("path"), why, kind }
                };
                match edit.operate(&patch, ways, op) {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return Err(failed(Class::Conflict, why)),
                    Err(error) if error.kind() == Class::Invalid => {
                        return Err(failed(Class::Invalid, error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    fn operate(&mut self, patch: &Flat, ways: &mut Ways, op: &Op) -> Result<Result<(), Unfit>, DocsError> {
        match op {
            Op::Add(path, value) => match self.spot(ways, path)? {
                Ok(spot) => self.put(ways, spot, patch, *value).map(Ok),
                Err(unfit) => Ok(Err(unfit)),
            },
            Op::Replace(path, value) => match ways.find(self, path)? {
                Some(item) => self.put(ways, Spot::Instead(item), patch, *value).map(Ok),
                None => Ok(Err(nothing())),
            },
            Op::Remove(path) => match ways.find(self, path)? {
                Some(Item { node, .. }) => {
                    let name = self.name(&node)?;
                    self.remove(node.key)?;
                    ways.went(&node, name.as_ref().map(Text::as_str));
                    Ok(Ok(()))
                }
                None => Ok(Err(nothing())),
            },
            Op::Test(path, value) => match ways.find(self, path)? {
                Some(item) if patch.is_same(*value, &*self, item.node.key, Numbers::ByValue)? => Ok(Ok(())),
                Some(_) => Ok(Err("the value there is another one".to_owned())),
                None => Ok(Err(nothing())),
            },
            Op::Move { from, path } => self.whole(|edit| edit.move_along(ways, from, path)),
            Op::Copy { from, path } => {
                let Some(Item { node, .. }) = ways.find(self, from)? else { return Ok(Err(nothing_from())) };
                let form = Form { start: Some(node.key), ..Form::default() };
                let text = ways.copy(node.descendants.saturating_add(1), |out| form.write(&*self, out))?;
                let copy = Flat::of(&text, self.store.config.depth_max)?;
                match self.spot(ways, path)? {
                    Ok(spot) => self.put(ways, spot, &copy, Flat::TOP).map(Ok),
                    Err(unfit) => Ok(Err(unfit)),
                }
            }
        }
    }

    /// Where "add" puts something.
    fn spot(&self, ways: &mut Ways, path: &Pointer) -> Result<Result<Spot, Unfit>, DocsError> {
        let Some((above, step)) = path.clone().split() else {
            return Ok(Ok(match self.value() {
                Some(value) => Spot::Instead(self.item(value)?),
                None => Spot::Empty,
            }));
        };
        let Some(Item { node, .. }) = ways.find(self, &above)? else {
            return Ok(Err("there is nothing to put it into".to_owned()));
        };
        let parent = node.key;
        let new = |at, name, index| Spot::New(New { at, parent, name, index });
        let spot = match node.kind {
            Kind::Object => match ways.member(self, &node, &step)? {
                Some(member) => Spot::Instead(member),
                None => new(At::Last(parent), Some(step), 0),
            },
            Kind::Array if step == "-" => new(At::Last(parent), None, node.children),
            Kind::Array => match index(&step) {
                Some(index) if index == node.children => new(At::Last(parent), None, index),
                Some(index) if index < node.children => match ways.nth(self, &node, index)? {
                    Some(sibling) => new(At::Before(sibling.node.key), None, index),
                    None => return Ok(Err(nothing())),
                },
                _ => return Ok(Err(format!("an array of {} values has no place {step:?}", node.children))),
            },
            kind => return Ok(Err(format!("a {} has nothing in it", kind.name()))),
        };
        Ok(Ok(spot))
    }

    /// Puts a value somewhere. A leaf that becomes another leaf keeps its key, and what says the same stays what it is.
    fn put(&mut self, ways: &mut Ways, spot: Spot, flat: &Flat, at: usize) -> Result<(), DocsError> {
        match spot {
            Spot::Empty => {
                self.insert_built(At::Last(NodeKey::DOCUMENT), None, |build| flat.fill(build, None, at)).map(drop)
            }
            // What may be there was looked for.
            Spot::New(New { at: place, parent, name, index }) => {
                let key = self.insert_new(place, |build| flat.fill(build, name.as_deref(), at))?;
                ways.came(parent, name.as_deref(), index, key);
                Ok(())
            }
            Spot::Instead(item) => {
                let (node, name) = (item.node, self.name(&item.node)?);
                let new = self.replace_item(item, name.as_ref(), flat, at)?;
                ways.became(&node, name.as_ref().map(Text::as_str), new);
                Ok(())
            }
        }
    }

    /// A value in a node's place, under its name; its key is then that.
    pub(crate) fn replace_with(&mut self, key: NodeKey, flat: &Flat, at: usize) -> Result<NodeKey, DocsError> {
        let item = self.item(key)?;
        let name = self.name(&item.node)?;
        self.replace_item(item, name.as_ref(), flat, at)
    }

    /// The same of one that was just looked at.
    fn replace_item(&mut self, item: Item, name: Option<&Text>, flat: &Flat, at: usize) -> Result<NodeKey, DocsError> {
        let key = item.node.key;
        if !item.node.kind.is_container() && !flat.kind(at).is_container() {
            return self.set_item(item, name, flat.value(at)).map(|()| key);
        }
        if flat.is_same(at, &*self, key, Numbers::ByDigits)? {
            return Ok(key);
        }
        self.replace_built(key, |build, name| flat.fill(build, name, at))
    }

    /// Takes a value off its place, and then looks where the new one is: places in an array have moved up by then.
    fn move_along(&mut self, ways: &mut Ways, from: &Pointer, path: &Pointer) -> Result<Result<(), Unfit>, DocsError> {
        if path.is_within(from) {
            return Ok(Err("a value cannot be put into itself".to_owned()));
        }
        let Some(item) = ways.find(self, from)? else { return Ok(Err(nothing_from())) };
        if from == path {
            return Ok(Ok(()));
        }
        let (node, name) = (item.node, self.name(&item.node)?);
        let key = node.key;
        // All of it is walked over: how deep it is, and on which paths its nodes are.
        ways.step(node.descendants)?;
        let levels = self.levels_below(key)?;
        self.unlink(&item)?;
        ways.went(&node, name.as_ref().map(Text::as_str));
        let (hook, name, index) = match self.spot(ways, path)? {
            Err(unfit) => return Ok(Err(unfit)),
            Ok(Spot::New(New { at, name, index, .. })) => (self.place(at)?, name, Some(index)),
            Ok(Spot::Empty) => (self.place(At::Last(NodeKey::DOCUMENT))?, None, None),
            Ok(Spot::Instead(old)) => {
                let name = self.name(&old.node)?.map(|name| name.as_str().to_owned());
                let Node { key: gone, parent, left, right, .. } = old.node;
                self.unlink(&old)?;
                self.forget(gone)?;
                self.note(What::Removed, gone);
                ways.became(&old.node, name.as_deref(), key);
                (Hook { parent, left, right }, name, None)
            }
        };
        self.check_text(Kind::Null, "", name.as_deref())?;
        within("nesting", levels + self.levels_above(hook.parent, key)?, self.store.config.depth_max.into())?;
        self.change(key, field::TO_PARENT, |node| node.parent = hook.parent)?;
        self.repath(key, name.as_deref())?;
        self.link(key, hook)?;
        if let Some(index) = index {
            ways.came(hook.parent, name.as_deref(), index, key);
        }
        self.note(What::Moved, key);
        Ok(Ok(()))
    }
}

fn nothing() -> Unfit {
    "there is nothing".to_owned()
}

fn nothing_from() -> Unfit {
    "there is nothing where it is to come from".to_owned()
}

/// One operation, or what is wrong with it.
fn read_op(patch: &Flat, at: usize) -> Result<Op, String> {
    if patch.kind(at) != Kind::Object {
        return Err("an operation is an object".to_owned());
    }
    let text = |name: &str| match patch.member(at, name) {
        Some(member) if patch.kind(member) == Kind::String => Ok(patch.text(member)),
        Some(_) => Err(format!("its {name:?} is no string")),
        None => Err(format!("it has no {name:?}")),
    };
    let pointer = |name: &str| {
        let text = text(name)?;
        Pointer::parse(text).map_err(|why| format!("its {name:?} is {text:?}: {why}"))
    };
    let value = || patch.member(at, "value").ok_or_else(|| "it has no \"value\"".to_owned());
    let op = text("op")?;
    let path = pointer("path")?;
    Ok(match op {
        "add" => Op::Add(path, value()?),
        "remove" => Op::Remove(path),
        "replace" => Op::Replace(path, value()?),
        "move" => Op::Move { from: pointer("from")?, path },
        "copy" => Op::Copy { from: pointer("from")?, path },
        "test" => Op::Test(path, value()?),
        other => return Err(format!("{other:?} is no operation")),
    })
}
