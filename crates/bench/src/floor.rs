//! What the same bytes cost without us: each way to make them durable in a zeroed file, one thread, one write at a time.
//!
//! The floor is the best of the ways, measured in slices between those of the subject, so that a noisy machine is noisy
//! for both.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assent_world::{AlignedBuffer, BLOCK_BYTES, Barrier, Disk, Durably, File, Open, RealDisk, write_all_durable_at};
use serde::Serialize;

use crate::BenchError;
use crate::stats::{Samples, median};

const FILE_BYTES: u64 = 16 << 20;
const BENCH: Barrier = Barrier::new("bench: the floor's write");

/// One way to make bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// pwrite and fdatasync through the page cache.
    BufferedDataSync,
    /// One pwritev2 with RWF_DSYNC through the page cache.
    BufferedDsync,
    /// pwrite of whole blocks past the page cache, then fdatasync.
    DirectDataSync,
    /// One pwritev2 with RWF_DSYNC of whole blocks past the page cache.
    DirectDsync,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 4] = [Way::BufferedDataSync, Way::BufferedDsync, Way::DirectDataSync, Way::DirectDsync];

    const fn direct(self) -> bool {
        matches!(self, Self::DirectDataSync | Self::DirectDsync)
    }

    const fn durably(self) -> Durably {
        match self {
            Self::BufferedDataSync | Self::DirectDataSync => Durably::DataSync,
            Self::BufferedDsync | Self::DirectDsync => Durably::Dsync,
        }
    }
}

/// A file to measure one way in.
#[derive(Debug)]
pub struct Floor {
    ways: Vec<(Way, Arc<dyn File>, Vec<f64>)>,
    bytes: usize,
    at: u64,
}

/// What one way costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WayCost {
    /// The way.
    pub way: Way,
    /// The median of its slices' medians, in microseconds.
    pub p50: f64,
}

impl Floor {
    /// Makes one zeroed file for each way in `folder`.
    ///
    /// # Errors
    /// What the disk says.
    pub fn new(folder: &Path, bytes: usize) -> Result<Self, BenchError> {
        let mut ways = Vec::new();
        for way in Way::ALL {
            let path = folder.join(format!("floor-{way:?}"));
            let make = || -> std::io::Result<Arc<dyn File>> {
                let file = RealDisk.open(&path, Open { access: assent_world::Access::Create, direct: way.direct() })?;
                file.preallocate_zeroed(FILE_BYTES)?;
                file.sync_all(BENCH)?;
                Ok(file)
            };
            let file = make()
                .map_err(|error| BenchError::disk(&format!("making the floor's file {}", path.display()), &error))?;
            ways.push((way, file, Vec::new()));
        }
        Ok(Self { ways, bytes, at: 0 })
    }

    /// One slice of every way, each for that long.
    ///
    /// # Errors
    /// What the disk says.
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    pub fn slice(&mut self, each: Duration) -> Result<(), BenchError> {
        let mut block = AlignedBuffer::zeroed(self.bytes);
        block.as_mut_slice().fill(0xa5);
        for (way, file, medians) in &mut self.ways {
            let mut samples = Samples::default();
            let bytes = if way.direct() { block.as_slice().len() } else { self.bytes };
            let payload = block.as_slice().get(..bytes).unwrap_or_default();
            let stride = u64::try_from(bytes).unwrap_or(u64::MAX);
            let start = Instant::now();
            while start.elapsed() < each {
                if self.at + stride > FILE_BYTES {
                    self.at = 0;
                }
                // Direct writes need a block's beginning; packed ones go on where the last ended.
                let at = if way.direct() { self.at.next_multiple_of(4096) % FILE_BYTES } else { self.at };
                let before = Instant::now();
                write_all_durable_at(&**file, at, payload, way.durably(), BENCH)
                    .map_err(|error| BenchError::disk("the floor's write", &error))?;
                samples.push(before.elapsed());
                self.at = at + stride;
            }
            medians.push(samples.latency().p50);
        }
        Ok(())
    }

    /// What each way costs over all slices.
    #[must_use]
    pub fn costs(&self) -> Vec<WayCost> {
        self.ways.iter().map(|(way, _, medians)| WayCost { way: *way, p50: median(medians) }).collect()
    }

    /// The best way of all slices.
    #[must_use]
    pub fn best(&self) -> Option<WayCost> {
        self.costs().into_iter().min_by(|a, b| a.p50.total_cmp(&b.p50))
    }
}

const _: () = assert!(FILE_BYTES.is_multiple_of(BLOCK_BYTES as u64), "the file is whole blocks");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_and_the_best_is_the_cheapest() {
        let folder = tempfile::tempdir().unwrap();
        let mut floor = Floor::new(folder.path(), 256).unwrap();
        floor.slice(Duration::from_millis(2)).unwrap();
        let costs = floor.costs();
        assert_eq!(costs.len(), 4);
        let best = floor.best().unwrap();
        assert!(best.p50 > 0.0 && costs.iter().all(|cost| cost.p50 >= best.p50));
    }
}
