//! What a command reads of all accounts: usage, audit, repair, recovery.

use super::super::account::{account_keys, keys_of_account, usage_of_key};
use super::super::audit;
use super::super::link::Link;
use super::super::reply;
use super::super::script;
use super::super::shared::Shared;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding, AuditReport, RecoverReport};
use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::ledger::{UsageRow, clamped};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::money::Credits;

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
        for account in self.read_names(link).await? {
            self.settled(&account).await?;
            let [name, order] = account_keys(&account);
            let now = self.now_text();
            let books = self.run_script(link, &script::BOOKS, &[&name, &order], &[&now]).await?;
            if let Some(tracked) = audit::audit(&account, &books, &mut report.findings)? {
                for key in tracked {
                    let of_key = usage_of_key(&account, &key.clone().into());
                    let keys: [&str; 2] = [&name, &of_key];
                    let books = self.run_script(link, &script::KEY_BOOKS, &keys, &[&key]).await?;
                    audit::audit_key(&account, &books, &mut report.findings)?;
                }
                report.accounts += 1;
                self.witness(link, &account, report.at.day(), &mut report.findings)
                    .await?;
            }
        }
        Ok(report)
    }

    /// Makes what each account used in the month what its usage says, and frees what counts under limits without an open hold.
    pub(super) async fn repair(&self, link: &Link) -> Result<AdminReply, AdminError> {
        let mut findings = Vec::new();
        for account in self.read_names(link).await? {
            self.settled(&account).await?;
            let [name, _] = account_keys(&account);
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
                continue;
            };
            let (found, expected) = (reply::amount(found)?, reply::amount(expected)?);
            if found != expected {
                let rule = audit::MONTH_RULE.to_owned();
                findings.push(AuditFinding {
                    account,
                    rule,
                    expected,
                    found,
                });
            }
        }
        self.forget_found(link).await;
        Ok(AdminReply::Repaired { findings })
    }

    /// Frees the holds of nodes that never came back. (A reserve does so for its own account.)
    pub(super) async fn recover(&self, link: &Link) -> Result<RecoverReport, AdminError> {
        let mut report = RecoverReport::default();
        for account in self.read_names(link).await? {
            let [name, order] = account_keys(&account);
            let now = self.now_text();
            let freed = self
                .run_script(link, &script::EXPIRE, &[&name, &order], &[&now])
                .await?;
            let freed = u64::try_from(reply::integer(&freed)?).map_err(|_| reply::corrupt("a negative count"))?;
            report.released = report.released.saturating_add(freed);
        }
        Ok(report)
    }
}
