//! How a member says that it is, as `assent assets status --json` prints it. No I/O.

use serde::Deserialize;

/// What is read of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct State {
    pub(super) role: String,
    #[serde(default)]
    pub(super) why: Option<String>,
    #[serde(default)]
    pub(super) epoch: u64,
    #[serde(default)]
    pub(super) in_sync: Vec<u8>,
    /// The last command that was executed, and the state behind it.
    pub(super) sequence: u64,
    pub(super) hash: String,
}

impl State {
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text.trim()).ok()
    }

    pub(super) fn leads(&self) -> bool {
        self.role == "primary" || self.role == "solo"
    }

    /// Whether these are all members of a group at rest: one leads, it counts on all, all are equal.
    pub(super) fn are_whole(all: &[Self]) -> bool {
        let mut leaders = all.iter().filter(|state| state.leads());
        let (Some(leader), None) = (leaders.next(), leaders.next()) else { return false };
        if leader.role == "solo" {
            return all.len() == 1;
        }
        let equal =
            |state: &Self| (state.epoch, state.sequence, &state.hash) == (leader.epoch, leader.sequence, &leader.hash);
        leader.in_sync.len() == all.len() && all.iter().all(equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(role: &str, epoch: u64, in_sync: &[u8], sequence: u64, hash: &str) -> State {
        let text = serde_json::json!({
            "role": role, "node": 1, "epoch": epoch, "in_sync": in_sync, "sequence": sequence, "applied": 1, "hash": hash, "why": null, "counts": {},
        });
        State::read(&text.to_string()).unwrap()
    }

    #[test]
    fn a_pair_is_whole_when_one_leads_and_both_are_the_same() {
        let primary = state("primary", 3, &[1, 2], 9, "ab");
        let standby = state("standby", 3, &[1, 2], 9, "ab");
        assert!(State::are_whole(&[standby.clone(), primary.clone()]));
        assert!(!State::are_whole(std::slice::from_ref(&primary)));
        assert!(!State::are_whole(&[primary.clone(), primary.clone()]));
        assert!(!State::are_whole(&[standby.clone(), standby.clone()]));
        for other in [
            state("standby", 2, &[1, 2], 9, "ab"),
            state("standby", 3, &[1, 2], 8, "ab"),
            state("standby", 3, &[1, 2], 9, "ac"),
        ] {
            assert!(!State::are_whole(&[primary.clone(), other]));
        }
        assert!(!State::are_whole(&[state("primary", 3, &[1], 9, "ab"), standby]));
    }

    #[test]
    fn a_server_alone_is_whole_and_what_is_no_status_is_nothing() {
        let solo = State::read(r#"{"role":"solo","sequence":7,"hash":"00","assets":1}"#).unwrap();
        assert_eq!((solo.sequence, State::are_whole(std::slice::from_ref(&solo))), (7, true));
        assert_eq!(State::read("{}"), None);
        assert_eq!(State::read("no server"), None);
    }
}
