//! What a call's owner keeps while a [`Buffered`](super::buffered) session stands in the real one's place: the way to get that back, and
//! what the two ends tell each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pingora::protocols::http::ServerSession;
use pingora::proxy::Session;

/// The owner's end: where the real session comes back to, and what the two ends tell each other.
pub(super) struct Ticket(pub(super) Arc<Shared>);

#[derive(Default)]
pub(super) struct Shared {
    home: Mutex<Option<Box<ServerSession>>>,
    /// Whether the target that is tried now is drained for a client that has gone.
    pub(super) drains: AtomicBool,
    pub(super) gone: AtomicBool,
    /// Whether what was passed on stands between two events of a stream.
    pub(super) between_events: AtomicBool,
    /// Whether a comment was begun.
    pub(super) commented: AtomicBool,
}

impl Shared {
    /// The real session is no longer stood in for.
    pub(super) fn send_home(&self, real: Option<Box<ServerSession>>) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = real;
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
