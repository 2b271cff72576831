//! The disk fills up under load and is freed again: refusals say so, nothing is lost, and service returns by itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_client::{Client, ClientConfig};
use assent_kind::Kind;
use assent_link::LinkConfig;
use assent_resources::Remote;
use assent_wire::Bound;
use assent_world::{Clock as _, RealClock};

use super::assent::write;
use super::served::{Served, serve};

/// Patience with anything that should come.
const LONG: Duration = Duration::from_secs(30);
const WRITERS: usize = 3;
const VALUE_BYTES: usize = 2_000;

/// A small file system of its own; it goes away with the value.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Nothing, said aloud, where this user may not mount.
    #[allow(clippy::print_stderr, reason = "what is not tested is said aloud")]
    fn mount(folder: &Path, mib: u32) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let options = format!("size={mib}m");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output().unwrap();
        if output.status.success() {
            return Some(Self(folder.to_owned()));
        }
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!rustix::process::geteuid().is_root() || why.contains("permission denied"), "mount: {why}");
        eprintln!("NOT TESTED: a disk that fills up, for mount is not allowed here (run as root): {why}");
        None
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the room that is left.
    #[allow(clippy::disallowed_methods, reason = "a test fills a disk")]
    fn fill(&self) {
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    #[allow(clippy::disallowed_methods, reason = "a test frees a disk")]
    fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// What writers were told.
#[derive(Default)]
struct Told {
    committed: BTreeSet<String>,
    rolled_back: BTreeSet<String>,
    in_doubt: BTreeSet<String>,
    /// Sentences of refusals, with their count.
    refusals: BTreeMap<String, u64>,
}

impl Told {
    fn full(&self) -> u64 {
        self.refusals.iter().filter(|(said, _)| said.contains("full")).map(|(_, count)| count).sum()
    }
}

struct Town {
    coordinator: Served,
    stores: [Served; 2],
}

fn configure(folder: &Path, data: &Path, engine: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let mut text = format!("data_dir = {:?}\n", data.display().to_string());
    text += "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    write(&folder.join("assent.toml"), &(text + engine));
    folder.to_owned()
}

/// A coordinator, a store, and another store; the first two where it is said.
fn open(folder: &Path, coordinator: &Path, small: &Path) -> Town {
    let stores = [("small", small.join("kv")), ("large", folder.join("large-data"))]
        .map(|(name, data)| serve(&configure(&folder.join(name), &data, "[kv]\nlog_size = 262144\n")));
    let mut engine = "[coordinator]\nlog_size = 20480\n".to_owned();
    for (name, store) in ["small", "large"].iter().zip(&stores) {
        write!(engine, "[[resource]]\nname = \"{name}\"\nkind = \"assent\"\nurl = \"{}\"\n", store.protocol).unwrap();
    }
    let coordinator = serve(&configure(&folder.join("coordinator"), &coordinator.join("decisions"), &engine));
    Town { coordinator, stores }
}

impl Town {
    fn remotes(&self) -> [Remote; 2] {
        let remote =
            |(name, store): (&str, &Served)| Remote::new(name, store.protocol.parse().unwrap(), LinkConfig::default());
        let [small, large] = &self.stores;
        [remote(("small", small)), remote(("large", large))]
    }

    fn stop(self) {
        self.coordinator.stop();
        self.stores.into_iter().for_each(Served::stop);
    }
}

/// Commits names into both stores until it is told to stop.
fn keep_writing(number: usize, town: &Town, stop: &AtomicBool, told: &Mutex<Told>) {
    let config = ClientConfig::new(town.coordinator.protocol.parse().unwrap(), "writer");
    let client = Client::connect(ClientConfig { resources: vec!["small".to_owned(), "large".to_owned()], ..config });
    let mut remotes = town.remotes();
    for count in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("{number}-{count:06}");
        let outcome = attempt(&client, &mut remotes, &name);
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => _ = told.committed.insert(name),
            Err((kind, said)) => {
                *told
                    .refusals
                    .entry(said.split(" is rolled back: ").last().unwrap_or_default().to_owned())
                    .or_default() += 1;
                _ = if kind == Kind::InDoubt { told.in_doubt.insert(name) } else { told.rolled_back.insert(name) };
                drop(told);
                remotes = town.remotes();
                RealClock.sleep(Duration::from_millis(5));
            }
        }
    }
}

fn attempt(client: &Client, remotes: &mut [Remote; 2], name: &str) -> Result<(), (Kind, String)> {
    let mut tx = client.begin().map_err(|error| (error.kind, error.to_string()))?;
    let enlisted: Vec<_> = remotes.iter_mut().map(|remote| tx.enlist(remote)).collect();
    for store in &enlisted {
        let mut work = store.work().map_err(|error| (error.kind(), error.to_string()))?;
        work.put(0, name.as_bytes(), &[7; VALUE_BYTES]).map_err(|error| (error.kind(), error.to_string()))?;
    }
    drop(enlisted);
    tx.commit().map(drop).map_err(|error| (error.kind, error.to_string()))
}

fn names(remote: &mut Remote) -> BTreeSet<String> {
    let (mut all, mut last) = (BTreeSet::new(), None::<Vec<u8>>);
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (rows, more) = remote.scan(0, from, Bound::Unbounded, 200).unwrap();
        last = rows.last().map(|(key, _)| key.clone());
        all.extend(rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()));
        if !more {
            return all;
        }
    }
}

/// Both stores hold the same; all that was acknowledged and nothing that was refused.
fn check(town: &Town, told: &Told) {
    let [mut small, mut large] = town.remotes();
    let (small, large) = (names(&mut small), names(&mut large));
    assert_eq!(small.symmetric_difference(&large).collect::<Vec<_>>(), Vec::<&String>::new(), "half transactions");
    assert_eq!(told.committed.difference(&small).collect::<Vec<_>>(), Vec::<&String>::new(), "lost");
    assert_eq!(told.rolled_back.intersection(&small).collect::<Vec<_>>(), Vec::<&String>::new(), "undead");
    assert!(small.iter().all(|name| told.committed.contains(name) || told.in_doubt.contains(name)), "strangers");
}

fn await_that(what: &str, told: &Mutex<Told>, is_there: impl Fn(&Told) -> bool) {
    let began = RealClock.now();
    loop {
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if is_there(&told) {
            return;
        }
        let (committed, refusals) = (told.committed.len(), format!("{:#?}", told.refusals));
        drop(told);
        assert!(RealClock.now().since(began) < LONG, "{what} did not happen: {committed} committed, {refusals}");
        RealClock.sleep(Duration::from_millis(10));
    }
}

fn settled(town: &Town) {
    let began = RealClock.now();
    let listed = |town: &Town| {
        let listed = super::assent::run(&["--json", "tx", "list", "--server", &town.coordinator.protocol]);
        super::assent::json(&listed)["transactions"].as_array().map_or(usize::MAX, Vec::len)
    };
    while listed(town) > 0 {
        assert!(RealClock.now().since(began) < LONG, "transactions stay open: {}", listed(town));
        RealClock.sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_coordinator_s_disk_that_fills_up_under_load_loses_nothing_and_service_returns_by_itself() {
    survives(true, "no decision could be made (full): the disk under");
}

#[test]
fn a_store_s_disk_that_fills_up_under_load_loses_nothing_and_service_returns_by_itself() {
    survives(false, "could not commit (full)");
}

fn survives(coordinator_is_there: bool, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(&folder.path().join("small-disk"), 24) else { return };
    let (here, there) = (folder.path(), disk.0.as_path());
    let (decisions, data) = if coordinator_is_there { (there, here) } else { (here, there) };
    let mut town = open(here, decisions, data);
    let (stop, told) = (AtomicBool::new(false), Mutex::new(Told::default()));
    let committed = |told: &Mutex<Told>| told.lock().unwrap_or_else(PoisonError::into_inner).committed.len();
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (town, stop, told) = (&town, &stop, &told);
            scope.spawn(move || keep_writing(number, town, stop, told));
        }
        // Should an assertion below fail, the writers end too.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..2 {
                let before = committed(&told);
                await_that("load", &told, |told| told.committed.len() > before + 50);
                disk.fill();
                let refused = told.lock().unwrap_or_else(PoisonError::into_inner).full();
                await_that("a refusal for want of room", &told, |told| told.full() > refused + 20);
                disk.free();
                let before = committed(&told);
                await_that("service again", &told, |told| told.committed.len() > before + 50);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        told.refusals.keys().any(|said| said.contains(expected)),
        "{expected:?} was not said: {:#?}",
        told.refusals
    );
    assert!(told.refusals.keys().all(|said| !said.contains("closed")), "a journal closed: {:#?}", told.refusals);
    settled(&town);
    check(&town, &told);
    // And what is on the disk says the same.
    town.stop();
    town = open(here, decisions, data);
    settled(&town);
    check(&town, &told);
    town.stop();
}
