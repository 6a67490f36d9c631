//! The limits by which a call is refused for a while.

/// The limits that answer 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Calls at once.
    Concurrency,
    /// Failed authentications from one address.
    FailedAuthentication,
    /// Memory that the request bodies of one key take.
    BodyMemoryOfKey,
    /// Memory that the request bodies from one address take.
    BodyMemoryOfAddress,
    /// End users of a key with a limit for each, in one period.
    EndUsers,
    /// Idempotency keys of one API key that are known.
    IdempotencyKeys,
    /// Reports of one account at once: its usage and its calls.
    Reports,
}

impl LimitKind {
    /// For messages, metadata and metrics.
    pub fn name(self) -> &'static str {
        match self {
            LimitKind::Requests => "requests_per_minute",
            LimitKind::Tokens => "tokens_per_minute",
            LimitKind::Concurrency => "concurrent_requests",
            LimitKind::FailedAuthentication => "failed_authentications",
            LimitKind::BodyMemoryOfKey => "body_memory_bytes_per_key",
            LimitKind::BodyMemoryOfAddress => "body_memory_bytes_per_address",
            LimitKind::EndUsers => "end_users_per_key",
            LimitKind::IdempotencyKeys => "idempotency_keys_per_key",
            LimitKind::Reports => "concurrent_reports",
        }
    }
}
