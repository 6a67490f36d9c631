//! What is asked of an account's usage and receipts beyond a period and a page: days, keys, one call by its name.

mod end_users;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::end_users::{END_USERS_MAX, EndUserBound, EndUserQuery, EndUserRow, EndUserUsage};
pub(in crate::ledger) use self::end_users::{EndUserSums, Unsummed};
use super::{UsageRow, pico};
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::Credits;
use crate::pure::receipt::Receipt;
use crate::pure::time::{Days, Period};

/// Which usage of an account is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageQuery {
    /// Whose.
    pub account: AccountId,
    /// Only that of calls with this key.
    pub key: Option<KeyId>,
    /// Which days.
    pub days: Days,
    /// Apart by key: a row a key, day and model. Calls that were billed by versions that did not count by key are in none.
    pub by_key: bool,
}

impl UsageQuery {
    /// Asks for a period, not apart by key.
    pub fn of_period(account: AccountId, key: Option<KeyId>, period: Period) -> UsageQuery {
        UsageQuery {
            account,
            key,
            days: period.into(),
            by_key: false,
        }
    }
}

/// A usage row, with its key where rows are asked for by key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRow {
    /// Whose calls these are.
    pub key: Option<KeyId>,
    /// What they used.
    pub row: UsageRow,
}

impl KeyedRow {
    pub(super) fn without_keys(rows: Vec<KeyedRow>) -> Vec<UsageRow> {
        rows.into_iter().map(|keyed| keyed.row).collect()
    }
}

/// Whether a text may be where a page of receipts begins ([`super::admin::ReceiptQuery::before`]): a sealed place in a file, or one in a
/// stream. What another store has said is the end of this one's.
pub fn is_place(text: &str) -> bool {
    let is_number =
        |part: &str| (1..=PLACE_DIGITS_MAX).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let is_sealed = text.len() == SEALED_PLACE_DIGITS && text.bytes().all(is_hex);
    is_sealed
        || text
            .split_once('-')
            .is_some_and(|(time, count)| is_number(time) && is_number(count))
}

/// Digits of a number in a stream's place.
const PLACE_DIGITS_MAX: usize = 15;
/// Hexadecimal digits of a sealed place.
const SEALED_PLACE_DIGITS: usize = 120;

/// A call that holds credit and has no receipt yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCall {
    /// Its request's id.
    pub id: RequestId,
    /// What it holds.
    #[serde(with = "pico")]
    pub held: Credits,
    /// Its key, where the hold says it: that of a key with limits of its own.
    pub key: Option<KeyId>,
}

/// How a call is named: by its request's id, or by its answer's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallName {
    /// As it was written.
    pub(super) text: String,
    /// Read as a request's id. The answer's own may have that form too.
    pub(super) id: Option<RequestId>,
    /// Whether only a request's id is meant.
    is_request: bool,
}

impl From<RequestId> for CallName {
    fn from(id: RequestId) -> CallName {
        CallName {
            text: id.to_string(),
            id: Some(id),
            is_request: true,
        }
    }
}

impl CallName {
    pub(super) fn new(name: &str) -> CallName {
        CallName {
            text: name.to_owned(),
            id: name.parse().ok(),
            is_request: false,
        }
    }

    /// Whether a receipt is of this call.
    pub(super) fn is_of(&self, receipt: &Receipt) -> bool {
        let of_answer = !self.is_request && receipt.billed.call.upstream_id.as_deref() == Some(&self.text);
        of_answer || self.id == Some(receipt.billed.id)
    }

    /// The texts of which one stands in the list that a receipt is kept as.
    pub(super) fn marks(&self) -> Vec<String> {
        let of_request = self.id.map(|id| format!("\"{id}\""));
        let of_answer = (!self.is_request)
            .then(|| serde_json::to_string(&self.text).ok())
            .flatten();
        let mut marks: Vec<String> = of_request.into_iter().chain(of_answer).collect();
        marks.dedup();
        marks
    }
}

/// What a store knows of a call that has no receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds credit: it runs, or its settlement is on its way.
    Held(RunningCall),
    /// Calls of the account hold credit, and it may be one of them: a hold does not say the answer's own id.
    Perhaps,
    /// It holds nothing.
    Gone,
}

impl Standing {
    /// That of a call of which no hold stands under its request's id, where any of its account's stands or not.
    pub(super) fn without_hold(call: &CallName, any: bool) -> Standing {
        match any && !call.is_request {
            true => Standing::Perhaps,
            false => Standing::Gone,
        }
    }
}

/// The longest that a reader waits for the receipt of a call that still holds credit: its client may have the last byte just before it
/// is billed, and another gateway's settlement is on its way for some milliseconds. What holds credit for longer runs.
pub(super) const SETTLEMENT_WITHIN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_sealed_or_two_numbers_of_a_stream() {
        let sealed = "0123456789abcdef".repeat(8);
        let upper = sealed[..120].to_uppercase();
        for (text, expected) in [
            (&sealed[..120], true),
            ("1795132800000-0", true),
            ("123456789012345-1", true),
            ("", false),
            ("1", false),
            (&sealed[..119], false),
            (&sealed[..121], false),
            (&upper[..], false),
            ("1.2.3.4", false),
            ("1-2-3", false),
            ("a-b", false),
            ("-", false),
            ("-1", false),
            ("1-", false),
            ("1-1234567890123456", false),
            ("+1-2", false),
            ("1-2 ", false),
        ] {
            assert_eq!(is_place(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_call_is_marked_by_its_id_and_by_the_name_of_its_answer() {
        let id = "0190a0b0-c0d0-7e0f-8a0b-0c0d0e0f0a0b";
        let quoted = format!("\"{id}\"");
        for (call, expected) in [
            (CallName::new("gen-1"), vec!["\"gen-1\"".to_owned()]),
            (CallName::new("a \"b\""), vec![r#""a \"b\"""#.to_owned()]),
            // Its answer may have that name too.
            (CallName::new(id), vec![quoted.clone()]),
            (
                CallName::new(&id.to_uppercase()),
                vec![quoted.clone(), quoted.to_uppercase()],
            ),
            (CallName::from(id.parse::<RequestId>().unwrap()), vec![quoted.clone()]),
        ] {
            assert_eq!(call.marks(), expected, "{call:?}");
        }
    }
}
