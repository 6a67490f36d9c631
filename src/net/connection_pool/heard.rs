//! The bytes of a connection over HTTP/2.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use pingora::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that tells whether anything was read from it.
pub(super) struct Heard {
    inner: Stream,
    reads: Arc<AtomicUsize>,
}

impl Heard {
    /// `reads` counts the reads that bring something, modulo 2^64.
    pub(super) fn new(inner: Stream, reads: Arc<AtomicUsize>) -> Heard {
        Heard { inner, reads }
    }
}

/// Whether anything was read from a connection since a moment of its life.
#[derive(Clone)]
pub(crate) struct IdleTime {
    reads: Arc<AtomicUsize>,
    before: usize,
}

impl IdleTime {
    /// Since now, by the count of reads that [`Heard`] keeps.
    pub(super) fn begin(reads: &Arc<AtomicUsize>) -> IdleTime {
        IdleTime {
            reads: Arc::clone(reads),
            before: reads.load(Ordering::Relaxed),
        }
    }

    /// Whether nothing was.
    pub(crate) fn lasts(&self) -> bool {
        self.reads.load(Ordering::Relaxed) == self.before
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        match read {
            // TLS without its close. A stream says itself where it ends, so nothing can be missing without a word.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
