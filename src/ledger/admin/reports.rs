//! What an audit and a recovery found.

use serde::{Deserialize, Serialize};

use crate::ledger::records::pico;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

/// Whether the books balance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditReport {
    /// How many accounts were checked.
    pub accounts: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What does not balance; empty when all does.
    pub findings: Vec<AuditFinding>,
}

/// One account where the books do not balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFinding {
    /// Which.
    pub account: AccountId,
    /// The rule that is broken, such as `top-ups - debits = balance`.
    pub rule: String,
    /// What the rule expects, in 10^-12 credit.
    #[serde(with = "pico")]
    pub expected: Credits,
    /// What stands there, in 10^-12 credit.
    #[serde(with = "pico")]
    pub found: Credits,
}

/// What recovery found in the journals of dead owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoverReport {
    /// Journals read.
    pub journals: u64,
    /// Debits taken now.
    pub settled: u64,
    /// Debits that the store had already.
    pub already: u64,
    /// Holds given back.
    pub released: u64,
    /// What could not be read, a line each.
    pub refused: Vec<String>,
}
