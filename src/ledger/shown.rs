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
    fn a_key_opens_until_it_expires_or_is_revoked() {
        let [before, now, after] = [1, 2, 3].map(Timestamp);
        for (revoked, expires, state) in [
            (None, None, "active"),
            (None, Some(after), "active"),
            (None, Some(now), "expired"),
            (None, Some(before), "expired"),
            (Some(before), None, "revoked"),
            (Some(before), Some(after), "revoked"),
        ] {
            let found = CredentialState::of(revoked, expires, now);
            assert_eq!(found.name(), state, "{revoked:?} {expires:?}");
            assert_eq!(serde_json::to_value(found).unwrap(), state);
        }
    }
}
