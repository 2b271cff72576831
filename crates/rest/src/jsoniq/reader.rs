//! A query read from left to right: each rule takes what it knows, or leaves the place as it was.
//!
//! Walk: [`Reader::query`] the client's functions, then one of the forms · [`Reader::source`], [`Reader::value`] the parts ·
//! [`Reader::unknown`] names the word at which nothing fits any more, the furthest that was reached.

use assent_kind::Kind;
use axum::http::StatusCode;
use serde::de::IgnoredAny;

use super::{Past, Query, Shift, Shown, Source, Step, Which};
use crate::problem::Problem;

/// Steps of a root, and fields of a projection.
const PARTS_MAX: usize = 256;

const MATCH: &str = "declare function local:q($i, $q) {let $m := for $k in jn:keys($q) return if (not(empty($i=>$k))) then \
                     deep-equal($i=>$k, $q=>$k) else false() return empty(index-of($m, false()))};";
const UPSERT: &str = "declare %updating function local:upsert-fields($r, $u) {for $key in bit:fields($u) return if \
                      (empty($r=>$key)) then insert json $u into $r else replace json value of $r=>$key with $u=>$key};";
const UPDATE: &str = "declare %updating function local:update-fields($r, $u) {for $key in bit:fields($u) return replace json \
                      value of $r=>$key with $u=>$key};";
const TOLD: &str = "{\"revisionNumber\": sdb:revision($rev), \"revisionTimestamp\": xs:string(sdb:timestamp($rev))}";

pub(super) struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// The furthest place at which something did not fit.
    furthest: usize,
}

type Read<T> = Result<T, Problem>;

impl<'t> Reader<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, at: 0, furthest: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Takes these characters, whatever blanks are between them; or nothing.
    fn eat(&mut self, expected: &str) -> bool {
        let before = self.at;
        for wanted in expected.chars().filter(|it| !it.is_whitespace()) {
            self.blanks();
            if !self.rest().starts_with(wanted) {
                self.furthest = self.furthest.max(self.at);
                self.at = before;
                return false;
            }
            self.at += wanted.len_utf8();
        }
        true
    }

    fn need(&mut self, expected: &str) -> Read<()> {
        if self.eat(expected) { Ok(()) } else { Err(self.unknown()) }
    }

    /// Names the word at which it is not understood.
    fn unknown(&self) -> Problem {
        let place = self.furthest.max(self.at);
        let rest = self.text.get(place..).unwrap_or_default().trim_start();
        // The whole word, also where its beginning fitted.
        let is_part = |it: char| it.is_alphanumeric() || matches!(it, ':' | '-' | '_' | '$' | '%');
        let before = self.text.get(..place).unwrap_or_default();
        let begun = before.len() - before.trim_end_matches(is_part).len();
        let from = before.len() - if rest.starts_with(is_part) { begun } else { 0 };
        let word: String = self
            .text
            .get(from..)
            .unwrap_or_default()
            .trim_start()
            .chars()
            .take_while(|it| is_part(*it))
            .take(40)
            .collect();
        if word.is_empty() || word.starts_with('-') {
            let shown: String = rest.chars().take(20).collect();
            return Problem::invalid(format!("JSONiq: {shown:?} at byte {place} is not understood here"));
        }
        let what =
            if word.starts_with("xml") || word == "doc" || word == "fn:doc" { "XML" } else { "this part of JSONiq" };
        let detail = format!("JSONiq: {word:?} at byte {from}: {what} is not served; docs/operations.md lists what is");
        Problem::of(Kind::Invalid, detail).status(StatusCode::NOT_IMPLEMENTED)
    }

    pub(super) fn query(mut self) -> Read<Query> {
        while [MATCH, UPSERT, UPDATE].iter().any(|function| self.eat(function)) {}
        let query = self.what()?;
        self.blanks();
        if self.rest().is_empty() { Ok(query) } else { Err(self.unknown()) }
    }

    fn what(&mut self) -> Read<Query> {
        if self.eat("append json") {
            let value = self.parsed()?;
            self.need("into")?;
            return Ok(Query::Append { into: self.doc()?, value, each: false });
        }
        if self.eat("let $doc :=") {
            return self.doc_and();
        }
        if self.eat("let $rec :=") {
            let which = self.selected()?;
            self.need("return local:")?;
            return self.fields("$rec", which);
        }
        if self.eat("let $obj :=") {
            let which = self.selected()?;
            // The client names it one way and uses it another way.
            if !self.eat("let $update :=") {
                self.need("let $fields :=")?;
            }
            return self.delete_fields(which, "$obj");
        }
        if self.eat("let $records :=") {
            let which = self.matching()?;
            self.need("return $i let $fields :=")?;
            return self.delete_fields(which, "$records");
        }
        if self.eat("let $node :=") {
            return self.past();
        }
        if self.eat("sdb:item-history(") {
            let (node, key) = self.select()?;
            self.need(")")?;
            return Ok(Query::History { node, key, past: Past::Items });
        }
        let before = self.at;
        if self.eat("for $i in") {
            self.at = before;
            return self.find();
        }
        Ok(Query::Value(self.source()?))
    }

    /// Behind `let $doc := DOC`.
    fn doc_and(&mut self) -> Read<Query> {
        let doc = self.doc()?;
        if self.eat("let $m := for $i at $pos in $doc where local:q($i,") {
            let like = self.parsed()?;
            self.need(") return $pos - 1 for $i in $m order by $i descending return delete json $doc[[$i]]")?;
            return Ok(Query::DeleteRecords(Which::Like(doc, like)));
        }
        self.need("for $i in")?;
        let value = self.parsed()?;
        self.need("return append json $i into $doc")?;
        Ok(Query::Append { into: doc, value, each: true })
    }

    /// `for $i in FROM where local:q($i, VALUE)`
    fn matching(&mut self) -> Read<Which> {
        self.need("for $i in")?;
        let source = self.source()?;
        self.need("where local:q($i,")?;
        let like = self.parsed()?;
        self.need(")")?;
        Ok(Which::Like(source, like))
    }

    fn find(&mut self) -> Read<Query> {
        let which = self.matching()?;
        let shift = match () {
            () if self.eat("let $i := jn:first-existing($i)") => Shift::First,
            () if self.eat("let $i := jn:last-existing($i)") => Shift::Last,
            () => Shift::None,
        };
        self.need("return")?;
        if shift == Shift::None && self.eat("local:") {
            return self.fields("$i", which);
        }
        let mut shown = Shown::default();
        self.need("{$i")?;
        while self.eat(",") {
            match () {
                () if self.eat("'nodeKey': sdb:nodekey($i)") => shown.node_key = true,
                () if self.eat("'hash': sdb:hash($i)") => shown.hash = true,
                () => return Err(self.unknown()),
            }
        }
        self.need("}")?;
        if self.eat("{") {
            shown.fields = Some(self.projection()?);
        }
        Ok(Query::Find { which, shift, shown })
    }

    /// Names between commas, up to the brace. The client writes them as they are.
    fn projection(&mut self) -> Read<Vec<String>> {
        let mut fields = Vec::new();
        loop {
            self.blanks();
            let rest = self.rest();
            let name = rest.split([',', '}']).next().unwrap_or_default();
            if fields.len() == PARTS_MAX || name.len() == rest.len() {
                return Err(self.unknown());
            }
            self.at += name.len();
            let name = name.trim();
            if !name.is_empty() {
                fields.push(name.to_owned());
            }
            if self.eat("}") {
                return Ok(fields);
            }
            self.need(",")?;
        }
    }

    /// `upsert-fields($rec, VALUE)`
    fn fields(&mut self, of: &str, which: Which) -> Read<Query> {
        let upsert = match () {
            () if self.eat("upsert-fields(") => true,
            () if self.eat("update-fields(") => false,
            () => return Err(self.unknown()),
        };
        self.need(of)?;
        self.need(",")?;
        let fields = self.parsed()?;
        self.need(")")?;
        Ok(Query::Update { which, fields, upsert })
    }

    fn delete_fields(&mut self, which: Which, of: &str) -> Read<Query> {
        let list = self.parsed()?;
        let wrong = |_| Problem::invalid("JSONiq: the fields to delete are a list of names");
        let fields: Vec<String> = serde_json::from_str(&list).map_err(wrong)?;
        if !self.eat("for $i in $fields return delete json") {
            self.need("for $i in $update return delete json")?;
        }
        self.need(of)?;
        self.need("=>$i")?;
        Ok(Query::DeleteFields { which, fields })
    }

    fn past(&mut self) -> Read<Query> {
        let (node, key) = self.select()?;
        self.need("let $result := for $rev in jn:all-times($node) return if (not(exists(jn:previous($rev)))) then")?;
        let past = if self.eat(TOLD) { Past::Revisions } else { Past::Values };
        let shown = if past == Past::Revisions { TOLD } else { "$rev" };
        if past == Past::Values {
            self.need(shown)?;
        }
        self.need("else if (sdb:hash($rev) ne sdb:hash(jn:previous($rev))) then")?;
        self.need(shown)?;
        self.need("else () return $result")?;
        Ok(Query::History { node, key, past })
    }

    fn selected(&mut self) -> Read<Which> {
        self.select().map(|(source, key)| Which::Key(source, key))
    }

    /// `sdb:select-item(DOC | ., key)`
    fn select(&mut self) -> Read<(Source, u64)> {
        self.need("sdb:select-item(")?;
        let here = Source { name: None, when: None, root: Vec::new(), unboxed: false };
        let source = if self.eat(".") { here } else { self.doc()? };
        self.need(",")?;
        let key = self.number()?;
        self.need(")")?;
        Ok((source, key))
    }

    fn source(&mut self) -> Read<Source> {
        if !self.eat("bit:array-values(") {
            return self.doc();
        }
        let mut source = self.doc()?;
        self.need(")")?;
        self.root(&mut source.root)?;
        source.unboxed = true;
        Ok(source)
    }

    fn doc(&mut self) -> Read<Source> {
        let is_open = self.eat("jn:open(");
        if !is_open {
            self.need("jn:doc(")?;
        }
        let database = self.literal()?;
        self.need(",")?;
        let resource = self.literal()?;
        let mut when = None;
        if self.eat(",") {
            when = Some(if is_open {
                self.need("xs:dateTime(")?;
                let moment = self.literal()?;
                self.need(")")?;
                moment
            } else {
                self.number()?.to_string()
            });
        }
        self.need(")")?;
        let mut root = Vec::new();
        self.root(&mut root)?;
        Ok(Source { name: Some((database, resource)), when, root, unboxed: false })
    }

    fn root(&mut self, root: &mut Vec<Step>) -> Read<()> {
        loop {
            let step = if self.eat("=>") || self.eat(".") {
                Step::Member(self.name()?)
            } else if self.eat("[[") {
                let index = self.number()?;
                self.need("]]")?;
                Step::Index(index)
            } else {
                return Ok(());
            };
            if root.len() == PARTS_MAX {
                return Err(Problem::invalid(format!("JSONiq: more than {PARTS_MAX} steps")));
            }
            root.push(step);
        }
    }

    /// A name as it is, or in quotes.
    fn name(&mut self) -> Read<String> {
        self.blanks();
        if self.rest().starts_with(['\'', '"']) {
            return self.literal();
        }
        let rest = self.rest();
        let end = rest.find(|it: char| !(it.is_alphanumeric() || matches!(it, '_' | '-'))).unwrap_or(rest.len());
        let name = rest.get(..end).filter(|name| !name.is_empty()).ok_or_else(|| self.unknown())?;
        self.at += end;
        Ok(name.to_owned())
    }

    fn number(&mut self) -> Read<u64> {
        self.blanks();
        let rest = self.rest();
        let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest.get(..end).and_then(|digits| digits.parse().ok()).ok_or_else(|| self.unknown())?;
        self.at += end;
        Ok(number)
    }

    /// A text in quotes; a doubled one stands for itself.
    fn literal(&mut self) -> Read<String> {
        self.blanks();
        let Some(quote) = self.rest().chars().next().filter(|it| matches!(it, '\'' | '"')) else {
            return Err(self.unknown());
        };
        self.at += 1;
        let mut text = String::new();
        loop {
            let open = || Problem::invalid("JSONiq: a text in quotes has no end");
            let (piece, _) = self.rest().split_once(quote).ok_or_else(open)?;
            text.push_str(piece);
            self.at += piece.len() + 1;
            if !self.rest().starts_with(quote) {
                return Ok(text);
            }
            text.push(quote);
            self.at += 1;
        }
    }

    /// `jn:parse('…')`: the client puts JSON between quotes as it is, so that JSON itself says where it ends.
    fn parsed(&mut self) -> Read<String> {
        self.need("jn:parse('")?;
        let rest = self.rest();
        let wrong = |why: String| Problem::invalid(format!("JSONiq: jn:parse has no JSON: {why}"));
        let end = if rest.trim_start().starts_with(['"', '[', '{']) {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            match values.next() {
                Some(Ok(_)) => values.byte_offset(),
                Some(Err(error)) => return Err(wrong(error.to_string())),
                None => return Err(wrong("it is empty".to_owned())),
            }
        } else {
            // A number or a word has no quote in it.
            let end = rest.find('\'').unwrap_or(rest.len());
            let value = rest.get(..end).unwrap_or_default();
            serde_json::from_str::<IgnoredAny>(value).map_err(|error| wrong(error.to_string()))?;
            end
        };
        let value = rest.get(..end).unwrap_or_default().trim().to_owned();
        self.at += end;
        self.need("')")?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIND: &str = "for $i in jn:doc('shop','books') where local:q($i, jn:parse('{\"a\": \"it's\"}'))";

    fn refused(text: &str) -> (u16, String) {
        let problem = Query::read(text).unwrap_err();
        (problem.status.as_u16(), problem.detail)
    }

    #[test]
    fn what_the_client_writes_is_understood_with_or_without_blanks() {
        let doc = |when: Option<&str>| Source {
            name: Some(("shop".to_owned(), "books".to_owned())),
            when: when.map(str::to_owned),
            root: Vec::new(),
            unboxed: false,
        };
        for scalar in ["1", " -1.5e3 ", "true", "null", "\"x\""] {
            let query = format!("append json jn:parse('{scalar}') into jn:doc('shop','books')");
            let expected = Query::Append { into: doc(None), value: scalar.trim().to_owned(), each: false };
            assert_eq!(Query::read(&query).unwrap(), expected);
        }
        let append = Query::Append { into: doc(None), value: r#"{"a": 1.50}"#.to_owned(), each: false };
        assert_eq!(Query::read("append json jn:parse('{\"a\": 1.50}') into jn:doc('shop','books')").unwrap(), append);
        let find = |rest: &str| Query::read(&format!("{MATCH} {FIND} {rest}")).unwrap();
        let which = Which::Like(doc(None), r#"{"a": "it's"}"#.to_owned());
        let shown = Shown { node_key: true, hash: true, fields: Some(vec!["a".to_owned(), "nodeKey".to_owned()]) };
        assert_eq!(
            find(
                "let $i := jn:last-existing($i) return {$i,'nodeKey': sdb:nodekey($i),'hash': sdb:hash($i)}{a,nodeKey}"
            ),
            Query::Find { which: which.clone(), shift: Shift::Last, shown }
        );
        assert_eq!(
            find("return {$i}"),
            Query::Find { which: which.clone(), shift: Shift::None, shown: Shown::default() }
        );
        let squeezed: String = UPSERT.split_whitespace().collect();
        let update = format!("{MATCH}{squeezed}{FIND} return local:upsert-fields($i, jn:parse('{{\"b\":2}}'))");
        let expected = Query::Update { which, fields: r#"{"b":2}"#.to_owned(), upsert: true };
        assert_eq!(Query::read(&update).unwrap(), expected);
        let past = "sdb:item-history(sdb:select-item(., 7))";
        let here = Source { name: None, when: None, root: Vec::new(), unboxed: false };
        assert_eq!(Query::read(past).unwrap(), Query::History { node: here, key: 7, past: Past::Items });
        let then = "jn:open('shop','books',xs:dateTime('2026-11-21T00:00:00'))=>list[[3]].'x y'";
        let Query::Value(source) = Query::read(then).unwrap() else { panic!("no value") };
        assert_eq!(source.when.as_deref(), Some("2026-11-21T00:00:00"));
        let steps = [Step::Member("list".to_owned()), Step::Index(3), Step::Member("x y".to_owned())];
        assert_eq!(source.root, steps);
        assert_eq!(
            Query::read("jn:doc('it''s', \"b\")").unwrap(),
            Query::Value(Source {
                name: Some(("it's".to_owned(), "b".to_owned())),
                when: None,
                root: Vec::new(),
                unboxed: false,
            })
        );
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_place() {
        for (query, word) in [
            ("xml:doc('a','b')", "XML"),
            ("for $x in jn:doc('a','b') return $x", "\"$x\" at byte 4"),
            ("jn:store('a','b','{}')", "\"jn:store\" at byte 0"),
            ("insert json jn:parse('1') into jn:doc('a','b')", "\"insert\" at byte 0"),
            ("jn:doc('a','b') group by 1", "\"group\" at byte 16"),
            ("for $i in jn:doc('a','b') where $i=>x eq 1 return $i", "\"$i\""),
            ("declare function local:q($i, $q) {true()}; 1", "\"true\""),
            ("jn:doc($a,'b')", "\"$a\""),
        ] {
            let (status, detail) = refused(query);
            assert!(status == 501 && detail.contains(word), "{query}: {status} {detail}");
        }
        for wrong in [
            "",
            "   ",
            "{",
            "jn:doc('a",
            "append json jn:parse('{') into jn:doc('a','b')",
            "append json jn:parse('') into jn:doc('a','b')",
            "jn:doc('a','b',-1)",
        ] {
            assert_eq!(refused(wrong).0, 400, "{wrong}");
        }
        let many = format!("jn:doc('a','b'){}", "[[1]]".repeat(PARTS_MAX + 1));
        assert!(refused(&many).1.contains("more than 256 steps"));
        let deep = format!("append json jn:parse('{}') into jn:doc('a','b')", "[".repeat(1 << 20));
        assert_eq!(refused(&deep).0, 400);
    }

    #[test]
    fn no_bytes_make_it_fall() {
        let good = format!("{MATCH}{UPSERT}{FIND} return local:upsert-fields($i, jn:parse('{{\"b\":[2]}}'))");
        for end in (0..=good.len()).filter(|end| good.is_char_boundary(*end)) {
            super::super::fuzz(&good.as_bytes()[..end]);
            let mut other = good.clone().into_bytes();
            other.insert(end, 0xc3);
            other.insert(end + 1, 0xa9);
            super::super::fuzz(&other);
        }
    }
}
