//! The race of key-value stores: objects of 8 KB under pressure, the same clients over every store.
//!
//! An UPDATE is a GET and then a PUT of the same key. Whatever is read is checked: the value names its key and its version and
//! carries checksums, and the race knows which version was acknowledged. In the end the store is closed, opened again and audited.
//!
//! Walk: [`scenario`] says what is asked for, [`store`] how a store is asked · [`ours`] and [`floor`] are members, other
//! programs bring theirs, and [`contract`] is what each must keep · [`cell`] runs one store in one scenario: opens, loads, lets its clients ([`keys`], [`value`], [`ledger`])
//! run, measures, audits · [`race`] runs cells in processes of their own, each in a [`cage`] of memory, and [`pipe`] brings samples home ·
//! [`windows`] what is said of them over time · [`charts`] what is drawn.
//! Deliberately absent: knowledge of a store's inside. Whoever joins writes one [`store::Store`].

pub mod cage;
pub mod cell;
pub mod charts;
mod client;
pub mod contract;
pub mod floor;
pub mod keys;
pub mod ledger;
mod loads;
mod meter;
pub mod ours;
mod pauses;
pub mod pipe;
pub mod race;
pub mod scenario;
pub mod slow;
pub mod store;
pub mod value;
pub mod windows;

use store::Member;

/// The members that need no library of others.
#[must_use]
pub fn members() -> Vec<Member> {
    vec![ours::member(), floor::member()]
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn number(count: u64) -> f64 {
    count as f64
}

fn length(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}
