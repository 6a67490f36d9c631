//! Writes the gateway's own answers: JSON bodies, errors in the interface's shape, and the headers that every answer carries.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::cors;
use super::snapshot::Document;
use super::stage::Ctx;
use crate::pure::error::WireError;
use crate::pure::limits::RateView;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
const FALSE: HeaderValue = HeaderValue::from_static("false");

/// Most headers that an answer of ours has: a capacity, not a limit.
pub(super) const HEADERS: usize = 16;

const LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
const LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
const REMAINING_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
const REMAINING_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tokens");
const RESET_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
const RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");

/// Adds what every answer carries: the request's id, CORS headers, and the rate limits once the caller is known.
pub(super) fn decorate(header: &mut ResponseHeader, ctx: &Ctx) -> pingora::Result<()> {
    header.insert_header(cors::X_REQUEST_ID, ctx.id_header())?;
    if let Some(rate) = &ctx.rate {
        rate_limits(header, rate)?;
    }
    cors::decorate(header, ctx.origin.as_ref())
}

fn rate_limits(header: &mut ResponseHeader, rate: &RateView) -> pingora::Result<()> {
    header.insert_header(LIMIT_REQUESTS, HeaderValue::from(rate.limits.rpm))?;
    header.insert_header(REMAINING_REQUESTS, HeaderValue::from(rate.remaining_requests))?;
    header.insert_header(LIMIT_TOKENS, HeaderValue::from(rate.limits.tpm))?;
    header.insert_header(REMAINING_TOKENS, HeaderValue::from(rate.remaining_tokens))?;
    // A Go-style duration, as OpenAI sends it; whole seconds, rounded up.
    let reset = format!("{}s", rate.reset_ms.div_ceil(1000));
    if let Ok(reset) = HeaderValue::from_str(&reset) {
        header.insert_header(RESET_REQUESTS, &reset)?;
        header.insert_header(RESET_TOKENS, reset)?;
    }
    Ok(())
}

/// Header of an error answer, without its length.
pub(super) fn error_header(error: &WireError, ctx: &Ctx) -> pingora::Result<ResponseHeader> {
    let mut header = ResponseHeader::build(error.status, Some(HEADERS))?;
    header.insert_header(header::CONTENT_TYPE, JSON)?;
    header.insert_header(header::CACHE_CONTROL, NO_STORE)?;
    if let Some(secs) = error.retry_after_secs {
        header.insert_header(header::RETRY_AFTER, HeaderValue::from(secs))?;
    }
    if error.retry_is_useless {
        header.insert_header(cors::X_SHOULD_RETRY, FALSE)?;
    }
    if let Some(allow) = error.allow {
        header.insert_header(header::ALLOW, HeaderValue::from_static(allow))?;
    }
    if error.status == 401 {
        header.insert_header(header::WWW_AUTHENTICATE, BEARER)?;
    }
    decorate(&mut header, ctx)?;
    Ok(header)
}

/// Answers with an error. A short request body that is still on its way is read first, so that the connection can be used again.
pub(super) async fn error(session: &mut Session, ctx: &Ctx, error: &WireError) -> pingora::Result<()> {
    take_short_body(session).await;
    let body = Bytes::from(error.body());
    let mut header = error_header(error, ctx)?;
    header.insert_header(header::CONTENT_LENGTH, HeaderValue::from(body.len()))?;
    write(session, header, body).await
}

/// Answers 200 with JSON that holds for this caller and this moment.
pub(super) async fn json(session: &mut Session, ctx: &Ctx, body: String) -> pingora::Result<()> {
    take_short_body(session).await;
    let mut header = ResponseHeader::build(200, Some(HEADERS))?;
    header.insert_header(header::CONTENT_TYPE, JSON)?;
    header.insert_header(header::CACHE_CONTROL, NO_STORE)?;
    header.insert_header(header::CONTENT_LENGTH, HeaderValue::from(body.len()))?;
    decorate(&mut header, ctx)?;
    write(session, header, Bytes::from(body)).await
}

/// Answers with a rendered document, or 304 when the caller has it.
pub(super) async fn document(session: &mut Session, ctx: &Ctx, document: &Document) -> pingora::Result<()> {
    take_short_body(session).await;
    let known = session
        .req_header()
        .headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    let same = known.is_some_and(|tags| {
        tags.split(',')
            .map(|tag| tag.trim().trim_start_matches("W/"))
            .any(|tag| tag == "*" || tag == document.etag)
    });
    let mut header = ResponseHeader::build(if same { 304 } else { 200 }, Some(HEADERS))?;
    header.insert_header(header::ETAG, document.etag.as_str())?;
    header.insert_header(header::CACHE_CONTROL, REVALIDATE)?;
    decorate(&mut header, ctx)?;
    if same {
        return session.write_response_header(Box::new(header), true).await;
    }
    header.insert_header(header::CONTENT_TYPE, JSON)?;
    header.insert_header(header::CONTENT_LENGTH, HeaderValue::from(document.body.len()))?;
    write(session, header, document.body.clone()).await
}

/// Answers a preflight.
pub(super) async fn preflight(session: &mut Session, ctx: &Ctx, allow: &'static str) -> pingora::Result<()> {
    take_short_body(session).await;
    let mut header = ResponseHeader::build(204, Some(HEADERS))?;
    let requested = session
        .req_header()
        .headers
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned();
    decorate(&mut header, ctx)?;
    cors::preflight(&mut header, allow, requested.as_ref())?;
    header.insert_header(header::ALLOW, HeaderValue::from_static(allow))?;
    session.write_response_header(Box::new(header), true).await
}

/// Pingora closes a connection that is answered before its request was read. For a short body reading it is cheaper than a new
/// connection; a long one, or one of unknown length, is not worth it.
async fn take_short_body(session: &mut Session) {
    let headers = &session.req_header().headers;
    if headers.contains_key(header::EXPECT) || headers.contains_key(header::TRANSFER_ENCODING) {
        return;
    }
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > 0 && length <= DRAINED_BYTES_MAX)
        && session.as_downstream_mut().drain_request_body().await.is_err()
    {
        // It does not come: the answer is given all the same, and the connection closed.
        session.as_downstream_mut().set_keepalive(None);
    }
}

/// Writes an answer; to a HEAD its header alone, which HTTP/2 would not see to.
async fn write(session: &mut Session, header: ResponseHeader, body: Bytes) -> pingora::Result<()> {
    if session.req_header().method == http::Method::HEAD {
        return session.write_response_header(Box::new(header), true).await;
    }
    session.write_response_header(Box::new(header), false).await?;
    session.write_response_body(Some(body), true).await
}

const DRAINED_BYTES_MAX: u64 = 64 << 10;
