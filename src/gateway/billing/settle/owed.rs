//! The rule of what a call owes, by what its meter saw and how it ended.

use crate::gateway::admission::Admission;
use crate::gateway::billing::closed_call::Ending;
use crate::gateway::billing::metered::Metered;
use crate::pure::charge::{Ceiling, Delivered, Passing};
use crate::pure::usage::Usage;

/// What the meter's figures come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// Nothing was delivered, or what came was an error.
    Nothing,
    /// Both sides are known.
    Reported(Usage),
    /// The completion was counted; the prompt has to be.
    PromptToCount,
}

/// The rule: an upstream that failed with nothing delivered is free; the provider's report of a whole answer wins; without one, an
/// answer that has begun costs its prompt and what was delivered. Of a whole answer that passed on as it came something was delivered,
/// though no text of it may be counted: vectors, sounds.
pub(super) fn charge(metered: &Metered, ending: Ending) -> Charge {
    let delivered = metered.delivered.0 > 0;
    // That the client has left makes nothing owed that it would not owe had it stayed.
    let has_failed = matches!(ending, Ending::UpstreamFailed | Ending::Stopped | Ending::DrainFailed);
    let has_failed = has_failed && !metered.is_complete && !metered.is_part_passed;
    if !delivered && (metered.is_error || has_failed) {
        return Charge::Nothing;
    }
    if let Some(mut reported) = metered.reported {
        if !metered.is_complete {
            // A report that came before the end, such as one with each event, may be behind what was delivered.
            reported.completion = reported.completion.max(metered.delivered);
        }
        return Charge::Reported(reported);
    }
    match ending {
        _ if delivered => Charge::PromptToCount,
        // An answer without a token is paid for when it came to its end; one of which nothing came is not.
        Ending::Complete | Ending::Drained | Ending::Dropped | Ending::UpstreamFailed | Ending::Stopped
            if !metered.began =>
        {
            Charge::Nothing
        }
        Ending::Complete
        | Ending::Drained
        | Ending::UpstreamFailed
        | Ending::Stopped
        | Ending::ClientGone
        | Ending::DrainEnded { .. }
        | Ending::DrainFailed
        | Ending::Dropped => Charge::PromptToCount,
    }
}

/// The completion of an answer that was read on and is not over ([`Metered::is_over`]), by the time that it had: at least what was
/// delivered.
pub(super) fn estimate_unseen(admission: &Admission, elapsed_ms: u64, metered: &mut Metered) {
    let (rate, counted) = (admission.permit.model().unseen_tokens_per_second(), metered.delivered);
    metered.counted = Some(counted);
    metered.delivered = admission.ceiling.unseen(counted, Some(rate), elapsed_ms);
    // Its finish reason came too early, if it had one: what was reported may be of before the end.
    metered.is_complete = false;
}

/// Bounds what was counted by what the provider was told that there may be, unless it has certainly sent more: an error of our count is no
/// reason to bill more. `passing`: where a stream stood; a whole answer was counted at once, so nothing but another tokenizer explains a
/// difference.
pub(super) fn bound_count(admission: &Admission, passing: Option<Passing>, metered: &mut Metered, charge: &mut Charge) {
    if admission.cap.is_none() {
        return;
    }
    let (ceiling, model) = (&admission.ceiling, admission.permit.model());
    let counted = Delivered {
        tokens: metered.delivered,
        bytes: u64::MAX,
    };
    let passing = passing.unwrap_or_else(|| ceiling.passing(counted, Ceiling::is_known(&model.id)));
    if passing != Passing::Within {
        return;
    }
    metered.delivered = metered.delivered.min(ceiling.completion);
    if let Charge::Reported(usage) = charge {
        usage.completion = usage.completion.min(ceiling.completion);
    }
}

/// Whether the client is why there is no report: it left while one could still come, and nothing else ended the answer. What cannot be
/// counted is owed as it was held then, or to leave would make it free. Where the provider itself reports nothing, it is not.
pub(super) fn is_unread(metered: &Metered, ending: Ending) -> bool {
    match ending {
        Ending::ClientGone | Ending::DrainEnded { .. } => !metered.is_over && !metered.is_error,
        Ending::Complete
        | Ending::Drained
        | Ending::UpstreamFailed
        | Ending::Stopped
        | Ending::DrainFailed
        | Ending::Dropped => false,
    }
}
