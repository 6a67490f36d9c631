//! What a request's head says of its body, and the answer to a client that waits before it sends one.

use http::Version;
use http::header::{self, HeaderMap};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;

use super::head_limit::HeadLimit;

/// What a request says of its body's length, in bytes; none where it says nothing, or nothing that can be read.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether bytes have come with a request over HTTP/1 that are behind it, so that Pingora closes the connection after its answer. To be asked
/// before [`HeadLimit::head_came`]. What comes later, or behind chunks, is not seen.
pub(crate) fn is_followed(session: &ServerSession, limit: &HeadLimit) -> bool {
    let headers = &session.req_header().headers;
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return false;
    }
    let body = content_length(headers).unwrap_or(0);
    let body = usize::try_from(body).unwrap_or(usize::MAX);
    // As Pingora has it, which is longer than what came where it escaped a byte of the target: then a little may pass unseen.
    let head = session.to_h1_raw().len();
    limit.has_come_beyond(head.saturating_add(body))
}

/// Whether a client waits to be told that it may send its body. HTTP/1.0 knows no interim answers, and an expectation of anything else is
/// passed over, as if it were not there (RFC 9110 section 10.1.1).
pub(crate) fn awaits_continue(request: &RequestHeader) -> bool {
    let lines = request.headers.get_all(header::EXPECT).iter();
    let mut expectations = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    request.version >= Version::HTTP_11
        && expectations.any(|expectation| expectation.trim_ascii().eq_ignore_ascii_case(b"100-continue"))
}

/// Tells a client that waits for it ([`awaits_continue`]) to send its body. Pingora forgets keep-alive over it.
///
/// # Errors
/// When the client cannot be written to.
pub(crate) async fn send_continue(session: &mut ServerSession) -> pingora::Result<()> {
    let keepalive = session.get_keepalive();
    session.write_continue_response().await?;
    session.set_keepalive(keepalive);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_100_says_100_continue_and_speaks_http_1_1_or_later() {
        for (version, lines, waits) in [
            (Version::HTTP_11, &["100-continue"][..], true),
            (Version::HTTP_2, &["100-continue"], true),
            (Version::HTTP_11, &["100-Continue"], true),
            (Version::HTTP_11, &["200-foo, 100-continue "], true),
            (Version::HTTP_11, &["200-foo", "100-continue"], true),
            (Version::HTTP_10, &["100-continue"], false),
            (Version::HTTP_11, &["200-foo"], false),
            (Version::HTTP_11, &["100-continued"], false),
            (Version::HTTP_11, &[""], false),
            (Version::HTTP_11, &[], false),
        ] {
            let mut request = RequestHeader::build("POST", b"/", None).unwrap();
            request.set_version(version);
            for line in lines {
                request.append_header(header::EXPECT, *line).unwrap();
            }
            assert_eq!(awaits_continue(&request), waits, "{version:?} {lines:?}");
        }
    }
}
