//! The upstream's end of a call: one attempt's connection, over HTTP/1 or HTTP/2.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Uri, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v1::client::HttpSession as Http1;
use pingora::protocols::http::v2;
use pingora::protocols::{Digest, UniqueID as _, UniqueIDType};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, OkOrErr, OrErr, Result};

use crate::net::connection_pool::Connected;
use crate::net::error_text::ErrorText;
use crate::net::final_head::final_head_of_http1;
use crate::net::upstream_io::UpstreamIo;

/// The connection of one attempt.
pub(super) struct UpstreamSession {
    session: HttpSession,
    /// What an HTTP/1 connection tells beside its session.
    io: Option<Arc<UpstreamIo>>,
    /// How long the upstream may take nothing of a request.
    write_max: Option<Duration>,
    /// Sends the rest of the body over HTTP/2 while the answer is read.
    sends: Option<BoxFuture<'static, Result<()>>>,
    /// Why the body could not be sent.
    unsent: Option<Box<Error>>,
    /// The answer broke off. Pingora counts its body as done then.
    is_broken: bool,
}

/// A piece of an answer's body.
pub(super) struct Piece {
    pub(super) bytes: Option<Bytes>,
    /// Whether nothing follows it.
    pub(super) ends: bool,
}

impl Piece {
    /// The end of an answer, with nothing before it.
    pub(super) fn end() -> Piece {
        Piece {
            bytes: None,
            ends: true,
        }
    }
}

impl UpstreamSession {
    pub(super) fn new(connected: Connected, peer: &HttpPeer) -> UpstreamSession {
        let Connected { mut session, io, .. } = connected;
        session.set_write_timeout(peer.options.write_timeout);
        UpstreamSession {
            session,
            io,
            write_max: peer.options.write_timeout,
            sends: None,
            unsent: None,
            is_broken: false,
        }
    }

    /// The connection's file descriptor, as Pingora tells it to `connected_to_upstream`.
    pub(super) fn fd(&self) -> UniqueIDType {
        match &self.session {
            HttpSession::H1(session) => session.id(),
            HttpSession::H2(session) => session.fd(),
            HttpSession::Custom(()) => UniqueIDType::default(),
        }
    }

    /// What is known of the connection.
    pub(super) fn digest(&self) -> Option<&Digest> {
        self.session.digest()
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.session, HttpSession::H2(_))
    }

    /// Sends the request: as much of its body as the upstream takes at once, the rest while the answer is read.
    ///
    /// # Errors
    /// When the head cannot be sent. That the body cannot is told by [`UpstreamSession::head`], for the upstream may have said why.
    pub(super) async fn send(&mut self, head: Box<RequestHeader>, body: Bytes) -> Result<()> {
        let sent = match &mut self.session {
            HttpSession::H1(session) => {
                if let Some(io) = &self.io {
                    io.begin(&body);
                }
                session.write_request_header(head).await.map_err(Error::into_up)?;
                match session.write_body(&body).await {
                    Ok(_) => session.finish_body().await.map(|_| ()),
                    Err(error) => Err(error),
                }
            }
            HttpSession::H2(session) => {
                session.write_request_header(head, false).map_err(unsent)?;
                let timeout = session.write_timeout;
                let mut writer = session
                    .take_request_body_writer()
                    .or_err(ErrorType::InternalError, "a stream without a way to send")?;
                self.sends = Some(Box::pin(async move {
                    v2::write_body(&mut writer, body, true, timeout).await
                }));
                Ok(())
            }
            HttpSession::Custom(()) => unknown(),
        };
        self.unsent = sent.err();
        Ok(())
    }

    /// Reads the answer's head, which [`UpstreamSession::response`] then has; whether it is all of the answer.
    ///
    /// # Errors
    /// When none comes; then, if the request could not be sent, why not.
    pub(super) async fn head(&mut self) -> Result<bool> {
        let read = match &mut self.session {
            HttpSession::H1(session) => {
                let io = self.io.as_deref();
                let read = while_sending(io, self.write_max, pin!(final_head_of_http1(session))).await;
                read.and_then(|()| {
                    let ends = session.is_body_done();
                    let Some(io) = &self.io else { return Ok(ends) };
                    let checked = io.head_came(is_chunked(session));
                    checked.map_err(|_| {
                        Error::explain(ErrorType::InvalidHTTPHeader, "chunks that do not end with CR LF")
                    })?;
                    Ok(ends)
                })
            }
            HttpSession::H2(session) => {
                let stalled = Stalled::Fails;
                let read = { beside(&mut self.sends, stalled, pin!(session.read_response_header())).await };
                read.and_then(|()| session.check_response_end_or_error())
            }
            HttpSession::Custom(()) => unknown(),
        };
        read.map_err(|error| {
            if self.io.as_ref().is_some_and(|io| io.has_heard()) {
                // The upstream had begun to answer, so it had the request.
                let mut error = error.into_up();
                error.set_retry(false);
                return error;
            }
            self.unsent.take().unwrap_or(error).into_up()
        })
    }

    /// The answer's head.
    ///
    /// # Errors
    /// Before it was read.
    pub(super) fn response(&self) -> Result<&ResponseHeader> {
        self.session
            .response_header()
            .or_err(ErrorType::InternalError, "an answer without a head")
    }

    /// Reads the next piece of the body. Nothing is lost when it is dropped.
    ///
    /// # Errors
    /// When the answer broke off.
    pub(super) async fn piece(&mut self) -> Result<Piece> {
        let read = match &mut self.session {
            HttpSession::H1(session) => match session.read_body_bytes().await {
                Ok(bytes) => Ok(Piece {
                    bytes,
                    ends: session.is_body_done(),
                }),
                Err(error) => Err(error),
            },
            HttpSession::H2(session) => {
                let stalled = Stalled::Answers;
                let read = { beside(&mut self.sends, stalled, pin!(session.read_response_body())).await };
                match read {
                    // Also before trailers, which stay inside.
                    Ok(None) => Ok(Piece {
                        bytes: None,
                        ends: true,
                    }),
                    Ok(bytes) => session.check_response_end_or_error().map(|ends| Piece { bytes, ends }),
                    Err(error) => Err(error),
                }
            }
            HttpSession::Custom(()) => unknown(),
        };
        self.is_broken |= read.is_err();
        read.map_err(Error::into_up)
    }

    /// Whether anything of an answer has come; over HTTP/2 that is not known, and counts as if it had.
    pub(super) fn has_heard(&self) -> bool {
        self.io.as_ref().is_none_or(|io| io.has_heard())
    }

    /// The session, for the pool: after the whole answer, if all of it was read and all of the request was sent. A connection of HTTP/2
    /// has other streams, so it goes back anyway, and the stream is reset when it has not ended.
    pub(super) fn into_reusable(mut self, is_done: bool) -> Option<HttpSession> {
        let is_sent = self.unsent.is_none() && self.io.as_ref().is_none_or(|io| io.is_sent());
        let is_reusable = match &mut self.session {
            HttpSession::H1(session) => is_done && is_sent && !self.is_broken && session.is_body_done(),
            HttpSession::H2(_) => true,
            HttpSession::Custom(()) => false,
        };
        is_reusable.then_some(self.session)
    }
}

/// Why nothing of a request was sent over HTTP/2: its connection ended a moment ago, and the request can be sent over another; or the head
/// is none that HTTP/2 takes, which is a mistake of ours and would be refused again.
fn unsent(mut error: Box<Error>) -> Box<Error> {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    // Of all errors of `h2` only those of its user have neither.
    if !cause.is_some_and(|cause| cause.is_io() || cause.reason().is_some()) {
        error.set_retry(false);
        return error.into_in();
    }
    error.set_retry(true);
    error.into_up()
}

/// Whether an answer's body comes in chunks.
fn is_chunked(session: &Http1) -> bool {
    session
        .get_header(header::TRANSFER_ENCODING)
        .is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// Does `read`, which sends the rest of a request as well, for as long as the upstream takes some of it now and then.
async fn while_sending<T>(
    io: Option<&UpstreamIo>,
    write_max: Option<Duration>,
    mut read: Pin<&mut impl Future<Output = Result<T>>>,
) -> Result<T> {
    let (Some(io), Some(write_max)) = (io.filter(|io| io.waits().is_some()), write_max) else {
        return read.await;
    };
    loop {
        let before = io.waits();
        match tokio::time::timeout(write_max, read.as_mut()).await {
            Ok(read) => return read,
            Err(_) if before.is_some() && io.waits() == before => {
                return Error::e_explain(ErrorType::WriteTimedout, "the upstream does not take the request");
            }
            Err(_) => {}
        }
    }
}

/// What it means that an upstream takes no more of a request over HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stalled {
    /// Nothing has come of its answer: it fails.
    Fails,
    /// It answers, and that is what counts.
    Answers,
}

/// Does `read` while the rest of a request is sent. That the upstream has ended the request is told by what is read.
async fn beside<T>(
    sends: &mut Option<BoxFuture<'static, Result<()>>>,
    stalled: Stalled,
    mut read: Pin<&mut impl Future<Output = Result<T>>>,
) -> Result<T> {
    poll_fn(|context| {
        if let Some(Poll::Ready(sent)) = sends.as_mut().map(|sends| sends.as_mut().poll(context)) {
            *sends = None;
            if let Err(error) = sent {
                log::debug!("an upstream did not take all of a request: {}", ErrorText(&error));
                if stalled == Stalled::Fails && *error.etype() == ErrorType::WriteTimedout {
                    return Poll::Ready(Err(error));
                }
            }
        }
        read.as_mut().poll(context)
    })
    .await
}

/// Over HTTP/2 the target has the authority (RFC 9113 section 8.3.1), and some servers take no head with both.
pub(super) fn name_authority(request: &mut RequestHeader, is_tls: bool) -> Result<()> {
    let Some(host) = request.remove_header(&header::HOST) else {
        return Ok(());
    };
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let target = Uri::builder()
        .scheme(if is_tls { "https" } else { "http" })
        .authority(host.as_bytes())
        .path_and_query(path)
        .build();
    let target = target.or_err(ErrorType::InternalError, "a target that is none")?;
    request.set_uri(target);
    Ok(())
}

fn unknown<T>() -> Result<T> {
    Error::e_explain(ErrorType::InternalError, "an upstream of an unknown protocol")
}

#[cfg(test)]
mod tests {
    use pingora::ErrorSource;

    use super::*;

    fn unsent_for(cause: h2::Error) -> (bool, ErrorSource) {
        let error = unsent(Error::because(ErrorType::H2Error, "while sending request", cause));
        (error.retry(), error.esource().clone())
    }

    /// It was sent again over another connection, and told to be a failure of a provider that had seen nothing of it.
    #[tokio::test]
    async fn a_head_that_http2_does_not_take_is_a_mistake_of_ours() {
        let (near, _far) = tokio::io::duplex(1 << 16);
        let (mut requests, _connection) = h2::client::handshake(near).await.unwrap();
        let head = http::Request::post("https://far.example/").header("keep-alive", "timeout=5");
        let refused = requests.send_request(head.body(()).unwrap(), true).unwrap_err();
        assert_eq!(unsent_for(refused), (false, ErrorSource::Internal));
        let ended = h2::Error::from(h2::Reason::NO_ERROR);
        assert_eq!(unsent_for(ended), (true, ErrorSource::Upstream));
    }
}
