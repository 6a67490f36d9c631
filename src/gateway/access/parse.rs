//! From the bytes of a body to what it asks for. To parse a long one, and to hash it, may take a second: that is done on a thread of its own,
//! for the streams of this one do not wait for it.

use bytes::Bytes;

use crate::pure::error::ApiError;
use crate::pure::idempotency::{Fingerprint, KeyName};
use crate::pure::request_body::{BodyError, Endpoint, RequestBody};

/// A body that was read.
pub(in crate::gateway) struct Parsed {
    /// What it asks for.
    pub(in crate::gateway) body: RequestBody,
    /// The idempotency key that came with it, and what makes another call the same.
    pub(in crate::gateway) keyed: Option<(KeyName, Fingerprint)>,
}

/// Whether a body of so many bytes is parsed elsewhere, and waited for.
pub(in crate::gateway) fn is_long(bytes: usize) -> bool {
    bytes > INLINE_BYTES_MAX
}

/// Parses a body, and makes the fingerprint of a call that brings an idempotency key.
///
/// # Errors
/// 400 where it is no request; 500 where it could not be read.
pub(in crate::gateway) async fn parsed(
    bytes: Bytes,
    endpoint: Endpoint,
    name: Option<KeyName>,
) -> Result<Parsed, ApiError> {
    match is_long(bytes.len()) {
        false => parse(bytes, endpoint, name),
        // In a box: seldom, and room that every call would keep.
        true => Box::pin(parsed_elsewhere(bytes, endpoint, name)).await,
    }
}

async fn parsed_elsewhere(bytes: Bytes, endpoint: Endpoint, name: Option<KeyName>) -> Result<Parsed, ApiError> {
    let Ok(_place) = PARSING.acquire().await else {
        return Err(ApiError::Internal);
    };
    let parsed = tokio::task::spawn_blocking(move || parse(bytes, endpoint, name)).await;
    parsed.map_err(|_| ApiError::Internal)?
}

fn parse(bytes: Bytes, endpoint: Endpoint, name: Option<KeyName>) -> Result<Parsed, ApiError> {
    let body = RequestBody::parse(bytes, endpoint).map_err(unreadable)?;
    let keyed = name.map(|name| (name, Fingerprint::of(endpoint, body.bytes())));
    Ok(Parsed { body, keyed })
}

fn unreadable(error: BodyError) -> ApiError {
    ApiError::BadRequest(sentence(&error))
}

/// An error's text as a sentence of its own.
pub(super) fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    let rest = chars.as_str();
    if rest.ends_with('.') {
        format!("{first}{rest}")
    } else {
        format!("{first}{rest}.")
    }
}

/// Longer bodies are parsed elsewhere, so many at once. One of so many bytes takes a millisecond, and one of small keys alone some ten.
const INLINE_BYTES_MAX: usize = 256 << 10;
static PARSING: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);

#[cfg(test)]
mod tests;
