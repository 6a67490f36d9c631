//! Which events webhooks are told.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kinds, each with its name, once: what is left out of a list would be raised, and could then not be read back.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)+) => {
        /// What an event is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)+
        }

        impl EventKind {
            /// All.
            pub const ALL: [EventKind; [$($name),+].len()] = [$(EventKind::$kind),+];

            /// As webhooks are told.
            pub fn name(self) -> &'static str {
                match self {
                    $(EventKind::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// A balance fell below the account's `low_balance`: once, until it was above it again.
    LowBalance = "account.low_balance",
    /// A call was refused for lack of credit: once, until credit comes in.
    Exhausted = "account.exhausted",
    /// A call was refused by the monthly quota: once a month and quota.
    QuotaReached = "account.quota_reached",
    /// A credit entry was posted.
    CreditsAdded = "credits.added",
    /// A key expires within a week: once.
    KeyExpiring = "key.expiring",
    /// Every target of a provider is out.
    ProviderDown = "provider.down",
    /// An audit found that the books do not balance.
    BooksUnbalanced = "books.unbalanced",
    /// An operator asked for it, to see that it arrives.
    Test = "webhook.test",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_by_its_name() {
        for kind in EventKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("account".parse::<EventKind>().is_err());
    }
}
