//! JSON Patch (RFC 6902): operations, one after the other, all of them or none.
//!
//! Walk: [`Edit::patch`] reads the operations, then makes them over the stored form: what a patch does not name keeps its node, a
//! leaf that becomes another leaf and what is moved keep their keys.
//! Deliberately absent: patches that are larger than memory.

use std::io::Read;

use assent_kind::Kind as Class;

use crate::edit::{At, Edit};
use crate::entry::What;
use crate::flat::{Flat, Numbers};
use crate::link::Hook;
use crate::look::Look;
use crate::node::{Kind, Node, NodeKey, field};
use crate::pointer::{Pointer, child, index};
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

/// Where something is to be put: beside what is there, or in the place of something.
enum Spot {
    New(At, Option<String>),
    Instead(NodeKey),
    /// The document has no value.
    Empty,
}

/// Why an operation does not fit what is there.
type Unfit = String;

impl Edit {
    /// Makes the operations of a JSON Patch, all or none.
    ///
    /// # Errors
    /// [`DocsError::Json`], [`DocsError::Patch`] for what is no patch; [`DocsError::Unpatched`] naming the operation that does not fit
    /// the document, or whose test fails; [`DocsError::Size`], [`DocsError::Stream`]. Nothing has changed then.
    pub fn patch(&mut self, patch: impl Read) -> Result<(), DocsError> {
        let patch = Flat::read(patch, self.store.config.depth_max)?;
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
                match edit.operate(&patch, op) {
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

    fn operate(&mut self, patch: &Flat, op: &Op) -> Result<Result<(), Unfit>, DocsError> {
        match op {
            Op::Add(path, value) => match self.spot(path)? {
                Ok(spot) => self.put(spot, patch, *value).map(Ok),
                Err(unfit) => Ok(Err(unfit)),
            },
            Op::Replace(path, value) => match path.find(&*self)? {
                Some(key) => self.put(Spot::Instead(key), patch, *value).map(Ok),
                None => Ok(Err(nothing())),
            },
            Op::Remove(path) => match path.find(&*self)? {
                Some(key) => self.remove(key).map(Ok),
                None => Ok(Err(nothing())),
            },
            Op::Test(path, value) => match path.find(&*self)? {
                Some(key) if patch.is_same(*value, &*self, key, Numbers::ByValue)? => Ok(Ok(())),
                Some(_) => Ok(Err("the value there is another one".to_owned())),
                None => Ok(Err(nothing())),
            },
            Op::Move { from, path } => self.whole(|edit| edit.move_along(from, path)),
            Op::Copy { from, path } => {
                let Some(key) = from.find(&*self)? else { return Ok(Err(nothing_from())) };
                let mut text = Vec::new();
                Form { start: Some(key), ..Form::default() }.write(&*self, &mut text)?;
                let copy = Flat::read(text.as_slice(), self.store.config.depth_max)?;
                match self.spot(path)? {
                    Ok(spot) => self.put(spot, &copy, Flat::TOP).map(Ok),
                    Err(unfit) => Ok(Err(unfit)),
                }
            }
        }
    }

    /// Where "add" puts something.
    fn spot(&self, path: &Pointer) -> Result<Result<Spot, Unfit>, DocsError> {
        let Some((above, step)) = path.clone().split() else {
            return Ok(Ok(self.value().map_or(Spot::Empty, Spot::Instead)));
        };
        let Some(parent) = above.find(self)? else { return Ok(Err("there is nothing to put it into".to_owned())) };
        let node = self.item(parent)?.node;
        let spot = match node.kind {
            Kind::Object => match self.member(parent, &step)? {
                Some(member) => Spot::Instead(member),
                None => Spot::New(At::Last(parent), Some(step)),
            },
            Kind::Array if step == "-" => Spot::New(At::Last(parent), None),
            Kind::Array => match index(&step) {
                Some(index) if index == node.children => Spot::New(At::Last(parent), None),
                Some(index) if index < node.children => match child(self, parent, &step)? {
                    Some(sibling) => Spot::New(At::Before(sibling), None),
                    None => return Ok(Err(nothing())),
                },
                _ => return Ok(Err(format!("an array of {} values has no place {step:?}", node.children))),
            },
            kind => return Ok(Err(format!("a {} has nothing in it", kind.name()))),
        };
        Ok(Ok(spot))
    }

    /// Puts a value somewhere. A leaf that becomes another leaf keeps its key, and what says the same stays what it is.
    fn put(&mut self, spot: Spot, flat: &Flat, at: usize) -> Result<(), DocsError> {
        match spot {
            Spot::Empty => {
                self.insert_built(At::Last(NodeKey::DOCUMENT), None, |build| flat.fill(build, None, at)).map(drop)
            }
            Spot::New(place, name) => {
                self.insert_built(place, name.as_deref(), |build| flat.fill(build, name.as_deref(), at)).map(drop)
            }
            Spot::Instead(key) => self.replace_with(key, flat, at).map(drop),
        }
    }

    /// A value in a node's place, under its name; its key is then that.
    pub(crate) fn replace_with(&mut self, key: NodeKey, flat: &Flat, at: usize) -> Result<NodeKey, DocsError> {
        let node = self.item(key)?.node;
        if !node.kind.is_container() && !flat.kind(at).is_container() {
            return self.set(key, flat.value(at)).map(|()| key);
        }
        if flat.is_same(at, &*self, key, Numbers::ByDigits)? {
            return Ok(key);
        }
        self.replace_built(key, |build, name| flat.fill(build, name, at))
    }

    /// Takes a value off its place, and then looks where the new one is: places in an array have moved up by then.
    fn move_along(&mut self, from: &Pointer, path: &Pointer) -> Result<Result<(), Unfit>, DocsError> {
        if path.is_within(from) {
            return Ok(Err("a value cannot be put into itself".to_owned()));
        }
        let Some(key) = from.find(&*self)? else { return Ok(Err(nothing_from())) };
        if from == path {
            return Ok(Ok(()));
        }
        let levels = self.levels_below(key)?;
        self.unlink(&self.item(key)?)?;
        let (hook, name) = match self.spot(path)? {
            Err(unfit) => return Ok(Err(unfit)),
            Ok(Spot::New(at, name)) => (self.hook(at, name.as_deref())?, name),
            Ok(Spot::Empty) => (self.hook(At::Last(NodeKey::DOCUMENT), None)?, None),
            Ok(Spot::Instead(old)) => {
                let item = self.item(old)?;
                let name = self.name(&item.node)?.map(|name| name.as_str().to_owned());
                self.unlink(&item)?;
                self.forget(old)?;
                self.note(What::Removed, old);
                let Node { parent, left, right, .. } = item.node;
                (Hook { parent, left, right }, name)
            }
        };
        self.check_text(Kind::Null, "", name.as_deref())?;
        within("nesting", levels + self.levels_above(hook.parent, key)?, self.store.config.depth_max.into())?;
        self.change(key, field::TO_PARENT, |node| node.parent = hook.parent)?;
        self.repath(key, name.as_deref())?;
        self.link(key, hook)?;
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
