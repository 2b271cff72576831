//! What all threads of a table share under one short lock: the image, which file holds what, the group under way. No I/O.
//!
//! Walk: [`Core::close`] ends a group and copies its blocks into a [`Flight`] for the file whose turn it is ·
//! [`Core::land`] takes a finished write back and says whom to wake.

use std::collections::BTreeSet;
use std::sync::Arc;

use assent_ids::Epoch;
use assent_world::{AlignedBuffer, File, Gate, Moment};

use crate::engine::copies::Copy;
use crate::engine::image::Image;
use crate::engine::layout::{BLOCK, Head};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) image: Image,
    pub(crate) copies: Vec<Copy>,
    /// The file that has the newest group, written or under way.
    pub(crate) newest: usize,
    /// The file that was synced last.
    pub(crate) kept: usize,
    pub(crate) generation: u64,
    /// The group that was synced last.
    pub(crate) synced: u64,
    /// Records that changed the table, ever.
    pub(crate) end: u64,
    /// How far the group under way goes.
    pub(crate) flying: u64,
    /// A write or a sync is under way: one at a time, as the next group goes where this one is not.
    pub(crate) is_busy: bool,
    /// Where those wait who are in what is under way.
    pub(crate) flight: Arc<Gate>,
    /// Where all others wait.
    pub(crate) open: Arc<Gate>,
    /// Why it takes nothing more.
    pub(crate) closed: Option<String>,
    /// The last record that needed room was refused, and there is none since.
    pub(crate) is_full: bool,
    /// Blocks that each file has room for.
    pub(crate) room: u32,
    /// Two files hold the same table, and it is durable.
    pub(crate) is_doubled: bool,
    /// When the first group after the last sync was written.
    pub(crate) since: Option<Moment>,
    pub(crate) last_sync: Moment,
    pub(crate) buffer: Option<AlignedBuffer>,
    pub(crate) is_lazy: bool,
}

/// What every head of an opening says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) id: u128,
    pub(crate) boot: u128,
    pub(crate) epoch: Epoch,
}

/// A group on its way to the disk.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) copy: usize,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: std::path::PathBuf,
    pub(crate) generation: u64,
    pub(crate) end: u64,
    /// Runs of neighbouring blocks: the first one's number, and how many.
    pub(crate) runs: Vec<(u32, usize)>,
    /// All of them, one after the other.
    pub(crate) buffer: AlignedBuffer,
    pub(crate) is_double: bool,
}

impl Core {
    /// The file whose turn it is.
    pub(crate) fn target(&self) -> Option<usize> {
        let may = |(at, _): &(usize, &Copy)| *at != self.newest && (!self.is_lazy || *at != self.kept);
        let all = self.copies.iter().enumerate().filter(may);
        all.min_by_key(|(_, copy)| copy.generation).map(|(at, _)| at)
    }

    /// Ends the group: everything up to `end` goes into the file whose turn it is. None for a table that is only read.
    pub(crate) fn close(&mut self, opening: Opening, is_closing: bool) -> Option<Flight> {
        let target = self.target()?;
        let is_double = self.image.touched().is_empty();
        self.generation += 1;
        let touched = self.image.seal(self.generation);
        self.copies.iter_mut().for_each(|copy| copy.stale.extend(&touched));
        let (image, generation) = (&self.image, self.generation);
        let copy = self.copies.get_mut(target)?;
        let numbers = std::mem::take(&mut copy.stale);
        copy.generation = generation;
        let Opening { id, boot, epoch } = opening;
        let head = Head {
            id,
            boot,
            epoch,
            is_lazy: self.is_lazy,
            is_closed: is_closing,
            generation,
            synced: self.synced,
            end: self.end,
            blocks: image.blocks(),
            digest: image.digest(),
        };
        let needed = (numbers.len() + 1) * BLOCK;
        let kept = self.buffer.take().filter(|buffer| buffer.as_slice().len() >= needed);
        let mut buffer = kept.unwrap_or_else(|| AlignedBuffer::zeroed(needed.max(8 * BLOCK)));
        let (first, rest) = buffer.as_mut_slice().split_at_mut_checked(BLOCK)?;
        head.lay(first);
        for (number, to) in numbers.iter().zip(rest.chunks_exact_mut(BLOCK)) {
            to.copy_from_slice(image.bytes(*number));
        }
        let (file, path) = (Arc::clone(&copy.file), copy.path.clone());
        self.newest = target;
        self.flying = self.end;
        self.is_busy = true;
        self.flight = std::mem::take(&mut self.open);
        Some(Flight { copy: target, file, path, generation, end: self.end, runs: runs(&numbers), buffer, is_double })
    }

    /// Takes a write back, durable or not. What failed closes the table: whom to wake, all of them in the first place.
    pub(crate) fn land(&mut self, flight: Flight, result: Result<(), String>, buffer_bytes_max: usize) {
        self.is_busy = false;
        if let Err(reason) = result {
            _ = self.closed.get_or_insert(reason);
            return;
        }
        if !self.is_lazy {
            (self.kept, self.synced) = (flight.copy, flight.generation);
            self.is_doubled = flight.is_double;
        }
        if flight.buffer.as_slice().len() <= buffer_bytes_max {
            self.buffer = Some(flight.buffer);
        }
    }

    /// Wakes whoever waits for what was under way, and somebody who sees to what has come since; everybody, once closed.
    pub(crate) fn wake(&self) {
        self.open.bump();
        self.open.wake(if self.closed.is_some() { u32::MAX >> 1 } else { 1 });
        self.flight.bump();
        self.flight.wake_all();
    }

    /// A seat for whoever waits for this place.
    pub(crate) fn seat(&self, end: u64) -> (Arc<Gate>, u32) {
        let gate = if end <= self.flying { &self.flight } else { &self.open };
        (Arc::clone(gate), gate.value())
    }
}

/// Neighbours together; the head, block 0, goes first.
fn runs(numbers: &BTreeSet<u32>) -> Vec<(u32, usize)> {
    let mut runs: Vec<(u32, usize)> = vec![(0, 1)];
    let mut next = 1;
    for number in numbers {
        match runs.last_mut() {
            Some((_, count)) if *number == next => *count += 1,
            _ => runs.push((*number, 1)),
        }
        next = *number + 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_write() {
        assert_eq!(runs(&BTreeSet::new()), [(0, 1)]);
        assert_eq!(runs(&BTreeSet::from([1, 2, 3])), [(0, 4)]);
        assert_eq!(runs(&BTreeSet::from([2, 3, 7])), [(0, 1), (2, 2), (7, 1)]);
    }
}
