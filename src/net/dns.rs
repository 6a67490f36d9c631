//! Host names of providers and their addresses, kept fresh.
//!
//! Each name is resolved on a thread of its own, never on a worker and never on another name's time; a name that stops resolving keeps its
//! last addresses.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

/// Finds the addresses of a host; may block.
pub type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// How names are resolved.
#[derive(Clone)]
pub struct Resolver {
    resolve: Resolve,
    every: Duration,
}

/// The addresses of one host.
#[derive(Debug)]
pub(crate) struct Addresses {
    host: String,
    port: u16,
    known: ArcSwap<Vec<SocketAddr>>,
    next: AtomicUsize,
    /// Whether the name was asked for once, with or without an answer.
    asked: (Mutex<bool>, Condvar),
}

impl Resolver {
    /// The system's resolver, asked for each name every 30 seconds, and each second while it has no address.
    pub fn system() -> Resolver {
        let resolve = |host: &str, port: u16| Ok((host, port).to_socket_addrs()?.collect());
        Resolver::new(Arc::new(resolve), RESOLVE_EVERY)
    }

    /// Another one, asked in these intervals, and at least each second for a name that has no address.
    pub fn new(resolve: Resolve, every: Duration) -> Resolver {
        Resolver { resolve, every }
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Resolver(every {:?})", self.every)
    }
}

impl Addresses {
    /// The addresses of a host: known at once for a plain address, else once [`Addresses::keep_fresh`] has found them.
    pub(crate) fn of(host: &str, port: u16) -> Arc<Addresses> {
        let plain = host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        Arc::new(Addresses {
            host: host.to_owned(),
            port,
            known: ArcSwap::from_pointee(plain.into_iter().collect()),
            next: AtomicUsize::new(0),
            asked: (Mutex::new(plain.is_some()), Condvar::new()),
        })
    }

    /// Resolves the name again and again, on a thread of its own, until nobody wants to know. A plain address needs none.
    pub(crate) fn keep_fresh(self: &Arc<Addresses>, resolver: &Resolver) {
        if self.host.parse::<IpAddr>().is_ok() {
            return;
        }
        let (resolver, kept) = (resolver.clone(), Arc::downgrade(self));
        let thread = std::thread::Builder::new().name("resolver".to_owned());
        if let Err(error) = thread.spawn(move || keep_fresh(&resolver, &kept)) {
            log::error!("{} cannot be resolved: no thread for it: {error}", self.host);
        }
    }

    /// Waits until the name was asked for once, but not beyond `deadline`. Blocks.
    pub(crate) fn wait_for_first_answer(&self, deadline: Instant) {
        let (asked, answered) = &self.asked;
        let left = deadline.saturating_duration_since(crate::clock::monotonic());
        let guard = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = answered.wait_timeout_while(guard, left, |asked| !*asked);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            log::warn!("{} is not resolved yet", self.host);
        }
    }

    /// The next of the known addresses, in turn.
    pub(crate) fn pick(&self) -> Option<SocketAddr> {
        let known = self.known.load();
        let turn = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(known.len())?;
        known.get(turn).copied()
    }

    /// How many addresses are known.
    pub(crate) fn count(&self) -> usize {
        self.known.load().len()
    }

    /// Takes these addresses; where there are none, the last ones stay.
    fn learn(&self, mut found: Vec<SocketAddr>) {
        // The resolver puts what this machine can reach best first (RFC 6724); the other family is left out.
        let reachable = found.first().is_some_and(SocketAddr::is_ipv6);
        found.retain(|address| address.is_ipv6() == reachable);
        found.sort();
        found.dedup();
        if !found.is_empty() && **self.known.load() != found {
            log::info!("{} is at {found:?}", self.host);
            self.known.store(Arc::new(found));
        }
        let (asked, answered) = &self.asked;
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        answered.notify_all();
    }
}

/// Asks for the name again and again, until nobody wants to know; sooner while no address is known, for nothing reaches the host then.
fn keep_fresh(resolver: &Resolver, kept: &Weak<Addresses>) {
    let mut warned_at: Option<Instant> = None;
    loop {
        let Some((host, port)) = kept.upgrade().map(|kept| (kept.host.clone(), kept.port)) else {
            return;
        };
        // Nothing is kept alive while the resolver takes its time.
        let found = (resolver.resolve)(&host, port);
        match &found {
            Ok(_) => warned_at = None,
            Err(error) => {
                let now = crate::clock::monotonic();
                if warned_at.is_none_or(|at| now.saturating_duration_since(at) >= resolver.every) {
                    log::warn!("{host} cannot be resolved: {error}");
                    warned_at = Some(now);
                }
            }
        }
        let wait = match kept.upgrade() {
            Some(addresses) => {
                addresses.learn(found.unwrap_or_default());
                if addresses.count() == 0 {
                    resolver.every.min(RETRY_UNKNOWN)
                } else {
                    resolver.every
                }
            }
            None => return,
        };
        std::thread::sleep(wait);
    }
}

const RESOLVE_EVERY: Duration = Duration::from_secs(30);
/// How long a name waits for its next question while no address is known.
const RETRY_UNKNOWN: Duration = Duration::from_secs(1);
