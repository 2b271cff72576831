//! A number that counts its changes, as a model for histories: got, set, added to, compared and set.

use crate::linear::Model;

/// What it is at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    /// Its value.
    pub value: i64,
    /// How often it was changed.
    pub updates: u64,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// What it is.
    Get,
    /// It is this from now on.
    Set(i64),
    /// It is that much more.
    Add(i64),
    /// It is the second if it was the first.
    CompareAndSet(i64, i64),
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done; this is what stands behind it.
    Done(Register),
    /// It was this value, not the one expected; nothing was changed.
    Differs(i64),
    /// Nobody knows: done at some time or never.
    InDoubt,
}

/// A call and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Did {
    /// What was called.
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
}

/// The model of [`Register`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers;

impl Model for Registers {
    type State = Register;
    type Op = Did;

    fn step(&self, state: &Register, did: &Did) -> Option<Register> {
        let changed = |value| Register { value, updates: state.updates.saturating_add(1) };
        let (behind, differs) = match did.call {
            Call::Get => (*state, false),
            Call::Set(value) => (changed(value), false),
            Call::Add(by) => (changed(state.value.wrapping_add(by)), false),
            Call::CompareAndSet(expected, value) if expected == state.value => (changed(value), false),
            Call::CompareAndSet(..) => (*state, true),
        };
        let is_so = match did.answer {
            Answer::Done(seen) => !differs && seen == behind,
            Answer::Differs(value) => differs && value == state.value,
            Answer::InDoubt => true,
        };
        is_so.then_some(behind)
    }
}
