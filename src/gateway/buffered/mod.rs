//! A downstream session that has its request body already: for Pingora's proxy loop, after the body was read.
//!
//! Pingora chooses the upstream before it reads the body, and replays at most 64 KiB of it. Tollgate must know the body first and
//! may have to send it to a second target. So the real session is put into this one, which says that its body is done and
//! hands it out as often as asked; everything else is passed on. When it is dropped, the real session goes back to its owner, so
//! that keep-alive works.
//!
//! It also sees every turn of the proxy loop, and therefore: ends a call whose upstream has fallen silent, and, for providers
//! that are drained, hides that the client has gone so that the upstream is read to its end.
//!
//! It rests on an interface that Pingora does not document: the dependency is pinned.

mod bell;
mod burst;
mod comment;
mod deliver;
mod head;
mod idle;
mod silence;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::{CustomMessageWrite, server::Session as CustomSession};
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::proxy::Session;
use pingora::{Error, ErrorType, Result};

pub(super) use self::silence::Longest;
use self::{bell::Bell, burst::Burst, comment::Comments, head::Head, idle::Idle, silence::Silence};
use super::bounded::Room;
use super::drain::{DrainPlace, drained_out};
use super::life::Life;
use super::meter::joined;
use super::ticket::{Shared, Ticket, placeholder};
use crate::pure::chat::ResponseMode;

/// How a call is carried once its body is known.
#[derive(Clone, Debug)]
pub(super) struct Carriage {
    /// Whether the answer is whole: then its head waits for the first bytes that follow.
    pub(super) mode: ResponseMode,
    /// What the connection is told, where there is one of HTTP/1.
    pub(super) room: Option<Arc<Room>>,
    /// The longest silence of the upstream.
    pub(super) silence: Longest,
    /// The silence of the upstream that a comment ends; none: it is never commented on.
    pub(super) comment_every: Option<Duration>,
    /// How long the upstream of a drained call is read on for a client that has gone.
    pub(super) drain_max: Duration,
    /// Tells when a stop no longer waits for the call; the call's task is woken then.
    pub(super) life: Arc<Life>,
}

/// The session that Pingora sees.
struct Buffered {
    real: Option<Box<ServerSession>>,
    shared: Arc<Shared>,
    carriage: Carriage,
    gone_at: Option<Instant>,
    /// The client sent more than its request: that is not read, and the connection is not used again.
    overran: bool,
    /// Holds a place among the calls that are drained.
    drained: Option<DrainPlace>,
    /// Rung by what is waited for beside the upstream.
    bell: Bell,
    /// Whether it was given to the client's connection and to the clock, which had nothing to tell then.
    is_hung: bool,
    silence: Silence,
    comments: Comments,
    head: Head,
    burst: Burst,
}

/// Puts a session that has its body already in the place of the real one.
///
/// It hands out one byte for it: Pingora only asks whether there is something to send, and the gateway's body filter says what.
pub(super) fn install(session: &mut Session, mut carriage: Carriage) -> Ticket {
    let room = carriage.room.take().filter(|_| carriage.mode == ResponseMode::Stream);
    let shared = Arc::new(Shared::default());
    let real = std::mem::replace(&mut session.downstream_session, placeholder());
    let buffered = Buffered {
        real: Some(real),
        shared: Arc::clone(&shared),
        head: Head::new(carriage.mode),
        burst: Burst::new(room),
        comments: Comments::new(carriage.comment_every),
        silence: Silence::new(carriage.silence),
        bell: Bell::default(),
        is_hung: false,
        carriage,
        gone_at: None,
        overran: false,
        drained: None,
    };
    *session.downstream_session = ServerSession::new_custom(Box::new(buffered));
    Ticket(shared)
}

/// Whether an error is one of this session's own, for which the upstream is to blame: Pingora takes all that comes from a downstream
/// session for the client's.
pub(super) fn is_upstreams_fault(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::Custom(what) if [UNHEARD, SILENT, STOPPING, EMPTY].contains(what))
}

fn interrupted(what: &'static str) -> Box<Error> {
    let mut error = Error::new(ErrorType::Custom(what));
    error.as_up();
    error
}

impl Buffered {
    #[expect(clippy::expect_used, reason = "`real` is taken in drop and nowhere else")]
    fn real(&self) -> &ServerSession {
        self.real.as_ref().expect("the real session is here until the drop")
    }

    #[expect(clippy::expect_used, reason = "`real` is taken in drop and nowhere else")]
    fn real_mut(&mut self) -> &mut ServerSession {
        self.real.as_mut().expect("the real session is here until the drop")
    }

    fn is_gone(&self) -> bool {
        self.gone_at.is_some()
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.shared.send_home(self.real.take());
    }
}

#[async_trait]
impl CustomSession for Buffered {
    fn req_header(&self) -> &RequestHeader {
        self.real().req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.real_mut().req_header_mut()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    async fn write_response_header(&mut self, header: Box<ResponseHeader>, _end: bool) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        match self.real_mut().write_response_header(header).await {
            Ok(()) => Ok(()),
            Err(error) => self.client_gone(error),
        }
    }

    async fn write_response_header_ref(&mut self, header: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(header.clone()), end).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        let data = match self.burst.take() {
            Some(kept) => joined(&kept, &data),
            None => data,
        };
        let written = match self.end_comment().await {
            Ok(()) => self.real_mut().write_response_body(data, end).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) => self.client_gone(error),
        }
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.real_mut().write_response_trailers(trailers).await
    }

    fn response_duplex_vec<'call, 'life>(&'call mut self, tasks: Vec<HttpTask>) -> BoxFuture<'life, Result<bool>>
    where
        'call: 'life,
        Self: 'life,
    {
        self.deliver(tasks)
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.real_mut().set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.real().get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.real_mut().set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.real().get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.real_mut().set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.real().get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.real().request_summary()
    }

    /// A `100 Continue` is no answer yet.
    fn response_written(&self) -> Option<&ResponseHeader> {
        self.real()
            .response_written()
            .filter(|header| !header.status.is_informational())
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.real_mut().shutdown().await;
    }

    fn is_body_done(&mut self) -> bool {
        true
    }

    async fn finish(&mut self) -> Result<()> {
        if self.is_gone() {
            // An error, so that the connection is not used again.
            return Err(drained_out());
        }
        self.end_comment().await?;
        if let Some(kept) = self.burst.take() {
            self.real_mut().write_response_body(kept, false).await?;
        }
        self.real_mut().finish_body().await
    }

    fn is_body_empty(&mut self) -> bool {
        false
    }

    fn read_body_or_idle<'call, 'life>(
        &'call mut self,
        _no_body_expected: bool,
    ) -> BoxFuture<'life, Result<Option<Bytes>>>
    where
        'call: 'life,
        Self: 'life,
    {
        Box::pin(Idle::Waits(self))
    }

    fn body_bytes_sent(&self) -> usize {
        self.real().body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.real().body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.real().digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.real_mut().digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.real().client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.real().server_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.real().to_h1_raw()
    }

    /// Pingora calls this when an attempt begins.
    fn enable_retry_buffering(&mut self) {
        self.silence.restart();
        self.head = Head::new(self.carriage.mode);
    }

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        Some(Bytes::from_static(b"{"))
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn futures::Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn futures::Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
    ) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}

/// An upstream has not begun to answer in time.
pub(super) const UNHEARD: &str = "UpstreamUnheard";
/// An upstream that had begun to answer has been silent for too long.
const SILENT: &str = "UpstreamSilent";
/// An upstream's answer of 200 had no body.
const EMPTY: &str = "UpstreamEmpty";
/// The process stops and no longer waits.
const STOPPING: &str = "GatewayStopping";
