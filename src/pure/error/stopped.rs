//! An account whose operator has stopped it.

/// Why an account may not call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccountStop {
    /// Not now.
    Suspended,
    /// Never again.
    Closed,
}

impl AccountStop {
    /// For metadata, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            AccountStop::Suspended => "account_suspended",
            AccountStop::Closed => "account_closed",
        }
    }

    /// For people.
    pub fn message(self) -> &'static str {
        match self {
            AccountStop::Suspended => "This account is suspended.",
            AccountStop::Closed => "This account is closed.",
        }
    }
}
