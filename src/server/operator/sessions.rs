//! Sessions of the console: an id in a cookie stands for an operator's token, in memory alone. Each request by one looks the operator up
//! again, so that a revocation ends it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use crate::pure::ids::{KeyDigest, hex};

/// Those that are open.
#[derive(Default)]
pub(super) struct Sessions {
    /// By the digest of its id: how long a look-up takes says nothing of the ids that there are.
    open: Mutex<HashMap<[u8; 32], Session>>,
}

/// One of them.
#[derive(Clone)]
pub(super) struct Session {
    /// The digest of the token that it was opened with.
    pub(super) token: KeyDigest,
    /// What requests by it bring in `X-CSRF-Token`.
    pub(super) csrf: String,
    /// In milliseconds of `Clock::passed_ms`: whatever the clock is set to, it lasts as long.
    opened_ms: i64,
}

impl Sessions {
    /// Opens one for the token of this digest: its id, for the cookie, and its CSRF token. The oldest make room.
    ///
    /// # Errors
    /// When the operating system gives no random numbers.
    pub(super) fn open(&self, token: KeyDigest, now_ms: i64) -> Result<(String, String), getrandom::Error> {
        let (id, csrf) = (random()?, random()?);
        let mut open = self.lock();
        open.retain(|_, session| session.is_open(now_ms));
        make_room(&mut open, OF_ONE_MAX, |session| session.token == token);
        make_room(&mut open, ALL_MAX, |_| true);
        let session = Session {
            token,
            csrf: csrf.clone(),
            opened_ms: now_ms,
        };
        open.insert(digest(&id), session);
        Ok((id, csrf))
    }

    /// The session of an id, while it is open.
    pub(super) fn find(&self, id: &str, now_ms: i64) -> Option<Session> {
        self.lock()
            .get(&digest(id))
            .filter(|session| session.is_open(now_ms))
            .cloned()
    }

    /// Ends it.
    pub(super) fn close(&self, id: &str) {
        self.lock().remove(&digest(id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn is_open(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.opened_ms) < SESSION_SECONDS.saturating_mul(1000)
    }
}

/// Leaves room for one more of those that are meant.
fn make_room(open: &mut HashMap<[u8; 32], Session>, most: usize, is_meant: impl Fn(&Session) -> bool) {
    while open.values().filter(|session| is_meant(session)).count() >= most {
        let meant = open.iter().filter(|(_, session)| is_meant(session));
        let Some(oldest) = meant.min_by_key(|(_, session)| session.opened_ms).map(|(id, _)| *id) else {
            return;
        };
        open.remove(&oldest);
    }
}

fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(hex(&bytes))
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

/// How long a session lasts, in seconds: 12 hours.
pub(super) const SESSION_SECONDS: i64 = 12 * 3600;
/// Most sessions with one token.
const OF_ONE_MAX: usize = 32;
/// Most sessions.
const ALL_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn token(number: u8) -> KeyDigest {
        KeyDigest::from_bytes([number; 32])
    }

    #[test]
    fn a_session_ends_with_its_time_or_when_it_is_closed() {
        let sessions = Sessions::default();
        let (id, csrf) = sessions.open(token(1), NOW).unwrap();
        let found = sessions.find(&id, NOW).unwrap();
        assert_eq!((found.token, &found.csrf), (token(1), &csrf));
        assert!(sessions.find(&csrf, NOW).is_none());
        let end = NOW + SESSION_SECONDS * 1000;
        assert!(sessions.find(&id, end - 1).is_some());
        assert!(sessions.find(&id, end).is_none());
        sessions.close(&id);
        assert!(sessions.find(&id, NOW).is_none());
    }

    #[test]
    fn only_so_many_are_open_and_the_oldest_make_room() {
        let sessions = Sessions::default();
        let (other, _) = sessions.open(token(2), NOW).unwrap();
        let ids: Vec<String> = (0..i64::try_from(OF_ONE_MAX).unwrap() + 3)
            .map(|at| sessions.open(token(1), NOW + at).unwrap().0)
            .collect();
        let now = NOW + 1000;
        let open = ids.iter().filter(|id| sessions.find(id, now).is_some()).count();
        assert_eq!(open, OF_ONE_MAX);
        assert!(ids[..3].iter().all(|id| sessions.find(id, now).is_none()));
        assert!(sessions.find(&other, now).is_some(), "another operator's stays");
        for number in 3..=200 {
            for at in 0..32 {
                sessions.open(token(number), NOW + at).unwrap();
            }
        }
        assert!(sessions.lock().len() <= ALL_MAX);
    }
}
