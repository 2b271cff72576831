//! A small write-ahead log with a snapshot, which needs each of its barriers.
//!
//! `wal/log` holds a generation and values, each with a checksum chained to all before it; `wal/snapshot` holds the
//! generation from which the log counts, and all values before.

use std::io;

use assent_sim::{Rng, SimDisk, Subject, Witness};
use assent_world::{Access, Barrier, Disk, Durably, File, Open, write_all_at, write_all_durable_at};

use super::{Arc, path, read};

const FOLDER: Barrier = Barrier::new("toy: the folder before anything in it is promised");
const LOG: Barrier = Barrier::new("toy: a log's head before its name");
const LOG_NAME: Barrier = Barrier::new("toy: a log's name before a value in it is promised");
const VALUES: Barrier = Barrier::new("toy: values before they are promised");
const VALUE_DSYNC: Barrier = Barrier::new("toy: a value written durably before it is promised");
const SNAPSHOT: Barrier = Barrier::new("toy: a snapshot before its name");
const SNAPSHOT_NAME: Barrier = Barrier::new("toy: a snapshot's name before the log that goes on from it");

pub(crate) const BARRIERS: [Barrier; 7] = [FOLDER, LOG, LOG_NAME, VALUES, VALUE_DSYNC, SNAPSHOT, SNAPSHOT_NAME];

/// Bytes of a value with its checksum.
const RECORD: usize = 200;
const LOG_BYTES: u64 = 2048;

/// What is wrong with a log, for a gate to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Recovery writes the log anew in place, so that a cut in the middle of it loses values.
    RecoversInPlace,
    /// A panic when the log's first value is missing.
    Panics,
}

#[derive(Debug)]
pub(crate) struct Toy {
    pub(crate) flaw: Flaw,
    pub(crate) lives: u32,
}

struct Log {
    file: Arc<dyn File>,
    generation: u64,
    end: u64,
    chain: u64,
    values: Vec<u64>,
}

impl Subject for Toy {
    type Fact = u64;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<u64>) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let mut log = self.open(disk).map_err(|error| error.to_string())?;
        for value in &log.values {
            // The power cut left it, so it stays.
            if !witness.acknowledged().contains(value) {
                witness.acknowledge(*value);
            }
        }
        for _ in 0..rng.range(4..12) {
            log.some(disk, &mut rng, witness).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[u64], attempted: &[u64]) -> Result<(), String> {
        let log = self.open(disk).map_err(|error| format!("does not open: {error}"))?;
        if self.flaw == Flaw::Panics && !acknowledged.is_empty() {
            assert_eq!(log.values.first(), acknowledged.first(), "the first value");
        }
        if let Some(lost) = acknowledged.iter().find(|value| !log.values.contains(value)) {
            return Err(format!("value {lost} is lost"));
        }
        let mut attempted = attempted.iter();
        match log.values.iter().find(|value| !attempted.any(|attempted| attempted == *value)) {
            Some(strange) => Err(format!("value {strange} was not attempted, or not here")),
            None => Ok(()),
        }
    }

    fn lives(&self) -> u32 {
        self.lives
    }
}

impl Toy {
    fn open(&self, disk: &SimDisk) -> io::Result<Log> {
        if !disk.list(path(""))?.contains(&"wal".to_owned()) {
            disk.create_dir(path("wal"))?;
        }
        disk.sync_dir(path(""), FOLDER)?;
        let (from, mut values) = read(disk, "wal/snapshot").map_or(Ok((1, Vec::new())), |bytes| snapshot(&bytes))?;
        let log = match read(disk, "wal/log") {
            None => None,
            Some(bytes) => {
                let generation = head(&bytes).ok_or(io::Error::other("the log has no head"))?;
                (generation >= from).then(|| (generation, records(&bytes)))
            }
        };
        let Some((generation, (found, end, chain))) = log else { return Log::begin(disk, from, values) };
        values.extend(&found);
        let file = disk.open(path("wal/log"), Open { access: Access::Write, direct: false })?;
        if self.flaw == Flaw::RecoversInPlace {
            file.preallocate_zeroed(LOG_BYTES)?;
            file.sync_all(LOG)?;
            let mut log = Log { file, generation, end: 8, chain: 0, values: Vec::new() };
            write_all_at(&*log.file, 0, &generation.to_le_bytes())?;
            found.iter().try_for_each(|value| log.append(*value, None))?;
            log.file.sync_data(VALUES)?;
            return Ok(Log { values, ..log });
        }
        Ok(Log { file, generation, end, chain, values })
    }
}

impl Log {
    fn begin(disk: &SimDisk, generation: u64, values: Vec<u64>) -> io::Result<Log> {
        if disk.list(path("wal"))?.contains(&"log.new".to_owned()) {
            disk.unlink(path("wal/log.new"))?;
        }
        let file = disk.open(path("wal/log.new"), Open { access: Access::Create, direct: false })?;
        file.preallocate_zeroed(LOG_BYTES)?;
        write_all_at(&*file, 0, &generation.to_le_bytes())?;
        file.sync_all(LOG)?;
        disk.rename(path("wal/log.new"), path("wal/log"))?;
        disk.sync_dir(path("wal"), LOG_NAME)?;
        Ok(Log { file, generation, end: 8, chain: generation, values })
    }

    fn some(&mut self, disk: &SimDisk, rng: &mut Rng, witness: &Witness<u64>) -> io::Result<()> {
        let values: Vec<u64> = (0..rng.range(1..4)).map(|_| rng.roll()).collect();
        if self.end + 3 * 200 > LOG_BYTES {
            self.turn(disk)?;
        }
        if let [value] = values[..] {
            witness.attempt(value);
            self.append(value, Some(VALUE_DSYNC))?;
        } else {
            for value in &values {
                witness.attempt(*value);
                self.append(*value, None)?;
            }
            self.file.sync_data(VALUES)?;
        }
        values.into_iter().for_each(|value| witness.acknowledge(value));
        Ok(())
    }

    fn append(&mut self, value: u64, durable: Option<Barrier>) -> io::Result<()> {
        let chain = chained(self.chain, value);
        let mut record = [value.to_le_bytes(), chain.to_le_bytes()].concat();
        record.resize(RECORD, 1);
        match durable {
            Some(barrier) => write_all_durable_at(&*self.file, self.end, &record, Durably::Dsync, barrier)?,
            None => write_all_at(&*self.file, self.end, &record)?,
        }
        self.end += 200;
        self.chain = chain;
        self.values.push(value);
        Ok(())
    }

    /// A snapshot of all, then an empty log.
    fn turn(&mut self, disk: &SimDisk) -> io::Result<()> {
        let generation = self.generation + 1;
        let mut bytes = generation.to_le_bytes().to_vec();
        self.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        bytes.extend(bytes.chunks(8).fold(9, |chain, word| chained(chain, number(word))).to_le_bytes());
        if disk.list(path("wal"))?.contains(&"snapshot.new".to_owned()) {
            disk.unlink(path("wal/snapshot.new"))?;
        }
        let file = disk.open(path("wal/snapshot.new"), Open { access: Access::Create, direct: false })?;
        write_all_at(&*file, 0, &bytes)?;
        file.sync_all(SNAPSHOT)?;
        disk.rename(path("wal/snapshot.new"), path("wal/snapshot"))?;
        disk.sync_dir(path("wal"), SNAPSHOT_NAME)?;
        *self = Log::begin(disk, generation, std::mem::take(&mut self.values))?;
        Ok(())
    }
}

fn head(bytes: &[u8]) -> Option<u64> {
    bytes.get(..8).map(number).filter(|generation| (1..1000).contains(generation))
}

fn records(bytes: &[u8]) -> (Vec<u64>, u64, u64) {
    let (mut values, mut end, mut chain) = (Vec::new(), 8, number(&bytes[..8]));
    for record in bytes[8..].chunks_exact(RECORD) {
        let value = number(&record[..8]);
        let whole = number(&record[8..16]) == chained(chain, value) && record[16..].iter().all(|byte| *byte == 1);
        if !whole {
            break;
        }
        values.push(value);
        end += 200;
        chain = chained(chain, value);
    }
    (values, end, chain)
}

fn snapshot(bytes: &[u8]) -> io::Result<(u64, Vec<u64>)> {
    let words: Vec<u64> = bytes.chunks(8).map(number).collect();
    match &words[..] {
        [inside @ .., sum]
            if !inside.is_empty() && inside.iter().fold(9, |chain, word| chained(chain, *word)) == *sum =>
        {
            Ok((inside[0], inside[1..].to_vec()))
        }
        _ => Err(io::Error::other("the snapshot is broken")),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn chained(chain: u64, value: u64) -> u64 {
    Rng::new(chain ^ value.rotate_left(23)).roll()
}
