//! What a plugin tells the transport beside the hooks of Pingora.

use std::task::{Context, Poll};
use std::time::Duration;

use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::{ProxyHttp, Session};

use super::gathering::GatherLimits;

/// What a plugin tells the transport beside the hooks of [`ProxyHttp`]. Every method has a default, with which a plugin is carried as
/// Pingora would, but for this: the plugin reads the client's body itself, before [`Transport::carry`](super::Transport::carry), and gives
/// all of it in its `request_body_filter`, which is called once; and hooks of the cache, `proxy_upstream_filter` and `suppress_proxy_warn_log`
/// are not called.
pub trait Carried: ProxyHttp {
    /// The request that [`ProxyHttp::upstream_request_filter`] is given: the client's, unless the plugin builds its own from nothing.
    fn upstream_request(&self, session: &Session, _ctx: &mut Self::CTX) -> RequestHeader {
        session.req_header().clone()
    }

    /// The head that [`ProxyHttp::upstream_response_filter`] is given: the upstream's, with its names as they were spelled, unless the
    /// plugin has no use for that.
    fn upstream_response(&self, upstream: &ResponseHeader) -> ResponseHeader {
        upstream.clone()
    }

    /// How long the transport waits for either side.
    fn time_limits(&self, _ctx: &Self::CTX) -> TimeLimits {
        TimeLimits::default()
    }

    /// Whether the next attempt is to be made over a new connection.
    fn wants_fresh_connection(&self, _ctx: &Self::CTX) -> bool {
        false
    }

    /// Whether the answer is gathered, and until when. Until something of it has left, a failure may still be answered otherwise. Asked
    /// once, after the filters of its head.
    fn gathers(&self, _ctx: &Self::CTX) -> Option<GatherLimits> {
        None
    }

    /// Whether an answer that is gathered until an event has had that: asked after each of its pieces, which has passed the filters.
    fn may_leave(&self, _ctx: &Self::CTX) -> bool {
        true
    }

    /// An answer that was gathered has passed its limits: what came of it is about to leave, and the rest leaves as it comes. Told again until
    /// its head has left.
    fn begins_unfinished(&self, _ctx: &mut Self::CTX) {}

    /// Whether a comment may be written to the client now, while its upstream is silent.
    fn may_comment(&self, _ctx: &Self::CTX) -> bool {
        false
    }

    /// A comment was written.
    fn commented(&self, _ctx: &mut Self::CTX) {}

    /// The client has left. For how long its upstream is read on all the same; none: it is closed at once. Asked again when the head
    /// of an answer has come for a client that has left (`head_came`), after the filters of the head.
    fn client_left(&self, _ctx: &mut Self::CTX, _head_came: bool) -> Option<Duration> {
        None
    }

    /// Whether the answer ends with the piece that has just passed the filters, though the upstream goes on: that is closed.
    fn ends_here(&self, _ctx: &Self::CTX) -> bool {
        false
    }

    /// Whether the answer is complete with what has passed the filters, though its upstream has not ended it: asked after each piece. Its end
    /// is waited for no longer than [`TimeLimits::end`] then, whatever comes meanwhile. After that, and when the upstream fails before, the
    /// filters are given an end, and the upstream is closed.
    fn is_complete(&self, _ctx: &Self::CTX) -> bool {
        false
    }

    /// Ready once the call has to end, though neither of its sides has: asked while the upstream is waited for. A begun answer passes the
    /// filters with an empty piece then, and ends where [`Carried::ends_here`] says so.
    fn poll_end(&self, _ctx: &Self::CTX, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Whether the process stops and waits no longer for what is carried. Whoever makes it so wakes the tasks.
    fn is_cut(&self) -> bool {
        false
    }
}

/// How long the transport waits. What is none is waited for without limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeLimits {
    /// For the head of an answer, from the request.
    pub first_byte: Option<Duration>,
    /// For the next piece of an answer that has begun.
    pub idle: Option<Duration>,
    /// For the end of an answer that is complete; no longer than `idle` either.
    pub end: Option<Duration>,
    /// Until a client is told by a comment that its stream is alive. None: never.
    pub comment: Option<Duration>,
    /// For either side to take what is written to it.
    pub write: Option<Duration>,
}
