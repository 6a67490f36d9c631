//! What a command reads of all accounts: usage, audit, repair, recovery.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::account::{Account, account_keys, keys_of_account, usage_of_key};
use super::super::audit;
use super::super::link::Link;
use super::super::reply;
use super::super::script;
use super::super::shared::Shared;
use crate::clock::monotonic;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding, AuditReport, RecoverReport};
use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::ledger::{StoreError, UsageRow, clamped};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::money::Credits;

/// Which servers do not answer, by the number of their shard, and how many accounts in a row each did not answer for.
#[derive(Debug, Default)]
struct Silent(BTreeMap<usize, u32>);

impl Silent {
    /// An account's turn failed so and took so long, where an answer may take `at_most`. What fails at once holds up no others, and what could not
    /// be read was answered.
    fn failed(&mut self, shard: usize, error: &StoreError, (took, at_most): (Duration, Duration)) {
        if took >= at_most / 2 && !matches!(error, StoreError::Corrupt(_)) {
            let count = self.0.entry(shard).or_default();
            *count = count.saturating_add(1);
        }
    }

    fn heard(&mut self, shard: usize) {
        self.0.remove(&shard);
    }

    /// An answer that does not come takes its time: with a hundred thousand accounts there would be no end.
    fn is_given_up(&self, shard: usize) -> bool {
        self.0.get(&shard).is_some_and(|count| *count >= SILENT_MAX)
    }
}

/// A server that has not answered for so many accounts in a row is not asked for others.
const SILENT_MAX: u32 = 10;

impl Shared {
    /// The usage that is asked for, oldest first.
    pub(super) async fn usage(&self, link: &Link, query: &UsageQuery) -> Result<Vec<KeyedRow>, AdminError> {
        let known = self.existing(link, &query.account).await?;
        let Ok(_turn) = tokio::time::timeout(self.options.timeout, known.reporting.lock()).await else {
            return Err(AdminError::Busy(
                "usage is asked for faster than it can be read".to_owned(),
            ));
        };
        self.settled(&query.account).await?;
        if !query.by_key {
            let rows = self.rows_of(link, query, query.key.as_ref()).await?;
            return Ok(rows.into_iter().map(|row| KeyedRow { key: None, row }).collect());
        }
        let keys = match &query.key {
            Some(key) => vec![key.clone()],
            None => self.key_ids(link, &query.account).await?,
        };
        if keys.is_empty() {
            self.view(link, &query.account).await?; // There may be no such account.
        }
        let mut all = Vec::new();
        for key in keys {
            let rows = self.rows_of(link, query, Some(&key)).await?;
            all.extend(rows.into_iter().map(|row| {
                let key = Some(key.clone());
                KeyedRow { key, row }
            }));
        }
        all.sort_by(|a, b| (a.row.day, &a.row.model, &a.key).cmp(&(b.row.day, &b.row.model, &b.key)));
        Ok(all)
    }

    async fn rows_of(&self, link: &Link, query: &UsageQuery, key: Option<&KeyId>) -> Result<Vec<UsageRow>, AdminError> {
        let account = &query.account;
        let rows = self.usage_rows(link, (account, key), query.days.into()).await?;
        rows.ok_or_else(|| AdminError::NoAccount(account.clone()))
    }

    /// The account's keys, revoked ones too.
    async fn key_ids(&self, link: &Link, account: &AccountId) -> Result<Vec<KeyId>, AdminError> {
        let mut members = redis::cmd("SMEMBERS");
        members.arg(keys_of_account(account));
        let members = self.command(link, members).await?;
        let id = |hex| {
            let digest = KeyDigest::from_hex(reply::text(hex)?).ok_or_else(|| reply::corrupt("a key's digest"))?;
            Ok(KeyId::of(&digest))
        };
        reply::list(&members)?.iter().map(id).collect()
    }

    pub(in crate::ledger::redis) async fn audit(&self, link: &Link) -> Result<AuditReport, AdminError> {
        let mut report = AuditReport {
            at: self.time(link).await?,
            ..AuditReport::default()
        };
        let mut silent = Silent::default();
        for account in self.read_names(link).await? {
            let shard = self.shards.of(&Account::new(account.clone())).number;
            if silent.is_given_up(shard) {
                report.pass_over(&account, "its server has not answered for others");
                continue;
            }
            let began = monotonic();
            match self.audit_account(link, &account, &mut report).await {
                Ok(()) => silent.heard(shard),
                Err(error) => {
                    silent.failed(shard, &error, (began.elapsed(), self.options.timeout));
                    report.pass_over(&account, &error.to_string());
                }
            }
        }
        Ok(report)
    }

    /// Checks an account, if it was made.
    async fn audit_account(
        &self,
        link: &Link,
        account: &AccountId,
        report: &mut AuditReport,
    ) -> Result<(), StoreError> {
        self.settled(account).await?;
        let [name, order] = account_keys(account);
        let now = self.now_text();
        let books = self.run_script(link, &script::BOOKS, &[&name, &order], &[&now]).await?;
        let Some(tracked) = audit::audit(account, &books, &mut report.findings)? else {
            return Ok(());
        };
        for key in tracked {
            let of_key = usage_of_key(account, &key.clone().into());
            let keys: [&str; 2] = [&name, &of_key];
            let books = self.run_script(link, &script::KEY_BOOKS, &keys, &[&key]).await?;
            audit::audit_key(account, &books, &mut report.findings)?;
        }
        self.witness(link, account, report.at.day(), &mut report.findings)
            .await?;
        report.accounts += 1;
        Ok(())
    }

    /// Makes what each account used in the month what its usage says, and frees what counts under limits without an open hold. One that cannot
    /// be repaired keeps no other from it.
    pub(super) async fn repair(&self, link: &Link) -> Result<AdminReply, AdminError> {
        let (mut findings, mut silent) = (Vec::new(), Silent::default());
        let (mut failed, mut first) = (0u64, None);
        for account in self.read_names(link).await? {
            let shard = self.shards.of(&Account::new(account.clone())).number;
            if silent.is_given_up(shard) {
                failed = failed.saturating_add(1);
                continue;
            }
            let began = monotonic();
            match self.repair_account(link, &account, &mut findings).await {
                Ok(()) => silent.heard(shard),
                Err(error) => {
                    silent.failed(shard, &error, (began.elapsed(), self.options.timeout));
                    failed = failed.saturating_add(1);
                    first.get_or_insert_with(|| format!("{account}: {error}"));
                }
            }
        }
        self.forget_found(link).await;
        let Some(first) = first else {
            return Ok(AdminReply::Repaired { findings });
        };
        for finding in &findings {
            let (account, rule) = (&finding.account, &finding.rule);
            log::warn!(
                "mended: {account}: {rule}: {} instead of {}",
                finding.expected,
                finding.found
            );
        }
        let (mended, others) = (findings.len(), failed.saturating_sub(1));
        Err(AdminError::Store(format!(
            "what could be repaired is, {mended} counters in all, and for {first} (and {others} more accounts) run it again"
        )))
    }

    async fn repair_account(
        &self,
        link: &Link,
        account: &AccountId,
        findings: &mut Vec<AuditFinding>,
    ) -> Result<(), StoreError> {
        self.settled(account).await?;
        let [name, _] = account_keys(account);
        let mended = self
            .run_script(link, &script::REPAIR, &[&name], &[&self.now_text()])
            .await?;
        let freed = self.run_script(link, &script::FREE_PARTS, &[&name], &[]).await?;
        let freed = reply::integer(&freed)?;
        if freed > 0 {
            findings.push(AuditFinding {
                account: account.clone(),
                rule: audit::GONE_RULE.to_owned(),
                expected: Credits::ZERO,
                found: clamped(audit::as_credits(freed)),
            });
        }
        let [found, expected] = reply::list(&mended)? else {
            return Ok(());
        };
        let (found, expected) = (reply::amount(found)?, reply::amount(expected)?);
        if found != expected {
            findings.push(AuditFinding {
                account: account.clone(),
                rule: audit::MONTH_RULE.to_owned(),
                expected,
                found,
            });
        }
        Ok(())
    }

    /// Frees the holds of nodes that never came back. (A reserve does so for its own account.) Accounts of which that fails are passed over, and
    /// told as an audit tells them.
    pub(super) async fn recover(&self, link: &Link) -> Result<RecoverReport, AdminError> {
        let (mut released, mut silent, mut passed_over) = (0u64, Silent::default(), AuditReport::default());
        for account in self.read_names(link).await? {
            let shard = self.shards.of(&Account::new(account.clone())).number;
            if silent.is_given_up(shard) {
                passed_over.pass_over(&account, "its server has not answered for others");
                continue;
            }
            let began = monotonic();
            match self.free_expired(link, &account).await {
                Ok(freed) => {
                    silent.heard(shard);
                    released = released.saturating_add(freed);
                }
                Err(error) => {
                    silent.failed(shard, &error, (began.elapsed(), self.options.timeout));
                    passed_over.pass_over(&account, &error.to_string());
                }
            }
        }
        Ok(RecoverReport {
            released,
            refused: not_freed(&passed_over),
            ..RecoverReport::default()
        })
    }

    /// Frees an account's holds whose time is over, and says how many.
    async fn free_expired(&self, link: &Link, account: &AccountId) -> Result<u64, StoreError> {
        let [name, order] = account_keys(account);
        let now = self.now_text();
        let freed = self
            .run_script(link, &script::EXPIRE, &[&name, &order], &[&now])
            .await?;
        u64::try_from(reply::integer(&freed)?).map_err(|_| reply::corrupt("a negative count"))
    }
}

/// Accounts whose expired holds were not given back: a line each of those that are named, and how many there are beside them.
fn not_freed(passed_over: &AuditReport) -> Vec<String> {
    let named = passed_over.why_unchecked.iter();
    let mut lines: Vec<String> = named
        .map(|why| format!("expired holds were not given back: {why}"))
        .collect();
    let others = passed_over.passed_over.len().saturating_sub(lines.len());
    if others > 0 {
        lines.push(format!("expired holds were not given back: {others} more accounts"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_given_up_that_does_not_answer_for_one_account_after_another() {
        let away = StoreError::Unavailable("it does not answer".to_owned());
        let unreadable = StoreError::Corrupt("a field".to_owned());
        let at_most = Duration::from_millis(500);
        let (late, at_once) = ((at_most, at_most), (Duration::from_millis(3), at_most));
        let mut silent = Silent::default();
        let all_fail = |silent: &mut Silent| {
            silent.failed(1, &away, late);
            silent.failed(2, &away, at_once);
            silent.failed(3, &unreadable, late);
        };
        for _ in 1..SILENT_MAX {
            all_fail(&mut silent);
        }
        assert!(!silent.is_given_up(1));
        silent.heard(1);
        for _ in 0..SILENT_MAX {
            assert!(!silent.is_given_up(1));
            all_fail(&mut silent);
        }
        assert_eq!(
            [0, 1, 2, 3].map(|shard| silent.is_given_up(shard)),
            [false, true, false, false]
        );
    }
}
