//! What the ledger keeps and tells: accounts, keys, debits, figures and usage rows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::key_settings::KeySettings;
use super::terms::AccountTerms;
use crate::pure::ids::{AccountId, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::CallNumber;
use crate::pure::policy::DomainPattern;
use crate::pure::receipt::CallDetails;
use crate::pure::spend::EndUser;
use crate::pure::time::Timestamp;
use crate::pure::usage::Usage;

/// A key as the store knows it: everything but its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Public name.
    pub id: KeyId,
    /// Who pays.
    pub account: AccountId,
    /// A tier below the account's, for this key only.
    pub tier: Option<Tier>,
    /// Domain lock; empty when there is none.
    pub domains: Vec<DomainPattern>,
    /// From when on it is refused.
    pub expires: Option<Timestamp>,
    /// Limits of its own.
    pub limits: LimitOverrides,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
    /// When it was made.
    pub created: Timestamp,
    /// What else sets it apart; in the records of before there were such settings there is nothing.
    #[serde(default)]
    pub settings: KeySettings,
}

/// An account's standing facts; its figures are the store's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// Name.
    pub id: AccountId,
    /// What its keys may use at most.
    pub tier: Tier,
    /// Its own monthly quota; without one its tier's counts.
    #[serde(with = "pico_option")]
    pub monthly_quota: Option<Credits>,
    /// When it was made.
    pub created: Timestamp,
    /// What its operator says of it; in the records of before there were terms there is nothing.
    #[serde(default)]
    pub terms: AccountTerms,
}

/// A key with its account, as a store has found them; `place` is where it has the account's figures.
#[derive(Debug)]
pub(crate) struct Found<P> {
    pub(crate) key: Arc<KeyRecord>,
    pub(crate) account: Arc<AccountRecord>,
    pub(crate) place: P,
}

/// A call that its process left behind when it died, as its journal tells it.
#[derive(Debug)]
pub(crate) enum Orphan {
    /// It owes nothing: its hold is given back, and its number, when it had one, is closed.
    Held { number: Option<CallNumber> },
    /// An answer had begun: this is what it costs, under this number. None in journals of before there were numbers at this stage.
    Owed { debit: Debit, number: Option<CallNumber> },
}

/// What a call really used.
#[derive(Clone, Debug)]
pub struct Debit {
    /// The model's id.
    pub model: Arc<str>,
    /// The key that asked.
    pub key: KeyId,
    /// Tokens.
    pub usage: Usage,
    /// The exact cost of `usage`.
    pub cost: Credits,
    /// What was held for the call, where that is known: for the receipt.
    pub held: Option<Credits>,
    /// Under whose limit it counts, where its key limits its end users.
    pub end_user: Option<EndUser>,
    /// What else the receipt says.
    pub details: Option<Box<CallDetails>>,
}

/// An account's figures for `GET /llm/balance`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Paid in less spent.
    #[serde(with = "pico")]
    pub balance: Credits,
    /// Sum of open holds.
    #[serde(with = "pico")]
    pub held: Credits,
    /// Spent in the current UTC month.
    #[serde(with = "pico")]
    pub monthly_used: Credits,
}

/// One model's part of a usage summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The UTC day.
    pub day: crate::pure::time::Day,
    /// The model's id.
    pub model: String,
    /// Calls that were settled.
    pub requests: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Completion tokens.
    pub completion_tokens: u64,
    /// What they cost.
    #[serde(with = "pico")]
    pub cost: Credits,
}

/// Credits as their integer of 10^-12, for the control socket and the store's own records.
pub(crate) mod pico {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::pure::money::Credits;

    pub(crate) fn serialize<S: Serializer>(credits: &Credits, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(credits.pico())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Credits, D::Error> {
        i64::deserialize(deserializer).map(Credits::from_pico)
    }
}

/// The same for an amount that may be missing.
pub(crate) mod pico_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::pure::money::Credits;

    pub(crate) fn serialize<S: Serializer>(credits: &Option<Credits>, serializer: S) -> Result<S::Ok, S::Error> {
        credits.map(Credits::pico).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Credits>, D::Error> {
        Ok(Option::<i64>::deserialize(deserializer)?.map(Credits::from_pico))
    }
}

/// An amount of a finding: the nearest that there is.
pub(super) fn clamped(amount: i128) -> Credits {
    let limit = if amount < 0 { i64::MIN } else { i64::MAX };
    Credits::from_pico(i64::try_from(amount).unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_beyond_all_amounts_is_the_nearest_one() {
        let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
        for (amount, expected) in [
            (0, 0),
            (least, i64::MIN),
            (least - 1, i64::MIN),
            (most, i64::MAX),
            (most + 1, i64::MAX),
        ] {
            assert_eq!(clamped(amount), Credits::from_pico(expected), "{amount}");
        }
    }
}
