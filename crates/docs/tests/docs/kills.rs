//! A real process that commits is killed by SIGKILL, again and again: what it had acknowledged is there, and exact.
//!
//! The process is this test itself, started again with the folder in its environment. Four threads commit to a document each, and
//! say so on stdout once a commit has returned. What a revision holds follows from its number, so nothing needs to be remembered.
//! `ASSENT_KILLS` says how often (8), `ASSENT_KILLS_SECONDS` for how long at least; `make docs-kills` kills 50 times.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use assent_docs::{At, Config, Database, Document, Form, Look as _, NodeKey, Value, Versioning};
use assent_journal::{Journal, Keeper};
use assent_sim::Rng;
use assent_world::{Clock as _, RealClock, RealDice, RealDisk};

use super::says;

const FOLDER: &str = "ASSENT_DOCS_KILLED";
const DOCUMENTS: usize = 4;
const STRATEGIES: [Versioning; DOCUMENTS] = [
    Versioning::SlidingSnapshot { window: 3 },
    Versioning::Full,
    Versioning::Incremental { window: 4 },
    Versioning::Differential,
];

pub fn open(folder: &Path) -> (Arc<Journal>, Database) {
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let kept = assent_journal::Config {
        kept_until_released: true,
        settles_late: true,
        log_size: 1 << 20,
        ..Default::default()
    };
    let (log, _) =
        Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), kept).expect("the journal");
    // Small, so that checkpoints and trims are killed, too, and that large changes are laid before their commit.
    let config = Config { trims: true, checkpoint_bytes: 256 << 10, edit_nodes_max: 64, ..Config::default() };
    let db = Database::open(log.clone(), disk, clock, &folder.join("index"), config).expect("the database");
    (log, db)
}

/// What every seventh revision goes back to.
const fn origin(revision: u32) -> u32 {
    if revision.is_multiple_of(7) { revision - 3 } else { revision }
}

/// What a document holds at a revision.
fn content(document: usize, revision: u32) -> String {
    let revision = origin(revision);
    // The one of revision 1 stays; others come with every fifth, some of them large.
    let newest = revision / 5 * 5;
    let many = if newest.is_multiple_of(20) { 300 } else { 2 };
    let rows = (0..many).map(|row| format!("[{newest},\"row {row}\"]")).collect::<Vec<_>>().join(",");
    format!("{{\"document\":{document},\"number\":{revision}.50,\"rows\":[{rows}]}}")
}

/// Commits the next revision.
fn commit(doc: &Document, document: usize) -> u32 {
    let next = doc.latest().number() + 1;
    let mut edit = doc.edit().expect("the writer's seat");
    if next.is_multiple_of(7) {
        edit.revert(&doc.at(next - 3).expect("an earlier revision")).expect("a revert");
    } else if let Some(root) = edit.value() {
        let number = edit.member(root, "number").unwrap().expect("a number");
        edit.set(number, Value::Number(&format!("{next}.50"))).unwrap();
        // Those of the revision before may be those of a revert.
        if origin(next) / 5 != origin(next - 1) / 5 {
            let rows = edit.member(root, "rows").unwrap().expect("rows");
            let all = content(document, next);
            let (_, rows_of_next) = all.split_once("\"rows\":").unwrap();
            edit.replace(rows, rows_of_next.trim_end_matches('}').as_bytes()).unwrap();
        }
    } else {
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, content(document, next).as_bytes()).unwrap();
    }
    edit.commit(&says(&format!("number {next}"))).expect("a commit").number()
}

/// The process that is killed. As a test of its own it does nothing.
#[test]
fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (log, db) = open(Path::new(&folder));
    let _keeper = Keeper::start(log, Arc::new(RealClock));
    std::thread::scope(|scope| {
        for (document, versioning) in STRATEGIES.into_iter().enumerate() {
            let db = &db;
            scope.spawn(move || {
                let name = document.to_string();
                let doc = db.document(&name).or_else(|_| db.create(&name, versioning)).expect("a document");
                loop {
                    let revision = commit(&doc, document);
                    let mut out = std::io::stdout().lock();
                    // Nobody reads any more: whoever killed us is late.
                    if writeln!(out, "done {document} {revision}").and_then(|()| out.flush()).is_err() {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            loop {
                db.tick();
                RealClock.sleep(Duration::from_millis(2));
            }
        });
    });
}

/// Lets a process commit until it has acknowledged so many, and a little longer; the newest revision that it said of each.
fn killed(folder: &Path, rng: &mut Rng) -> [u32; DOCUMENTS] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::the_process_that_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut newest = [0; DOCUMENTS];
    let mut take = |line: std::io::Result<String>| {
        let line = line.unwrap();
        // The first one stands behind what the test harness says.
        let Some((_, said)) = line.split_once("done ") else { return false };
        let (document, revision) = said.split_once(' ').unwrap();
        let (document, revision): (usize, u32) = (document.parse().unwrap(), revision.parse().unwrap());
        assert!(revision > newest[document], "{document}: {revision} after {}", newest[document]);
        newest[document] = revision;
        true
    };
    let wanted = rng.below(120);
    let mut acknowledged = 0;
    while acknowledged < wanted {
        let line = lines.next().expect("the process goes on until it is killed");
        acknowledged += u64::from(take(line));
    }
    RealClock.sleep(Duration::from_micros(rng.below(3000)));
    child.kill().unwrap();
    // What it said before it died counts.
    lines.for_each(|line| _ = take(line));
    assert!(!child.wait().unwrap().success(), "it was killed");
    newest
}

#[test]
fn kills_of_a_committing_process_lose_nothing_that_it_had_acknowledged() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (kills, seconds) = (number("ASSENT_KILLS").unwrap_or(8), number("ASSENT_KILLS_SECONDS").unwrap_or(0));
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(7);
    let begun = RealClock.now();
    let (mut checked, mut known, mut times) = (0_u64, [0; DOCUMENTS], 0);
    while times < kills || RealClock.now().since(begun) < Duration::from_secs(seconds) {
        let acknowledged = killed(folder.path(), &mut rng);
        times += 1;
        let (log, db) = open(folder.path());
        for (document, versioning) in STRATEGIES.into_iter().enumerate() {
            let name = document.to_string();
            let doc = db.document(&name).or_else(|_| db.create(&name, versioning)).unwrap();
            let newest = doc.latest().number();
            let least = acknowledged[document].max(known[document]);
            assert!((least..=least + 1).contains(&newest), "kill {times}: {name} at {newest}, {least} acknowledged");
            for revision in known[document].max(1)..=newest {
                let found = Form::default().text(&doc.at(revision).unwrap()).unwrap();
                assert_eq!(found, content(document, revision), "kill {times}: {name} at {revision}");
                checked += 1;
            }
            doc.latest().verify().unwrap();
            let any = u32::try_from(rng.below(u64::from(newest) + 1)).unwrap();
            doc.at(any).unwrap().verify().unwrap();
            known[document] = commit(&doc, document);
            assert_eq!(known[document], newest + 1, "kill {times}: the next commit works");
        }
        // Sometimes in order, sometimes as if it had been killed as well.
        if rng.below(2) == 0 {
            log.close().unwrap();
        }
    }
    println!("{times} kills, {checked} revisions read, {} committed", known.iter().sum::<u32>());
    assert!(checked > times, "{checked} revisions in {times} kills");
}
