//! The rows of a run: what differs in its acknowledgement alone runs side by side with its floor, in slices that take turns.
//!
//! Walk: [`run`] takes a case · all its subjects are started · round by round a slice of each, in an order that is turned each round ·
//! what is left in the servers is looked at · a cell each. What fails is a cell with its error, and the others go on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use assent_kind::Kind;

use super::figures::{self, Seen};
use super::load::{Slice, drive};
use super::meter::Meter;
use super::peers::{self, Peer};
use super::place::{FLOOR, Program, Subject, make, remove};
use super::speech::Speech;
use super::{Case, Role, audit};
use crate::BenchError;
use crate::report::sink::Sink;
use crate::report::{Cell, Floor};

/// A run.
#[derive(Debug)]
pub struct Plan<'p> {
    /// What the processes are of.
    pub program: &'p Program,
    /// The folder of the servers; what a case leaves in it is removed.
    pub folder: &'p Path,
    /// What is run.
    pub cases: &'p [Case],
    /// What stands behind an answer.
    pub acks: &'p [String],
    /// Who else takes part.
    pub peers: &'p [Peer],
    /// Slices of each row.
    pub rounds: u32,
    /// How long each is.
    pub slice: Duration,
}

impl Plan<'_> {
    /// The acknowledgements of a case: one server alone has nobody to receive anything.
    fn acks(&self, case: &Case) -> Vec<String> {
        let is_there = |ack: &&String| case.role == Role::Pair || *ack != "received";
        // Peers have no network of ours between them.
        let peers = self.peers.iter().filter(|_| case.rtt_us == 0).map(|peer| peer.name().to_owned());
        self.acks.iter().filter(is_there).cloned().chain(peers).collect()
    }
}

/// Runs every case and puts its rows into the report, also those that fail. `progress` is told the case that begins.
///
/// # Errors
/// What the disk says of the folder or the report; never what one row says.
pub fn run(plan: &Plan<'_>, sink: &Sink, mut progress: impl FnMut(usize, &Case)) -> Result<(), BenchError> {
    make(plan.folder)?;
    for (number, case) in plan.cases.iter().enumerate() {
        if sink.interrupted() {
            return Ok(());
        }
        progress(number, case);
        let folder = plan.folder.join(format!("row-{number}"));
        make(&folder)?;
        let cells = one(plan, case, &folder, sink);
        remove(&folder);
        if sink.interrupted() {
            // Cut half way: no figure of it means anything.
            return Ok(());
        }
        for cell in cells {
            if cell.labels.get("ack").is_some_and(|ack| ack == FLOOR) && cell.error.is_none() {
                let name = format!("{} {}", case.role.name(), crate::report::named(&cell.labels));
                let figures = cell.figures.clone();
                sink.put_floor(Floor { name, unit: "commands/s, us".to_owned(), figures })?;
            }
            sink.put(cell)?;
        }
    }
    Ok(())
}

/// A row under way.
struct Row {
    subject: Subject,
    seen: Seen,
    failed: Option<BenchError>,
}

fn one(plan: &Plan<'_>, case: &Case, folder: &Path, sink: &Sink) -> Vec<Cell> {
    let acks: Vec<String> = std::iter::once(FLOOR.to_owned()).chain(plan.acks(case)).collect();
    let mut cells = BTreeMap::new();
    let mut rows = Vec::new();
    for ack in &acks {
        match open(plan.program, &folder.join(ack), case, ack) {
            Ok(subject) => rows.push(Row { subject, seen: Seen::default(), failed: None }),
            Err(error) => _ = cells.insert(ack.clone(), failed(case, ack, &error)),
        }
    }
    for round in 0..usize::try_from(plan.rounds).unwrap_or(1) {
        let count = rows.len().max(1);
        for turn in 0..rows.len() {
            let Some(row) = rows.get_mut((turn + round) % count).filter(|row| row.failed.is_none()) else { continue };
            if sink.interrupted() {
                return Vec::new();
            }
            if let Err(error) = slice(row, case, plan.slice) {
                row.failed = Some(error);
            }
        }
    }
    for row in &mut rows {
        if row.failed.is_none() {
            row.failed = left(row, case).err();
        }
    }
    let floor = rows.iter().find(|row| row.subject.ack == FLOOR && row.failed.is_none()).map(|row| row.seen.clone());
    for Row { subject, seen, failed: error } in &rows {
        let ack = &subject.ack;
        let cell = match error {
            Some(error) => failed(case, ack, error),
            None => figures::cell(case, ack, seen, floor.as_ref()).unwrap_or_else(|error| failed(case, ack, &error)),
        };
        cells.insert(ack.clone(), cell);
    }
    acks.iter().filter_map(|ack| cells.remove(ack)).collect()
}

fn failed(case: &Case, ack: &str, error: &BenchError) -> Cell {
    Cell { labels: case.labels(ack), error: Some(error.to_string()), ..Cell::default() }
}

fn open(program: &Program, folder: &Path, case: &Case, ack: &str) -> Result<Subject, BenchError> {
    make(folder)?;
    let subject = Subject::open(program, folder, case, ack)?;
    if subject.speech == Speech::Assets {
        audit::create(&subject.at, case.assets)?;
    }
    Ok(subject)
}

/// One slice: what its clients saw, and what it cost everybody.
fn slice(row: &mut Row, case: &Case, length: Duration) -> Result<(), BenchError> {
    let Row { subject, seen, .. } = row;
    let look = |subject: &Subject| -> Vec<(&'static str, Meter)> {
        subject.processes().map(|(name, process)| (name, Meter::of(process))).collect()
    };
    let own = |subject: &Subject| {
        let all = Meter::of(std::process::id());
        Meter { cpu_s: all.cpu_s - subject.network_cpu_s(), ..all }
    };
    let (before, client) = (look(subject), own(subject));
    let (slice, news) = loaded(subject, case, length)?;
    seen.took("client", own(subject) - client);
    for ((name, before), (_, after)) in before.into_iter().zip(look(subject)) {
        seen.took(name, after - before);
    }
    seen.slices.push(slice);
    seen.news = (seen.news.0 + news.0, seen.news.1 + news.1);
    Ok(())
}

/// The load, and subscribers beside it; of those the changes that they were told, and missed.
fn loaded(subject: &Subject, case: &Case, length: Duration) -> Result<(Slice, (u64, u64)), BenchError> {
    let at = &subject.at;
    let count = if subject.speech == Speech::Assets { case.subscribers } else { 0 };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, is_ready) = sync_channel(usize::try_from(count).unwrap_or(1).max(1));
        let listen = |_| {
            let (ready, stop) = (ready.clone(), &stop);
            // Whoever waits for it has gone only with everything else.
            scope.spawn(move || audit::listen(at, audit::kept_of(count), stop, move || _ = ready.send(())))
        };
        let listeners: Vec<_> = (0..count).map(listen).collect();
        (0..count).for_each(|_| _ = is_ready.recv());
        let slice = drive(at, subject.speech, case, length);
        stop.store(true, Ordering::SeqCst);
        let mut news = (0, 0);
        for listener in listeners {
            let panicked = |_| Err(BenchError::new(Kind::Internal, "a subscriber panicked"));
            let (told, missed) = listener.join().unwrap_or_else(panicked)?;
            news = (news.0 + told, news.1 + missed);
        }
        Ok((slice?, news))
    })
}

/// What the race left behind: both nodes have one state, and it holds what was answered.
fn left(row: &mut Row, case: &Case) -> Result<(), BenchError> {
    let Row { subject, seen, .. } = row;
    match subject.speech {
        Speech::Echo => return Ok(()),
        Speech::Redis { .. } | Speech::Etcd => {
            seen.executed = peers::executed(subject, case.assets)?;
            return Ok(());
        }
        Speech::Assets => {}
    }
    seen.executed = audit::executed(&subject.at, case.assets)?;
    audit::agreed(&subject.nodes)?;
    let told = seen.news.0 + seen.news.1;
    let answered = seen.answered() * u64::from(case.subscribers);
    if told != answered {
        let message = format!("subscribers were told {told} changes, missed ones counted; {answered} were answered");
        return Err(BenchError::new(Kind::Corrupt, message));
    }
    Ok(())
}
