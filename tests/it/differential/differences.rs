//! Where the transport does not do as Pingora's loop, and why. A difference that is listed and does not occur is a failure too.

use super::observed::Observed;

/// A difference that is meant.
pub struct Listed {
    /// The behaviour's name.
    pub behaviour: &'static str,
    /// Why the transport does otherwise.
    pub reason: &'static str,
    pub pingora: Words,
    pub transport: Words,
}

/// What is observed, as [`Observed`] has it.
pub struct Words {
    pub client: &'static str,
    pub upstream: &'static str,
    pub next: &'static str,
}

impl PartialEq<Observed> for Words {
    fn eq(&self, seen: &Observed) -> bool {
        self.client == seen.client && self.upstream == seen.upstream && self.next == seen.next
    }
}

pub const DIFFERENCES: &[Listed] = &[];
