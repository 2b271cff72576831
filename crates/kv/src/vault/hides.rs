//! What volumes remember of deletes and erased ranges: for the sake of others, which may hold what those hide.
//!
//! A delete is remembered as long as any other volume with a value was written before it. Beside volumes that nobody has a reason to write
//! again, a load that lives or a stretch that was passed, the deletes of many keys that live for a short time (queues, what expires) would be more
//! and more. So they are weighed: what hides nothing any more is dead where it stands; what does is a charge of those volumes for
//! whose sake it is there, by their lengths. They are the emptier by it, and so are written again once that is worth it.
//!
//! Walk: [`Hides::note`] counts while a volume is written · [`weigh`] is for who chooses.
//! Deliberately absent: what of it hides something in which volume. Between the first seq and the last they are taken for evenly spread.

use crate::vault::Account;

/// Of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hides {
    /// Bytes of such items.
    pub(crate) bytes: u64,
    /// The least of their seqs, and the greatest.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Hides {
    pub(crate) const NONE: Self = Self { bytes: 0, from: 0, to: 0 };

    /// One more, of so many bytes.
    pub(crate) fn note(&mut self, seq: u64, bytes: u64) {
        self.from = if self.bytes == 0 { seq } else { self.from.min(seq) };
        self.to = self.to.max(seq);
        self.bytes += bytes;
    }

    /// About the bytes of those up to this seq.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a count, and precision is of no matter"
    )]
    fn up_to(&self, seq: u64) -> u64 {
        let Self { bytes, from, to } = *self;
        if seq >= to {
            return bytes;
        }
        let part = seq.saturating_sub(from) as f64 / (to - from) as f64;
        (bytes as f64 * part) as u64
    }
}

/// What was deleted at a higher seq it may still hold.
fn since(volume: &Account) -> u64 {
    volume.first.max(volume.as_of)
}

/// What is remembered for nobody counts as dead in these volumes; and, if it `charges`, what is remembered for their sake as theirs, and
/// dead. What stands in the journal from `raw_from` on, or in one that is not `whole`, is not written again for it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at least 0, and precision is of no matter"
)]
pub(crate) fn weigh(volumes: &mut [Account], raw_from: u64, whole: impl Fn(&Account) -> bool, charges: bool) {
    if volumes.iter().all(|volume| volume.hides.bytes == 0) {
        return;
    }
    let (mut takes, stays): (Vec<&Account>, Vec<&Account>) =
        volumes.iter().filter(|volume| volume.holds()).partition(|volume| whole(volume));
    let stays = stays.into_iter().map(since).fold(raw_from, u64::min);
    takes.sort_unstable_by_key(|volume| since(volume));
    let mut sum = 0;
    // From which seq on, and the bytes of all up to there.
    let takes: Vec<(u64, u64)> = takes
        .into_iter()
        .map(|volume| {
            sum += volume.bytes;
            (since(volume), sum)
        })
        .collect();
    let nobody = takes.first().map_or(stays, |(since, _)| stays.min(*since));
    // For each byte of those up to that one.
    let mut shares = vec![0.0; takes.len()];
    for volume in volumes.iter_mut() {
        let gone = volume.hides.up_to(nobody);
        let waits = volume.hides.up_to(stays) - gone;
        volume.born += gone;
        let last = takes.partition_point(|(since, _)| *since < volume.hides.to).checked_sub(1);
        if let Some((share, (_, bytes))) = last.and_then(|last| shares.get_mut(last).zip(takes.get(last))) {
            *share += waits as f64 / (*bytes).max(1) as f64;
        }
    }
    let mut all = 0.0;
    for share in shares.iter_mut().rev() {
        all += *share;
        *share = all;
    }
    let held = |volume: &Account| volume.born > volume.hides.up_to(nobody) || volume.is_kept();
    for volume in volumes.iter_mut().filter(|volume| charges && held(volume) && whole(volume)) {
        let own = takes.partition_point(|(other, _)| *other < since(volume));
        let charge = (volume.bytes as f64 * shares.get(own).copied().unwrap_or(0.0)) as u64;
        volume.bytes += charge;
        volume.born += charge;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use assent_ids::Xid;
    use assent_runs::AtOnce;
    use assent_sim::SimDisk;
    use assent_world::Disk;

    use super::*;
    use crate::vault::{
        Address, Asked, Body, Compacted, Compaction, Horizon, Item, Liveness, Source, VaultError, compact,
    };

    /// Items in a row, one at each place of 200 to 300.
    struct Items(Vec<Body<'static>>);

    impl Source for Items {
        fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
            let items =
                (200..).zip(&self.0).map(|(lsn, body)| Item { address: Address::new(lsn, 0), body: body.clone() });
            items.into_iter().try_for_each(then)
        }
    }

    fn compacted(items: Vec<Body<'static>>, other: Horizon) -> Compacted {
        let (disk, folder) = (SimDisk::new(), Path::new("values"));
        disk.create_dir(folder).unwrap();
        let items = Items(items);
        let compaction = Compaction {
            first: 200,
            end: 300,
            generation: 1,
            sources: vec![&items],
            others: vec![other],
            durable: 400,
            flushed: 400,
            remembered_from: u64::MAX,
            cell_bytes: 100,
            window_bytes: 4096,
        };
        compact(&compaction, &mut |_: &Asked<'_>| Ok(Liveness::Absent), &disk, folder, &AtOnce).unwrap()
    }

    #[test]
    fn deletes_are_remembered_for_the_sake_of_values_alone_and_outcomes_of_what_is_prepared() {
        let xid = Xid::new(3, b"global", b"branch").unwrap();
        let items = || {
            let erased = Body::Erased { seq: 290, keyspace: 0, from: b"a", to: Some(b"bcd") };
            let outcome = Body::Outcome { seq: 380, xid, prepare: 150, committed: true };
            vec![Body::Deleted { seq: 250, keyspace: 0, key: b"k" }, erased, outcome]
        };
        let both = Hides { bytes: 2 * 48 + 8, from: 250, to: 290 };
        let range = Hides { bytes: 56, from: 290, to: 290 };
        // As of when the other volume is, whether a value may be in it, what is remembered of three.
        let table =
            [(249, true, 3, both), (250, true, 2, range), (290, true, 1, Hides::NONE), (100, false, 1, Hides::NONE)];
        for (as_of, holds, remembered, hides) in table {
            let done = compacted(items(), Horizon { first: 100, end: 200, as_of, holds });
            assert_eq!((done.remembered, done.hides), (remembered, hides), "as of {as_of}, {holds}");
            let laid = done.facts.hides();
            assert!(laid.bytes >= hides.bytes && laid.bytes < hides.bytes + 200 && (laid.from, laid.to) == (200, 300));
        }
    }

    /// Volumes of 100 places and bytes: as of, deletes remembered and the first and last seq of those; a value lives in those of no delete.
    fn volumes(rows: &[(u64, u64, u64, u64)]) -> Vec<Account> {
        let volume = |(at, (as_of, bytes, from, to)): (u64, &(u64, u64, u64, u64))| {
            let born = if *bytes > 0 { 0 } else { 100 };
            let hides = Hides { bytes: *bytes, from: *from, to: *to };
            Account {
                as_of: *as_of,
                born,
                live: born,
                hides,
                generation: 1,
                ..Account::empty(at * 100, at * 100 + 100)
            }
        };
        (0..).zip(rows).map(volume).collect()
    }

    /// What of each is dead, and what it is charged.
    fn weighed(rows: &[(u64, u64, u64, u64)], raw_from: u64, damaged: Option<usize>) -> Vec<(u64, u64)> {
        let mut all = volumes(rows);
        let damaged = damaged.map(|at| all[at].first);
        let before = all.clone();
        weigh(&mut all, raw_from, |volume| Some(volume.first) != damaged, true);
        let own =
            |(now, was): (&Account, &Account)| (now.born - now.live - (now.bytes - was.bytes), now.bytes - was.bytes);
        all.iter().zip(&before).map(own).collect()
    }

    #[test]
    fn what_hides_nothing_is_dead_and_what_does_is_charged_to_those_for_whose_sake_it_is_there() {
        const RAW: u64 = 1000;
        // Two that live, of 210 and 250; two that remember 40 between 300 and 400, and 20 at 500.
        let rows = [(210, 0, 0, 0), (250, 0, 0, 0), (450, 40, 300, 400), (550, 20, 500, 500)];
        assert_eq!(weighed(&rows, RAW, None), [(0, 30), (0, 30), (0, 0), (0, 0)]);
        // The first was written again, at 350: half of what the third has is remembered for the second alone; then of neither.
        let rows = [(350, 0, 0, 0), (250, 0, 0, 0), (450, 40, 300, 400), (550, 20, 500, 500)];
        assert_eq!(weighed(&rows, RAW, None), [(0, 30), (0, 30), (0, 0), (0, 0)]);
        let rows = [(350, 0, 0, 0), (600, 0, 0, 0), (450, 40, 300, 400), (550, 20, 500, 500)];
        assert_eq!(weighed(&rows, RAW, None), [(0, 40), (0, 0), (20, 0), (0, 0)]);
        let rows = [(350, 0, 0, 0), (600, 0, 0, 0), (450, 40, 300, 400), (550, 20, 500, 500)];
        assert_eq!(weighed(&rows, RAW, Some(0)), [(0, 0), (0, 0), (20, 0), (0, 0)], "one that cannot be written again");
        let rows = [(700, 0, 0, 0), (600, 0, 0, 0), (450, 40, 300, 400), (550, 20, 500, 500)];
        assert_eq!(weighed(&rows, RAW, None), [(0, 0), (0, 0), (40, 0), (20, 0)]);
        // Of branches that were decided behind the place where the journal begins: what stands there may be what they hide.
        let rows = [(700, 0, 0, 0), (600, 0, 0, 0), (450, 40, 300, 400), (550, 20, 500, 1500)];
        assert_eq!(weighed(&rows, RAW, None), [(0, 4), (0, 4), (40, 0), (2, 0)]);
    }

    #[test]
    fn a_passed_stretch_is_charged_for_all_that_was_deleted_behind_its_first_place() {
        let mut all = volumes(&[(0, 0, 0, 0), (900, 50, 150, 800)]);
        weigh(&mut all, 1000, |_| true, true);
        assert_eq!((all[0].bytes, all[0].born, all[1].born), (150, 150, 0));
        weigh(&mut all, 1000, |_| true, false);
        assert_eq!(all[0].bytes, 150, "nobody is charged");
    }
}
