//! What stays in memory when everything is over: nothing that grows with what was done.

use assent_ids::ResourceId;
use assent_journal::Entry;
use assent_sim::SimClock;
use assent_xa::{Deviation, Heuristic, Native};

use super::*;
use crate::Operator;

/// Takes everything, keeps nothing, and is durable at once or, if it is lazy, when asked.
#[derive(Debug)]
struct Sink {
    end: Mutex<(u64, u64)>,
    is_lazy: bool,
}

impl Log for Sink {
    fn append(&self, _: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        let mut end = self.end.lock().unwrap();
        let lsn = Lsn(end.0);
        end.0 += 24 + u64::try_from(parts.concat().len()).unwrap();
        Ok(Ticket { lsn, end: Lsn(end.0) })
    }

    fn wait(&self, _: Ticket) -> Result<(), JournalError> {
        if self.is_lazy { Ok(()) } else { self.sync().map(|_| ()) }
    }

    fn wait_durable(&self, _: Ticket) -> Result<(), JournalError> {
        self.sync().map(|_| ())
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        let mut end = self.end.lock().unwrap();
        end.1 = end.0;
        Ok(Lsn(end.1))
    }

    fn durable(&self) -> Lsn {
        Lsn(self.end.lock().unwrap().1)
    }

    fn end(&self) -> Lsn {
        Lsn(self.end.lock().unwrap().0)
    }

    fn start(&self) -> Lsn {
        Lsn(0)
    }

    fn read(&self, _: Lsn) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send + '_>, JournalError> {
        Ok(Box::new(std::iter::empty()))
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        Err(JournalError::NotFound { lsn })
    }

    fn trim(&self, _: Lsn) -> Result<(), JournalError> {
        Ok(())
    }

    fn epoch(&self) -> Epoch {
        Epoch(1)
    }

    fn state(&self) -> assent_journal::State {
        assent_journal::State::Open
    }

    fn is_lazy(&self) -> bool {
        self.is_lazy
    }
}

#[test]
fn memory_returns_to_its_base_after_many_clients_and_all_their_transactions() {
    for is_lazy in [false, true] {
        let (log, clock) = (Arc::new(Sink { end: Mutex::default(), is_lazy }), SimClock::new());
        let identity = Identity { node: NodeId(7), key: [1; 16] };
        let config = Config { checkpoint_bytes: 1 << 16, ..Config::default() };
        let coordinator = Coordinator::open(log, Arc::new(clock.clone()), identity, config).unwrap();
        let person = Operator { who: "ada".to_owned(), reason: String::new() };
        for _ in 0..200 {
            let client = coordinator.handshake("one of many").unwrap().incarnation;
            for counter in 1..=500 {
                let tx = TxId { incarnation: client, counter };
                let branch =
                    BranchRecord { resource: ResourceId(1), number: 0, flags: 0, mark: None, witness: vec![7; 40] };
                let outcome = if counter % 7 == 0 { Outcome::RolledBack } else { Outcome::Committed };
                let decision = Decision { tx, outcome, first: true, branches: vec![branch] };
                coordinator.decide(&decision).unwrap();
                if counter % 50 == 0 {
                    let native = Native { code: "1402".to_owned(), message: "by hand".to_owned() };
                    let heuristic = Heuristic::Mixed;
                    let own = Deviation { resource: ResourceId(1), number: 0, flags: 0, heuristic, native };
                    coordinator.heuristic(tx, outcome, &[own]);
                    coordinator.forget(tx, &person).unwrap();
                }
                coordinator.finished(tx);
            }
            coordinator.lost(client);
            clock.advance(Duration::from_millis(1_001));
            coordinator.tick().unwrap();
        }
        clock.advance(Duration::from_millis(1_001));
        coordinator.tick().unwrap();
        let gauges = coordinator.gauges();
        assert_eq!((gauges.forgotten, gauges.fenced), (100_000, 200));
        let state = coordinator.state();
        let table = &state.table;
        let kept = [table.len(), table.bytes(), table.heuristics(), table.watched_count(), table.forgotten().len()];
        assert_eq!(kept, [0; 5], "the table");
        assert_eq!(state.clients.census().live.len() + state.clients.connected(), 0, "clients");
        assert_eq!((state.unsynced.len(), state.unlaid.len(), state.owed), (0, 0, None), "what waited for the log");
    }
}
