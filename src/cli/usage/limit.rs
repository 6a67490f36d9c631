//! What `tollgate usage --key` says beside the key's own usage: what is spent of its limit, and which other keys spend it too.

use serde::Serialize;

use super::shown::UsageShown;
use crate::cli::failure::Failure;
use crate::cli::ledger::ask;
use crate::cli::output::{Show, line};
use crate::config::Config;
use crate::ledger::KeyRecord;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::money::Credits;
use crate::pure::spend::Reset;

/// Usage, and what there is to say of the limit of the key that it is of.
#[derive(Serialize)]
pub(super) struct UsageAndLimit {
    #[serde(flatten)]
    pub(super) usage: UsageShown,
    #[serde(flatten)]
    pub(super) of_key: Option<OfKey>,
}

/// What stands of a key's limit.
#[derive(Serialize)]
pub(super) struct OfKey {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitShown>,
    /// Rotations have the calls of these keys count with its own: what they spend is spent of its limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counts_with: Vec<KeyId>,
}

/// In the period that is now.
#[derive(Serialize)]
struct LimitShown {
    amount: Credits,
    reset: Reset,
    spent: Credits,
    held: Credits,
}

impl OfKey {
    /// Asks for it.
    ///
    /// # Errors
    /// Also for a key that is not the account's: that has no usage, which is another thing than none.
    pub(super) fn asked(config: &Config, account: &AccountId, key: &KeyId) -> Result<OfKey, Failure> {
        let op = AdminOp::KeyList {
            account: account.clone(),
        };
        let AdminReply::Keys { keys, .. } = ask(config, op)? else {
            return Err(Failure::wrong_reply());
        };
        let record = keys.iter().find(|known| known.id == *key).ok_or_else(|| {
            Failure::new(format!(
                "{account} has no key {key}; `tollgate key list {account}` shows its keys"
            ))
        })?;
        let limit = match record.settings.limit {
            None => None,
            Some(limit) => {
                let (account, key, reset) = (account.clone(), key.clone(), limit.reset);
                let AdminReply::KeySpent { spent, held } = ask(config, AdminOp::KeySpent { account, key, reset })?
                else {
                    return Err(Failure::wrong_reply());
                };
                Some(LimitShown {
                    amount: limit.amount,
                    reset,
                    spent,
                    held,
                })
            }
        };
        let others = keys
            .iter()
            .filter(|other| other.id != *key && counted_under(other) == counted_under(record));
        Ok(OfKey {
            limit,
            counts_with: others.map(|other| other.id.clone()).collect(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(limit) = &self.limit {
            let period = match limit.reset {
                Reset::None => String::new(),
                reset => format!(" {}", reset.name()),
            };
            let LimitShown {
                amount, spent, held, ..
            } = limit;
            line(
                &mut text,
                format_args!("limit {amount}{period}: {spent} is spent, {held} held by running calls"),
            );
        }
        if !self.counts_with.is_empty() {
            let named: Vec<&str> = self.counts_with.iter().take(NAMED_MAX).map(KeyId::as_str).collect();
            let more = match self.counts_with.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            line(
                &mut text,
                format_args!(
                    "counts with {}{more}: what they spend is spent of one limit, and each has its own usage",
                    named.join(", ")
                ),
            );
        }
        text
    }
}

/// The key under which a key's calls count.
fn counted_under(key: &KeyRecord) -> &KeyId {
    key.settings.counts_as.as_ref().unwrap_or(&key.id)
}

impl Show for UsageAndLimit {
    fn text(&self) -> String {
        let of_key = self.of_key.as_ref().map(OfKey::text);
        self.usage.text() + &of_key.unwrap_or_default()
    }
}

/// Other keys that a terminal is told by their names; JSON has them all.
const NAMED_MAX: usize = 5;
