//! Rust source with comments or literals blanked, so that a rule can look for words without meeting prose.
//!
//! Walk: [`code`] keeps code only · [`code_and_strings`] keeps strings too · [`before_tests`] cuts the tests off ·
//! [`has_word`] and [`line_of`] look. Blanking keeps every line where it was.
//! Deliberately absent: a parser. The rules need words and lines, not a tree.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Code,
    Comment,
    Literal,
}

/// Comments and literals blanked.
pub(crate) fn code(text: &str) -> String {
    blank(text, |piece| piece == Piece::Code)
}

/// Comments blanked.
pub(crate) fn code_and_strings(text: &str) -> String {
    blank(text, |piece| piece != Piece::Comment)
}

/// The part before an inline test module; tests come last in a file.
pub(crate) fn before_tests(text: &str) -> &str {
    const MARK: &str = "#[cfg(test)]";
    for (at, _) in text.match_indices(MARK) {
        let (before, rest) = text.split_at(at);
        let item = rest.trim_start_matches(MARK);
        // `mod x;` only names a file, code may follow it.
        let opens = item.find('{').unwrap_or(item.len());
        let ends = item.find(';').unwrap_or(item.len());
        let (head, _) = item.split_at(opens.min(ends));
        if opens < ends && has_word(head, "mod") {
            return before;
        }
    }
    text
}

/// Whether the word stands alone somewhere: `unsafe` is no part of `unsafe_code`.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.split(|c| !is_name(c)).any(|found| found == word)
}

/// The line, counted from 1, of the byte at `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

fn blank(text: &str, keep: impl Fn(Piece) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, bytes) = first_piece(rest);
        let (taken, left) = rest.split_at(bytes);
        if keep(piece) {
            out.push_str(taken);
        } else {
            out.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = left;
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What the text begins with, and its length in bytes, at least one character.
fn first_piece(text: &str) -> (Piece, usize) {
    let name_bytes = text.find(|c| !is_name(c)).unwrap_or(text.len());
    if name_bytes > 0 {
        let (name, rest) = text.split_at(name_bytes);
        return match raw_string_bytes(rest) {
            Some(bytes) if matches!(name, "r" | "br" | "cr") => (Piece::Literal, name_bytes + bytes),
            _ => (Piece::Code, name_bytes),
        };
    }
    if text.starts_with("//") {
        return (Piece::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Piece::Comment, block_comment_bytes(text));
    }
    match text.chars().next() {
        Some('"') => (Piece::Literal, quoted_bytes(text, '"')),
        Some('\'') => match char_literal_bytes(text) {
            Some(bytes) => (Piece::Literal, bytes),
            None => (Piece::Code, 1), // a lifetime
        },
        Some(c) => (Piece::Code, c.len_utf8()),
        None => (Piece::Code, 0),
    }
}

/// After `r`: hashes, a quote, anything, a quote, as many hashes.
fn raw_string_bytes(text: &str) -> Option<usize> {
    let body = text.trim_start_matches('#');
    let hashes = text.len() - body.len();
    let inside = body.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&close).map_or(inside.len(), |at| at + close.len());
    Some(hashes + 1 + end)
}

/// Block comments nest.
fn block_comment_bytes(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut bytes = 0;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let step = if rest.starts_with("/*") {
            depth += 1;
            2
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            2
        } else {
            c.len_utf8()
        };
        bytes += step;
        if depth == 0 {
            break;
        }
        (_, rest) = rest.split_at(step);
    }
    bytes
}

/// From the opening quote to the closing one, a backslash shielding the character after it.
fn quoted_bytes(text: &str, quote: char) -> usize {
    let mut shielded = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if shielded => shielded = false,
            '\\' => shielded = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn char_literal_bytes(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => Some(quoted_bytes(text, '\'')),
        Some(_) => match chars.next() {
            Some((at, '\'')) => Some(at + 1),
            _ => None,
        },
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let table = [
            ("a // b", "a     "),
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("f(\"b\\\"c\") d", "f(      ) d"),
            ("r\"b\\\" c", "      c"),
            ("r#\"a\"b\"# c", "         c"),
            ("br##\"a\"#\"## c", "            c"),
            ("r#type x", "r#type x"),
            ("'a' '\\'' b", "         b"),
            ("&'a str 'b'", "&'a str    "),
            ("'\"' x \"y\"", "    x    "),
            ("\"// no\" x", "        x"),
            ("é \"ü\"", "é    "),
            ("\"a\nb\" c", "  \n   c"),
            ("/* open", "       "),
            ("\"open", "     "),
        ];
        for (text, expected) in table {
            assert_eq!(code(text), expected, "of {text}");
        }
    }

    #[test]
    fn strings_stay_where_they_are_wanted() {
        assert_eq!(code_and_strings("f(\"a\") // \"b\""), "f(\"a\")       ");
    }

    #[test]
    fn a_word_stands_alone() {
        assert!(has_word("unsafe { }", "unsafe"));
        assert!(has_word("#[unsafe(no_mangle)]", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(!has_word("not_unsafe", "unsafe"));
    }

    #[test]
    fn tests_are_cut_off_but_a_named_file_is_not_the_end() {
        assert_eq!(before_tests("a\n#[cfg(test)]\nmod tests {\n b }"), "a\n");
        assert_eq!(before_tests("a\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n b }"), "a\n");
        let named = "#[cfg(test)]\nmod a_test;\nfn b() {}";
        assert_eq!(before_tests(named), named);
        let function = "#[cfg(test)]\nfn only() {}\nfn b() {}";
        assert_eq!(before_tests(function), function);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!(line_of("ab\ncd", 0), 1);
        assert_eq!(line_of("ab\ncd", 2), 1);
        assert_eq!(line_of("ab\ncd", 3), 2);
    }
}
