//! What an operator says of an account beside tier and quota: whether it may call, when its credit is low, and notes of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::pure::error::AccountStop;
use crate::pure::money::Credits;

/// An account's terms. A record of before there were terms has the default ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountTerms {
    /// Whether it may call.
    pub status: AccountStatus,
    /// Below this balance it is low, which an event tells; none: never.
    #[serde(with = "super::pico_option", skip_serializing_if = "Option::is_none")]
    pub low_balance: Option<Credits>,
    /// What the operator keeps with it: at most [`METADATA_MAX`] names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Whether an account may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountStatus {
    /// It may.
    #[default]
    Active,
    /// Not now: its calls are refused with 403.
    Suspended,
    /// Never again: its calls are refused with 403, it gets no keys and no credit but corrections and refunds, and it keeps its books.
    Closed,
}

/// A change of an account's terms; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TermsChange {
    /// The new status. Nothing follows on closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<AccountStatus>,
    /// The new bound, in 10^-12 credit: `Some(None)` takes it away.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub low_balance_pico: Option<Option<i64>>,
    /// Names to set, and with `None` to take away; the others stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Option<String>>,
}

impl AccountStatus {
    /// All.
    pub const ALL: [AccountStatus; 3] = [AccountStatus::Active, AccountStatus::Suspended, AccountStatus::Closed];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            AccountStatus::Active => "active",
            AccountStatus::Suspended => "suspended",
            AccountStatus::Closed => "closed",
        }
    }
}

impl fmt::Display for AccountStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AccountStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<AccountStatus, String> {
        AccountStatus::ALL
            .into_iter()
            .find(|status| status.name() == text)
            .ok_or_else(|| format!("a status is active, suspended or closed, not {text}"))
    }
}

impl TermsChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == TermsChange::default()
    }
}

impl AccountStatus {
    /// Why its calls are refused, where they are.
    pub fn stop(self) -> Option<AccountStop> {
        match self {
            AccountStatus::Active => None,
            AccountStatus::Suspended => Some(AccountStop::Suspended),
            AccountStatus::Closed => Some(AccountStop::Closed),
        }
    }
}

impl AccountTerms {
    /// # Errors
    /// Says why the account gets no key: it is closed.
    pub(super) fn allows_key(&self) -> Result<(), String> {
        match self.status {
            AccountStatus::Closed => Err("the account is closed: it gets no keys".to_owned()),
            AccountStatus::Active | AccountStatus::Suspended => Ok(()),
        }
    }

    /// The terms after a change.
    ///
    /// # Errors
    /// Says what is not possible; nothing is changed then.
    pub fn changed(&self, change: &TermsChange) -> Result<AccountTerms, String> {
        let mut terms = self.clone();
        if let Some(status) = change.status {
            if self.status == AccountStatus::Closed && status != AccountStatus::Closed {
                return Err("a closed account cannot be opened again".to_owned());
            }
            terms.status = status;
        }
        if let Some(low) = change.low_balance_pico {
            if low.is_some_and(|low| low < 0) {
                return Err("low_balance cannot be negative".to_owned());
            }
            terms.low_balance = low.map(Credits::from_pico);
        }
        for (name, value) in &change.metadata {
            let is_name =
                !name.is_empty() && name.len() <= METADATA_NAME_BYTES_MAX && !name.chars().any(char::is_control);
            // One of before there was this rule stays, also where it is said again.
            let is_value = value.as_ref().is_none_or(|value| {
                let is_line = !value.chars().any(char::is_control) || self.metadata.get(name) == Some(value);
                value.len() <= METADATA_VALUE_BYTES_MAX && is_line
            });
            if !is_name || !is_value {
                return Err(format!(
                    "metadata has names of 1 to {METADATA_NAME_BYTES_MAX} bytes, and values of at most {METADATA_VALUE_BYTES_MAX} bytes, both without control characters"
                ));
            }
            match value {
                Some(value) => terms.metadata.insert(name.clone(), value.clone()),
                None => terms.metadata.remove(name),
            };
        }
        if terms.metadata.len() > METADATA_MAX {
            return Err(format!("metadata has at most {METADATA_MAX} names"));
        }
        Ok(terms)
    }
}

/// A field that is there, even as null: serde alone reads null as a field that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The most names that an account's metadata has.
pub const METADATA_MAX: usize = 16;
const METADATA_NAME_BYTES_MAX: usize = 64;
const METADATA_VALUE_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_is_typed() {
        for status in AccountStatus::ALL {
            assert_eq!(status.name().parse(), Ok(status));
        }
        let refused = "open".parse::<AccountStatus>().unwrap_err();
        assert_eq!(refused, "a status is active, suspended or closed, not open");
    }

    #[test]
    fn a_bound_of_low_credit_is_at_least_nothing() {
        let changed = |low| {
            AccountTerms::default().changed(&TermsChange {
                low_balance_pico: Some(Some(low)),
                ..TermsChange::default()
            })
        };
        assert_eq!(changed(0).unwrap().low_balance, Some(Credits::ZERO));
        assert_eq!(changed(-1), Err("low_balance cannot be negative".to_owned()));
    }

    #[test]
    fn metadata_has_its_bounds() {
        let one = |name: usize, value: usize| {
            AccountTerms::default().changed(&TermsChange {
                metadata: [("n".repeat(name), Some("v".repeat(value)))].into(),
                ..TermsChange::default()
            })
        };
        assert_eq!(
            one(METADATA_NAME_BYTES_MAX, METADATA_VALUE_BYTES_MAX)
                .unwrap()
                .metadata
                .len(),
            1
        );
        assert!(one(METADATA_NAME_BYTES_MAX + 1, 0).is_err());
        assert!(one(1, METADATA_VALUE_BYTES_MAX + 1).is_err());
        assert!(one(0, 0).is_err());
        let said = |terms: &AccountTerms, value: &str| {
            terms.changed(&TermsChange {
                metadata: [("n".to_owned(), Some(value.to_owned()))].into(),
                ..TermsChange::default()
            })
        };
        for value in ["a\nb", "\r", "\t", "\u{7f}", "\u{85}"] {
            assert!(said(&AccountTerms::default(), value).is_err(), "{value:?}");
            // Kept by an earlier version.
            let kept = format!(r#"{{"metadata":{{"n":{}}}}}"#, serde_json::json!(value));
            let kept: AccountTerms = serde_json::from_str(&kept).unwrap();
            assert_eq!(said(&kept, value), Ok(kept.clone()));
            assert_eq!(said(&kept, "one line").unwrap().metadata["n"], "one line");
        }
        let many = |count: usize| {
            AccountTerms::default().changed(&TermsChange {
                metadata: (0..count).map(|n| (n.to_string(), Some(String::new()))).collect(),
                ..TermsChange::default()
            })
        };
        assert_eq!(many(METADATA_MAX).unwrap().metadata.len(), METADATA_MAX);
        assert!(many(METADATA_MAX + 1).is_err());
    }
}
