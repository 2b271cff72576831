//! Sessions of users: short access tokens, and refresh tokens of which each is taken once.
//!
//! ```text
//!   password ─▶ session: access, refresh ──refresh──▶ access', refresh' ──refresh──▶ …
//!                                   └── the same one again: somebody has a copy; the whole session ends
//! ```
//! Walk: [`Sessions::open`] after a password, which ends the user's oldest session if he has too many · [`Sessions::refresh`]
//! rotates · [`Sessions::user_of`] an access token · [`Sessions::close`] by either token. An access token is 256 random bits,
//! kept as a digest. A refresh token names its session, counts, and proves both by a digest over the session's secret: however
//! often a session is refreshed, it takes the same memory. All is in memory, so a restart of the server ends every session.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use assent_world::{Dice, Moment};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Sessions at a time.
const SESSIONS_MAX: usize = 65_536;
/// Sessions of one user; one more ends his oldest.
const USER_SESSIONS_MAX: usize = 64;
/// Access tokens of one session that are good at a time: a client asks for the next before it drops the last.
const ACCESS_MAX: usize = 4;
/// Bytes of a refresh token: the session, the count, the proof.
const REFRESH_BYTES: usize = 8 + 8 + 32;

pub(crate) type Digest = [u8; 32];

/// How long tokens are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) access: Duration,
    pub(crate) refresh: Duration,
}

/// What a caller is given.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    pub(crate) access: String,
    pub(crate) refresh: String,
}

/// Why there are no new tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Never given, ended, or too old.
    Unknown,
    /// It was taken before: its session has ended now.
    Replayed,
    /// As many sessions as there may be.
    Full,
}

#[derive(Debug)]
struct Session {
    user: Arc<str>,
    /// Good access tokens, the oldest first.
    access: VecDeque<(Digest, Moment)>,
    /// What proves its refresh tokens.
    secret: [u8; 32],
    /// The refresh token that is good; smaller ones were.
    count: u64,
    until: Moment,
}

impl Session {
    fn proof(&self, id: u64, count: u64) -> Digest {
        let mut hash = Sha256::new();
        // All of fixed length: nothing can be moved from one part to the next.
        hash.update(self.secret);
        hash.update(id.to_le_bytes());
        hash.update(count.to_le_bytes());
        hash.finalize().into()
    }
}

/// What stands in a refresh token.
#[derive(Clone, Copy)]
struct Refresh {
    id: u64,
    count: u64,
    proof: Digest,
}

impl Refresh {
    fn lay(&self) -> String {
        let parts = [&self.id.to_le_bytes()[..], &self.count.to_le_bytes(), &self.proof];
        URL_SAFE_NO_PAD.encode(parts.concat())
    }

    fn read(token: &str) -> Option<Self> {
        let bytes: [u8; REFRESH_BYTES] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
        let (id, rest) = bytes.split_first_chunk::<8>()?;
        let (count, proof) = rest.split_first_chunk::<8>()?;
        let (id, count) = (u64::from_le_bytes(*id), u64::from_le_bytes(*count));
        Some(Self { id, count, proof: proof.try_into().ok()? })
    }
}

#[derive(Debug)]
pub(crate) struct Sessions {
    times: Times,
    next: u64,
    sessions: BTreeMap<u64, Session>,
    /// Whose session an access token is of.
    tokens: BTreeMap<Digest, u64>,
    /// The sessions of each user, the oldest first.
    of: BTreeMap<Arc<str>, VecDeque<u64>>,
}

impl Sessions {
    pub(crate) const fn new(times: Times) -> Self {
        Self { times, next: 0, sessions: BTreeMap::new(), tokens: BTreeMap::new(), of: BTreeMap::new() }
    }

    pub(crate) const fn times(&self) -> Times {
        self.times
    }

    pub(crate) fn open(&mut self, user: Arc<str>, now: Moment, dice: &dyn Dice) -> Result<Tokens, Refused> {
        while let Some(own) = self.of.get(&user).filter(|own| own.len() >= USER_SESSIONS_MAX) {
            let Some(oldest) = own.front().copied() else { break };
            self.end(oldest);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            self.end_where(|session| session.until <= now);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(Refused::Full);
        }
        let id = self.next;
        self.next += 1;
        self.of.entry(Arc::clone(&user)).or_default().push_back(id);
        let session = Session { user, access: VecDeque::new(), secret: bits(dice), count: 0, until: now };
        self.sessions.insert(id, session);
        self.give(id, now, dice).ok_or(Refused::Unknown)
    }

    pub(crate) fn refresh(&mut self, token: &str, now: Moment, dice: &dyn Dice) -> Result<Tokens, Refused> {
        let Some((id, count)) = self.refreshes(token) else { return Err(Refused::Unknown) };
        let Some(session) = self.sessions.get(&id) else { return Err(Refused::Unknown) };
        let (is_last, is_old) = (session.count == count, session.until <= now);
        if !is_last || is_old {
            self.end(id);
            return Err(if is_last { Refused::Unknown } else { Refused::Replayed });
        }
        self.give(id, now, dice).ok_or(Refused::Unknown)
    }

    /// The session that a refresh token is of, and its count, if we have given it.
    fn refreshes(&self, token: &str) -> Option<(u64, u64)> {
        let Refresh { id, count, proof } = Refresh::read(token)?;
        // Digests of the proofs are compared, so that the time it takes tells nothing of the one that is right.
        let is_ours = digest(&self.sessions.get(&id)?.proof(id, count)) == digest(&proof);
        is_ours.then_some((id, count))
    }

    /// Whose access token this is the digest of, as long as it is good.
    pub(crate) fn user_of(&self, digest: Digest, now: Moment) -> Option<Arc<str>> {
        let session = self.sessions.get(self.tokens.get(&digest)?)?;
        let is_good = session.access.iter().any(|(known, until)| *known == digest && *until > now);
        is_good.then(|| Arc::clone(&session.user))
    }

    /// Ends the session of a token of either kind.
    pub(crate) fn close(&mut self, token: &str) -> bool {
        let of_access = self.tokens.get(&digest(token.as_bytes())).copied();
        let id = of_access.or_else(|| self.refreshes(token).map(|(id, _)| id));
        id.inspect(|id| self.end(*id)).is_some()
    }

    /// Ends the sessions of users of whom this is true.
    pub(crate) fn end_of(&mut self, is_over: impl Fn(&str) -> bool) {
        self.end_where(|session| is_over(&session.user));
    }

    fn end_where(&mut self, is_over: impl Fn(&Session) -> bool) {
        let over: Vec<u64> = self.sessions.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.end(id));
    }

    fn end(&mut self, id: u64) {
        let Some(session) = self.sessions.remove(&id) else { return };
        session.access.iter().for_each(|(digest, _)| _ = self.tokens.remove(digest));
        if let Some(own) = self.of.get_mut(&session.user) {
            own.retain(|known| *known != id);
            if own.is_empty() {
                self.of.remove(&session.user);
            }
        }
    }

    fn give(&mut self, id: u64, now: Moment, dice: &dyn Dice) -> Option<Tokens> {
        let session = self.sessions.get_mut(&id)?;
        let access = URL_SAFE_NO_PAD.encode(bits(dice));
        let for_access = digest(access.as_bytes());
        session.until = now.after(self.times.refresh);
        session.count += 1;
        session.access.push_back((for_access, now.after(self.times.access)));
        if session.access.len() > ACCESS_MAX
            && let Some((oldest, _)) = session.access.pop_front()
        {
            self.tokens.remove(&oldest);
        }
        self.tokens.insert(for_access, id);
        let refresh = Refresh { id, count: session.count, proof: session.proof(id, session.count) };
        Some(Tokens { access, refresh: refresh.lay() })
    }
}

fn bits(dice: &dyn Dice) -> [u8; 32] {
    let mut bits = [0_u8; 32];
    bits.chunks_exact_mut(8).for_each(|eight| eight.copy_from_slice(&dice.roll().to_le_bytes()));
    bits
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assent_world::RealDice;

    const TIMES: Times = Times { access: Duration::from_secs(300), refresh: Duration::from_secs(1_800) };

    impl Sessions {
        fn user(&self, token: &str, now: Moment) -> Option<Arc<str>> {
            self.user_of(digest(token.as_bytes()), now)
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment(0).after(Duration::from_secs(seconds))
    }

    #[test]
    fn an_access_token_is_good_for_its_time_and_until_its_session_ends() {
        let mut sessions = Sessions::new(TIMES);
        let tokens = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        assert_eq!(sessions.user(&tokens.access, at(299)).as_deref(), Some("anna"));
        assert_eq!(sessions.user(&tokens.access, at(300)), None);
        assert_eq!(sessions.user(&tokens.refresh, at(0)), None, "a refresh token opens nothing");
        assert_eq!(sessions.user("something else", at(0)), None);
        assert!(sessions.close(&tokens.refresh) && !sessions.close(&tokens.refresh));
        assert_eq!(sessions.user(&tokens.access, at(1)), None);
        assert!(sessions.tokens.is_empty());
    }

    #[test]
    fn a_refresh_token_is_taken_once_and_its_copy_ends_the_session_for_everybody() {
        let mut sessions = Sessions::new(TIMES);
        let first = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        let second = sessions.refresh(&first.refresh, at(290), &RealDice).unwrap();
        assert!(sessions.user(&first.access, at(299)).is_some(), "the client changes over in its own time");
        assert!(sessions.user(&second.access, at(580)).is_some());
        assert_eq!(sessions.refresh(&first.refresh, at(300), &RealDice).unwrap_err(), Refused::Replayed);
        assert_eq!(sessions.user(&second.access, at(301)), None);
        assert_eq!(sessions.refresh(&second.refresh, at(301), &RealDice).unwrap_err(), Refused::Unknown);
        assert!(sessions.tokens.is_empty() && sessions.sessions.is_empty());
    }

    #[test]
    fn a_session_that_nobody_refreshes_ends_and_one_refreshed_without_end_takes_no_more_memory() {
        let mut sessions = Sessions::new(TIMES);
        let tokens = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        assert_eq!(sessions.refresh(&tokens.refresh, at(1_800), &RealDice).unwrap_err(), Refused::Unknown);
        let first = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        let mut tokens = first.clone();
        for _ in 0..10_000 {
            tokens = sessions.refresh(&tokens.refresh, at(1), &RealDice).unwrap();
        }
        assert_eq!((sessions.tokens.len(), sessions.sessions.len()), (ACCESS_MAX, 1));
        // The very first is known as a copy all the same.
        assert_eq!(sessions.refresh(&first.refresh, at(1), &RealDice).unwrap_err(), Refused::Replayed);
        assert!(sessions.tokens.is_empty() && sessions.of.is_empty());
    }

    #[test]
    fn no_refresh_token_can_be_made_from_another_one() {
        let mut sessions = Sessions::new(TIMES);
        let (anna, bert) = (
            sessions.open("anna".into(), at(0), &RealDice).unwrap(),
            sessions.open("bert".into(), at(0), &RealDice).unwrap(),
        );
        let own = Refresh::read(&anna.refresh).unwrap();
        let other = Refresh::read(&bert.refresh).unwrap();
        let forged = [
            Refresh { count: own.count + 1, ..own },
            Refresh { count: 0, ..own },
            Refresh { id: other.id, ..own },
            Refresh { proof: other.proof, ..own },
            Refresh { id: 99, ..own },
        ];
        for token in forged {
            assert_eq!(sessions.refresh(&token.lay(), at(1), &RealDice).unwrap_err(), Refused::Unknown);
            assert!(!sessions.close(&token.lay()));
        }
        assert_eq!(sessions.refresh(&format!("{}A", anna.refresh), at(1), &RealDice).unwrap_err(), Refused::Unknown);
        assert!(sessions.refresh(&anna.refresh, at(1), &RealDice).is_ok(), "a forgery ends nobody's session");
    }

    #[test]
    fn a_user_has_so_many_sessions_and_one_more_ends_his_oldest_and_nobody_elses() {
        let mut sessions = Sessions::new(TIMES);
        let bert = sessions.open("bert".into(), at(0), &RealDice).unwrap();
        let anna: Vec<_> =
            (0..=USER_SESSIONS_MAX).map(|_| sessions.open("anna".into(), at(0), &RealDice).unwrap()).collect();
        let is_good: Vec<bool> = anna.iter().map(|it| sessions.user(&it.access, at(1)).is_some()).collect();
        assert!(!is_good[0] && is_good[1..].iter().all(|it| *it), "{is_good:?}");
        assert!(sessions.user(&bert.access, at(1)).is_some());
        assert_eq!(sessions.sessions.len(), USER_SESSIONS_MAX + 1);
    }

    #[test]
    fn sessions_of_a_user_end_with_him() {
        let mut sessions = Sessions::new(TIMES);
        let anna = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        let bert = sessions.open("bert".into(), at(0), &RealDice).unwrap();
        sessions.end_of(|user| user == "anna");
        assert_eq!(sessions.user(&anna.access, at(1)), None);
        assert!(sessions.user(&bert.access, at(1)).is_some());
    }
}
