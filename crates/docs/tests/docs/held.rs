//! Reading for who must not wait: what is in memory is read as ever, and nothing else is.

use assent_docs::{At, DocsError, Form, Look as _, Meta, Metadata, NodeKey, Value, Versioning};

use super::{fresh, says};

#[test]
fn what_is_in_memory_is_read_without_waiting_and_what_is_not_is_refused_until_somebody_has_waited() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    assert!(desk.db.at_hand("orders").is_none(), "it has no revision");
    let json: Vec<String> =
        (0..2_000).map(|number| format!("{{\"number\":{number},\"name\":\"é{number}\"}}")).collect();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, format!("[{}]", json.join(",")).as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let first = NodeKey(3);
    let mut edit = doc.edit().unwrap();
    edit.set(first, Value::Number("7")).unwrap();
    edit.commit(&says("second")).unwrap();
    drop(doc);
    let desk = desk.again();
    assert!(desk.db.at_hand("orders").is_none(), "nobody has opened it");
    let doc = desk.db.document("orders").unwrap();
    for metadata in [Metadata::None, Metadata::NodeKey, Metadata::NodeKeyAndChildCount, Metadata::All] {
        let form = Form { metadata, ..Form::default() };
        for number in [None, Some(2), Some(1)] {
            let waiting = number.map_or_else(|| doc.latest(), |number| doc.at(number).unwrap());
            let at_hand = desk.db.at_hand("orders").unwrap().at_hand(number).unwrap().without_waiting();
            assert_eq!(at_hand.number(), waiting.number());
            if metadata == Metadata::None && number != Some(2) {
                // Nobody has looked at its pages yet. Another time that is so is the first revision's.
                assert_eq!(form.text(&at_hand).unwrap_err(), DocsError::NotHeld);
                assert_eq!(at_hand.item(first).unwrap_err(), DocsError::NotHeld);
            }
            let told = form.text(&waiting).unwrap();
            assert_eq!(form.text(&at_hand).unwrap(), told);
            let pieces: Vec<u8> = form.chunks(at_hand).flat_map(Result::unwrap).collect();
            assert_eq!(String::from_utf8(pieces).unwrap(), told);
        }
    }
    desk.db.drop_document("orders").unwrap();
    assert!(desk.db.at_hand("orders").is_none(), "it is gone at once");
}

#[test]
fn an_old_revision_is_at_hand_once_somebody_has_opened_it() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    for text in ["1", "2", "3"] {
        let mut edit = doc.edit().unwrap();
        match edit.value() {
            Some(value) => edit.set(value, Value::Number(text)).unwrap(),
            None => _ = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, text.as_bytes()).unwrap(),
        }
        edit.commit(&Meta::default()).unwrap();
    }
    drop(doc);
    let desk = desk.again();
    let doc = desk.db.document("orders").unwrap();
    assert!(doc.at_hand(Some(1)).is_none() && doc.at_hand(Some(4)).is_none() && doc.at_hand(Some(3)).is_some());
    let one = Form::default().text(&doc.at(1).unwrap()).unwrap();
    let at_hand = doc.at_hand(Some(1)).unwrap().without_waiting();
    assert_eq!((one.as_str(), Form::default().text(&at_hand).unwrap().as_str()), ("1", "1"));
}
