//! Usage by end user: sums over an account's receipts of some days.
//!
//! The books do not count by end user, for anyone can name new ones without end. Their receipts do: so these sums are of the receipts that
//! are kept, and within bounds, beyond which there are none instead of a part of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::StoreError;
use crate::pure::credit_sum::CreditSum;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::receipt::Receipt;
use crate::pure::time::{Day, Days};

/// Which receipts are summed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndUserQuery {
    /// Whose.
    pub account: AccountId,
    /// Only those of calls with this key.
    pub key: Option<KeyId>,
    /// Of which days.
    pub days: Days,
}

/// What the end users of an account used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndUserUsage {
    /// In the order of their names; first what calls used that name none.
    Sums(Vec<EndUserRow>),
    /// There is more than is summed up.
    Beyond(EndUserBound),
}

/// Sums of an end user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndUserRow {
    /// As requests name it. None of calls that name none.
    pub end_user: Option<Box<str>>,
    /// Calls.
    pub requests: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Completion tokens.
    pub completion_tokens: u64,
    /// What they cost, in 10^-12 credit.
    #[serde(with = "sum_pico")]
    pub cost: CreditSum,
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum EndUserBound {
    /// Receipts.
    #[error(
        "these days have more than {SUMMED_MAX} receipts, which are too many to sum by end user; ask for fewer days"
    )]
    Receipts,
    /// Receipts of other days, beside these.
    #[error(
        "the minutes behind these days have more than {OTHERS_MAX} receipts, which are too many to look through; ask for other days"
    )]
    OtherReceipts,
    /// End users.
    #[error("these days have more than {END_USERS_MAX} end users, which are too many to list; ask for fewer days")]
    EndUsers,
    /// Something that a later version counts.
    #[error("these days have more than is summed up by end user; ask for fewer days")]
    #[serde(other)]
    Other,
}

/// The sums in the making.
pub(in crate::ledger) struct EndUserSums<'q> {
    key: Option<&'q KeyId>,
    from: Day,
    to: Day,
    /// Receipts of these days.
    of_days: u32,
    /// Receipts of other days that had to be looked at as well.
    of_others: u32,
    rows: BTreeMap<Option<Box<str>>, EndUserRow>,
}

/// Why sums are given up.
pub(in crate::ledger) enum Unsummed {
    /// There is too much.
    Beyond(EndUserBound),
    /// What is there cannot be summed up.
    Failed(StoreError),
}

impl From<StoreError> for Unsummed {
    fn from(error: StoreError) -> Unsummed {
        Unsummed::Failed(error)
    }
}

impl From<rusqlite::Error> for Unsummed {
    fn from(error: rusqlite::Error) -> Unsummed {
        Unsummed::Failed(error.into())
    }
}

impl<'q> EndUserSums<'q> {
    /// None yet, for days as they are seen from `today`.
    pub(in crate::ledger) fn new(query: &'q EndUserQuery, today: Day) -> EndUserSums<'q> {
        let (from, to) = query.days.bounds(today);
        EndUserSums {
            key: query.key.as_ref(),
            from,
            to,
            of_days: 0,
            of_others: 0,
            rows: BTreeMap::new(),
        }
    }

    /// The first and the last day.
    pub(in crate::ledger) fn days(&self) -> (Day, Day) {
        (self.from, self.to)
    }

    /// Looks at a receipt that is there, and adds it where it is one that is asked for. One that cannot be read ends it all: it may be of
    /// anybody.
    pub(in crate::ledger) fn add(&mut self, receipt: Result<Receipt, StoreError>) -> Result<(), Unsummed> {
        let Receipt { resolved, billed } = receipt?;
        let is_of_days = (self.from..=self.to).contains(&resolved.day());
        // Those of others take time as well, but less: a quiet day before a busy midnight is to be summed up.
        let (seen, most, bound) = if is_of_days {
            (&mut self.of_days, SUMMED_MAX, EndUserBound::Receipts)
        } else {
            (&mut self.of_others, OTHERS_MAX, EndUserBound::OtherReceipts)
        };
        *seen = seen.saturating_add(1);
        if *seen > most {
            return Err(Unsummed::Beyond(bound));
        }
        if !is_of_days || self.key.is_some_and(|key| *key != billed.key) {
            return Ok(());
        }
        let is_full = self.rows.len() >= END_USERS_MAX;
        let name = billed.call.end_user;
        if is_full && !self.rows.contains_key(&name) {
            return Err(Unsummed::Beyond(EndUserBound::EndUsers));
        }
        let row = self.rows.entry(name).or_default();
        row.requests = row.requests.saturating_add(1);
        row.prompt_tokens = row.prompt_tokens.saturating_add(billed.prompt_tokens);
        row.completion_tokens = row.completion_tokens.saturating_add(billed.completion_tokens);
        row.cost.add(billed.cost);
        Ok(())
    }

    /// The sums, or why there are none.
    pub(in crate::ledger) fn ended(self, ended: Result<(), Unsummed>) -> Result<EndUserUsage, StoreError> {
        match ended {
            Ok(()) => {
                let rows = self.rows.into_iter();
                let named = rows.map(|(end_user, row)| EndUserRow { end_user, ..row });
                Ok(EndUserUsage::Sums(named.collect()))
            }
            Err(Unsummed::Beyond(bound)) => Ok(EndUserUsage::Beyond(bound)),
            Err(Unsummed::Failed(error)) => Err(error),
        }
    }
}

/// A sum as its integer of 10^-12, as earlier versions read it, and as that integer's text where it is more than an amount can be.
mod sum_pico {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::pure::credit_sum::CreditSum;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Pico {
        Amount(i64),
        Beyond(String),
    }

    pub(super) fn serialize<S: Serializer>(sum: &CreditSum, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(sum.pico()) {
            Ok(pico) => serializer.serialize_i64(pico),
            Err(_) => serializer.collect_str(&sum.pico()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CreditSum, D::Error> {
        let pico = match Pico::deserialize(deserializer)? {
            Pico::Amount(pico) => i128::from(pico),
            Pico::Beyond(text) => text.parse::<i128>().map_err(serde::de::Error::custom)?,
        };
        Ok(CreditSum::from_pico(pico))
    }
}

/// The most receipts of the days that are looked through.
const SUMMED_MAX: u32 = 20_000;
/// The most receipts of other days that are looked through for them.
const OTHERS_MAX: u32 = 200_000;
/// The most end users that are listed, those that are named by nobody as one.
pub const END_USERS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::ids::RequestId;
    use crate::pure::money::Credits;
    use crate::pure::numbers::{Birth, CallNumber, ProducerId};
    use crate::pure::receipt::{Billed, CallDetails};
    use crate::pure::time::Timestamp;
    use crate::pure::usage::Usage;

    fn receipt(end_user: Option<String>, cost: i64) -> Receipt {
        let details = CallDetails {
            end_user: end_user.map(Box::from),
            ..CallDetails::default()
        };
        let number = CallNumber::new(ProducerId::new(Birth(1), 1), 1);
        let names = (&"acme".parse().unwrap(), &KeyId::from("key_x".to_owned()));
        let billed = Billed::new(
            RequestId::from_bytes([1; 16]),
            number,
            names,
            &"a/m".into(),
            (Usage::default(), Credits::from_pico(cost), None),
            Some(&details),
        );
        Receipt {
            resolved: Timestamp(7),
            billed,
        }
    }

    fn sums(receipts: impl Iterator<Item = Result<Receipt, StoreError>>) -> Result<EndUserUsage, StoreError> {
        let query = EndUserQuery {
            account: "acme".parse().unwrap(),
            key: None,
            days: Days::Span {
                from: Day(0),
                to: Day(0),
            },
        };
        let mut sums = EndUserSums::new(&query, Day(0));
        let ended = receipts.into_iter().try_for_each(|receipt| sums.add(receipt));
        sums.ended(ended)
    }

    #[test]
    fn beyond_a_bound_there_are_no_sums_rather_than_a_part_of_them() {
        let calls = |calls: u32, users: u32| {
            let names = (0..calls).map(move |n| (n % users).checked_sub(1).map(|user| format!("user-{user}")));
            sums(names.map(|name| Ok(receipt(name, 3))))
        };
        let Ok(EndUserUsage::Sums(rows)) = calls(20_000, 1_000) else {
            panic!("as many as there may be");
        };
        assert_eq!(
            (rows.len(), rows[0].end_user.as_deref(), rows[0].requests),
            (1_000, None, 20)
        );
        assert!(rows.iter().all(|row| row.cost == CreditSum::from_pico(60)));
        assert_eq!(calls(20_001, 1), Ok(EndUserUsage::Beyond(EndUserBound::Receipts)));
        assert_eq!(calls(1_001, 1_001), Ok(EndUserUsage::Beyond(EndUserBound::EndUsers)));
    }

    /// Redis' clocks may be apart: what it wrote some minutes behind the days is looked at, too.
    #[test]
    fn receipts_of_other_days_are_none_of_those_that_there_may_be() {
        let with_others = |others: usize| {
            let other = Receipt {
                resolved: Day(1).start(),
                ..receipt(None, 3)
            };
            let of_days = (0..20_000).map(|_| receipt(None, 3));
            sums(std::iter::repeat_n(other, others).chain(of_days).map(Ok))
        };
        let Ok(EndUserUsage::Sums(rows)) = with_others(200_000) else {
            panic!("as many as there may be");
        };
        assert_eq!((rows.len(), rows[0].requests), (1, 20_000));
        let beyond = EndUserBound::OtherReceipts;
        assert_eq!(with_others(200_001), Ok(EndUserUsage::Beyond(beyond)));
        let words = beyond.to_string();
        assert!(
            words.starts_with("the minutes behind these days have more than 200000 receipts"),
            "{words}"
        );
    }

    /// A gateway elsewhere may be of a later version than the command that asks it.
    #[test]
    fn a_bound_that_is_not_known_is_told_all_the_same() {
        let usage = serde_json::from_str::<EndUserUsage>(r#"{"beyond":"bytes"}"#).unwrap();
        assert_eq!(usage, EndUserUsage::Beyond(EndUserBound::Other));
        let known = serde_json::from_str::<EndUserUsage>(r#"{"beyond":"end_users"}"#).unwrap();
        assert_eq!(known, EndUserUsage::Beyond(EndUserBound::EndUsers));
    }

    #[test]
    fn what_cannot_be_summed_up_is_an_error() {
        let torn = || Err(StoreError::Corrupt("torn".to_owned()));
        assert!(sums([Ok(receipt(None, 1)), torn()].into_iter()).is_err());
    }

    #[test]
    fn sums_may_be_more_than_one_amount() {
        let dear = [
            receipt(None, 1),
            receipt(None, i64::MAX),
            receipt(Some("b".to_owned()), 2),
        ];
        let usage = sums(dear.into_iter().map(Ok)).unwrap();
        let EndUserUsage::Sums(rows) = &usage else {
            panic!("{usage:?}");
        };
        let costs: Vec<String> = rows.iter().map(|row| row.cost.to_string()).collect();
        assert_eq!(costs, ["9223372.036854775808", "0.000000000002"]);
        // Commands are told the same.
        let text = serde_json::to_string(&usage).unwrap();
        assert!(
            text.contains(r#""cost":"9223372036854775808""#) && text.contains(r#""cost":2}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<EndUserUsage>(&text).unwrap(), usage);
    }
}
