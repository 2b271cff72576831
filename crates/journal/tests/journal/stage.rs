//! What most tests need: a journal on a simulated disk, and what was appended to it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_frame::{Head, PAYLOAD_BYTES_MAX, lay, parse};
use assent_ids::Lsn;
use assent_journal::{BARRIERS, Config, Entry, Journal, JournalError, Log, Recovery, Ticket};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

pub(crate) const FOLDER: &str = "journal";

/// Small segments and buffers, so that everything happens soon.
pub(crate) fn small() -> Config {
    Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Config::default() }
}

pub(crate) fn open(disk: &SimDisk, seed: u64, config: &Config) -> Result<(Arc<Journal>, Recovery), JournalError> {
    open_at(disk, Arc::new(SimClock::new()), seed, config)
}

pub(crate) fn open_at(
    disk: &SimDisk,
    clock: Arc<SimClock>,
    seed: u64,
    config: &Config,
) -> Result<(Arc<Journal>, Recovery), JournalError> {
    let dice = Arc::new(SimDice::new(seed));
    Journal::open(Arc::new(disk.clone()), clock, dice, Path::new(FOLDER), config.clone())
}

/// Appends and waits as the policy says.
pub(crate) fn put(log: &dyn Log, payload: &[u8]) -> Ticket {
    let ticket = log.append(1, &[payload]).unwrap();
    log.wait(ticket).unwrap();
    ticket
}

pub(crate) fn all(log: &dyn Log) -> Vec<Entry> {
    log.read(log.start()).unwrap().map(Result::unwrap).collect()
}

pub(crate) fn payloads(log: &dyn Log) -> Vec<Vec<u8>> {
    all(log).into_iter().map(|entry| entry.payload).collect()
}

/// The names of the segments, in order.
pub(crate) fn segments(disk: &SimDisk) -> Vec<String> {
    list(disk).unwrap()
}

fn list(disk: &SimDisk) -> io::Result<Vec<String>> {
    let names = disk.list(Path::new(FOLDER))?;
    Ok(names.into_iter().filter(|name| name.ends_with(".log")).map(|name| format!("{FOLDER}/{name}")).collect())
}

/// All bytes of a file.
pub(crate) fn bytes(disk: &SimDisk, path: &str) -> Vec<u8> {
    content(disk, path).unwrap()
}

fn content(disk: &SimDisk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(Path::new(path), Open { access: Access::Read, direct: false })?;
    let mut bytes = vec![0; usize::try_from(file.size()?).unwrap()];
    read_exact_at(&*file, 0, &mut bytes)?;
    Ok(bytes)
}

/// Writes bytes into a file, as rot does.
pub(crate) fn rot(disk: &SimDisk, path: &str, at: u64, bytes: &[u8]) {
    let file = disk.open(Path::new(path), Open { access: Access::Write, direct: false }).unwrap();
    write_all_at(&*file, at, bytes).unwrap();
}

/// Where a place of a log that begins at 0 stands in its first file.
pub(crate) fn offset(ticket: Ticket) -> u64 {
    4096 + ticket.lsn.0
}

/// Leaves a log as earlier releases did when they rescued what stands from this place on: in a file of its own, which takes over the end of
/// the one before, and that one keeps its length. It has its name once it is durable.
pub(crate) fn in_two_files(disk: &SimDisk, Lsn(at): Lsn) -> io::Result<()> {
    const HEAD: usize = 4096;
    let first = |name: &String| u64::from_str_radix(&name[FOLDER.len() + 1..][..16], 16).unwrap();
    let name = list(disk)?.into_iter().rfind(|name| first(name) <= at).unwrap();
    if first(&name) == at {
        return Ok(());
    }
    let whole = content(disk, &name)?;
    let (frame, _) = parse(&whole[8..HEAD], PAYLOAD_BYTES_MAX).unwrap().unwrap();
    let (fields, _) = frame.payload.split_at(16);
    let block = HEAD + usize::try_from(at / 4096 - first(&name) / 4096).unwrap() * 4096;
    let size = (HEAD + whole.len() - block) as u64;
    let mut half = whole[..8].to_vec();
    lay(&mut half, Head { mark: at, kind: frame.kind, flags: 0, chain: 0 }, &[fields, &size.to_le_bytes()]);
    half.resize(HEAD + usize::try_from(at % 4096).unwrap(), 0);
    half.extend_from_slice(&whole[block + usize::try_from(at % 4096).unwrap()..]);
    let next = Path::new(FOLDER).join("next.tmp");
    let file = disk.open(&next, Open { access: Access::Create, direct: false })?;
    write_all_at(&*file, 0, &half)?;
    file.sync_all(BARRIERS[0])?;
    disk.rename(&next, &Path::new(FOLDER).join(format!("{at:016x}.log")))?;
    disk.sync_dir(Path::new(FOLDER), BARRIERS[0])
}
