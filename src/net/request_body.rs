//! What a request's head says of its body, and the answer to a client that waits before it sends one.

use http::header::{self, HeaderMap};
use pingora::protocols::http::ServerSession;

/// What a request says of its body's length, in bytes; none where it says nothing, or nothing that can be read.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Tells a client that waits for it to send its body (RFC 9110 section 10.1.1). Pingora forgets keep-alive over it.
///
/// # Errors
/// When the client cannot be written to.
pub(crate) async fn send_continue(session: &mut ServerSession) -> pingora::Result<()> {
    let keepalive = session.get_keepalive();
    session.write_continue_response().await?;
    session.set_keepalive(keepalive);
    Ok(())
}
