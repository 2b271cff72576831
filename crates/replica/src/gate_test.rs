//! The power goes, everywhere: what a member stored of itself is there, a snapshot is whole, and snapshot and log together hold every
//! entry that was durable. Without any one barrier that is not so. And any bytes get an answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::Epoch;
use assent_journal::{Config, Journal};
use assent_membership::{Ack, Body, Configuration, History, InSync, Life, Member, Place, Reach, Sequence};
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Witness};
use assent_world::Disk;

use crate::{BARRIERS, Base, Chain, Entry, Mark, Message, Own, OwnLog, Piece, Said, Shelf, Told, Wrote, fuzzing};

const FOLDER: &str = "member";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fact {
    /// That many starts were counted.
    Started(u64),
    /// The configuration of this version was stored.
    Stored(u64),
    /// Promises may be as long as this.
    Promised(u64),
    /// The log holds entries up to this one.
    Held(u64),
    /// The log was cut behind this entry.
    Cut(u64),
}

struct Gate;

/// A member's folder, opened.
struct Opening {
    own: Own,
    log: OwnLog,
    shelf: Shelf,
}

impl Opening {
    /// What the snapshot holds: each byte as it was laid.
    fn state(&self) -> Result<Vec<u8>, String> {
        let mut state = Vec::new();
        if let Some(kept) = self.shelf.kept() {
            kept.load(|next| {
                while let Some(chunk) = next() {
                    state.extend(chunk);
                }
                Ok(())
            })?;
        }
        Ok(state)
    }

    /// Takes the snapshot of another member, whose log goes as far: in pieces, read, installed.
    fn take_over(&mut self, end: &Base, state: &[u8]) -> Result<(), String> {
        let told = |error: crate::ReplicaError| error.to_string();
        let other = SimDisk::new();
        let theirs = Shelf::open(Arc::new(other), Path::new("")).map_err(told)?;
        theirs.write(0, end, |_| Ok(()), |put| state.chunks(3_000).try_for_each(put)).map_err(told)?;
        let kept = theirs.kept().ok_or("nothing is kept")?;
        let mut coming = self.shelf.begin().map_err(told)?;
        let mut offset = 0;
        while offset < kept.bytes {
            let piece = kept.piece(offset, 10_000).map_err(|error| error.to_string())?;
            offset += piece.bytes.len() as u64;
            coming.keep(&piece).map_err(told)?;
        }
        let drain = |next: crate::Next<'_>| {
            while next().is_some() {}
            Ok(())
        };
        self.shelf.check(&coming, end, drain).map_err(told)??;
        self.shelf.install(&coming, end).map_err(told)?;
        self.log.begin(end.end);
        Ok(())
    }
}

/// Numbers as bytes, so that the state is what the log says.
fn payload(sequence: u64) -> Vec<u8> {
    vec![sequence.to_le_bytes()[0]; 3_000]
}

fn open(disk: &SimDisk, seed: u64) -> Result<(Opening, Base), String> {
    let (dice, clock) = (Arc::new(SimDice::new(seed)), Arc::new(SimClock::new()));
    let config = Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Config::default() };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let folder = Path::new(FOLDER);
    let (journal, _) = Journal::open(Arc::clone(&shared), clock.clone(), dice.clone(), folder, config)
        .map_err(|error| error.to_string())?;
    let own = Own::open(Arc::clone(&shared), &*clock, &*dice, folder).map_err(|error| error.to_string())?;
    let shelf = Shelf::open(shared, folder).map_err(|error| error.to_string())?;
    let (log, history) = OwnLog::open(journal, dice, &shelf.base()).map_err(|error| error.to_string())?;
    let end = Base { history, end: log.end() };
    Ok((Opening { own, log, shelf }, end))
}

impl Subject for Gate {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        let told = |error: crate::ReplicaError| error.to_string();
        let mut rng = Rng::new(seed);
        let (mut member, mut end) = open(disk, rng.roll())?;
        witness.acknowledge(Fact::Started(member.own.life(Ack::Received).memory));
        // What an open shows is durable.
        witness.attempt(Fact::Held(end.end.sequence.0));
        witness.acknowledge(Fact::Held(end.end.sequence.0));
        for _ in 0..rng.range(2..9) {
            match rng.below(8) {
                0 => {
                    let version = member.own.known().version + 1;
                    witness.attempt(Fact::Stored(version));
                    member.own.store(Configuration { version, ..Configuration::default() }).map_err(told)?;
                    witness.acknowledge(Fact::Stored(version));
                }
                7 => {
                    let length_ms = member.own.promised_ms() + 1;
                    witness.attempt(Fact::Promised(length_ms));
                    member.own.promise(length_ms).map_err(told)?;
                    witness.acknowledge(Fact::Promised(length_ms));
                }
                1..=3 => {
                    for _ in 0..rng.range(1..5) {
                        let next = end.end.sequence.0 + 1;
                        let entry = Entry::behind(end.end, Epoch(1), 1, payload(next).into());
                        witness.attempt(Fact::Held(next));
                        member.log.append(&entry).map_err(told)?;
                        end.history.grew(Epoch(1), entry.sequence);
                        end.end = entry.mark();
                    }
                    member.log.sync().map_err(told)?;
                    witness.acknowledge(Fact::Held(end.end.sequence.0));
                }
                4 => {
                    let floor = member.shelf.base().end.sequence.0;
                    let to = rng.range(floor..end.end.sequence.0 + 1);
                    witness.attempt(Fact::Cut(to));
                    end.end = member.log.cut(Sequence(to)).map_err(told)?;
                    end.history.cut(Sequence(to));
                    witness.acknowledge(Fact::Cut(to));
                }
                5 if end.end.sequence.0 > 0 => {
                    // Entries that it has never seen.
                    for _ in 0..rng.range(1..4) {
                        let next = end.end.sequence.0 + 1;
                        let entry = Entry::behind(end.end, Epoch(1), 1, payload(next).into());
                        end.history.grew(Epoch(1), entry.sequence);
                        end.end = entry.mark();
                    }
                    witness.attempt(Fact::Held(end.end.sequence.0));
                    let state: Vec<u8> = (1..=end.end.sequence.0).flat_map(payload).collect();
                    member.take_over(&end, &state)?;
                    witness.acknowledge(Fact::Held(end.end.sequence.0));
                }
                _ => {
                    let state: Vec<u8> = (1..=end.end.sequence.0).flat_map(payload).collect();
                    let lay = |put: crate::Put<'_>| state.chunks(3_000).try_for_each(put);
                    let wrote = member.shelf.write(member.shelf.turn(), &end, |_| Ok(()), lay).map_err(told)?;
                    match wrote {
                        Wrote::Kept(_) => member.log.trim(end.end.sequence).map_err(told)?,
                        Wrote::Revoked => {}
                        Wrote::Failed(error) => return Err(error.to_string()),
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let (member, end) = open(disk, 99)?;
        let (mut starts, mut version, mut promised, mut must) = (0, 0, 0, 0);
        for fact in acknowledged {
            match *fact {
                Fact::Started(count) => starts = starts.max(count),
                Fact::Stored(stored) => version = version.max(stored),
                Fact::Promised(length_ms) => promised = promised.max(length_ms),
                Fact::Held(to) => must = must.max(to),
                Fact::Cut(to) => must = to,
            }
        }
        // A cut under way may have taken some of it.
        let cuts = |facts: &[Fact]| facts.iter().filter(|fact| matches!(fact, Fact::Cut(_))).count();
        if let Some(Fact::Cut(to)) = attempted.iter().rev().find(|fact| matches!(fact, Fact::Cut(_)))
            && cuts(attempted) > cuts(acknowledged)
        {
            must = must.min(*to);
        }
        if member.own.life(Ack::Received).memory <= starts {
            return Err(format!("start {} was counted before", member.own.life(Ack::Received).memory));
        }
        if member.own.known().version < version {
            return Err(format!("configuration {version} was stored, {} is there", member.own.known().version));
        }
        if member.own.promised_ms() < promised {
            return Err(format!("{promised} ms were promised, {} are known", member.own.promised_ms()));
        }
        if end.end.sequence.0 < must || end.history.end().sequence != end.end.sequence {
            return Err(format!("entry {must} was durable, the log ends with {:?}", end.end));
        }
        let base = member.shelf.base().end.sequence;
        let fetched = member.log.fetch(base, u64::MAX).map_err(|error| error.to_string())?;
        if fetched.chain.is_none() || fetched.entries.len() as u64 != end.end.sequence.0 - base.0 {
            return Err(format!("{} entries follow {base}, the log ends with {:?}", fetched.entries.len(), end.end));
        }
        let state: Vec<u8> = (1..=base.0).flat_map(payload).collect();
        if member.state()? != state || fetched.entries.iter().any(|one| *one.payload != payload(one.sequence.0)) {
            return Err("snapshot or log hold something else".to_owned());
        }
        Ok(())
    }

    fn lives(&self) -> u32 {
        3
    }
}

#[test]
fn gate_power_loss_of_what_a_member_keeps() {
    let explore = Explore { states_max: 10_000, ..Explore::new() };
    let report = explore.run(&Gate).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.states > 500 && report.nested > 50, "{report}");
}

#[test]
fn gate_each_barrier_of_a_member_ignored_goes_red() {
    for barrier in BARRIERS {
        let explore = Explore { states_max: 60_000, time_max: Duration::from_secs(60), ..Explore::new() };
        let failure = explore.ignoring(&Gate, *barrier).unwrap_or_else(|green| panic!("{green}"));
        println!("{}: {} states: {}", barrier.label(), failure.report.states, failure.message);
    }
}

/// One message of each kind.
fn messages() -> Vec<Message> {
    let life = Life { disk: 7, memory: 3 };
    let mut history = History::default();
    history.grew(Epoch(1), Sequence(4));
    history.grew(Epoch(3), Sequence(9));
    let in_sync = InSync::only(Member(0), life).with(Member(1), life);
    let configuration = Configuration { version: 4, epoch: Epoch(3), primary: Some(Member(0)), in_sync, forced: true };
    let end = Mark { sequence: Sequence(9), chain: Chain(99) };
    let entry = Entry::behind(end, Epoch(3), 5, bytes::Bytes::from_static(b"a command"));
    let next = Entry::behind(entry.mark(), Epoch(3), 6, bytes::Bytes::from_static(b""));
    let reach = Reach { received: Sequence(9), written: Sequence(8), durable: Sequence(7) };
    let place = Place { epoch: Epoch(3), sequence: Sequence(9) };
    let base = Base { history: history.clone(), end };
    let said = [
        Said::Letter(Body::Hello { version: 4, life, place }),
        Said::Letter(Body::Lead { configuration: configuration.clone(), base: history, beat: 5, aside: true }),
        Said::Letter(Body::Held { life, reach, beat: 5, out: false, promised_ms: 150 }),
        Said::Letter(Body::News(configuration)),
        Said::Resume(end),
        Said::Stream { end: next.sequence, confirmed: Sequence(8), keep: Sequence(7), entries: vec![entry, next] },
        Said::Differs(Sequence(9)),
        Said::Piece(Piece { base, total_bytes: 10, offset: 5, bytes: vec![1, 2, 3] }),
        Said::More { at: Sequence(9), offset: 8 },
        Said::State { at: Sequence(9), hash: 1 },
        Said::Told { told: Told::new(Ack::Written, "group", "host:1"), asks: true },
    ];
    said.into_iter().map(|said| Message { from: Member(0), to: Member(1), told: 17, epoch: Epoch(3), said }).collect()
}

#[test]
fn every_message_is_read_as_it_was_laid_and_each_missing_byte_waits() {
    let mut bytes = Vec::new();
    for message in messages() {
        let mut one = Vec::new();
        message.lay(&mut one);
        for end in 0..one.len() {
            assert_eq!(Message::read(&one[..end]), Ok(None), "{end} of {message:?}");
        }
        assert_eq!(Message::read(&one), Ok(Some((message, one.len()))));
        bytes.extend(one);
    }
    let mut rest = bytes.as_slice();
    for message in messages() {
        let (read, used) = Message::read(rest).unwrap().unwrap();
        assert_eq!(read, message);
        rest = &rest[used..];
    }
    assert!(rest.is_empty());
}

#[test]
fn another_version_or_an_unknown_kind_is_refused() {
    let refused = |kind: u16, payload: &[u8]| {
        let mut bytes = Vec::new();
        assent_frame::lay(&mut bytes, assent_frame::Head { kind, ..Default::default() }, &[payload]);
        Message::read(&bytes).unwrap_err()
    };
    const HEADER: [u8; 15] = [6, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0];
    assert_eq!(refused(16, &[5, 0, 1, 2, 3, 0, 0, 0]), crate::MessageError::Version(5));
    assert_eq!(refused(9, &HEADER), crate::MessageError::Kind(9));
    assert!(matches!(refused(16, &HEADER), crate::MessageError::Malformed(_)));
    let told = |ack, name: &[u8]| {
        let names = [[&u32::try_from(name.len()).unwrap().to_le_bytes()[..], name].concat(), vec![0; 5]];
        refused(22, &[&HEADER[..], &[ack], &names.concat()].concat()).to_string()
    };
    assert!(told(4, b"").contains("ack"), "an ack of number 4: {}", told(4, b""));
    for (what, name) in [("513 bytes", vec![b'n'; 513]), ("a letter that moves the cursor", b"a\x1b[2Jb".to_vec())] {
        assert!(told(3, &name).contains("group"), "a name of {what}: {}", told(3, &name));
    }
    assert!(matches!(refused(1, &[]), crate::MessageError::Malformed(_)));
}

#[test]
fn fuzz_any_bytes_get_an_answer() {
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    for message in messages() {
        let mut bytes = Vec::new();
        message.lay(&mut bytes);
        let kind = bytes[16];
        corpus.push([&[kind][..], &bytes[24..]].concat());
        corpus.push(bytes);
    }
    let corpus: Vec<&[u8]> = corpus.iter().map(Vec::as_slice).collect();
    let runs = assent_sim::fuzz(1, &corpus, |bytes| {
        fuzzing::message(bytes);
        fuzzing::payload(bytes);
        fuzzing::folder(bytes);
    });
    assert!(runs > 1_000, "{runs}");
}
