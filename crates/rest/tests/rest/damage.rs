//! Documents of which the newest revision cannot be read: whoever wants to be rid of them is.

use assent_docs::{At, Look as _, Meta, NodeKey, Versioning};

use crate::house::{House, Rules, house};

/// Databases "a" and "b" with documents "sound" and "rotten" each; the newest commits of the rotten ones, and of what says that "b" is
/// there, cannot be read.
fn rotten() -> House {
    let house = house(Rules::default());
    let put = |name: &str, text: &str| {
        let doc = house.documents.document(name).or_else(|_| house.documents.create(name, Versioning::Full)).unwrap();
        let mut edit = doc.edit().unwrap();
        let before = edit.value();
        before.into_iter().for_each(|value| edit.remove(value).unwrap());
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, format!("\"{text}\"").as_bytes()).unwrap();
        edit.commit(&Meta::default()).unwrap();
    };
    for database in ["a", "b"] {
        put(&format!("{database}/"), &format!("marks {database}"));
        put(&format!("{database}/sound"), "sound");
        put(&format!("{database}/rotten"), &format!("rots in {database}"));
    }
    // Behind it so much that no block of it is written again, and no open need walk over it.
    for number in 0..30_u64 {
        put("behind", &(1_u64 << number).to_string().repeat(10_000));
        if number == 0 {
            [&b"rots in a"[..], b"rots in b", b"marks b"].into_iter().for_each(|bytes| house.rot(bytes));
        }
        house.documents.checkpoint().unwrap();
    }
    house.again()
}

#[test]
fn databases_of_damaged_documents_are_dropped_and_such_documents_are_dropped_and_replaced() {
    // One document that could not be read kept its whole database, and all of them, from being dropped.
    for (path, left) in [("/a", &["b"][..]), ("/b", &["a"]), ("/", &[])] {
        let house = rotten();
        assert_eq!(house.docs("GET", "/a/rotten", &[], "").json()["kind"], "corrupt");
        assert_eq!(house.docs("GET", "/b", &[], "").json()["resources"].as_array().unwrap().len(), 2);
        let key = [("idempotency-key", "k")];
        let told = house.docs("DELETE", path, &key, "");
        assert_eq!(told.status, 204, "{path}: {}", told.text());
        let house = house.again();
        let again = house.docs("DELETE", path, &key, "");
        assert_eq!((again.status, again.header("idempotency-replayed").is_some()), (204, true), "{path}");
        for (name, is_left) in [("a", left.contains(&"a")), ("b", left.contains(&"b"))] {
            let put = house.docs("PUT", &format!("/{name}/rotten"), &[], "1");
            assert_eq!(put.status, if is_left { 500 } else { 201 }, "{path}, {name}: {}", put.text());
        }
    }
    let house = rotten();
    let put = |path: &str| house.docs("PUT", path, &[], "[2]");
    assert_eq!(put("/a/rotten").json()["kind"], "corrupt");
    assert_eq!(house.docs("PUT", "/a/rotten?overwrite=true", &[("if-match", "\"1\"")], "[2]").status, 412);
    assert_eq!((put("/a/rotten?overwrite=true").status, house.docs("DELETE", "/b/rotten", &[], "").status), (201, 204));
    let house = house.again();
    assert_eq!(house.docs("GET", "/a/rotten", &[], "").text(), "[2]");
    assert_eq!(house.docs("GET", "/b/rotten", &[], "").status, 404);
}
