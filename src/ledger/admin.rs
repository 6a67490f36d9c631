//! The operator's commands as values: what the command line asks, what a store answers, and over which wire.

pub mod accounts;
pub mod credits;
pub mod events;
mod key_ref;
pub mod operators;
mod reply;
mod reports;
mod statement_csv;
pub(crate) mod unseen;

use serde::{Deserialize, Deserializer, Serialize};

use self::accounts::AccountOp;
pub use self::accounts::AccountView;
use self::credits::CreditOp;
use self::events::EventOp;
pub use self::key_ref::KeyRef;
use self::operators::{Actor, OperatorOp};
pub use self::reply::{AdminError, AdminReply};
pub use self::reports::{AuditFinding, AuditReport, RecoverReport};
use super::key_settings::{KeyChange, KeySettings};
use super::query::{CallName, EndUserQuery, RunningCall, UsageQuery};
use super::terms::TermsChange;
use super::{StoreError, pico};
use crate::pure::ids::{AccountId, KeyId, RequestId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::policy::DomainPattern;
use crate::pure::receipt::Receipt;
use crate::pure::spend::Reset;
use crate::pure::time::{Day, Days, Period};

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum AdminOp {
    /// Makes an account.
    AccountCreate {
        /// Its name.
        account: AccountId,
        /// Its tier.
        tier: Tier,
        /// Its own quota, in 10^-12 credit.
        quota_pico: Option<i64>,
        /// The terms that it is made with, in one step. Earlier versions know no such field, and make it without.
        #[serde(default, skip_serializing_if = "TermsChange::is_empty")]
        terms: TermsChange,
    },
    /// Changes an account; what is `None` stays.
    AccountSet {
        /// Its name.
        account: AccountId,
        /// The new tier.
        tier: Option<Tier>,
        /// The new quota: `Some(None)` goes back to the tier's.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        quota_pico: Option<Option<i64>>,
        /// What changes of its terms, in the same step. Earlier versions know no such field, and leave the terms as they are.
        #[serde(default, skip_serializing_if = "TermsChange::is_empty")]
        terms: TermsChange,
    },
    /// One account with its keys.
    AccountShow {
        /// Its name.
        account: AccountId,
    },
    /// All accounts.
    AccountList,
    /// Adds credit, once a reference.
    CreditsAdd {
        /// Who gets it.
        account: AccountId,
        /// How much; above 0.
        #[serde(with = "pico")]
        amount: Credits,
        /// The same reference and amount again change nothing; with another amount they are refused.
        reference: String,
    },
    /// Makes a key, of which only the digest is sent.
    KeyCreate {
        /// Hexadecimal digest.
        digest: String,
        /// The key's facts; `created` is the store's to set.
        account: AccountId,
        /// A tier below the account's.
        tier: Option<Tier>,
        /// Domain lock.
        domains: Vec<DomainPattern>,
        /// Milliseconds from now until it expires.
        expires_in_ms: Option<i64>,
        /// Limits of its own.
        limits: LimitOverrides,
        /// What else sets it apart.
        #[serde(default)]
        settings: Box<KeySettings>,
    },
    /// Changes what sets a key apart.
    KeySet {
        /// Which.
        key: KeyRef,
        /// How.
        change: Box<KeyChange>,
    },
    /// What a key has spent, and holds, in a period of its limit.
    KeySpent {
        /// Whose.
        account: AccountId,
        /// Which.
        key: KeyId,
        /// The kind of the period that is now.
        reset: Reset,
    },
    /// One key, whatever became of it. Answers [`AdminReply::Key`].
    KeyShow {
        /// Which.
        key: KeyRef,
    },
    /// The keys of an account, revoked ones too.
    KeyList {
        /// Whose.
        account: AccountId,
    },
    /// Revokes a key for good.
    KeyRevoke {
        /// Which.
        key: KeyRef,
    },
    /// Usage by UTC day and model.
    Usage {
        /// Whose.
        account: AccountId,
        /// Only that of calls with this key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<KeyId>,
        /// Which days.
        period: Period,
    },
    /// Usage of chosen days, or apart by key.
    UsageOf(UsageQuery),
    /// Usage by end user, as far as receipts are kept.
    EndUsers(EndUserQuery),
    /// Receipts of calls.
    Receipts(ReceiptQuery),
    /// Checks that the books balance.
    Audit,
    /// Mends counters that are not what their entries say.
    Repair,
    /// Switches maintenance on or off.
    Maintenance {
        /// The new state.
        on: bool,
    },
    /// Shows what start-up recovery would do or did: debits and holds of dead owners' journals.
    Recover,
    /// Says what somebody has recovered by hand: it is done, and is logged.
    NoteRecovered(RecoverReport),
    /// Makes a key with the account, tier, domains, limits and settings of another one, which holds on for a while.
    KeyRotate {
        /// Which.
        key: KeyRef,
        /// Hexadecimal digest of the new key's text.
        digest: String,
        /// For how many milliseconds the old key holds on; 0: it is revoked at once.
        overlap_ms: i64,
    },
    /// About accounts as a business has them.
    Account(accounts::AccountOp),
    /// About credit.
    Credit(credits::CreditOp),
    /// About operators, and the log of what they did.
    Operator(operators::OperatorOp),
    /// About events for webhooks.
    Event(events::EventOp),
    /// A command with who gives it: it is run and logged.
    By(Box<Acted>),
    /// A reserve of the process that handed the ledger over.
    Reserve(super::remote::RemoteReserve),
    /// A wish of the process that handed the ledger over to raise what one of its calls holds.
    Extend(super::remote::RemoteExtend),
    /// Idempotency keys of the process that handed the ledger over: their calls came to nothing.
    KeysFreed {
        /// Which.
        calls: Vec<super::idempotency::call::FreedKey>,
    },
}

/// A command and who gave it: the store runs it and writes it into the log, whatever it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Who.
    pub actor: Actor,
    /// What. Beside a command's own `op` another name.
    #[serde(rename = "command")]
    pub op: AdminOp,
}

/// Which receipts of an account are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptQuery {
    /// Whose.
    pub account: AccountId,
    /// The most that are given.
    pub limit: u32,
    /// Only those before: what the page before said in `next`.
    pub before: Option<String>,
    /// Only those of this model.
    pub model: Option<String>,
    /// Only that of this request.
    pub id: Option<RequestId>,
    /// Only that of the call that has this name: its request's id, or its answer's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// Only those of calls with this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
}

/// Receipts, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptPage {
    /// The receipts.
    pub receipts: Vec<Receipt>,
    /// Where the next page begins, when there may be one.
    pub next: Option<String>,
    /// Receipts among them that cannot be read, and are left out.
    #[serde(default)]
    pub unreadable: u64,
    /// On which UTC days these were billed, as far as that is known, and how many of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable_days: Vec<(Day, u64)>,
    /// Where one call was asked for that has no receipt yet: it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningCall>,
}

/// What a command does to the ledger. Each command is named where this is decided, so that a new one is not forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It reads and does nothing else: not even a reserve or a claim.
    Reads,
    /// It changes what is found out again, or does no harm when it is lost.
    Passes,
    /// It changes what must not be lost once it is acknowledged.
    Writes,
}

impl AdminOp {
    /// Whether it reads and does nothing else: not even a reserve or a claim.
    pub(in crate::ledger) fn only_reads(&self) -> bool {
        self.effect() == Effect::Reads
    }

    /// Whether it changes what must not be lost once it is acknowledged.
    pub fn writes(&self) -> bool {
        self.effect() == Effect::Writes
    }

    fn effect(&self) -> Effect {
        match self {
            AdminOp::AccountShow { .. }
            | AdminOp::AccountList
            | AdminOp::KeyShow { .. }
            | AdminOp::KeyList { .. }
            | AdminOp::KeySpent { .. }
            | AdminOp::Usage { .. }
            | AdminOp::UsageOf(_)
            | AdminOp::EndUsers(_)
            | AdminOp::Receipts(_)
            | AdminOp::Audit
            | AdminOp::Account(AccountOp::Page(_) | AccountOp::Stopped { .. })
            | AdminOp::Credit(CreditOp::List { .. } | CreditOp::Statement { .. } | CreditOp::Find { .. })
            | AdminOp::Operator(OperatorOp::List | OperatorOp::Find { .. } | OperatorOp::Log(_))
            | AdminOp::Event(EventOp::Count) => Effect::Reads,
            AdminOp::Repair
            | AdminOp::Recover
            | AdminOp::NoteRecovered(_)
            | AdminOp::Reserve(_)
            | AdminOp::Extend(_)
            | AdminOp::KeysFreed { .. }
            | AdminOp::Event(EventOp::Claim { .. } | EventOp::Settle { .. } | EventOp::RaiseExpiring) => Effect::Passes,
            AdminOp::AccountCreate { .. }
            | AdminOp::AccountSet { .. }
            | AdminOp::CreditsAdd { .. }
            | AdminOp::KeyCreate { .. }
            | AdminOp::KeySet { .. }
            | AdminOp::KeyRevoke { .. }
            | AdminOp::KeyRotate { .. }
            | AdminOp::Maintenance { .. }
            | AdminOp::Account(AccountOp::Terms { .. })
            | AdminOp::Credit(CreditOp::Post(_))
            | AdminOp::Operator(OperatorOp::Create { .. } | OperatorOp::Revoke { .. })
            | AdminOp::Event(EventOp::Raise(_)) => Effect::Writes,
            AdminOp::By(acted) => acted.op.effect(),
        }
    }
}

impl ReceiptQuery {
    /// Asks for the newest receipts of an account.
    pub fn newest(account: &AccountId, limit: u32) -> ReceiptQuery {
        ReceiptQuery {
            account: account.clone(),
            limit,
            before: None,
            model: None,
            id: None,
            named: None,
            key: None,
        }
    }

    /// Asks for the receipt of one request.
    pub fn of(account: &AccountId, id: RequestId) -> ReceiptQuery {
        ReceiptQuery {
            id: Some(id),
            ..ReceiptQuery::newest(account, 1)
        }
    }

    /// Asks for the receipt of the call that has this name: its request's id, or its answer's own. Of whichever key it is.
    pub fn named(account: &AccountId, name: &str) -> ReceiptQuery {
        ReceiptQuery {
            named: Some(name.to_owned()),
            ..ReceiptQuery::newest(account, 1)
        }
    }

    /// The one call that is asked for, if it is one.
    pub(super) fn call(&self) -> Option<CallName> {
        match (&self.id, &self.named) {
            (Some(id), _) => Some(CallName::from(*id)),
            (None, Some(name)) => Some(CallName::new(name)),
            (None, None) => None,
        }
    }

    /// Whether a receipt is of the model and the key that are asked for.
    pub(crate) fn is_met_by(&self, receipt: &Receipt) -> bool {
        let Receipt { billed, .. } = receipt;
        self.model.as_deref().is_none_or(|model| *model == *billed.model)
            && self.key.as_ref().is_none_or(|key| *key == billed.key)
    }

    /// The most receipts that one answer has.
    pub fn limit(&self) -> u32 {
        self.limit.clamp(1, RECEIPTS_MAX)
    }
}

impl UsageQuery {
    /// The command that asks for it: the one that earlier versions know too, where it is enough.
    pub fn op(self) -> AdminOp {
        match self.days {
            Days::Period(period) if !self.by_key => AdminOp::Usage {
                account: self.account,
                key: self.key,
                period,
            },
            _ => AdminOp::UsageOf(self),
        }
    }
}

impl ReceiptPage {
    /// One that stands here, and was billed on that day, cannot be read: the others are shown all the same.
    pub(super) fn tell_unreadable(&mut self, account: &AccountId, day: Option<Day>, error: &StoreError) {
        log::error!("a receipt of {account} is left out: {error}");
        self.unreadable = self.unreadable.saturating_add(1);
        let Some(day) = day else { return };
        match self.unreadable_days.iter_mut().find(|(known, _)| *known == day) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.unreadable_days.push((day, 1)),
        }
    }
}

/// A field that is there, even as null: serde alone reads null as a field that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The most receipts of one answer: about half a megabyte.
pub const RECEIPTS_MAX: u32 = 1_000;
/// The most receipts that are looked through for one page: one of a rare model, or key, may have fewer receipts than it could, or none,
/// and still say where the next begins.
pub(super) const LOOKED_THROUGH_MAX: u32 = 20_000;

#[cfg(test)]
mod tests;
