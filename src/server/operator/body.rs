//! Reads a request's body, within its limits of size and time.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use pingora::protocols::http::ServerSession;

use super::route::Takes;
use crate::net::error_text::ErrorText;
use crate::net::request_body::{awaits_continue, content_length, send_continue};
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;

/// The body of a request to a path that takes one; nothing else is read.
///
/// # Errors
/// 415 for another type than the path takes, 413 beyond [`BODY_BYTES_MAX`] or [`SHORT_BYTES_MAX`], 408 when it takes too long, 400 when it cannot be read.
pub(super) async fn read(session: &mut ServerSession, takes: Takes) -> Result<Bytes, OperatorError> {
    let headers = &session.req_header().headers;
    let most = match takes {
        Takes::Nothing => return Ok(Bytes::new()),
        Takes::Json => BODY_BYTES_MAX,
        Takes::ShortJson => SHORT_BYTES_MAX,
    };
    if !is_json(headers) {
        return Err(OperatorError::MediaType);
    }
    let max = u64::try_from(most).unwrap_or(u64::MAX);
    let too_large = || OperatorError::Api(ApiError::BodyTooLarge { max });
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(OperatorError::bad("Send the body without a content-encoding."));
    }
    if content_length(headers).is_some_and(|length| length > max) {
        return Err(too_large());
    }
    let waits = awaits_continue(session.req_header());
    let unreadable = |error: Box<pingora::Error>| {
        log::debug!("an operator's request cannot be read: {}", ErrorText(&error));
        OperatorError::bad("The body cannot be read.")
    };
    if waits {
        send_continue(session).await.map_err(unreadable)?;
    }
    let whole = async {
        let mut body = Vec::new();
        while let Some(piece) = session.read_request_body().await.map_err(unreadable)? {
            if body.len().saturating_add(piece.len()) > most {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        Ok(Bytes::from(body))
    };
    let read = tokio::time::timeout(BODY_WITHIN, whole).await;
    read.unwrap_or(Err(OperatorError::Api(ApiError::BodyTimeout)))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

/// The longest body: 1 MiB.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest of somebody who is not known yet: 4 KiB.
const SHORT_BYTES_MAX: usize = 4 << 10;
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);
