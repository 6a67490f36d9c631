//! What an operator changes: each write is on the disk before it is told.

use std::collections::HashMap;

use rusqlite::{Transaction, params};

use super::super::{AccountRecord, KeyRecord, StoreError};
use super::{Database, corrupt, events, spending};
use crate::pure::ids::{KeyDigest, Tier};
use crate::pure::money::Credits;
use crate::pure::spend::SpendPeriod;
use crate::pure::time::Timestamp;

impl Database {
    /// Adds an account.
    pub(in crate::ledger) fn insert_account(&mut self, record: &AccountRecord) -> Result<(), StoreError> {
        let terms = serde_json::to_string(&record.terms).map_err(corrupt)?;
        self.durably(|t| {
            t.execute(
                "INSERT INTO accounts (id, tier, quota, balance, month, month_used, created, terms) \
                 VALUES (?1, ?2, ?3, 0, 0, 0, ?4, ?5)",
                params![
                    record.id.as_str(),
                    record.tier.name(),
                    record.monthly_quota.map(Credits::pico),
                    record.created.0,
                    terms
                ],
            )?;
            Ok(())
        })
    }

    /// Changes an account's tier, quota and terms.
    pub(in crate::ledger) fn update_account(&mut self, record: &AccountRecord) -> Result<(), StoreError> {
        let terms = serde_json::to_string(&record.terms).map_err(corrupt)?;
        self.durably(|t| {
            t.execute(
                "UPDATE accounts SET tier = ?2, quota = ?3, terms = ?4 WHERE id = ?1",
                params![
                    record.id.as_str(),
                    record.tier.name(),
                    record.monthly_quota.map(Credits::pico),
                    terms
                ],
            )?;
            events::forget_another_low(t, &record.id, record.terms.low_balance)
        })
    }

    /// Adds a key.
    pub(in crate::ledger) fn insert_key(&mut self, digest: &KeyDigest, key: &KeyRecord) -> Result<(), StoreError> {
        self.durably(|t| insert_key(t, digest, key))
    }

    /// Adds a key that comes in place of another one, and says until when that one holds on. Where both count as one, a start knows it even if
    /// nothing was spent, and neither has a limit any more.
    pub(in crate::ledger) fn rotate_key(
        &mut self,
        (digest, key): (&KeyDigest, &KeyRecord),
        (old_digest, old): (&KeyDigest, &KeyRecord),
    ) -> Result<(), StoreError> {
        let settings = serde_json::to_string(&old.settings).map_err(corrupt)?;
        self.durably(|t| {
            insert_key(t, digest, key)?;
            if let Some(root) = &key.settings.counts_as {
                let nothing = HashMap::from([((root.clone(), None, SpendPeriod::Life), Credits::ZERO)]);
                spending::write(t, &key.account, &nothing)?;
            }
            t.execute(
                "UPDATE keys SET expires = ?2, revoked = ?3, settings = ?4 WHERE digest = ?1",
                params![
                    old_digest.to_hex(),
                    old.expires.map(|at| at.0),
                    old.revoked.map(|at| at.0),
                    settings
                ],
            )?;
            Ok(())
        })
    }

    /// Whether the file has a key.
    pub(in crate::ledger) fn has_key(&self, digest: &KeyDigest) -> Result<bool, StoreError> {
        let sql = "SELECT count(*) FROM keys WHERE digest = ?1";
        let count: i64 = self.connection.query_row(sql, [digest.to_hex()], |row| row.get(0))?;
        Ok(count > 0)
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

fn insert_key(t: &Transaction<'_>, digest: &KeyDigest, key: &KeyRecord) -> Result<(), StoreError> {
    let limit = |value: Option<u64>| value.map(i64::try_from).transpose().map_err(corrupt);
    let domains = serde_json::to_string(&key.domains).map_err(corrupt)?;
    let settings = serde_json::to_string(&key.settings).map_err(corrupt)?;
    let (rpm, tpm, concurrency) = (
        limit(key.limits.rpm)?,
        limit(key.limits.tpm)?,
        limit(key.limits.concurrency)?,
    );
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
}
