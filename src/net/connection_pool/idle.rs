//! Connections over HTTP/1 that wait for their next request.
//!
//! Pingora's pool gives each of them a task and a timer, which cost a request more than its own connection's work does. These lie
//! still: whether one was closed meanwhile is seen when it is taken, and by one task that looks through all of them now and then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use pingora::protocols::Stream;
use tokio::io::AsyncReadExt as _;

use crate::net::hash_map::ByHash;

/// The connections of all peers.
pub(super) struct Idle {
    idle: Mutex<IdleMap>,
    sweep_every: Duration,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle {
            idle: Mutex::default(),
            sweep_every: SWEEP_EVERY,
        }
    }
}

#[derive(Default)]
struct IdleMap {
    /// By peer, the one put there last at the end: it is the least likely to have been closed.
    by_peer: ByHash<Vec<Waiting>>,
    count: usize,
    /// Whether the task runs that looks through them.
    is_swept: bool,
}

struct Waiting {
    stream: Stream,
    until: Instant,
}

impl Idle {
    /// One that waits for this peer and was not closed. Only a few are tried: where many were closed at once, a call shall not wait for
    /// all of their ends.
    pub(super) fn take(&self, peer: u64) -> Option<Stream> {
        let now = crate::clock::monotonic();
        for _ in 0..TRIED_MAX {
            let mut waiting = self.lock().take(peer)?;
            if waiting.is_alive(now) {
                return Some(waiting.stream);
            }
        }
        None
    }

    /// Keeps a connection for the peer's next request, for so long. When there are too many, the oldest of the peer with the most goes.
    /// Called on a runtime.
    pub(super) fn put(self: &Arc<Self>, peer: u64, stream: Stream, within: Duration) {
        let until = crate::clock::monotonic().checked_add(within);
        let Some(until) = until else { return };
        let mut idle = self.lock();
        let too_many = if idle.count >= IDLE_MAX {
            idle.take_oldest()
        } else {
            None
        };
        idle.count = idle.count.saturating_add(1);
        let waiting = Waiting { stream, until };
        idle.by_peer.entry(peer).or_default().push(waiting);
        if !std::mem::replace(&mut idle.is_swept, true) {
            #[expect(
                clippy::disallowed_methods,
                reason = "it ends with the pool, which it holds weakly, and has nothing to lose"
            )]
            tokio::spawn(sweep(Arc::downgrade(self), self.sweep_every));
        }
        drop(idle);
        // Closed only here, where nobody waits for the lock.
        drop(too_many);
    }

    /// Looks through all, a few at a time, so that no request waits for it. Whether none is left.
    async fn sweep(&self) -> bool {
        let peers: Vec<u64> = self.lock().by_peer.keys().copied().collect();
        for peer in peers {
            let mut from = Some(0);
            while let Some(at) = from {
                let dead;
                (from, dead) = self.lock().sweep(peer, at, crate::clock::monotonic());
                drop(dead);
                tokio::task::yield_now().await;
            }
        }
        let mut idle = self.lock();
        idle.by_peer.retain(|_, connections| !connections.is_empty());
        idle.is_swept = !idle.by_peer.is_empty();
        !idle.is_swept
    }

    fn lock(&self) -> MutexGuard<'_, IdleMap> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdleMap {
    fn take(&mut self, peer: u64) -> Option<Waiting> {
        let waiting = self.by_peer.get_mut(&peer)?.pop()?;
        self.count = self.count.saturating_sub(1);
        Some(waiting)
    }

    /// The one that has waited longest for the peer that most wait for.
    fn take_oldest(&mut self) -> Option<Waiting> {
        let most = self.by_peer.values_mut().max_by_key(|connections| connections.len())?;
        let oldest = (!most.is_empty()).then(|| most.remove(0))?;
        self.count = self.count.saturating_sub(1);
        Some(oldest)
    }

    /// Takes out of a peer's, of the next few after `from`, those that were closed at the other end or have waited their time. Where to
    /// go on, and those.
    fn sweep(&mut self, peer: u64, from: usize, now: Instant) -> (Option<usize>, Vec<Waiting>) {
        let Some(connections) = self
            .by_peer
            .get_mut(&peer)
            .filter(|connections| from < connections.len())
        else {
            return (None, Vec::new());
        };
        let to = from.saturating_add(SWEPT_AT_ONCE).min(connections.len());
        let dead: Vec<Waiting> = connections
            .extract_if(from..to, |waiting| !waiting.is_alive(now))
            .collect();
        self.count = self.count.saturating_sub(dead.len());
        (Some(to.saturating_sub(dead.len())), dead)
    }
}

impl Waiting {
    /// Whether it may wait on, and neither was closed at the other end nor said anything.
    fn is_alive(&mut self, now: Instant) -> bool {
        self.until > now && is_silent(&mut self.stream)
    }
}

/// Looks through them until none is left.
async fn sweep(idle: Weak<Idle>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match idle.upgrade() {
            Some(idle) if !idle.sweep().await => {}
            _ => return,
        }
    }
}

/// Whether the other end has neither closed the connection nor said anything: nothing is to come before the next request.
fn is_silent(stream: &mut Stream) -> bool {
    let mut byte = [0; 1];
    // Without tokio's budget, which would make one that is closed look silent.
    tokio::task::unconstrained(stream.read(&mut byte))
        .now_or_never()
        .is_none()
}

/// Connections that are kept.
const IDLE_MAX: usize = 4096;
/// How many of them a call tries.
const TRIED_MAX: usize = 8;
/// How often they are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// How many of them without a pause.
const SWEPT_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Both ends of a connection; the number tells it from others.
    async fn connection() -> (Stream, TcpStream, i32) {
        let (near, far) = ends().await;
        let (near, id) = waiting(near);
        (near, far, id)
    }

    async fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    fn waiting(near: TcpStream) -> (Stream, i32) {
        let stream: Stream = Box::new(pingora::protocols::l4::stream::Stream::from(near));
        let id = stream.id();
        (stream, id)
    }

    /// A connection that the other end has closed.
    async fn closed() -> Stream {
        let (near, far) = ends().await;
        drop(far);
        near.readable().await.unwrap();
        waiting(near).0
    }

    #[tokio::test]
    async fn the_last_one_put_is_taken_first_and_only_for_its_peer() {
        let idle = Arc::new(Idle::default());
        let (first, _far, first_id) = connection().await;
        let (second, _far, second_id) = connection().await;
        idle.put(1, first, LONG);
        idle.put(1, second, LONG);
        assert!(idle.take(2).is_none());
        assert_eq!(idle.take(1).map(|stream| stream.id()), Some(second_id));
        assert_eq!(idle.take(1).map(|stream| stream.id()), Some(first_id));
        assert!(idle.take(1).is_none());
    }

    #[tokio::test]
    async fn one_that_was_closed_or_said_something_or_is_too_old_is_not_taken() {
        let idle = Arc::new(Idle::default());
        let (good, _far, good_id) = connection().await;
        let (old, mut old_far, _) = connection().await;
        let (talks, mut talks_far) = ends().await;
        talks_far.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        talks.readable().await.unwrap();
        idle.put(1, good, LONG);
        idle.put(1, closed().await, LONG);
        idle.put(1, waiting(talks).0, LONG);
        idle.put(1, old, Duration::ZERO);
        assert_eq!(idle.take(1).map(|stream| stream.id()), Some(good_id));
        assert_eq!(old_far.read(&mut [0; 1]).await.unwrap(), 0, "it is closed");
    }

    #[tokio::test]
    async fn those_that_are_not_taken_are_closed_in_time() {
        let idle = Arc::new(Idle::default());
        let (good, _far, good_id) = connection().await;
        let (old, mut old_far, _) = connection().await;
        idle.put(1, good, LONG);
        for _ in 0..100 {
            idle.put(1, closed().await, LONG);
        }
        idle.put(2, old, Duration::ZERO);
        assert!(!idle.sweep().await);
        assert_eq!(idle.lock().count, 1);
        assert_eq!(idle.lock().by_peer.len(), 1);
        assert_eq!(old_far.read(&mut [0; 1]).await.unwrap(), 0, "it is closed");
        assert_eq!(idle.take(1).map(|stream| stream.id()), Some(good_id));
        assert!(idle.sweep().await);
        assert!(!idle.lock().is_swept);
    }

    #[tokio::test]
    async fn a_task_looks_through_them_whenever_there_are_some() {
        let idle = Arc::new(Idle {
            sweep_every: Duration::from_millis(1),
            ..Idle::default()
        });
        for _ in 0..2 {
            let (old, mut old_far, _) = connection().await;
            idle.put(1, old, Duration::ZERO);
            assert_eq!(old_far.read(&mut [0; 1]).await.unwrap(), 0, "it is closed");
        }
    }

    #[tokio::test]
    async fn where_many_were_closed_only_a_few_are_tried() {
        let idle = Arc::new(Idle::default());
        let (good, _far, good_id) = connection().await;
        idle.put(1, good, LONG);
        for _ in 0..=TRIED_MAX {
            idle.put(1, closed().await, LONG);
        }
        assert!(idle.take(1).is_none());
        assert_eq!(idle.take(1).map(|stream| stream.id()), Some(good_id));
    }

    #[tokio::test]
    async fn of_too_many_the_oldest_of_the_most_goes() {
        let idle = Arc::new(Idle::default());
        let (other, _far, other_id) = connection().await;
        let (first, mut first_far, _) = connection().await;
        let (second, _far, second_id) = connection().await;
        let (third, _far, third_id) = connection().await;
        idle.put(2, other, LONG);
        idle.put(1, first, LONG);
        idle.put(1, second, LONG);
        idle.lock().count = IDLE_MAX;
        idle.put(3, third, LONG);
        assert_eq!(idle.lock().count, IDLE_MAX);
        assert_eq!(first_far.read(&mut [0; 1]).await.unwrap(), 0, "it is closed");
        let taken = [1, 2, 3].map(|peer| idle.take(peer).map(|stream| stream.id()));
        assert_eq!(taken, [Some(second_id), Some(other_id), Some(third_id)]);
    }
}
