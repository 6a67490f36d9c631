//! Which events webhooks are told.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EventKind {
    /// A balance fell below the account's `low_balance`: once, until it was above it again.
    #[serde(rename = "account.low_balance")]
    LowBalance,
    /// A call was refused for lack of credit: once, until credit comes in.
    #[serde(rename = "account.exhausted")]
    Exhausted,
    /// A call was refused by the monthly quota: once a month and quota.
    #[serde(rename = "account.quota_reached")]
    QuotaReached,
    /// A credit entry was posted.
    #[serde(rename = "credits.added")]
    CreditsAdded,
    /// A key expires within a week: once.
    #[serde(rename = "key.expiring")]
    KeyExpiring,
    /// Every target of a provider is out.
    #[serde(rename = "provider.down")]
    ProviderDown,
    /// An audit found that the books do not balance.
    #[serde(rename = "books.unbalanced")]
    BooksUnbalanced,
    /// An operator asked for it, to see that it arrives.
    #[serde(rename = "webhook.test")]
    Test,
}

impl EventKind {
    /// All.
    pub const ALL: [EventKind; 8] = [
        EventKind::LowBalance,
        EventKind::Exhausted,
        EventKind::QuotaReached,
        EventKind::CreditsAdded,
        EventKind::KeyExpiring,
        EventKind::ProviderDown,
        EventKind::BooksUnbalanced,
        EventKind::Test,
    ];

    /// As webhooks are told.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::LowBalance => "account.low_balance",
            EventKind::Exhausted => "account.exhausted",
            EventKind::QuotaReached => "account.quota_reached",
            EventKind::CreditsAdded => "credits.added",
            EventKind::KeyExpiring => "key.expiring",
            EventKind::ProviderDown => "provider.down",
            EventKind::BooksUnbalanced => "books.unbalanced",
            EventKind::Test => "webhook.test",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EventKind {
    type Err = String;

    fn from_str(text: &str) -> Result<EventKind, String> {
        EventKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("no event is called {text}"))
    }
}
