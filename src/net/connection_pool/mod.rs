//! Connections to upstreams: new ones, and those that wait for their next request.

mod heard;
mod http2;
mod idle;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::ALPN;
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v1::client::HttpSession as Http1;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::tls::TlsStream;
use pingora::protocols::{IO, Stream};
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use pingora::{Error, ErrorType, OkOrErr, Result};

use self::heard::IdleTime;
use self::http2::Http2;
use self::idle::Idle;
use super::bounded_stream::{BoundedStream, upstream_io_of};
use super::error_text::ErrorText;
use super::upstream_io::UpstreamIo;

/// All connections to upstreams.
pub(crate) struct ConnectionPool {
    /// Makes them. Nothing waits in its own pool.
    connector: TransportConnector,
    /// What waits of those over HTTP/1, over which a request's head and its body leave together, and answers are heard while requests leave.
    idle: Arc<Idle>,
    http2: Arc<Http2>,
    /// Peers that are not offered HTTP/2, for they did not choose it or could not speak it, by what tells their connections apart.
    http1: RwLock<HashMap<u64, Http1Peer>>,
}

/// A peer that gets HTTP/1.
#[derive(Clone, Copy)]
struct Http1Peer {
    until: Instant,
    /// Whether a call was let find out whether it speaks HTTP/2 now. An answer over HTTP/2 that began before says nothing.
    is_probed: bool,
}

/// A connection, for one request.
pub(crate) struct Connected {
    pub(crate) session: HttpSession,
    /// Whether it was there before: over HTTP/1 it had waited in the pool, over HTTP/2 it may have had other requests.
    pub(crate) is_reused: bool,
    /// Over HTTP/2, of a connection that had no request when this one came, or one that had come at most 100 ms before, without anything heard
    /// since: whether anything was by now.
    pub(crate) idle_time: Option<IdleTime>,
    /// What it tells beside the session. Over HTTP/2 there is none.
    pub(crate) io: Option<Arc<UpstreamIo>>,
}

impl Default for ConnectionPool {
    fn default() -> ConnectionPool {
        ConnectionPool {
            connector: TransportConnector::new(Some(ConnectorOptions::new(1))),
            idle: Arc::default(),
            http2: Arc::default(),
            http1: RwLock::default(),
        }
    }
}

impl ConnectionPool {
    /// A connection; `is_fresh`: a new one.
    ///
    /// # Errors
    /// When none can be made in the time that `peer` gives.
    pub(crate) async fn connect(&self, peer: &HttpPeer, is_fresh: bool) -> Result<Connected> {
        if self.may_be_http2(peer) {
            return Box::pin(self.negotiated(peer, is_fresh)).await;
        }
        let waited = if is_fresh {
            None
        } else {
            self.idle.take(peer.reuse_hash())
        };
        let is_reused = waited.is_some();
        let stream = match waited {
            Some(stream) => stream,
            // In a box: it is seldom needed, and would else be a part of every call.
            None => match Box::pin(self.connector.new_stream(&over_http1(peer))).await {
                Ok(stream) => bounded(stream)?,
                Err(error) => {
                    // Perhaps it speaks nothing else any more.
                    self.offer_http2(peer);
                    return Err(error);
                }
            },
        };
        Ok(connected(stream, is_reused, peer))
    }

    /// The peer failed over HTTP/2, by not speaking it as it should or by saying that it wants HTTP/1.1: it gets that for a while.
    pub(crate) fn http2_failed(&self, peer: &HttpPeer, error: &Error) {
        let within = match error.etype() {
            ErrorType::H2Downgrade => HTTP1_CHOSEN,
            _ => HTTP1_AFTER_FAULT,
        };
        let secs = within.as_secs();
        log::warn!("{peer}: {}; it is asked over HTTP/1.1 for {secs} s", ErrorText(error));
        self.prefer_http1(peer, within);
    }

    /// A connection to a peer that is offered HTTP/2; `is_fresh`: a new one.
    async fn negotiated(&self, peer: &HttpPeer, is_fresh: bool) -> Result<Connected> {
        let over_http2 = |stream, is_reused, idle_time| Connected {
            session: HttpSession::H2(stream),
            is_reused,
            idle_time,
            io: None,
        };
        let now = crate::clock::monotonic();
        if !is_fresh && let Some((stream, idle_time)) = self.http2.stream(peer.reuse_hash(), now).await {
            return Ok(over_http2(stream, true, idle_time));
        }
        let stream = self.connector.new_stream(peer).await?;
        let is_http2 = match stream.selected_alpn_proto() {
            Some(chosen) => matches!(chosen, ALPN::H2),
            // Nothing is chosen without TLS: the peer is known to speak it, or does not.
            None => !peer.is_tls() && peer.options.alpn.get_min_http_version() > 1,
        };
        if is_http2 {
            let idle_max = peer.idle_timeout().unwrap_or(IDLE_MAX);
            let stream = self.http2.first_stream(stream, peer, idle_max).await?;
            return Ok(over_http2(stream, false, None));
        }
        // Offered both, it chose HTTP/1.
        self.prefer_http1(peer, HTTP1_CHOSEN);
        Ok(connected(bounded(stream)?, false, peer))
    }

    /// Takes a connection back, to be closed or to wait for its next request. `is_silent`: the upstream said nothing on it for too long, so
    /// that no other request is to be sent over it.
    pub(crate) fn release(&self, session: HttpSession, peer: &HttpPeer, is_silent: bool) {
        match session {
            HttpSession::H1(mut session) => {
                session.respect_keepalive();
                if session.will_keepalive() && session.is_body_done() {
                    let within = peer.idle_timeout().unwrap_or(IDLE_MAX);
                    self.idle.put(peer.reuse_hash(), session.into_inner(), within);
                }
                // It is closed otherwise.
            }
            HttpSession::H2(stream) => {
                self.http2.release(stream, peer.reuse_hash(), is_silent);
            }
            HttpSession::Custom(()) => {}
        }
    }

    /// The upstream gets HTTP/1 for so long, whatever it offers.
    fn prefer_http1(&self, peer: &HttpPeer, within: Duration) {
        let now = crate::clock::monotonic();
        let Some(until) = now.checked_add(within) else { return };
        let mut http1 = self.http1.write().unwrap_or_else(PoisonError::into_inner);
        if http1.len() >= HTTP1_PEERS_MAX {
            http1.retain(|_, peer| peer.until > now);
        }
        if http1.len() < HTTP1_PEERS_MAX {
            let is_probed = false;
            http1.insert(peer.reuse_hash(), Http1Peer { until, is_probed });
        }
    }

    /// A whole answer has come over HTTP/2: all calls are offered it again, if one was let find out.
    pub(crate) fn http2_answered(&self, peer: &HttpPeer) {
        self.forget_http1(peer, |known| known.is_probed);
    }

    /// The upstream is offered HTTP/2 by all calls: over HTTP/1 it says nothing at all.
    pub(crate) fn offer_http2(&self, peer: &HttpPeer) {
        self.forget_http1(peer, |_| true);
    }

    fn forget_http1(&self, peer: &HttpPeer, is_over: impl Fn(&Http1Peer) -> bool) {
        if !offers_http2(peer) {
            return;
        }
        let hash = peer.reuse_hash();
        let is_known = {
            let http1 = self.http1.read().unwrap_or_else(PoisonError::into_inner);
            http1.get(&hash).is_some_and(&is_over)
        };
        if is_known {
            self.http1.write().unwrap_or_else(PoisonError::into_inner).remove(&hash);
        }
    }

    /// Whether HTTP/2 is offered. Once the time of a peer that gets HTTP/1 is over, to one call alone: the others follow when it has an answer.
    fn may_be_http2(&self, peer: &HttpPeer) -> bool {
        if !offers_http2(peer) {
            return false;
        }
        let hash = peer.reuse_hash();
        let known = {
            let http1 = self.http1.read().unwrap_or_else(PoisonError::into_inner);
            http1.get(&hash).copied()
        };
        let Some(known) = known else { return true };
        let now = crate::clock::monotonic();
        if known.until > now {
            return false;
        }
        let mut http1 = self.http1.write().unwrap_or_else(PoisonError::into_inner);
        match http1.get_mut(&hash) {
            None => true,
            Some(peer) if peer.until > now => false,
            Some(peer) => {
                *peer = Http1Peer {
                    until: now.checked_add(HTTP1_AFTER_FAULT).unwrap_or(now),
                    is_probed: true,
                };
                true
            }
        }
    }
}

fn offers_http2(peer: &HttpPeer) -> bool {
    peer.options.alpn.get_max_http_version() > 1
}

fn connected(stream: Stream, is_reused: bool, peer: &HttpPeer) -> Connected {
    let io = upstream_io_of(&stream);
    Connected {
        session: HttpSession::H1(Http1::new_with_options(stream, peer)),
        is_reused,
        idle_time: None,
        io,
    }
}

/// The peer, offered HTTP/1 alone.
fn over_http1(peer: &HttpPeer) -> HttpPeer {
    let mut peer = peer.clone();
    peer.options.alpn = ALPN::H1;
    peer
}

/// A new connection, with what [`BoundedStream`] does for one.
fn bounded(stream: Stream) -> Result<Stream> {
    let is_plain = (*stream).as_any().is::<Socket>();
    let stream = stream.into_any();
    let bounded = if is_plain {
        downcast::<Socket>(stream)
    } else {
        downcast::<TlsStream<Socket>>(stream)
    };
    bounded.or_err(ErrorType::InternalError, "a connection of an unknown kind")
}

fn downcast<S: IO + 'static>(stream: Box<dyn Any>) -> Option<Stream> {
    let stream = stream.downcast::<S>().ok()?;
    Some(Box::new(BoundedStream::of_upstream(*stream)))
}

/// How long one waits whose peer sets no limit.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Peers that are remembered to get HTTP/1. Beyond them each new connection finds out anew.
const HTTP1_PEERS_MAX: usize = 4096;
/// How long a peer that chose HTTP/1, or asked for it, is offered nothing else: it may learn HTTP/2.
const HTTP1_CHOSEN: Duration = Duration::from_secs(10 * 60);
/// The same of one that broke HTTP/2's rules: that may have been one answer of many, and it may speak nothing else.
const HTTP1_AFTER_FAULT: Duration = Duration::from_secs(30);
