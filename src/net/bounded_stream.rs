//! A connection with limits that Pingora's has not: a client's gives a head only so much room ([`HeadLimit`]), is read for so long at a
//! time ([`ReadTurn`]) and ends when nothing that is written to it is taken; an upstream's sends what it could not send at once while it
//! is read ([`UpstreamIo`]).
//!
//! What is written is gathered until it is flushed ([`WriteBuffer`]); everything else is passed on as it is. `listener` puts each
//! connection of a client into one, and `connection_pool` each to an upstream over HTTP/1.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{SslDigest, TlsRef, TlsStream};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, IO, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::chunk_check::Misframed;
use super::head_limit::{Excess, HeadLimit};
use super::read_turn::ReadTurn;
use super::upstream_io::UpstreamIo;
use super::write_buffer::{Heads, WriteBuffer};

/// The connection.
#[derive(Debug)]
pub(crate) struct BoundedStream<S: AsyncWrite + Unpin> {
    inner: S,
    side: Side,
    output: WriteBuffer,
    stall: Stall,
    /// A client's. That of an upstream never ends: who carries its answer sees to it.
    turn: ReadTurn,
}

/// Whose connection it is.
#[derive(Debug)]
enum Side {
    Client(Arc<HeadLimit>, Arc<Cork>),
    Upstream(Arc<UpstreamIo>),
}

/// Whether what is flushed to a client waits all the same, since more follows at once: Pingora flushes the head of a stream, each chunk
/// and the end of the chunks one by one.
#[derive(Debug, Default)]
pub(crate) struct Cork(AtomicBool);

/// Holds what is flushed until it is dropped. The next flush after that sends all of it.
#[derive(Debug)]
pub(crate) struct Corked(Arc<Cork>);

/// How long the other end may take nothing of what is written to it.
#[derive(Debug)]
struct Stall {
    at_most: Option<Duration>,
    /// Runs while nothing is taken.
    timer: Option<Pin<Box<Sleep>>>,
    /// Told when that begins and ends.
    told: Option<Arc<HeadLimit>>,
}

impl<S: AsyncWrite + Unpin> BoundedStream<S> {
    /// A client's, which fails once it takes nothing for `write_max`.
    pub(crate) fn of_client(inner: S, limit: Arc<HeadLimit>, write_max: Duration) -> BoundedStream<S> {
        BoundedStream {
            inner,
            side: Side::Client(Arc::clone(&limit), Arc::default()),
            output: WriteBuffer::new(Heads::OfAnswers),
            stall: Stall {
                at_most: Some(write_max),
                timer: None,
                told: Some(limit),
            },
            turn: ReadTurn::default(),
        }
    }

    /// An upstream's. Who uses it sees to its time-outs.
    pub(crate) fn of_upstream(inner: S) -> BoundedStream<S> {
        BoundedStream {
            inner,
            side: Side::Upstream(Arc::default()),
            output: WriteBuffer::new(Heads::OfRequests),
            stall: Stall {
                at_most: None,
                timer: None,
                told: None,
            },
            turn: ReadTurn::default(),
        }
    }
}

impl Drop for Corked {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

impl Stall {
    /// Passes on what became of a write; an error once it has waited for too long.
    fn limit<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.timer.take().is_some() {
                self.tell(false);
            }
            return written;
        }
        let Some(at_most) = self.at_most else {
            return Poll::Pending;
        };
        if self.timer.is_none() {
            self.tell(true);
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(at_most)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn tell(&self, is_stalled: bool) {
        if let Some(limit) = &self.told {
            limit.stalls(is_stalled);
        }
    }
}

/// Whose connection it is. None when it is none of these.
fn side_of(stream: &Stream) -> Option<&Side> {
    let stream = (**stream).as_any();
    let clear = stream.downcast_ref::<BoundedStream<Socket>>().map(|clear| &clear.side);
    let secure = || stream.downcast_ref::<BoundedStream<TlsStream<Socket>>>();
    clear.or_else(|| secure().map(|secure| &secure.side))
}

/// What the listener and the handler of a client's connection tell each other. None when it is another's connection.
pub(crate) fn head_limit_of(stream: &Stream) -> Option<&HeadLimit> {
    match side_of(stream)? {
        Side::Client(limit, _) => Some(limit),
        Side::Upstream(_) => None,
    }
}

/// Holds back what is flushed to a client of HTTP/1. None when it is another's connection.
pub(crate) fn cork(stream: &Stream) -> Option<Corked> {
    match side_of(stream)? {
        Side::Client(_, cork) => {
            cork.0.store(true, Ordering::Relaxed);
            Some(Corked(Arc::clone(cork)))
        }
        Side::Upstream(_) => None,
    }
}

/// What is sent over an upstream's connection that `connection_pool` has made. None when it is another's connection.
pub(crate) fn upstream_io_of(stream: &Stream) -> Option<Arc<UpstreamIo>> {
    match side_of(stream)? {
        Side::Client(..) => None,
        Side::Upstream(io) => Some(Arc::clone(io)),
    }
}

impl<S: AsyncWrite + Unpin> Drop for BoundedStream<S> {
    /// What waits to be flushed leaves if it can at once, as with Pingora's own connections.
    fn drop(&mut self) {
        let BoundedStream { inner, output, .. } = self;
        let left = output.poll_empty(inner, &mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Err(error)) = left {
            log::debug!("the rest of what was written was not taken: {error}");
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let BoundedStream {
            inner,
            side,
            output,
            turn,
            ..
        } = &mut *self;
        ready!(turn.poll_begin(context));
        if let Side::Upstream(io) = side
            && output.has_to_leave()
        {
            // That the upstream takes no more is no reason not to hear what it says.
            drop(output.send_on(inner, context, io));
        }
        let before = buffer.filled().len();
        let read = Pin::new(inner).poll_read(context, buffer);
        let new = buffer.filled().get(before..).unwrap_or_default();
        if new.is_empty() {
            turn.ends();
            return match (side, read) {
                (Side::Upstream(io), Poll::Ready(end)) => Poll::Ready(io.ended(end)),
                (_, read) => read,
            };
        }
        let refused = match side {
            Side::Client(limit, _) => limit.read(new).inspect(|lines| turn.read(new.len(), *lines)).err(),
            Side::Upstream(io) => io.read(new).err().map(|Misframed| Excess::Framing),
        };
        match refused {
            None => read,
            Some(Excess::Head) => Poll::Ready(Err(io::Error::other("the head of a request is too large"))),
            Some(Excess::Framing) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a chunk's line is not as HTTP wants it",
            ))),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let BoundedStream {
            inner,
            side,
            output,
            stall,
            ..
        } = &mut *self;
        match side {
            Side::Client(..) => stall.limit(output.poll_write(inner, context, bytes), context),
            Side::Upstream(io) => output.poll_send(inner, context, bytes, io),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let BoundedStream {
            inner,
            side,
            output,
            stall,
            ..
        } = &mut *self;
        match side {
            Side::Client(_, cork) if cork.0.load(Ordering::Relaxed) => Poll::Ready(Ok(())),
            Side::Client(..) => stall.limit(output.poll_flush(inner, context), context),
            Side::Upstream(io) => output.poll_flush_sending(inner, context, io),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let BoundedStream {
            inner, output, stall, ..
        } = &mut *self;
        ready!(stall.limit(output.poll_empty(inner, context), context))?;
        stall.limit(Pin::new(inner).poll_shutdown(context), context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let BoundedStream {
            inner, output, stall, ..
        } = &mut *self;
        stall.limit(output.poll_write_vectored(inner, context, pieces), context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[async_trait]
impl<S: IO> Shutdown for BoundedStream<S> {
    async fn shutdown(&mut self) {
        let BoundedStream {
            inner, output, stall, ..
        } = self;
        let emptied = poll_fn(|context| stall.limit(output.poll_empty(inner, context), context)).await;
        if let Err(error) = emptied {
            log::debug!("the rest of what was written was not taken: {error}");
        }
        Shutdown::shutdown(inner).await;
    }
}

#[async_trait]
impl<S: IO> Peek for BoundedStream<S> {
    async fn try_peek(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        self.inner.try_peek(bytes).await
    }
}

impl<S: AsyncWrite + Unpin + UniqueID> UniqueID for BoundedStream<S> {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl<S: AsyncWrite + Unpin + Ssl> Ssl for BoundedStream<S> {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.inner.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl<S: AsyncWrite + Unpin + GetTimingDigest> GetTimingDigest for BoundedStream<S> {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.inner.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.inner.get_write_pending_time()
    }
}

impl<S: AsyncWrite + Unpin + GetProxyDigest> GetProxyDigest for BoundedStream<S> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }

    fn set_proxy_digest(&mut self, digest: ProxyDigest) {
        self.inner.set_proxy_digest(digest);
    }
}

impl<S: AsyncWrite + Unpin + GetSocketDigest> GetSocketDigest for BoundedStream<S> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }

    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.inner.set_socket_digest(digest);
    }
}

#[cfg(test)]
mod tests;
