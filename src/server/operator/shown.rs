//! How the operator's API shows what the ledger has: amounts as decimal text, moments in RFC 3339.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::config::{Config, Network};
use crate::ledger::KeyRecord;
use crate::ledger::admin::AccountView;
use crate::ledger::admin::credits::{CreditEntry, CreditKind};
use crate::ledger::admin::operators::OperatorRecord;
use crate::ledger::shown::CredentialState;
use crate::ledger::terms::AccountStatus;
use crate::pure::account::Spent;
use crate::pure::credit_sum::CreditSum;
use crate::pure::ids::{AccountId, KeyId, Tier};
use crate::pure::money::Credits;
use crate::pure::operator::Role;
use crate::pure::policy::{DomainPattern, ModelPattern};
use crate::pure::spend::{Reset, SpendLimit};
use crate::pure::time::Timestamp;

/// An amount as exact decimal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount(pub(super) Credits);

impl From<Credits> for Amount {
    fn from(credits: Credits) -> Amount {
        Amount(credits)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A sum of amounts as exact decimal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum(CreditSum);

impl From<CreditSum> for Sum {
    fn from(sum: CreditSum) -> Sum {
        Sum(sum)
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A page of a list.
#[derive(Serialize)]
pub(super) struct Page<T> {
    pub(super) data: Vec<T>,
    /// Where the next page begins; null when this was the last.
    pub(super) next: Option<String>,
}

/// An account.
#[derive(Serialize)]
pub(super) struct AccountShown {
    name: AccountId,
    tier: Tier,
    status: AccountStatus,
    balance: Amount,
    held: Amount,
    available: Amount,
    monthly_quota: Amount,
    /// Whether the quota is the account's own and not its tier's.
    own_quota: bool,
    monthly_used: Amount,
    low_balance: Option<Amount>,
    metadata: BTreeMap<String, String>,
    open_calls: u64,
    created_at: String,
    currency: String,
}

impl AccountShown {
    pub(super) fn of(view: AccountView, config: &Config) -> AccountShown {
        let (record, figures) = (view.record, view.figures);
        let of_tier = config.tier(record.tier).monthly_quota;
        AccountShown {
            name: record.id,
            tier: record.tier,
            status: record.terms.status,
            balance: figures.balance.into(),
            held: figures.held.into(),
            available: figures.balance.saturating_sub(figures.held).into(),
            monthly_quota: record.monthly_quota.unwrap_or(of_tier).into(),
            own_quota: record.monthly_quota.is_some(),
            monthly_used: figures.monthly_used.into(),
            low_balance: record.terms.low_balance.map(Amount),
            metadata: record.terms.metadata,
            open_calls: view.open_holds,
            created_at: record.created.to_string(),
            currency: config.currency.clone(),
        }
    }
}

/// A key. Its text is told at its creation alone.
#[derive(Serialize)]
pub(super) struct KeyShown {
    id: KeyId,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    account: AccountId,
    state: CredentialState,
    label: Option<String>,
    tier: Option<Tier>,
    domains: Vec<DomainPattern>,
    rpm: Option<u64>,
    tpm: Option<u64>,
    concurrency: Option<u64>,
    limit: Option<Amount>,
    limit_reset: Option<Reset>,
    end_user_limit: Option<Amount>,
    end_user_limit_reset: Option<Reset>,
    models: Vec<ModelPattern>,
    addresses: Vec<Network>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_as: Option<KeyId>,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
}

impl KeyShown {
    pub(super) fn of(record: KeyRecord, now: Timestamp) -> KeyShown {
        let settings = record.settings;
        let parts = |limit: Option<SpendLimit>| {
            let amount = limit.map(|limit| Amount(limit.amount));
            (amount, limit.map(|limit| limit.reset))
        };
        let (limit, limit_reset) = parts(settings.limit);
        let (end_user_limit, end_user_limit_reset) = parts(settings.end_user_limit);
        KeyShown {
            id: record.id,
            key: None,
            account: record.account,
            state: CredentialState::of(record.revoked, record.expires, now),
            label: settings.label,
            tier: record.tier,
            domains: record.domains,
            rpm: record.limits.rpm,
            tpm: record.limits.tpm,
            concurrency: record.limits.concurrency,
            limit,
            limit_reset,
            end_user_limit,
            end_user_limit_reset,
            models: settings.models,
            addresses: settings.addresses,
            counts_as: settings.counts_as,
            created_at: record.created.to_string(),
            expires_at: record.expires.map(|at| at.to_string()),
            revoked_at: record.revoked.map(|at| at.to_string()),
        }
    }

    /// The same for its new owner: the only answer with the key's text.
    pub(super) fn revealing(self, key: &str) -> KeyShown {
        KeyShown {
            key: Some(key.to_owned()),
            ..self
        }
    }
}

/// A key by itself: also what stands of its limit in the period that is now. None of that where it has no limit.
#[derive(Serialize)]
pub(super) struct KeyWithSpending {
    #[serde(flatten)]
    key: KeyShown,
    limit_spent: Option<Amount>,
    limit_held: Option<Amount>,
    limit_remaining: Option<Amount>,
    /// None also where the period never ends.
    limit_resets_at: Option<String>,
}

impl KeyWithSpending {
    pub(super) fn of(record: KeyRecord, spent: Option<Spent>, now: Timestamp) -> KeyWithSpending {
        let limit = record.settings.limit;
        let left = limit.zip(spent).map(|(limit, spent)| spent.left_of(limit.amount));
        let resets = limit.and_then(|limit| limit.reset.next(now.day()));
        KeyWithSpending {
            key: KeyShown::of(record, now),
            limit_spent: spent.map(|spent| Amount(spent.spent)),
            limit_held: spent.map(|spent| Amount(spent.held)),
            limit_remaining: left.map(Amount),
            limit_resets_at: resets.map(|at| at.to_string()),
        }
    }
}

/// The keys of an account.
#[derive(Serialize)]
pub(super) struct KeysShown {
    #[serde(flatten)]
    pub(super) page: Page<KeyShown>,
    /// Whether it may call. Where it may not, its keys open nothing, whatever their own state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) account_status: Option<AccountStatus>,
}

/// A credit entry.
#[derive(Serialize)]
pub(super) struct EntryShown {
    time: String,
    kind: CreditKind,
    amount: Amount,
    reference: String,
    note: Option<String>,
    /// Right after it; null for entries of before it was kept.
    balance: Option<Amount>,
}

impl From<CreditEntry> for EntryShown {
    fn from(entry: CreditEntry) -> EntryShown {
        EntryShown {
            time: entry.at.to_string(),
            kind: entry.kind,
            amount: entry.amount.into(),
            reference: entry.reference,
            note: entry.note,
            balance: entry.balance.map(Amount),
        }
    }
}

/// An operator.
#[derive(Serialize)]
pub(super) struct OperatorShown {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    name: String,
    role: Role,
    state: CredentialState,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
}

impl OperatorShown {
    pub(super) fn of(record: OperatorRecord, now: Timestamp) -> OperatorShown {
        OperatorShown {
            state: CredentialState::of(record.revoked, record.expires, now),
            id: record.id,
            token: None,
            name: record.name,
            role: record.role,
            created_at: record.created.to_string(),
            expires_at: record.expires.map(|at| at.to_string()),
            revoked_at: record.revoked.map(|at| at.to_string()),
        }
    }

    /// The same for them: the only answer with the token's text.
    pub(super) fn revealing(self, token: &str) -> OperatorShown {
        OperatorShown {
            token: Some(token.to_owned()),
            ..self
        }
    }
}
