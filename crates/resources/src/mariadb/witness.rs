//! Which server voted: what a decision keeps of a branch, and what a later look at a server makes of it.
//!
//! A text for people and for us: `mdb2 connection=17 started=1763661000 lsn=44760 server=1 3306 /var/lib/mysql/`. What is
//! meant is the data. MySQL has a number for it, in its folder (server_uuid). MariaDB has none: server_uid is a hash of
//! network card and port, and like the host's name another one in each new container; so a MariaDB is known by what its
//! configuration says of its data: server id (no two of one replication share it), port and folder.
//! The place is that up to which InnoDB's log was on disk, asked behind the vote or up to a second before it: a crash
//! cannot take it back, and a copy of the data from before it stands before it. A lower one now is a server that was
//! set back.
//! Source: MariaDB's manual, "server_uid", "Innodb_lsn_flushed"; MySQL's, "server_uuid",
//! "Innodb_redo_log_flushed_to_disk_lsn".
//! Trap: a copy from between the place and the vote, one that has since written as much log as it lacked, and another
//! server with the same configuration and a longer log, cannot be told from the one that voted.
//! Deliberately absent: asking the server (`recovery.rs`), deciding (the agent).

use std::collections::HashMap;

/// The most that a decision takes (`assent_xa::Resource::witness`).
const WITNESS_BYTES_MAX: usize = 4_096;
/// Asked now and then behind a vote, in its message: passes in a prepared branch and touches no table.
pub(super) const LOG_PLACE: &str =
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_flushed', 'Innodb_redo_log_flushed_to_disk_lsn')";
/// Version 1 said one second, which was before the start by as long as its question took: mostly none, on a machine that
/// stood still much more. Too many cost a wait, which ends with the connection that is waited for.
const EARLY_S_MAX: u64 = 60;
/// A look takes milliseconds, so that a second one is sharp; a busy machine may never answer within a second.
const LOOKS_MAX: u32 = 3;
/// Of a start that is not known: it may be any.
const ANY_RUN: (u64, u64) = (0, u64::MAX);

/// A server as one of its sessions saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The session.
    pub(crate) connection: u64,
    /// The first and the last second since 1970 in which the server may have started: mostly one and the same.
    pub(crate) started_s: (u64, u64),
    /// Up to where InnoDB's log is on disk, where it tells: behind the latest vote.
    pub(crate) lsn: Option<u64>,
    /// Which data it has.
    pub(crate) server: String,
}

/// Who gave a vote, as far as its witness tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voter {
    /// A connection of this server's, which may still be there.
    Connection(u64),
    /// Nobody who is still there.
    Gone,
    /// There is no witness, or a later version wrote it.
    Unknown,
}

impl Seen {
    /// A look in which the server's clock did not go on, or the last of a few.
    pub(crate) fn sharp<E>(mut look: impl FnMut() -> Result<Self, E>) -> Result<Self, E> {
        let mut seen = look()?;
        for _ in 1..LOOKS_MAX {
            // Where the start is not told, another look does not tell it.
            if seen.started_s.0 == seen.started_s.1 || seen.started_s == ANY_RUN {
                break;
            }
            seen = look()?;
        }
        Ok(seen)
    }

    /// Of what the server says of itself: its clock before and behind that, settings and status by name in lower case.
    pub(crate) fn of(connection: u64, clock_s: [u64; 2], said: &HashMap<String, String>) -> Self {
        let text = |name: &str| said.get(name).filter(|text| !text.is_empty());
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let age_s = text("uptime").and_then(|text| age(text));
        let server = match text("server_uuid") {
            Some(unique) => format!("uid {unique}"),
            None => {
                let parts = ["server_id", "port", "datadir"];
                parts.map(|name| text(name).map_or("", String::as_str)).join(" ")
            }
        };
        // It counts its age by the same clock in whole seconds, so that the difference is exact, whatever the clock does.
        // A start that is later than now says that the clock was set back behind it, and may be set again.
        let start = |now_s: u64| age_s.map(|age_s| now_s.wrapping_sub(age_s)).filter(|it| (1..=now_s).contains(it));
        let [before, behind] = clock_s.map(start);
        Self {
            connection,
            started_s: before.zip(behind).map_or(ANY_RUN, |(one, other)| (one.min(other), one.max(other))),
            lsn: number("innodb_lsn_flushed").or_else(|| number("innodb_redo_log_flushed_to_disk_lsn")),
            server,
        }
    }

    /// Whether its run can be told from another one.
    pub(super) fn has_known_start(&self) -> bool {
        self.started_s != ANY_RUN
    }

    /// The server answered [`LOG_PLACE`] behind a vote.
    pub(crate) fn voted_at(&mut self, lsn: Option<u64>) {
        self.lsn = lsn.or(self.lsn);
    }

    /// The witness. Empty where it would be too long.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { connection, started_s: (first, last), lsn, server } = self;
        let (connection, first) = (connection.to_string(), first.to_string());
        let lsn = lsn.map(|lsn| lsn.to_string()).unwrap_or_default();
        let last = if self.started_s.0 == *last { String::new() } else { format!("-{last}") };
        // In one piece: this is done for each vote, and `format!` takes several times as long.
        let text =
            ["mdb2 connection=", &connection, " started=", &first, &last, " lsn=", &lsn, " server=", server].concat();
        if text.len() > WITNESS_BYTES_MAX { Vec::new() } else { text.into_bytes() }
    }

    /// Who voted. In another run of the server the voter's number is somebody else's, who may stay for as long as he likes.
    pub(crate) fn voter(&self, witness: &[u8]) -> Voter {
        let Some(voted) = Self::read(witness) else { return Voter::Unknown };
        let ((first, last), (voted_first, voted_last)) = (self.started_s, voted.started_s);
        let may_be_same = voted.server == self.server && first <= voted_last && voted_first <= last;
        if may_be_same { Voter::Connection(voted.connection) } else { Voter::Gone }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (text, early_s) = match text.strip_prefix("mdb1 ") {
            Some(text) => (text, EARLY_S_MAX),
            None => (text.strip_prefix("mdb2 ")?, 0),
        };
        let (head, server) = text.split_once(" server=")?;
        let mut parts = head.split(' ');
        let mut next = |name: &str| parts.next()?.strip_prefix(name);
        let (connection, started, lsn) = (next("connection=")?, next("started=")?, next("lsn=")?);
        let (first, last) = started.split_once('-').unwrap_or((started, started));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(Self {
            connection: connection.parse().ok()?,
            // No server was started then: version 1 said so where it could not know.
            started_s: if first == 0 { ANY_RUN } else { (first, last.saturating_add(early_s)) },
            lsn: if lsn.is_empty() { None } else { Some(lsn.parse().ok()?) },
            server: server.to_owned(),
        })
    }

    /// Why this server, asked now, cannot know what became of a branch that voted before this witness. Nothing if it is
    /// the one that voted.
    pub(crate) fn elsewhere(&self, witness: &[u8]) -> Option<String> {
        let Some(voted) = Self::read(witness) else {
            return Some("what was kept of the branch's vote cannot be read".to_owned());
        };
        if voted.server != self.server {
            return Some(format!(
                "the branch voted on server {:?}, this is {:?} (server_id, port, datadir; or server_uuid)",
                voted.server, self.server
            ));
        }
        match (voted.lsn, self.lsn) {
            (Some(then), Some(now)) if now < then => Some(format!(
                "its log stands at {now}, before {then}, which was on disk when connection {} voted: it was set back to an \
                 earlier state{}",
                voted.connection,
                if self.started_s.0 > voted.started_s.1 { ", and restarted since" } else { "" }
            )),
            _ => None,
        }
    }
}

/// What a server says of its age in seconds, modulo 2^64. It has no sign there, so that it wraps where the clock was set back
/// behind the start.
fn age(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| text.parse().ok().map(i64::cast_unsigned))
}

/// A witness as people read it. Nothing for what this version did not write.
pub(crate) fn words(bytes: &[u8]) -> Option<String> {
    let Seen { connection, started_s, lsn, server } = Seen::read(bytes)?;
    let lsn = lsn.map(|lsn| format!(", log at {lsn}")).unwrap_or_default();
    let started = match started_s {
        ANY_RUN => "whose start is not known".to_owned(),
        (first, _) => format!("which was started {first} s after 1970"),
    };
    Some(format!("connection {connection} of server {server:?}, {started}{lsn}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const NAMED: [(&str, &str); 6] = [
        ("hostname", "vm"),
        ("port", "3306"),
        ("datadir", "/var/lib/mysql/"),
        ("server_id", "1"),
        ("uptime", "100"),
        ("innodb_lsn_flushed", "44760"),
    ];

    #[test]
    fn a_restart_is_the_same_server_and_another_one_is_told_in_plain_words() {
        let seen = Seen::of(17, [1_000, 1_000], &said(&[&NAMED[..], &[("server_uuid", "abc=")]].concat()));
        assert_eq!(seen.bytes(), b"mdb2 connection=17 started=900 lsn=44760 server=uid abc=");
        let unsure = Seen { started_s: (900, 901), lsn: None, ..seen.clone() };
        assert_eq!(unsure.bytes(), b"mdb2 connection=17 started=900-901 lsn= server=uid abc=");
        assert_eq!(Seen::read(&seen.bytes()), Some(seen.clone()));
        let said = "connection 17 of server \"uid abc=\", which was started 900 s after 1970, log at 44760";
        assert_eq!((words(&seen.bytes()).as_deref(), words(b"pg1")), (Some(said), None));
        let said = "connection 17 of server \"1 3306 /data/\", whose start is not known";
        assert_eq!(words(b"mdb1 connection=17 started=0 lsn= server=1 3306 /data/").as_deref(), Some(said));
        let restarted = Seen { connection: 3, started_s: (5_000, 5_000), lsn: Some(44_761), ..seen.clone() };
        assert_eq!(restarted.elsewhere(&seen.bytes()), None);
        assert_eq!(Seen { lsn: None, ..seen.clone() }.elsewhere(&seen.bytes()), None);
        let restored = Seen { lsn: Some(44_759), started_s: (901, 901), ..seen.clone() };
        let words = restored.elsewhere(&seen.bytes()).unwrap();
        assert!(words.contains("44759") && words.contains("44760") && words.contains("restarted"), "{words}");
        let voted = seen.bytes();
        let words = Seen { server: "uid xyz=".to_owned(), ..seen }.elsewhere(&voted).unwrap();
        assert!(words.contains("\"uid abc=\"") && words.contains("\"uid xyz=\""), "{words}");
    }

    /// What was seen: a server was killed and back within two seconds, a connection that had nothing to do with the branch
    /// had the voter's number in its new run and stayed, and recovery waited for it to go, with a commit that was decided.
    #[test]
    fn a_voter_is_looked_for_on_its_own_server_and_in_its_own_run() {
        let seen = Seen::of(17, [1_000, 1_000], &said(&NAMED));
        let voted = seen.bytes();
        let later = |started_s| Seen { connection: 3, started_s, ..seen.clone() };
        assert_eq!(later((900, 900)).voter(&voted), Voter::Connection(17));
        assert_eq!(later((901, 901)).voter(&voted), Voter::Gone, "restarted");
        assert_eq!(later((899, 899)).voter(&voted), Voter::Gone, "restarted, by a clock that was set back");
        assert_eq!(
            [(899, 900), (900, 901)].map(|started_s| later(started_s).voter(&voted)),
            [Voter::Connection(17); 2]
        );
        for unknown in [&b""[..], b"mdb3 connection=17 started=900 lsn= server=1 3306 /var/lib/mysql/", b"\xff"] {
            assert_eq!(seen.voter(unknown), Voter::Unknown);
        }
        assert_eq!(Seen { server: "uid xyz".to_owned(), ..seen }.voter(&voted), Voter::Gone);
    }

    #[test]
    fn the_start_is_between_the_clock_before_and_behind_the_age() {
        let seen = |clock_s, said: &[(&str, &str)]| Seen::of(17, clock_s, &self::said(said)).started_s;
        assert_eq!(seen([1_000, 1_000], &NAMED), (900, 900));
        assert_eq!(seen([1_000, 1_003], &NAMED), (900, 903));
        assert_eq!(seen([1_000, 400], &NAMED), (300, 900), "set back meanwhile");
        assert_eq!(seen([1_000, 1_000], &[]), (0, u64::MAX), "not told");
        for clock_s in [[1_000, 1_000], [1_000, 1_003]] {
            let seen = Seen::of(17, clock_s, &said(&NAMED));
            assert_eq!(Seen::read(&seen.bytes()), Some(seen));
        }
        // An earlier program asked for the clock first, and then for the age.
        let early = Seen::read(b"mdb1 connection=17 started=898 lsn=1 server=a").map(|seen| seen.started_s);
        assert_eq!(early, Some((898, 958)));
    }

    /// Where a clock is set back to before a server's start, the server tells an age that is negative, or 2^64 more. Its start
    /// was taken for 0 then, so for another run than the voter's, and an outcome was told before the voter had gone.
    #[test]
    fn a_start_that_its_own_clock_has_not_reached_may_be_that_of_any_run() {
        let seen = |clock_s, age_s: &str| Seen::of(17, clock_s, &said(&[&NAMED[..], &[("uptime", age_s)]].concat()));
        let voted = seen([1_000, 1_000], "100");
        assert_eq!(voted.started_s, (900, 900));
        for age_s in ["18446744073709548016", "-3600", "-1", "1000", "1001", "9223372036854775808", "old", "1.5"] {
            let later = seen([1_000, 1_000], age_s);
            assert_eq!(later.started_s, ANY_RUN, "{age_s}");
            let asked = [later.voter(&voted.bytes()), voted.voter(&later.bytes())];
            assert_eq!(asked, [Voter::Connection(17); 2], "{age_s}");
            assert_eq!(Seen::read(&later.bytes()), Some(later));
        }
        assert_eq!(seen([1_000, 1_000], "0").started_s, (1_000, 1_000));
        assert_eq!(seen([1_000, 1_000], "999").started_s, (1, 1));
        assert_eq!(seen([1_000, 400], "500").started_s, ANY_RUN, "one look is enough");
        for old in [&b"mdb1 connection=17 started=0 lsn=1 server=1 3306 /var/lib/mysql/"[..], &voted.bytes()] {
            assert_eq!(voted.voter(old), Voter::Connection(17));
        }
    }

    #[test]
    fn a_look_in_which_the_clock_went_on_is_looked_again_and_a_few_times_at_most() {
        let named = said(&NAMED);
        let looked = |clocks: &[[u64; 2]], said: &HashMap<String, String>| {
            let mut left = clocks.iter();
            let seen = Seen::sharp(|| left.next().map(|clock_s| Seen::of(17, *clock_s, said)).ok_or(()));
            (seen.map(|seen| seen.started_s), left.len())
        };
        let (sharp, crossing) = ([1_001, 1_001], [1_000, 1_001]);
        assert_eq!(looked(&[sharp, sharp], &named), (Ok((901, 901)), 1));
        assert_eq!(looked(&[crossing, sharp, sharp], &named), (Ok((901, 901)), 1));
        assert_eq!(looked(&[crossing, crossing, [1_002, 1_004], sharp], &named), (Ok((902, 904)), 1));
        assert_eq!(looked(&[crossing, sharp], &said(&[])), (Ok(ANY_RUN), 1));
        assert_eq!(looked(&[crossing], &named), (Err(()), 0));
    }

    #[test]
    fn without_a_number_of_its_own_data_is_known_by_what_its_server_is_told_of_it() {
        let seen = Seen::of(17, [1_000, 1_000], &said(&NAMED));
        assert_eq!(seen.server, "1 3306 /var/lib/mysql/");
        let mysql = Seen::of(17, [1_000, 1_000], &said(&[&NAMED[..5], &[("server_uuid", "u-1")]].concat()));
        assert_eq!((mysql.server.as_str(), mysql.lsn), ("uid u-1", None));
        assert!(seen.elsewhere(&mysql.bytes()).is_some());
        assert_eq!(mysql.elsewhere(&mysql.bytes()), None);
    }

    #[test]
    fn a_new_container_has_the_same_data_and_a_replica_has_not() {
        let seen = |more: &[(&str, &str)]| Seen::of(17, [1_000, 1_000], &said(&[&NAMED[..], more].concat()));
        let voted = seen(&[("server_uid", "abc=")]).bytes();
        assert_eq!(seen(&[("server_uid", "xyz="), ("hostname", "c0ffee")]).elsewhere(&voted), None);
        for other in [("server_id", "2"), ("datadir", "/srv/"), ("port", "3307")] {
            assert!(seen(&[other]).elsewhere(&voted).is_some(), "{other:?}");
        }
    }

    #[test]
    fn a_copy_from_between_the_connection_and_the_vote_is_told() {
        let mut seen = Seen::of(17, [1_000, 1_000], &said(&NAMED));
        let copy = Seen { lsn: Some(44_900), ..seen.clone() };
        assert_eq!(copy.elsewhere(&seen.bytes()), None);
        seen.voted_at(Some(45_000));
        seen.voted_at(None);
        assert!(copy.elsewhere(&seen.bytes()).unwrap().contains("45000"));
    }

    #[test]
    fn what_cannot_be_read_is_no_witness() {
        let seen = Seen::of(17, [1_000, 1_000], &said(&NAMED));
        for bytes in
            [&b"\xff\xfe"[..], b"mdb1 connection=1", b"mdb2 connection=1 started=1-x lsn= server=a", b"mdb3 server=a"]
        {
            assert!(seen.elsewhere(bytes).unwrap().contains("cannot be read"));
        }
        let long = Seen { server: "s".repeat(WITNESS_BYTES_MAX), ..seen };
        assert_eq!(long.bytes(), b"");
    }
}
