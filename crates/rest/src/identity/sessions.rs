//! Sessions of users: short access tokens, and refresh tokens of which each is taken once.
//!
//! ```text
//!   password ─▶ session: access, refresh ──refresh──▶ access', refresh' ──refresh──▶ …
//!                                   └── the same one again: somebody has a copy; the whole session ends
//! ```
//! Walk: [`Sessions::open`] after a password · [`Sessions::refresh`] rotates · [`Sessions::user`] of an access token ·
//! [`Sessions::close`] by either token. Tokens are 256 random bits and are kept as digests; all is in memory, so a restart
//! of the server ends every session.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use assent_world::{Dice, Moment};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Sessions at a time.
const SESSIONS_MAX: usize = 65_536;
/// Access tokens of one session that are good at a time: a client asks for the next before it drops the last.
const ACCESS_MAX: usize = 4;
/// How often one session is refreshed before its user gives the password again.
const REFRESHED_MAX: usize = 4_096;

type Digest = [u8; 32];

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
    /// The refresh tokens so far; the last one is good.
    refreshed: Vec<Digest>,
    until: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Token {
    Access(u64),
    Refresh(u64),
}

#[derive(Debug)]
pub(crate) struct Sessions {
    times: Times,
    next: u64,
    sessions: BTreeMap<u64, Session>,
    tokens: BTreeMap<Digest, Token>,
}

impl Sessions {
    pub(crate) const fn new(times: Times) -> Self {
        Self { times, next: 0, sessions: BTreeMap::new(), tokens: BTreeMap::new() }
    }

    pub(crate) const fn times(&self) -> Times {
        self.times
    }

    pub(crate) fn open(&mut self, user: Arc<str>, now: Moment, dice: &dyn Dice) -> Result<Tokens, Refused> {
        if self.sessions.len() >= SESSIONS_MAX {
            self.end_where(|session| session.until <= now);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(Refused::Full);
        }
        let id = self.next;
        self.next += 1;
        self.sessions.insert(id, Session { user, access: VecDeque::new(), refreshed: Vec::new(), until: now });
        Ok(self.give(id, now, dice))
    }

    pub(crate) fn refresh(&mut self, token: &str, now: Moment, dice: &dyn Dice) -> Result<Tokens, Refused> {
        let digest = digest(token);
        let Some(Token::Refresh(id)) = self.tokens.get(&digest).copied() else { return Err(Refused::Unknown) };
        let Some(session) = self.sessions.get(&id) else { return Err(Refused::Unknown) };
        let (is_last, is_old) = (session.refreshed.last() == Some(&digest), session.until <= now);
        if !is_last || is_old || session.refreshed.len() >= REFRESHED_MAX {
            self.end(id);
            return Err(if is_last { Refused::Unknown } else { Refused::Replayed });
        }
        Ok(self.give(id, now, dice))
    }

    /// Whose access token this is, as long as it is good.
    pub(crate) fn user(&self, token: &str, now: Moment) -> Option<Arc<str>> {
        let digest = digest(token);
        let Some(Token::Access(id)) = self.tokens.get(&digest) else { return None };
        let session = self.sessions.get(id)?;
        let is_good = session.access.iter().any(|(known, until)| *known == digest && *until > now);
        is_good.then(|| Arc::clone(&session.user))
    }

    /// Ends the session of a token of either kind.
    pub(crate) fn close(&mut self, token: &str) -> bool {
        match self.tokens.get(&digest(token)) {
            Some(Token::Access(id) | Token::Refresh(id)) => {
                let id = *id;
                self.end(id);
                true
            }
            None => false,
        }
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
        session.refreshed.iter().for_each(|digest| _ = self.tokens.remove(digest));
    }

    fn give(&mut self, id: u64, now: Moment, dice: &dyn Dice) -> Tokens {
        let (access, refresh) = (token(dice), token(dice));
        let (for_access, for_refresh) = (digest(&access), digest(&refresh));
        if let Some(session) = self.sessions.get_mut(&id) {
            session.until = now.after(self.times.refresh);
            session.refreshed.push(for_refresh);
            session.access.push_back((for_access, now.after(self.times.access)));
            if session.access.len() > ACCESS_MAX
                && let Some((oldest, _)) = session.access.pop_front()
            {
                self.tokens.remove(&oldest);
            }
            self.tokens.insert(for_access, Token::Access(id));
            self.tokens.insert(for_refresh, Token::Refresh(id));
        }
        Tokens { access, refresh }
    }
}

fn token(dice: &dyn Dice) -> String {
    let mut bits = [0_u8; 32];
    bits.chunks_exact_mut(8).for_each(|eight| eight.copy_from_slice(&dice.roll().to_le_bytes()));
    URL_SAFE_NO_PAD.encode(bits)
}

fn digest(token: &str) -> Digest {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assent_world::RealDice;

    const TIMES: Times = Times { access: Duration::from_secs(300), refresh: Duration::from_secs(1_800) };

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
    fn a_session_that_nobody_refreshes_ends_and_one_refreshed_without_end_takes_bounded_memory() {
        let mut sessions = Sessions::new(TIMES);
        let tokens = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        assert_eq!(sessions.refresh(&tokens.refresh, at(1_800), &RealDice).unwrap_err(), Refused::Unknown);
        let mut tokens = sessions.open("anna".into(), at(0), &RealDice).unwrap();
        for _ in 1..REFRESHED_MAX {
            tokens = sessions.refresh(&tokens.refresh, at(1), &RealDice).unwrap();
        }
        assert!(sessions.tokens.len() <= REFRESHED_MAX + ACCESS_MAX);
        assert_eq!(sessions.refresh(&tokens.refresh, at(1), &RealDice).unwrap_err(), Refused::Unknown);
        assert!(sessions.tokens.is_empty());
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
