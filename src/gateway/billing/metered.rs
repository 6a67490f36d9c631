//! The meter's result, which settling bills.

use rust_decimal::Decimal;

use crate::pure::bill::Bill;
use crate::pure::usage::{CompletionTokens, PromptTokens, Reports, TokenKinds, Usage};

/// What is known of an answer's use once it is over.
pub(in crate::gateway) struct Metered {
    /// The provider's report of both sides.
    pub(in crate::gateway) reported: Option<Usage>,
    /// The completion as its reports name it, where `reported` is believed: that may have what was counted, where they are behind.
    pub(in crate::gateway) reported_completion: Option<CompletionTokens>,
    /// The provider's report of the prompt alone.
    pub(in crate::gateway) prompt: Option<PromptTokens>,
    /// The prompt as it was counted for the client to be told, where it was not reported.
    pub(in crate::gateway) counted_prompt: Option<PromptTokens>,
    /// What kinds of tokens they consist of.
    pub(in crate::gateway) kinds: TokenKinds,
    /// The tier by which the provider served it, as that says.
    pub(in crate::gateway) tier: Option<Box<str>>,
    /// What the provider says that it cost.
    pub(in crate::gateway) cost: Option<Decimal>,
    /// The bill that the client was told at the answer's end.
    pub(in crate::gateway) told: Option<Bill>,
    /// Tokens counted in what was delivered.
    pub(in crate::gateway) delivered: CompletionTokens,
    /// The same, where `delivered` is an estimate by time.
    pub(in crate::gateway) counted: Option<CompletionTokens>,
    /// The upstream said that it failed, or what came was no answer.
    pub(in crate::gateway) is_error: bool,
    /// The answer came to its end.
    pub(in crate::gateway) is_complete: bool,
    /// Nothing more could follow: a stream has had its last event, or its finish and a report that is believed, and no text has come since
    /// that finish; all of a whole answer has come, or its report behind all of its text.
    pub(in crate::gateway) is_over: bool,
    /// A whole answer passed on as it came, and stopped within its object.
    pub(in crate::gateway) is_part_passed: bool,
    /// Whether anything was passed on.
    pub(in crate::gateway) began: bool,
    /// Reports that were not believed.
    pub(in crate::gateway) rejected_reports: u64,
    /// One of them gave a completion that the answer cannot have.
    pub(in crate::gateway) is_implausible: bool,
    /// Tokens of the reported total that are on neither side.
    pub(in crate::gateway) beyond_sides: u64,
}

impl Metered {
    /// The prompt, where nobody has to count it any more.
    pub(super) fn known_prompt(&self) -> Option<PromptTokens> {
        self.prompt.or(self.counted_prompt)
    }
}

/// What reports say of an answer of which `reported` is believed; the rest of it is to be filled in.
pub(super) fn read(reports: &Reports, reported: Option<Usage>) -> Metered {
    Metered {
        reported,
        // Vectors have a completion of 0, which no report names.
        reported_completion: reported.map(|usage| reports.completion().unwrap_or(usage.completion)),
        prompt: reports.prompt(),
        counted_prompt: None,
        kinds: reports.kinds_of(reported),
        tier: None,
        cost: reported.and_then(|usage| reports.cost_of(usage)),
        rejected_reports: reports.rejected(),
        told: None,
        delivered: CompletionTokens(0),
        counted: None,
        is_error: false,
        is_complete: false,
        is_over: false,
        is_part_passed: false,
        is_implausible: false,
        beyond_sides: reports.beyond_sides(),
        began: false,
    }
}
