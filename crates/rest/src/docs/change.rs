//! Changes of a document, the same whether they are a request of their own or part of a transaction.
//!
//! Walk: [`judge`] a precondition, under the writer's seat · [`Change`] one change, [`Change::make`] makes it, all of it or nothing.
//! Deliberately absent: who may, and the commit.

use assent_docs::{At, Edit, Kind as NodeKind, Look as _, NodeKey};
use assent_kind::Kind;
use axum::http::{HeaderMap, HeaderValue, header};

use super::members::members;
use super::read::tag;
use crate::params::Params;
use crate::problem::Problem;

/// The tag that the node must have. Older clients send it as `ETag`.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
    if headers.contains_key(header::IF_NONE_MATCH) {
        return Err(Problem::invalid("If-None-Match is for reads; write If-Match"));
    }
    Ok(headers.get(header::IF_MATCH).or_else(|| headers.get(header::ETAG)).cloned())
}

/// Whether a node is as the caller knows it.
pub(crate) fn judge(edit: &Edit, node: Option<NodeKey>, wanted: Option<&HeaderValue>) -> Result<(), Problem> {
    let Some(wanted) = wanted else { return Ok(()) };
    let now = node.map(|key| edit.item(key).and_then(|item| edit.hash(&item))).transpose()?.map(tag);
    if now.as_ref() == Some(wanted) || (now.is_some() && wanted.as_bytes() == b"*") {
        return Ok(());
    }
    let now = now.as_ref().and_then(|it| it.to_str().ok()).unwrap_or("none");
    Err(Problem::precondition(format!("the node has another tag by now: {now}")))
}

/// Where a value is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    FirstChild,
    LeftSibling,
    RightSibling,
    Replace,
}

impl Insert {
    pub(super) fn of(params: &mut Params<'_>) -> Result<Self, Problem> {
        params.take(&["insert"])?.map_or(Ok(Self::FirstChild), |word| Self::of_word(&word))
    }

    pub(crate) fn of_word(word: &str) -> Result<Self, Problem> {
        match word {
            "asFirstChild" | "as-first-child" => Ok(Self::FirstChild),
            "asLeftSibling" | "as-left-sibling" => Ok(Self::LeftSibling),
            "asRightSibling" | "as-right-sibling" => Ok(Self::RightSibling),
            "replace" => Ok(Self::Replace),
            other => Err(Problem::invalid(format!(
                "insert = {other:?}; it is asFirstChild, asLeftSibling, asRightSibling or replace"
            ))),
        }
    }
}

/// What is to be done to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It says this from now on.
    Put,
    /// This goes to a node, or to the document's value.
    Insert(Option<NodeKey>, Insert),
    /// A JSON Patch.
    Patch,
    /// A merge patch.
    Merge,
    /// A node goes.
    Remove(NodeKey),
}

impl Change {
    /// The node that a precondition is about.
    pub(crate) fn node(self, edit: &Edit) -> Option<NodeKey> {
        match self {
            Self::Remove(node) | Self::Insert(Some(node), _) => Some(node),
            Self::Put | Self::Patch | Self::Merge | Self::Insert(None, _) => edit.value(),
        }
    }

    /// Makes the change, all of it or nothing.
    pub(crate) fn make(self, edit: &mut Edit, bytes: &[u8]) -> Result<(), Problem> {
        match self {
            Self::Put => match edit.value() {
                Some(value) => _ = edit.replace(value, bytes)?,
                None => _ = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes)?,
            },
            Self::Patch => edit.patch(bytes)?,
            Self::Merge => edit.merge_patch(bytes)?,
            Self::Remove(node) => edit.remove(node)?,
            Self::Insert(node, how) => match (node.or_else(|| edit.value()), how) {
                (None, Insert::FirstChild) => _ = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes)?,
                (None, _) => {
                    return Err(Problem::of(
                        Kind::NotFound,
                        "the document is empty: there is no node to put it beside",
                    ));
                }
                (Some(node), Insert::Replace) => _ = edit.replace(node, bytes)?,
                (Some(node), how) => into(edit, node, how, bytes)?,
            },
        }
        Ok(())
    }
}

/// Puts a value into an array, or members into an object.
fn into(edit: &mut Edit, node: NodeKey, how: Insert, bytes: &[u8]) -> Result<(), Problem> {
    let item = edit.item(node)?.node;
    let parent = if matches!(how, Insert::FirstChild) { node } else { item.parent };
    let at = match how {
        Insert::LeftSibling => At::Before(node),
        Insert::RightSibling => At::After(node),
        Insert::FirstChild | Insert::Replace => At::First(node),
    };
    let is_object = parent != NodeKey::DOCUMENT && edit.item(parent)?.node.kind == NodeKind::Object;
    if !is_object {
        edit.insert_json(at, None, bytes)?;
        return Ok(());
    }
    // All of them or none: in a transaction what comes next builds on this.
    let members = members(bytes)?;
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    Ok(edit.insert_members(at, &members)?)
}
