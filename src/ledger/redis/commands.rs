//! The operator's commands on the ledger in Redis. They work from any process that reaches Redis, beside running gateways.

mod reports;

use std::sync::Arc;

use futures::FutureExt;

use super::account::{Account, account_keys, keys_of_account};
use super::kept_terms;
use super::link::Link;
use super::nonce::nonce;
use super::payments::{giver_key, payment_key};
use super::reply;
use super::script::{self, PREFIX};
use super::server_health::{Change, channel, maintenance_key, operators_key};
use super::shared::accounts_key;
use super::shared::{Shared, key_name, read_record};
use super::unconfirmed::Left;
use crate::ledger::admin::accounts::{AccountOp, check_new_name};
use crate::ledger::admin::credits::{CreditOp, is_payments_id};
use crate::ledger::admin::{AccountView, AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{KeySettings, check_domains, check_lifetime, check_limits};
use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::ledger::rotation::Rotation;
use crate::ledger::terms::{AccountTerms, TermsChange};
use crate::ledger::{AccountRecord, KeyRecord, StoreError};
use crate::pure::ids::{AccountId, KeyDigest, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::policy::DomainPattern;

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> AdminError {
        match error {
            StoreError::Busy(why) => AdminError::Busy(why),
            error => AdminError::Store(error.to_string()),
        }
    }
}

impl Shared {
    pub(super) async fn execute(&self, link: &Link, op: AdminOp) -> Result<AdminReply, AdminError> {
        if !op.writes() {
            return self.execute_on(link, op).await;
        }
        // On a connection of its own: whoever waits for a replica holds up what shares the connection.
        let own = Link::default();
        let keys = written_keys(&op);
        let maintenance = match &op {
            AdminOp::Maintenance { on } => Some(*on),
            _ => None,
        };
        let left = Left::of(&op);
        let mut reply = match self.execute_on(&own, op).await {
            Ok(reply) => reply,
            Err(error) => return self.unconfirmed(&own, &left, error).await,
        };
        let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let made = match &mut reply {
            AdminReply::Key(key) => Some(key_id_key(&key.id)),
            _ => None,
        };
        keys.extend(made.as_deref());
        let confirmed = self.confirm(&own, &keys).await;
        if let Some(on) = maintenance {
            // Again: what this process heard of an earlier switch may have come in between.
            self.maintenance.switched(on);
        }
        match confirmed {
            Ok(()) => Ok(reply),
            Err(error) => self.done_unconfirmed(&own, &left, reply, error).await,
        }
    }

    async fn execute_on(&self, link: &Link, op: AdminOp) -> Result<AdminReply, AdminError> {
        match op {
            AdminOp::AccountCreate {
                account,
                tier,
                quota_pico,
                terms,
            } => self.create_account(link, &account, (tier, quota_pico), &terms).await,
            AdminOp::AccountSet {
                account,
                tier,
                quota_pico,
                terms,
            } => self.set_account(link, &account, (tier, quota_pico), &terms).await,
            AdminOp::AccountShow { account } => {
                self.settled(&account).await?;
                let mut view = self.view(link, &account).await?;
                view.keys = self.keys_of(link, &account).await?;
                Ok(AdminReply::Account(view))
            }
            AdminOp::AccountList => self.list_accounts(link).await,
            AdminOp::CreditsAdd {
                account,
                amount,
                reference,
            } => self.add_credits(link, account, amount, reference).await,
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
                let facts = (tier, domains, expires_in_ms, limits, *settings);
                self.create_key(link, digest, account, facts).await
            }
            AdminOp::KeyShow { key } => self.show_key(link, &key).await,
            AdminOp::KeyList { account } => {
                let view = self.view(link, &account).await?;
                Ok(AdminReply::Keys {
                    keys: self.keys_of(link, &account).await?,
                    account_status: Some(view.record.terms.status),
                })
            }
            AdminOp::KeySet { key, change } => self.set_key(link, &key, &change).await,
            AdminOp::KeySpent { account, key, reset } => {
                self.settled(&account).await?;
                let [name, order] = account_keys(&account);
                Ok(self.key_spent(link, [&name, &order], &key, reset).await?.into())
            }
            AdminOp::KeyRevoke { key } => self.revoke_key(link, &key).await,
            AdminOp::Usage { account, key, period } => {
                let rows = self.usage(link, &UsageQuery::of_period(account, key, period)).await?;
                Ok(AdminReply::Usage {
                    rows: KeyedRow::without_keys(rows),
                })
            }
            AdminOp::UsageOf(query) => self.usage(link, &query).await.map(|rows| AdminReply::UsageOf { rows }),
            AdminOp::EndUsers(query) => {
                let usage = self.end_users(link, &query).await?;
                Ok(AdminReply::EndUsers { usage })
            }
            AdminOp::Receipts(query) => self.receipts(link, &query).await.map(AdminReply::Receipts),
            AdminOp::Audit => self.audit(link).await.map(AdminReply::Audit),
            AdminOp::Repair => self.repair(link).await,
            AdminOp::Maintenance { on } => {
                let (channel, message) = (channel(), Change::Maintenance.text());
                let state = if on { "on" } else { "off" };
                self.run_script(
                    link,
                    &script::MAINTENANCE,
                    &[&maintenance_key()],
                    &[&channel, &message, state],
                )
                .await?;
                self.maintenance.switched(on);
                Ok(AdminReply::Maintenance { on })
            }
            AdminOp::Event(op) => self.event_op(link, op).await,
            AdminOp::Recover => self.recover(link).await.map(AdminReply::Recovered),
            AdminOp::NoteRecovered(report) => Ok(AdminReply::Recovered(report)),
            AdminOp::Account(op) => self.account_op(link, op).await,
            AdminOp::Credit(op) => self.credit_op(link, op).await,
            AdminOp::Operator(op) => self.operator(link, op).await,
            AdminOp::By(_) => Err(AdminError::Invalid("a command is given by somebody".to_owned())),
            AdminOp::KeyRotate {
                key,
                digest,
                overlap_ms,
            } => self.rotate_key(link, &key, Rotation::of(&digest, overlap_ms)?).await,
            AdminOp::Reserve(_) | AdminOp::Extend(_) | AdminOp::KeysFreed { .. } => {
                Err(AdminError::Invalid("only an embedded ledger is handed over".to_owned()))
            }
        }
    }

    /// Waits until what happened to the account in this process is in Redis.
    async fn settled(&self, account: &AccountId) -> Result<(), StoreError> {
        match self.cache.known_account(account) {
            Some(known) => self.barrier(&known).await,
            None => Ok(()), // Nothing happened to it here.
        }
    }

    /// An account that there is: of other names this process remembers nothing.
    pub(super) async fn existing(&self, link: &Link, account: &AccountId) -> Result<Arc<Account>, AdminError> {
        if let Some(known) = self.cache.known_account(account) {
            return Ok(known);
        }
        let [name, _] = account_keys(account);
        let mut exists = redis::cmd("HEXISTS");
        exists.arg(name).arg("avail");
        match reply::integer(&self.command(link, exists).await?)? {
            0 => Err(AdminError::NoAccount(account.clone())),
            _ => Ok(self.cache.account(account)),
        }
    }

    async fn create_account(
        &self,
        link: &Link,
        account: &AccountId,
        (tier, quota_pico): (Tier, Option<i64>),
        terms: &TermsChange,
    ) -> Result<AdminReply, AdminError> {
        check_new_name(account).map_err(AdminError::Invalid)?;
        let quota = checked_quota(quota_pico)?.map_or_else(String::new, |quota| quota.pico().to_string());
        let [terms, low] = match AccountTerms::default().changed(terms).map_err(AdminError::Invalid)? {
            none if none == AccountTerms::default() => [String::new(), String::new()],
            terms => kept_terms::arguments(&terms)?,
        };
        // The index first: a name in it without an account does no harm, an account outside it would be forgotten by audits.
        self.add_name(link, account).boxed().await?;
        let [name, order] = account_keys(account);
        let (now, nonce) = (self.now_text(), nonce()?);
        let arguments = [now.as_str(), tier.name(), &quota, &terms, &low, &nonce];
        let created = self
            .run_script(link, &script::CREATE, &[&name, &order], &arguments)
            .await?;
        match reply::text(&created)? {
            "created" => {
                self.names.add(account);
                self.view(link, account).await.map(AdminReply::Account)
            }
            _ => Err(AdminError::AccountExists(account.clone())),
        }
    }

    async fn set_account(
        &self,
        link: &Link,
        account: &AccountId,
        (tier, quota): (Option<Tier>, Option<Option<i64>>),
        terms: &TermsChange,
    ) -> Result<AdminReply, AdminError> {
        let quota = match quota {
            None => String::new(),
            Some(quota) => checked_quota(quota)?.map_or_else(|| "none".to_owned(), |quota| quota.pico().to_string()),
        };
        let tier = tier.map_or("", Tier::name);
        if !terms.is_empty() {
            return self.set_terms(link, account, terms, [tier, &quota]).await;
        }
        let [name, _] = account_keys(account);
        let (channel, message) = (channel(), Change::Account(account.clone()).text());
        let arguments: [&str; 4] = [&channel, &message, tier, &quota];
        let set = self.run_script(link, &script::SET, &[&name], &arguments).await?;
        if reply::text(&set)? == "none" {
            return Err(AdminError::NoAccount(account.clone()));
        }
        self.cache.forget_account(account);
        let mut view = self.view(link, account).await?;
        view.keys = self.keys_of(link, account).await?;
        Ok(AdminReply::Account(view))
    }

    async fn list_accounts(&self, link: &Link) -> Result<AdminReply, AdminError> {
        let mut accounts = Vec::new();
        for account in self.read_names(link).await? {
            match self.view(link, &account).await {
                Ok(view) => accounts.push(view),
                Err(AdminError::NoAccount(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(AdminReply::Accounts { accounts })
    }

    pub(super) async fn view(&self, link: &Link, account: &AccountId) -> Result<AccountView, AdminError> {
        let [name, order] = account_keys(account);
        let shown = self.show(link, [&name, &order]).await?;
        let shown = shown.ok_or_else(|| AdminError::NoAccount(account.clone()))?;
        let record = AccountRecord {
            id: account.clone(),
            tier: shown
                .tier
                .parse()
                .map_err(|_| reply::corrupt("an account has no tier"))?,
            monthly_quota: shown.quota,
            created: shown.created,
            terms: shown.terms,
        };
        Ok(AccountView {
            record,
            figures: shown.figures,
            open_holds: shown.open_holds,
            keys: Vec::new(),
        })
    }

    async fn create_key(
        &self,
        link: &Link,
        digest: KeyDigest,
        account: AccountId,
        facts: (
            Option<Tier>,
            Vec<DomainPattern>,
            Option<i64>,
            LimitOverrides,
            KeySettings,
        ),
    ) -> Result<AdminReply, AdminError> {
        let (tier, domains, expires_in_ms, limits, settings) = facts;
        settings.check_new().map_err(AdminError::Invalid)?;
        check_domains(&domains).map_err(AdminError::Invalid)?;
        check_limits(&limits).map_err(AdminError::Invalid)?;
        check_lifetime(expires_in_ms).map_err(AdminError::Invalid)?;
        let of_account = self.view(link, &account).await?.record;
        let account_tier = of_account.tier;
        of_account.terms.allows_key().map_err(AdminError::Conflict)?;
        if let Some(tier) = tier.filter(|tier| *tier > account_tier) {
            let (has, wants) = (account_tier.name(), tier.name());
            return Err(AdminError::Invalid(format!(
                "the account's tier is {has}; a key cannot have the higher tier {wants}"
            )));
        }
        let created = self.time(link).await?;
        let record = KeyRecord {
            id: KeyId::of(&digest),
            account,
            tier,
            domains,
            expires: expires_in_ms.map(|ms| created.plus_millis(ms)),
            limits,
            revoked: None,
            created,
            settings,
        };
        if record.settings.has_limits() {
            self.track(link, (&record.account, &record.id), true).await?;
        }
        self.insert_key(link, &digest, &record).await?;
        Ok(AdminReply::Key(record))
    }

    async fn revoke_key(&self, link: &Link, key: &KeyRef) -> Result<AdminReply, AdminError> {
        let digest = self.digest_of(link, key).await?;
        let name = key_name(&digest);
        let (now, channel, message) = (self.now_text(), channel(), Change::Key(digest).text());
        let revoked = self
            .run_script(link, &script::REVOKE, &[&name], &[&now, &channel, &message])
            .await?;
        self.cache.forget_key(&digest);
        let record = read_record(&revoked)?.ok_or(AdminError::NoKey)?;
        self.confirm(link, &[&name]).await?;
        Ok(AdminReply::Key(record))
    }
}

/// The keys that a command writes, as far as it names them.
pub(super) fn written_keys(op: &AdminOp) -> Vec<String> {
    let of_account = |account: &AccountId| account_keys(account).into_iter().take(1);
    let of_key = |hex: &str| KeyDigest::from_hex(hex).map(|digest| key_name(&digest));
    match op {
        AdminOp::AccountCreate { account, .. } => of_account(account).chain([accounts_key()]).collect(),
        AdminOp::AccountSet { account, .. } => of_account(account).collect(),
        AdminOp::Account(AccountOp::Terms { account, .. }) => of_account(account).collect(),
        AdminOp::CreditsAdd { account, reference, .. } => {
            let payment = is_payments_id(reference).then(|| [payment_key(reference), giver_key(reference)]);
            of_account(account).chain(payment.into_iter().flatten()).collect()
        }
        AdminOp::Credit(CreditOp::Post(post)) => {
            let keys = || [payment_key(&post.reference), giver_key(&post.reference)];
            let payment = post.keeps_payer().then(keys);
            of_account(&post.account).chain(payment.into_iter().flatten()).collect()
        }
        AdminOp::KeyCreate { digest, account, .. } => {
            let names = [Some(keys_of_account(account)), of_key(digest)];
            names.into_iter().flatten().collect()
        }
        AdminOp::Maintenance { .. } => vec![maintenance_key()],
        AdminOp::Operator(_) => vec![operators_key()],
        // A revocation finds its key itself, and what only reads has nothing to confirm.
        _ => Vec::new(),
    }
}

fn checked_quota(pico: Option<i64>) -> Result<Option<Credits>, AdminError> {
    match pico {
        Some(negative) if negative < 0 => Err(AdminError::Invalid("the monthly quota cannot be negative".to_owned())),
        other => Ok(other.map(Credits::from_pico)),
    }
}

pub(super) fn key_id_key(id: &KeyId) -> String {
    format!("{PREFIX}keyid:{}", id.as_str())
}
