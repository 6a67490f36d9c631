//! The operator's commands on the embedded ledger: the file first, then memory, on the ledger's own thread.

mod reports;

#[cfg(test)]
pub(super) use self::reports::Queued;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::shared::{EmbeddedAccount, KeyEntry, MAINTENANCE};
use super::spending;
use super::writer::Committer;
use crate::ledger::admin::accounts::check_new_name;
use crate::ledger::admin::{AccountView, AdminError, AdminOp, AdminReply, KeyRef, RecoverReport};
use crate::ledger::key_settings::{check_domains, check_lifetime, check_limits};
use crate::ledger::rotation::{Rotation, taken};
use crate::ledger::sqlite::Database;
use crate::ledger::terms::{AccountTerms, TermsChange};
use crate::ledger::{AccountRecord, KeyRecord, StoreError};
use crate::pure::account::AccountState;
use crate::pure::ids::{AccountId, KeyDigest, KeyId, Tier};
use crate::pure::money::Credits;

impl Committer {
    pub(super) fn execute(&mut self, op: AdminOp) -> Result<AdminReply, AdminError> {
        if op.writes() {
            self.in_place().map_err(failed)?;
        }
        match op {
            AdminOp::AccountCreate {
                account,
                tier,
                quota_pico,
                terms,
            } => self.create_account(account, (tier, quota_pico), &terms),
            AdminOp::AccountSet {
                account,
                tier,
                quota_pico,
                terms,
            } => self.set_account(&account, (tier, quota_pico), &terms),
            AdminOp::CreditsAdd {
                account,
                amount,
                reference,
            } => self.add_credits(account, amount, reference),
            AdminOp::KeyCreate {
                digest,
                account,
                tier,
                domains,
                expires_in_ms,
                limits,
                settings,
            } => {
                let digest = KeyDigest::from_hex(&digest)
                    .ok_or_else(|| AdminError::Invalid("the key's digest is not 64 hexadecimal digits".to_owned()))?;
                check_lifetime(expires_in_ms).map_err(AdminError::Invalid)?;
                let created = self.shared.clock.now();
                let expires = expires_in_ms.map(|ms| created.plus_millis(ms));
                let id = KeyId::of(&digest);
                self.create_key(
                    digest,
                    KeyRecord {
                        id,
                        account,
                        tier,
                        domains,
                        expires,
                        limits,
                        revoked: None,
                        created,
                        settings: *settings,
                    },
                )
            }
            AdminOp::KeySet { key, change } => self.set_key(&key, &change),
            AdminOp::KeyRevoke { key } => self.revoke_key(&key),
            AdminOp::AccountShow { .. }
            | AdminOp::AccountList
            | AdminOp::KeyShow { .. }
            | AdminOp::KeyList { .. }
            | AdminOp::KeySpent { .. }
            | AdminOp::Usage { .. }
            | AdminOp::UsageOf(_)
            | AdminOp::EndUsers(_)
            | AdminOp::Receipts(_)
            | AdminOp::Audit => Err(read_beside()),
            AdminOp::Repair => self.repair(),
            AdminOp::Maintenance { on } => {
                self.database
                    .set_setting(MAINTENANCE, if on { "on" } else { "off" })
                    .map_err(failed)?;
                self.shared.maintenance.store(on, Ordering::Relaxed);
                Ok(AdminReply::Maintenance { on })
            }
            AdminOp::Recover => Ok(AdminReply::Recovered(self.recovered())),
            AdminOp::NoteRecovered(report) => Ok(AdminReply::Recovered(report)),
            AdminOp::Account(op) => self.account_op(op),
            AdminOp::Credit(op) => self.credit_op(op),
            AdminOp::Operator(op) => self.operator(op),
            AdminOp::By(acted) => self.act(*acted),
            AdminOp::KeyRotate {
                key,
                digest,
                overlap_ms,
            } => self.rotate_key(&key, Rotation::of(&digest, overlap_ms)?),
            AdminOp::Event(op) => self.event_op(op),
            AdminOp::KeysFreed { calls } => self.free_keys(&calls),
            AdminOp::Extend(wish) => self.extend_for_predecessor(&wish),
            AdminOp::Reserve(_) => Err(decided_beside()),
        }
    }

    pub(super) fn cell(&self, account: &AccountId) -> Result<Arc<EmbeddedAccount>, AdminError> {
        let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts
            .get(account)
            .cloned()
            .ok_or_else(|| AdminError::NoAccount(account.clone()))
    }

    fn create_account(
        &mut self,
        id: AccountId,
        (tier, quota): (Tier, Option<i64>),
        terms: &TermsChange,
    ) -> Result<AdminReply, AdminError> {
        if self.cell(&id).is_ok() {
            return Err(AdminError::AccountExists(id));
        }
        check_new_name(&id).map_err(AdminError::Invalid)?;
        let monthly_quota = checked_quota(quota)?;
        let record = AccountRecord {
            id: id.clone(),
            tier,
            monthly_quota,
            created: self.shared.clock.now(),
            terms: AccountTerms::default().changed(terms).map_err(AdminError::Invalid)?,
        };
        self.database.insert_account(&record).map_err(failed)?;
        let cell = Arc::new(EmbeddedAccount::new(record, AccountState::default()));
        let view = self.view(&cell, true);
        self.shared
            .accounts
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, cell);
        Ok(AdminReply::Account(view))
    }

    fn set_account(
        &mut self,
        account: &AccountId,
        (tier, quota): (Option<Tier>, Option<Option<i64>>),
        terms: &TermsChange,
    ) -> Result<AdminReply, AdminError> {
        let cell = self.cell(account)?;
        let mut record = AccountRecord::clone(&cell.record.load());
        record.tier = tier.unwrap_or(record.tier);
        if let Some(quota) = quota {
            record.monthly_quota = checked_quota(quota)?;
        }
        if !terms.is_empty() {
            record.terms = record.terms.changed(terms).map_err(AdminError::Invalid)?;
        }
        self.database.update_account(&record).map_err(failed)?;
        cell.set_record(record);
        Ok(AdminReply::Account(self.view(&cell, true)))
    }

    fn create_key(&mut self, digest: KeyDigest, record: KeyRecord) -> Result<AdminReply, AdminError> {
        let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
        if keys.contains_key(&digest) {
            return Err(taken());
        }
        drop(keys);
        let cell = self.cell(&record.account)?;
        let of_account = cell.record.load();
        let account_tier = of_account.tier;
        of_account.terms.allows_key().map_err(AdminError::Conflict)?;
        if let Some(tier) = record.tier.filter(|tier| *tier > account_tier) {
            let (has, wants) = (account_tier.name(), tier.name());
            return Err(AdminError::Invalid(format!(
                "the account's tier is {has}; a key cannot have the higher tier {wants}"
            )));
        }
        check_limits(&record.limits).map_err(AdminError::Invalid)?;
        check_domains(&record.domains).map_err(AdminError::Invalid)?;
        record.settings.check_new().map_err(AdminError::Invalid)?;
        let written = self.database.insert_key(&digest, &record);
        let is_there = |database: &Database| database.has_key(&digest);
        self.made(written, is_there, ("key", record.id.as_str()))?;
        spending::track(&cell, &record);
        let entry = KeyEntry {
            record: Arc::new(record.clone()),
            cell,
        };
        self.shared.keep_key(digest, entry);
        Ok(AdminReply::Key(record))
    }

    fn revoke_key(&mut self, key: &KeyRef) -> Result<AdminReply, AdminError> {
        let found = {
            let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
            keys.iter()
                .find(|(digest, _)| key.names(digest))
                .map(|(digest, entry)| (*digest, entry.clone()))
        };
        let (digest, mut entry) = found.ok_or(AdminError::NoKey)?;
        let now = self.shared.clock.now();
        self.database.revoke_key(&digest, now).map_err(failed)?;
        let mut record = KeyRecord::clone(&entry.record);
        record.revoked = record.revoked.or(Some(now));
        entry.record = Arc::new(record.clone());
        self.shared.keep_key(digest, entry);
        Ok(AdminReply::Key(record))
    }

    /// A write of a key or an operator that failed may have reached the file all the same: that says so itself. Its text is shown with the
    /// command's answer alone.
    pub(super) fn made(
        &self,
        written: Result<(), StoreError>,
        is_there: impl FnOnce(&Database) -> Result<bool, StoreError>,
        (what, id): (&str, &str),
    ) -> Result<(), AdminError> {
        let Err(error) = written else { return Ok(()) };
        #[cfg(test)]
        let is_there = |database: &Database| match database.fails_to_look {
            true => Err(StoreError::Unavailable("a test's".to_owned())),
            false => is_there(database),
        };
        match is_there(&self.database) {
            Ok(true) => Ok(()),
            Ok(false) => Err(AdminError::Store(format!("{error}; no {what} was made: run it again"))),
            Err(_) => Err(AdminError::Store(format!(
                "{error}; whether the {what} {id} was made is not known, and nobody has its text: once the file can be read, restart, \
                 revoke it where a list shows it, and run it again"
            ))),
        }
    }

    /// What the start recovered.
    fn recovered(&self) -> RecoverReport {
        self.shared
            .recovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn view(&self, cell: &EmbeddedAccount, with_keys: bool) -> AccountView {
        let mut view = self.shared.account_view(cell);
        if with_keys {
            view.keys = self.shared.keys_of(cell);
        }
        view
    }
}

fn checked_quota(pico: Option<i64>) -> Result<Option<Credits>, AdminError> {
    match pico {
        Some(negative) if negative < 0 => Err(AdminError::Invalid("the monthly quota cannot be negative".to_owned())),
        other => Ok(other.map(Credits::from_pico)),
    }
}

pub(super) fn failed(error: StoreError) -> AdminError {
    AdminError::Store(error.to_string())
}

/// What the ledger's thread says of a reserve, which is none of its.
fn decided_beside() -> AdminError {
    AdminError::Invalid("a reserve is decided beside the ledger's thread".to_owned())
}

/// What the ledger's thread says of a command that is none of its.
pub(super) fn read_beside() -> AdminError {
    AdminError::Invalid("what only reads is answered beside the ledger's thread".to_owned())
}
