//! Reading a query: RFC 9535, section 2, to the letter, in one walk from left to right.
//!
//! Walk: [`parse`] · segments · selectors · a filter is `||` over `&&` over what holds or does not · functions and their types.
//! Deliberately absent: deep recursion: filters, parentheses and calls within each other are counted.

use crate::DocsError;
use crate::edit::is_number;
use crate::error::within;
use crate::jsonpath::syntax::{Logic, Operand, Query, Relation, Segment, Selector, Slice};
use crate::record::length;

/// The longest query.
pub(super) const QUERY_BYTES_MAX: u64 = 64 << 10;
/// Filters, parentheses and calls within each other.
pub(super) const NESTING_MAX: u32 = 64;
/// Whole numbers of a query lie between this and its negative (RFC 9535, 2.1: the range of I-JSON).
const WHOLE_MAX: u64 = (1 << 53) - 1;

/// Reads a query.
pub(super) fn parse(text: &str) -> Result<Query, DocsError> {
    within("a query", length(text.as_bytes()), QUERY_BYTES_MAX)?;
    let mut parser = Parser { text, at: 0, nesting: 0 };
    if !parser.eat("$") {
        return Err(parser.wrong("a query begins with $"));
    }
    let segments = parser.segments()?;
    if !parser.rest().is_empty() {
        return Err(parser.wrong("a segment is expected here: .name, [selectors] or ..; or the end"));
    }
    Ok(Query { is_absolute: true, segments })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    nesting: u32,
}

/// What a call gives.
enum Called {
    Value(Operand),
    Logic(Logic),
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, token: &str) -> bool {
        let is_there = self.rest().starts_with(token);
        if is_there {
            self.at += token.len();
        }
        is_there
    }

    /// The longest beginning of what is left whose characters are like this.
    fn take(&mut self, is_one: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|character| !is_one(character)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.take(|character| matches!(character, ' ' | '\t' | '\n' | '\r'));
    }

    /// Blanks and this behind them; neither, if it is not there.
    fn eat_behind_blanks(&mut self, token: &str) -> bool {
        let before = self.at;
        self.blanks();
        let is_there = self.eat(token);
        if !is_there {
            self.at = before;
        }
        is_there
    }

    fn expect(&mut self, token: &str, what: &str) -> Result<(), DocsError> {
        if self.eat(token) { Ok(()) } else { Err(self.wrong(what)) }
    }

    fn wrong(&self, what: &str) -> DocsError {
        self.wrong_at(self.at, what)
    }

    fn wrong_at(&self, at: usize, what: &str) -> DocsError {
        let before = self.text.get(..at).unwrap_or(self.text);
        DocsError::Query { at: before.chars().count() + 1, what: what.to_owned() }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DocsError>) -> Result<T, DocsError> {
        self.nesting += 1;
        within("nesting within a query", self.nesting.into(), NESTING_MAX.into())?;
        let read = read(self)?;
        self.nesting -= 1;
        Ok(read)
    }

    fn segments(&mut self) -> Result<Vec<Segment>, DocsError> {
        let mut segments = Vec::new();
        loop {
            let before = self.at;
            self.blanks();
            let descends = self.eat("..");
            let selectors = if self.peek() == Some('[') {
                self.bracketed()?
            } else if descends || self.eat(".") {
                vec![self.shorthand()?]
            } else {
                self.at = before;
                return Ok(segments);
            };
            segments.push(Segment { descends, selectors });
        }
    }

    /// Behind a dot: a name without quotes, or `*`.
    fn shorthand(&mut self) -> Result<Selector, DocsError> {
        if self.eat("*") {
            return Ok(Selector::Wildcard);
        }
        let is_first = |character: char| character.is_ascii_alphabetic() || character == '_' || !character.is_ascii();
        if !self.peek().is_some_and(is_first) {
            return Err(self.wrong("a name or * is expected here; any other name goes as ['name']"));
        }
        Ok(Selector::Name(self.take(|character| is_first(character) || character.is_ascii_digit()).to_owned()))
    }

    fn bracketed(&mut self) -> Result<Vec<Selector>, DocsError> {
        self.expect("[", "[ is expected here")?;
        let mut selectors = Vec::new();
        loop {
            self.blanks();
            selectors.push(self.selector()?);
            self.blanks();
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]", ", or ] is expected here")?;
        Ok(selectors)
    }

    fn selector(&mut self) -> Result<Selector, DocsError> {
        match self.peek() {
            Some('\'' | '"') => Ok(Selector::Name(self.string()?)),
            Some('?') => {
                self.at += 1;
                self.blanks();
                Ok(Selector::Filter(self.deeper(Self::logic)?))
            }
            _ if self.eat("*") => Ok(Selector::Wildcard),
            Some(':' | '-' | '0'..='9') => self.index_or_slice(),
            _ => Err(self.wrong("a selector is expected here: 'name', *, an index, from:to:step or ?filter")),
        }
    }

    fn index_or_slice(&mut self) -> Result<Selector, DocsError> {
        let start = self.whole()?;
        if let Some(index) = start
            && !self.eat_behind_blanks(":")
        {
            return Ok(Selector::Index(index));
        }
        if start.is_none() {
            self.expect(":", ": is expected here")?;
        }
        self.blanks();
        let end = self.whole()?;
        let mut step = 1;
        if self.eat_behind_blanks(":") {
            self.blanks();
            step = self.whole()?.unwrap_or(1);
        }
        Ok(Selector::Slice(Slice { start, end, step }))
    }

    /// A whole number, if there is one.
    fn whole(&mut self) -> Result<Option<i64>, DocsError> {
        let at = self.at;
        let text = self.take(|character| character == '-' || character.is_ascii_digit());
        if text.is_empty() {
            return Ok(None);
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || digits.contains('-') || (digits.starts_with('0') && text != "0") {
            return Err(self.wrong_at(at, "a whole number is expected here, without a 0 in front"));
        }
        let number = text.parse::<i64>().ok().filter(|number| number.unsigned_abs() <= WHOLE_MAX);
        number.map(Some).ok_or_else(|| self.wrong_at(at, "the number is beyond 9007199254740991"))
    }

    fn string(&mut self) -> Result<String, DocsError> {
        let begin = self.at;
        let quote = if self.eat("'") { '\'' } else { '"' };
        if quote == '"' {
            self.expect("\"", "a text in quotes is expected here")?;
        }
        let mut text = String::new();
        loop {
            text.push_str(self.take(|character| character != quote && character != '\\' && character >= ' '));
            match self.peek() {
                None => return Err(self.wrong_at(begin, "the text that begins here does not end")),
                Some('\\') => text.push(self.escape(quote)?),
                Some(character) if character == quote => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(_) => return Err(self.wrong("a control character within a text is written as an escape: \\u000a")),
            }
        }
    }

    fn escape(&mut self, quote: char) -> Result<char, DocsError> {
        let at = self.at;
        self.at += 1;
        let Some(character) = self.peek() else {
            return Err(self.wrong("an escape is not finished"));
        };
        self.at += character.len_utf8();
        match character {
            'b' => Ok('\u{8}'),
            'f' => Ok('\u{c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            '/' | '\\' => Ok(character),
            _ if character == quote => Ok(quote),
            'u' => self.unicode(at),
            _ => Err(self.wrong_at(at, "there is no such escape in these quotes")),
        }
    }

    /// Behind `\u`.
    fn unicode(&mut self, at: usize) -> Result<char, DocsError> {
        let high = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high)
                .ok_or_else(|| self.wrong_at(at, "a low surrogate without a high one before it"));
        }
        let low = if self.eat("\\u") { self.four_digits()? } else { 0 };
        let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400);
        let character = low.and_then(|low| char::from_u32(0x10000 + ((high - 0xd800) << 10) + low));
        character.ok_or_else(|| self.wrong_at(at, "a high surrogate without a low one behind it"))
    }

    fn four_digits(&mut self) -> Result<u32, DocsError> {
        let digits = self.rest().get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| self.wrong("four hexadecimal digits are expected here"))?;
        self.at += 4;
        Ok(number)
    }

    fn logic(&mut self) -> Result<Logic, DocsError> {
        let mut any = vec![self.conjunction()?];
        while self.eat_behind_blanks("||") {
            self.blanks();
            any.push(self.conjunction()?);
        }
        Ok(one_or(any, Logic::Any))
    }

    fn conjunction(&mut self) -> Result<Logic, DocsError> {
        let mut all = vec![self.basic()?];
        while self.eat_behind_blanks("&&") {
            self.blanks();
            all.push(self.basic()?);
        }
        Ok(one_or(all, Logic::All))
    }

    fn basic(&mut self) -> Result<Logic, DocsError> {
        if self.eat("!") {
            self.blanks();
            let at = self.at;
            let held = match self.peek() {
                Some('(') => self.parenthesis()?,
                Some('$' | '@') => Logic::Exists(self.query()?),
                _ => match self.call_or_literal()? {
                    Called::Logic(logic) => logic,
                    Called::Value(_) => return Err(self.wrong_at(at, "! is put before a query, match, search or (")),
                },
            };
            return Ok(Logic::Not(Box::new(held)));
        }
        let at = self.at;
        let left = match self.peek() {
            Some('(') => return self.parenthesis(),
            Some('$' | '@') => {
                let query = self.query()?;
                match self.relation() {
                    None => return Ok(Logic::Exists(query)),
                    Some(relation) => return self.comparison(at, Operand::Node(query), relation),
                }
            }
            _ => self.call_or_literal()?,
        };
        match (left, self.relation()) {
            (Called::Value(left), Some(relation)) => self.comparison(at, left, relation),
            (Called::Value(_), None) => Err(self.wrong_at(at, "a value alone is no test: compare it")),
            (Called::Logic(logic), None) => Ok(logic),
            (Called::Logic(_), Some(_)) => {
                Err(self.wrong_at(at, "match and search are no values: they cannot be compared"))
            }
        }
    }

    fn parenthesis(&mut self) -> Result<Logic, DocsError> {
        self.deeper(|parser| {
            parser.expect("(", "( is expected here")?;
            parser.blanks();
            let logic = parser.logic()?;
            parser.blanks();
            parser.expect(")", "), && or || is expected here")?;
            Ok(logic)
        })
    }

    fn relation(&mut self) -> Option<Relation> {
        const RELATIONS: [(&str, Relation); 6] = [
            ("==", Relation::Equal),
            ("!=", Relation::NotEqual),
            ("<=", Relation::LessOrEqual),
            (">=", Relation::GreaterOrEqual),
            ("<", Relation::Less),
            (">", Relation::Greater),
        ];
        RELATIONS.into_iter().find(|(token, _)| self.eat_behind_blanks(token)).map(|(_, relation)| relation)
    }

    fn comparison(&mut self, at: usize, left: Operand, relation: Relation) -> Result<Logic, DocsError> {
        self.check_singular(at, &left)?;
        self.blanks();
        Ok(Logic::Compare(left, relation, self.operand()?))
    }

    fn check_singular(&self, at: usize, operand: &Operand) -> Result<(), DocsError> {
        match operand {
            Operand::Node(query) if !query.is_singular() => {
                Err(self.wrong_at(at, "only a query of names and indices has one value; others may have many"))
            }
            _ => Ok(()),
        }
    }

    /// A value: of a query, of a call, or itself.
    fn operand(&mut self) -> Result<Operand, DocsError> {
        let at = self.at;
        if matches!(self.peek(), Some('$' | '@')) {
            let operand = Operand::Node(self.query()?);
            self.check_singular(at, &operand)?;
            return Ok(operand);
        }
        match self.call_or_literal()? {
            Called::Value(operand) => Ok(operand),
            Called::Logic(_) => Err(self.wrong_at(at, "match and search are no values")),
        }
    }

    fn query(&mut self) -> Result<Query, DocsError> {
        let is_absolute = self.eat("$");
        if !is_absolute {
            self.expect("@", "a query is expected here: it begins with @ or $")?;
        }
        Ok(Query { is_absolute, segments: self.segments()? })
    }

    fn call_or_literal(&mut self) -> Result<Called, DocsError> {
        let at = self.at;
        match self.peek() {
            Some('\'' | '"') => return Ok(Called::Value(Operand::Text(self.string()?))),
            Some('-' | '0'..='9') => {
                let text = self
                    .take(|character| matches!(character, '-' | '+' | '.' | 'e' | 'E') || character.is_ascii_digit());
                if !is_number(text) {
                    return Err(self.wrong_at(at, "this is no number as JSON writes them"));
                }
                return Ok(Called::Value(Operand::Number(text.to_owned())));
            }
            _ => {}
        }
        let word =
            self.take(|character| character.is_ascii_lowercase() || character == '_' || character.is_ascii_digit());
        let literal = match word {
            "true" => Operand::Bool(true),
            "false" => Operand::Bool(false),
            "null" => Operand::Null,
            _ => return self.deeper(|parser| parser.call(at, word)),
        };
        Ok(Called::Value(literal))
    }

    fn call(&mut self, at: usize, function: &str) -> Result<Called, DocsError> {
        if !self.rest().starts_with('(') {
            let what = "a value, a query, a call or ( is expected here";
            return Err(self.wrong_at(if function.is_empty() { self.at } else { at }, what));
        }
        self.at += 1;
        self.blanks();
        let called = match function {
            "length" => Called::Value(Operand::Length(Box::new(self.operand()?))),
            "count" => Called::Value(Operand::Count(self.query()?)),
            "value" => Called::Value(Operand::Value(self.query()?)),
            "match" | "search" => {
                let text = self.operand()?;
                self.blanks();
                self.expect(",", "a comma and a second argument are expected here")?;
                self.blanks();
                let pattern = self.operand()?;
                Called::Logic(Logic::Match { text, pattern, is_whole: function == "match" })
            }
            _ => {
                return Err(
                    self.wrong_at(at, "there is no such function: length, count, match, search and value are known")
                );
            }
        };
        self.blanks();
        self.expect(")", ") is expected here")?;
        Ok(called)
    }
}

/// One alone, or all of them together.
fn one_or(mut all: Vec<Logic>, together: impl FnOnce(Vec<Logic>) -> Logic) -> Logic {
    match all.pop() {
        Some(only) if all.is_empty() => only,
        Some(last) => {
            all.push(last);
            together(all)
        }
        None => together(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("", "character 1: a query begins with $"),
            (" $", "character 1: a query begins"),
            ("$ ", "character 2: a segment is expected"),
            ("$.", "character 3: a name or *"),
            ("$..", "character 4: a name or *"),
            ("$.äé[", "character 6: a selector is expected"),
            ("$[1", "character 4: , or ] is expected"),
            ("$[01]", "character 3: a whole number"),
            ("$[-0]", "character 3: a whole number"),
            ("$[9007199254740992]", "character 3: the number is beyond"),
            ("$['ab", "character 3: the text that begins here does not end"),
            ("$['\\x']", "character 4: there is no such escape"),
            ("$['\\ud800']", "character 4: a high surrogate"),
            ("$['\\udc00']", "character 4: a low surrogate"),
            ("$['\\u00g0']", "character 6: four hexadecimal"),
            ("$['\n']", "character 4: a control character"),
            ("$[?@.a==]", "character 9: a value, a query, a call or ("),
            ("$[?@.a==1.]", "character 9: this is no number"),
            ("$[?1]", "character 4: a value alone is no test"),
            ("$[?@.*==1]", "character 4: only a query of names and indices"),
            ("$[?1==@.*]", "character 7: only a query of names and indices"),
            ("$[?length(@.*)==1]", "character 11: only a query of names and indices"),
            ("$[?length(@)]", "character 4: a value alone is no test"),
            ("$[?count(1)==1]", "character 10: a query is expected"),
            ("$[?match(@,'a')==true]", "character 4: match and search are no values"),
            ("$[?!length(@)]", "character 5: ! is put before"),
            ("$[?!@.a==1]", "character 8: , or ] is expected"),
            ("$[?size(@)==1]", "character 4: there is no such function"),
            ("$[?match(@)]", "character 11: a comma and a second"),
            ("$[?(@.a]", "character 8: ), && or ||"),
        ];
        for (text, said) in cases {
            let error = refused(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn nesting_is_counted_and_length_is_bounded() {
        let nested = |depth: usize| format!("$[?{}@{}]", "(".repeat(depth), ")".repeat(depth));
        assert!(parse(&nested(63)).is_ok(), "and the filter itself");
        assert_eq!(refused(&nested(64)), "nesting within a query of 65; at most 64 is taken");
        for (open, close) in [("[?@", "]"), ("[?!(@.a||@.b", ")]"), ("[?length(length(@", "))==1]")] {
            assert!(refused(&format!("${}{}", open.repeat(1000), close.repeat(1000))).contains("nesting"), "{open}");
        }
        // Side by side is not within each other.
        let wide = format!("$[?{}@.a]", "(@.a)||".repeat(1000));
        assert!(parse(&wide).is_ok());
        let long = |bytes: usize| format!("$.{}", "a".repeat(bytes - 2));
        assert!(parse(&long(64 << 10)).is_ok());
        assert_eq!(refused(&long((64 << 10) + 1)), "a query of 65537; at most 65536 is taken");
    }
}
