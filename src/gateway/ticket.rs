//! What a call's owner keeps while a [`Buffered`](super::buffered) session stands in the real one's place: the way to get that back, and
//! what the two ends tell each other.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;

use super::cork::Cork;

/// The owner's end: where the real session comes back to, and what the two ends tell each other.
pub(super) struct Ticket(pub(super) Arc<Shared>);

pub(super) struct Shared {
    home: Mutex<Option<Box<ServerSession>>>,
    /// Whether the target that is tried now is drained for a client that has gone.
    pub(super) drains: AtomicBool,
    pub(super) gone: AtomicBool,
    /// Whether what was passed on stands between two events of a stream.
    pub(super) between_events: AtomicBool,
    /// Whether a comment was begun.
    pub(super) commented: AtomicBool,
    /// The connection on which the request's head is held back; [`NONE`].
    corked: AtomicI32,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            home: Mutex::default(),
            drains: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            between_events: AtomicBool::new(false),
            commented: AtomicBool::new(false),
            corked: AtomicI32::new(NONE),
        }
    }
}

impl Shared {
    /// The real session is no longer stood in for.
    pub(super) fn send_home(&self, real: Option<Box<ServerSession>>) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = real;
    }

    /// The cork of the attempt that begins now.
    pub(super) fn take_cork(&self) -> Cork {
        match self.corked.swap(NONE, Ordering::Relaxed) {
            NONE => Cork::Out,
            connection => Cork::In(connection),
        }
    }
}

impl Ticket {
    /// Puts the real session back, so that its connection can be used again.
    pub(super) fn redeem(self, session: &mut Session) {
        // Dropping the stand-in sends the real one home.
        session.downstream_session = placeholder();
        if let Some(real) = self.0.home.lock().unwrap_or_else(PoisonError::into_inner).take() {
            session.downstream_session = real;
        }
    }

    /// Says whether the target that is tried next is drained.
    pub(super) fn set_drains(&self, drains: bool) {
        self.0.drains.store(drains, Ordering::Relaxed);
    }

    /// Says whether what was passed on so far stands between two events of a stream.
    pub(super) fn set_between_events(&self, between: bool) {
        self.0.between_events.store(between, Ordering::Relaxed);
    }

    /// Holds the head of a request back that is about to be written to a connection over HTTP/1.
    pub(super) fn cork(&self, connection: RawFd) {
        if Cork::put_in(connection) {
            self.0.corked.store(connection, Ordering::Relaxed);
        }
    }

    /// Whether the client was sent a comment.
    pub(super) fn has_commented(&self) -> bool {
        self.0.commented.load(Ordering::Relaxed)
    }

    /// Whether the client has gone while the upstream was drained.
    pub(super) fn client_is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }
}

/// `()` implements the trait: a session that is never asked anything, without an allocation for its inside.
pub(super) fn placeholder() -> Box<ServerSession> {
    Box::new(ServerSession::new_custom(Box::new(())))
}

/// No connection.
const NONE: RawFd = -1;
