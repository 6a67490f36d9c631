//! What Pingora lets through and Tollgate does not: heads that are larger than any request needs, requests of HTTP/1.1 that do not say
//! whom they are for, and codings that nobody here reads.

use http::{Version, header};
use pingora::protocols::http::ServerSession;

use crate::gateway::context::Ctx;
use crate::pure::error::ApiError;

/// Refuses such a request, and its connection is closed.
///
/// # Errors
/// 431 for a head beyond [`HEAD_BYTES_MAX`], 400 without a `Host` where HTTP/1.1 wants one (RFC 9112 section 3.2).
pub(in crate::gateway) fn check(session: &mut ServerSession, ctx: &Ctx) -> Result<(), ApiError> {
    let checked = checked(session).and_then(|()| {
        if ctx.is_misframed {
            return Err(ApiError::BadRequest(MISFRAMED.to_owned()));
        }
        Ok(())
    });
    if checked.is_err() {
        session.set_keepalive(None);
    }
    checked
}

/// The same for who keeps no call: what is wrong with the head by itself.
///
/// # Errors
/// As [`check`].
pub(crate) fn checked(session: &ServerSession) -> Result<(), ApiError> {
    let request = session.req_header();
    let (mut bytes, mut has_host) = (request.raw_path().len(), false);
    // Chunks are taken off; any other coding would be left on the body, or be read otherwise by someone in front.
    let (mut codings, mut is_chunked) = (0usize, true);
    for (name, value) in &request.headers {
        bytes = bytes
            .saturating_add(name.as_str().len())
            .saturating_add(value.len())
            .saturating_add(FIELD_BYTES);
        match *name {
            header::HOST => has_host = true,
            header::TRANSFER_ENCODING => {
                codings = codings.saturating_add(1);
                is_chunked &= value.as_bytes().eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
    }
    if bytes > HEAD_BYTES_MAX {
        return Err(ApiError::HeadTooLarge { max: HEAD_BYTES_MAX });
    }
    if request.version == Version::HTTP_11 && !has_host {
        return Err(ApiError::BadRequest("The Host header is missing.".to_owned()));
    }
    if codings > 1 || !is_chunked {
        return Err(ApiError::BadRequest(
            "The body may be chunked, and coded no further.".to_owned(),
        ));
    }
    Ok(())
}

/// What a body is told whose framing cannot be trusted.
pub(crate) const MISFRAMED: &str = "The body is not framed as HTTP wants it.";
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// What stands between and behind the name and the value of a field.
const FIELD_BYTES: usize = 4;
