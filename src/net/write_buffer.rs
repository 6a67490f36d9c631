//! The head of an answer waits for what follows it, so that both leave in one system call; so do the pieces of a chunk, and the head of a
//! request to an upstream, whose body follows at once. All else leaves at once, for Pingora flushes no body of a known length before its
//! end; only when a client takes no more does the piece after a head wait for the next.
//!
//! Memory is taken only until the flush: of many open streams most are idle, and an idle one has none.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

use super::upstream_io::UpstreamIo;

/// What is sent over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heads {
    /// To a client. A body that begins like a head waits for its next piece or its end.
    OfAnswers,
    /// To an upstream. The flush of such a head is passed over.
    OfRequests,
}

/// Bytes on their way to a connection.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    heads: Heads,
    bytes: Vec<u8>,
    /// How many of them have left.
    sent: usize,
    /// Whether what waits is a request's head, whose flush is still to come.
    passes_flush: bool,
    /// Whether a flush was pending: over TLS, what the connection has taken may still wait in it.
    is_unflushed: bool,
    /// What follows them of a request that its upstream does not take yet.
    rest: Bytes,
}

impl WriteBuffer {
    pub(crate) fn new(heads: Heads) -> WriteBuffer {
        WriteBuffer {
            heads,
            bytes: Vec::new(),
            sent: 0,
            passes_flush: false,
            is_unflushed: false,
            rest: Bytes::new(),
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.rest.is_empty()
    }

    /// Whether [`WriteBuffer::send_on`] has something to do: something waits here, or in the connection for its flush.
    pub(crate) fn has_to_leave(&self) -> bool {
        !self.is_empty() || self.is_unflushed
    }

    /// How much waits.
    fn left(&self) -> usize {
        let gathered = self.bytes.len().saturating_sub(self.sent);
        gathered.saturating_add(self.rest.len())
    }

    /// Takes a part of a request, all of it: what the upstream does not take at once waits, and [`WriteBuffer::send_on`] sends it.
    /// Pending only while such a part waits already.
    pub(crate) fn poll_send<C>(
        &mut self,
        to: &mut C,
        context: &mut Context<'_>,
        bytes: &[u8],
        io: &UpstreamIo,
    ) -> Poll<io::Result<usize>>
    where
        C: AsyncWrite + Unpin,
    {
        if self.rest.is_empty() {
            match self.poll_write(to, context, bytes) {
                Poll::Pending => {}
                Poll::Ready(written) => {
                    if let Ok(bytes) = &written {
                        io.sent(*bytes, self.waits());
                    }
                    return Poll::Ready(written);
                }
            }
        } else {
            ready!(self.poll_empty(to, context))?;
        }
        self.rest = io.keep(bytes);
        io.sent(0, true);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Whether something waits that is no head whose body is still to come.
    fn waits(&self) -> bool {
        !self.is_empty() && !self.passes_flush
    }

    /// Flushes a request as far as its upstream takes it; [`WriteBuffer::send_on`] sends the rest.
    pub(crate) fn poll_flush_sending<C>(
        &mut self,
        to: &mut C,
        context: &mut Context<'_>,
        io: &UpstreamIo,
    ) -> Poll<io::Result<()>>
    where
        C: AsyncWrite + Unpin,
    {
        let (had_to_leave, before) = (self.has_to_leave(), self.left());
        match self.poll_flush(to, context) {
            Poll::Pending => {
                self.is_unflushed = true;
                io.sent(before.saturating_sub(self.left()), true);
                Poll::Ready(Ok(()))
            }
            flushed => {
                // A head that was passed over is still here.
                if had_to_leave && !self.has_to_leave() {
                    io.sent(before, false);
                }
                flushed
            }
        }
    }

    /// Sends more of a request whose upstream did not take all of it, flushes it, and tells `io` how far that went: of what waits in the
    /// connection for its flush, only that it does.
    ///
    /// # Errors
    /// When the upstream takes no more; then nothing waits any longer.
    pub(crate) fn send_on<C>(&mut self, to: &mut C, context: &mut Context<'_>, io: &UpstreamIo) -> io::Result<()>
    where
        C: AsyncWrite + Unpin,
    {
        let before = self.left();
        let left = match self.poll_empty(to, context) {
            Poll::Ready(Ok(())) => Pin::new(to).poll_flush(context),
            left => left,
        };
        self.is_unflushed = left.is_pending();
        match left {
            Poll::Ready(Err(error)) => {
                *self = WriteBuffer::new(self.heads);
                io.failed(&error);
                return Err(error);
            }
            Poll::Ready(Ok(())) => io.sent(before, false),
            Poll::Pending => io.sent(before.saturating_sub(self.left()), true),
        }
        Ok(())
    }

    /// Takes a head, or sends bytes, after the head that waits for them. `to` must be the same connection each time.
    pub(crate) fn poll_write<C>(
        &mut self,
        to: &mut C,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>>
    where
        C: AsyncWrite + Unpin,
    {
        let is_first = self.is_empty();
        let waits = match self.heads {
            Heads::OfAnswers => bytes.starts_with(ANSWER),
            Heads::OfRequests => bytes.starts_with(REQUEST) && bytes.ends_with(HEAD_END),
        };
        self.passes_flush = waits && self.heads == Heads::OfRequests;
        if is_first && !waits || !self.has_room(bytes.len()) {
            ready!(self.poll_empty(to, context))?;
            return Pin::new(to).poll_write(context, bytes);
        }
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
        if !waits && let Poll::Ready(Err(error)) = self.poll_empty(to, context) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Takes pieces that follow one another, for the flush that follows them.
    pub(crate) fn poll_write_vectored<C>(
        &mut self,
        to: &mut C,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>
    where
        C: AsyncWrite + Unpin,
    {
        self.passes_flush = false;
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if !self.has_room(length) {
            ready!(self.poll_empty(to, context))?;
            if length > GATHERED_MAX {
                return Pin::new(to).poll_write_vectored(context, pieces);
            }
        }
        self.reserve(length);
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        Poll::Ready(Ok(length))
    }

    /// Sends what was gathered, unless it is a request's head alone.
    pub(crate) fn poll_flush<C>(&mut self, to: &mut C, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        C: AsyncWrite + Unpin,
    {
        if std::mem::take(&mut self.passes_flush) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_empty(to, context))?;
        ready!(Pin::new(to).poll_flush(context))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Sends what was gathered. Holds after it, unless it is pending or has failed: nothing is, and no memory is kept for it.
    pub(crate) fn poll_empty<C>(&mut self, to: &mut C, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        C: AsyncWrite + Unpin,
    {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut *to).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent = self.sent.saturating_add(sent),
            }
        }
        while !self.rest.is_empty() {
            match ready!(Pin::new(&mut *to).poll_write(context, &self.rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.rest.advance(sent.min(self.rest.len())),
            }
        }
        *self = WriteBuffer {
            is_unflushed: self.is_unflushed,
            ..WriteBuffer::new(self.heads)
        };
        Poll::Ready(Ok(()))
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes.len().saturating_add(length) <= GATHERED_MAX
    }

    fn reserve(&mut self, length: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(length.max(FIRST_ROOM));
        }
    }
}

/// Most bytes that are gathered before they are sent: enough for a head and a usual whole answer.
const GATHERED_MAX: usize = 16 << 10;
/// What is allocated at first, in bytes: a head and a short answer.
const FIRST_ROOM: usize = 2 << 10;
/// What the head of an answer begins with (RFC 9112 section 4).
const ANSWER: &[u8] = b"HTTP/1.";
/// What the head of a request to an upstream begins with.
const REQUEST: &[u8] = b"POST /";
const HEAD_END: &[u8] = b"\r\n\r\n";

#[cfg(test)]
mod tests;
