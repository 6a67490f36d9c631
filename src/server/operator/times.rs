//! How long the parts of an exchange may take.

use std::time::Duration;

/// How long parts of an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the beginning of a connection, or from its last answer, until a head is there.
    pub head: Duration,
    /// From there to the answer.
    pub answer: Duration,
}

impl Default for Times {
    /// A minute each.
    fn default() -> Times {
        Times {
            head: Duration::from_secs(60),
            answer: Duration::from_secs(60),
        }
    }
}
