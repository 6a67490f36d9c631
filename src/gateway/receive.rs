//! Reads a request's whole body, within its limits of size and time, before anything is decided.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use pingora::ErrorType;
use pingora::protocols::http::ServerSession;

use super::api::Failed;
use super::head_check::MISFRAMED;
use crate::pure::error::ApiError;

/// The request's body.
///
/// # Errors
/// 413 beyond `bytes_max`, 408 when it takes longer than `timeout`, 400 for an encoding that is not read; a failed read ends the
/// connection.
pub(super) async fn body(session: &mut ServerSession, bytes_max: u64, timeout: Duration) -> Result<Bytes, Failed> {
    let headers = &session.req_header().headers;
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(ApiError::BadRequest("Send the body without a content-encoding.".to_owned()).into());
    }
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max) {
        return Err(ApiError::BodyTooLarge { max: bytes_max }.into());
    }
    if headers.contains_key(header::EXPECT) {
        proceed(session).await?;
    }
    match tokio::time::timeout(timeout, read(session, length, bytes_max)).await {
        Ok(Err(Failed::Wire(error))) => Err(unreadable(session, error)),
        Ok(read) => read,
        Err(_) => Err(ApiError::BodyTimeout.into()),
    }
}

async fn read(session: &mut ServerSession, length: Option<u64>, bytes_max: u64) -> Result<Bytes, Failed> {
    let too_large = || Failed::from(ApiError::BodyTooLarge { max: bytes_max });
    let max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let Some(first) = session.read_request_body().await? else {
        return Ok(Bytes::new());
    };
    if length == u64::try_from(first.len()).ok() {
        return Ok(first); // The usual case: one read, no copy.
    }
    let mut whole = BytesMut::with_capacity(expected(length, first.len()));
    whole.extend_from_slice(&first);
    loop {
        if whole.len() > max {
            return Err(too_large());
        }
        match session.read_request_body().await? {
            Some(chunk) => whole.extend_from_slice(&chunk),
            None => return Ok(whole.freeze()),
        }
    }
}

/// A body that cannot be read is its sender's fault: slow, gone, or not framed as HTTP wants it.
fn unreadable(session: &mut ServerSession, error: Box<pingora::Error>) -> Failed {
    match error.etype() {
        ErrorType::ReadTimedout => ApiError::BodyTimeout.into(),
        ErrorType::ReadError if is_misframed(&error) => misframed(session),
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::H2Error => Failed::Wire(error.into_down()),
        _ => misframed(session),
    }
}

fn misframed(session: &mut ServerSession) -> Failed {
    session.set_keepalive(None);
    ApiError::BadRequest(MISFRAMED.to_owned()).into()
}

/// Whether the connection refused to pass on what it read, for the chunks' framing.
fn is_misframed(error: &pingora::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

/// What to allocate at first: what the client announced, but not more than it has shown to be in earnest about.
fn expected(length: Option<u64>, first: usize) -> usize {
    let announced = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    announced.min(ALLOCATED_AT_FIRST_MAX).max(first.saturating_mul(2))
}

/// Tells a client that waits for it to send its body (RFC 9110 section 10.1.1). Pingora forgets keep-alive over it.
async fn proceed(session: &mut ServerSession) -> Result<(), Failed> {
    let keepalive = session.get_keepalive();
    session.write_continue_response().await?;
    session.set_keepalive(keepalive);
    Ok(())
}

const ALLOCATED_AT_FIRST_MAX: usize = 1 << 20;
