//! Keys as people write them, and ranges of them.

use super::options::{Naming, Range};
use crate::failure::Failure;

/// The bytes of a key on the command line.
pub(super) fn parse(text: &str, naming: &Naming) -> Result<Vec<u8>, Failure> {
    if !naming.hex {
        return Ok(text.as_bytes().to_vec());
    }
    let wrong = || Failure::invalid(format!("key {text:?} is not hexadecimal: write two digits a byte"));
    // A sign is a digit to `from_str_radix`.
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    text.as_bytes()
        .chunks(2)
        .map(|digits| {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            u8::from_str_radix(digits, 16).map_err(|_| wrong())
        })
        .collect()
}

/// A key for people.
pub(super) fn show(key: &[u8], hex: bool) -> String {
    if hex {
        return key.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    String::from_utf8_lossy(key).into_owned()
}

/// From this key on, up to one that is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
}

/// The range that was asked for; all keys if none was.
pub(super) fn span(range: &Range, naming: &Naming) -> Result<Span, Failure> {
    if let Some(prefix) = &range.prefix {
        let from = parse(prefix, naming)?;
        return Ok(Span { to: behind(&from), from });
    }
    let parsed = |text: &Option<String>| text.as_deref().map(|text| parse(text, naming)).transpose();
    Ok(Span { from: parsed(&range.from)?.unwrap_or_default(), to: parsed(&range.to)? })
}

/// The first key that does not begin with this, if there is one.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_no_key_begins_with_it_any_more() {
        assert_eq!(behind(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind(&[1, 255, 255]), Some(vec![2]));
        assert_eq!((behind(&[255, 255]), behind(b"")), (None, None));
    }

    #[test]
    fn hexadecimal_keys_are_bytes_and_nonsense_is_named() {
        let naming = |hex| Naming { keyspace: "0".to_owned(), hex };
        assert_eq!(parse("00fF", &naming(true)).unwrap(), [0, 255]);
        assert_eq!(parse("00ff", &naming(false)).unwrap(), b"00ff");
        assert_eq!((show(&[0, 255], true), show(b"key", false)), ("00ff".to_owned(), "key".to_owned()));
        for text in ["0", "zz", "+1", "ä"] {
            assert!(parse(text, &naming(true)).unwrap_err().message.contains(&format!("{text:?}")), "{text}");
        }
    }
}
