//! The document of the scenarios over HTTP, and the page of it that is asked for.
//!
//! Walk: [`make`] puts it there · [`commits`] makes revisions of it · [`checked`] asks for the page and checks every value.

use serde_json::{Value, json};

use crate::BenchError;
use crate::docs::wrong;
use crate::web::Line;

pub(super) const DOCUMENT: &str = "/bench/records";
/// The page: four levels, fifty children of each container.
pub(super) const PAGE: &str = "maxLevel=4&maxChildren=50&withMetaData=nodeKeyAndChildCount";
const CHILDREN: usize = 50;
/// What stands around the number that a commit sets; the page is not deep enough to show it.
pub(super) const PATCH: (&str, &str) = ("[{\"op\":\"replace\",\"path\":\"/control/a/b/count\",\"value\":", "}]");
pub(super) const PATCH_TYPE: &str = "Content-Type: application/json-patch+json\r\n";
/// As many digits in every revision.
pub(super) const COUNT_FROM: u64 = 1_000_000_000;

/// The members of a record, in their order.
fn record(number: u32) -> [(&'static str, Value); 5] {
    [
        ("id", json!(1_000_000 + number)),
        ("name", json!(format!("record of number {number}"))),
        ("price", json!(f64::from(100 + number % 900) + 0.25)),
        ("stock", json!(number % 97)),
        ("live", json!(!number.is_multiple_of(3))),
    ]
}

/// The document: about 85 bytes an object.
pub(super) fn text(objects: u32) -> String {
    let mut text = format!("{{\"control\":{{\"a\":{{\"b\":{{\"count\":{COUNT_FROM}}}}}}},\"records\":[");
    for number in 0..objects {
        let members: Vec<String> = record(number).iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        text.push_str(if number == 0 { "{" } else { ",{" });
        text.push_str(&members.join(","));
        text.push('}');
    }
    text.push_str("]}");
    text
}

/// The document with so many revisions.
pub(super) fn make(line: &mut Line, headers: &str, objects: u32, revisions: u32) -> Result<(), BenchError> {
    let told = format!("{headers}Content-Type: application/json\r\n");
    line.ask("PUT", DOCUMENT, &told, text(objects).as_bytes(), 201)?;
    commits(line, headers, 2, revisions)
}

/// Revisions from the first to the last.
pub(super) fn commits(line: &mut Line, headers: &str, first: u32, last: u32) -> Result<(), BenchError> {
    let headers = format!("{headers}{PATCH_TYPE}");
    for revision in first..=last {
        let body = format!("{}{}{}", PATCH.0, COUNT_FROM + u64::from(revision), PATCH.1);
        line.ask("PATCH", DOCUMENT, &headers, body.as_bytes(), 200)?;
    }
    Ok(())
}

/// The newest revision.
pub(super) fn newest(line: &mut Line, headers: &str) -> Result<u32, BenchError> {
    let told = line.ask("GET", &format!("{DOCUMENT}/history?revisions=1"), headers, b"", 200)?;
    let told: Value = serde_json::from_slice(&told).unwrap_or_default();
    let number = told.pointer("/history/0/revision").and_then(Value::as_u64).and_then(|it| u32::try_from(it).ok());
    number.ok_or_else(|| wrong(format!("{told} as a history")))
}

/// The page, each of its values looked at.
pub(super) fn checked(line: &mut Line, headers: &str, objects: u32) -> Result<Vec<u8>, BenchError> {
    let body = line.ask("GET", &format!("{DOCUMENT}?{PAGE}"), headers, b"", 200)?;
    let page: Value = serde_json::from_slice(&body).unwrap_or_default();
    let bad = |what: &str| wrong(format!("the page of the document: {what}"));
    let member = |of: &Value, at: usize| of.get("value").and_then(|it| it.get(at)).cloned().unwrap_or_default();
    let records = member(&page, 1);
    if records.get("key") != Some(&json!("records")) || records.pointer("/metadata/childCount") != Some(&json!(objects))
    {
        return Err(bad("it has no records, or not all are counted"));
    }
    let shown = records.get("value").and_then(Value::as_array).map_or(0, Vec::len);
    if shown != CHILDREN.min(usize::try_from(objects).unwrap_or(CHILDREN)) {
        return Err(bad(&format!("{shown} records")));
    }
    for (at, number) in (0..shown).zip(0_u32..) {
        let shown = member(&records, at);
        for (at, (name, value)) in record(number).into_iter().enumerate() {
            let shown = member(&shown, at);
            let is_right = shown.get("key") == Some(&json!(name)) && shown.get("value") == Some(&value);
            if !is_right || !shown.pointer("/metadata/nodeKey").is_some_and(Value::is_u64) {
                return Err(bad(&format!("{name} of record {number} is {shown}")));
            }
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_as_long_as_the_published_one() {
        let text = text(20_000);
        assert!((1_690_000..1_730_000).contains(&text.len()), "{}", text.len());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["records"].as_array().unwrap().len(), 20_000);
        assert_eq!(value["records"][7]["price"], record(7)[2].1);
    }
}
