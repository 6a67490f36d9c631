//! Cross-origin headers: locked keys live in browsers, so every answer can be read there, errors too.
//!
//! No cookies are involved: whoever has a key may use it, and the domain lock decides on the server whether it may. So the origin
//! is always echoed, also to a page that is then refused, which can read why.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers of ours that a page's script may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, retry-after, x-should-retry, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
     x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
     idempotency-replayed, x-original-request-id",
);

/// What a preflight lets a page send. OpenAI's clients send a family of `x-stainless-…` headers, so what is asked for is echoed.
const ALLOWED: HeaderValue =
    HeaderValue::from_static("authorization, content-type, accept, x-requested-with, idempotency-key");
const A_DAY: HeaderValue = HeaderValue::from_static("86400");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// Adds the headers for an answer to a page of `origin`.
pub(in crate::gateway) fn decorate(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    let Some(origin) = origin else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(header::VARY, VARY_ORIGIN);
}

/// Adds the headers that answer a preflight (Fetch Standard, "CORS-preflight request").
pub(in crate::gateway) fn preflight(headers: &mut HeaderMap, allow: &'static str, requested: Option<HeaderValue>) {
    let allowed = requested
        .filter(|names| names.as_bytes().len() <= 2048)
        .unwrap_or(ALLOWED);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(allow));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, A_DAY);
    let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
    headers.insert(header::VARY, HeaderValue::from_static(vary));
}

/// `x-request-id`.
pub(in crate::gateway) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// `idempotency-replayed`: the answer is that of an earlier call with the same key.
pub(in crate::gateway) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// `x-original-request-id`: the id of that call.
pub(in crate::gateway) const X_ORIGINAL_REQUEST_ID: HeaderName = HeaderName::from_static("x-original-request-id");
/// `x-should-retry`, which OpenAI's clients obey before anything else.
pub(in crate::gateway) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
