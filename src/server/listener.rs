//! The listener of `tollgate serve`: from an accepted connection to the first byte of its requests.
//!
//! Pingora waits without limit for a connection's first bytes and for a head that comes drop by drop, and it counts no connections.
//! So each connection passes here first: it takes a permit, is greeted over TLS when that is configured, tells its protocol, and has
//! a time for each head. Its requests then go to Pingora's own proxy, which calls the hooks of [`Tollgate`], one by one.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;
use tokio::io::AsyncReadExt;

use super::connections::{ConnectionLimits, ConnectionPermit, Connections};
use crate::gateway::Tollgate;
use crate::gateway::shutdown::{CutWaker, Lifecycle};
use crate::gateway::snapshot::Snapshot;
use crate::net::bounded_stream::BoundedStream;
use crate::net::head_limit::HeadLimit;

/// What Pingora's listener hands its connections to.
pub struct Listener {
    proxy: Arc<HttpProxy<Tollgate>>,
    tollgate: Tollgate,
    connections: Arc<Connections>,
    life: Arc<Lifecycle>,
    /// When connections without a request end; by default as soon as none is accepted any more.
    kept_until: Option<ShutdownWatch>,
    /// Most connections that this process may have, whatever the configuration says.
    most: usize,
}

impl Listener {
    /// The listener of a gateway, which Pingora's proxy serves with this configuration.
    pub fn new(tollgate: Tollgate, conf: &Arc<ServerConf>) -> Listener {
        Listener {
            life: Arc::clone(tollgate.lifecycle()),
            proxy: Arc::new(http_proxy(conf, tollgate.clone())),
            tollgate,
            connections: Arc::default(),
            kept_until: None,
            most: usize::MAX,
        }
    }

    /// Keeps connections without a request until this turns true, also while no others are accepted any more: over HTTP/1.1 only an answer can
    /// tell a client to come anew. One of HTTP/2 is told so without, as soon as no others are accepted.
    pub(super) fn keep_until(&mut self, ends: ShutdownWatch) {
        self.kept_until = Some(ends);
    }

    /// Takes no more connections than this at once, also where the configuration, or one that is read later, says more.
    pub(super) fn take_at_most(&mut self, most: usize) {
        self.most = most;
    }

    /// A permit for the connection, unless too many are open and none of them can make room. A trusted proxy brings many clients, so it
    /// counts in the total alone.
    fn place(&self, stream: &Stream, snapshot: &Snapshot, limit: &Arc<HeadLimit>) -> Option<ConnectionPermit> {
        let config = &snapshot.config;
        let peer = peer(stream);
        let is_proxy = peer.is_some_and(|peer| config.trusted_proxies.iter().any(|proxy| proxy.contains(peer)));
        let most = ConnectionLimits {
            total: config.connections_max.min(self.most),
            per_address: config.connections_per_address_max,
        };
        self.connections.take(peer, is_proxy, limit, most)
    }
}

#[async_trait]
impl ServerApp for Listener {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let _open = self.life.connect();
        let snapshot = self.tollgate.snapshot();
        let limit = HeadLimit::new();
        let place = self.place(&stream, &snapshot, &limit)?;
        let timeouts = snapshot.config.timeouts;
        let ends = self.kept_until.as_ref().unwrap_or(shutdown);
        // In a box, for what a handshake needs would else be part of the connection for as long as that lives.
        let greeting = Box::pin(async {
            let greeted = tokio::time::timeout(timeouts.head, greet(stream, &snapshot, &limit, ends));
            tokio::select! {
                biased;
                greeted = greeted => greeted.ok().flatten(),
                () = place.makes_room() => None,
            }
        });
        let (stream, h2c) = greeting.await?;
        drop(snapshot);
        let mut options = HttpServerOptions::default();
        options.h2c = h2c;
        options.h2_idle_timeout = Some(timeouts.keepalive);
        let conversation = Arc::new(ConnectionHandler {
            proxy: Arc::clone(&self.proxy),
            options,
            limit: Arc::clone(&limit),
            life: Arc::clone(&self.life),
        });
        place.served_by(&conversation);
        let visit = ConnectionTask {
            talk: conversation.process_new(stream, shutdown),
            cut: self.life.cut_waker(),
            ends: Box::pin(ends_without_head(&limit, timeouts.head, ends)),
            limit: &limit,
            place: &place,
            wakes: None,
        };
        visit.await;
        None
    }
    // Pingora's own cleanup would also end a connection whose head has come in part.
}

/// One connection, from its greeting to its end. Every piece of every answer passes its poll.
struct ConnectionTask<'task> {
    talk: BoxFuture<'task, Option<Stream>>,
    cut: CutWaker<'task>,
    limit: &'task HeadLimit,
    ends: BoxFuture<'task, ()>,
    place: &'task ConnectionPermit,
    /// Whom `place` wakes.
    wakes: Option<Waker>,
}

impl Future for ConnectionTask<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let ConnectionTask {
            talk,
            cut,
            limit,
            ends,
            place,
            wakes,
        } = &mut *self;
        cut.wake_with(context);
        if wakes.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            place.wakes(context.waker());
            *wakes = Some(context.waker().clone());
        }
        let was_idle = place.is_to_end() && place.is_idle();
        if talk.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if place.is_to_end() && place.is_idle() {
            if was_idle {
                return Poll::Ready(());
            }
            // A request has ended meanwhile, perhaps in another task: what it left to be sent is sent first.
            context.waker().wake_by_ref();
        }
        // During a call no head is waited for, and the clock is not looked at each time that the call goes on.
        if limit.waits_for_head() {
            return ends.as_mut().poll(context);
        }
        Poll::Pending
    }
}

/// One connection's requests.
struct ConnectionHandler {
    proxy: Arc<HttpProxy<Tollgate>>,
    options: HttpServerOptions,
    limit: Arc<HeadLimit>,
    life: Arc<Lifecycle>,
}

impl HttpServerApp for ConnectionHandler {
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
            self.limit.lift();
            // It has a task of its own.
            return Box::pin(self.life.woken_by_cut(self.proxy.process_new_http(session, shutdown)));
        }
        self.limit.begin();
        self.proxy.process_new_http(session, shutdown)
    }

    fn h2_options(&self) -> Option<H2Options> {
        let mut options = default_h2_options();
        options.max_concurrent_streams(H2_STREAMS_MAX);
        options.max_header_list_size(H2_HEADER_LIST_MAX);
        // By default 65,535 bytes for all streams together: no upload would be faster than that in a round trip.
        options.initial_window_size(H2_STREAM_WINDOW_BYTES);
        options.initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES);
        // A request that is refused has its body reset while that is on its way: what then comes of it means nothing for as long as the
        // stream is known, and counts as the peer's mistake once it is not.
        options.max_concurrent_reset_streams(H2_RESET_STREAMS_MAX);
        options.reset_stream_duration(H2_RESET_STREAMS_KNOWN);
        // Resets that the peer provokes, or sends itself before anyone looked, before its connection is ended.
        options.max_local_error_reset_streams(Some(H2_RESETS_MAX));
        options.max_pending_accept_reset_streams(H2_RESETS_MAX);
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

/// Returns when a connection that waits for a head is to end. It has to be polled only while it does.
async fn ends_without_head(limit: &HeadLimit, head_max: Duration, ends: &ShutdownWatch) {
    tokio::select! {
        biased;
        () = head_is_late(limit, head_max) => {}
        () = stays_silent(limit, ends.clone()) => {}
    }
}

/// Returns when a head has not come in its time, or over HTTP/2 the first one has not begun. That time begins with the connection, or,
/// between two requests, with the head's first byte, for until then the connection may idle; what Pingora allows for that is not
/// counted here.
async fn head_is_late(limit: &HeadLimit, head_max: Duration) {
    loop {
        tokio::time::sleep(head_max).await;
        if limit.is_late() {
            return;
        }
    }
}

/// Returns once silent connections are to end and nothing has come of the next head for [`ABOUT_TO_SEND`]. A client that keeps such a
/// connection for its next request would send it to a process that is about to end.
async fn stays_silent(limit: &HeadLimit, ends: ShutdownWatch) {
    silent_ones_end(ends).await;
    while !limit.stays_silent() {
        tokio::time::sleep(ABOUT_TO_SEND).await;
    }
}

/// Returns once silent connections are to end.
async fn silent_ones_end(mut ends: ShutdownWatch) {
    if ends.wait_for(|is_so| *is_so).await.is_err() {
        std::future::pending().await
    }
}

/// Greets over TLS, or looks for the preface of HTTP/2 in clear text: the connection, and whether it speaks that. None where it does not come
/// so far, or nothing comes in clear text for [`ABOUT_TO_SEND`] once silent connections are to end.
async fn greet(
    stream: Stream,
    snapshot: &Snapshot,
    limit: &Arc<HeadLimit>,
    ends: &ShutdownWatch,
) -> Option<(Stream, bool)> {
    let Ok(socket) = stream.into_any().downcast::<Socket>() else {
        log::error!("a connection of an unknown kind was closed");
        return None;
    };
    let mut socket = *socket;
    let write_max = snapshot.config.timeouts.write;
    if let Some(certificate) = &snapshot.certificate {
        return match certificate.acceptor.tls_handshake(socket).await {
            Ok(secure) => Some((
                Box::new(BoundedStream::of_client(secure, Arc::clone(limit), write_max)),
                false,
            )),
            Err(error) => {
                log::debug!("a TLS handshake failed: {error}");
                None
            }
        };
    }
    let mut begin = [0; PREFACE.len()];
    let mut length = tokio::select! {
        biased;
        read = socket.read(&mut begin) => read.ok().filter(|read| *read > 0)?,
        () = async {
            silent_ones_end(ends.clone()).await;
            tokio::time::sleep(ABOUT_TO_SEND).await;
        } => return None,
    };
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
        Box::new(BoundedStream::of_client(socket, Arc::clone(limit), write_max)),
        begin == *PREFACE,
    ))
}

fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().map(|address| address.ip())
}

/// How long a client that has connected, or was answered, may take to send a request to a process that ends silent connections.
const ABOUT_TO_SEND: Duration = Duration::from_millis(500);
/// What a connection of HTTP/2 begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests at once on one connection of HTTP/2.
const H2_STREAMS_MAX: u32 = 128;
/// Bytes of one request's headers over HTTP/2, as that counts them.
const H2_HEADER_LIST_MAX: u32 = 64 << 10;
/// Bytes of one request's body over HTTP/2 that its client may send ahead of what is read.
const H2_STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The same of all bodies on one connection. What came and was not read yet waits within h2, where the memory of bodies does not count it: at
/// most this for each connection, by the default limits of connections 500 MiB for one address and 5 GiB in all. It is that much only where a
/// client sends what nobody reads; a body is read as it comes, and what is left of one when its request is over is thrown away. Of frames
/// below 256 bytes that wait, h2 lets what they lack of that come to half of this (about 1,000 frames of one byte), and then ends the connection.
const H2_CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
const H2_RESETS_MAX: usize = 50;
/// Streams of one connection that were reset and are known, and for how long.
const H2_RESET_STREAMS_MAX: usize = 1_024;
const H2_RESET_STREAMS_KNOWN: Duration = Duration::from_secs(5);
