//! What the same bytes cost without us: each way to make them durable in a zeroed file, one thread, one write at a time.
//!
//! The floor is the best of the ways, measured in slices between those of the subject, so that a noisy machine is noisy
//! for both. [`echo`] is the floor of a round trip.

pub mod echo;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::{
    AlignedBuffer, BLOCK_BYTES, Barrier, Clock as _, Disk, Durably, File, Open, RealClock, RealDisk,
    write_all_durable_at,
};
use serde::Serialize;

use crate::BenchError;
use crate::report;
use crate::stats::{Latency, Samples, median};

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

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferedDataSync => "page cache, fdatasync",
            Self::BufferedDsync => "page cache, RWF_DSYNC",
            Self::DirectDataSync => "O_DIRECT, fdatasync",
            Self::DirectDsync => "O_DIRECT, RWF_DSYNC",
        }
    }

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

/// A zeroed file that one way writes to, round and round.
#[derive(Debug)]
pub(crate) struct Track {
    way: Way,
    file: Arc<dyn File>,
    path: PathBuf,
    at: u64,
    block: AlignedBuffer,
}

impl Track {
    pub(crate) fn new(folder: &Path, way: Way) -> Result<Self, BenchError> {
        // Several floors may stand in one folder at once.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("floor-{way:?}-{}-{number}", std::process::id()));
        let make = || -> std::io::Result<Arc<dyn File>> {
            let file = RealDisk.open(&path, Open { access: assent_world::Access::Create, direct: way.direct() })?;
            file.preallocate_zeroed(FILE_BYTES)?;
            file.sync_all(BENCH)?;
            Ok(file)
        };
        let file = make().map_err(|error| {
            // A full disk gets its blocks back.
            _ = RealDisk.unlink(&path);
            BenchError::disk(&format!("making the floor's file {}", path.display()), &error)
        })?;
        Ok(Self { way, file, path, at: 0, block: AlignedBuffer::zeroed(0) })
    }

    /// One durable write of so many bytes; of whole blocks where the way needs them.
    pub(crate) fn write(&mut self, bytes: usize) -> Result<(), BenchError> {
        let bytes = if self.way.direct() { bytes.next_multiple_of(BLOCK_BYTES) } else { bytes };
        if bytes > self.block.as_slice().len() {
            self.block = AlignedBuffer::zeroed(bytes);
            self.block.as_mut_slice().fill(0xa5);
        }
        let payload = self.block.as_slice().get(..bytes).unwrap_or_default();
        let stride = u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.at + stride > FILE_BYTES {
            self.at = 0;
        }
        write_all_durable_at(&*self.file, self.at, payload, self.way.durably(), BENCH)
            .map_err(|error| BenchError::disk("the floor's write", &error))?;
        self.at += stride;
        Ok(())
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        // Left behind, it is in nobody's way but the disk's.
        _ = RealDisk.unlink(&self.path);
    }
}

/// What each way costs, slice by slice.
#[derive(Debug)]
pub struct Floor {
    ways: Vec<(Track, Vec<f64>, Samples)>,
    bytes: usize,
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
        let track = |way| Ok((Track::new(folder, way)?, Vec::new(), Samples::default()));
        Ok(Self { ways: Way::ALL.into_iter().map(track).collect::<Result<_, BenchError>>()?, bytes })
    }

    /// One slice of every way, each for that long.
    ///
    /// # Errors
    /// What the disk says.
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    pub fn slice(&mut self, each: Duration) -> Result<(), BenchError> {
        for (track, medians, all) in &mut self.ways {
            let mut samples = Samples::default();
            let start = Instant::now();
            while start.elapsed() < each {
                let before = Instant::now();
                track.write(self.bytes)?;
                samples.push(before.elapsed());
            }
            medians.push(samples.latency().p50);
            all.extend(&samples);
        }
        Ok(())
    }

    /// Writes of the best way that each follow a sleep, as a quiet service makes them: the cores have gone idle, and waking
    /// them is in the figure.
    ///
    /// # Errors
    /// What the disk says.
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    pub fn idle(&mut self, writes: u32, sleep: Duration) -> Result<Samples, BenchError> {
        let best = self.best().map(|cost| cost.way);
        let track = self.ways.iter_mut().map(|(track, _, _)| track).find(|track| Some(track.way) == best);
        let track = track.ok_or_else(|| BenchError::new(Kind::Internal, "the floor has no slices"))?;
        let mut samples = Samples::default();
        for _ in 0..writes {
            RealClock.sleep(sleep);
            let before = Instant::now();
            track.write(self.bytes)?;
            samples.push(before.elapsed());
        }
        Ok(samples)
    }

    /// What each way costs over all slices.
    #[must_use]
    pub fn costs(&self) -> Vec<WayCost> {
        self.ways.iter().map(|(track, medians, _)| WayCost { way: track.way, p50: median(medians) }).collect()
    }

    /// The best way of all slices.
    #[must_use]
    pub fn best(&self) -> Option<WayCost> {
        self.costs().into_iter().min_by(|a, b| a.p50.total_cmp(&b.p50))
    }

    /// Each way over all samples, for a report.
    #[must_use]
    pub fn kept(&self) -> Vec<report::Floor> {
        let name = |way: Way| format!("durable write of {} bytes, hot: {}", self.bytes, way.name());
        self.ways.iter().map(|(track, _, all)| kept(name(track.way), &all.latency())).collect()
    }
}

/// A latency as a floor of a report.
#[must_use]
pub fn kept(name: String, latency: &Latency) -> report::Floor {
    let figures = latency.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    report::Floor { name, unit: "us".to_owned(), figures }
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
        assert_eq!(floor.idle(3, Duration::from_micros(10)).unwrap().len(), 3);
        let kept = floor.kept();
        assert!(kept.len() == 4 && kept.iter().all(|floor| floor.figures["p50"] > 0.0 && floor.unit == "us"));
    }
}
