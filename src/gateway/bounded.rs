//! A connection that gives a head only so much room. Pingora would take a megabyte of it, and as many at once as there are connections.
//!
//! What is written is gathered until it is flushed ([`Output`]); everything else is passed on as it is. The door puts each connection
//! into one, and `uplinks` those to upstreams, whose heads Pingora limits, for what they write.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

use super::output::{Heads, Output};

/// What a connection's reader and its conversation tell each other of the head that is waited for.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes that may still come of it.
    left: AtomicUsize,
    /// Whether the connection has had a request over HTTP/2, or waited for its first one over HTTP/1.
    met: AtomicBool,
    /// Whether any has come.
    begun: AtomicBool,
    /// Whether its time runs.
    is_timed: AtomicBool,
    /// Whether it is there, so that there is nothing to limit.
    came: AtomicBool,
}

impl Room {
    /// Room for everything, until a head is waited for.
    pub(super) fn unlimited() -> Arc<Room> {
        Arc::new(Room {
            left: AtomicUsize::new(0),
            met: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            is_timed: AtomicBool::new(false),
            came: AtomicBool::new(true),
        })
    }

    /// That of a connection which the door has taken in.
    pub(super) fn of(stream: &Stream) -> Option<&Room> {
        let stream = (**stream).as_any();
        let clear = stream.downcast_ref::<Bounded<Socket>>().map(|bounded| &bounded.room);
        let secure = || {
            stream
                .downcast_ref::<Bounded<TlsStream<Socket>>>()
                .map(|bounded| &bounded.room)
        };
        clear.or_else(secure).map(|room| &**room)
    }

    /// A request begins over HTTP/2.
    pub(super) fn meet(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// From now on a head is waited for; the time of a connection's first one runs already.
    pub(super) fn begin(&self) {
        let is_first = !self.met.swap(true, Ordering::Relaxed);
        self.is_timed.store(is_first, Ordering::Relaxed);
        self.left.store(HEAD_ROOM, Ordering::Relaxed);
        self.begun.store(false, Ordering::Relaxed);
        self.came.store(false, Ordering::Relaxed);
    }

    /// The head is there.
    pub(super) fn head_came(&self) {
        self.came.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    fn has_come(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Whether a head is waited for.
    pub(super) fn waits_for_head(&self) -> bool {
        !self.has_come() || !self.met.load(Ordering::Relaxed)
    }

    /// Asked each time that a head's time is over: whether it has run since the last time. What has begun to come meanwhile has the
    /// next one to end, so that an idle connection needs no clock of its own.
    pub(super) fn is_late(&self) -> bool {
        if !self.waits_for_head() {
            return false;
        }
        if !self.met.load(Ordering::Relaxed) {
            return true;
        }
        self.is_timed
            .fetch_or(self.begun.load(Ordering::Relaxed), Ordering::Relaxed)
    }

    /// Takes what was read; whether there was room for it.
    fn take(&self, bytes: usize) -> bool {
        if self.has_come() || bytes == 0 {
            return true;
        }
        self.begun.store(true, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(bytes), Ordering::Relaxed);
        left > 0
    }
}

/// The connection.
#[derive(Debug)]
pub(super) struct Bounded<S: AsyncWrite + Unpin> {
    inner: S,
    room: Arc<Room>,
    output: Output,
}

impl<S: AsyncWrite + Unpin> Bounded<S> {
    pub(super) fn new(inner: S, room: Arc<Room>, heads: Heads) -> Bounded<S> {
        Bounded {
            inner,
            room,
            output: Output::new(heads),
        }
    }
}

impl<S: AsyncWrite + Unpin> Drop for Bounded<S> {
    /// What waits to be flushed leaves if it can at once, as with Pingora's own connections.
    fn drop(&mut self) {
        let Bounded { inner, output, .. } = self;
        let left = output.poll_empty(inner, &mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Err(error)) = left {
            log::debug!("the rest of an answer was not taken: {error}");
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        if self.room.take(bytes) {
            return read;
        }
        Poll::Ready(Err(io::Error::other("the head of a request is too large")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Bounded { inner, output, .. } = &mut *self;
        output.poll_write(inner, context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Bounded { inner, output, .. } = &mut *self;
        output.poll_flush(inner, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Bounded { inner, output, .. } = &mut *self;
        ready!(output.poll_empty(inner, context))?;
        Pin::new(inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Bounded { inner, output, .. } = &mut *self;
        output.poll_write_vectored(inner, context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[async_trait]
impl<S: IO> Shutdown for Bounded<S> {
    async fn shutdown(&mut self) {
        let Bounded { inner, output, .. } = self;
        if let Err(error) = poll_fn(|context| output.poll_empty(inner, context)).await {
            log::debug!("the rest of an answer was not taken: {error}");
        }
        Shutdown::shutdown(inner).await;
    }
}

#[async_trait]
impl<S: IO> Peek for Bounded<S> {
    async fn try_peek(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        self.inner.try_peek(bytes).await
    }
}

impl<S: AsyncWrite + Unpin + UniqueID> UniqueID for Bounded<S> {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl<S: AsyncWrite + Unpin + Ssl> Ssl for Bounded<S> {
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

impl<S: AsyncWrite + Unpin + GetTimingDigest> GetTimingDigest for Bounded<S> {
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

impl<S: AsyncWrite + Unpin + GetProxyDigest> GetProxyDigest for Bounded<S> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }

    fn set_proxy_digest(&mut self, digest: ProxyDigest) {
        self.inner.set_proxy_digest(digest);
    }
}

impl<S: AsyncWrite + Unpin + GetSocketDigest> GetSocketDigest for Bounded<S> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }

    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.inner.set_socket_digest(digest);
    }
}

/// Somewhat more than a head may have, so that one that is a little too large gets an answer. The last read may go beyond it.
const HEAD_ROOM: usize = 128 << 10;
