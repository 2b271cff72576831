//! The letters of JSON: quoted texts and digits, straight into what is written.

/// A text as JSON: with no more escapes than it needs.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    quote(&mut out, text);
    // It was a text, and so is what stands for its characters.
    String::from_utf8(out).unwrap_or_default()
}

/// The same, behind what is there.
pub(super) fn quote(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.push(b'"');
    // Most texts have none: one look without a branch for each byte.
    if bytes.iter().fold(false, |any, byte| any | is_escaped(*byte)) {
        escape(out, bytes);
    } else {
        out.extend_from_slice(bytes);
    }
    out.push(b'"');
}

const fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.split_inclusive(|byte| is_escaped(*byte)) {
        match piece.split_last() {
            Some((last, before)) if is_escaped(*last) => {
                out.extend_from_slice(before);
                match last {
                    b'"' => out.extend_from_slice(b"\\\""),
                    b'\\' => out.extend_from_slice(b"\\\\"),
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    b'\t' => out.extend_from_slice(b"\\t"),
                    control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
                }
            }
            _ => out.extend_from_slice(piece),
        }
    }
}

/// A number, behind what is there.
pub(super) fn digits(out: &mut Vec<u8>, mut number: u64) {
    let (mut text, mut first) = ([0_u8; 20], 20);
    for place in text.iter_mut().rev() {
        let [digit, ..] = (number % 10).to_le_bytes();
        *place = b'0' + digit;
        (number, first) = (number / 10, first - 1);
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(text.get(first..).unwrap_or_default());
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
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            let mut out = b"x".to_vec();
            digits(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{number}"));
        }
    }
}
