//! I-Regexp (RFC 9485): the one dialect of `match` and `search`, translated for the engine that runs it in linear time.
//!
//! ```text
//!   ( ) | * + ? {n} {n,} {n,m}   as everywhere, nothing greedy or lazy, no groups that are kept
//!   .                            anything but the ends of lines
//!   [a-z] [^a] \p{Lu} \P{L}      classes, without sets within sets
//! ```
//! Walk: [`translate`] reads a pattern once, by character, and says whether it is one · [`compile`] bounds what it may cost.
//! Deliberately absent: what the dialect leaves out: back references, look-around, `\d`, flags. Against its letter `^` at the
//! beginning of a branch and `$` at its end are anchors, as the published compliance suite has it; elsewhere they are themselves.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Groups within groups.
const NESTING_MAX: u32 = 100;
/// Digits of `{n,m}`, both together.
const DIGITS_MAX: u32 = 12;

/// Why there is nothing to match with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is no I-Regexp: then nothing matches (RFC 9535, 2.4.6).
    NotOne,
    /// It would take more memory than it may.
    TooLarge,
}

/// The engine's program for a pattern; `bytes_max` bounds the pattern, the program and what it works with.
pub(super) fn compile(pattern: &str, is_whole: bool, bytes_max: usize) -> Result<Regex, Refused> {
    if pattern.len() > bytes_max {
        return Err(Refused::TooLarge);
    }
    let translated = translate(pattern)?;
    let text = if is_whole { format!(r"\A(?:{translated})\z") } else { translated };
    let built = RegexBuilder::new(&text).size_limit(bytes_max).dfa_size_limit(bytes_max).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => Refused::TooLarge,
        // A range from high to low, {3,2}: they read like one and mean nothing.
        _ => Refused::NotOne,
    })
}

struct Reading<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    groups: u32,
    /// What stands before can be repeated.
    is_atom: bool,
    /// A branch begins here.
    is_start: bool,
}

/// The same in the engine's own dialect.
fn translate(pattern: &str) -> Result<String, Refused> {
    let mut reading = Reading {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        groups: 0,
        is_atom: false,
        is_start: true,
    };
    while let Some(character) = reading.rest.next() {
        reading.piece(character)?;
    }
    if reading.groups > 0 { Err(Refused::NotOne) } else { Ok(reading.out) }
}

impl Reading<'_> {
    fn piece(&mut self, character: char) -> Result<(), Refused> {
        let is_start = std::mem::replace(&mut self.is_start, false);
        let is_atom = std::mem::replace(&mut self.is_atom, true);
        match character {
            '(' => {
                self.groups += 1;
                if self.groups > NESTING_MAX {
                    return Err(Refused::TooLarge);
                }
                self.out.push_str("(?:");
                (self.is_atom, self.is_start) = (false, true);
            }
            ')' => {
                self.groups = self.groups.checked_sub(1).ok_or(Refused::NotOne)?;
                self.out.push(')');
            }
            '|' => {
                self.out.push('|');
                (self.is_atom, self.is_start) = (false, true);
            }
            '*' | '+' | '?' | '{' => {
                if !is_atom {
                    return Err(Refused::NotOne);
                }
                self.is_atom = false;
                self.out.push(character);
                if character == '{' {
                    return self.quantity();
                }
            }
            '.' => self.out.push_str("[^\\n\\r]"),
            '[' => return self.class(),
            '\\' => return self.escape(),
            ']' | '}' => return Err(Refused::NotOne),
            '^' if is_start => {
                self.out.push('^');
                (self.is_atom, self.is_start) = (false, true);
            }
            '$' if matches!(self.rest.peek(), None | Some('|' | ')')) => {
                self.out.push('$');
                self.is_atom = false;
            }
            other => lay(&mut self.out, other),
        }
        Ok(())
    }

    /// Behind `{`: a number, and perhaps a comma and another.
    fn quantity(&mut self) -> Result<(), Refused> {
        let mut digits = 0_u32;
        let mut commas = 0;
        for character in self.rest.by_ref() {
            match character {
                '0'..='9' => digits += 1,
                ',' if digits > 0 && commas == 0 => commas = 1,
                '}' if digits > 0 => {
                    self.out.push('}');
                    return if digits > DIGITS_MAX { Err(Refused::TooLarge) } else { Ok(()) };
                }
                _ => break,
            }
            self.out.push(character);
        }
        Err(Refused::NotOne)
    }

    /// Behind `\`, outside of a class.
    fn escape(&mut self) -> Result<(), Refused> {
        match self.rest.next() {
            Some(kind @ ('p' | 'P')) => self.category(kind),
            Some(character) => {
                lay(&mut self.out, escaped(character)?);
                Ok(())
            }
            None => Err(Refused::NotOne),
        }
    }

    /// Behind `\p`: a category of Unicode in braces.
    fn category(&mut self, kind: char) -> Result<(), Refused> {
        const MINORS: [(char, &str); 7] =
            [('L', "lmotu"), ('M', "cen"), ('N', "dlo"), ('P', "cdefios"), ('Z', "lps"), ('S', "ckmo"), ('C', "cfno")];
        if self.rest.next() != Some('{') {
            return Err(Refused::NotOne);
        }
        let major = self.rest.next().ok_or(Refused::NotOne)?;
        let (_, minors) = MINORS.iter().find(|(known, _)| *known == major).ok_or(Refused::NotOne)?;
        self.out.extend(['\\', kind, '{', major]);
        if let Some(minor) = self.rest.next_if(|minor| minors.contains(*minor)) {
            self.out.push(minor);
        }
        self.out.push('}');
        if self.rest.next() == Some('}') { Ok(()) } else { Err(Refused::NotOne) }
    }

    /// Behind `[`.
    fn class(&mut self) -> Result<(), Refused> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            match self.rest.next().ok_or(Refused::NotOne)? {
                ']' if !is_first => break,
                // It is itself at the beginning and at the end.
                '-' if is_first || self.rest.peek() == Some(&']') => lay(&mut self.out, '-'),
                '[' | ']' | '-' => return Err(Refused::NotOne),
                '\\' => match self.rest.next().ok_or(Refused::NotOne)? {
                    kind @ ('p' | 'P') => self.category(kind)?,
                    character => self.range(escaped(character)?)?,
                },
                character => self.range(character)?,
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// A character of a class, and perhaps a second one up to which it goes.
    fn range(&mut self, from: char) -> Result<(), Refused> {
        lay(&mut self.out, from);
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('-') || ahead.peek() == Some(&']') {
            return Ok(());
        }
        self.rest = ahead;
        self.out.push('-');
        match self.rest.next() {
            None | Some('[' | ']' | '-') => Err(Refused::NotOne),
            Some('\\') => {
                let to = escaped(self.rest.next().ok_or(Refused::NotOne)?)?;
                lay(&mut self.out, to);
                Ok(())
            }
            Some(to) => {
                lay(&mut self.out, to);
                Ok(())
            }
        }
    }
}

/// The character that is meant by this one behind a `\`.
const fn escaped(character: char) -> Result<char, Refused> {
    match character {
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        't' => Ok('\t'),
        '(' | ')' | '*' | '+' | '-' | '.' | '?' | '[' | '\\' | ']' | '^' | '{' | '|' | '}' => Ok(character),
        _ => Err(Refused::NotOne),
    }
}

/// A character that means itself.
fn lay(out: &mut String, character: char) {
    if character.is_ascii() && !character.is_ascii_alphanumeric() {
        out.push_str(&format!("\\x{{{:x}}}", u32::from(character)));
    } else {
        out.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern, true, 1 << 20).unwrap_or_else(|why| panic!("{pattern}: {why:?}")).is_match(text)
    }

    #[test]
    fn what_the_dialect_has_means_what_it_says() {
        let yes = [
            ("", ""),
            ("a.c", "a\u{2028}c"),
            ("(ab|c)*", "abcab"),
            ("()|x", ""),
            ("a{2}b{1,}c{0,2}", "aabbc"),
            ("[-a]+", "-a-"),
            ("[a-]+", "-a-"),
            ("[^-a]", "b"),
            ("[a-c.&&~~]+", "b.&~"),
            ("[\\]\\-\\\\]+", "]-\\"),
            ("[\\n-\\r]", "\u{b}"),
            ("\\p{Lu}\\P{Lu}[\\p{Nd}x]+", "Aa1x"),
            ("\\(\\)\\*\\+\\-\\.\\?\\[\\\\\\]\\^\\{\\|\\}", "()*+-.?[\\]^{|}"),
            ("^a|b$", "a"),
            ("a^b$c", "a^b$c"),
            ("#\"&~ <-/", "#\"&~ <-/"),
            ("äöü\u{1f600}+", "äöü\u{1f600}\u{1f600}"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a.c", "a\nc"), ("a.c", "a\rc"), ("a", "ab"), ("a", "ba"), ("a|b", "ab"), ("A", "a")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        assert!(compile("b|c", false, 1 << 20).unwrap().is_match("abd"));
        assert!(!compile("^b", false, 1 << 20).unwrap().is_match("ab"));
    }

    #[test]
    fn what_it_leaves_out_is_refused() {
        let refused = [
            "(",
            ")",
            "a)",
            "(a",
            "*",
            "a**",
            "a*?",
            "+a",
            "a{",
            "a{}",
            "a{,1}",
            "a{1,2",
            "a{1,2,3}",
            "a{x}",
            "{1}",
            "a{3,2}",
            "[",
            "[]",
            "[^]",
            "[a",
            "[]a]",
            "[a[b]]",
            "[a--b]",
            "[z-a]",
            "a]",
            "a}",
            "\\",
            "\\d",
            "\\w",
            "\\b",
            "\\1",
            "\\$",
            "\\p",
            "\\p{}",
            "\\p{Lx}",
            "\\p{Cs}",
            "\\p{L",
            "\\pL",
            "\\p{Greek}",
            "(?:a)",
            "(?i)a",
            "(?=a)",
            "(*)",
            "a|*",
            "^*",
            "[\\d]",
            "[a-\\d]",
            "[a-\\p{L}]",
        ];
        for pattern in refused {
            assert_eq!(compile(pattern, true, 1 << 20).unwrap_err(), Refused::NotOne, "{pattern}");
        }
    }

    #[test]
    fn what_would_take_too_much_is_refused() {
        let deep = |groups: usize| format!("{}{}", "(".repeat(groups), ")".repeat(groups));
        assert!(compile(&deep(100), true, 1 << 20).is_ok());
        for large in [deep(101), "(((a{100}){100}){100}){100}".to_owned(), "x".repeat((1 << 20) + 1)] {
            assert_eq!(compile(&large, true, 1 << 20).unwrap_err(), Refused::TooLarge);
        }
    }
}
