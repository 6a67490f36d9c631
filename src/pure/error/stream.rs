//! What a stream's client is told by an event of its own, when the answer has begun and cannot end as it should.

/// Message, type and code of an event of error.
pub type StreamError = (&'static str, &'static str, u16);

/// The provider failed within the answer.
pub const STREAM_FAILED: StreamError = (
    "The model's provider failed before the answer was complete.",
    "upstream_error",
    502,
);

/// The gateway stops, and no longer waits for the answer.
pub const STREAM_STOPPED: StreamError = (
    "The gateway was stopped before the answer was complete.",
    "service_unavailable",
    503,
);

/// The ledger cannot say whether the rest of the answer can be paid.
pub const STREAM_WITHOUT_LEDGER: StreamError = (
    "The ledger cannot be reached, and what was set aside for this answer is used up or may be gone.",
    "service_unavailable",
    503,
);
