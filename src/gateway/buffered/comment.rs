//! Comments on a stream whose upstream is silent, so that nothing between the gateway and its client takes the connection for dead.
//!
//! They are sent only between two events, and clients skip them. The proxy loop may drop a write half way whenever the upstream is
//! heard; what is left of a comment then goes out before anything else does. `buffered` calls it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::Result;
use pingora::protocols::http::{HttpTask, ServerSession};

/// The comments of one stream.
pub(super) struct Comments {
    /// The silence that each one ends; none: there are no comments.
    every: Option<Duration>,
    said_at: Option<Instant>,
    /// Whether something is on its way.
    is_begun: bool,
    /// What is left to write of one, over HTTP/2.
    unsent: Bytes,
}

impl Comments {
    pub(super) fn new(every: Option<Duration>) -> Comments {
        Comments {
            every,
            said_at: None,
            is_begun: false,
            unsent: Bytes::new(),
        }
    }

    /// When the next one is due, for an upstream that was last heard at `heard_at`.
    pub(super) fn due_at(&self, heard_at: Instant) -> Option<Instant> {
        let last = self.said_at.map_or(heard_at, |said_at| said_at.max(heard_at));
        self.every.and_then(|every| last.checked_add(every))
    }

    /// One that is due is passed over, for the stream does not stand between two events.
    pub(super) fn pass_over(&mut self) {
        self.said_at = Some(crate::clock::monotonic());
    }

    /// Begins one; [`Comments::write`] sends it.
    pub(super) fn begin(&mut self, session: &mut ServerSession) {
        self.pass_over();
        let comment = Bytes::from_static(COMMENT);
        if session.is_http2() {
            self.is_begun = true;
            self.unsent = comment;
        } else {
            self.send(session, comment);
        }
    }

    /// Begins what is to be sent in the same way over HTTP/1.
    pub(super) fn send(&mut self, session: &mut ServerSession, bytes: Bytes) {
        self.is_begun = true;
        session.send_downstream_proxy_task(HttpTask::Body(Some(bytes), false));
    }

    /// Whether something was begun and is not wholly sent.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Sends what is left of it. It may be dropped at any time, and goes on where it was.
    pub(super) async fn write(&mut self, session: &mut ServerSession) -> Result<()> {
        if session.has_pending_downstream_proxy_tasks() {
            session.write_downstream_proxy_tasks().await?;
        }
        // One byte is sent or not, never in part.
        while let Some(byte) = self.unsent.get(..1) {
            session.write_response_body(Bytes::copy_from_slice(byte), false).await?;
            self.unsent = self.unsent.slice(1..);
        }
        self.is_begun = false;
        Ok(())
    }
}

const COMMENT: &[u8] = b": waiting\n\n";
