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
    /// What does not balance; empty when all that was checked does.
    pub findings: Vec<AuditFinding>,
    /// How many accounts could not be checked.
    #[serde(default)]
    pub unchecked: u64,
    /// Which, and why: a line each, of 20 of them at most.
    #[serde(default)]
    pub why_unchecked: Vec<String>,
    /// All of them, where the audit was made by this process.
    #[serde(skip)]
    pub passed_over: Vec<AccountId>,
}

impl AuditReport {
    /// Whether all accounts were checked, and nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.unchecked == 0
    }

    /// Notes an account that could not be checked.
    pub fn pass_over(&mut self, account: &AccountId, why: &str) {
        self.unchecked = self.unchecked.saturating_add(1);
        self.passed_over.push(account.clone());
        if self.why_unchecked.len() < UNCHECKED_MAX {
            self.why_unchecked.push(format!("{account}: {why}"));
        }
    }
}

/// How many accounts that could not be checked are named.
const UNCHECKED_MAX: usize = 20;

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
    /// What could not be read or done, a line each.
    pub refused: Vec<String>,
}
