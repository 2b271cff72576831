//! A request's address taken apart: query parameters by name, each of which must be known, and names in the path.
//!
//! Walk: [`Params::of`] decodes all · each handler takes what it knows · [`Params::end`] refuses what is left · [`decoded`]
//! a piece of a path as text, [`bytes`] as the bytes that a key is.

use std::borrow::Cow;
use std::str::FromStr;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use crate::problem::Problem;

/// The longest query that is looked at.
const QUERY_BYTES_MAX: usize = 32 << 10;
/// Each is compared with all before it.
const PARAMS_MAX: usize = 64;

/// What stands behind the question mark.
#[derive(Debug)]
pub(crate) struct Params<'a> {
    list: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// A bit for each length that a name has: most that are asked for are not there, and need not be compared.
    lengths: u64,
}

/// A long one has the last.
fn bit(name: &str) -> u64 {
    1 << name.len().min(63)
}

impl<'a> Params<'a> {
    pub(crate) fn of(uri: &'a Uri) -> Result<Self, Problem> {
        Self::of_query(uri.query().unwrap_or_default())
    }

    /// The same from a form in a body.
    pub(crate) fn of_query(query: &'a str) -> Result<Self, Problem> {
        if query.len() > QUERY_BYTES_MAX {
            return Err(Problem::invalid(format!(
                "a query of {} bytes; it has at most {QUERY_BYTES_MAX}",
                query.len()
            )));
        }
        // Most have nothing to decode.
        let is_plain = !query.bytes().any(|byte| matches!(byte, b'%' | b'+'));
        let word = |text: &'a str| if is_plain { Ok(text.into()) } else { word(text) };
        let mut list: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (word(name)?, word(value)?);
            if list.iter().any(|(known, _)| *known == name) {
                return Err(Problem::invalid(format!("the parameter {name:?} is given twice")));
            }
            if list.len() == PARAMS_MAX {
                return Err(Problem::invalid(format!("more parameters than {PARAMS_MAX}")));
            }
            list.push((name, value));
        }
        let lengths = list.iter().fold(0, |all, (name, _)| all | bit(name));
        Ok(Self { list, lengths })
    }

    /// The value of a parameter that may be spelled in these ways, given once.
    pub(crate) fn take(&mut self, names: &[&str]) -> Result<Option<String>, Problem> {
        Ok(self.found(names)?.map(Cow::into_owned))
    }

    fn found(&mut self, names: &[&str]) -> Result<Option<Cow<'a, str>>, Problem> {
        let mut found: Option<(Cow<'a, str>, Cow<'a, str>)> = None;
        if names.iter().all(|name| self.lengths & bit(name) == 0) {
            return Ok(None);
        }
        while let Some(at) = self.list.iter().position(|(name, _)| names.contains(&&**name)) {
            let (name, value) = self.list.swap_remove(at);
            if let Some((other, _)) = &found {
                return Err(Problem::invalid(format!("{other:?} and {name:?} are one parameter; give one")));
            }
            found = Some((name, value));
        }
        Ok(found.map(|(_, value)| value))
    }

    /// The same, as a number or whatever else has a text form.
    pub(crate) fn parsed<T: FromStr>(&mut self, names: &[&str], what: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.found(names)? else { return Ok(None) };
        let name = names.first().copied().unwrap_or_default();
        text.parse().map(Some).map_err(|_| Problem::invalid(format!("{name} = {text:?}; it is {what}")))
    }

    /// The same, as yes or no. A name alone says yes.
    pub(crate) fn flag(&mut self, names: &[&str]) -> Result<bool, Problem> {
        match self.found(names)?.as_deref() {
            None | Some("false" | "False" | "0") => Ok(false),
            Some("" | "true" | "True" | "1") => Ok(true),
            Some(text) => {
                let name = names.first().copied().unwrap_or_default();
                Err(Problem::invalid(format!("{name} = {text:?}; it is true or false")))
            }
        }
    }

    /// Nothing is left that nobody knows.
    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.list.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::invalid(format!("no parameter {name:?} is known here"))),
        }
    }
}

/// Bytes behind their percent signs.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, Problem> {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('%') {
        if !behind.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)) {
            return Err(Problem::invalid("a % in the address is not followed by two hexadecimal digits"));
        }
        rest = behind;
    }
    Ok(Cow::from(percent_decode_str(text)).into_owned())
}

/// The same, as text.
pub(crate) fn decoded(text: &str) -> Result<String, Problem> {
    plain(text).map(Cow::into_owned)
}

/// The same, where most have no percent sign.
fn plain(text: &str) -> Result<Cow<'_, str>, Problem> {
    if !text.contains('%') {
        return Ok(text.into());
    }
    let text = String::from_utf8(bytes(text)?);
    text.map(Cow::from).map_err(|_| Problem::invalid("the address is not UTF-8 behind its % signs"))
}

/// A word of a form, where a plus is a blank.
fn word(text: &str) -> Result<Cow<'_, str>, Problem> {
    if text.contains('+') { decoded(&text.replace('+', " ")).map(Cow::from) } else { plain(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str) -> Result<Params<'_>, Problem> {
        Params::of_query(query)
    }

    #[test]
    fn a_parameter_has_two_spellings_one_value_and_a_known_name() {
        let mut both = params("start-revision=3&message=a+b%20c%C3%A9&flag").unwrap();
        assert_eq!(both.parsed::<u32>(&["startRevision", "start-revision"], "a number").unwrap(), Some(3));
        assert_eq!(both.take(&["message"]).unwrap().as_deref(), Some("a b cé"));
        assert!(both.flag(&["flag"]).unwrap() && !both.flag(&["other"]).unwrap());
        both.end().unwrap();
        let wrong =
            |query: &str, take: fn(Params<'_>) -> Result<(), Problem>| params(query).and_then(take).unwrap_err().detail;
        let number = |mut it: Params<'_>| it.parsed::<u32>(&["n", "en"], "a number from 0").map(drop);
        assert_eq!(wrong("n=-1", number), "n = \"-1\"; it is a number from 0");
        assert_eq!(wrong("n=1&en=2", number), "\"n\" and \"en\" are one parameter; give one");
        assert_eq!(wrong("n=1&n=1", number), "the parameter \"n\" is given twice");
        assert_eq!(wrong("colour=red", |it| it.end()), "no parameter \"colour\" is known here");
        let long = "x".repeat(100);
        let mut names = Params::of_query("abc=1&ab=2").unwrap();
        assert_eq!((names.take(&["abd"]).unwrap(), names.take(&[&long]).unwrap()), (None, None));
        assert_eq!(names.take(&["z", "ab"]).unwrap().as_deref(), Some("2"));
        let query = format!("{long}=3");
        assert_eq!(Params::of_query(&query).unwrap().take(&[&long]).unwrap().as_deref(), Some("3"));
        let many = |many: u32| (0..many).map(|at| format!("p{at}=1&")).collect::<String>();
        assert!(params(&many(64)).is_ok() && params(&many(65)).is_err());
        for broken in ["n=%", "n=%f", "n=%zz", "n=%ff"] {
            assert!(params(broken).is_err(), "{broken}");
        }
        assert!(params(&"a".repeat(QUERY_BYTES_MAX)).is_ok() && params(&"a".repeat(QUERY_BYTES_MAX + 1)).is_err());
    }
}
