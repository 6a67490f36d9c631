//! `GET /llm/usage`: what was used, by model; and for days of the caller's choice, by model, key, day or end user.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde::Serialize;

use super::own_key;
use super::parameters::parameter;
use crate::gateway::access::authenticate::store_failed;
use crate::gateway::snapshot::to_json;
use crate::ledger::query::{EndUserQuery, EndUserRow, EndUserUsage, KeyedRow, UsageQuery};
use crate::ledger::{Caller, Ledger};
use crate::pure::credit_sum::CreditSum;
use crate::pure::error::ApiError;
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::time::{Day, Days, Period};

/// Amounts are told as `M`.
#[derive(Serialize)]
struct UsageSummary<'a, M> {
    /// None where the days were chosen.
    period: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    total_requests: u64,
    total_tokens: u64,
    total_cost: M,
    by_model: Vec<UsageByModel<M>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Group<M>>>,
}

#[derive(Default, Serialize)]
struct UsageByModel<M> {
    model: String,
    requests: u64,
    tokens: u64,
    cost: M,
}

/// What usage is put together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupBy {
    Rows(Column),
    EndUser,
}

/// What a row of the books says that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Model,
    Key,
    Day,
}

/// The sums of one model, key, day or end user.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Group<M> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    /// Null of calls that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_user: Option<Option<Box<str>>>,
    requests: u64,
    tokens: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost: M,
}

impl UsageByModel<CreditSum> {
    fn told<M: From<CreditSum>>(self) -> UsageByModel<M> {
        UsageByModel {
            model: self.model,
            requests: self.requests,
            tokens: self.tokens,
            cost: M::from(self.cost),
        }
    }
}

impl Group<CreditSum> {
    fn told<M: From<CreditSum>>(self) -> Group<M> {
        Group {
            model: self.model,
            key: self.key,
            day: self.day,
            end_user: self.end_user,
            requests: self.requests,
            tokens: self.tokens,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cost: M::from(self.cost),
        }
    }
}

impl GroupBy {
    const ALL: [(&'static str, GroupBy); 4] = [
        ("model", GroupBy::Rows(Column::Model)),
        ("key", GroupBy::Rows(Column::Key)),
        ("day", GroupBy::Rows(Column::Day)),
        ("end_user", GroupBy::EndUser),
    ];
}

impl Column {
    /// What a row counts for.
    fn name(self, keyed: &KeyedRow) -> String {
        match self {
            Column::Model => keyed.row.model.clone(),
            Column::Key => keyed.key.as_ref().map(ToString::to_string).unwrap_or_default(),
            Column::Day => keyed.row.day.to_string(),
        }
    }

    fn group(self, name: String) -> Group<CreditSum> {
        let mut group = Group::default();
        let place = match self {
            Column::Model => &mut group.model,
            Column::Key => &mut group.key,
            Column::Day => &mut group.day,
        };
        *place = Some(name);
        group
    }
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    days: Days,
    /// None where neither days nor groups are named: the interface's own answer.
    groups: Option<GroupBy>,
}

/// The answer to `GET /llm/usage`.
pub(super) async fn usage(ledger: &Ledger, caller: &Caller, query: &[(String, String)]) -> Result<String, ApiError> {
    let account = &caller.account.id;
    summary::<CreditSum, _>(ledger, account, own_key(caller), query, ledger.now().day()).await
}

/// Where usage is read: at once, or in a turn of whoever asks.
pub(crate) trait UsageBooks {
    /// Why nothing is told.
    type Error: From<ApiError>;

    /// Usage by day and model.
    fn usage(&self, query: UsageQuery) -> BoxFuture<'_, Result<Vec<KeyedRow>, Self::Error>>;

    /// Usage by end user.
    fn end_users(&self, query: EndUserQuery) -> BoxFuture<'_, Result<EndUserUsage, Self::Error>>;
}

impl UsageBooks for Ledger {
    type Error = ApiError;

    fn usage(&self, query: UsageQuery) -> BoxFuture<'_, Result<Vec<KeyedRow>, ApiError>> {
        Box::pin(async { self.usage_of(query).await.map_err(store_failed) })
    }

    fn end_users(&self, query: EndUserQuery) -> BoxFuture<'_, Result<EndUserUsage, ApiError>> {
        Box::pin(async { Ledger::end_users(self, query).await.map_err(store_failed) })
    }
}

/// The usage of an account, or of one of its keys, as a query asks for it, with amounts as `M`.
///
/// # Errors
/// 400 for a query that cannot be, 503 when the ledger cannot say.
pub(crate) async fn summary<M: From<CreditSum> + Serialize, B: UsageBooks>(
    books: &B,
    account: &AccountId,
    of_key: Option<&KeyId>,
    query: &[(String, String)],
    today: Day,
) -> Result<String, B::Error> {
    let Asked { days, groups } = asked(query, today)?;
    // Two reads are of the same days, also where midnight comes between them.
    let read = match groups {
        Some(GroupBy::Rows(Column::Key) | GroupBy::EndUser) => days.fixed(today),
        Some(GroupBy::Rows(Column::Model | Column::Day)) | None => days,
    };
    let ask = async |by_key: bool| {
        let query = UsageQuery {
            account: account.clone(),
            key: of_key.cloned(),
            days: read,
            by_key,
        };
        books.usage(query).await
    };
    // The totals last: they have what is used meanwhile, so that no groups come to more.
    let read_apart = match groups {
        Some(GroupBy::Rows(Column::Key)) => Some(grouped(Column::Key, &ask(true).await?)),
        Some(GroupBy::EndUser) => {
            let query = EndUserQuery {
                account: account.clone(),
                key: of_key.cloned(),
                days: read,
            };
            Some(by_end_user(books.end_users(query).await?)?)
        }
        Some(GroupBy::Rows(Column::Model | Column::Day)) | None => None,
    };
    let rows = ask(false).await?;
    let groups = match groups {
        Some(GroupBy::Rows(by @ (Column::Model | Column::Day))) => Some(grouped(by, &rows)),
        Some(GroupBy::Rows(Column::Key) | GroupBy::EndUser) | None => read_apart,
    };
    let (from, to) = match days {
        Days::Period(_) => (None, None),
        Days::Span { from, to } => (Some(from), Some(to)),
    };
    let total_cost: CreditSum = rows.iter().map(|keyed| keyed.row.cost).sum();
    let by_model = by_model(rows);
    Ok(to_json(&UsageSummary {
        period: match days {
            Days::Period(period) => Some(period.name()),
            Days::Span { .. } => None,
        },
        from: from.map(|day| day.to_string()),
        to: to.map(|day| day.to_string()),
        total_requests: by_model.iter().fold(0, |sum, row| sum.saturating_add(row.requests)),
        total_tokens: by_model.iter().fold(0, |sum, row| sum.saturating_add(row.tokens)),
        total_cost: M::from(total_cost),
        by_model: by_model.into_iter().map(UsageByModel::told).collect(),
        groups: groups.map(|groups| groups.into_iter().map(Group::told).collect()),
    }))
}

fn asked(query: &[(String, String)], today: Day) -> Result<Asked, ApiError> {
    let (from, to) = (day(query, "from")?, day(query, "to")?);
    let period = parameter(query, "period")?;
    let by = parameter(query, "group_by")?.map(|text| {
        let known = GroupBy::ALL.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, by)| by).ok_or_else(|| {
            let names = GroupBy::ALL.map(|(name, _)| name).join(", ");
            ApiError::BadRequest(format!("group_by must be one of {names}."))
        })
    });
    let by = by.transpose()?;
    let days = match (from, to, period) {
        (None, None, None) => Period::Today.into(),
        (None, None, Some(text)) => Days::Period(Period::parse(text).ok_or_else(|| {
            let allowed: Vec<&str> = Period::ALL.iter().map(|period| period.name()).collect();
            ApiError::BadRequest(format!("period must be one of {}.", allowed.join(", ")))
        })?),
        (_, _, Some(_)) => {
            let message = "period cannot stand beside from or to: they name the days themselves.";
            return Err(ApiError::BadRequest(message.to_owned()));
        }
        (from, to, None) => Days::between(from, to, today).ok_or_else(|| {
            let message = "from must not be after to, which is today when it is not given.";
            ApiError::BadRequest(message.to_owned())
        })?,
    };
    let has_span = from.is_some() || to.is_some();
    let groups = by.or(has_span.then_some(GroupBy::Rows(Column::Model)));
    Ok(Asked { days, groups })
}

fn day(query: &[(String, String)], name: &str) -> Result<Option<Day>, ApiError> {
    let read = |text| {
        Day::parse(text).ok_or_else(|| ApiError::BadRequest(format!("{name} must be a day of UTC such as 2026-11-20.")))
    };
    parameter(query, name)?.map(read).transpose()
}

fn by_model(rows: Vec<KeyedRow>) -> Vec<UsageByModel<CreditSum>> {
    let mut by_model: BTreeMap<String, UsageByModel<CreditSum>> = BTreeMap::new();
    for KeyedRow { row, .. } in rows {
        let sum = by_model.entry(row.model.clone()).or_default();
        sum.model = row.model;
        sum.requests = sum.requests.saturating_add(row.requests);
        sum.tokens = sum
            .tokens
            .saturating_add(row.prompt_tokens)
            .saturating_add(row.completion_tokens);
        sum.cost.add(row.cost);
    }
    by_model.into_values().collect()
}

/// In the order of their names.
fn grouped(by: Column, rows: &[KeyedRow]) -> Vec<Group<CreditSum>> {
    let mut groups: BTreeMap<String, Group<CreditSum>> = BTreeMap::new();
    for keyed in rows {
        let (name, row) = (by.name(keyed), &keyed.row);
        let group = groups.entry(name.clone()).or_insert_with(|| by.group(name));
        group.requests = group.requests.saturating_add(row.requests);
        group.prompt_tokens = group.prompt_tokens.saturating_add(row.prompt_tokens);
        group.completion_tokens = group.completion_tokens.saturating_add(row.completion_tokens);
        group.tokens = group.prompt_tokens.saturating_add(group.completion_tokens);
        group.cost.add(row.cost);
    }
    groups.into_values().collect()
}

/// # Errors
/// 400 where there is more than is summed up.
fn by_end_user(usage: EndUserUsage) -> Result<Vec<Group<CreditSum>>, ApiError> {
    let rows = match usage {
        EndUserUsage::Sums(rows) => rows,
        EndUserUsage::Beyond(bound) => {
            let reason = bound.to_string();
            let message = format!("group_by=end_user: {reason} (from, to), or list the calls (GET /llm/generations).");
            return Err(ApiError::BadRequest(message));
        }
    };
    let group = |row: EndUserRow| Group {
        end_user: Some(row.end_user),
        requests: row.requests,
        tokens: row.prompt_tokens.saturating_add(row.completion_tokens),
        prompt_tokens: row.prompt_tokens,
        completion_tokens: row.completion_tokens,
        cost: row.cost,
        ..Group::default()
    };
    Ok(rows.into_iter().map(group).collect())
}

#[cfg(test)]
mod tests;
