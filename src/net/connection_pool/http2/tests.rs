//! What becomes of connections over HTTP/2 whose other end is told what to say, frame by frame.

use std::sync::atomic::AtomicU32;

use futures::FutureExt as _;
use pingora::http::RequestHeader;
use pingora::protocols::ALPN;
use pingora::protocols::http::client::HttpSession;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::super::ConnectionPool;
use super::*;

const LONG: Duration = Duration::from_secs(60);
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` of HPACK's static table.
const STATUS_200: u8 = 0x88;

/// An upstream that says what it is told to, frame by frame.
struct Far {
    socket: OwnedWriteHalf,
    /// PINGs that came and were not answered.
    pings: Arc<AtomicU32>,
    has_ended: tokio::task::JoinHandle<()>,
}

impl Far {
    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.socket.write_all(&frame).await.unwrap();
    }

    /// Says how many streams it takes.
    async fn settings(&mut self, streams_max: u32) {
        let mut payload = vec![0, 3];
        payload.extend_from_slice(&streams_max.to_be_bytes());
        self.frame(SETTINGS, 0, 0, &payload).await;
    }

    async fn head(&mut self, stream: u32) {
        self.frame(HEADERS, END_HEADERS, stream, &[STATUS_200]).await;
    }
}

/// Reads frames to the end.
async fn listen(mut socket: OwnedReadHalf, pings: Arc<AtomicU32>) {
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).await.unwrap();
    let mut head = [0; 9];
    while socket.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        if socket.read_exact(&mut payload).await.is_err() {
            return;
        }
        if head[3] == PING && head[4] & ACK == 0 {
            pings.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A pool, a peer, and the first stream of a connection to it with its other end.
async fn connected() -> (Arc<Http2>, HttpPeer, Http2Session, Far) {
    connected_within(TIMES).await
}

async fn connected_within(times: Times) -> (Arc<Http2>, HttpPeer, Http2Session, Far) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (read, write) = far.unwrap().0.into_split();
    let pings = Arc::new(AtomicU32::new(0));
    let far = Far {
        socket: write,
        pings: Arc::clone(&pings),
        has_ended: tokio::spawn(listen(read, pings)),
    };
    let mut peer = HttpPeer::new(address, false, String::new());
    peer.options.max_h2_streams = 1_000;
    peer.options.h2_connection_window_size = Some(1 << 28);
    let pool = Arc::new(Http2 {
        times,
        ..Http2::default()
    });
    let near: Stream = Box::new(pingora::protocols::l4::stream::Stream::from(near.unwrap()));
    let first = pool.first_stream(near, &peer, LONG).await.unwrap();
    (pool, peer, first, far)
}

impl Http2 {
    /// A stream of a connection that there is.
    async fn next_stream(&self, peer: u64) -> Option<Http2Session> {
        let (stream, _) = self.stream(peer, crate::clock::monotonic()).await?;
        Some(stream)
    }
}

/// Sends a request without a body.
fn ask(stream: &mut Http2Session) {
    let mut head = RequestHeader::build("POST", b"/", None).unwrap();
    head.insert_header("host", "far.example").unwrap();
    stream.write_request_header(Box::new(head), true).unwrap();
}

/// Asks, and takes the head of the answer.
async fn ask_for_head(stream: &mut Http2Session, number: u32, far: &mut Far) {
    ask(stream);
    far.head(number).await;
    stream.read_response_header().await.unwrap();
}

#[tokio::test]
async fn a_connection_is_shared_once_its_upstream_has_said_how_many_streams_it_takes() {
    let (pool, peer, mut first, mut far) = connected().await;
    let peer = peer.reuse_hash();
    ask(&mut first);
    assert!(pool.next_stream(peer).await.is_none(), "nothing is known of it");
    far.settings(2).await;
    far.head(1).await;
    first.read_response_header().await.unwrap();
    pool.release(first, peer, false);
    let second = pool.next_stream(peer).await.unwrap();
    let third = pool.next_stream(peer).await.unwrap();
    assert!(pool.next_stream(peer).await.is_none(), "it takes two");
    drop(second);
    assert!(pool.next_stream(peer).await.is_some());
    drop(third);
    assert!(pool.next_stream(1).await.is_none(), "another peer");
}

#[tokio::test]
async fn what_comes_late_for_streams_that_were_left_ends_no_other() {
    let (pool, peer, mut victim, mut far) = connected().await;
    let peer = peer.reuse_hash();
    far.settings(1_000).await;
    ask_for_head(&mut victim, 1, &mut far).await;
    // Settles the connection.
    let settled = pool.lock().by_peer[&peer][0].is_settled.clone();
    settled.store(true, Ordering::Relaxed);
    let left: Vec<u32> = (0..200).map(|number| 3 + 2 * number).collect();
    for number in &left {
        let mut stream = pool.next_stream(peer).await.unwrap();
        ask_for_head(&mut stream, *number, &mut far).await;
        pool.release(stream, peer, false);
    }
    for _ in 0..10 {
        for number in &left {
            far.frame(DATA, 0, *number, b"late").await;
        }
        // What came before it was looked at, too.
        far.frame(DATA, 0, 1, b"part").await;
        assert_eq!(victim.read_response_body().await.unwrap().unwrap(), "part");
    }
    far.frame(DATA, END_STREAM, 1, b"whole").await;
    assert_eq!(victim.read_response_body().await.unwrap().unwrap(), "whole");
    assert!(pool.next_stream(peer).await.is_some(), "and it is used again");
}

#[tokio::test]
async fn an_upstream_that_says_something_is_there_and_one_that_says_nothing_is_not() {
    // Longer than a busy machine stops the upstream, which is on this thread as well.
    let within = Duration::from_secs(4);
    let times = Times {
        pong_within: within,
        ..TIMES
    };
    let (pool, peer, mut stream, mut far) = connected_within(times).await;
    far.settings(10).await;
    ask_for_head(&mut stream, 1, &mut far).await;
    let began = crate::clock::monotonic();
    while began.elapsed() < within * 3 / 2 {
        // Sleeps: how long nothing comes is what this is about.
        tokio::time::sleep(within / 10).await;
        far.frame(DATA, 0, 1, b"x").await;
        assert_eq!(stream.read_response_body().await.unwrap().unwrap(), "x");
    }
    assert_eq!(far.pings.load(Ordering::Relaxed), 1, "the first, which has no answer");
    assert!(stream.read_response_body().await.is_err());
    assert!(pool.next_stream(peer.reuse_hash()).await.is_none());
    assert!(pool.sweep(crate::clock::monotonic()), "it is forgotten");
}

/// The clock and the socket are ready in one turn then. Of many connections none is closed: which was looked at first was chance.
#[tokio::test]
async fn what_came_while_the_process_was_stopped_was_heard() {
    let within = Duration::from_millis(1);
    let mut connections = Vec::new();
    for _ in 0..32 {
        let (near, far) = tokio::io::duplex(1 << 16);
        let reads = Arc::<AtomicUsize>::default();
        let near = Heard::new(Box::new(near), Arc::clone(&reads));
        let (requests, connection) = Builder::new().handshake::<_, Bytes>(near).await.unwrap();
        let is_silent = Arc::new(AtomicBool::new(false));
        let life = Life {
            is_silent: Arc::clone(&is_silent),
            is_settled: Arc::default(),
            reads,
            closes: watch::channel(false).0,
            times: Times {
                pong_within: within,
                ..TIMES
            },
        };
        // All of them are polled by this one task, and tokio bounds what a task does in a turn.
        let leads = tokio::task::unconstrained(life.lead(connection));
        connections.push((Box::pin(leads), far, is_silent, requests));
    }
    for (leads, ..) in &mut connections {
        assert!(leads.as_mut().now_or_never().is_none());
    }
    // Nobody polls the connections meanwhile, and what came is not read. A timer is over when one is that was set later.
    tokio::time::timeout(within, std::future::pending::<()>())
        .await
        .unwrap_err();
    for (leads, far, is_silent, _requests) in &mut connections {
        far.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
        assert!(leads.as_mut().now_or_never().is_none());
        assert!(!is_silent.load(Ordering::Relaxed));
    }
}

#[tokio::test]
async fn one_without_streams_is_closed_in_time() {
    let (pool, peer, mut stream, mut far) = connected().await;
    far.settings(10).await;
    ask_for_head(&mut stream, 1, &mut far).await;
    let now = crate::clock::monotonic();
    assert!(!pool.sweep(now));
    assert!(!pool.sweep(now + 2 * LONG), "it has a stream");
    pool.release(stream, peer.reuse_hash(), false);
    assert!(!pool.sweep(now));
    assert!(!pool.sweep(now + LONG / 2));
    let used = pool.next_stream(peer.reuse_hash()).await.unwrap();
    assert!(!pool.sweep(now + LONG));
    drop(used);
    assert!(!pool.sweep(now + LONG), "it was used since");
    assert!(pool.sweep(now + 2 * LONG));
    far.has_ended.await.unwrap();
}

#[tokio::test]
async fn one_on_which_an_upstream_was_silent_gets_no_other_request() {
    let (pool, peer, mut stream, mut far) = connected().await;
    let peer = peer.reuse_hash();
    far.settings(10).await;
    ask_for_head(&mut stream, 1, &mut far).await;
    pool.release(stream, peer, false);
    let mut first = pool.next_stream(peer).await.unwrap();
    let second = pool.next_stream(peer).await.unwrap();
    ask_for_head(&mut first, 3, &mut far).await;
    pool.release(second, peer, true);
    assert!(pool.next_stream(peer).await.is_none());
    far.frame(DATA, END_STREAM, 3, b"whole").await;
    assert_eq!(first.read_response_body().await.unwrap().unwrap(), "whole");
}

/// Each stream but a connection's first counted as one of a connection that had waited, also among many others; then of a burst on one that
/// had died while it waited the first stream alone did; then each did from which nothing was heard, however long others were at work.
#[tokio::test]
async fn the_idle_time_of_a_connection_is_of_all_streams_that_come_together_until_something_is_heard() {
    let (pool, peer, mut stream, mut far) = connected().await;
    let (peer, now) = (peer.reuse_hash(), crate::clock::monotonic());
    far.settings(10).await;
    ask_for_head(&mut stream, 1, &mut far).await;
    pool.lock().by_peer[&peer][0].is_settled.store(true, Ordering::Relaxed);
    let (beside, none) = pool.stream(peer, now).await.unwrap();
    assert!(none.is_none(), "it had another stream");
    pool.release(stream, peer, false);
    pool.release(beside, peer, false);
    let (mut first, of_first) = pool.stream(peer, now).await.unwrap();
    let (mut second, of_second) = pool.stream(peer, now + TOGETHER_MAX).await.unwrap();
    let later = now + TOGETHER_MAX + Duration::from_millis(1);
    let (late, none) = pool.stream(peer, later).await.unwrap();
    assert!(none.is_none(), "it is in use");
    let idle_times = [of_first.unwrap(), of_second.unwrap()];
    assert!(idle_times.iter().all(IdleTime::lasts));
    // What was taken and not asked has no number.
    ask_for_head(&mut first, 3, &mut far).await;
    assert!(!idle_times.iter().any(IdleTime::lasts));
    let (third, none) = pool.stream(peer, now).await.unwrap();
    assert!(none.is_none(), "it has answered");
    ask_for_head(&mut second, 5, &mut far).await;
    for stream in [first, second, third, late] {
        pool.release(stream, peer, false);
    }
    let (_stream, again) = pool.stream(peer, later).await.unwrap();
    assert!(again.unwrap().lasts());
}

/// A repeat went over the next connection that there was, and a provider that ends all of them refused it once more.
#[tokio::test]
async fn a_fresh_connection_is_a_new_one_though_another_has_room() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut peer = HttpPeer::new(listener.local_addr().unwrap(), false, String::new());
    // Spoken at once where there is no TLS.
    peer.options.alpn = ALPN::H2;
    peer.options.max_h2_streams = 10;
    let pool = ConnectionPool::default();
    let first = pool.connect(&peer, false).await.unwrap();
    let settled = pool.http2.lock().by_peer[&peer.reuse_hash()][0].is_settled.clone();
    settled.store(true, Ordering::Relaxed);
    let shared = pool.connect(&peer, false).await.unwrap();
    let fresh = pool.connect(&peer, true).await.unwrap();
    let [first_id, shared_id, fresh_id] = [&first, &shared, &fresh].map(|connected| match &connected.session {
        HttpSession::H2(stream) => stream.fd(),
        _ => panic!("not over HTTP/2"),
    });
    assert_eq!(shared_id, first_id);
    assert_ne!(fresh_id, first_id);
    assert_eq!((shared.is_reused, fresh.is_reused), (true, false));
}
