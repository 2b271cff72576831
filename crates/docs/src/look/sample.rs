//! An object that stored ones are held against: which records say the same in each of its members.
//!
//! Walk: [`Sample::of`] · [`Sample::is_part_of`] a record.

use std::collections::HashMap;

use crate::DocsError;
use crate::config::DEPTH_MAX;
use crate::flat::{Flat, Numbers};
use crate::look::Look;
use crate::node::{Kind, NodeKey};

/// Who waits is asked after at each so manieth member of a record.
const TURNS: usize = 256;

/// A JSON object in memory.
#[derive(Debug)]
pub struct Sample(Flat);

impl Sample {
    /// One, of a text.
    ///
    /// # Errors
    /// [`DocsError::Json`] for what is no object, also for a name that stands twice; [`DocsError::Size`].
    pub fn of(json: &[u8]) -> Result<Self, DocsError> {
        let flat = Flat::of(json, DEPTH_MAX)?;
        match flat.kind(Flat::TOP) {
            Kind::Object => Ok(Self(flat)),
            kind => Err(DocsError::Json { what: format!("it is no object, but {kind:?}") }),
        }
    }

    /// Whether a record is an object that has each member of this one, with the same value: members of objects in any order, items of arrays in
    /// theirs, numbers by their value to the last digit. None if nobody waits for it any more. The record is walked once, and no
    /// large value of it is read to be held against a small one.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn is_part_of(
        &self,
        look: &impl Look,
        record: NodeKey,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<bool>, DocsError> {
        let node = look.item(record)?.node;
        if node.kind != Kind::Object {
            return Ok(Some(false));
        }
        let Self(flat) = self;
        let wanted: HashMap<&str, usize> = flat.children(Flat::TOP).map(|child| (flat.name(child), child)).collect();
        let (mut missing, mut next) = (wanted.len(), node.first);
        for turn in 0.. {
            let Some(key) = next.filter(|_| missing > 0) else { break };
            if turn % TURNS == TURNS - 1 && !is_wanted() {
                return Ok(None);
            }
            let node = look.item(key)?.node;
            let name = look.name(&node)?;
            if let Some(child) = name.as_ref().and_then(|name| wanted.get(name.as_str())) {
                if !flat.is_same(*child, look, key, Numbers::ByValue)? {
                    return Ok(Some(false));
                }
                missing -= 1;
            }
            next = node.right;
        }
        Ok(Some(missing == 0))
    }
}
