//! Sessions of clients: a request that is sent again is answered again, and executed once, also by another primary.
//!
//! The rule is that of `membership::Sessions`; this table can also be laid into a snapshot and hashed, and what all of it takes
//! has a limit in bytes. It has no clock: who is evicted follows from the log alone.
//! Walk: [`Sessions::open`] · [`Sessions::admit`] before a request is executed · [`Sessions::executed`] with its answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use assent_frame::{Malformed, Reader, Writer};
use assent_membership::Sequence;
use xxhash_rust::xxh3::xxh3_64;

use crate::command::{Request, SessionName};
use crate::config::Limits;

/// Answers of one session that are remembered, at most: so many of its requests may be under way.
pub const WINDOW_MAX: u32 = 1_024;
/// Bytes of the answers of one session that are remembered, at most; the last one always is.
pub const SESSION_BYTES_MAX: usize = 1 << 18;
/// What the memory of an answer may be beyond twice its bytes.
const SPARE_BYTES: usize = 64;
const SHARDS: u64 = 256;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission<'a> {
    /// It was never executed.
    New,
    /// It was executed, and this was its answer.
    Again(&'a [u8]),
    /// Its session or its answer is gone.
    InDoubt,
    /// Requests before it are missing.
    Gap { expected: u64 },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    /// The last request executed.
    last: u64,
    /// When: the next to go is the one with the least.
    used: Sequence,
    /// The last answers, the newest behind.
    answers: VecDeque<Vec<u8>>,
    bytes: usize,
}

type Shard = BTreeMap<SessionName, Arc<Session>>;

/// All sessions. A snapshot clones the shards; a session that changes meanwhile is copied once.
#[derive(Debug)]
pub(crate) struct Sessions {
    shards: Vec<Arc<Shard>>,
    /// The next to go first. Of those that one entry used, the least name.
    by_use: BTreeSet<(Sequence, SessionName)>,
    bytes: usize,
    digest: u64,
    limits: Limits,
}

/// The sessions as they were at one moment.
#[derive(Clone, Debug)]
pub(crate) struct SessionsView(Vec<Arc<Shard>>);

impl Sessions {
    pub(crate) fn new(limits: Limits) -> Self {
        let shards = (0..SHARDS).map(|_| Arc::default()).collect();
        Self { shards, by_use: BTreeSet::new(), bytes: 0, digest: 0, limits }
    }

    pub(crate) fn view(&self) -> SessionsView {
        SessionsView(self.shards.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_use.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether this name is known, and its requests so far.
    pub(crate) fn known(&self, name: SessionName) -> Option<u64> {
        self.get(name).map(|session| session.last)
    }

    /// A session of a name that is not known opens here.
    pub(crate) fn open(&mut self, name: SessionName, at: Sequence) {
        while self.by_use.len() >= self.limits.sessions_max.max(1) {
            self.evict_oldest(None);
        }
        self.put(name, Session { used: at, ..Session::default() });
    }

    /// Its client has all its answers.
    pub(crate) fn close(&mut self, session: SessionName) {
        let Some(gone) = self.shard_mut(session).and_then(|shard| shard.remove(&session)) else { return };
        self.by_use.remove(&(gone.used, session));
        self.bytes -= gone.bytes;
        self.digest = self.digest.wrapping_sub(digest(session, &gone));
    }

    pub(crate) fn admit(&self, request: Request) -> Admission<'_> {
        let Some(known) = self.get(request.session) else { return Admission::InDoubt };
        let expected = known.last.saturating_add(1);
        if request.number == expected {
            return Admission::New;
        }
        if request.number > expected {
            return Admission::Gap { expected };
        }
        let back = usize::try_from(known.last - request.number).unwrap_or(usize::MAX);
        let at = known.answers.len().checked_sub(1).and_then(|newest| newest.checked_sub(back));
        match at.and_then(|at| known.answers.get(at)) {
            Some(answer) => Admission::Again(answer),
            None => Admission::InDoubt,
        }
    }

    /// The next request of a session was executed here, with this answer.
    pub(crate) fn executed(&mut self, request: Request, at: Sequence, answer: &[u8]) {
        self.executed_all(request, at, std::iter::once(answer));
    }

    /// The next request of a session and some behind it were executed here, with these answers.
    pub(crate) fn executed_all<'a>(&mut self, first: Request, at: Sequence, answers: impl Iterator<Item = &'a [u8]>) {
        let Some(known) = self.shard_mut(first.session).and_then(|shard| shard.get_mut(&first.session)) else {
            return;
        };
        let before = (digest(first.session, known), known.bytes, known.used);
        let session = Arc::make_mut(known);
        session.used = at;
        for answer in answers {
            session.last = session.last.saturating_add(1);
            session.keep(answer, first.window);
        }
        let after = (digest(first.session, session), session.bytes);
        self.digest = self.digest.wrapping_sub(before.0).wrapping_add(after.0);
        self.bytes = self.bytes - before.1 + after.1;
        self.by_use.remove(&(before.2, first.session));
        self.by_use.insert((at, first.session));
        while self.bytes > self.limits.answer_bytes_max && self.by_use.len() > 1 {
            // Several may have been used by this entry, and this one is none of the silent.
            self.evict_oldest(Some(first.session));
        }
    }

    fn get(&self, session: SessionName) -> Option<&Session> {
        self.shards.get(shard_of(session))?.get(&session).map(|session| &**session)
    }

    fn shard_mut(&mut self, session: SessionName) -> Option<&mut Shard> {
        self.shards.get_mut(shard_of(session)).map(Arc::make_mut)
    }

    fn put(&mut self, name: SessionName, session: Session) {
        self.bytes += session.bytes;
        self.digest = self.digest.wrapping_add(digest(name, &session));
        self.by_use.insert((session.used, name));
        if let Some(shard) = self.shard_mut(name) {
            shard.insert(name, Arc::new(session));
        }
    }

    /// The one that was silent longest goes, but for this one.
    fn evict_oldest(&mut self, but: Option<SessionName>) {
        let oldest = self.by_use.iter().map(|(_, session)| *session).find(|session| Some(*session) != but);
        if let Some(oldest) = oldest {
            self.close(oldest);
        }
    }

    /// Takes one in from a snapshot.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let name = SessionName(reader.u64("session")?);
        let (last, used) = (reader.u64("last request")?, Sequence(reader.u64("used")?));
        let mut session = Session { last, used, ..Session::default() };
        for _ in 0..reader.u32("answers")? {
            let answer = reader.bytes("answer")?.to_vec();
            session.bytes += answer.len();
            session.answers.push_back(answer);
        }
        if self.get(name).is_some() {
            return Err(Malformed { field: "session" });
        }
        self.put(name, session);
        Ok(())
    }
}

impl SessionsView {
    /// Lays one after the other; `then` is told after each.
    pub(crate) fn each<E>(&self, mut lay: impl FnMut(&dyn Fn(&mut Writer)) -> Result<(), E>) -> Result<(), E> {
        for (name, session) in self.0.iter().flat_map(|shard| shard.iter()) {
            lay(&|out| {
                out.u64(name.0).u64(session.last).u64(session.used.0);
                out.u32(u32::try_from(session.answers.len()).unwrap_or(u32::MAX));
                session.answers.iter().for_each(|answer| _ = out.bytes(answer));
            })?;
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|shard| shard.len()).sum()
    }
}

impl Session {
    fn keep(&mut self, answer: &[u8], window: u32) {
        let window = usize::try_from(window.clamp(1, WINDOW_MAX)).unwrap_or(1);
        let mut memory = Vec::new();
        while self.answers.len() >= window
            || (!self.answers.is_empty() && self.bytes + answer.len() > SESSION_BYTES_MAX)
        {
            let Some(old) = self.answers.pop_front() else { break };
            self.bytes -= old.len();
            memory = old;
        }
        // The memory of an answer that went is used again: a session with a window of one allocates nothing. But not that of a long one for a
        // short one: what is remembered is counted by its bytes, and each place of a window would come to hold the longest.
        if memory.capacity() > 2 * answer.len() + SPARE_BYTES {
            memory = Vec::new();
        }
        memory.clear();
        memory.extend_from_slice(answer);
        self.bytes += answer.len();
        self.answers.push_back(memory);
    }
}

fn shard_of(session: SessionName) -> usize {
    usize::try_from(session.0 % SHARDS).unwrap_or(0)
}

/// Older answers are a function of the log too: what decides is the last one and how many there are.
fn digest(name: SessionName, session: &Session) -> u64 {
    let words = [
        name.0,
        session.last,
        session.used.0,
        u64::try_from(session.answers.len()).unwrap_or(u64::MAX),
        u64::try_from(session.bytes).unwrap_or(u64::MAX),
        session.answers.back().map_or(0, |answer| xxh3_64(answer)),
    ];
    let mut bytes = [0; 48];
    let (places, _) = bytes.as_chunks_mut::<8>();
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionName = SessionName(0xabcd_ef01_2345_6789);
    const TWO: SessionName = SessionName(2);
    const THREE: SessionName = SessionName(258);

    fn limits(sessions_max: usize, answer_bytes_max: usize) -> Limits {
        Limits { sessions_max, answer_bytes_max, ..Limits::default() }
    }

    fn request(session: SessionName, number: u64, window: u32) -> Request {
        Request { session, number, window }
    }

    #[test]
    fn a_request_is_new_once_and_its_answer_is_told_again() {
        let mut sessions = Sessions::new(limits(2, 1 << 20));
        assert_eq!(sessions.admit(request(ONE, 1, 8)), Admission::InDoubt, "nobody opened it");
        sessions.open(ONE, Sequence(1));
        assert_eq!(sessions.admit(request(ONE, 1, 8)), Admission::New);
        assert_eq!(sessions.admit(request(ONE, 2, 8)), Admission::Gap { expected: 1 });
        sessions.executed(request(ONE, 1, 8), Sequence(2), b"ten");
        sessions.executed(request(ONE, 2, 8), Sequence(3), b"eleven");
        assert_eq!(sessions.admit(request(ONE, 1, 8)), Admission::Again(b"ten"));
        assert_eq!(sessions.admit(request(ONE, 2, 8)), Admission::Again(b"eleven"));
        assert_eq!(sessions.admit(request(ONE, 3, 8)), Admission::New);
        assert_eq!(sessions.admit(request(ONE, 0, 8)), Admission::InDoubt);
        sessions.executed(request(ONE, 3, 1), Sequence(4), b"twelve");
        assert_eq!(sessions.admit(request(ONE, 2, 8)), Admission::InDoubt, "the client said it needs one answer");
        assert_eq!((sessions.admit(request(ONE, 3, 8)), sessions.bytes()), (Admission::Again(b"twelve"), 6));
    }

    #[test]
    fn the_session_that_was_silent_longest_goes_also_when_the_bytes_are_too_many() {
        let mut sessions = Sessions::new(limits(2, 100));
        let empty = sessions.digest();
        sessions.open(ONE, Sequence(1));
        sessions.open(TWO, Sequence(2));
        sessions.executed(request(ONE, 1, 4), Sequence(3), b"a");
        sessions.open(THREE, Sequence(4));
        assert_eq!(sessions.admit(request(TWO, 1, 4)), Admission::InDoubt);
        sessions.executed(request(TWO, 1, 4), Sequence(5), b"not revived");
        assert_eq!(sessions.admit(request(TWO, 1, 4)), Admission::InDoubt);
        sessions.executed(request(THREE, 1, 4), Sequence(6), &[0; 101]);
        assert_eq!(sessions.admit(request(ONE, 1, 4)), Admission::InDoubt, "it gave way to bytes");
        assert!(matches!(sessions.admit(request(THREE, 1, 4)), Admission::Again(_)), "the last one stays");
        assert_eq!((sessions.len(), sessions.bytes()), (1, 101));
        sessions.close(THREE);
        assert_eq!((sessions.len(), sessions.bytes(), sessions.digest()), (0, 0, empty));
    }

    /// Of sessions that one run used the least name went, also where it was the one whose answer had just been laid: its client had its answer, and
    /// was told at its next request that nobody knows it.
    #[test]
    fn a_session_does_not_give_way_to_its_own_answer() {
        let mut sessions = Sessions::new(limits(3, 10));
        for name in [ONE, TWO, THREE] {
            sessions.open(name, Sequence(1));
        }
        sessions.executed(request(THREE, 1, 4), Sequence(2), &[3; 6]);
        sessions.executed_all(request(TWO, 1, 4), Sequence(2), [&[2; 3][..], &[2; 3]].into_iter());
        assert_eq!(sessions.admit(request(TWO, 2, 4)), Admission::Again(&[2; 3]), "it is the least name");
        assert_eq!(sessions.admit(request(ONE, 1, 4)), Admission::InDoubt, "it was silent");
        assert_eq!(sessions.admit(request(THREE, 1, 4)), Admission::InDoubt, "what it has is too many bytes");
        assert_eq!((sessions.len(), sessions.bytes()), (1, 6));
    }

    /// Only bytes were counted, and each place of a window had come to hold the memory of a long answer: many times the limit.
    #[test]
    fn what_is_remembered_takes_the_memory_that_is_counted() {
        let mut sessions = Sessions::new(Limits::default());
        sessions.open(ONE, Sequence(1));
        for number in 1..=64 * 65 {
            let answer = vec![7; if number % 65 == 0 { 16 << 10 } else { 23 }];
            sessions.executed(request(ONE, number, 64), Sequence(1 + number), &answer);
        }
        let memory: usize = sessions.get(ONE).unwrap().answers.iter().map(Vec::capacity).sum();
        assert!(memory <= 4 * sessions.bytes() + 64 * 128, "{memory} for {}", sessions.bytes());
        // Answers of one length take no new memory.
        let place = |sessions: &Sessions| sessions.get(ONE).unwrap().answers.back().unwrap().as_ptr();
        sessions.executed(request(ONE, 64 * 65 + 1, 1), Sequence(5_000), &[1; 23]);
        let before = place(&sessions);
        sessions.executed(request(ONE, 64 * 65 + 2, 1), Sequence(5_001), &[2; 23]);
        assert_eq!(place(&sessions), before);
    }

    #[test]
    fn a_window_at_the_limit_is_kept_and_one_beyond_is_in_doubt() {
        let mut sessions = Sessions::new(Limits::default());
        sessions.open(ONE, Sequence(1));
        for number in 1..=u64::from(WINDOW_MAX) + 1 {
            sessions.executed(request(ONE, number, u32::MAX), Sequence(1 + number), b"x");
        }
        assert_eq!(sessions.admit(request(ONE, 1, 1)), Admission::InDoubt);
        assert_eq!(sessions.admit(request(ONE, 2, 1)), Admission::Again(b"x"));
        let long = vec![0; SESSION_BYTES_MAX - 1];
        sessions.executed(request(ONE, u64::from(WINDOW_MAX) + 2, 9), Sequence(5_000), &long);
        assert_eq!(sessions.bytes(), SESSION_BYTES_MAX);
    }
}
