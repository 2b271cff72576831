//! The line above the list: how many there are, and what of it only a person can end.
//!
//! Walk: [`Head::of`] the server's gauges · [`Head::lines`] a line with the numbers, then a sentence for each that is not 0.

use serde::Serialize;

/// What the coordinator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Head {
    /// Undecided, and their decision may be lost; nothing if nobody asked the resources, for a stopped server's folder.
    pub(super) held: Option<u64>,
    /// With a branch that ended otherwise than decided.
    pub(super) heuristic: u64,
    /// Resources where another process of this node resolves; nothing if nobody was asked, for a stopped server's folder.
    pub(super) rivals: Option<u64>,
}

impl Head {
    pub(super) fn of(gauges: &[(&str, u64)]) -> Self {
        let gauge = |name: &str| gauges.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        Self {
            held: Some(gauge("coordinator.held").unwrap_or(0)),
            heuristic: gauge("coordinator.heuristic").unwrap_or(0),
            rivals: gauge("coordinator.rivals"),
        }
    }

    pub(super) fn lines(&self, listed: usize) -> Vec<String> {
        let Self { held, heuristic, rivals } = self;
        let Some(held) = held else { return folder_lines(listed, *heuristic) };
        if listed == 0 && rivals.is_none_or(|rivals| rivals == 0) {
            return vec!["no transaction is in doubt or unfinished".to_owned()];
        }
        let beside = rivals.map_or(String::new(), |rivals| format!(", {rivals} rivals"));
        let mut lines = vec![format!("{listed} in doubt or unfinished, {held} held, {heuristic} heuristic{beside}")];
        if *held > 0 {
            lines.push(
                "held: a power cut, or an older copy of the folder, may have taken the decision; a person looks and decides (assent tx show TX)"
                    .to_owned(),
            );
        }
        if *heuristic > 0 {
            lines.push(HEURISTIC.to_owned());
        }
        if rivals.is_some_and(|rivals| rivals > 0) {
            lines.push(
                "rivals: at so many resources another process of this node resolves, so this one touches nothing and \
                 takes no commit: a copied data folder? Stop one of the two (assent tx recover names the resources)"
                    .to_owned(),
            );
        }
        lines
    }
}

const HEURISTIC: &str =
    "heuristic: a branch ended otherwise than decided; a person brings the data in order, then assent tx forget TX";

/// Of a stopped server's folder.
fn folder_lines(listed: usize, heuristic: u64) -> Vec<String> {
    let mut lines = vec![match listed {
        0 => "no decided transaction is unfinished".to_owned(),
        _ => format!("{listed} decided and unfinished, {heuristic} heuristic"),
    }];
    if heuristic > 0 {
        lines.push(HEURISTIC.to_owned());
    }
    lines.push(UNDECIDED.to_owned());
    lines
}

/// What a folder cannot tell.
pub(super) const UNDECIDED: &str =
    "what was prepared and not decided only its resources know: the server asks them once it runs again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_person_can_end_has_a_sentence_and_a_rival_is_told_of_an_empty_list_too() {
        let said = |held, heuristic, rivals, listed| Head { held: Some(held), heuristic, rivals }.lines(listed);
        let nothing = ["no transaction is in doubt or unfinished"];
        assert_eq!(
            (said(0, 0, Some(0), 0), said(0, 0, None, 0)),
            (nothing.map(Into::into).into(), nothing.map(Into::into).into())
        );
        assert_eq!(said(0, 0, Some(0), 2), ["2 in doubt or unfinished, 0 held, 0 heuristic, 0 rivals"]);
        let all = said(1, 2, Some(3), 4);
        assert_eq!(all[0], "4 in doubt or unfinished, 1 held, 2 heuristic, 3 rivals");
        let words: Vec<&str> = all[1..].iter().map(|line| line.split_once(':').unwrap().0).collect();
        assert_eq!(words, ["held", "heuristic", "rivals"]);
        assert_eq!(said(0, 0, Some(1), 0).len(), 2);
    }

    #[test]
    fn a_folder_does_not_say_of_what_it_cannot_know_that_there_is_none() {
        let said = |heuristic, listed| Head { held: None, heuristic, rivals: None }.lines(listed);
        assert_eq!(said(0, 0), ["no decided transaction is unfinished", UNDECIDED]);
        assert_eq!(said(1, 2), ["2 decided and unfinished, 1 heuristic", HEURISTIC, UNDECIDED]);
    }

    #[test]
    fn a_server_that_does_not_count_rivals_has_none_to_tell() {
        let gauges = [("coordinator.held", 3), ("coordinator.heuristic", 1)];
        assert_eq!(Head::of(&gauges), Head { held: Some(3), heuristic: 1, rivals: None });
    }
}
