//! Connections over HTTP/2, each of which serves many requests at once.
//!
//! Their streams are Pingora's; how a connection is made and kept is not. Pingora's own way ends one that leaves a PING unanswered for five
//! seconds, also while answers come over it; lets those who leave early end everybody's connection, by what `h2` allows for by default; and
//! gives a connection to others before its upstream has said how many streams it takes.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, Connection};
use h2::{Ping, PingPong};
use pingora::connectors::http::v2::ConnectionRef;
use pingora::protocols::http::v2::client::Http2Session;
use pingora::protocols::{Digest, Stream};
use pingora::upstreams::peer::{HttpPeer, Peer as _};
use pingora::{ErrorType, OkOrErr, OrErr, Result};
use tokio::sync::watch;

use super::heard::{Heard, IdleTime};
use crate::net::error_text::{ErrorText, http2_reason};
use crate::net::hash_map::ByHash;

/// The connections of all peers.
pub(super) struct Http2 {
    connections: Mutex<Connections>,
    times: Times,
}

#[derive(Clone, Copy)]
struct Times {
    /// How often all are looked through.
    sweep_every: Duration,
    /// How long nothing comes before the upstream is asked whether it is there.
    ping_after: Duration,
    /// How long it has to say anything then.
    pong_within: Duration,
}

impl Default for Http2 {
    fn default() -> Http2 {
        Http2 {
            connections: Mutex::default(),
            times: TIMES,
        }
    }
}

#[derive(Default)]
struct Connections {
    by_peer: ByHash<Vec<Arc<Open>>>,
    count: usize,
    /// Whether the task runs that looks through them.
    is_swept: bool,
}

/// One that is open, as far as is known.
struct Open {
    connection: ConnectionRef,
    /// Whether its upstream has said how many streams it takes: before that, only the call that made it has one.
    is_settled: Arc<AtomicBool>,
    /// Streams that were promised, which the connection does not count yet.
    promised: AtomicUsize,
    /// How long it may have no stream.
    idle_max: Duration,
    /// Since when it was seen to have none.
    idle_since: Mutex<Option<Instant>>,
    /// That which ended when it last got a stream while it had none, and when that was: it lasts as long as nothing is heard. None before it
    /// first did.
    idle_time: Mutex<Option<(IdleTime, Instant)>>,
    /// Reads that brought something.
    reads: Arc<AtomicUsize>,
}

impl Http2 {
    /// A stream of a connection that there is; and its idle time where that ended at most [`TOGETHER_MAX`] before `now` and nothing was heard
    /// since. None where each has as many as it takes.
    pub(super) async fn stream(&self, peer: u64, now: Instant) -> Option<(Http2Session, Option<IdleTime>)> {
        for _ in 0..TRIED_MAX {
            let (promised, idle_time) = self.promise(peer, now)?;
            match promised.0.connection.spawn_stream().await {
                Ok(Some(stream)) => return Some((stream, idle_time)),
                // It ends, or has as many as it takes.
                Ok(None) => {}
                // It has ended, perhaps with an error (GOAWAY) while its last streams go on. Nothing was sent.
                Err(error) => {
                    log::debug!("a connection over HTTP/2 has ended: {}", ErrorText(&error));
                    promised.0.connection.mark_shutdown();
                }
            }
        }
        None
    }

    /// Makes a connection of what was just opened, and its first stream.
    ///
    /// # Errors
    /// When the other end does not speak HTTP/2, or takes no stream.
    pub(super) async fn first_stream(
        self: &Arc<Self>,
        stream: Stream,
        peer: &HttpPeer,
        idle_max: Duration,
    ) -> Result<Http2Session> {
        let open = Arc::new(open(stream, peer, idle_max, self.times).await?);
        let first = open.connection.spawn_stream().await?;
        let first = first.or_err(ErrorType::H2Error, "a new connection that takes no stream")?;
        let mut connections = self.lock();
        if connections.count >= KEPT_MAX {
            // It serves this call alone.
            return Ok(first);
        }
        connections.count = connections.count.saturating_add(1);
        connections.by_peer.entry(peer.reuse_hash()).or_default().push(open);
        if !std::mem::replace(&mut connections.is_swept, true) {
            #[expect(
                clippy::disallowed_methods,
                reason = "it ends with the pool, which it holds weakly, and has nothing to lose"
            )]
            tokio::spawn(sweep(Arc::downgrade(self), self.times.sweep_every));
        }
        Ok(first)
    }

    /// A stream is over; one that has not ended is reset. `is_silent`: its upstream said nothing on it for too long. Then the connection
    /// gets no other stream, and ends with those that it has.
    pub(super) fn release(&self, stream: Http2Session, peer: u64, is_silent: bool) {
        if stream.response_header().is_some() {
            let id = stream.fd();
            let connections = self.lock();
            let mut of_peer = connections.by_peer.get(&peer).into_iter().flatten();
            if let Some(open) = of_peer.find(|open| open.connection.id() == id && !open.connection.is_closed()) {
                // How many streams its upstream takes came before the answer.
                open.is_settled.store(true, Ordering::Relaxed);
            }
        }
        if is_silent {
            stream.conn.mark_shutdown();
        }
        drop(stream);
    }

    /// A connection that has room for one more stream, which stays promised until what is returned is dropped; and its idle time, if that
    /// lasts.
    fn promise(&self, peer: u64, now: Instant) -> Option<(Promised, Option<IdleTime>)> {
        let connections = self.lock();
        let open = connections.by_peer.get(&peer)?.iter().find(|open| open.has_room())?;
        let is_idle = open.promised.fetch_add(1, Ordering::Relaxed) == 0 && open.connection.is_idle();
        *open.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let idle_time = open.idle_time(is_idle, now);
        Some((Promised(Arc::clone(open)), idle_time))
    }

    /// Forgets those that have ended, and those that had no stream for too long, which end by it. Whether none is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut dropped = Vec::new();
        let mut connections = self.lock();
        for of_peer in connections.by_peer.values_mut() {
            dropped.extend(of_peer.extract_if(.., |open| !open.stays(now)));
        }
        connections.count = connections.count.saturating_sub(dropped.len());
        connections.by_peer.retain(|_, of_peer| !of_peer.is_empty());
        connections.is_swept = !connections.by_peer.is_empty();
        let is_empty = !connections.is_swept;
        drop(connections);
        // Closed only here, where nobody waits for the lock.
        drop(dropped);
        is_empty
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that a connection is about to be asked for.
struct Promised(Arc<Open>);

impl Drop for Promised {
    fn drop(&mut self) {
        self.0.promised.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Open {
    fn has_room(&self) -> bool {
        // Both are looked at with the pool locked; a stream that is counted and still promised is counted twice.
        self.is_settled.load(Ordering::Relaxed)
            && self.connection.free_stream_slots() > self.promised.load(Ordering::Relaxed)
    }

    /// The idle time of the connection, which gets a stream now: none where something was heard since the first one that ended it, or where
    /// that was longer ago than [`TOGETHER_MAX`]. `is_idle`: this one is the first. Those that come together with it are on a connection
    /// that may have died before all of them; later ones are on one that is in use.
    fn idle_time(&self, is_idle: bool, now: Instant) -> Option<IdleTime> {
        let mut idle_time = self.idle_time.lock().unwrap_or_else(PoisonError::into_inner);
        if is_idle {
            *idle_time = Some((IdleTime::begin(&self.reads), now));
        }
        let (idle_time, ended_at) = idle_time.as_ref()?;
        let is_together = now.saturating_duration_since(*ended_at) <= TOGETHER_MAX;
        (is_together && idle_time.lasts()).then(|| idle_time.clone())
    }

    fn stays(&self, now: Instant) -> bool {
        if self.connection.is_closed() || self.connection.is_shutting_down() {
            return false;
        }
        let mut since = self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.connection.is_idle() || self.promised.load(Ordering::Relaxed) > 0 {
            *since = None;
            return true;
        }
        now.saturating_duration_since(*since.get_or_insert(now)) < self.idle_max
    }
}

/// Begins to speak HTTP/2, and goes on on a task of its own until nothing asks for it any more.
async fn open(stream: Stream, peer: &HttpPeer, idle_max: Duration, times: Times) -> Result<Open> {
    let id = stream.id();
    let digest = Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    };
    let reads = Arc::<AtomicUsize>::default();
    let options = &peer.options;
    let streams_max = options.max_h2_streams;
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(streams_max)
        // Of streams that the upstream begins there are none.
        .max_concurrent_streams(1)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .reset_stream_duration(RESET_STREAMS_KNOWN)
        .max_local_error_reset_streams(Some(LATE_FRAMES_MAX));
    if let Some(bytes) = options.h2_stream_window_size {
        builder.initial_window_size(bytes);
    }
    if let Some(bytes) = options.h2_connection_window_size {
        builder.initial_connection_window_size(bytes);
    }
    let begun = builder
        .handshake::<_, Bytes>(Heard::new(stream, Arc::clone(&reads)))
        .await;
    let (requests, connection) = begun.or_err(ErrorType::HandshakeError, "HTTP/2")?;
    let (closes, closed) = watch::channel(false);
    let is_silent = Arc::new(AtomicBool::new(false));
    let is_settled = Arc::new(AtomicBool::new(false));
    let life = Life {
        is_silent: Arc::clone(&is_silent),
        is_settled: Arc::clone(&is_settled),
        reads: Arc::clone(&reads),
        closes,
        times,
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends with the connection; each call over it has its own task, which the stop waits for"
    )]
    tokio::spawn(life.lead(connection));
    Ok(Open {
        connection: ConnectionRef::new(requests, closed, is_silent, id, streams_max, digest),
        is_settled,
        promised: AtomicUsize::new(0),
        idle_max,
        idle_since: Mutex::default(),
        idle_time: Mutex::default(),
        reads,
    })
}

/// What the task of a connection tells of it.
struct Life {
    /// The upstream was silent for too long: all streams fail.
    is_silent: Arc<AtomicBool>,
    is_settled: Arc<AtomicBool>,
    /// Reads that brought something.
    reads: Arc<AtomicUsize>,
    closes: watch::Sender<bool>,
    times: Times,
}

impl Life {
    /// Has frames sent and received until the connection ends.
    async fn lead(self, mut connection: Connection<Heard, Bytes>) {
        let pings = connection.ping_pong();
        tokio::select! {
            // What waits in the socket is read before it is asked whether anything came: after a stop of the process both are ready. Reading
            // keeps the clock waiting only while something comes, and then something was heard.
            biased;
            ended = connection => if let Err(error) = ended {
                log::debug!("a connection over HTTP/2 ended: {}", http2_reason(&error));
            },
            () = self.until_silent(pings) => {
                log::warn!("an upstream said nothing for {} s over HTTP/2, and answered no PING: its connection is closed", self.times.pong_within.as_secs());
                self.is_silent.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns when the upstream is silent: nothing came for long, neither an answer to a PING nor anything else.
    async fn until_silent(&self, pings: Option<PingPong>) {
        let Some(mut pings) = pings else {
            return std::future::pending().await;
        };
        let mut idle_time = IdleTime::begin(&self.reads);
        loop {
            if pings.send_ping(Ping::opaque()).is_err() {
                // It has ended, which its own future tells.
                return std::future::pending().await;
            }
            let mut answered = std::pin::pin!(poll_fn(|context| pings.poll_pong(context)));
            loop {
                match tokio::time::timeout(self.times.pong_within, answered.as_mut()).await {
                    Ok(Ok(_)) => break,
                    Ok(Err(_)) => return std::future::pending().await,
                    Err(_) if idle_time.lasts() => return,
                    Err(_) => idle_time = IdleTime::begin(&self.reads),
                }
            }
            // SETTINGS are the first thing that an upstream sends (RFC 9113 section 3.4).
            self.is_settled.store(true, Ordering::Relaxed);
            loop {
                idle_time = IdleTime::begin(&self.reads);
                tokio::time::sleep(self.times.ping_after).await;
                if idle_time.lasts() {
                    break;
                }
            }
        }
    }
}

impl Drop for Life {
    /// However it ends: a connection whose task is gone takes no stream.
    fn drop(&mut self) {
        self.closes.send_replace(true);
    }
}

/// Looks through them until none is left.
async fn sweep(pool: Weak<Http2>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match pool.upgrade() {
            Some(pool) if !pool.sweep(crate::clock::monotonic()) => {}
            _ => return,
        }
    }
}

/// Connections that are kept.
const KEPT_MAX: usize = 4096;
/// How long after the stream that ended the idle time of a connection others share it: longer, and the upstream may have been at work.
const TOGETHER_MAX: Duration = Duration::from_millis(100);
/// How many connections a call tries before it makes one.
const TRIED_MAX: usize = 3;
/// The upstream may send frames that are this long.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// How many streams that were reset are known, so that what was on its way for them means nothing, and for how long: one that is known
/// no more counts as the upstream's mistake.
const RESET_STREAMS_MAX: usize = 4096;
const RESET_STREAMS_KNOWN: Duration = Duration::from_secs(10);
/// How many such mistakes a connection outlives. Each is answered by a frame, which waits in memory while the upstream takes none.
const LATE_FRAMES_MAX: usize = 1 << 16;
const TIMES: Times = Times {
    sweep_every: Duration::from_secs(5),
    ping_after: Duration::from_secs(30),
    pong_within: Duration::from_secs(20),
};

#[cfg(test)]
mod tests;
