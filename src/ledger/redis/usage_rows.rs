//! Usage rows in Redis, read in steps: Redis does nothing else while a script runs, and no call is to wait long for a report.
//!
//! Days that are over do not change, and a step has whole days. So the last step has the day that is not over, and the rows are as its moment
//! has them, unless more than [`ROWS_AT_ONCE`] models were used on that day: then they are of some moments, all after the first step's.

use super::account::{account_keys, usage_of_key};
use super::link::Link;
use super::reply::{self, SomeRows};
use super::script;
use super::shared::Shared;
use crate::ledger::{StoreError, UsageRow};
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::time::{Day, Days, Period};

/// Of which days rows are read. Where there is no last one, what a clock that was ahead has counted is among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowDays {
    /// How many days before Redis' own.
    before: Option<i64>,
    first: Option<Day>,
    last: Option<Day>,
}

impl RowDays {
    pub(super) const SINCE_YESTERDAY: RowDays = RowDays {
        before: Some(1),
        first: None,
        last: None,
    };
}

impl From<Days> for RowDays {
    fn from(days: Days) -> RowDays {
        let since = |before| RowDays {
            before: Some(before),
            ..RowDays::default()
        };
        match days {
            Days::Period(Period::Today) => since(0),
            Days::Period(Period::Week) => since(6),
            Days::Period(Period::Month) => since(29),
            Days::Period(Period::All) => RowDays::default(),
            Days::Span { from, to } => RowDays {
                before: None,
                first: Some(from),
                last: Some(to),
            },
        }
    }
}

impl Shared {
    /// The usage rows of an account, or of one of its keys, oldest first; nothing when there is no such account.
    pub(super) async fn usage_rows(
        &self,
        link: &Link,
        of: (&AccountId, Option<&KeyId>),
        mut days: RowDays,
    ) -> Result<Option<Vec<UsageRow>>, StoreError> {
        let (mut all, mut place) = (Vec::new(), 0);
        loop {
            let turn = tokio::time::timeout(self.options.timeout, STEPS.acquire()).await;
            let Ok(Ok(_turn)) = turn else {
                return Err(StoreError::Busy(
                    "usage is asked for faster than it can be read".to_owned(),
                ));
            };
            let step = self.some_usage_rows(link, of, days, (place, ROWS_AT_ONCE)).await?;
            let Some((rows, next)) = step else {
                return Ok(None);
            };
            all.extend(rows);
            let Some((day, at)) = next else {
                break;
            };
            // What the first step began with is what the others go on from, also where a day has ended since.
            (days.before, days.first, place) = (None, Some(day), at);
        }
        // Those of a day that was parted are in order by step.
        all.sort_by(|a, b| (a.day, &a.model).cmp(&(b.day, &b.model)));
        Ok(Some(all))
    }

    /// The rows of one step, which looks at so many, from a place in the first day on.
    async fn some_usage_rows(
        &self,
        link: &Link,
        (account, key): (&AccountId, Option<&KeyId>),
        days: RowDays,
        (place, most): (i64, i64),
    ) -> Result<Option<SomeRows>, StoreError> {
        let [name, _] = account_keys(account);
        let of_key = key.map(|key| usage_of_key(account, key));
        let keys: Vec<&str> = [Some(&name), of_key.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let [first, last] = [days.first, days.last].map(|day| day.map(|day| day.0));
        let numbers = [Some(most), days.before, first, last, Some(place)];
        let numbers = numbers.map(|number| number.map(|number| number.to_string()).unwrap_or_default());
        let now = self.now_text();
        let [most, before, first, last, place] = numbers.each_ref().map(String::as_str);
        let arguments = [now.as_str(), most, before, first, last, place];
        let value = self.run_script(link, &script::ROWS, &keys, &arguments).await?;
        reply::some_rows(&value)
    }
}

/// How many steps run at once: between two of them calls are served, however many reports are made.
static STEPS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
/// How many rows a step looks at: a millisecond or two.
const ROWS_AT_ONCE: i64 = 500;

#[cfg(test)]
mod tests;
