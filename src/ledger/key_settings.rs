//! What sets a key apart from its account, beside tier, domains and rate limits: a label, hard limits of what it may spend, lists of models
//! and addresses.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pico;
use crate::config::Network;
use crate::pure::ids::KeyId;
use crate::pure::limits::{LIMIT_MAX, LimitOverrides};
use crate::pure::money::Credits;
use crate::pure::policy::{DomainPattern, ModelPattern};
use crate::pure::spend::{EndUserId, Reset, SpendLimit, SpendLimits};
use crate::pure::time::{SPAN_MS_MAX, Timestamp};

/// A key's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySettings {
    /// What its owner calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What it may spend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<SpendLimit>,
    /// What each of its end users may spend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_user_limit: Option<SpendLimit>,
    /// The models that it may use; all when the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelPattern>,
    /// Where it may be used; everywhere when the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Network>,
    /// The key that what this one spends counts under: the one that it came in place of, by a rotation, when that had limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts_as: Option<KeyId>,
    /// What a rotation took from the key; absent until it is rotated with an overlap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
}

/// What a key had that a rotation replaced: each key in its place is given this, also when it is rotated once more within the overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replaced {
    /// When it would have expired by itself; None: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A change of a key's settings; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyChange {
    /// The new label; an empty one takes it away.
    pub label: Option<String>,
    /// The new limit.
    pub limit: Option<AmountChange>,
    /// When it begins anew.
    pub limit_reset: Option<Reset>,
    /// The new limit of each end user.
    pub end_user_limit: Option<AmountChange>,
    /// When it begins anew.
    pub end_user_limit_reset: Option<Reset>,
    /// The new list.
    pub models: Option<Vec<ModelPattern>>,
    /// The new list.
    pub addresses: Option<Vec<Network>>,
}

/// What becomes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmountChange {
    /// It is taken away.
    Removed,
    /// It is this.
    To(#[serde(with = "pico")] Credits),
}

impl KeySettings {
    /// Whether they forbid something: a gateway that does not know them must not let the key in.
    pub fn is_restricted(&self) -> bool {
        self.has_limits() || !self.models.is_empty() || !self.addresses.is_empty()
    }

    /// Whether what the key spends has to be counted.
    pub fn has_limits(&self) -> bool {
        self.limit.is_some() || self.end_user_limit.is_some()
    }

    /// Whether other keys' calls may count with those of the key under its limit, since a rotation put it in place of one of them, or one of
    /// them in place of it.
    pub fn is_counted_with_others(&self) -> bool {
        self.has_limits() && (self.counts_as.is_some() || self.replaced.is_some())
    }

    /// The hard limits of a call of the key by this end user.
    pub fn spend(&self, key: &KeyId, end_user: Option<EndUserId>) -> Option<Arc<SpendLimits>> {
        let end_user = end_user.zip(self.end_user_limit);
        let limits = SpendLimits {
            key: self.counts_as.as_ref().unwrap_or(key).clone(),
            own: self.limit,
            end_user,
        };
        self.has_limits().then(|| Arc::new(limits))
    }

    /// Whether the key may use the model of this id.
    pub fn allows_model(&self, id: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|pattern| pattern.matches(id))
    }

    /// Whether the key may be used from there. An address that is not known is none of a list.
    pub fn allows_address(&self, address: Option<IpAddr>) -> bool {
        let is_listed = |address| self.addresses.iter().any(|network| network.contains(address));
        self.addresses.is_empty() || address.is_some_and(is_listed)
    }

    /// Whether a new key may have them. Only a rotation says what a key counts as, and that it was replaced.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check_new(&self) -> Result<(), String> {
        match (&self.counts_as, self.replaced) {
            (Some(_), _) => Err("only a rotation says what a key counts as".to_owned()),
            (None, Some(_)) => Err("only a rotation says that a key was replaced".to_owned()),
            (None, None) => self.check(),
        }
    }

    /// Whether they keep to their bounds.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(label) = &self.label {
            let is_good =
                !label.is_empty() && label.chars().count() <= LABEL_CHARS_MAX && !label.chars().any(char::is_control);
            if !is_good {
                return Err(format!(
                    "a label has 1 to {LABEL_CHARS_MAX} characters, and no control characters"
                ));
            }
        }
        if self.models.len() > LISTED_MAX || self.addresses.len() > LISTED_MAX {
            return Err(format!(
                "a key has at most {LISTED_MAX} models and {LISTED_MAX} addresses"
            ));
        }
        let limits = [self.limit, self.end_user_limit];
        if limits.iter().flatten().any(|limit| limit.amount < Credits::ZERO) {
            return Err("a limit cannot be negative".to_owned());
        }
        Ok(())
    }
}

impl KeyChange {
    /// The settings with the change.
    ///
    /// # Errors
    /// A reset without a limit, or what [`KeySettings::check`] finds.
    pub fn applied(&self, before: &KeySettings) -> Result<KeySettings, String> {
        let mut after = before.clone();
        if let Some(label) = &self.label {
            after.label = Some(label.clone()).filter(|label| !label.is_empty());
        }
        after.limit = changed(before.limit, self.limit, self.limit_reset)?;
        after.end_user_limit = changed(before.end_user_limit, self.end_user_limit, self.end_user_limit_reset)?;
        if let Some(models) = &self.models {
            after.models = models.clone();
        }
        if let Some(addresses) = &self.addresses {
            after.addresses = addresses.clone();
        }
        after.check()?;
        Ok(after)
    }
}

/// Whether a key may list so many domains.
///
/// # Errors
/// Says that it may not.
pub(crate) fn check_domains(domains: &[DomainPattern]) -> Result<(), String> {
    match domains.len() > LISTED_MAX {
        true => Err(format!("a key has at most {LISTED_MAX} domains")),
        false => Ok(()),
    }
}

/// Whether a new key or token may end then, and count so much: the command line and the operators' interface take no more either.
///
/// # Errors
/// Says what it may not.
pub(in crate::ledger) fn check_lifetime(expires_in_ms: Option<i64>) -> Result<(), String> {
    match expires_in_ms.is_none_or(|ms| (1..=SPAN_MS_MAX).contains(&ms)) {
        true => Ok(()),
        false => Err("a key or token expires in 1 millisecond to 36,500 days from now, or never".to_owned()),
    }
}

/// Whether a new key may have these limits.
///
/// # Errors
/// Says what it may not.
pub(in crate::ledger) fn check_limits(limits: &LimitOverrides) -> Result<(), String> {
    for limit in [limits.rpm, limits.tpm, limits.concurrency].into_iter().flatten() {
        if limit == 0 {
            return Err("a limit must be at least 1; to stop a key, revoke it".to_owned());
        }
        if limit > LIMIT_MAX {
            return Err(format!("a limit must be at most {LIMIT_MAX}"));
        }
    }
    Ok(())
}

fn changed(
    before: Option<SpendLimit>,
    amount: Option<AmountChange>,
    reset: Option<Reset>,
) -> Result<Option<SpendLimit>, String> {
    let amount = match amount {
        Some(AmountChange::To(amount)) => Some(amount),
        Some(AmountChange::Removed) => None,
        None => before.map(|limit| limit.amount),
    };
    match (amount, reset) {
        (Some(amount), reset) => {
            let reset = reset.or(before.map(|limit| limit.reset)).unwrap_or_default();
            Ok(Some(SpendLimit { amount, reset }))
        }
        (None, None | Some(Reset::None)) => Ok(None),
        (None, Some(_)) => Err("there is no limit to reset: give the limit as well".to_owned()),
    }
}

/// Longest label of a key, in characters.
const LABEL_CHARS_MAX: usize = 100;
/// Most models, and most addresses, that a key lists.
const LISTED_MAX: usize = 100;

#[cfg(test)]
mod tests;
