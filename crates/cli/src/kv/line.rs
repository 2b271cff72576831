//! An object as a line of JSON: texts where they are UTF-8, base64 where they are not.

use assent_wire::Op;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::store::Known;

/// An object to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) metadata: Vec<u8>,
    pub(super) expiry_ms: u64,
}

impl Line {
    pub(super) fn op(&self, keyspace: u32) -> Op<'_> {
        let Self { key, value, metadata, expiry_ms } = self;
        Op::Set { keyspace, key, metadata, expiry_ms: *expiry_ms, value }
    }
}

/// Reads a line, or says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Line, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let Value::Object(mut fields) = value else { return Err("it is no JSON object".to_owned()) };
    let key = bytes(&mut fields, "key")?.ok_or("it has no key: write \"key\" or \"key_base64\"")?;
    let value = bytes(&mut fields, "value")?.ok_or("it has no value: write \"value\" or \"value_base64\"")?;
    let metadata = bytes(&mut fields, "metadata")?.unwrap_or_default();
    let expiry_ms = match fields.remove("expiry_ms") {
        None => 0,
        Some(number) => number.as_u64().ok_or_else(|| format!("expiry_ms = {number}; write a whole number"))?,
    };
    // What export says beside them.
    ["lsn", "modified_ms"].iter().for_each(|known| _ = fields.remove(*known));
    match fields.keys().next() {
        Some(unknown) => Err(format!("{unknown:?} is no field of an object")),
        None => Ok(Line { key, value, metadata, expiry_ms }),
    }
}

fn bytes(fields: &mut Map<String, Value>, name: &str) -> Result<Option<Vec<u8>>, String> {
    let base64 = format!("{name}_base64");
    match (fields.remove(name), fields.remove(&base64)) {
        (None, None) => Ok(None),
        (Some(Value::String(text)), None) => Ok(Some(text.into_bytes())),
        (None, Some(Value::String(text))) => decode(&base64, text.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(format!("it has both {name} and {base64}")),
        _ => Err(format!("{name} must be a text")),
    }
}

/// The bytes of a field that is written in base64.
pub(super) fn decode(name: &str, encoded: &[u8]) -> Result<Vec<u8>, String> {
    BASE64.decode(encoded).map_err(|error| format!("{name} is no base64: {error}"))
}

/// Bytes in base64.
pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// What is known of an object; without a value if none is known.
pub(super) fn object(known: &Known) -> Value {
    let mut fields = Map::new();
    put(&mut fields, "key", &known.key);
    if let Some(value) = &known.value {
        put(&mut fields, "value", value);
    }
    if !known.metadata.is_empty() {
        put(&mut fields, "metadata", &known.metadata);
    }
    let numbers = [("lsn", known.lsn), ("modified_ms", known.modified_ms), ("expiry_ms", known.expiry_ms)];
    fields.extend(numbers.into_iter().filter(|(_, number)| *number > 0).map(|(name, it)| (name.to_owned(), it.into())));
    Value::Object(fields)
}

/// Bytes as a field: a text if they are one.
pub(super) fn put(fields: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.to_owned(), text.into()),
        Err(_) => fields.insert(format!("{name}_base64"), encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_is_loaded_again_whatever_its_bytes() {
        for bytes in [&b"text"[..], b"", b"\0\xff\xfe", b"two\nlines and \"quotes\"", "\u{fffd}ä".as_bytes()] {
            let known = Known {
                key: bytes.to_vec(),
                lsn: 7,
                modified_ms: 8,
                expiry_ms: 9,
                hash: 10,
                value_bytes: 0,
                metadata: bytes.to_vec(),
                value: Some(bytes.to_vec()),
            };
            let text = object(&known).to_string();
            assert!(!text.contains('\n'));
            let expected = Line { key: bytes.to_vec(), value: bytes.to_vec(), metadata: bytes.to_vec(), expiry_ms: 9 };
            assert_eq!(parse(&text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_line_says_what_is_wrong() {
        let cases = [
            ("", "no JSON"),
            ("7", "no JSON object"),
            ("{}", "no key"),
            ("{\"key\": \"a\"}", "no value"),
            ("{\"key\": 7, \"value\": \"b\"}", "key must be a text"),
            ("{\"key\": \"a\", \"value_base64\": \"?\"}", "value_base64 is no base64"),
            ("{\"key\": \"a\", \"key_base64\": \"\", \"value\": \"\"}", "both key and key_base64"),
            ("{\"key\": \"a\", \"value\": \"\", \"expiry_ms\": -1}", "expiry_ms = -1"),
            ("{\"key\": \"a\", \"value\": \"\", \"ttl\": 5}", "\"ttl\" is no field"),
        ];
        for (text, said) in cases {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(said), "{text}: {wrong}");
        }
    }
}
