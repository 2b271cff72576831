//! What a member of a group is told at its start.

use assent_kind::Kind;
use assent_membership::{Member, Setup, SetupError};

use crate::told::NAME_BYTES_MAX;

/// How a member behaves. Times are in milliseconds of its own monotonic clock.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who it is, who the others are, and what an acknowledgement means.
    pub setup: Setup,
    /// The group's name. All members must have the same. Default empty.
    pub group: String,
    /// Where its arbiter is. Members should have the same. Default empty.
    pub arbiter: String,
    /// After which time what may have been lost is said again; the pace of heartbeats. Default 20.
    pub tick_ms: u64,
    /// A member that has not said for so long what it should is silent. Default 150.
    pub silent_ms: u64,
    /// How long one waits at a start for members that are missing. Default 1,000.
    pub patience_ms: u64,
    /// A member of the set that confirms nothing of what it lacks for so long is taken out. Default 500.
    pub slow_ms: u64,
    /// A standby that lacks something asks for it again after so long. Default 60.
    pub resend_ms: u64,
    /// Reads without a round of messages; none: each read is confirmed by the set. Default none.
    pub lease: Option<LeaseSettings>,
    /// Bytes on their way to one standby without its confirmation. Default 4 MiB.
    pub window_bytes: usize,
    /// Bytes of commands that are not confirmed; one more is [`crate::Refused::Busy`]. Default 16 MiB.
    pub unconfirmed_bytes_max: usize,
    /// Bytes of entries kept in memory for standbys that are a little behind. Default 16 MiB.
    pub recent_bytes_max: usize,
    /// Bytes a second that a primary reads from its disk for standbys that are far behind. Default 64 MiB.
    pub catch_up_bytes_per_s: u64,
    /// After how many entries the members compare their states: an entry may hold a thousand commands, and the hash is kept. Default 64.
    pub compare_every: u64,
    /// For how long the log behind a standby that catches up is kept although a snapshot holds it; a standby of which nothing is heard
    /// holds it for a tenth of that. Default ten minutes.
    pub hold_ms: u64,
}

/// A lease: within it the primary answers reads alone, and its standbys do not ask for the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// How long; at most `silent_ms`.
    pub length_ms: u64,
    /// How many millionths any clock may run faster or slower than true time.
    pub drift_ppm: u32,
}

/// Settings that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A group that cannot be.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Member 255 stands for nobody in messages.
    #[error("member 255; members are numbered from 0 to 254")]
    Member,
    /// A number that cannot be.
    #[error("{name} = {value}; {rule}")]
    Value {
        /// Which.
        name: &'static str,
        /// As given.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
}

impl SettingsError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

impl Settings {
    /// The defaults, for this member.
    #[must_use]
    pub const fn new(setup: Setup) -> Self {
        Self {
            setup,
            group: String::new(),
            arbiter: String::new(),
            tick_ms: 20,
            silent_ms: 150,
            patience_ms: 1_000,
            slow_ms: 500,
            resend_ms: 60,
            lease: None,
            window_bytes: 4 << 20,
            unconfirmed_bytes_max: 16 << 20,
            recent_bytes_max: 16 << 20,
            catch_up_bytes_per_s: 64 << 20,
            compare_every: 64,
            hold_ms: 600_000,
        }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if self.setup.members.contains(&Member(u8::MAX)) {
            return Err(SettingsError::Member);
        }
        for (name, text) in [("group", &self.group), ("arbiter", &self.arbiter)] {
            if text.len() > NAME_BYTES_MAX {
                let value = u64::try_from(text.len()).unwrap_or(u64::MAX);
                return Err(SettingsError::Value { name, value, rule: "at most 512 bytes" });
            }
            if let Some(letter) = text.chars().find(|letter| letter.is_control()) {
                return Err(SettingsError::Value {
                    name,
                    value: u32::from(letter).into(),
                    rule: "no control character",
                });
            }
        }
        let least = [
            ("tick_ms", self.tick_ms),
            ("resend_ms", self.resend_ms),
            ("catch_up_bytes_per_s", self.catch_up_bytes_per_s),
            ("compare_every", self.compare_every),
        ];
        for (name, value) in least {
            if value == 0 {
                return Err(SettingsError::Value { name, value, rule: "at least 1" });
            }
        }
        // One lost heartbeat is no silence.
        if self.silent_ms < self.tick_ms.saturating_mul(3) {
            let rule = "at least three times tick_ms";
            return Err(SettingsError::Value { name: "silent_ms", value: self.silent_ms, rule });
        }
        match self.lease {
            Some(lease) if !(1..=self.silent_ms).contains(&lease.length_ms) => {
                let rule = "1 to silent_ms";
                Err(SettingsError::Value { name: "length_ms", value: lease.length_ms, rule })
            }
            Some(lease) if lease.drift_ppm > 100_000 => {
                let rule = "at most 100000: a clock that is a tenth wrong is broken";
                Err(SettingsError::Value { name: "drift_ppm", value: u64::from(lease.drift_ppm), rule })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_membership::{Ack, Life};

    use super::*;

    #[test]
    fn the_limits_are_taken_and_one_beyond_is_refused_by_name() {
        let life = Life { disk: 1, memory: 1 };
        let setup = Setup { me: Member(0), members: vec![Member(0)], preferred: Member(0), life, ack: Ack::Received };
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::new(setup.clone());
            change(&mut settings);
            settings.check()
        };
        let lease = |length_ms, drift_ppm| Some(LeaseSettings { length_ms, drift_ppm });
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|settings| settings.silent_ms = 60), Ok(()));
        assert_eq!(with(|settings| settings.group = "g".repeat(512)), Ok(()));
        type Change = fn(&mut Settings);
        let refused: [(&str, Change); 6] = [
            ("group", |settings| settings.group = "g".repeat(513)),
            ("tick_ms", |settings| settings.tick_ms = 0),
            ("silent_ms", |settings| settings.silent_ms = 59),
            ("compare_every", |settings| settings.compare_every = 0),
            ("length_ms", |settings| settings.lease = Some(LeaseSettings { length_ms: 151, drift_ppm: 0 })),
            ("drift_ppm", |settings| settings.lease = Some(LeaseSettings { length_ms: 150, drift_ppm: 100_001 })),
        ];
        for (key, change) in refused {
            assert!(matches!(with(change), Err(SettingsError::Value { name, .. }) if name == key), "{key}");
        }
        let mut settings = Settings::new(setup.clone());
        settings.lease = lease(150, 100_000);
        assert_eq!(settings.check(), Ok(()));
        assert_eq!(with(|settings| settings.setup.members.push(Member(255))), Err(SettingsError::Member));
    }
}
