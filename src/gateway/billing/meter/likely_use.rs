//! What the provider of an answer that is thrown away is likely to charge for it.

use super::{Meter, Tap};
use crate::pure::usage::{CompletionTokens, PromptTokens};

impl Meter {
    /// What the provider is likely to charge for an answer of which nothing was passed on: the prompt where it reported it, and the
    /// completion that it reported, or that can be counted in what came. None for an error.
    pub(in crate::gateway) fn likely_use(mut self) -> Option<(Option<PromptTokens>, CompletionTokens)> {
        let whole = match &mut self.tap {
            Tap::Stream(_) => self.start.other(),
            Tap::Whole(whole) => Some(&mut whole.tap),
        };
        let of_whole = whole.map(|tap| {
            tap.end();
            (
                tap.reports().prompt(),
                tap.reported(),
                tap.delivered(),
                tap.is_failure(),
            )
        });
        let (prompt, reported, delivered, is_error) = match (of_whole, &self.tap) {
            (None, Tap::Stream(tap)) => (
                tap.reports().prompt(),
                tap.reported(),
                tap.delivered(),
                tap.error_event(),
            ),
            (of_whole, _) => of_whole?,
        };
        let completion = reported.map_or(delivered, |usage| usage.completion.max(delivered));
        (!is_error).then_some((prompt, completion))
    }
}
