//! Whether an error in the place of an answer, or within one, speaks of the operator's key or account with the provider, or refuses what the
//! request says. Its client reads none of it, and the operator is told.

use super::{Meter, Tap};

impl Meter {
    /// The words by which it does: those of the tables that refusals are read by.
    pub(in crate::gateway) fn about_operator(&self) -> Option<&'static str> {
        match &self.tap {
            Tap::Stream(tap) => tap.about_operator().or_else(|| self.start.about_operator()),
            Tap::Whole(whole) => whole.tap.about_operator(),
        }
    }

    /// Whether it refuses what the request says: its provider may charge for that.
    pub(in crate::gateway) fn flags_content(&self) -> bool {
        match &self.tap {
            Tap::Stream(tap) => tap.flags_content() || self.start.flags_content(),
            Tap::Whole(whole) => whole.tap.flags_content(),
        }
    }
}
