//! How a hold that had to grow while its call ran was raised.

/// What the store said when it was asked to raise a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// More is held.
    Granted,
    /// The credit or the quota does not reach so far.
    Refused,
    /// It could not say, or the hold was gone.
    Failed,
}

impl Raised {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// Their names in metrics.
    pub const NAMES: [&'static str; Raised::COUNT] = ["granted", "refused", "failed"];
}
