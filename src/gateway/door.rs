//! The door: from an accepted connection to the first byte of its requests.
//!
//! Pingora waits without limit for a connection's first bytes and for a head that comes drop by drop, and it counts no connections.
//! So each connection passes here first: it takes a place, is greeted over TLS when that is configured, tells its protocol, and has
//! a time for each head. Its requests then pass from Pingora to [`Gateway`], one by one.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures::future::BoxFuture;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::server::ShutdownWatch;
use tokio::io::AsyncReadExt;

use super::Gateway;
use super::address;
use super::bounded::{Bounded, Room};
use super::connections::{Connections, Most, Place};
use super::life::{CutBell, Life};
use super::output::Heads;
use super::snapshot::Snapshot;

/// What Pingora's listener hands its connections to.
pub struct Door {
    gateway: Arc<Gateway>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    connections: Arc<Connections>,
    life: Arc<Life>,
}

impl Door {
    /// The door of a gateway.
    pub fn new(gateway: Gateway) -> Door {
        let snapshot = Arc::clone(&gateway.snapshot);
        Door {
            life: gateway.life(),
            gateway: Arc::new(gateway),
            snapshot,
            connections: Arc::default(),
        }
    }

    /// A place for the connection, unless too many are open. A trusted proxy brings many clients, so it counts in the total alone.
    fn place(&self, stream: &Stream, snapshot: &Snapshot) -> Option<Place> {
        let config = &snapshot.config;
        let counted = peer(stream).filter(|peer| !config.trusted_proxies.iter().any(|proxy| proxy.contains(*peer)));
        let most = Most {
            total: config.connections_max,
            per_address: config.connections_per_address_max,
        };
        self.connections.take(counted.map(address::group), most)
    }
}

#[async_trait]
impl ServerApp for Door {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let snapshot = self.snapshot.load_full();
        let _place = self.place(&stream, &snapshot)?;
        let timeouts = snapshot.config.timeouts;
        let room = Room::unlimited();
        // In a box, for what a handshake needs would else be part of the connection for as long as that lives.
        let greeting = Box::pin(greet(stream, &snapshot, &room));
        let (stream, h2c) = tokio::time::timeout(timeouts.head, greeting).await.ok()??;
        drop(snapshot);
        let mut options = HttpServerOptions::default();
        options.h2c = h2c;
        options.h2_idle_timeout = Some(timeouts.keepalive);
        let conversation = Arc::new(Conversation {
            gateway: Arc::clone(&self.gateway),
            options,
            room: Arc::clone(&room),
            life: Arc::clone(&self.life),
        });
        let visit = Visit {
            talk: conversation.process_new(stream, shutdown),
            cut: self.life.cut_bell(),
            late: Box::pin(head_is_late(&room, timeouts.head)),
            room: &room,
        };
        visit.await;
        None
    }
}

/// One connection, from its greeting to its end. Every piece of every answer passes its poll.
struct Visit<'visit> {
    talk: BoxFuture<'visit, Option<Stream>>,
    cut: CutBell<'visit>,
    room: &'visit Room,
    late: BoxFuture<'visit, ()>,
}

impl Future for Visit<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Visit { talk, cut, room, late } = &mut *self;
        cut.wake_with(context);
        if talk.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        // During a call no head is waited for, and the clock is not looked at each time that the call goes on.
        if room.waits_for_head() {
            return late.as_mut().poll(context);
        }
        Poll::Pending
    }
}

/// One connection's requests.
struct Conversation {
    gateway: Arc<Gateway>,
    options: HttpServerOptions,
    room: Arc<Room>,
    life: Arc<Life>,
}

impl HttpServerApp for Conversation {
    /// Not an `async fn`, whose future would keep room for the session that it passes on, and be polled with every piece of the answer.
    fn process_new_http<'app, 'watch, 'life>(
        self: &'app Arc<Self>,
        session: ServerSession,
        shutdown: &'watch ShutdownWatch,
    ) -> BoxFuture<'life, Option<ReusedHttpStream>>
    where
        'app: 'life,
        'watch: 'life,
        Self: 'life,
    {
        if session.is_http2() {
            self.room.meet();
            // It has a task of its own.
            return Box::pin(self.life.woken_by_cut(self.gateway.serve(session, shutdown)));
        }
        self.room.begin();
        Box::pin(self.gateway.serve(session, shutdown))
    }

    fn h2_options(&self) -> Option<H2Options> {
        let mut options = default_h2_options();
        options.max_concurrent_streams(H2_STREAMS_MAX);
        options.max_header_list_size(H2_HEADER_LIST_MAX);
        // Resets that the peer provokes, or sends itself before anyone looked, before its connection is ended.
        options.max_local_error_reset_streams(Some(H2_RESETS_MAX));
        options.max_pending_accept_reset_streams(H2_RESETS_MAX);
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

/// Returns when a head has not come in its time, or over HTTP/2 the first one has not begun. That time begins with the connection, or,
/// between two requests, with the head's first byte, for until then the connection may idle; what Pingora allows for that is not
/// counted here. It has to be polled only while a head is waited for.
async fn head_is_late(room: &Room, head_max: Duration) {
    loop {
        tokio::time::sleep(head_max).await;
        if room.is_late() {
            return;
        }
    }
}

/// Greets over TLS, or looks for the preface of HTTP/2 in clear text: the connection, and whether it speaks that.
async fn greet(stream: Stream, snapshot: &Snapshot, room: &Arc<Room>) -> Option<(Stream, bool)> {
    let Ok(socket) = stream.into_any().downcast::<Socket>() else {
        log::error!("a connection of an unknown kind was closed");
        return None;
    };
    let mut socket = *socket;
    if let Some(certificate) = &snapshot.certificate {
        return match certificate.acceptor.tls_handshake(socket).await {
            Ok(secure) => Some((
                Box::new(Bounded::new(secure, Arc::clone(room), Heads::OfAnswers)),
                false,
            )),
            Err(error) => {
                log::debug!("a TLS handshake failed: {error}");
                None
            }
        };
    }
    let mut begin = [0; PREFACE.len()];
    let mut length = 0;
    // The first request may be shorter than the preface, so it is read only as far as it looks like it.
    while begin.get(..length) == PREFACE.get(..length) {
        let Some(rest) = begin.get_mut(length..).filter(|rest| !rest.is_empty()) else {
            break;
        };
        match socket.read(rest).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => length = length.saturating_add(read),
        }
    }
    socket.rewind(begin.get(..length).unwrap_or_default());
    Some((
        Box::new(Bounded::new(socket, Arc::clone(room), Heads::OfAnswers)),
        begin == *PREFACE,
    ))
}

fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(|address| address.ip())
}

/// What a connection of HTTP/2 begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests at once on one connection of HTTP/2.
const H2_STREAMS_MAX: u32 = 128;
/// Bytes of one request's headers over HTTP/2, as that counts them.
const H2_HEADER_LIST_MAX: u32 = 64 << 10;
const H2_RESETS_MAX: usize = 50;
