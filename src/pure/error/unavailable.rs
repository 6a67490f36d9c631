//! What a 503 is for, as metrics and the access log name it.

/// What is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The ledger: it cannot be asked.
    Ledger,
    /// A connection to a provider: this process can open none, for no fault of the provider's.
    Connection,
    /// The process: it has just begun, and has no ledger yet.
    Starting,
    /// The process: it is about to end.
    Stopping,
    /// The service, as its operator says.
    Maintenance,
}

impl Unavailable {
    /// The reason of a denial.
    pub fn name(self) -> &'static str {
        match self {
            Unavailable::Ledger => "store",
            Unavailable::Connection => "no_connection",
            Unavailable::Starting => "starting",
            Unavailable::Stopping => "stopping",
            Unavailable::Maintenance => "maintenance",
        }
    }
}
