//! What must hold between what clients were told and what the stores hold. No I/O.

use std::collections::{BTreeMap, BTreeSet};

/// What a client said last of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It has begun; the client died, or the answer never came.
    Begun,
    /// It may be either.
    InDoubt,
    /// Acknowledged.
    Committed,
    /// Acknowledged.
    RolledBack,
    /// The client was told that a resource ended otherwise.
    Heuristic,
}

/// All that clients said, by the transaction's name.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<String, (Word, String)>);

/// What one store holds.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) store: String,
    pub(super) names: BTreeSet<String>,
}

impl Said {
    /// One line of a client: `t NAME TX` begun, `d NAME` in doubt, `c`, `r`, `h`. Says whether it was a commit.
    pub(super) fn take(&mut self, line: &str) -> Option<Word> {
        let (word, rest) = line.split_once(' ')?;
        let (name, tx) = rest.split_once(' ').unwrap_or((rest, ""));
        let word = match word {
            "t" => Word::Begun,
            "d" => Word::InDoubt,
            "c" => Word::Committed,
            "r" => Word::RolledBack,
            "h" => Word::Heuristic,
            _ => return None,
        };
        let entry = self.0.entry(name.to_owned()).or_insert_with(|| (word, tx.to_owned()));
        entry.0 = word;
        Some(word)
    }

    /// The name of a transaction.
    pub(super) fn name_of(&self, tx: &str) -> Option<&str> {
        self.0.iter().find(|(_, (_, known))| known == tx).map(|(name, _)| name.as_str())
    }

    /// How many transactions were begun, acknowledged as committed, as rolled back; the rest is open.
    pub(super) fn counts(&self) -> [u64; 3] {
        let count = |wanted: Word| self.0.values().filter(|(word, _)| *word == wanted).count();
        [self.0.len(), count(Word::Committed), count(Word::RolledBack)].map(|it| u64::try_from(it).unwrap_or(u64::MAX))
    }

    /// Every promise that the stores break, as a sentence.
    pub(super) fn faults(&self, stores: &[Noted]) -> Vec<String> {
        let mut faults = Vec::new();
        let strangers = stores.iter().flat_map(|store| &store.names).filter(|name| !self.0.contains_key(*name));
        for name in strangers.collect::<BTreeSet<_>>() {
            faults.push(format!("{name} is in a store and no client began it"));
        }
        for (name, (word, tx)) in &self.0 {
            let (holders, others): (Vec<&Noted>, Vec<&Noted>) =
                stores.iter().partition(|store| store.names.contains(name));
            let list =
                |stores: &[&Noted]| stores.iter().map(|store| store.store.as_str()).collect::<Vec<_>>().join(", ");
            if !holders.is_empty() && !others.is_empty() {
                faults.push(format!(
                    "HALF: {name} (transaction {tx}, {word:?}) is in {} and not in {}",
                    list(&holders),
                    list(&others)
                ));
            } else if *word == Word::Committed && holders.is_empty() {
                faults.push(format!("LOST: {name} (transaction {tx}) was acknowledged as committed and is nowhere"));
            } else if *word == Word::RolledBack && others.is_empty() {
                faults.push(format!("UNDEAD: {name} (transaction {tx}) was acknowledged as rolled back and is there"));
            } else if *word == Word::Heuristic {
                faults.push(format!("{name} (transaction {tx}): its client was told of a heuristic outcome"));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = &'static [&'static str];

    fn stores(names: [Names; 2]) -> Vec<Noted> {
        let noted = |(store, names): (&str, Names)| Noted {
            store: store.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        ["a", "b"].into_iter().zip(names).map(noted).collect()
    }

    fn said(lines: &[&str]) -> Said {
        let mut said = Said::default();
        lines.iter().for_each(|line| _ = said.take(line));
        said
    }

    #[test]
    fn all_or_nothing_and_what_was_acknowledged_holds() {
        let good = said(&["t one 1.1.1", "c one", "t two 1.1.2", "r two", "t three 1.1.3", "t four 1.1.4", "d four"]);
        assert_eq!(good.faults(&stores([&["one", "three"], &["one", "three"]])), Vec::<String>::new());
        assert_eq!(good.faults(&stores([&["one", "four"], &["one", "four"]])), Vec::<String>::new());
        assert_eq!(good.name_of("1.1.2"), Some("two"));
        assert_eq!(good.counts(), [4, 1, 1]);
    }

    #[test]
    fn each_broken_promise_is_named() {
        let cases: [(Names, [Names; 2], &str); 5] = [
            (&["t x 1.1.1"], [&["x"], &[]], "HALF: x (transaction 1.1.1, Begun) is in a and not in b"),
            (&["t x 1.1.1", "c x"], [&[], &[]], "LOST"),
            (&["t x 1.1.1", "r x"], [&["x"], &["x"]], "UNDEAD"),
            (&["t x 1.1.1", "h x"], [&["x"], &["x"]], "heuristic"),
            (&[], [&["x"], &["x"]], "no client began it"),
        ];
        for (lines, held, fault) in cases {
            let faults = said(lines).faults(&stores(held));
            assert!(faults.len() == 1 && faults[0].contains(fault), "{lines:?}: {faults:?}");
        }
    }

    #[test]
    fn an_outcome_that_is_learned_later_counts() {
        let late = said(&["t x 1.1.1", "d x", "c x"]);
        assert!(late.faults(&stores([&[], &[]]))[0].starts_with("LOST"));
    }
}
