//! Host names of providers and their addresses, kept fresh.
//!
//! Each name is resolved on a thread of its own, never on a worker and never on another name's time; a name that stops resolving keeps its
//! last addresses.

mod known;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

pub(crate) use self::known::{Choice, Tried};
use self::known::{Family, Known};

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
    known: ArcSwap<Known>,
    next_ipv4: AtomicUsize,
    next_ipv6: AtomicUsize,
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
            known: ArcSwap::from_pointee(Known::of(plain.into_iter().collect(), |_| true)),
            next_ipv4: AtomicUsize::new(0),
            next_ipv6: AtomicUsize::new(0),
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

    /// The address that is tried next, of those of a family in turn. `tried` is what the call has tried of them, and learns of this one.
    pub(crate) fn pick(&self, tried: &mut Tried) -> Option<Choice> {
        let known = self.known.load();
        let (family, share) = known.next(tried);
        let next = match family {
            Family::Ipv4 => &self.next_ipv4,
            Family::Ipv6 => &self.next_ipv6,
        };
        let addresses = known.at(family);
        let turn = next.fetch_add(1, Ordering::Relaxed).checked_rem(addresses.len())?;
        let address = addresses.get(turn).copied()?;
        tried.choose(family);
        Some(Choice { address, share })
    }

    /// Whether a call that could not connect to what it has tried is to try another address.
    pub(crate) fn has_another(&self, tried: &Tried) -> bool {
        tried.failures() < TRIED_MAX && self.known.load().has_left(tried)
    }

    /// The same, where what has failed is this machine's fault: only of the other family something else can be expected.
    pub(crate) fn has_other_family(&self, tried: &Tried) -> bool {
        tried.failures() < TRIED_MAX && self.known.load().has_other_family(tried)
    }

    /// A connection to the address that was picked last stands. Where it is of another family than those before, that is tried first by the
    /// next calls, until [`Addresses::keep_fresh`] finds that the family which the resolver puts first works again.
    pub(crate) fn connected(&self, tried: &Tried) {
        let Some(family) = tried.turned_to() else { return };
        let now = crate::clock::monotonic();
        let before = self.known.rcu(|known| known.prefer(family, now));
        if before.preferred() != family {
            log::warn!(
                "{} is not reached over {}, over {family} it is: that is tried first now",
                self.host,
                family.other()
            );
        }
    }

    fn is_unknown(&self) -> bool {
        self.known.load().is_empty()
    }

    /// Takes these addresses; where there are none, the last ones stay.
    fn learn(&self, found: Vec<SocketAddr>) {
        let found = Known::of(found, has_route);
        if !found.is_empty() && !self.known.load().is_at(&found) {
            log::info!("{} is at {:?}", self.host, found.all());
            self.known.rcu(|known| found.after(known));
        }
        let (asked, answered) = &self.asked;
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        answered.notify_all();
    }

    /// Looks whether a family works again that was passed over for long. Blocks while it does; no call waits for it.
    fn look_again(&self, now: Instant, reaches: impl FnOnce(SocketAddr) -> bool) {
        let known = self.known.load_full();
        let Some(address) = known.to_look_at(now) else { return };
        let (family, is_back) = (Family::of(&address), reaches(address));
        if is_back {
            log::info!("{} is reached over {family} again", self.host);
        }
        let first = if is_back { family } else { family.other() };
        self.known.rcu(|known| known.prefer(first, now));
    }
}

/// Whether this machine has a way to an address, as far as it knows itself. Nothing is sent.
fn has_route(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0));
    socket.and_then(|socket| socket.connect(address)).is_ok()
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
                addresses.look_again(crate::clock::monotonic(), |address| {
                    TcpStream::connect_timeout(&address, LOOK_MAX).is_ok()
                });
                if addresses.is_unknown() {
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
/// How many addresses of one host a call tries.
const TRIED_MAX: usize = 3;
/// How long a connection may take by which a family is looked at that did not work.
const LOOK_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
