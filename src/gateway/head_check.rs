//! What Pingora lets through and Tollgate does not: heads that are larger than any request needs, requests of HTTP/1.1 that do not say
//! whom they are for, and codings that nobody here reads.

use http::{Version, header};
use pingora::protocols::http::ServerSession;

use super::context::Ctx;
use crate::pure::error::ApiError;

/// Refuses such a request, and its connection is closed.
///
/// # Errors
/// 431 for a head beyond [`HEAD_BYTES_MAX`], 400 without a `Host` where HTTP/1.1 wants one (RFC 9112 section 3.2).
pub(super) fn check(session: &mut ServerSession, ctx: &Ctx) -> Result<(), ApiError> {
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

fn checked(session: &ServerSession) -> Result<(), ApiError> {
    let request = session.req_header();
    let fields = request.headers.iter();
    let bytes = fields.fold(request.raw_path().len(), |sum, (name, value)| {
        sum.saturating_add(name.as_str().len())
            .saturating_add(value.len())
            .saturating_add(FIELD_BYTES)
    });
    if bytes > HEAD_BYTES_MAX {
        return Err(ApiError::HeadTooLarge { max: HEAD_BYTES_MAX });
    }
    if request.version == Version::HTTP_11 && !request.headers.contains_key(header::HOST) {
        return Err(ApiError::BadRequest("The Host header is missing.".to_owned()));
    }
    // Chunks are taken off; any other coding would be left on the body, or be read otherwise by someone in front.
    let mut codings = request.headers.get_all(header::TRANSFER_ENCODING).iter();
    let only_chunks = match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    if !only_chunks {
        return Err(ApiError::BadRequest(
            "The body may be chunked, and coded no further.".to_owned(),
        ));
    }
    Ok(())
}

/// What a body is told whose framing cannot be trusted.
pub(super) const MISFRAMED: &str = "The body is not framed as HTTP wants it.";
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// What stands between and behind the name and the value of a field.
const FIELD_BYTES: usize = 4;
