//! Damage is told: by document, revision, page and place. What is not damaged is read.

use std::path::Path;

use assent_docs::{Config, DocsError, Look, Meta, NodeKey, Value, Versioning};
use assent_kind::Kind;
use assent_sim::SimDisk;
use assent_world::{Access, Disk, Open};

use super::tree::push;
use super::{Desk, fresh, fresh_with, says};

/// Changes one byte of these in the journal, where they stand last.
pub fn rot(desk: &Desk, bytes: &[u8]) {
    rot_in(&desk.disk, "log", bytes);
}

/// The same in a file of this folder.
pub fn rot_in(disk: &SimDisk, folder: &str, bytes: &[u8]) {
    let folder = Path::new(folder);
    for name in disk.list(folder).unwrap() {
        let Ok(file) = disk.open(&folder.join(name), Open { access: Access::Write, direct: false }) else {
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

/// So much is written behind what is there that its block is not written again, and no open need walk over it.
pub fn bury(desk: &Desk, rots: &[u8]) {
    let doc = desk.db.create("behind", Versioning::Full).unwrap();
    let mut edit = doc.edit().unwrap();
    let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::Null);
    edit.commit(&Meta::default()).unwrap();
    for number in 0..30_u64 {
        let mut edit = doc.edit().unwrap();
        edit.set(leaf, Value::Number(&(1_u64 << number).to_string().repeat(10_000))).unwrap();
        edit.commit(&Meta::default()).unwrap();
        if number == 0 {
            rot(desk, rots);
        }
        desk.db.checkpoint().unwrap();
    }
}

/// A document "a" of three revisions, the last of which is rotten, and has been opened again since.
fn headless() -> Desk {
    let desk = fresh_with(Config::default());
    let doc = desk.db.create("a", Versioning::Full).unwrap();
    for text in ["first", "second", "third"] {
        let mut edit = doc.edit().unwrap();
        match edit.value() {
            None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::String(text)),
            Some(leaf) => edit.set(leaf, Value::String(text)).unwrap(),
        }
        edit.commit(&says(&format!("says {text}"))).unwrap();
    }
    doc.tag("sound", 1).unwrap();
    drop(doc);
    bury(&desk, b"third");
    let desk = desk.again();
    for _ in 0..2 {
        let error = desk.db.document("a").unwrap_err();
        assert!(matches!(error, DocsError::Damaged { revision: 3, .. }), "{error}");
    }
    desk
}

fn text(look: &impl Look) -> String {
    look.item(look.value().unwrap()).unwrap().text().to_owned()
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

#[test]
fn a_document_whose_newest_commit_is_damaged_is_dropped_and_its_name_is_free() {
    // It could be neither dropped nor replaced, and its name was taken for ever.
    let mut desk = headless();
    assert!(matches!(desk.db.create("a", Versioning::Full), Err(DocsError::Exists { .. })));
    desk.db.drop_document("a").unwrap();
    assert_eq!(desk.db.drop_document("a").unwrap_err().kind(), Kind::NotFound);
    let mut edit = desk.db.create("a", Versioning::Full).unwrap().edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::String("another"));
    edit.commit(&Meta::default()).unwrap();
    for _ in 0..2 {
        let newest = desk.db.document("a").unwrap().latest();
        assert_eq!((newest.number(), text(&newest)), (1, "another".to_owned()));
        desk = desk.again();
    }
}

#[test]
fn a_document_whose_newest_commit_is_damaged_is_replaced_or_dropped_under_its_seat() {
    let mut desk = headless();
    let edit = desk.db.edit_anew("a", Versioning::Full).unwrap();
    for busy in [desk.db.drop_document("a"), desk.db.edit_anew("a", Versioning::Full).map(drop)] {
        assert_eq!(busy.unwrap_err().kind(), Kind::Busy, "one seat for all");
    }
    drop(edit);
    let mut edit = desk.db.edit_anew("a", Versioning::Full).unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::String("anew"));
    edit.commit(&Meta::default()).unwrap();
    for _ in 0..2 {
        let newest = desk.db.document("a").unwrap().latest();
        assert_eq!((newest.number(), text(&newest)), (1, "anew".to_owned()));
        desk = desk.again();
    }
    let desk = headless();
    desk.db.edit_anew("a", Versioning::Full).unwrap().drop_document().unwrap();
    assert_eq!(desk.again().db.document("a").unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn older_revisions_of_a_document_whose_newest_commit_is_damaged_are_read_and_come_back() {
    // They were whole, and out of reach.
    let mut desk = headless();
    let older = desk.db.older("a").unwrap();
    assert_eq!(older.newest(), 3);
    assert_eq!((text(&older.at(1).unwrap()), text(&older.at(2).unwrap())), ("first".to_owned(), "second".to_owned()));
    assert_eq!(text(&older.tagged("sound").unwrap()), "first");
    let told = older.history(0..=u32::MAX, 9).unwrap();
    assert_eq!(told.iter().map(|told| &*told.message).collect::<Vec<_>>(), ["says third", "says second", "says first"]);
    assert!(matches!(older.at(3), Err(DocsError::Damaged { revision: 3, .. })));
    assert!(matches!(older.at(4), Err(DocsError::NoRevision { newest: 3, .. })));
    assert!(matches!(older.truncate(3), Err(DocsError::Damaged { revision: 3, .. })));
    assert_eq!(text(&older.truncate(2).unwrap()), "second");
    for number in 3..5 {
        let doc = desk.db.document("a").unwrap();
        let newest = doc.latest();
        assert_eq!((newest.number(), doc.history(0..=9, 9).unwrap().len()), (number - 1, 2 + number as usize - 3));
        let mut edit = doc.edit().unwrap();
        let value = edit.value().unwrap();
        edit.remove(value).unwrap();
        let key = push(&mut edit, NodeKey::DOCUMENT, None, Value::String("third again"));
        assert!(key > NodeKey(1 << 32), "no key of what cannot be read is used again: {key}");
        assert_eq!(text(&edit.commit(&Meta::default()).unwrap()), "third again");
        doc.verify().unwrap();
        desk = desk.again();
    }
}

#[test]
fn a_truncation_is_refused_where_tags_cannot_be_read_and_everything_else_goes_on() {
    // It was durable and could not be shown, so nothing was shown any more that was committed behind it.
    let desk = fresh();
    let [doc, last] = ["orders", "z"].map(|name| desk.db.create(name, Versioning::default()).unwrap());
    let mut edit = doc.edit().unwrap();
    let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    edit.commit(&Meta::default()).unwrap();
    let set = |doc: &assent_docs::Document, digits: &str| {
        let mut edit = doc.edit()?;
        edit.set(leaf, Value::Number(digits))?;
        edit.commit(&Meta::default()).map(|revision| revision.number())
    };
    assert_eq!(set(&doc, "2"), Ok(2));
    // Between the document's own rows and its tags: they stand in other blocks.
    let mut edit = last.edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Null);
    edit.commit(&says(&"m".repeat(5_000))).unwrap();
    let name = |letter: char| letter.to_string().repeat(200);
    ('a'..='z').for_each(|letter| doc.tag(&name(letter), 1).unwrap());
    desk.db.checkpoint().unwrap();
    drop((doc, last));
    rot_in(&desk.disk, "index", name('c').as_bytes());
    let desk = desk.again();
    assert!(!desk.db.stats().rebuilt);
    let doc = desk.db.document("orders").unwrap();
    assert_eq!(doc.truncate(1).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(set(&doc, "3"), Ok(3));
    drop(doc);
    assert_eq!(desk.again().db.document("orders").unwrap().latest().number(), 3);
}
