//! Receipts in Redis: a stream an account, of which each settlement writes its entry. The oldest are dropped above a maximum.
//!
//! Other gateways may keep none, or other numbers of them, so receipts that are not there are nothing to find for an audit; those that are
//! there have to be what the usage rows say.

mod call;
mod end_users;

use std::collections::BTreeMap;

use redis::Value;

use super::account::{Account, receipts_of_account};
use super::link::Link;
use super::queue::QueuedDebit;
use super::reply::{self, corrupt};
use super::shared::Shared;
use super::usage_rows::RowDays;
use crate::ledger::admin::{AdminError, AuditFinding, LOOKED_THROUGH_MAX, ReceiptPage, ReceiptQuery};
use crate::ledger::{StoreError, UsageRow, clamped};
use crate::pure::ids::AccountId;
use crate::pure::receipt::{Billed, Receipt};
use crate::pure::time::{Day, Timestamp};

/// What a settlement's entry says, for its script. None where no receipts are kept.
pub(super) fn entry_of(shared: &Shared, queued: &QueuedDebit) -> Option<(String, u32)> {
    let most = shared.options.receipts_per_account_max?;
    match billed(queued).to_compact() {
        Ok(text) => Some((text, most.get())),
        Err(error) => {
            log::error!("the receipt of request {} cannot be written: {error}", queued.hold);
            None
        }
    }
}

/// Has the receipt of an acknowledged settlement written to the files, where there are some: `at` the moment that Redis told.
pub(super) fn write_out(shared: &Shared, queued: &mut QueuedDebit, at: Option<Timestamp>) {
    if let Some(files) = shared.receipt_files.get()
        && !std::mem::replace(&mut queued.is_written_out, true)
    {
        let resolved = at.unwrap_or_else(|| shared.redis_now());
        let billed = billed(queued);
        files.push(Receipt { resolved, billed });
    }
}

fn billed(queued: &QueuedDebit) -> Billed {
    let debit = &queued.debit;
    Billed::new(
        queued.hold,
        queued.number,
        (queued.account.id(), &debit.key),
        &debit.model,
        (debit.usage, debit.cost, debit.held),
        debit.details.as_deref(),
    )
}

impl Shared {
    /// The receipts that are asked for; those of every settlement made here before the call are among them.
    pub(super) async fn receipts(&self, link: &Link, query: &ReceiptQuery) -> Result<ReceiptPage, AdminError> {
        let account = self.existing(link, &query.account).await?;
        self.barrier(&account).await?;
        let page = match query.call() {
            Some(call) => self.call(link, &account, &call).await?,
            None => {
                let _turn = self.turn(&account).await?;
                self.page(link, query).await?
            }
        };
        if page.receipts.is_empty() && page.running.is_none() {
            self.view(link, &query.account).await?; // There may be no such account.
        }
        Ok(page)
    }

    /// One reader of an account at a time asks Redis for so much.
    async fn turn<'a>(&self, account: &'a Account) -> Result<tokio::sync::MutexGuard<'a, ()>, StoreError> {
        let turn = tokio::time::timeout(self.options.timeout, account.reporting.lock()).await;
        turn.map_err(|_| StoreError::Busy("receipts are asked for faster than they can be read".to_owned()))
    }

    async fn page(&self, link: &Link, query: &ReceiptQuery) -> Result<ReceiptPage, StoreError> {
        let limit = usize::try_from(query.limit()).unwrap_or(usize::MAX);
        let (mut page, mut before) = (ReceiptPage::default(), query.before.clone());
        if before.as_deref().is_some_and(|place| !is_place(place)) {
            return Ok(page);
        }
        let mut looked_through = 0;
        loop {
            let entries = self.entries(link, &query.account, before.as_deref()).await?;
            if entries.is_empty() {
                return Ok(page);
            }
            for (place, receipt) in entries {
                let day = day_of(&place);
                before = Some(place);
                looked_through += 1;
                match receipt {
                    Ok(receipt) if query.is_met_by(&receipt) => page.receipts.push(receipt),
                    Ok(_) => {}
                    Err(error) => page.tell_unreadable(&query.account, day, &error),
                }
                if page.receipts.len() == limit || looked_through == LOOKED_THROUGH_MAX {
                    page.next = before;
                    return Ok(page);
                }
            }
        }
    }

    /// Some receipts, newest first, with their places in the stream.
    async fn entries(&self, link: &Link, account: &AccountId, before: Option<&str>) -> Result<Vec<Entry>, StoreError> {
        let end = before.map_or_else(|| "+".to_owned(), |place| format!("({place}"));
        self.entries_within(link, account, (&end, "-")).await
    }

    /// The same back from one place to another.
    async fn entries_within(
        &self,
        link: &Link,
        account: &AccountId,
        (end, start): (&str, &str),
    ) -> Result<Vec<Entry>, StoreError> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(receipts_of_account(account)).arg(end).arg(start);
        command.arg("COUNT").arg(AT_ONCE);
        let entries = self.command(link, command).await?;
        let entry = |value| entry(account, value);
        reply::list(&entries)?.iter().map(entry).collect()
    }

    /// Holds the receipts of today and yesterday against the usage rows. Rows that change meanwhile are left to the next audit.
    pub(super) async fn witness(
        &self,
        link: &Link,
        account: &AccountId,
        today: Day,
        findings: &mut Vec<AuditFinding>,
    ) -> Result<(), StoreError> {
        let mut before = None;
        let mut sums: BTreeMap<(Day, String), [i128; 4]> = BTreeMap::new();
        let mut rows = Vec::new();
        'all: loop {
            let entries = self.entries(link, account, before.as_deref()).await?;
            if before.is_none() && !entries.is_empty() {
                // After the newest receipts: each of them is counted in these rows.
                rows = self.usage_since_yesterday(link, account).await?;
            }
            let Some((last, _)) = entries.last() else { break };
            before = Some(last.clone());
            for (place, receipt) in entries {
                let Receipt { resolved, billed } = match receipt {
                    Ok(receipt) => receipt,
                    Err(error) => {
                        log::error!("the receipt {place} of {account}: {error}");
                        findings.push(AuditFinding {
                            account: account.clone(),
                            rule: format!("the receipt {place} can be read"),
                            expected: clamped(1_000_000_000_000),
                            found: clamped(0),
                        });
                        continue;
                    }
                };
                if resolved.day().0 < today.0.saturating_sub(1) {
                    break 'all;
                }
                let sum = sums.entry((resolved.day(), billed.model.to_string())).or_default();
                let figures = [
                    1,
                    billed.prompt_tokens.into(),
                    billed.completion_tokens.into(),
                    billed.cost.pico().into(),
                ];
                sum.iter_mut()
                    .zip(figures)
                    .for_each(|(sum, figure): (&mut i128, i128)| *sum += figure);
            }
        }
        if sums.is_empty() {
            return Ok(());
        }
        let after = self.usage_since_yesterday(link, account).await?;
        for row in rows.iter().filter(|row| after.contains(row)) {
            let Some(found) = sums.get(&(row.day, row.model.clone())) else {
                continue;
            };
            let expected = [
                row.requests.into(),
                row.prompt_tokens.into(),
                row.completion_tokens.into(),
                row.cost.pico().into(),
            ];
            compare(account, row, expected, *found, findings);
        }
        Ok(())
    }

    async fn usage_since_yesterday(&self, link: &Link, account: &AccountId) -> Result<Vec<UsageRow>, StoreError> {
        let rows = self.usage_rows(link, (account, None), RowDays::SINCE_YESTERDAY).await?;
        Ok(rows.unwrap_or_default())
    }
}

fn compare(
    account: &AccountId,
    row: &UsageRow,
    expected: [i128; 4],
    found: [i128; 4],
    findings: &mut Vec<AuditFinding>,
) {
    let ([calls, ..], [receipts, ..]) = (expected, found);
    if receipts < calls {
        return;
    }
    for (what, (expected, found)) in ["calls", "prompt tokens", "completion tokens", "cost"]
        .iter()
        .zip(expected.into_iter().zip(found))
    {
        if expected != found {
            // A finding's figures are credits: a count is shown as so many.
            let unit = if *what == "cost" { 1 } else { 1_000_000_000_000 };
            findings.push(AuditFinding {
                account: account.clone(),
                rule: format!("receipts = usage: {what} of {} on {}", row.model, row.day),
                expected: clamped(expected.saturating_mul(unit)),
                found: clamped(found.saturating_mul(unit)),
            });
        }
    }
}

/// A place in a stream, and the receipt there, where it can be read.
type Entry = (String, Result<Receipt, StoreError>);

fn entry(account: &AccountId, value: &Value) -> Result<Entry, StoreError> {
    let [place, fields] = reply::list(value)? else {
        return Err(corrupt("an entry of receipts has two parts"));
    };
    Ok((reply::text(place)?.to_owned(), receipt(account, fields)))
}

fn receipt(account: &AccountId, fields: &Value) -> Result<Receipt, StoreError> {
    let [_, resolved, _, text] = reply::list(fields)? else {
        return Err(corrupt("a receipt has other fields than it should"));
    };
    let billed = Billed::of_compact(account, reply::text(text)?)
        .map_err(|error| corrupt(&format!("a receipt cannot be read: {error}")))?;
    let resolved = Timestamp(reply::integer(resolved)?);
    Ok(Receipt { resolved, billed })
}

/// Whether a text is a place in a stream.
fn is_place(text: &str) -> bool {
    let number = |part: &str| part.parse::<u64>().is_ok();
    text.split_once('-')
        .is_some_and(|(time, count)| number(time) && number(count))
}

/// The day on which Redis took the entry at a place.
fn day_of(place: &str) -> Option<Day> {
    let (millis, _) = place.split_once('-')?;
    millis.parse::<i64>().ok().map(|millis| Timestamp(millis).day())
}

/// Entries that are read at once: some hundred kilobytes.
const AT_ONCE: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::money::Credits;

    /// Calls, prompt tokens, completion tokens, and the cost in 10^-12 credit.
    const USAGE: [i128; 4] = [2, 30, 40, 5_000];

    fn found(receipts: [i128; 4]) -> Vec<(String, Credits, Credits)> {
        let row = UsageRow {
            day: Day(20_777),
            model: "a/m".to_owned(),
            requests: 2,
            prompt_tokens: 30,
            completion_tokens: 40,
            cost: Credits::from_pico(5_000),
        };
        let mut findings = Vec::new();
        compare(&"acme".parse().unwrap(), &row, USAGE, receipts, &mut findings);
        let told = findings.into_iter();
        told.map(|finding| (finding.rule, finding.expected, finding.found))
            .collect()
    }

    #[test]
    fn receipts_that_are_all_there_are_what_the_usage_says() {
        assert_eq!(found(USAGE), []);
        // Another gateway keeps none, or fewer.
        assert_eq!(found([1, 7, 7, 7]), []);
        let day = Day(20_777);
        let of = |what: &str| format!("receipts = usage: {what} of a/m on {day}");
        let whole = |text: &str| text.parse::<Credits>().unwrap();
        assert_eq!(
            found([2, 31, 40, 5_001]),
            [
                (of("prompt tokens"), whole("30"), whole("31")),
                (of("cost"), Credits::from_pico(5_000), Credits::from_pico(5_001)),
            ]
        );
        assert_eq!(
            found([3, 30, 41, 5_000]),
            [
                (of("calls"), whole("2"), whole("3")),
                (of("completion tokens"), whole("40"), whole("41")),
            ]
        );
    }

    #[test]
    fn a_place_is_two_numbers() {
        for (text, expected) in [
            ("1795132800000-0", true),
            ("5", false),
            ("5-", false),
            ("-5", false),
            ("5-x", false),
            ("x-5", false),
            ("", false),
        ] {
            assert_eq!(is_place(text), expected, "{text}");
        }
    }
}
