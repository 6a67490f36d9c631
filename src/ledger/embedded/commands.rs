//! The operator's commands on the embedded ledger: the file first, then memory, on the ledger's own thread.

mod reports;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::shared::{EmbeddedAccount, KeyEntry, MAINTENANCE};
use super::spending;
use super::writer::Committer;
use crate::ledger::admin::{AccountView, AdminError, AdminOp, AdminReply, KeyRef, RecoverReport};
use crate::ledger::key_settings::check_domains;
use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::ledger::rotation::{Rotation, taken};
use crate::ledger::{AccountRecord, KeyRecord, StoreError};
use crate::pure::account::{AccountState, Denial};
use crate::pure::ids::{AccountId, KeyDigest, KeyId, Tier};
use crate::pure::money::Credits;

impl Committer {
    pub(super) fn execute(&mut self, op: AdminOp) -> Result<AdminReply, AdminError> {
        match op {
            AdminOp::AccountCreate {
                account,
                tier,
                quota_pico,
            } => self.create_account(account, tier, quota_pico),
            AdminOp::AccountSet {
                account,
                tier,
                quota_pico,
            } => self.set_account(&account, tier, quota_pico),
            AdminOp::AccountShow { account } => self
                .cell(&account)
                .map(|cell| AdminReply::Account(self.view(&cell, true))),
            AdminOp::AccountList => Ok(self.list_accounts()),
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
            AdminOp::KeyList { account } => {
                self.cell(&account)?;
                Ok(AdminReply::Keys {
                    keys: self.keys_of(&account),
                })
            }
            AdminOp::KeySet { key, change } => self.set_key(&key, &change),
            AdminOp::KeySpent { account, key, reset } => self.key_spent(&account, &key, reset),
            AdminOp::KeyRevoke { key } => self.revoke_key(&key),
            AdminOp::Usage { account, key, period } => {
                let rows = self.usage(&UsageQuery::of_period(account, key, period))?;
                Ok(AdminReply::Usage {
                    rows: KeyedRow::without_keys(rows),
                })
            }
            AdminOp::UsageOf(query) => self.usage(&query).map(|rows| AdminReply::UsageOf { rows }),
            AdminOp::EndUsers(query) => self.end_users(&query),
            AdminOp::Receipts(query) => {
                self.cell(&query.account)?;
                self.commit().map_err(failed)?;
                self.database.receipts(&query).map(AdminReply::Receipts).map_err(failed)
            }
            AdminOp::Audit => self.audit().map(AdminReply::Audit),
            AdminOp::Repair => self.repair(),
            AdminOp::Maintenance { on } => {
                self.database
                    .set_setting(MAINTENANCE, if on { "on" } else { "off" })
                    .map_err(failed)?;
                self.shared.maintenance.store(on, Ordering::Relaxed);
                Ok(AdminReply::Maintenance { on })
            }
            AdminOp::Recover => Ok(AdminReply::Recovered(self.recovered())),
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
            AdminOp::Reserve(reserve) => {
                let cell = self.cell(reserve.account())?;
                let request = reserve.request();
                let mut state = cell.state();
                let reply = match cell.stop() {
                    Some(stop) => Err(Denial::Stopped(stop)),
                    None => state.reserve(&request, self.shared.clock.now()),
                };
                drop(state);
                match &reply {
                    Ok(_) => {
                        let mut predecessors = self.shared.predecessors.lock().unwrap_or_else(PoisonError::into_inner);
                        predecessors.insert(request.id, cell);
                    }
                    Err(denial) => {
                        if let Some(refused) = self.shared.first_refusal(&cell, denial, request.quota) {
                            self.raise_refused(&cell, &refused);
                        }
                    }
                }
                Ok(AdminReply::Reserved(reply.into()))
            }
        }
    }

    pub(super) fn cell(&self, account: &AccountId) -> Result<Arc<EmbeddedAccount>, AdminError> {
        let accounts = self.shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts
            .get(account)
            .cloned()
            .ok_or_else(|| AdminError::NoAccount(account.clone()))
    }

    fn create_account(&mut self, id: AccountId, tier: Tier, quota: Option<i64>) -> Result<AdminReply, AdminError> {
        if self.cell(&id).is_ok() {
            return Err(AdminError::AccountExists(id));
        }
        let monthly_quota = checked_quota(quota)?;
        let record = AccountRecord {
            id: id.clone(),
            tier,
            monthly_quota,
            created: self.shared.clock.now(),
            terms: crate::ledger::terms::AccountTerms::default(),
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
        tier: Option<Tier>,
        quota: Option<Option<i64>>,
    ) -> Result<AdminReply, AdminError> {
        let cell = self.cell(account)?;
        let mut record = AccountRecord::clone(&cell.record.load());
        record.tier = tier.unwrap_or(record.tier);
        if let Some(quota) = quota {
            record.monthly_quota = checked_quota(quota)?;
        }
        self.database.update_account(&record).map_err(failed)?;
        cell.set_record(record);
        Ok(AdminReply::Account(self.view(&cell, true)))
    }

    fn list_accounts(&self) -> AdminReply {
        let cells: Vec<Arc<EmbeddedAccount>> = self
            .shared
            .accounts
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        AdminReply::Accounts {
            accounts: cells.iter().map(|cell| self.view(cell, false)).collect(),
        }
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
        of_account.terms.allows_key().map_err(AdminError::Invalid)?;
        if let Some(tier) = record.tier.filter(|tier| *tier > account_tier) {
            let (has, wants) = (account_tier.name(), tier.name());
            return Err(AdminError::Invalid(format!(
                "the account's tier is {has}; a key cannot have the higher tier {wants}"
            )));
        }
        if [record.limits.rpm, record.limits.tpm, record.limits.concurrency].contains(&Some(0)) {
            return Err(AdminError::Invalid(
                "a limit must be at least 1; to stop a key, revoke it".to_owned(),
            ));
        }
        check_domains(&record.domains).map_err(AdminError::Invalid)?;
        record.settings.check().map_err(AdminError::Invalid)?;
        self.database.insert_key(&digest, &record).map_err(failed)?;
        spending::track(&cell, &record);
        let entry = KeyEntry {
            record: Arc::new(record.clone()),
            cell,
        };
        self.shared
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(digest, entry);
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
        self.shared
            .keys
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(digest, entry);
        Ok(AdminReply::Key(record))
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
            view.keys = self.keys_of(&view.record.id);
        }
        view
    }

    fn keys_of(&self, account: &AccountId) -> Vec<KeyRecord> {
        let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
        let mut of: Vec<KeyRecord> = keys
            .values()
            .filter(|entry| entry.record.account == *account)
            .map(|e| KeyRecord::clone(&e.record))
            .collect();
        of.sort_by(|a, b| (a.created, a.id.as_str()).cmp(&(b.created, b.id.as_str())));
        of
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
