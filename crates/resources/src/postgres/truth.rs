//! What became of a branch that is not listed: a table, no I/O.
//!
//! Walk: [`compare`] the place of the vote with the place that is asked: the same history, another timeline of it, or
//! elsewhere · [`came_along`] whether a new timeline holds what the branch wrote, by its history file · [`past`] what the
//! transaction's status then says.
//! Why the place before the vote and not behind it: everything that the branch wrote lies before it, its vote behind it.
//! A timeline that was left at or behind it knows the transaction's number, so the number is not given anew there and
//! its status is the branch's: committed, or (whether the vote came along or not) rolled back. One that was left before
//! it never saw the vote. So this one place decides both ways, and no statement has to follow PREPARE in its message,
//! whose failure would look like that of the vote.
//! Source: PostgreSQL's manual, "Transaction ID and Snapshot Information Functions" and "Timelines"; tried on 15.
//! Trap: a volume's snapshot that is put back starts as after a crash, on its old timeline. Until its log has grown past
//! the place it is found out; behind that nothing tells it from the server that voted, and numbers are given twice.
//! Trap: a branch that wrote only to unlogged tables left nothing in the log. After a promotion its number may be another
//! transaction's; but then those tables are empty, and nothing is there to be told.

use assent_xa::{Native, Past};

use super::witness::{Place, WalPlace, Witness};
use crate::kept::said;

/// Where the server stands that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Here {
    pub(super) system: u64,
    pub(super) timeline: u32,
    /// How far its log goes.
    pub(super) reached: WalPlace,
}

/// How the place of the vote lies to the place that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// One history: the transaction's status is the branch's.
    Same,
    /// The server has been promoted since, to this timeline; its history file says where.
    Promoted(u32),
    /// It cannot know.
    Elsewhere(Native),
}

pub(super) fn compare(witness: &Witness, here: &Here) -> Relation {
    let Here { system, timeline: now, .. } = *here;
    let then = match witness.place {
        Place { system: Some(then), .. } if then != system => {
            return elsewhere(format!(
                "the branch was prepared at the server with system identifier {then}; the one that answers has {system} \
                 and cannot know it"
            ));
        }
        Place { system: Some(_), timeline: Some(then), .. } => then,
        _ => return elsewhere("it was not readable at the vote which server and timeline that was".to_owned()),
    };
    let (voted, reached) = (witness.evidence.place, here.reached);
    match now.cmp(&then) {
        std::cmp::Ordering::Less => elsewhere(format!(
            "the branch was prepared on timeline {then}, behind {voted}; this server is on timeline {now}: an old primary, \
             or a backup from before the fail-over"
        )),
        std::cmp::Ordering::Equal if reached < voted => elsewhere(format!(
            "the branch was prepared behind {voted} on timeline {then}, and this server's log only reaches {reached}: a \
             backup was restored"
        )),
        std::cmp::Ordering::Equal => Relation::Same,
        std::cmp::Ordering::Greater => Relation::Promoted(now),
    }
}

/// Whether a later timeline holds what the branch wrote. `history` is nothing where this role may not read it.
pub(super) fn came_along(witness: &Witness, now: u32, history: Option<&str>) -> Result<(), Native> {
    let (then, voted) = (witness.place.timeline.unwrap_or_default(), witness.evidence.place);
    let Some(history) = history else {
        return Err(said(format!(
            "the branch was prepared on timeline {then}, behind {voted}; this server is on timeline {now} since a \
             fail-over or a restored backup. Whether the branch came along says a superuser's SELECT \
             pg_read_file('{}'): the line of timeline {then} names a place before {voted} if it was lost",
            history_file(now)
        )));
    };
    match left_at(history, then) {
        Some(left) if voted <= left => Ok(()),
        Some(left) => Err(said(format!(
            "the branch was prepared on timeline {then}, behind {voted}; this server's timeline {now} left that one at \
             {left}: the branch was lost by the fail-over"
        ))),
        None => Err(said(format!(
            "the branch was prepared on timeline {then}, which is not in the history of this server's timeline {now}: \
             the two went apart before"
        ))),
    }
}

/// Whether what a server says about a client's row counts: it is on the timeline that the client's was on, or came from it. One that has a
/// lower number is an old primary, or a backup. Of a higher one its history tells; where this role may not read that, a fail-over is
/// believed, as two that were promoted apart have to be kept apart by whoever promotes.
pub(super) fn descends(then: u32, now: u32, history: Option<&str>) -> Result<(), Native> {
    if then == 0 {
        return Err(said("its branches do not say on which timeline their client's server was".to_owned()));
    }
    match (now.cmp(&then), history) {
        (std::cmp::Ordering::Less, _) => Err(said(format!(
            "this server is on timeline {now}, and the client's was on {then}: an old primary, or a backup from before the fail-over; the \
             decision stands where the client works"
        ))),
        (std::cmp::Ordering::Greater, Some(history)) if left_at(history, then).is_none() => Err(said(format!(
            "timeline {then}, on which the client's server was, is not in the history of this server's timeline {now}: the two went apart \
             before"
        ))),
        (std::cmp::Ordering::Equal | std::cmp::Ordering::Greater, _) => Ok(()),
    }
}

/// Where the log of a timeline says how it came to be.
pub(super) fn history_file(timeline: u32) -> String {
    format!("pg_wal/{timeline:08X}.history")
}

/// Where a timeline was left on the way to the one whose history this is: `number, place, reason` in each line.
fn left_at(history: &str, timeline: u32) -> Option<WalPlace> {
    history.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let number: u32 = words.next()?.parse().ok()?;
        if number == timeline { words.next()?.parse().ok() } else { None }
    })
}

/// What `txid_status` says. Nothing where the transaction is too old for its status to be kept.
pub(super) fn past(status: Option<&str>) -> Option<Past> {
    match status {
        None => Some(Past::Forgotten),
        Some("committed") => Some(Past::Committed),
        Some("aborted") => Some(Past::RolledBack),
        Some("in progress") => Some(Past::Open),
        Some(_) => None,
    }
}

fn elsewhere(message: String) -> Relation {
    Relation::Elsewhere(said(message))
}

#[cfg(test)]
mod tests {
    use super::super::witness::Evidence;
    use super::*;

    const HISTORY: &str = "1\t0/3000000\tno recovery target specified\n\n# a remark\n2\t1/0\tbefore 2026-01-01\n";

    fn at(system: u64, timeline: u32) -> Place {
        Place { system: Some(system), timeline: Some(timeline), run: None, database: "bank".to_owned() }
    }

    fn voted(place: Place, wal: u64) -> Witness {
        Witness { place, evidence: Evidence { number: 7, place: WalPlace(wal), role: String::new() } }
    }

    #[test]
    fn a_row_is_asked_for_on_the_clients_timeline_or_on_one_that_came_from_it() {
        let history = "1\t0/3000000\tno recovery target specified\n\n3\t0/5000000\tno recovery target specified\n";
        let table = [
            // then, now, history, whether it counts
            (3, 3, None, true),
            (3, 2, None, false),
            (3, 2, Some(history), false),
            (3, 4, Some(history), true),
            (1, 4, Some(history), true),
            (2, 4, Some(history), false),
            (2, 4, None, true),
            (0, 4, Some(history), false),
        ];
        for (then, now, history, expected) in table {
            assert_eq!(descends(then, now, history).is_ok(), expected, "{then} {now}");
        }
    }

    #[test]
    fn only_the_same_history_is_asked_for_the_status() {
        let unknown = || Place { database: "bank".to_owned(), ..Place::default() };
        let table = [
            // vote, place, asked at: system, timeline, log reaches, words
            (at(1, 3), 10, (1, 3, 10), "same"),
            (at(1, 3), 11, (1, 3, 10), "only reaches 0/A"),
            (at(1, 3), 10, (1, 4, 99), "promoted to 4"),
            (at(1, 3), 10, (1, 2, 99), "an old primary"),
            (at(1, 3), 10, (2, 3, 99), "system identifier 1; the one that answers has 2"),
            (Place { timeline: None, ..at(1, 3) }, 10, (2, 3, 99), "the one that answers has 2"),
            (Place { timeline: None, ..at(1, 3) }, 10, (1, 3, 99), "not readable"),
            (unknown(), 10, (1, 3, 99), "not readable"),
        ];
        for (then, wal, now, words) in table {
            let here = Here { system: now.0, timeline: now.1, reached: WalPlace(now.2) };
            let found = match compare(&voted(then.clone(), wal), &here) {
                Relation::Same => "same".to_owned(),
                Relation::Promoted(timeline) => format!("promoted to {timeline}"),
                Relation::Elsewhere(native) => native.message,
            };
            assert!(found.contains(words), "{then:?} {now:?}: {found}");
        }
    }

    #[test]
    fn a_timeline_that_was_left_behind_the_branchs_work_knows_it_and_one_left_before_has_lost_it() {
        let table = [
            (1, 0x300_0000, Ok(())),
            (1, 0x300_0001, Err("timeline 3 left that one at 0/3000000: the branch was lost by the fail-over")),
            (2, 0x1_0000_0000, Ok(())),
            (2, 0x1_0000_0001, Err("behind 1/1; this server's timeline 3 left that one at 1/0")),
            (4, 1, Err("not in the history")),
        ];
        for (timeline, wal, expected) in table {
            let found = came_along(&voted(at(1, timeline), wal), 3, Some(HISTORY));
            match (found, expected) {
                (Ok(()), Ok(())) => {}
                (Err(native), Err(words)) => assert!(native.message.contains(words), "{}", native.message),
                (found, expected) => panic!("{timeline} {wal:x}: {found:?}, not {expected:?}"),
            }
        }
        let unread = came_along(&voted(at(1, 1), 1), 3, None).unwrap_err();
        assert!(
            unread.message.contains("timeline 1, behind 0/1") && unread.message.contains("pg_wal/00000003.history")
        );
        assert!(came_along(&voted(at(1, 1), 1), 3, Some("1\tnowhere\t")).is_err());
    }

    #[test]
    fn a_status_says_one_thing_and_a_new_word_nothing() {
        let words = [Some("committed"), Some("aborted"), Some("in progress"), None, Some("vacuumed")];
        let pasts = [Some(Past::Committed), Some(Past::RolledBack), Some(Past::Open), Some(Past::Forgotten), None];
        assert_eq!(words.map(past), pasts);
    }
}
