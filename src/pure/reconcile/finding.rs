//! What export and receipts do not agree on.

use serde::Serialize;

use crate::pure::ids::{AccountId, RequestId};
use crate::pure::receipt::Receipt;
use crate::pure::usage::Usage;

/// How a receipt is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceiptName {
    /// Who paid.
    pub account: AccountId,
    /// The request.
    pub request: RequestId,
}

/// Tokens of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// Of its prompt.
    pub prompt: u64,
    /// Of its completion.
    pub completion: u64,
}

/// One thing on which export and receipts do not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "finding")]
pub enum Finding {
    /// The export lists a call that has no receipt.
    Missing {
        /// The export's id.
        id: String,
        /// Its line.
        line: u64,
        /// What the export says.
        export: Tokens,
    },
    /// The export lists a call more than once, or several receipts have its id.
    Doubled {
        /// The export's id, or its ids when it names one receipt by both.
        ids: Vec<String>,
        /// All its lines.
        lines: Vec<u64>,
        /// How many receipts have the id.
        receipts: u64,
        /// The first of them.
        named: Vec<ReceiptName>,
    },
    /// Export and receipt say other tokens.
    Different {
        /// The export's id.
        id: String,
        /// Its line.
        line: u64,
        /// What the export says.
        export: Tokens,
        /// What the provider reported with the answer; where it reported nothing, what was billed.
        receipt: Tokens,
        /// The receipt.
        #[serde(flatten)]
        name: ReceiptName,
    },
    /// A receipt of the provider, of the export's time, that the export does not list.
    Unlisted {
        /// The answer's own id, when there was one.
        id: Option<String>,
        /// What the provider reported with the answer; where it reported nothing, what was billed.
        receipt: Tokens,
        /// The receipt.
        #[serde(flatten)]
        name: ReceiptName,
    },
}

impl ReceiptName {
    pub(super) fn of(receipt: &Receipt) -> ReceiptName {
        ReceiptName {
            account: receipt.billed.account.clone(),
            request: receipt.billed.id,
        }
    }
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Tokens {
        Tokens {
            prompt: usage.prompt.0,
            completion: usage.completion.0,
        }
    }
}

impl Finding {
    /// Where it stands in the list.
    pub(super) fn place(&self) -> (u64, u8) {
        match self {
            Finding::Missing { line, .. } => (*line, 0),
            Finding::Doubled { lines, .. } => (lines.first().copied().unwrap_or(0), 1),
            Finding::Different { line, .. } => (*line, 2),
            Finding::Unlisted { .. } => (u64::MAX, 3),
        }
    }
}
