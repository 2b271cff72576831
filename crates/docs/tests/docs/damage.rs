//! Damage is told: by document, revision, page and place. What is not damaged is read.

use std::path::Path;

use assent_docs::{Config, DocsError, Look, Meta, NodeKey, Value, Versioning};
use assent_kind::Kind;
use assent_world::{Access, Disk, Open};

use super::tree::push;
use super::{Desk, fresh_with};

/// Changes one byte of these on the disk, where they stand last.
pub fn rot(desk: &Desk, bytes: &[u8]) {
    for name in desk.disk.list(Path::new("log")).unwrap() {
        let Ok(file) = desk.disk.open(&Path::new("log").join(name), Open { access: Access::Write, direct: false })
        else {
            continue;
        };
        let mut all = vec![0; file.size().unwrap() as usize];
        assent_world::read_exact_at(&*file, 0, &mut all).unwrap();
        if let Some(at) = all.windows(bytes.len()).rposition(|window| window == bytes) {
            assent_world::write_all_at(&*file, at as u64, &[all[at] ^ 1]).unwrap();
            return;
        }
    }
    panic!("not on the disk");
}

/// A document whose revision n has the text "revision n" in one of its nodes.
fn written(versioning: Versioning) -> (Desk, NodeKey) {
    let desk = fresh_with(Config { cache_bytes: 0, ..Config::default() });
    let doc = desk.db.create("orders", versioning).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    let leaf = push(&mut edit, root, None, Value::String("revision 01"));
    for number in 0..600 {
        push(&mut edit, root, None, Value::Number(&number.to_string()));
    }
    edit.commit(&Meta::default()).unwrap();
    for number in 2..10 {
        let mut edit = doc.edit().unwrap();
        edit.set(leaf, Value::String(&format!("revision {number:02}"))).unwrap();
        edit.commit(&Meta::default()).unwrap();
    }
    (desk, leaf)
}

#[test]
fn a_rotten_old_revision_is_named_and_the_others_are_read() {
    let (desk, leaf) = written(Versioning::default());
    let doc = desk.db.document("orders").unwrap();
    rot(&desk, b"revision 04");
    for revision in 1..10 {
        match doc.at(revision).and_then(|at| at.item(leaf)) {
            Ok(item) => assert_eq!(item.text(), format!("revision {revision:02}")),
            Err(error) => {
                assert_eq!((error.kind(), revision), (Kind::Corrupt, 4), "{error}");
                let DocsError::Damaged { document, revision, .. } = error else { panic!("{error}") };
                assert_eq!((&*document, revision), ("orders", 4));
            }
        }
    }
    let mut edit = doc.edit().unwrap();
    edit.set(leaf, Value::String("revision 10")).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().item(leaf).unwrap().text(), "revision 10");
}

#[test]
fn a_rotten_page_is_named_with_its_place() {
    let (desk, leaf) = written(Versioning::default());
    let doc = desk.db.document("orders").unwrap();
    // The first revision's pages stand in entries of their own; every revision stands on this one.
    rot(&desk, b"revision 01");
    let error = doc.latest().item(leaf).unwrap_err();
    let DocsError::Damaged { document, revision: 9, page: Some(page), lsn, what } = error else { panic!("{error}") };
    assert_eq!((&*document, page.to_string().as_str()), ("orders", "page 0 of level 0 of the nodes"));
    assert!(lsn > assent_ids::Lsn::ZERO && what.contains("checksum"), "{what}");
    // Nodes of another page are read.
    assert_eq!(doc.latest().item(NodeKey(500)).unwrap().text(), "497");
    assert_eq!(doc.latest().verify().unwrap_err().kind(), Kind::Corrupt);
    let mut edit = doc.edit().unwrap();
    assert_eq!(edit.set(leaf, Value::Null).unwrap_err().kind(), Kind::Corrupt);
    // What may be half made is not committed.
    assert_eq!(edit.commit(&Meta::default()).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn where_all_is_written_each_time_rot_of_an_old_revision_is_its_own() {
    let (desk, leaf) = written(Versioning::Full);
    let doc = desk.db.document("orders").unwrap();
    rot(&desk, b"revision 01");
    assert_eq!(doc.at(1).unwrap().item(leaf).unwrap_err().kind(), Kind::Corrupt);
    for revision in 2..10 {
        assert_eq!(doc.at(revision).unwrap().item(leaf).unwrap().text(), format!("revision {revision:02}"));
    }
}
