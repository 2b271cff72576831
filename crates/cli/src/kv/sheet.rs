//! Objects as rows of CSV (RFC 4180): a header names the columns, each row is an object; texts where they are UTF-8, base64 in a column of its
//! own where they are not.
//!
//! An empty cell says nothing, so that an object has a key or a `key_base64`; with neither it has an empty key, and likewise an empty value.
//! Walk: [`Header::read`] takes the first row · [`Header::line`] each other one · [`export_header`] and [`export_row`] write them.

use csv::{ByteRecord, StringRecord};

use super::line::{self, Line};
use super::store::Known;

/// The columns of an export, and all that a load takes, in whatever order.
const COLUMNS: [&str; 9] =
    ["key", "key_base64", "value", "value_base64", "metadata", "metadata_base64", "expiry_ms", "lsn", "modified_ms"];

/// Which column stands where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// For each of [`COLUMNS`].
    at: [Option<usize>; COLUMNS.len()],
}

impl Header {
    /// Reads the first row, or says what is wrong with it.
    pub(super) fn read(row: &ByteRecord) -> Result<Self, String> {
        let mut at = [None; COLUMNS.len()];
        for (number, name) in row.iter().enumerate() {
            let name = String::from_utf8_lossy(name);
            let column = COLUMNS.iter().zip(&mut at).find(|(column, _)| **column == name);
            let (_, place) =
                column.ok_or_else(|| format!("{name:?} is no column; there are {}", COLUMNS.join(", ")))?;
            if place.replace(number).is_some() {
                return Err(format!("{name:?} stands there twice"));
            }
        }
        let header = Self { at };
        for name in ["key", "value"] {
            if !header.has(name) {
                return Err(format!("the header has no {name}: name a column {name} or {name}_base64"));
            }
        }
        Ok(header)
    }

    /// Reads an object, or says what is wrong with it.
    pub(super) fn line(&self, row: &ByteRecord) -> Result<Line, String> {
        let expiry_ms = match self.cell(row, "expiry_ms") {
            [] => 0,
            digits => {
                let text = String::from_utf8_lossy(digits);
                text.parse().map_err(|_| format!("expiry_ms = {text:?}; write a whole number"))?
            }
        };
        Ok(Line {
            key: self.bytes(row, "key")?,
            value: self.bytes(row, "value")?,
            metadata: self.bytes(row, "metadata")?,
            expiry_ms,
        })
    }

    fn bytes(&self, row: &ByteRecord, name: &str) -> Result<Vec<u8>, String> {
        let base64 = format!("{name}_base64");
        match (self.cell(row, name), self.cell(row, &base64)) {
            (text, []) if std::str::from_utf8(text).is_ok() => Ok(text.to_vec()),
            (_, []) => Err(format!("{name} is no UTF-8; bytes that are none go as {base64}")),
            ([], encoded) => line::decode(&base64, encoded),
            _ => Err(format!("it has both {name} and {base64}")),
        }
    }

    fn has(&self, name: &str) -> bool {
        COLUMNS.iter().zip(&self.at).any(|(column, at)| column.trim_end_matches("_base64") == name && at.is_some())
    }

    fn cell<'a>(&self, row: &'a ByteRecord, name: &str) -> &'a [u8] {
        let at = COLUMNS.iter().zip(&self.at).find(|(column, _)| **column == name).and_then(|(_, at)| *at);
        at.and_then(|at| row.get(at)).unwrap_or_default()
    }
}

/// The first row of an export.
pub(super) fn export_header() -> StringRecord {
    StringRecord::from(COLUMNS.to_vec())
}

/// An object as a row of an export.
pub(super) fn export_row(known: &Known) -> StringRecord {
    let number = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    let [key, key_base64] = cells(&known.key);
    let [value, value_base64] = cells(known.value.as_deref().unwrap_or_default());
    let [metadata, metadata_base64] = cells(&known.metadata);
    let [expiry, lsn, modified] = [known.expiry_ms, known.lsn, known.modified_ms].map(number);
    let cells = [key, key_base64, value, value_base64, metadata, metadata_base64, expiry, lsn, modified];
    StringRecord::from(cells.to_vec())
}

/// Bytes as a text, or as base64 if they are none.
fn cells(bytes: &[u8]) -> [String; 2] {
    match std::str::from_utf8(bytes) {
        Ok(text) => [text.to_owned(), String::new()],
        Err(_) => [String::new(), line::encode(bytes)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(bytes: &[u8], expiry_ms: u64) -> Known {
        Known {
            key: bytes.to_vec(),
            lsn: 7,
            modified_ms: 8,
            expiry_ms,
            hash: 10,
            value_bytes: 0,
            metadata: bytes.to_vec(),
            value: Some(bytes.to_vec()),
        }
    }

    fn read(text: &[u8]) -> Result<Vec<Line>, String> {
        let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(text).into_byte_records();
        let header = Header::read(&rows.next().unwrap().unwrap())?;
        rows.map(|row| header.line(&row.unwrap())).collect()
    }

    #[test]
    fn what_is_exported_is_loaded_again_whatever_its_bytes() {
        let all = [
            &b"text"[..],
            b"",
            b" ",
            b"\0\xff\xfe",
            b"two\nlines, \"quotes\"\r\nand commas,,",
            b"\"",
            b"\"\"",
            b"\r",
            b"\n",
            b"#",
            b"\xef\xbb\xbf",
            "\u{fffd}ä".as_bytes(),
            b"=1+1",
        ];
        let mut out = csv::Writer::from_writer(Vec::new());
        out.write_record(&export_header()).unwrap();
        let mut expected = Vec::new();
        for (bytes, expiry_ms) in all.iter().zip([0, 9].into_iter().cycle()) {
            out.write_record(&export_row(&known(bytes, expiry_ms))).unwrap();
            let bytes = bytes.to_vec();
            expected.push(Line { key: bytes.clone(), value: bytes.clone(), metadata: bytes, expiry_ms });
        }
        let text = out.into_inner().unwrap();
        assert_eq!(read(&text), Ok(expected), "{}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn columns_stand_in_any_order_and_those_that_say_nothing_may_be_missing() {
        let line = |key: &[u8], value: &[u8], expiry_ms| Line {
            key: key.to_vec(),
            value: value.to_vec(),
            metadata: Vec::new(),
            expiry_ms,
        };
        assert_eq!(read(b"value,key\nb,a\n"), Ok(vec![line(b"a", b"b", 0)]));
        let mixed = b"key_base64,expiry_ms,value,value_base64\nYQ==,5,,Yg==\n,,c,\n";
        assert_eq!(read(mixed), Ok(vec![line(b"a", b"b", 5), line(b"", b"c", 0)]));
    }

    #[test]
    fn a_wrong_row_says_what_is_wrong() {
        let cases: [(&[u8], &str); 8] = [
            (b"key,valeu\n", "\"valeu\" is no column"),
            (b"key,value,key\n", "\"key\" stands there twice"),
            (b"value\n", "has no key"),
            (b"key,metadata\n", "has no value"),
            (b"key,value,expiry_ms\na,b,-1\n", "expiry_ms = \"-1\""),
            (b"key,value_base64\na,?\n", "value_base64 is no base64"),
            (b"key,value,value_base64\na,b,Yg==\n", "both value and value_base64"),
            (b"key,value\na,\xff\n", "value is no UTF-8"),
        ];
        for (text, said) in cases {
            let wrong = read(text).unwrap_err();
            assert!(wrong.contains(said), "{said}: {wrong}");
        }
    }
}
