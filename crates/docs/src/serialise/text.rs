//! The letters of JSON: texts, quoted, straight into what is written.
//!
//! Walk: [`Letters::read`] looks at a text once: whether it is one, and whether it can be copied as it is · [`Letters::quote`].

use super::sheet::Sheet;

/// A text, and whether each character of it is ASCII and stands for itself between quotes. Most are.
#[derive(Clone, Copy)]
pub(super) struct Letters<'t> {
    bytes: &'t [u8],
    /// The same bytes, and what stands behind them where they were read.
    whence: &'t [u8],
    is_plain: bool,
}

impl PartialEq for Letters<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.bytes, self.is_plain) == (other.bytes, other.is_plain)
    }
}

impl std::fmt::Debug for Letters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letters").field("bytes", &self.bytes).field("is_plain", &self.is_plain).finish()
    }
}

impl<'t> Letters<'t> {
    pub(super) const NONE: Letters<'static> = Letters { bytes: &[], whence: &[], is_plain: true };

    /// None if it is no UTF-8.
    #[inline]
    pub(super) fn read(bytes: &'t [u8]) -> Option<Self> {
        let is_plain = is_plain(bytes);
        (is_plain || std::str::from_utf8(bytes).is_ok()).then_some(Self { bytes, whence: bytes, is_plain })
    }

    /// So many of these, of which both is known.
    #[inline]
    pub(super) fn known(whence: &'t [u8], many: usize, is_plain: bool) -> Option<Self> {
        Some(Self { bytes: whence.get(..many)?, whence, is_plain })
    }

    pub(super) const fn is_plain(self) -> bool {
        self.is_plain
    }

    pub(super) fn of(text: &'t str) -> Self {
        Self { bytes: text.as_bytes(), whence: text.as_bytes(), is_plain: is_plain(text.as_bytes()) }
    }

    /// As they are.
    pub(super) const fn bytes(self) -> &'t [u8] {
        self.bytes
    }

    /// Behind what is there, as they are.
    #[inline]
    pub(super) fn put(self, out: &mut Sheet) {
        out.put_first::<TEXT_BLOCK_BYTES>(self.whence, self.bytes.len());
    }

    /// As JSON, behind what is there: with no more escapes than it needs.
    #[inline]
    pub(super) fn quote(self, out: &mut Sheet) {
        out.put(b"\"");
        if self.is_plain || !self.bytes.iter().any(|byte| is_escaped(*byte)) {
            self.put(out);
        } else {
            escape(out, self.bytes);
        }
        out.put(b"\"");
    }
}

/// Most texts are no longer.
const TEXT_BLOCK_BYTES: usize = 32;

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Sheet::with_room(text.len() + 2);
    Letters::of(text).quote(&mut out);
    // It was a text, and so is what stands for its characters.
    String::from_utf8(out.taken()).unwrap_or_default()
}

/// Whether each byte is ASCII and needs no escape, eight at a time.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let last = rest.iter().fold(every(b' '), |word, byte| word << 8 | u64::from(*byte));
    words.iter().fold(not_plain(last), |any, word| any | not_plain(u64::from_le_bytes(*word))) == 0
}

/// A bit where one of eight bytes is not ASCII, below a blank, a quote or a backslash; none if there is none.
const fn not_plain(word: u64) -> u64 {
    let quotes = word ^ every(b'"');
    let slashes = word ^ every(b'\\');
    // A byte less a larger one borrows, which sets its highest bit.
    let low = word.wrapping_sub(every(b' ')) & !word;
    let escapes = (quotes.wrapping_sub(every(1)) & !quotes) | (slashes.wrapping_sub(every(1)) & !slashes);
    (word | low | escapes) & every(0x80)
}

/// Eight of a byte.
const fn every(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

const fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn escape(out: &mut Sheet, bytes: &[u8]) {
    for piece in bytes.split_inclusive(|byte| is_escaped(*byte)) {
        match piece.split_last() {
            Some((last, before)) if is_escaped(*last) => {
                out.put_all(before);
                match last {
                    b'"' => out.put(b"\\\""),
                    b'\\' => out.put(b"\\\\"),
                    b'\n' => out.put(b"\\n"),
                    b'\r' => out.put(b"\\r"),
                    b'\t' => out.put(b"\\t"),
                    control => out.put_all(format!("\\u{control:04x}").as_bytes()),
                }
            }
            _ => out.put_all(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_are_escaped_only_where_they_must() {
        let every: String = (0..0x300).filter_map(char::from_u32).chain(['\u{2028}', '\u{ffff}', '😀']).collect();
        let mut texts = vec![every.clone(), String::new(), "\"".into(), "a\"".into(), "\\a".into(), "plain é".into()];
        texts.extend(every.chars().map(|one| format!("ab{one}cd{one}")));
        for text in texts {
            let laid = quoted(&text);
            assert_eq!(serde_json::from_str::<String>(&laid).unwrap(), text);
            let escapes = text.chars().filter(|one| *one < ' ' || "\"\\".contains(*one)).count();
            assert_eq!(laid.matches('\\').count() - text.matches('\\').count(), escapes, "{laid}");
        }
        assert_eq!(quoted("\u{1}\u{1f}\n\u{7f}"), "\"\\u0001\\u001f\\n\u{7f}\"");
    }

    #[test]
    fn so_many_letters_of_what_is_known_are_a_text_and_more_than_there_are_none() {
        let all: Vec<u8> = (b'a'..=b'z').chain(b'A'..=b'Z').collect();
        for whence in 0..=all.len() {
            for many in 0..=whence {
                let letters = Letters::known(&all[..whence], many, true).unwrap();
                assert_eq!(letters, Letters::of(std::str::from_utf8(&all[..many]).unwrap()));
            }
            assert!(Letters::known(&all[..whence], whence + 1, true).is_none());
        }
    }

    #[test]
    fn a_text_is_plain_if_each_byte_of_it_is_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for (length, at) in (1..20).flat_map(|length| (0..length).map(move |at| (length, at))) {
                let mut text = vec![b'~'; length];
                text[at] = byte;
                let expected = byte.is_ascii() && !is_escaped(byte);
                assert_eq!(is_plain(&text), expected, "{byte:#x} at {at} of {length}");
            }
        }
        assert!(is_plain(b"") && Letters::read(b"\xff").is_none() && Letters::read("é".as_bytes()).is_some());
    }
}
