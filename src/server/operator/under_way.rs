//! What a request has under way until its answer is written: an act, for which a stop waits, and what was made whose secret that answer alone
//! has. Where the answer is not written, nobody has the secret, and what it is of is taken back.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::sessions::Sessions;
use crate::gateway::shutdown::{InFlight, Lifecycle};
use crate::ledger::Ledger;
use crate::ledger::admin::AdminOp;
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;

/// Of one request.
#[derive(Default)]
pub(super) struct UnderWay {
    /// Keeps a stop waiting from the first act until the answer is written.
    act: OnceLock<InFlight>,
    /// The id of a session that was opened.
    session: OnceLock<String>,
    unseen: Unseen,
}

/// What revokes a key or an operator that was made. It is taken out by whoever finds that nobody is given its text, so once.
#[derive(Clone, Default)]
pub(super) struct Unseen(Arc<Mutex<Option<AdminOp>>>);

impl UnderWay {
    /// The request is about to act, perhaps once more.
    ///
    /// # Errors
    /// 503 when the process ends: it has not acted then.
    pub(super) fn begin(&self, life: &Arc<Lifecycle>) -> Result<(), OperatorError> {
        match self.act.get_or_init(|| life.enter_act()).is_late() {
            true => Err(OperatorError::Api(ApiError::STOPPING)),
            false => Ok(()),
        }
    }

    /// A session of this id was opened.
    pub(super) fn opened(&self, id: &str) {
        drop(self.session.set(id.to_owned()));
    }

    pub(super) fn unseen(&self) -> Unseen {
        self.unseen.clone()
    }

    /// Whether the answer has a secret that nobody else has.
    pub(super) fn has_secret(&self) -> bool {
        self.session.get().is_some() || self.unseen.is_some()
    }

    /// The answer was not written: takes back what it has the secret of.
    pub(super) async fn take_back(&self, sessions: &Sessions, ledger: &Ledger) {
        if let Some(id) = self.session.get() {
            log::info!("a session was opened for somebody who was not given it: it is closed again");
            sessions.close(id);
        }
        self.unseen.take_back(ledger, "was not given the answer").await;
    }
}

impl Unseen {
    /// Something was made, which this revokes.
    pub(super) fn made(&self, revoke: AdminOp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(revoke);
    }

    fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Revokes what was made for somebody who `why`.
    pub(super) async fn take_back(&self, ledger: &Ledger, why: &str) {
        let revoke = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(revoke) = revoke else { return };
        log::warn!("a key or a token was made for somebody who {why}: it is revoked again");
        let ledger = ledger.clone();
        if let Err(error) = Box::pin(async move { ledger.run(revoke).await }).await {
            log::error!("it cannot be revoked: {error}; see the log of acts");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::rig::{Rig, block_on};
    use crate::pure::ids::KeyDigest;

    /// Its cookie is in no browser.
    #[test]
    fn a_session_that_nobody_was_given_is_closed_again() {
        let (rig, sessions, now) = (Rig::embedded(), Sessions::default(), 1_000_000);
        let open = || sessions.open(KeyDigest::from_bytes([1; 32]), now).unwrap().0;
        let (given, lost) = (open(), open());
        let under_way = UnderWay::default();
        under_way.opened(&lost);
        block_on(under_way.take_back(&sessions, &rig.ledger));
        assert!(sessions.find(&lost, now).is_none() && sessions.find(&given, now).is_some());
    }
}
