//! What a 503 is for, as metrics and the access log name it.

use super::{ApiError, STREAM_STOPPED};

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

impl ApiError {
    /// What comes when the process is about to end.
    pub const STOPPING: ApiError = ApiError::unavailable(Unavailable::Stopping, "The gateway is stopping.", 1);

    /// As [`STREAM_STOPPED`], where nothing of the answer was sent.
    pub const STOPPED: ApiError = ApiError::unavailable(Unavailable::Stopping, STREAM_STOPPED.0, 1);

    /// What comes when the ledger cannot be asked: never "allowed".
    pub const LEDGER_UNREACHABLE: ApiError =
        ApiError::unavailable(Unavailable::Ledger, "The ledger cannot be reached right now.", 2);

    /// What comes when no connection to a provider can be opened: too many files are open.
    pub const NO_SOCKET: ApiError = ApiError::unavailable(
        Unavailable::Connection,
        "The gateway can open no connection right now.",
        2,
    );

    const fn unavailable(what: Unavailable, message: &'static str, retry_after_secs: u64) -> ApiError {
        ApiError::Unavailable {
            what,
            message,
            retry_after_secs,
        }
    }
}
