//! The simulated disk against its model, against a real disk, and against a small log that needs every barrier.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod differential;
mod exploration;
mod faults;
mod linear;
mod power;
mod toy;

use std::path::Path;
use std::sync::Arc;

use assent_sim::SimDisk;
use assent_world::{Access, Barrier, Disk, File, Open};

const SYNC: Barrier = Barrier::new("test: a sync");

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn create(disk: &dyn Disk, name: &str) -> Arc<dyn File> {
    disk.open(path(name), Open { access: Access::Create, direct: false }).unwrap()
}

fn open(disk: &dyn Disk, name: &str) -> Arc<dyn File> {
    disk.open(path(name), Open { access: Access::Write, direct: false }).unwrap()
}

/// A file that holds this durably.
fn durable(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = create(disk, name);
    assert_eq!(file.write_at(0, bytes).unwrap(), bytes.len());
    file.sync_all(SYNC).unwrap();
    disk.sync_dir(path(""), SYNC).unwrap();
    file
}

/// All of a file; `None` if it is not there.
fn read(disk: &dyn Disk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(path(name), Open { access: Access::Read, direct: false }).ok()?;
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(assent_world::read_exact_at(&*file, 0, &mut bytes).unwrap(), bytes.len());
    Some(bytes)
}

/// What a file holds on every disk that a power cut could leave, sorted.
fn fates(disk: &SimDisk, name: &str) -> Vec<Option<Vec<u8>>> {
    let mut fates: Vec<_> = disk.survivors(1 << 12, 1).iter().map(|disk| read(disk, name)).collect();
    fates.sort();
    fates.dedup();
    fates
}

/// Sectors as letters: each must hold one byte only.
fn letters(bytes: &[u8]) -> String {
    let one = |sector: &[u8]| {
        let uniform = sector.iter().all(|byte| *byte == sector[0]);
        if uniform { if sector[0] == 0 { '.' } else { char::from(sector[0]) } } else { '?' }
    };
    bytes.chunks(512).map(one).collect()
}

/// [`fates`] as letters, `-` for no file.
fn letter_fates(disk: &SimDisk, name: &str) -> Vec<String> {
    let one = |bytes: Option<Vec<u8>>| bytes.map_or("-".to_owned(), |bytes| letters(&bytes));
    let mut fates: Vec<String> = fates(disk, name).into_iter().map(one).collect();
    fates.sort();
    fates
}
