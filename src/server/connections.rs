//! How many connections are open, in all and from one address. The listener asks for a permit for each.
//!
//! Where there are as many as there may be, an idle one makes room for a new one, in the order of [`IdleOrder`]. Requests tell nothing for
//! that, which would cost each of them: when there is little room left, some connections are looked at for each new one.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};

use futures::task::AtomicWaker;

use super::idle_order::{IdleOrder, Since};
use crate::net::client_ip;
use crate::net::head_limit::HeadLimit;

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By number, which grows with each.
    all: BTreeMap<u64, Taken>,
    next: u64,
    /// Only addresses with an open connection stand here, so it is never larger than `all`.
    by_address: HashMap<IpAddr, usize>,
    /// Those that were idle when they were looked at last.
    idle: IdleOrder,
    /// The number from which on connections are looked at next.
    look_from: u64,
}

/// A place that is taken.
#[derive(Debug)]
struct Taken {
    connection: Arc<Connection>,
    /// None when it does not count by address.
    counted: Option<IpAddr>,
    /// Whose idle connections it is one of.
    network: Option<IpAddr>,
    /// Its place among the idle ones; none when it was busy when it was looked at last.
    since: Option<Since>,
}

/// A connection, as its task and whoever needs its place see it.
#[derive(Debug)]
struct Connection {
    limit: Arc<HeadLimit>,
    /// What serves its requests, see [`ConnectionPermit::served_by`].
    handler: OnceLock<Weak<dyn Any + Send + Sync>>,
    is_to_end: AtomicBool,
    task: AtomicWaker,
}

/// How many may be open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// In all.
    pub(crate) total: usize,
    /// From one address.
    pub(crate) per_address: usize,
}

/// A place among the open connections, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    number: u64,
    connection: Arc<Connection>,
}

impl Connections {
    /// A place for a connection from `address`; none when too many are open and no idle one can make room. `is_proxy`: it brings many
    /// clients, so it counts in the total alone, as one without an address does.
    pub(crate) fn take(
        self: &Arc<Connections>,
        address: Option<IpAddr>,
        is_proxy: bool,
        limit: &Arc<HeadLimit>,
        most: ConnectionLimits,
    ) -> Option<ConnectionPermit> {
        let counted = address.filter(|_| !is_proxy).map(client_ip::group);
        let mut open = self.lock();
        let here = counted.and_then(|address| open.by_address.get(&address).copied());
        if here.is_some_and(|here| here >= most.per_address) {
            return None;
        }
        open.make_room(most.total)?;
        let connection = Arc::new(Connection {
            limit: Arc::clone(limit),
            handler: OnceLock::new(),
            is_to_end: AtomicBool::new(false),
            task: AtomicWaker::new(),
        });
        let number = open.enter(Arc::clone(&connection), counted, address.map(client_ip::site));
        Some(ConnectionPermit {
            connections: Arc::clone(self),
            number,
            connection,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Its number. It waits for its first head.
    fn enter(&mut self, connection: Arc<Connection>, counted: Option<IpAddr>, network: Option<IpAddr>) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        if let Some(address) = counted {
            let here = self.by_address.entry(address).or_default();
            *here = here.saturating_add(1);
        }
        let since = Some(self.idle.add(network, number));
        let taken = Taken {
            connection,
            counted,
            network,
            since,
        };
        self.all.insert(number, taken);
        number
    }

    fn remove(&mut self, number: u64) -> Option<Taken> {
        let taken = self.all.remove(&number)?;
        if let Some(since) = taken.since {
            self.idle.remove(taken.network, since);
        }
        if let Some(address) = taken.counted
            && let Some(here) = self.by_address.get_mut(&address)
        {
            *here = here.saturating_sub(1);
            if *here == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(taken)
    }

    /// Ends idle connections until there is room for one more; none when none that is looked at can make it.
    fn make_room(&mut self, most: usize) -> Option<()> {
        if most.saturating_sub(self.all.len()) > most / LOOK_BELOW {
            return Some(());
        }
        self.look_around();
        let (mut looks, mut idle_now) = (LOOKS, None);
        while self.all.len() >= most {
            let Some(left) = looks.checked_sub(1) else {
                // All had a request since they were looked at before: it is the one that has waited longest of those that have none now.
                self.end(idle_now.take()?);
                continue;
            };
            looks = left;
            let number = self.idle.first()?;
            if self.look(number) {
                self.end(number);
            } else if idle_now.is_none() && self.all.get(&number).is_some_and(|taken| taken.since.is_some()) {
                idle_now = Some(number);
            }
        }
        Some(())
    }

    fn end(&mut self, number: u64) {
        if let Some(taken) = self.remove(number) {
            taken.connection.end();
        }
    }

    /// Looks at the next connections, one after another, and from the first again after the last.
    fn look_around(&mut self) {
        let later = self.all.range(self.look_from..);
        let next = later.chain(self.all.range(..self.look_from)).take(LOOKS);
        let numbers: Vec<u64> = next.map(|(number, _)| *number).collect();
        for number in &numbers {
            self.look(*number);
        }
        self.look_from = numbers.last().map_or(0, |last| last.wrapping_add(1));
    }

    /// Puts a connection in its place among the idle ones. Whether it stands there since it was looked at before.
    fn look(&mut self, number: u64) -> bool {
        let Some(taken) = self.all.get_mut(&number) else {
            return false;
        };
        let is_idle = taken.connection.is_idle();
        // Asked in any case: it is about the time until the next look.
        let is_unchanged = taken.connection.limit.is_unchanged();
        if is_idle && is_unchanged && taken.since.is_some() {
            return true;
        }
        if let Some(since) = taken.since.take() {
            self.idle.remove(taken.network, since);
        }
        if is_idle {
            taken.since = Some(self.idle.add(taken.network, number));
        }
        false
    }
}

impl Connection {
    /// Whether it has no request under way, and nothing of an answer left to send.
    fn is_idle(&self) -> bool {
        let held = self.handler.get().map_or(0, Weak::strong_count);
        // Whoever sees that a request is over sees what it has left to send, too.
        fence(Ordering::Acquire);
        held <= HELD_WITHOUT_REQUESTS && self.limit.is_between_requests()
    }

    fn end(&self) {
        self.is_to_end.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl ConnectionPermit {
    /// What serves the connection's requests. The listener holds it, and over HTTP/2 Pingora does, once, and once more from the moment that
    /// it takes a request in until that is over.
    pub(crate) fn served_by<H: Send + Sync + 'static>(&self, handler: &Arc<H>) {
        let handler: Weak<H> = Arc::downgrade(handler);
        let handler: Weak<dyn Any + Send + Sync> = handler;
        self.connection.handler.get_or_init(|| handler);
    }

    /// Whether it has no request under way, and nothing of an answer left to send. Exact between two polls of the connection; whoever
    /// looks from elsewhere may be told what was so a moment ago.
    pub(crate) fn is_idle(&self) -> bool {
        self.connection.is_idle()
    }

    /// Whether the connection has to make room as soon as it is idle: its place is another's already. False again never.
    pub(crate) fn is_to_end(&self) -> bool {
        self.connection.is_to_end.load(Ordering::Acquire)
    }

    /// Wakes this task when the connection has to make room. To be called before that is asked, so that it is not missed between the two.
    pub(crate) fn wakes(&self, task: &Waker) {
        self.connection.task.register(task);
    }

    /// Returns when the connection has to make room.
    pub(crate) async fn makes_room(&self) {
        poll_fn(|context| {
            self.wakes(context.waker());
            if self.is_to_end() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Not there any more when it had to make room.
        drop(self.connections.lock().remove(self.number));
    }
}

/// Connections that are looked at for a new one: so many in turn, and no more of those that might make room.
const LOOKS: usize = 32;
/// They are looked at while less than this part of all places is free: until the last one is taken, twice as many as there are.
const LOOK_BELOW: usize = 16;
/// How often a connection's handler is held at most while no request is under way.
const HELD_WITHOUT_REQUESTS: usize = 2;

#[cfg(test)]
mod tests;
