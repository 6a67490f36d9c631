//! Connections to upstreams: new ones, and those that wait for their next request.

mod idle;

use std::any::Any;
use std::sync::Arc;

use pingora::connectors::http::Connector;
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v1::client::HttpSession as Http1;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::tls::TlsStream;
use pingora::protocols::{IO, Stream};
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use pingora::{ErrorType, OkOrErr, Result};

use self::idle::Idle;
use super::bounded::{Bounded, Room};
use super::output::Heads;

/// All connections to upstreams.
pub(super) struct Uplinks {
    /// To those that speak HTTP/1 alone: a request's head and its body leave together.
    http1: TransportConnector,
    /// What waits of those.
    idle: Arc<Idle>,
    /// To those that may speak HTTP/2.
    any: Connector,
    room: Arc<Room>,
}

impl Uplinks {
    pub(super) fn new() -> Uplinks {
        Uplinks {
            // It only makes them: nothing waits in its own pool.
            http1: TransportConnector::new(Some(ConnectorOptions::new(1))),
            idle: Arc::default(),
            any: Connector::new(Some(ConnectorOptions::new(POOLED_MAX))),
            room: Room::unlimited(),
        }
    }

    /// A connection, and whether it had waited in the pool.
    ///
    /// # Errors
    /// When none can be made in the time that `peer` gives.
    pub(super) async fn connect(&self, peer: &HttpPeer) -> Result<(HttpSession, bool)> {
        if may_be_http2(peer) {
            return self.any.get_http_session(peer).await;
        }
        let (stream, reused) = match self.idle.take(peer.reuse_hash()) {
            Some(stream) => (stream, true),
            None => (self.gathering(self.http1.new_stream(peer).await?)?, false),
        };
        Ok((HttpSession::H1(Http1::new_with_options(stream, peer)), reused))
    }

    /// Takes a connection back, to be closed or to wait for its next request.
    pub(super) async fn release(&self, session: HttpSession, peer: &HttpPeer) {
        match session {
            HttpSession::H1(mut session) if !may_be_http2(peer) => {
                session.respect_keepalive();
                if let Some(stream) = session.reuse().await {
                    let within = peer.idle_timeout().unwrap_or_default();
                    self.idle.put(peer.reuse_hash(), stream, within);
                }
            }
            session => self.any.release_http_session(session, peer, peer.idle_timeout()).await,
        }
    }

    /// The upstream wants HTTP/1 from now on, whatever it offers.
    pub(super) fn prefer_http1(&self, peer: &HttpPeer) {
        self.any.prefer_h1(peer);
    }

    /// A new connection, for which what is written is gathered.
    fn gathering(&self, stream: Stream) -> Result<Stream> {
        let is_plain = (*stream).as_any().is::<Socket>();
        let stream = stream.into_any();
        let gathering = if is_plain {
            self.gather::<Socket>(stream)
        } else {
            self.gather::<TlsStream<Socket>>(stream)
        };
        gathering.or_err(ErrorType::InternalError, "a connection of an unknown kind")
    }

    fn gather<S: IO + 'static>(&self, stream: Box<dyn Any>) -> Option<Stream> {
        let stream = stream.downcast::<S>().ok()?;
        Some(Box::new(Bounded::new(
            *stream,
            Arc::clone(&self.room),
            Heads::OfRequests,
        )))
    }
}

fn may_be_http2(peer: &HttpPeer) -> bool {
    peer.options.alpn.get_max_http_version() > 1
}

/// Idle connections that may speak HTTP/2, or would if the other end did, and are kept.
const POOLED_MAX: usize = 4096;
