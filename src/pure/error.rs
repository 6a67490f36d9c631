//! Every refusal and failure a caller can see, and the one table that turns it into HTTP.
//!
//! The only module that names HTTP status numbers. Whatever a caller branches on is a variant here.

use serde_json::json;

mod credit;
mod limit;
pub mod operator;
pub mod provider_words;
mod stopped;
mod stream;
mod unavailable;
mod wire;

pub use self::credit::{AccountShortage, SpendShortage};
use self::credit::{account_short, credits, quota_exceeded, spent};
pub use self::limit::LimitKind;
use self::provider_words::Named;
pub use self::stopped::AccountStop;
pub use self::stream::{STREAM_FAILED, STREAM_STOPPED, STREAM_WITHOUT_LEDGER, StreamError};
pub use self::unavailable::Unavailable;
pub use self::wire::WireError;

use super::idempotency::KeyRefusal;
use super::money::Credits;
use super::time::Timestamp;

/// Why a call is not answered with what it asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiError {
    /// The request is malformed; the text says where.
    BadRequest(String),
    /// The body is larger than the limit, in bytes.
    BodyTooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// The request's header fields are larger than the limit, in bytes.
    HeadTooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// The sender was too slow with its body.
    BodyTimeout,
    /// The key is missing, wrong, expired or revoked. Never says more, so that a guesser learns nothing.
    Unauthenticated(KeyFault),
    /// Too little credit for the call.
    InsufficientCredits(CreditShortage),
    /// The month's quota does not cover the call.
    QuotaExceeded {
        /// The quota of the month.
        quota: Credits,
        /// Spent this month.
        used: Credits,
        /// Held by the caller's own running calls.
        held: Credits,
        /// What the call needs at least. None where that was not asked, for nothing is left.
        needed: Option<Credits>,
        /// When the month is over.
        resets_at: Option<Timestamp>,
    },
    /// The account cannot pay, and its figures are not the caller's to know: its key is locked to domains, which every visitor of a page
    /// can read.
    AccountShort(AccountShortage),
    /// The hard limit of the key, or of its end user, does not cover the call.
    LimitSpent(SpendShortage),
    /// Tier or domain lock forbid it; the text says which.
    Forbidden(String),
    /// The account may not call.
    AccountStopped(AccountStop),
    /// No such path, or no such model; the text says which.
    NotFound(String),
    /// The path exists, the method does not.
    MethodNotAllowed {
        /// What goes into `Allow`.
        allow: &'static str,
    },
    /// A rate limit stands in the way.
    RateLimited {
        /// Which one.
        limit: LimitKind,
        /// Its value.
        value: u64,
        /// Seconds until it makes sense to come back.
        retry_after_secs: u64,
    },
    /// So many end users of a key have spent something, and none of them is ever forgotten: 429, for good.
    EndUsersFull {
        /// How many may.
        value: u64,
    },
    /// The request's `Idempotency-Key` is known.
    KeyRepeated(KeyRefusal),
    /// A fault of the gateway's own.
    Internal,
    /// The upstream refused the request as such (400, 404, 413, 422 and their like): its status and words are the client's.
    UpstreamRefused {
        /// The upstream's status, 400 to 499.
        status: u16,
        /// The upstream's message.
        message: String,
        /// What it names beside. In a box: errors are small.
        named: Box<Named>,
    },
    /// All upstreams of the model said that they are busy.
    UpstreamBusy {
        /// Seconds, as the upstream said, else a default.
        retry_after_secs: u64,
    },
    /// The upstream failed; its words stay inside.
    UpstreamFailed,
    /// All upstreams of the model refuse the gateway's own credential, or the account behind it: until its operator acts no retry helps.
    CredentialRefused,
    /// The upstream does not answer: no connection, bad TLS, time-out, a reset.
    UpstreamUnreachable,
    /// All the memory that request bodies may take is taken.
    BodyMemoryFull {
        /// Seconds until a retry makes sense.
        retry_after_secs: u64,
    },
    /// Something is missing without which there are no calls.
    Unavailable {
        /// What.
        what: Unavailable,
        /// The same, in a sentence.
        message: &'static str,
        /// Seconds until a retry makes sense.
        retry_after_secs: u64,
    },
}

/// What is wrong with a key, for the message; the type is always `authentication_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// No `Authorization: Bearer` header.
    Missing,
    /// Unknown, malformed, expired or revoked.
    Invalid,
}

/// How a call's credit falls short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditShortage {
    /// What the account could pay now: balance less what its running calls hold.
    pub available: Credits,
    /// What its running calls hold.
    pub held: Credits,
    /// What the call would need at least. None where that was not asked, for nothing is left.
    pub needed: Option<Credits>,
    /// How many completion tokens it could pay for, when the request asked for more.
    pub affordable_tokens: Option<u64>,
    /// Whether the call would be covered if none of its own calls were running.
    pub in_flight: bool,
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

    /// What comes when an account asks for reports faster than they are made.
    pub const REPORTS_AT_ONCE: ApiError = ApiError::RateLimited {
        limit: LimitKind::Reports,
        value: 1,
        retry_after_secs: 1,
    };

    /// The one table from causes to HTTP.
    pub fn to_wire(&self) -> WireError {
        match self {
            ApiError::BadRequest(message) => WireError::new(400, "invalid_request_error", message).final_answer(),
            ApiError::BodyTooLarge { max } => WireError::new(
                413,
                "invalid_request_error",
                format!("The request body is larger than {max} bytes."),
            )
            .final_answer(),
            ApiError::HeadTooLarge { max } => WireError::new(
                431,
                "invalid_request_error",
                format!("The request's header fields are larger than {max} bytes."),
            )
            .final_answer(),
            ApiError::BodyTimeout => {
                WireError::new(408, "invalid_request_error", "The request body did not arrive in time.")
            }
            ApiError::Unauthenticated(fault) => {
                let message = match fault {
                    KeyFault::Missing => "No API key. Send it as: Authorization: Bearer <API_KEY>.",
                    KeyFault::Invalid => "The API key is wrong, expired or revoked.",
                };
                WireError::new(401, "authentication_error", message).final_answer()
            }
            ApiError::InsufficientCredits(shortage) => credits(shortage),
            ApiError::QuotaExceeded {
                quota,
                used,
                held,
                needed,
                resets_at,
            } => quota_exceeded((*quota, *used, *held), *needed, *resets_at),
            ApiError::AccountShort(shortage) => account_short(shortage),
            ApiError::LimitSpent(shortage) => spent(shortage),
            ApiError::Forbidden(message) => WireError::new(403, "permission_error", message).final_answer(),
            ApiError::AccountStopped(stop) => WireError::new(403, "permission_error", stop.message())
                .with(&json!({ "reason": stop.name() }))
                .final_answer(),
            ApiError::NotFound(message) => WireError::new(404, "not_found_error", message).final_answer(),
            ApiError::MethodNotAllowed { allow } => {
                let mut wire = WireError::new(405, "invalid_request_error", format!("Use {allow} for this path."));
                wire.allow = Some(allow);
                wire.final_answer()
            }
            ApiError::RateLimited {
                limit,
                value,
                retry_after_secs,
            } => {
                let name = limit.name();
                let message = format!("Rate limit reached: {name}, limit {value}.");
                let wire = WireError::new(429, "rate_limit_error", message)
                    .with(&json!({ "limit": name, "value": value }))
                    .retry_after(*retry_after_secs);
                // Of end users it is until the period ends, which may be a month: clients that wait for no more than a minute ask at once.
                match *retry_after_secs > WAITED_SECS_MAX {
                    true => wire.final_answer(),
                    false => wire,
                }
            }
            ApiError::EndUsersFull { value } => {
                let name = LimitKind::EndUsers.name();
                let message = format!("Rate limit reached: {name}, limit {value}.");
                WireError::new(429, "rate_limit_error", message)
                    .with(&json!({ "limit": name, "value": value }))
                    .final_answer()
            }
            ApiError::KeyRepeated(refusal) => key_repeated(*refusal),
            ApiError::Internal => WireError::new(500, "internal_error", "The gateway failed on this request."),
            ApiError::UpstreamRefused { status, message, named } => {
                let kind = if *status == 404 {
                    "not_found_error"
                } else {
                    "invalid_request_error"
                };
                let mut wire = WireError::new(*status, kind, message).final_answer();
                wire.param = named.param.clone();
                match &named.code {
                    Some(code) => wire.with(&json!({ "provider_code": code })),
                    None => wire,
                }
            }
            ApiError::UpstreamBusy { retry_after_secs } => {
                WireError::new(429, "rate_limit_error", "The model's provider is busy.").retry_after(*retry_after_secs)
            }
            ApiError::UpstreamFailed => WireError::new(500, "upstream_error", FAILED),
            ApiError::CredentialRefused => WireError::new(500, "upstream_error", FAILED).final_answer(),
            ApiError::UpstreamUnreachable => WireError::new(
                502,
                "upstream_error",
                "The model's provider does not respond. Try another model.",
            ),
            ApiError::BodyMemoryFull { retry_after_secs } => WireError::new(
                503,
                "service_unavailable",
                "Other requests take all the memory that there is for request bodies.",
            )
            .retry_after(*retry_after_secs),
            ApiError::Unavailable {
                message,
                retry_after_secs,
                ..
            } => WireError::new(503, "service_unavailable", *message).retry_after(*retry_after_secs),
        }
    }

    /// An upstream's status, other than 200, as a cause. The request's own faults are the client's to mend; everything else is the
    /// provider's fault, or our credential's or account's with it (401, 402, 403), and worth another target.
    pub fn from_upstream_status(status: u16, retry_after_secs: Option<u64>) -> ApiError {
        match status {
            429 => ApiError::UpstreamBusy {
                retry_after_secs: retry_after_secs.unwrap_or(DEFAULT_RETRY_AFTER_SECS),
            },
            400 | 404 | 409 | 413 | 415 | 422 => ApiError::UpstreamRefused {
                status,
                message: "The model's provider refused the request.".into(),
                named: Box::default(),
            },
            408 | 504 => ApiError::UpstreamUnreachable,
            _ => ApiError::UpstreamFailed,
        }
    }

    /// What a provider's error within a stream comes to, by the code in it: as the status of an answer that is not streamed where the request
    /// is to blame or the provider is busy. None for all else, of which the stream's client only learns that its provider failed.
    pub fn within_stream(code: Option<u16>) -> Option<WireError> {
        let wire = ApiError::from_upstream_status(code?, None).to_wire();
        (wire.status < 500).then_some(wire)
    }
}

/// What `Retry-After` says when nobody knows better, in seconds.
pub const DEFAULT_RETRY_AFTER_SECS: u64 = 5;
/// How long OpenAI's clients wait at most for what `Retry-After` says: where it says more, they ask again within seconds.
const WAITED_SECS_MAX: u64 = 60;
/// What is told of a provider that failed, whatever it said.
const FAILED: &str = "The model's provider failed.";

fn key_repeated(refusal: KeyRefusal) -> WireError {
    let message = match refusal {
        KeyRefusal::InProgress => "A request with this Idempotency-Key is running.",
        KeyRefusal::Conflict => "This Idempotency-Key was used for another request.",
        KeyRefusal::Unavailable(_) => {
            "The request with this Idempotency-Key was made before, and its answer is not kept. It is not made again."
        }
    };
    let wire = WireError::new(WireError::CONFLICT, refusal.name(), message);
    match refusal {
        KeyRefusal::InProgress => wire.retry_after(1),
        KeyRefusal::Conflict => wire.final_answer(),
        KeyRefusal::Unavailable(request) => wire.with(&json!({ "request_id": request })).final_answer(),
    }
}

#[cfg(test)]
mod tests;
