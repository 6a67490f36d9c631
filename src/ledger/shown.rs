//! What the command line and the operators' interface show alike of what the ledger has.

use serde::Serialize;
use serde_json::Value;

use super::admin::operators::{Act, Actor};
use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

/// Whether a key or a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CredentialState {
    /// It does.
    Active,
    /// No more.
    Expired,
    /// It was taken back.
    Revoked,
}

impl CredentialState {
    /// At `now`, of one that was revoked and expires then.
    pub(crate) fn of(revoked: Option<Timestamp>, expires: Option<Timestamp>, now: Timestamp) -> CredentialState {
        match (revoked, expires) {
            (Some(_), _) => CredentialState::Revoked,
            (None, Some(expires)) if expires <= now => CredentialState::Expired,
            (None, _) => CredentialState::Active,
        }
    }

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CredentialState::Active => "active",
            CredentialState::Expired => "expired",
            CredentialState::Revoked => "revoked",
        }
    }
}

/// An act of the log.
#[derive(Serialize)]
pub(crate) struct ActShown {
    pub(crate) id: String,
    pub(crate) time: String,
    pub(crate) actor: Actor,
    pub(crate) action: String,
    pub(crate) account: Option<AccountId>,
    pub(crate) subject: Option<String>,
    pub(crate) request: Value,
    pub(crate) before: Value,
    pub(crate) after: Value,
    pub(crate) error: Option<String>,
}

impl From<Act> for ActShown {
    fn from(act: Act) -> ActShown {
        ActShown {
            id: act.id,
            time: act.at.to_string(),
            actor: act.actor,
            action: act.action,
            account: act.account,
            subject: act.subject,
            request: act.request,
            before: act.before,
            after: act.after,
            error: act.error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_expired_from_the_moment_on_at_which_it_expires() {
        let state = |revoked: Option<i64>, expires: Option<i64>| {
            CredentialState::of(revoked.map(Timestamp), expires.map(Timestamp), Timestamp(10))
        };
        assert_eq!(state(None, None), CredentialState::Active);
        assert_eq!(state(None, Some(11)), CredentialState::Active);
        assert_eq!(state(None, Some(10)), CredentialState::Expired);
        assert_eq!(state(None, Some(9)), CredentialState::Expired);
        assert_eq!(state(Some(11), Some(11)), CredentialState::Revoked);
    }
}
