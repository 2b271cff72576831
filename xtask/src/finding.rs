//! What a rule found, as one sentence: file, value, limit, what to do.
//!
//! Walk: a rule returns [`Findings`] · `tidy` prints them sorted and counts the violations.
//! Deliberately absent: severities beyond two, error codes, colours.

use std::fmt;

/// Everything one rule has to say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Finding>,
    /// Worth a look, not worth a red light.
    pub(crate) notes: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The path, with `:line` where a line is to blame.
    pub(crate) place: String,
    pub(crate) value: String,
    pub(crate) limit: String,
    pub(crate) advice: String,
}

impl Findings {
    pub(crate) fn violation(&mut self, finding: Finding) {
        self.violations.push(finding);
    }

    pub(crate) fn note(&mut self, finding: Finding) {
        self.notes.push(finding);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.notes.extend(other.notes);
    }

    /// Where the violations are, for the tests' tables.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<&str> {
        self.violations.iter().map(|finding| finding.place.as_str()).collect()
    }
}

impl Finding {
    pub(crate) fn new(
        place: impl Into<String>,
        value: impl Into<String>,
        limit: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { place: place.into(), value: value.into(), limit: limit.into(), advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, value, limit, advice } = self;
        write!(f, "{place}: {value}; {limit}; {advice}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_sentence() {
        let finding = Finding::new("a.rs", "601 lines", "the limit is 600", "cut it");
        assert_eq!(finding.to_string(), "a.rs: 601 lines; the limit is 600; cut it.");
    }
}
