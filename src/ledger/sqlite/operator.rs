//! What an operator changes: each write is on the disk before it is told.

use rusqlite::{OptionalExtension, params};

use super::super::{AccountRecord, KeyRecord, StoreError};
use super::{Database, TopUp, corrupt};
use crate::pure::ids::{AccountId, KeyDigest, Tier};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

impl Database {
    /// Adds an account.
    pub(in crate::ledger) fn insert_account(&mut self, record: &AccountRecord) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "INSERT INTO accounts (id, tier, quota, balance, month, month_used, created) VALUES (?1, ?2, ?3, 0, 0, 0, ?4)",
                params![record.id.as_str(), record.tier.name(), record.monthly_quota.map(Credits::pico), record.created.0],
            )?;
            Ok(())
        })
    }

    /// Changes an account's tier and quota.
    pub(in crate::ledger) fn update_account(&mut self, record: &AccountRecord) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "UPDATE accounts SET tier = ?2, quota = ?3 WHERE id = ?1",
                params![
                    record.id.as_str(),
                    record.tier.name(),
                    record.monthly_quota.map(Credits::pico)
                ],
            )?;
            Ok(())
        })
    }

    /// Adds credit, once a reference.
    pub(in crate::ledger) fn top_up(
        &mut self,
        account: &AccountId,
        reference: &str,
        amount: Credits,
        at: Timestamp,
    ) -> Result<TopUp, StoreError> {
        self.durably(|t| {
            let before: Option<i64> = t
                .query_row(
                    "SELECT amount FROM topups WHERE account = ?1 AND reference = ?2",
                    params![account.as_str(), reference],
                    |row| row.get(0),
                )
                .optional()?;
            match before {
                Some(same) if same == amount.pico() => return Ok(TopUp::Already),
                Some(_) => return Ok(TopUp::Conflict),
                None => {}
            }
            let balance: i64 = t.query_row(
                "SELECT balance FROM accounts WHERE id = ?1",
                [account.as_str()],
                |row| row.get(0),
            )?;
            if balance.checked_add(amount.pico()).is_none() {
                return Ok(TopUp::OutOfRange);
            }
            t.execute(
                "INSERT INTO topups (account, reference, amount, at) VALUES (?1, ?2, ?3, ?4)",
                params![account.as_str(), reference, amount.pico(), at.0],
            )?;
            t.execute(
                "UPDATE accounts SET balance = balance + ?2 WHERE id = ?1",
                params![account.as_str(), amount.pico()],
            )?;
            Ok(TopUp::Added)
        })
    }

    /// Adds a key.
    pub(in crate::ledger) fn insert_key(&mut self, digest: &KeyDigest, key: &KeyRecord) -> Result<(), StoreError> {
        let limit = |value: Option<u64>| value.map(i64::try_from).transpose().map_err(corrupt);
        let domains = serde_json::to_string(&key.domains).map_err(corrupt)?;
        let settings = serde_json::to_string(&key.settings).map_err(corrupt)?;
        let (rpm, tpm, concurrency) = (
            limit(key.limits.rpm)?,
            limit(key.limits.tpm)?,
            limit(key.limits.concurrency)?,
        );
        self.durably(|t| {
            t.execute(
                "INSERT INTO keys (digest, account, tier, domains, expires, rpm, tpm, concurrency, created, settings)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    digest.to_hex(),
                    key.account.as_str(),
                    key.tier.map(Tier::name),
                    domains,
                    key.expires.map(|t| t.0),
                    rpm,
                    tpm,
                    concurrency,
                    key.created.0,
                    settings
                ],
            )?;
            Ok(())
        })
    }

    /// Revokes a key.
    pub(in crate::ledger) fn revoke_key(&mut self, digest: &KeyDigest, at: Timestamp) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "UPDATE keys SET revoked = coalesce(revoked, ?2) WHERE digest = ?1",
                params![digest.to_hex(), at.0],
            )?;
            Ok(())
        })
    }
}
