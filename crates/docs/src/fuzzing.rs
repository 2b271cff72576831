//! Plain functions that fuzzers feed: bytes from a journal never panic, and neither does a query, a value or a patch.

use std::sync::Arc;

use assent_ids::Lsn;
use assent_kind::Kind;

use crate::act::{
    KIND_PREPARE, KIND_REPLACE, read_create, read_drop, read_outcome, read_prepare, read_replace, read_tag,
    read_truncate,
};
use crate::entry::{KIND_COMMIT, KIND_PAGE, fragment, read_commit};
use crate::node::{Node, NodeKey};
use crate::page::Page;
use crate::path::Path;
use crate::place::{Chain, Entry, resolve};
use crate::trie::{PageName, Which};
use crate::versioning::Versioning;
use crate::{At, Document, Edit, Form, Look};

/// Takes these bytes for an entry of each kind.
pub fn fuzz_entry(bytes: &[u8]) {
    _ = (
        read_create(bytes).is_ok(),
        read_drop(bytes).is_ok(),
        read_commit(bytes).is_ok(),
        read_truncate(bytes).is_ok(),
        read_replace(bytes).is_ok(),
    );
    _ = (read_prepare(bytes).is_ok(), read_outcome(bytes).is_ok(), read_tag(bytes).is_ok());
    for kind in [KIND_COMMIT, KIND_PAGE, KIND_PREPARE, KIND_REPLACE] {
        for index in 0..3 {
            for (level, number) in [(0, 0), (1, 0), (0, 7)] {
                let page = PageName { which: Which::Nodes, level, number };
                _ = fragment(kind, bytes, 1, page, index).is_ok();
            }
        }
    }
}

/// Takes these bytes for a query, for a regular expression, and for two numbers with a blank between them.
pub fn fuzz_jsonpath(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        crate::jsonpath::fuzz(text);
    }
}

/// Takes these bytes for the value of an empty document: what is read is written as it is read again, what is not leaves nothing.
pub fn fuzz_json(empty: &Document, bytes: &[u8]) {
    let Ok(mut edit) = empty.edit() else { return };
    match edit.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes) {
        Ok(key) => again(&mut edit, key),
        Err(error) => assert!(error.kind() == Kind::Invalid && edit.value().is_none(), "{error}"),
    }
}

/// Takes these bytes for a JSON Patch and for a merge patch of a document: all of it is made, or nothing.
pub fn fuzz_patch(doc: &Document, bytes: &[u8]) {
    for is_merge in [false, true] {
        let Ok(mut edit) = doc.edit() else { return };
        let before = Form::default().text(&edit);
        let made = if is_merge { edit.merge_patch(bytes) } else { edit.patch(bytes) };
        if let Err(error) = made {
            assert!(matches!(error.kind(), Kind::Invalid | Kind::Conflict), "{error}");
            assert_eq!(Form::default().text(&edit), before, "{error}");
        }
        if let Some(key) = edit.value() {
            again(&mut edit, key);
        }
    }
}

/// What an edit has is written as it is read again.
fn again(edit: &mut Edit, key: NodeKey) {
    let text = Form::default().text(edit);
    let read = text.clone().and_then(|text| edit.replace(key, text.as_bytes()));
    assert!(read.is_ok(), "{read:?}");
    assert_eq!(Form::default().text(edit), text);
}

/// Takes these bytes for the fragments of a page, the first byte of each its length; reads and changes what they are together.
pub fn fuzz_page(bytes: &[u8]) {
    let mut fragments: Vec<Arc<[u8]>> = Vec::new();
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first() {
        let (fragment, behind) = behind.split_at_checked((*length).into()).unwrap_or((behind, &[]));
        let mut resolved = fragment.to_vec();
        _ = resolve(&mut resolved, Entry::new(Lsn(64), 1)).is_ok();
        fragments.push(fragment.into());
        rest = behind;
    }
    let Ok(page) = Page::combine(fragments) else { return };
    for slot in 0..=u8::MAX {
        let Ok(Some((record, range))) = page.placed(slot) else { continue };
        // A text stands where it is said to stand.
        assert!(!record.has(crate::record::TEXT) || page.bytes(&range) == record.text, "slot {slot}");
        _ = (Node::read(NodeKey(slot.into()), &record).is_ok(), Path::read(&record).is_ok());
        _ = Chain::of(record.text).is_ok();
    }
    let Ok(records) = page.records() else { return };
    if let Ok(changed) = page.change(Versioning::default(), &records) {
        let after = page.after(changed.fragment.into(), changed.superseded);
        assert!(after.is_ok_and(|after| after.records() == Ok(records)), "a change to what it is");
    }
}
