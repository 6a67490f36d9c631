//! What the description says of answers: their headers, and what each status means.

use serde_json::{Value, json};

pub(super) fn headers() -> Value {
    let text = |meaning: &str| json!({ "description": meaning, "schema": { "type": "string" } });
    let count = |meaning: &str| json!({ "description": meaning, "schema": { "type": "integer", "minimum": 0 } });
    let reset =
        || json!({ "description": "Until the window ends.", "schema": { "type": "string", "pattern": "^[0-9]+s$" } });
    let id = json!({ "description": "The request's id.", "required": true, "schema": { "type": "string", "format": "uuid" } });
    json!({
        "x-request-id": id,
        "x-ratelimit-limit-requests": count("Requests in a minute."),
        "x-ratelimit-remaining-requests": count("Requests left in this minute."),
        "x-ratelimit-reset-requests": reset(),
        "x-ratelimit-limit-tokens": count("Tokens in a minute."),
        "x-ratelimit-remaining-tokens": count("Tokens left in this minute."),
        "x-ratelimit-reset-tokens": reset(),
        "retry-after": { "description": "Seconds until a retry makes sense.", "schema": { "type": "integer", "minimum": 1 } },
        "x-should-retry": { "description": "Whether a retry can help, where the status does not say it.", "schema": { "enum": ["true", "false"] } },
        "www-authenticate": { "description": "How a key is sent.", "schema": { "const": "Bearer" } },
        "idempotency-replayed": { "description": "The answer is that of an earlier call with the same key.", "schema": { "const": "true" } },
        "x-original-request-id": { "description": "That call's id.", "schema": { "type": "string", "format": "uuid" } },
        "cache-control": text("How long the answer holds."),
        "etag": text("The entity tag."),
        "content-security-policy": text("What the page may load and run."),
        "x-frame-options": text("The page stands in no frame."),
        "referrer-policy": text("The page tells nobody where it was."),
        "x-content-type-options": text("The media type is what it says."),
        "cross-origin-opener-policy": text("No other page holds on to it."),
        "vary": text("What the answer depends on."),
        "access-control-allow-origin": text("The page's origin."),
        "access-control-expose-headers": text("The headers that a page's script may read."),
    })
}

pub(super) fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is malformed, or names what there is not.",
        401 => "The key is missing, wrong, expired or revoked.",
        402 => "Too little credit, or the month's quota, or the hard limit of the key or its end user, is used up.",
        403 => {
            "The tier, or the key's domains, models or addresses forbid it, or the account is suspended or closed (`metadata.reason`)."
        }
        404 => "There is no such model, or no such call.",
        408 => "The body did not arrive in time.",
        409 => {
            "The Idempotency-Key is known, and there is no answer to give again; or the provider refused the request."
        }
        413 => "The body is too large.",
        429 => {
            "A rate limit, a busy provider, too many wrong keys from this address, too large bodies at once, too many reports at once, or too many idempotency keys of the key. Or too many end users of the key: with `x-should-retry: false` while its period lasts for more than a minute, and without `Retry-After` where none of them is ever forgotten."
        }
        431 => "The header fields are too large.",
        500 => "The gateway or the provider failed.",
        502 => "The provider does not respond.",
        503 => "Maintenance, the ledger cannot be reached, or no memory is left for request bodies.",
        _ => "The provider refused the request.",
    }
}

pub(super) const EVERYWHERE: [&str; 4] = [
    "x-request-id",
    "vary",
    "access-control-allow-origin",
    "access-control-expose-headers",
];
/// What a page has beside its entity tag.
pub(super) const PAGE: [&str; 7] = [
    "etag",
    "cache-control",
    "content-security-policy",
    "x-frame-options",
    "referrer-policy",
    "x-content-type-options",
    "cross-origin-opener-policy",
];
pub(super) const RATES: [&str; 6] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];
