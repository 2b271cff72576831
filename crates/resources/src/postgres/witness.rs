//! What a vote leaves behind, so that the truth can be asked for later: a few words of text, and where a server stands.
//!
//! Walk: [`Place`] is read once at connect · the vote's own message brings [`Evidence`] · both together are a [`Witness`],
//! kept with the decision · [`Witness::read`] takes it back.
//! Form, version 1: `pg1`, system identifier, timeline, LSN, transaction number, database, role, each but the last
//! followed by a zero byte, which no name of PostgreSQL's can hold. What was not known is empty.
//! Version 2, by a role that may not read which server it is: `pg2`, when this run of the server began (microseconds since
//! 1970), transaction number, database, role. It holds until the server is started again.
//! Deliberately absent: what follows from it (`truth.rs`).

use std::fmt;
use std::str::FromStr;

const VERSION: &str = "pg1";
const OF_ONE_RUN: &str = "pg2";

/// A place in the write-ahead log, in bytes since the cluster's birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WalPlace(pub(super) u64);

impl FromStr for WalPlace {
    type Err = ();

    /// `1A/2B`: the upper and the lower half.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (upper, lower) = text.split_once('/').ok_or(())?;
        let half = |hex: &str| u32::from_str_radix(hex, 16).map_err(drop);
        Ok(Self(u64::from(half(upper)?) << 32 | u64::from(half(lower)?)))
    }
}

impl fmt::Display for WalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

/// Which server this is, and on which branch of its history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Given to the cluster by initdb; a standby and a restored backup have the same.
    pub(super) system: Option<u64>,
    /// Counts promotions and recoveries to a point in time.
    pub(super) timeline: Option<u32>,
    /// When it was started, in microseconds since 1970: instead of the other two, where this role may not read them.
    pub(super) run: Option<u64>,
    pub(super) database: String,
}

/// What the transaction itself says just before the vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    /// The transaction's number with its epoch, which never comes again on this timeline.
    pub(super) number: u64,
    /// How far the log went: behind everything that the branch had written, before the record of its vote. Its beginning,
    /// where that is not asked.
    pub(super) place: WalPlace,
    /// Whose branch it will be, for people: SET ROLE counts. Of a vote that was asked before, where only rows were written
    /// since: what such a statement's function, trigger or rule set (`set_config`) is not seen, nor a role that was renamed.
    pub(super) role: String,
}

/// A vote, as recovery can ask about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Witness {
    pub(super) place: Place,
    pub(super) evidence: Evidence,
}

impl Witness {
    pub(super) fn write(place: &Place, evidence: &Evidence) -> Vec<u8> {
        let known = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let (system, timeline) = (known(place.system), known(place.timeline.map(u64::from)));
        let Evidence { number, place: wal, role } = evidence;
        let number = number.to_string();
        // In one piece: this is done for each vote, and `format!` takes several times as long.
        if let Place { system: None, run: Some(run), database, .. } = place {
            return [OF_ONE_RUN, &run.to_string(), &number, database, role].join("\0").into_bytes();
        }
        [VERSION, &system, &timeline, &wal.to_string(), &number, &place.database, role].join("\0").into_bytes()
    }

    /// Nothing for what this version did not write.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let fields: Vec<&str> = text.split('\0').collect();
        let (place, number, wal, role) = match fields.as_slice() {
            [VERSION, system, timeline, wal, number, database, role] => {
                let (system, timeline, database) = (known(system)?, known(timeline)?, (*database).to_owned());
                (Place { system, timeline, run: None, database }, number, wal.parse().ok()?, role)
            }
            [OF_ONE_RUN, run, number, database, role] => {
                let (run, database) = (Some(run.parse().ok()?), (*database).to_owned());
                (Place { system: None, timeline: None, run, database }, number, WalPlace(0), role)
            }
            _ => return None,
        };
        Some(Self { place, evidence: Evidence { number: number.parse().ok()?, place: wal, role: (*role).to_owned() } })
    }
}

/// A witness as people read it: what the manual's steps by hand need. Nothing for what this version did not write.
pub(crate) fn words(bytes: &[u8]) -> Option<String> {
    let Witness { place: Place { system, timeline, run, database }, evidence } = Witness::read(bytes)?;
    let Evidence { number, place, role } = evidence;
    let mut words = format!("transaction {number} of role {role:?} in database {database:?}");
    if run.is_none() {
        words.push_str(&format!(", log at {place}"));
    }
    for (what, number) in [(", timeline", timeline.map(u64::from)), (", system", system)] {
        words.extend(number.map(|number| format!("{what} {number}")));
    }
    Some(words)
}

/// Nothing known where nothing stands; nothing at all for what is no number.
#[expect(clippy::option_option, reason = "two different nothings, used at once")]
fn known<T: FromStr>(text: &str) -> Option<Option<T>> {
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

/// The timeline in the name of a file of the log: its first eight digits.
pub(super) fn timeline(file: &str) -> Option<u32> {
    u32::from_str_radix(file.get(..8)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn evidence(role: &str) -> Evidence {
        Evidence { number: 7_310_000_000_745, place: WalPlace(0x1a_0000_002b), role: role.to_owned() }
    }

    #[test]
    fn a_witness_is_read_back_and_its_bytes_are_those_of_version_one() {
        let place = Place {
            system: Some(7_710_321_864_900_679_683),
            timeline: Some(3),
            run: None,
            database: "bank".to_owned(),
        };
        let bytes = Witness::write(&place, &evidence("teller"));
        let golden = b"pg1\x007710321864900679683\x003\x001A/2B\x007310000000745\0bank\0teller";
        assert_eq!(bytes, golden);
        assert_eq!(Witness::read(&bytes), Some(Witness { place, evidence: evidence("teller") }));
    }

    #[test]
    fn of_a_server_that_is_not_known_the_run_is_kept_as_version_two_writes_it() {
        let place = Place { run: Some(1_763_661_000_123_456), database: "bank".to_owned(), ..Place::default() };
        let evidence = Evidence { place: WalPlace(0), ..evidence("teller") };
        let bytes = Witness::write(&place, &evidence);
        assert_eq!(bytes, b"pg2\x001763661000123456\x007310000000745\0bank\0teller");
        assert_eq!(Witness::read(&bytes), Some(Witness { place, evidence }));
        assert_eq!(Witness::read(b"pg2\0\x007\0bank\0teller"), None, "nothing else is known of it");
    }

    #[test]
    fn people_read_it_in_words() {
        let place = Place { system: Some(77), timeline: Some(3), run: None, database: "bank".to_owned() };
        let said = words(&Witness::write(&place, &evidence("teller"))).unwrap();
        let expected =
            "transaction 7310000000745 of role \"teller\" in database \"bank\", log at 1A/2B, timeline 3, system 77";
        assert_eq!(said, expected);
        let place = Place { run: Some(1_763_661_000_123_456), database: "bank".to_owned(), ..Place::default() };
        let said = words(&Witness::write(&place, &evidence("teller"))).unwrap();
        assert_eq!(said, "transaction 7310000000745 of role \"teller\" in database \"bank\"");
        assert_eq!(words(b"mdb1 connection=17"), None);
    }

    #[test]
    fn what_was_not_known_stays_unknown() {
        let bytes = Witness::write(&Place::default(), &evidence(""));
        assert_eq!(Witness::read(&bytes), Some(Witness { place: Place::default(), evidence: evidence("") }));
    }

    #[test]
    fn what_another_version_wrote_is_not_guessed_at() {
        let whole = "pg1\x001\x002\x003/4\x005\x006\x007";
        assert!(Witness::read(whole.as_bytes()).is_some());
        for (from, to) in [("pg1", "pg2"), ("3/4", "34"), ("3/4", "3/100000000"), ("\x005", "\0five"), ("\x001", "\0x")]
        {
            assert_eq!(Witness::read(whole.replacen(from, to, 1).as_bytes()), None, "{to}");
        }
        assert_eq!(Witness::read(format!("{whole}\0more").as_bytes()), None);
        assert_eq!(Witness::read(b""), None);
    }

    #[test]
    fn a_file_of_the_log_names_its_timeline() {
        assert_eq!(timeline("0000000A0000000100000002"), Some(10));
        assert_eq!(timeline("0000000"), None);
        assert_eq!(timeline("not a file"), None);
    }

    proptest! {
        #[test]
        fn any_names_and_numbers_come_back(
            system: u64, timeline: u32, wal: u64, number: u64, database in "[^\0]{0,80}", role in "[^\0]{0,80}",
        ) {
            let place = Place { system: Some(system), timeline: Some(timeline), run: None, database };
            let evidence = Evidence { number, place: WalPlace(wal), role };
            let bytes = Witness::write(&place, &evidence);
            prop_assert!(bytes.len() < 4096);
            prop_assert_eq!(Witness::read(&bytes), Some(Witness { place, evidence }));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Witness::read(&bytes);
        }
    }
}
