//! What metrics, access log and traces call things: few names, none of a caller's making.
//!
//! [`RouteName`] is no copy of `gateway::api::router::Route`, which says what to answer and has what a caller wrote in the path. As a label it
//! would be without end. A name stands for one or several routes, and there are names for requests that have none: `gateway::recorder` maps
//! each route to its name in one match, which the compiler holds complete.

use crate::pure::error::{ApiError, KeyFault, LimitKind};
use crate::pure::spend::Spender;

/// What a request asked for, as metrics and the access log name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteName {
    /// No path of the interface, or a request that was not looked at.
    #[default]
    None,
    /// A chat completion, in whole or streamed by the body's wish.
    Chat,
    /// A chat completion that is always streamed.
    ChatStream,
    /// Embeddings.
    Embeddings,
    /// The balance.
    Balance,
    /// The key's own facts.
    Key,
    /// The usage summary.
    Usage,
    /// Receipts: of one call or of many.
    Generations,
    /// The models of the key's tier, in either shape.
    Models,
    /// The purposes.
    Purposes,
    /// The public list of models.
    PublicModels,
    /// Liveness.
    Health,
    /// The OpenAPI description.
    Description,
    /// The pages for browsers and their files: the wallet, the list of prices.
    Page,
    /// A browser's question before its request.
    Preflight,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Answered to the end.
    Complete,
    /// Refused by the gateway: `reason` says why.
    Denied,
    /// Refused by the provider as the client's own mistake.
    Refused,
    /// The provider failed, before or within the answer.
    UpstreamFailed,
    /// The client went away before the end.
    ClientGone,
    /// The gateway ended its answer since the ledger could not say whether its credit is set aside.
    LedgerFailed,
    /// The gateway dropped it: a stop that no longer waited, a stream whose account was stopped or had no credit any more, or a panic, after
    /// which there is no status.
    #[default]
    Dropped,
}

impl RouteName {
    /// The label's value.
    pub fn name(self) -> &'static str {
        match self {
            RouteName::None => "none",
            RouteName::Chat => "chat",
            RouteName::ChatStream => "chat_stream",
            RouteName::Embeddings => "embeddings",
            RouteName::Balance => "balance",
            RouteName::Key => "key",
            RouteName::Usage => "usage",
            RouteName::Generations => "generations",
            RouteName::Models => "models",
            RouteName::Purposes => "purposes",
            RouteName::PublicModels => "public_models",
            RouteName::Health => "health",
            RouteName::Description => "description",
            RouteName::Page => "page",
            RouteName::Preflight => "preflight",
        }
    }

    /// The operation's name in OpenTelemetry's conventions for generative AI.
    pub fn operation(self) -> &'static str {
        match self {
            RouteName::Embeddings => "embeddings",
            _ => "chat",
        }
    }
}

impl Outcome {
    /// The label's value, and that in the access log.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Denied => "denied",
            Outcome::Refused => "refused",
            Outcome::UpstreamFailed => "upstream_failed",
            Outcome::ClientGone => "client_gone",
            Outcome::LedgerFailed => "ledger_failed",
            Outcome::Dropped => "dropped",
        }
    }
}

/// The reasons of denials. Each is a label's value, so there are few of them and none comes from a caller.
pub(super) fn reason(error: &ApiError) -> Option<&'static str> {
    Some(match error {
        ApiError::BadRequest(_) => "invalid_request",
        ApiError::HeadTooLarge { .. } => "head_too_large",
        ApiError::BodyTooLarge { .. } => "body_too_large",
        ApiError::BodyTimeout => "body_timeout",
        ApiError::Unauthenticated(KeyFault::Missing) => "key_missing",
        ApiError::Unauthenticated(KeyFault::Invalid) => "key_invalid",
        ApiError::InsufficientCredits(shortage) if shortage.in_flight => "credit_in_flight",
        ApiError::InsufficientCredits(_) => "insufficient_credits",
        ApiError::AccountShort(shortage) if shortage.in_flight => "credit_in_flight",
        ApiError::AccountShort(shortage) if shortage.is_quota => "quota_exceeded",
        ApiError::AccountShort(_) => "insufficient_credits",
        ApiError::LimitSpent(shortage) if shortage.spender == Spender::EndUser => "end_user_limit_spent",
        ApiError::LimitSpent(_) => "key_limit_spent",
        ApiError::QuotaExceeded { .. } => "quota_exceeded",
        ApiError::Forbidden(_) => "forbidden",
        ApiError::AccountStopped(stop) => stop.name(),
        ApiError::NotFound(_) => "not_found",
        ApiError::MethodNotAllowed { .. } => "method_not_allowed",
        ApiError::RateLimited { limit, .. } => limit.name(),
        ApiError::EndUsersFull { .. } => LimitKind::EndUsers.name(),
        ApiError::KeyRepeated(refusal) => refusal.name(),
        ApiError::Internal => "internal",
        ApiError::BodyMemoryFull { .. } => "body_memory_bytes",
        ApiError::Unavailable { what, .. } => what.name(),
        ApiError::UpstreamRefused { .. }
        | ApiError::UpstreamBusy { .. }
        | ApiError::UpstreamFailed
        | ApiError::CredentialRefused
        | ApiError::UpstreamUnreachable => return None,
    })
}

/// The kind of a fault: a provider served a call by a tier that the catalogue has no prices for.
pub const UNKNOWN_TIER: &str = "unknown_service_tier";
/// The kind of a fault: a provider reported completions that cannot be.
pub const IMPLAUSIBLE_USAGE: &str = "implausible_usage";
/// The kind of a fault: a provider refused what a request says, and may charge for it.
pub const CONTENT_REFUSED: &str = "content_refused";
/// The status of a client that left before it got one.
pub const CLIENT_GONE: u16 = 499;
