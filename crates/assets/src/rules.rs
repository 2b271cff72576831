//! What every member of a group, and every opening of a log, must have the same: limits, and which business logic there is.
//!
//! They decide what is evicted, refused and executed, so a log replayed under other ones leads to another state. They stand in the head of
//! each snapshot and in an entry of the log, and what differs is refused by its name.
//! Walk: [`Rules::lay`] · [`Rules::check`] on whatever was kept. Deliberately absent: changing them; that is another set of assets.

use assent_frame::{Malformed, Reader, Writer};

use crate::config::Limits;
use crate::logic::Logics;

/// As they are laid: the limits, and the numbers of the business logic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    limits: [u64; 4],
    logics: Vec<u16>,
}

const NAMES: [&str; 4] = ["sessions_max", "answer_bytes_max", "prepared_max", "finished_max"];

impl Rules {
    /// Of these limits and this business logic.
    #[must_use]
    pub fn new(limits: Limits, logics: &Logics) -> Self {
        let Limits { sessions_max, answer_bytes_max, prepared_max, finished_max } = limits;
        let number = |limit: usize| u64::try_from(limit).unwrap_or(u64::MAX);
        let limits = [sessions_max, answer_bytes_max, prepared_max, finished_max].map(number);
        Self { limits, logics: logics.numbers().collect() }
    }

    /// Lays them behind what is there.
    pub fn lay(&self, out: &mut Writer) {
        self.limits.iter().for_each(|limit| _ = out.u64(*limit));
        out.u16(u16::try_from(self.logics.len()).unwrap_or(u16::MAX));
        self.logics.iter().for_each(|number| _ = out.u16(*number));
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut limits = [0; 4];
        for (limit, name) in limits.iter_mut().zip(NAMES) {
            *limit = reader.u64(name)?;
        }
        let count = reader.u16("logics")?;
        let logics = (0..count).map(|_| reader.u16("logic")).collect::<Result<_, _>>()?;
        Ok(Self { limits, logics })
    }

    /// Whether these are the same as what was kept; else what differs, by its name.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self, kept: &Self) -> Result<(), String> {
        for ((name, own), kept) in NAMES.iter().zip(self.limits).zip(kept.limits) {
            if own != kept {
                return Err(format!("{name} is {own} here, and {kept} where these assets were made: give it that"));
            }
        }
        let unlike =
            |one: &Self, other: &Self| one.logics.iter().find(|number| !other.logics.contains(number)).copied();
        if let Some(number) = unlike(kept, self) {
            return Err(format!("business logic {number} is missing here, and there where these assets were made"));
        }
        if let Some(number) = unlike(self, kept) {
            return Err(format!("business logic {number} is new here: these assets were made without it"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Logic, Refusal, Work};

    #[derive(Debug)]
    struct Nothing;

    impl Logic for Nothing {
        fn run(&self, _: &mut Work<'_>, _: &[u8], _: &mut Vec<u8>) -> Result<(), Refusal> {
            Ok(())
        }
    }

    #[test]
    fn what_differs_is_named_and_what_was_laid_is_read() {
        let logics = |numbers: &[u16]| {
            numbers.iter().fold(Logics::default(), |logics, number| logics.with(*number, Arc::new(Nothing)))
        };
        let kept = Rules::new(Limits::default(), &logics(&[3, 9]));
        let mut out = Writer::new();
        kept.lay(&mut out);
        let bytes = out.into_vec();
        assert_eq!(Rules::read(&mut Reader::new(&bytes)).as_ref(), Ok(&kept));
        assert!((0..bytes.len()).all(|end| Rules::read(&mut Reader::new(&bytes[..end])).is_err()));
        let says = |limits, numbers: &[u16]| Rules::new(limits, &logics(numbers)).check(&kept);
        let few = Limits { finished_max: 7, ..Limits::default() };
        assert_eq!(says(Limits::default(), &[3, 9]), Ok(()));
        assert!(says(few, &[3, 9]).unwrap_err().starts_with("finished_max is 7 here, and 4096"));
        assert!(says(Limits::default(), &[3]).unwrap_err().starts_with("business logic 9 is missing"));
        assert!(says(Limits::default(), &[3, 4, 9]).unwrap_err().starts_with("business logic 4 is new"));
    }
}
