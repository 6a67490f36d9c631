//! The head that answers a request, past the informational ones before it (RFC 9110, 15.2).

use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v1::client::HttpSession as Http1;
use pingora::{Error, ErrorType, Result};

/// Reads it. Bounded by its caller's time limit alone.
///
/// # Errors
/// When it does not come, is none, or is an upgrade that nobody asked for.
pub(crate) async fn final_head(session: &mut HttpSession<()>) -> Result<()> {
    match session {
        HttpSession::H1(session) => final_head_of_http1(session).await,
        // Its client passes over them.
        HttpSession::H2(_) | HttpSession::Custom(()) => session.read_response_header().await,
    }
}

/// The same over HTTP/1.1.
///
/// # Errors
/// As [`final_head`].
pub(crate) async fn final_head_of_http1(session: &mut Http1) -> Result<()> {
    loop {
        session.read_response().await?;
        match session.get_status().map_or(0, |status| status.as_u16()) {
            101 => return Error::e_explain(ErrorType::InvalidHTTPHeader, "an upgrade that was not asked for"),
            status if status < 200 => {}
            _ => return Ok(()),
        }
    }
}
