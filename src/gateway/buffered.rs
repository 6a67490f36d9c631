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

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::{CustomMessageWrite, server::Session as CustomSession};
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::proxy::Session;
use pingora::{Error, ErrorSource, ErrorType, Result};

use super::life::Cut;

/// How a call is carried once its body is known.
#[derive(Clone, Debug)]
pub(super) struct Carriage {
    /// The longest silence of the upstream once its answer has begun.
    pub(super) idle: Duration,
    /// How long the upstream is read on for a client that has gone; none when it is closed at once.
    pub(super) drain: Option<Duration>,
    /// Ends the call when a stop no longer waits for it.
    pub(super) cut: Cut,
}

/// The owner's end: where the real session comes back to.
pub(super) struct Ticket(Arc<Mutex<Option<Box<ServerSession>>>>);

/// The session that Pingora sees.
struct Buffered {
    real: Option<Box<ServerSession>>,
    home: Arc<Mutex<Option<Box<ServerSession>>>>,
    body: Bytes,
    carriage: Carriage,
    gone_at: Option<Instant>,
    /// When the upstream was last heard; none before its answer has begun.
    heard_at: Option<Instant>,
    alarm: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// Puts a session that replays `body` in the place of the real one.
pub(super) fn install(session: &mut Session, body: Bytes, carriage: Carriage) -> Ticket {
    let home = Arc::new(Mutex::new(None));
    let real = std::mem::replace(&mut session.downstream_session, placeholder());
    let buffered = Buffered {
        real: Some(real),
        home: Arc::clone(&home),
        body,
        carriage,
        gone_at: None,
        heard_at: None,
        alarm: None,
    };
    *session.downstream_session = ServerSession::new_custom(Box::new(buffered));
    Ticket(home)
}

impl Ticket {
    /// Puts the real session back, so that its connection can be used again.
    pub(super) fn redeem(self, session: &mut Session) {
        // Dropping the stand-in sends the real one home.
        session.downstream_session = placeholder();
        if let Some(real) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            session.downstream_session = real;
        }
    }
}

/// Ends the call as if its upstream had failed: a stream's client gets the error event and a clean end.
fn upstream_error<T>(why: &'static str) -> Result<T> {
    let mut error = Error::explain(ErrorType::ReadTimedout, why);
    error.as_up();
    Err(error)
}

/// `()` implements the trait: a session that is never asked anything, without an allocation for its inside.
fn placeholder() -> Box<ServerSession> {
    Box::new(ServerSession::new_custom(Box::new(())))
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

    /// The client has gone: an error, unless this call is drained.
    fn client_gone(&mut self, error: Box<Error>) -> Result<()> {
        if self.carriage.drain.is_none() {
            return Err(error);
        }
        self.gone_at.get_or_insert_with(crate::clock::monotonic);
        Ok(())
    }

    fn check_drain(&self) -> Result<()> {
        match (self.gone_at, self.carriage.drain) {
            (Some(at), Some(max)) if at.elapsed() >= max => Error::e_explain(
                ErrorType::ConnectionClosed,
                "the client has gone and draining took too long",
            ),
            _ => Ok(()),
        }
    }

    /// Waits until the upstream has been silent for too long. Never returns while it is heard, or before its answer begins: that
    /// wait has the peer's own time-out.
    async fn silence(alarm: &mut Option<Pin<Box<tokio::time::Sleep>>>, heard_at: Option<Instant>, idle: Duration) {
        let Some(heard_at) = heard_at else {
            return std::future::pending().await;
        };
        loop {
            let sleep = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
            sleep.as_mut().await;
            let left = idle.saturating_sub(heard_at.elapsed());
            if left.is_zero() {
                return;
            }
            sleep.as_mut().reset(tokio::time::Instant::now() + left);
        }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.real.take();
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
        match self.real_mut().write_response_body(data, end).await {
            Ok(()) => Ok(()),
            Err(error) => self.client_gone(error),
        }
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.real_mut().write_response_trailers(trailers).await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        self.heard_at = Some(crate::clock::monotonic());
        if self.is_gone() {
            self.check_drain()?;
            let mut ended = false;
            for task in tasks {
                if let HttpTask::Failed(error) = task {
                    return Err(error);
                }
                ended |= task.is_end();
            }
            return Ok(ended);
        }
        let ended = tasks.iter().any(HttpTask::is_end);
        match self.real_mut().response_duplex_vec(tasks).await {
            Ok(done) => Ok(done),
            Err(error) if *error.esource() == ErrorSource::Upstream => Err(error),
            Err(error) => self.client_gone(error).map(|()| ended),
        }
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

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.real().response_written()
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.real_mut().shutdown().await;
    }

    fn is_body_done(&mut self) -> bool {
        true
    }

    async fn finish(&mut self) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        match self.real_mut().finish_body().await {
            Ok(()) => Ok(()),
            Err(error) => self.client_gone(error),
        }
    }

    fn is_body_empty(&mut self) -> bool {
        self.body.is_empty()
    }

    async fn read_body_or_idle(&mut self, _no_body_expected: bool) -> Result<Option<Bytes>> {
        let (heard_at, idle, gone) = (self.heard_at, self.carriage.idle, self.is_gone());
        let Buffered {
            real, alarm, carriage, ..
        } = self;
        let Some(real) = real.as_mut() else { return Ok(None) };
        let client = async {
            if gone {
                return std::future::pending().await;
            }
            real.read_body_or_idle(true).await
        };
        let read = tokio::select! {
            biased;
            read = client => read,
            () = Buffered::silence(alarm, heard_at, idle) => return upstream_error("the upstream fell silent"),
            _ = carriage.cut.wait_for(|cut| *cut) => return upstream_error("the gateway is stopping"),
        };
        match read {
            Ok(bytes) => Ok(bytes),
            Err(error) => {
                self.client_gone(error)?;
                std::future::pending().await
            }
        }
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

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        (!self.body.is_empty()).then(|| self.body.clone())
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
