//! Host names of providers and their addresses, kept fresh.
//!
//! Each name is resolved on a thread of its own, never on a worker and never on another name's time; a name that stops resolving keeps its
//! last addresses.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
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
    known: ArcSwap<Known>,
    next: AtomicUsize,
    /// Above 0: IPv4 comes first, for it could be reached and IPv6 could not. So many more answers of the resolver, and then until a connection
    /// over IPv6 comes about.
    ipv4_first: AtomicU32,
    /// Whether the name was asked for once, with or without an answer.
    asked: (Mutex<bool>, Condvar),
}

/// What the resolver found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// Those of the family that this machine reaches best, as the resolver says.
    best: Vec<SocketAddr>,
    /// Those of IPv4, where the others are of IPv6: a machine may have an address of IPv6, and no way out with it.
    ipv4: Vec<SocketAddr>,
}

/// How many addresses of a host could not be reached for one attempt at a target, and where the attempt began among those of each family: calls
/// beside it take their turns, too, and it tries none twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreached {
    ipv4: u8,
    ipv6: u8,
    first_ipv4: Option<u16>,
    first_ipv6: Option<u16>,
}

impl Unreached {
    /// Notes an address to which no connection came about, by its family.
    pub(crate) fn note(&mut self, is_ipv6: bool) {
        let count = match is_ipv6 {
            true => &mut self.ipv6,
            false => &mut self.ipv4,
        };
        *count = count.saturating_add(1);
    }

    /// Whether there was one of this family.
    pub(crate) fn has(self, is_ipv6: bool) -> bool {
        let count = if is_ipv6 { self.ipv6 } else { self.ipv4 };
        count > 0
    }

    /// How many of the family of these addresses.
    fn of(self, family: &[SocketAddr]) -> usize {
        let count = match family.first().is_some_and(SocketAddr::is_ipv6) {
            true => self.ipv6,
            false => self.ipv4,
        };
        usize::from(count)
    }

    /// Where the attempt began among those of the family of these addresses.
    fn first_of(&mut self, family: &[SocketAddr]) -> &mut Option<u16> {
        match family.first().is_some_and(SocketAddr::is_ipv6) {
            true => &mut self.first_ipv6,
            false => &mut self.first_ipv4,
        }
    }

    fn all(self) -> usize {
        usize::from(self.ipv4.saturating_add(self.ipv6))
    }
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
            known: ArcSwap::from_pointee(Known {
                best: plain.into_iter().collect(),
                ipv4: Vec::new(),
            }),
            next: AtomicUsize::new(0),
            ipv4_first: AtomicU32::new(0),
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

    /// The next of the known addresses, in turn; none where all of them that may be tried could not be reached. Those of IPv4 come behind
    /// those of IPv6, until [`Addresses::reached`] knows better.
    pub(crate) fn pick(&self, unreached: &mut Unreached) -> Option<SocketAddr> {
        let known = self.known.load();
        let family = self.family(&known, *unreached)?;
        let tried = unreached.of(family);
        let first = match unreached.first_of(family) {
            Some(first) => usize::from(*first),
            slot => {
                let turn = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(family.len())?;
                *slot = Some(u16::try_from(turn).unwrap_or(0));
                turn
            }
        };
        family
            .get(first.saturating_add(tried).checked_rem(family.len())?)
            .copied()
    }

    /// Whether there is one more to be tried.
    pub(crate) fn has_another(&self, unreached: Unreached) -> bool {
        self.family(&self.known.load(), unreached).is_some()
    }

    /// The addresses of which the next one is tried.
    fn family<'a>(&self, known: &'a Known, unreached: Unreached) -> Option<&'a Vec<SocketAddr>> {
        if unreached.all() >= TRIED_MAX {
            return None;
        }
        let (first, then) = match self.ipv4_first.load(Ordering::Relaxed) {
            0 => (&known.best, &known.ipv4),
            _ => (&known.ipv4, &known.best),
        };
        let most = match known.ipv4.is_empty() {
            true => TRIED_MAX,
            false => TRIED_OF_EACH_MAX,
        };
        let is_left = |family: &&Vec<SocketAddr>| unreached.of(family) < family.len().min(most);
        [first, then].into_iter().find(is_left)
    }

    /// An address of this family was reached after one of the other was not: this family comes first for the next minutes.
    pub(crate) fn reached(&self, is_ipv6: bool) {
        if self.known.load().ipv4.is_empty() {
            return;
        }
        let answers = if is_ipv6 { 0 } else { IPV4_FIRST };
        if self.ipv4_first.swap(answers, Ordering::Relaxed) == 0 && answers > 0 {
            log::warn!(
                "{} cannot be reached over IPv6, and can over IPv4: that comes first from now on, until IPv6 is tried again",
                self.host
            );
        }
    }

    /// After each answer of the resolver: no call is to find out whether IPv6 leads anywhere again. May block.
    fn try_ipv6(&self) {
        let answers = self.ipv4_first.load(Ordering::Relaxed);
        let leads_somewhere = || {
            let known = self.known.load_full();
            let mut tried = known.best.iter().filter(|address| address.is_ipv6()).take(TRIED_MAX);
            tried.any(|address| TcpStream::connect_timeout(address, IPV6_WITHIN).is_ok())
        };
        let next = match answers {
            0 => return,
            1 if leads_somewhere() => 0,
            1 => return,
            more => more.saturating_sub(1),
        };
        // A call may have reached IPv4 alone meanwhile.
        let changed = self
            .ipv4_first
            .compare_exchange(answers, next, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() && next == 0 {
            log::info!("{} can be reached over IPv6 again", self.host);
        }
    }

    /// Whether an address is known.
    fn is_known(&self) -> bool {
        !self.known.load().best.is_empty()
    }

    /// Takes these addresses; where there are none, the last ones stay.
    fn learn(&self, mut found: Vec<SocketAddr>) {
        // The resolver puts what this machine can reach best first (RFC 6724). Behind IPv4 there is no other family: the machine may have none.
        let is_best_ipv6 = found.first().is_some_and(SocketAddr::is_ipv6);
        found.sort();
        found.dedup();
        let (ipv6, ipv4): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv6);
        let found = match is_best_ipv6 {
            true => Known { best: ipv6, ipv4 },
            false => Known {
                best: ipv4,
                ipv4: Vec::new(),
            },
        };
        if !found.best.is_empty() && **self.known.load() != found {
            log::info!("{} is at {:?}", self.host, [&found.best[..], &found.ipv4[..]].concat());
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
                addresses.try_ipv6();
                if addresses.is_known() {
                    resolver.every
                } else {
                    resolver.every.min(RETRY_UNKNOWN)
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
/// How many addresses of one host are tried before the next target.
const TRIED_MAX: usize = 3;
/// How many of each family, where there are two.
const TRIED_OF_EACH_MAX: usize = 2;
/// For how many answers of the resolver IPv4 comes first at least: five minutes.
const IPV4_FIRST: u32 = 10;
/// How long a connection over IPv6 may take to be one that calls can wait for.
const IPV6_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
