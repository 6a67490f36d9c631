//! Writes the gateway's own answers: JSON bodies, errors in the interface's shape, and the headers that every answer carries.

use std::pin::pin;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::{ErrorType, OrErr};

use super::cors;
use super::document::Document;
use super::pages;
use crate::gateway::context::Ctx;
use crate::gateway::media_type::{EVENT_STREAM, JSON};
use crate::gateway::transport::deadline::{is_stopped, write_within};
use crate::net::error_text::ErrorText;
use crate::net::request_body::{awaits_continue, content_length};
use crate::pure::error::WireError;
use crate::pure::idempotency::Answer;
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
const FALSE: HeaderValue = HeaderValue::from_static("false");
const TRUE: HeaderValue = HeaderValue::from_static("true");

/// Headers that an answer usually has, with those that Pingora adds: a capacity, not a limit. A head is kept for as long as its stream
/// runs, and room for one more would be room for twice as many.
const HEADERS: usize = 12;

/// The bytes of the values that [`decorate`] adds, usually; there is more room when they need it.
const VALUES_BYTES: usize = 128;

const LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
const LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
const REMAINING_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
const REMAINING_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tokens");
const RESET_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
const RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");

/// An empty map with room for the headers of an answer.
pub(crate) fn headers() -> HeaderMap {
    HeaderMap::with_capacity(HEADERS)
}

/// An answer's head. Its names go out in lower case, as HTTP/2 has them: to keep each in another case as well would cost a second map
/// of names.
pub(crate) fn head(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    parts.headers = headers;
    ResponseHeader::from(parts)
}

/// Adds what every answer carries: the request's id, CORS headers, and the rate limits once the caller is known.
pub(crate) fn decorate(headers: &mut HeaderMap, ctx: &Ctx) {
    let mut values = Values::new();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let id = uuid::Uuid::from_bytes(*ctx.id.as_bytes()).hyphenated();
    headers.insert(cors::X_REQUEST_ID, values.text(id.encode_lower(&mut text)));
    if let Some(rate) = &ctx.rate {
        rate_limits(headers, rate, &mut values);
    }
    cors::decorate(headers, ctx.origin.as_ref());
}

/// Values of an answer's headers, in one buffer: by itself each is an allocation or two, for as long as its stream runs.
struct Values(BytesMut);

impl Values {
    fn new() -> Values {
        Values(BytesMut::with_capacity(VALUES_BYTES))
    }

    fn text(&mut self, text: &str) -> HeaderValue {
        self.0.extend_from_slice(text.as_bytes());
        self.end()
    }

    fn number(&mut self, number: u64) -> HeaderValue {
        self.text(itoa::Buffer::new().format(number))
    }

    /// A Go-style duration, as OpenAI sends it.
    fn seconds(&mut self, seconds: u64) -> HeaderValue {
        self.0.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
        self.0.put_u8(b's');
        self.end()
    }

    /// What was written since the last one.
    fn end(&mut self) -> HeaderValue {
        let value = HeaderValue::from_maybe_shared(self.0.split().freeze());
        value.unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    }
}

fn rate_limits(headers: &mut HeaderMap, rate: &RateView, values: &mut Values) {
    headers.insert(LIMIT_REQUESTS, values.number(rate.limits.rpm));
    headers.insert(REMAINING_REQUESTS, values.number(rate.remaining_requests));
    headers.insert(LIMIT_TOKENS, values.number(rate.limits.tpm));
    headers.insert(REMAINING_TOKENS, values.number(rate.remaining_tokens));
    // Whole seconds, rounded up.
    let reset = values.seconds(rate.reset_ms.div_ceil(1000));
    headers.insert(RESET_REQUESTS, reset.clone());
    headers.insert(RESET_TOKENS, reset);
}

/// Headers of an error answer, without its length.
pub(crate) fn error_headers(error: &WireError, ctx: &Ctx) -> HeaderMap {
    let mut headers = headers();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if let Some(secs) = error.retry_after_secs {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    if let Some(should_retry) = error.should_retry {
        headers.insert(cors::X_SHOULD_RETRY, if should_retry { TRUE } else { FALSE });
    }
    if let Some(allow) = error.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    if error.status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, BEARER);
    }
    decorate(&mut headers, ctx);
    headers
}

/// Answers with an error. A short request body that is still on its way is read first, so that the connection can be used again.
pub(crate) async fn error(session: &mut ServerSession, ctx: &Ctx, error: &WireError) -> pingora::Result<()> {
    take_short_body(session).await;
    error_at_once(session, ctx, error).await
}

/// Answers with an error, whatever of the request's body is still on its way.
pub(crate) async fn error_at_once(session: &mut ServerSession, ctx: &Ctx, error: &WireError) -> pingora::Result<()> {
    let body = Bytes::from(error.body());
    let mut headers = error_headers(error, ctx);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    write(session, ctx, status(error)?, headers, body).await
}

/// Whether the client sends its body without being asked, or was asked. To be known before an answer is begun.
pub(crate) fn sends_body(session: &ServerSession) -> bool {
    let is_asked = session.response_written().is_some();
    is_asked || !awaits_continue(session.req_header())
}

/// Takes what a refused HTTP/1 client goes on sending, and throws it away, for a moment: a connection that is closed over unread bytes is
/// reset, and then the client may never read why.
pub(crate) async fn linger(session: &mut ServerSession, ctx: &Ctx) {
    if session.is_http2() || session.is_body_done() {
        return;
    }
    let at_most = ctx.snapshot.config.timeouts.body.min(LINGER_MAX);
    let rest = pin!(session.drain_request_body());
    if let Err(error) = write_within(Some(at_most), || ctx.is_cut(), rest).await {
        log::debug!(
            "request {}: the rest of its body was not taken: {}",
            ctx.id,
            ErrorText(&error)
        );
    }
}

/// Answers 200 with JSON that holds for this caller and this moment.
pub(crate) async fn json(session: &mut ServerSession, ctx: &Ctx, body: String) -> pingora::Result<()> {
    take_short_body(session).await;
    let mut headers = headers();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    decorate(&mut headers, ctx);
    write(session, ctx, StatusCode::OK, headers, Bytes::from(body)).await
}

/// Answers with what the call with the id `original` was answered, whose idempotency key this one has.
pub(crate) async fn replay(
    session: &mut ServerSession,
    ctx: &Ctx,
    answer: Answer,
    original: RequestId,
) -> pingora::Result<()> {
    let mut headers = headers();
    headers.insert(header::CONTENT_TYPE, if answer.streamed { EVENT_STREAM } else { JSON });
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(answer.body.len()));
    headers.insert(cors::IDEMPOTENCY_REPLAYED, TRUE);
    let original = HeaderValue::try_from(original.to_string()).or_err(ErrorType::InternalError, "an id")?;
    headers.insert(cors::X_ORIGINAL_REQUEST_ID, original);
    decorate(&mut headers, ctx);
    write(session, ctx, StatusCode::OK, headers, answer.body).await
}

/// Answers with a rendered document, or 304 when the caller has it.
pub(crate) async fn document(session: &mut ServerSession, ctx: &Ctx, document: &Document) -> pingora::Result<()> {
    known(session, ctx, document, headers(), JSON).await
}

/// Answers with a page for a browser, or a file of one.
pub(crate) async fn page(
    session: &mut ServerSession,
    ctx: &Ctx,
    document: &Document,
    media_type: &'static str,
) -> pingora::Result<()> {
    let mut headers = headers();
    pages::guard(&mut headers);
    known(session, ctx, document, headers, HeaderValue::from_static(media_type)).await
}

/// Sends a browser to another path, relative to the one that it asked for.
pub(crate) async fn moved(session: &mut ServerSession, ctx: &Ctx, path: &'static str) -> pingora::Result<()> {
    take_short_body(session).await;
    let body = Bytes::from_static(b"The path has no slash at its end.\n");
    let mut headers = headers();
    headers.insert(header::LOCATION, HeaderValue::from_static(path));
    headers.insert(header::CACHE_CONTROL, REVALIDATE);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    decorate(&mut headers, ctx);
    write(session, ctx, StatusCode::PERMANENT_REDIRECT, headers, body).await
}

async fn known(
    session: &mut ServerSession,
    ctx: &Ctx,
    document: &Document,
    mut headers: HeaderMap,
    media_type: HeaderValue,
) -> pingora::Result<()> {
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
    let etag = HeaderValue::from_str(&document.etag).or_err(ErrorType::InternalError, "an etag")?;
    headers.insert(header::ETAG, etag);
    headers.insert(header::CACHE_CONTROL, REVALIDATE);
    decorate(&mut headers, ctx);
    if same {
        return write_head(session, ctx, head(StatusCode::NOT_MODIFIED, headers)).await;
    }
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(document.body.len()));
    write(session, ctx, StatusCode::OK, headers, document.body.clone()).await
}

/// Answers a preflight.
pub(crate) async fn preflight(session: &mut ServerSession, ctx: &Ctx, allow: &'static str) -> pingora::Result<()> {
    take_short_body(session).await;
    let requested = session
        .req_header()
        .headers
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned();
    let mut headers = headers();
    decorate(&mut headers, ctx);
    cors::preflight(&mut headers, allow, requested);
    headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    write_head(session, ctx, head(StatusCode::NO_CONTENT, headers)).await
}

/// Pingora closes a connection that is answered before its request was read. For a short body reading it is cheaper than a new
/// connection; a long one, or one of unknown length, is not worth it.
pub(crate) async fn take_short_body(session: &mut ServerSession) {
    let request = session.req_header();
    let headers = &request.headers;
    if awaits_continue(request) || headers.contains_key(header::TRANSFER_ENCODING) {
        return;
    }
    if content_length(headers).is_some_and(|length| length > 0 && length <= DRAINED_BYTES_MAX)
        && session.drain_request_body().await.is_err()
    {
        // It does not come: the answer is given all the same, and the connection closed.
        session.set_keepalive(None);
    }
}

/// Whether an answer was begun. A `100 Continue` is none.
pub(crate) fn has_begun(session: &ServerSession) -> bool {
    session
        .response_written()
        .is_some_and(|head| !head.status.is_informational())
}

/// Writes an answer; to a HEAD its head alone, which HTTP/2 would not see to. A client that does not take it in time is left.
async fn write(
    session: &mut ServerSession,
    ctx: &Ctx,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
) -> pingora::Result<()> {
    let head = head(status, headers);
    if session.req_header().method == http::Method::HEAD {
        return write_head(session, ctx, head).await;
    }
    // Each piece in the time that a client may take for a write, as an answer leaves that comes from a provider.
    let at_most = Some(ctx.snapshot.config.timeouts.write);
    let mut rest = body;
    let first = rest.split_to(rest.len().min(PIECE_BYTES_MAX));
    {
        let ends = rest.is_empty();
        let write = pin!(async {
            session.write_response_header(Box::new(head)).await?;
            session.write_response_body(first, ends).await
        });
        clients(write_within(at_most, || ctx.is_cut(), write).await)?;
    }
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES_MAX));
        let ends = rest.is_empty();
        let write = pin!(session.write_response_body(piece, ends));
        clients(write_within(at_most, || ctx.is_cut(), write).await)?;
    }
    Ok(())
}

async fn write_head(session: &mut ServerSession, ctx: &Ctx, head: ResponseHeader) -> pingora::Result<()> {
    let write = pin!(session.write_response_header(Box::new(head)));
    clients(write_within(Some(ctx.snapshot.config.timeouts.write), || ctx.is_cut(), write).await)
}

/// What cannot be written to a client is the client's doing: it has left. A stop is not.
pub(crate) fn clients<T>(written: pingora::Result<T>) -> pingora::Result<T> {
    written.map_err(|error| if is_stopped(&error) { error } else { error.into_down() })
}

/// The status of an error's answer.
pub(crate) fn status(error: &WireError) -> pingora::Result<StatusCode> {
    StatusCode::from_u16(error.status).or_err(ErrorType::InternalError, "an error without a status")
}

/// What of an answer's body is written at once.
const PIECE_BYTES_MAX: usize = 64 << 10;
const DRAINED_BYTES_MAX: u64 = 64 << 10;
/// How long the rest of a refused request's body is taken at most.
const LINGER_MAX: Duration = Duration::from_secs(2);
