//! What commands answer, and why they are refused.

use serde::{Deserialize, Serialize};

use super::ReceiptPage;
use super::accounts::{AccountPage, AccountView};
use super::credits::{CreditEntry, CreditPage, Posted, Statement};
use super::events::{Event, EventCount};
use super::operators::{ActPage, OperatorRecord};
use super::reports::{AuditFinding, AuditReport, RecoverReport};
use crate::ledger::query::{EndUserUsage, KeyedRow};
use crate::ledger::terms::AccountStatus;
use crate::ledger::{KeyRecord, UsageRow, pico};
use crate::pure::account::Spent;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;

/// What a command answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reply")]
pub enum AdminReply {
    /// An account, as it stands now.
    Account(AccountView),
    /// All accounts.
    Accounts {
        /// In the order of their names, without their keys.
        accounts: Vec<AccountView>,
    },
    /// A top-up.
    Credited {
        /// False when this reference had counted before.
        added: bool,
        /// The balance now.
        #[serde(with = "pico")]
        balance: Credits,
    },
    /// A key, made, changed or revoked.
    Key(KeyRecord),
    /// What a key has spent.
    KeySpent {
        /// In the period, in 10^-12 credit.
        #[serde(with = "pico")]
        spent: Credits,
        /// By its open calls, in 10^-12 credit.
        #[serde(with = "pico")]
        held: Credits,
    },
    /// Keys.
    Keys {
        /// Oldest first.
        keys: Vec<KeyRecord>,
        /// Whether their account may call; none where a gateway of before it was told answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account_status: Option<AccountStatus>,
    },
    /// Usage.
    Usage {
        /// Oldest day first.
        rows: Vec<UsageRow>,
    },
    /// Usage, as it was asked for.
    UsageOf {
        /// Oldest day first.
        rows: Vec<KeyedRow>,
    },
    /// Usage by end user.
    EndUsers {
        /// Its sums.
        usage: EndUserUsage,
    },
    /// Receipts.
    Receipts(ReceiptPage),
    /// An audit.
    Audit(AuditReport),
    /// What was mended.
    Repaired {
        /// The counters as they were found, and as their entries say.
        findings: Vec<AuditFinding>,
    },
    /// Maintenance, as it is now.
    Maintenance {
        /// The state.
        on: bool,
    },
    /// What recovery did.
    Recovered(RecoverReport),
    /// A page of accounts.
    AccountPage(AccountPage),
    /// What became of a credit entry.
    Posted(Posted),
    /// Credit entries.
    CreditPage(CreditPage),
    /// An entry that was looked for.
    CreditFound {
        /// Whose it is, where that is known.
        account: Option<AccountId>,
        /// The entry, if there is one.
        entry: Option<CreditEntry>,
    },
    /// A statement.
    Statement(Statement),
    /// An operator, made or revoked.
    Operator(OperatorRecord),
    /// Operators.
    Operators {
        /// Oldest first.
        operators: Vec<OperatorRecord>,
    },
    /// Acts of the log.
    Acts(ActPage),
    /// Events.
    Events {
        /// Oldest first.
        events: Vec<Event>,
        /// Of a claim that was in part: why there may be more, which could not be asked for or read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missed: Option<String>,
    },
    /// What is still to be told to webhooks.
    EventCount(EventCount),
    /// It is done, and there is nothing to tell.
    Done,
    /// A reserve.
    Reserved(crate::ledger::remote::RemoteReply),
    /// A wish to raise a hold.
    Extended(crate::ledger::remote::RemoteExtended),
}

impl AdminReply {
    /// The usage rows that it has; none when it is another reply.
    pub fn into_usage(self) -> Option<Vec<KeyedRow>> {
        match self {
            AdminReply::Usage { rows } => Some(rows.into_iter().map(|row| KeyedRow { key: None, row }).collect()),
            AdminReply::UsageOf { rows } => Some(rows),
            _ => None,
        }
    }

    /// The sums by end user that it has; none when it is another reply.
    pub fn into_end_users(self) -> Option<EndUserUsage> {
        match self {
            AdminReply::EndUsers { usage } => Some(usage),
            _ => None,
        }
    }
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "error", content = "text")]
pub enum AdminError {
    /// No such account.
    #[error("no account is named {0}")]
    NoAccount(AccountId),
    /// The name is taken.
    #[error("an account named {0} exists already")]
    AccountExists(AccountId),
    /// No such key.
    #[error("no such key")]
    NoKey,
    /// No such operator.
    #[error("no operator has the id {0}")]
    NoOperator(String),
    /// The reference was used with another amount or kind, or the payment was credited to another account.
    #[error("reference {0} was used before with another amount or kind, or is a payment of another account")]
    ReferenceConflict(String),
    /// Nothing is wrong with the command, but it does not go with what is there. Earlier versions know no such error, so it is told as
    /// [`AdminError::Invalid`], and read as that.
    #[error("{0}")]
    #[serde(rename = "invalid", skip_deserializing)]
    Conflict(String),
    /// Anything else that is wrong with the command.
    #[error("{0}")]
    Invalid(String),
    /// It was written, but no replica has it yet: a fail-over may lose it. The text says what holds.
    #[error("not confirmed: {0}")]
    NotConfirmed(String),
    /// The store works, and a report did not get its turn in time, as [`StoreError::Busy`](crate::ledger::StoreError::Busy) says.
    #[error("{0}")]
    Busy(String),
    /// The store failed; whether the command took effect is unknown unless the text says so.
    #[error("the store failed: {0}")]
    Store(String),
}

impl From<Spent> for AdminReply {
    fn from(Spent { spent, held }: Spent) -> AdminReply {
        AdminReply::KeySpent { spent, held }
    }
}
