//! The letters of JSON: texts, quoted, straight into what is written.
//!
//! Walk: [`Letters::read`] looks at a text once: whether it is one, and whether it can be copied as it is · [`Letters::quote`].

use super::sheet::{Room, Sheet};

/// Few letters: most texts are no longer.
pub(super) const FEW: u8 = 32;
const FEW_BYTES: usize = FEW as usize;

/// A text, and whether each of its letters stands for itself between quotes. Most do.
#[derive(Clone, Copy)]
pub(super) struct Letters<'t> {
    /// Its bytes, and what stands behind them where they were read.
    whence: &'t [u8],
    many: usize,
    is_plain: bool,
}

impl PartialEq for Letters<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.bytes(), self.is_plain) == (other.bytes(), other.is_plain)
    }
}

impl std::fmt::Debug for Letters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letters").field("bytes", &self.bytes()).field("is_plain", &self.is_plain).finish()
    }
}

impl<'t> Letters<'t> {
    /// So many of these. None if they are no UTF-8.
    #[inline]
    pub(super) fn read(whence: &'t [u8], many: usize) -> Option<Self> {
        let bytes = whence.get(..many)?;
        // Of most a look at eight letters at a time says all.
        let is_plain = is_plain(bytes) || !std::str::from_utf8(bytes).ok()?.bytes().any(is_escaped);
        Some(Self { whence, many, is_plain })
    }

    /// So many of these, of which both is known.
    #[inline(always)]
    pub(super) const fn known(whence: &'t [u8], many: usize, is_plain: bool) -> Self {
        Self { whence, many, is_plain }
    }

    pub(super) const fn is_plain(self) -> bool {
        self.is_plain
    }

    pub(super) fn of(text: &'t str) -> Self {
        let bytes = text.as_bytes();
        let is_plain = is_plain(bytes) || !text.bytes().any(is_escaped);
        Self { whence: bytes, many: bytes.len(), is_plain }
    }

    /// They, and what stands behind them.
    pub(super) const fn whence(self) -> &'t [u8] {
        self.whence
    }

    /// As they are.
    pub(super) fn bytes(self) -> &'t [u8] {
        self.whence.get(..self.many).unwrap_or_default()
    }

    /// Puts them as they are, if they are few and other bytes stand behind them. Whether they were.
    #[inline(always)]
    pub(super) fn put(self, room: &mut Room<'_>) -> bool {
        match (self.whence.first_chunk::<FEW_BYTES>(), u8::try_from(self.many)) {
            (Some(block), Ok(many @ ..=FEW)) => {
                room.put(block, many);
                true
            }
            _ => false,
        }
    }

    /// As they stand between quotes, behind what is there: with no more escapes than it needs.
    pub(super) fn put_escaped(self, out: &mut Sheet) {
        if self.is_plain {
            out.put_all(self.bytes());
        } else {
            escape(out, self.bytes());
        }
    }

    /// As JSON, behind what is there.
    pub(super) fn quote(self, out: &mut Sheet) {
        out.put_all(b"\"");
        self.put_escaped(out);
        out.put_all(b"\"");
    }
}

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

/// Whether a byte of a text needs an escape; none of a letter beyond ASCII does.
const fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn escape(out: &mut Sheet, bytes: &[u8]) {
    for piece in bytes.split_inclusive(|byte| is_escaped(*byte)) {
        match piece.split_last() {
            Some((last, before)) if is_escaped(*last) => {
                out.put_all(before);
                match last {
                    b'"' => out.put_all(b"\\\""),
                    b'\\' => out.put_all(b"\\\\"),
                    b'\n' => out.put_all(b"\\n"),
                    b'\r' => out.put_all(b"\\r"),
                    b'\t' => out.put_all(b"\\t"),
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
    fn so_many_letters_of_what_is_known_are_a_text_whatever_stands_behind_them() {
        let all: Vec<u8> = (b'a'..=b'z').chain(b'A'..=b'Z').collect();
        for whence in 0..=all.len() {
            for many in 0..=whence {
                let letters = Letters::known(&all[..whence], many, true);
                assert_eq!(letters, Letters::of(std::str::from_utf8(&all[..many]).unwrap()));
                let (mut sheet, mut other) = (Sheet::default(), Sheet::default());
                let mut room = sheet.room();
                assert_eq!(letters.put(&mut room), whence >= 32 && many <= 32);
                let put = room.many();
                sheet.pass(put);
                letters.put_escaped(&mut other);
                assert!(put == 0 || sheet.written() == other.written(), "{many} of {whence}");
            }
            assert!(Letters::known(&all[..whence], whence + 1, true).bytes().is_empty());
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
        assert!(is_plain(b"") && Letters::read(b"\xff", 1).is_none() && Letters::read(b"", 1).is_none());
        // A letter beyond ASCII stands for itself, also where another one does not.
        for (text, expected) in [("é", true), ("é and 😀, plain", true), ("é\"", false), ("\né", false)] {
            let read = Letters::read(text.as_bytes(), text.len()).unwrap();
            assert_eq!((read.is_plain(), read), (expected, Letters::of(text)), "{text}");
        }
    }
}
