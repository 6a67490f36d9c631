//! From a body that has come to what it asks for. To parse a long one, and to hash it, may take a second: that is done on a thread of its own,
//! for the streams of this one do not wait for it.

use tokio::sync::Semaphore;

use super::received::{PIECE_BYTES, Received};
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

/// Whether a body has so many bytes that what reads or copies all of it is done [`elsewhere`], and waited for: a body of [`PIECE_BYTES`]
/// takes a millisecond to parse, and one of small keys alone some ten.
pub(in crate::gateway) fn is_long(bytes: usize) -> bool {
    bytes > PIECE_BYTES
}

/// Parses a body, and makes the fingerprint of a call that brings an idempotency key.
///
/// # Errors
/// 400 where it is no request; 500 where it could not be read.
pub(in crate::gateway) async fn parsed(
    received: Received,
    endpoint: Endpoint,
    name: Option<KeyName>,
) -> Result<Parsed, ApiError> {
    match is_long(received.length()) {
        false => parse(received, endpoint, name),
        // In a box: seldom, and room that every call would keep.
        true => Box::pin(elsewhere(&PARSING, move || parse(received, endpoint, name))).await?,
    }
}

/// Does work that takes long on a thread of its own, once it has one of these places.
///
/// # Errors
/// 500 where it could not be done.
pub(in crate::gateway) async fn elsewhere<T: Send + 'static>(
    places: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let Ok(_place) = places.acquire().await else {
        return Err(ApiError::Internal);
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::Internal)
}

fn parse(received: Received, endpoint: Endpoint, name: Option<KeyName>) -> Result<Parsed, ApiError> {
    let body = RequestBody::parse(received.joined(), endpoint).map_err(unreadable)?;
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

/// How many long bodies are parsed at once.
static PARSING: Semaphore = Semaphore::const_new(2);

#[cfg(test)]
pub(in crate::gateway) mod tests;
