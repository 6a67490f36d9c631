//! What a command reads of all accounts: usage, audit, repair, recovery.

use redis::Value;

use super::super::account::{account_keys, usage_of_key};
use super::super::audit;
use super::super::link::Link;
use super::super::reply;
use super::super::script;
use super::super::shared::Shared;
use crate::clock::Clock;
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminReply, AuditFinding, AuditReport, RecoverReport};
use crate::pure::ids::{AccountId, KeyId};
use crate::pure::money::Credits;
use crate::pure::time::{Period, Timestamp};

impl Shared {
    pub(super) async fn usage(
        &self,
        link: &Link,
        account: &AccountId,
        key: Option<&KeyId>,
        period: Period,
    ) -> Result<AdminReply, AdminError> {
        let known = self.cache.account(account);
        let Ok(_turn) = tokio::time::timeout(self.options.timeout, known.reporting.lock()).await else {
            return Err(AdminError::Store(
                "usage is asked for faster than it can be read".to_owned(),
            ));
        };
        self.settled(account).await?;
        let before = match period {
            Period::Today => "0",
            Period::Week => "6",
            Period::Month => "29",
            Period::All => "all",
        };
        let [name, _] = account_keys(account);
        let now = self.now_text();
        let of_key = key.map(|key| usage_of_key(account, key));
        let keys: Vec<&str> = [Some(&name), of_key.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let rows = self.run_script(link, &script::ROWS, &keys, &[&now, before]).await?;
        let rows = reply::rows(&rows)?.ok_or_else(|| AdminError::NoAccount(account.clone()))?;
        Ok(AdminReply::Usage { rows })
    }

    pub(super) async fn audit(&self, link: &Link) -> Result<AuditReport, AdminError> {
        let mut report = AuditReport {
            at: self.time(link).await?,
            ..AuditReport::default()
        };
        for account in self.account_names(link).await? {
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
        for account in self.account_names(link).await? {
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
                    found: Credits::from_pico(freed),
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
        Ok(AdminReply::Repaired { findings })
    }

    /// Frees the holds of nodes that never came back. (A reserve does so for its own account.)
    pub(super) async fn recover(&self, link: &Link) -> Result<RecoverReport, AdminError> {
        let mut report = RecoverReport::default();
        for account in self.account_names(link).await? {
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

    /// Redis' time.
    pub(super) async fn time(&self, link: &Link) -> Result<Timestamp, StoreError> {
        if let manual @ Clock::Manual(_) = &self.options.clock {
            return Ok(manual.now());
        }
        let time = self.command(link, redis::cmd("TIME")).await?;
        let [seconds, micros]: &[Value] = reply::list(&time)? else {
            return Err(reply::corrupt("a time has two parts"));
        };
        let millis = reply::integer(seconds)?.saturating_mul(1000);
        Ok(Timestamp(millis.saturating_add(reply::integer(micros)? / 1000)))
    }
}
