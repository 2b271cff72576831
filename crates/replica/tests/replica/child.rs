//! One member in a process of its own: this test's binary, started again. It takes orders on its standard input, a line each, and
//! answers with a line each.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use assent_membership::{Ack, Member, Sequence, Standing, Word};
use assent_replica::{CallError, Doors, Home, Machine, Next, Put, Running, Told, Tuning};
use assent_world::net::Address;
use assent_world::{RealClock, RealDice, RealDisk};

/// Where the process is told what it is; without it the test below does nothing.
pub(crate) const CHILD: &str = "ASSENT_REPLICA_CHILD";

/// Counts the numbers that it was given; one that it knows changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(pub(crate) BTreeSet<u64>);

impl Machine for Counter {
    type View = BTreeSet<u64>;

    fn apply(&mut self, _: Sequence, _: u16, command: &[u8], answer: &mut Vec<u8>) -> Result<(), String> {
        self.0.insert(u64::from_le_bytes(*command.first_chunk().ok_or("no number")?));
        answer.extend(self.0.len().to_string().into_bytes());
        Ok(())
    }

    fn hash(&self) -> u64 {
        self.0.iter().fold(self.0.len() as u64, |hash, number| hash.wrapping_mul(31).wrapping_add(*number))
    }

    fn view(&self) -> Self::View {
        self.0.clone()
    }

    fn lay(view: &Self::View, put: Put<'_>) -> io::Result<()> {
        view.iter().try_for_each(|number| put(&number.to_le_bytes()))
    }

    fn empty(&self) -> Self {
        Self::default()
    }

    fn load(&mut self, next: Next<'_>) -> Result<(), String> {
        while let Some(chunk) = next() {
            let number = chunk.as_array().ok_or_else(|| format!("{} bytes are no number", chunk.len()))?;
            self.0.insert(u64::from_le_bytes(*number));
        }
        Ok(())
    }
}

pub(crate) fn ack(name: &str) -> Ack {
    match name {
        "written" => Ack::Written,
        "durable" => Ack::Durable,
        _ => Ack::Received,
    }
}

/// Not a test: what the processes of the tests run.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut told = told.split(' ');
    let mut next = || told.next().unwrap().to_owned();
    let (me, ack, witness, folder) = (Member(next().parse().unwrap()), ack(&next()), next(), PathBuf::from(next()));
    let members: BTreeMap<Member, Address> =
        told.enumerate().map(|(at, address)| (Member(at.try_into().unwrap()), address.parse().unwrap())).collect();
    let home = Home {
        me,
        members,
        preferred: Member(0),
        told: Told::new(ack, "numbers", &witness),
        folder,
        // A killed one is heard of at once; one that gets no core, or waits for its disk, has not gone.
        tuning: Tuning { snapshot_every: 64, silent_ms: 3_000, slow_ms: 30_000, ..Tuning::default() },
    };
    let doors = Doors { disk: Arc::new(RealDisk), clock: Arc::new(RealClock), dice: Arc::new(RealDice) };
    let group = "numbers".parse().unwrap();
    let arbiter = assent_arbiter::open(&witness, group, Arc::new(RealClock), Duration::from_secs(2)).unwrap();
    let member = Running::start(&home, &doors, arbiter, Counter::default(), ()).unwrap();
    println!("child: started");
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        let (order, of) = line.split_once(' ').unwrap_or((&line, ""));
        let number = |text: &str| text.parse::<u64>().unwrap();
        let answer: Result<String, CallError> = match order {
            "add" => member.execute(1, &number(of).to_le_bytes()).map(|answer| String::from_utf8(answer).unwrap()),
            "count" => member.read(|counter| counter.0.len().to_string()),
            "hand" => member.word(Word::HandOver(Member(of.parse().unwrap()))).map(|done| format!("{done:?}")),
            "status" => member.status().map(|status| {
                let does = match status.standing {
                    Standing::Leads => "leads".to_owned(),
                    Standing::Follows(primary) => format!("follows-{primary}"),
                    other => format!("{other:?}").replace(' ', ""),
                };
                let known = status.configuration;
                format!("{does} {} {} {}", known.epoch, known.in_sync.len(), status.snapshot)
            }),
            _ => break,
        };
        match answer {
            Ok(answer) => println!("child: ok {answer}"),
            Err(error) => println!("child: err {:?}", error.kind()),
        }
    }
    member.stop();
}
