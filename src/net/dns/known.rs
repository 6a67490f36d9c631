//! The addresses of a host by family, and which family is tried first.
//!
//! A machine may have addresses and routes of a family over which nothing comes back. So a call whose first address cannot be connected to
//! goes on with one of the other family, and the family that has worked is tried first from then on.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pingora::{Error, ErrorType};

/// A family of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

/// An address to be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) address: SocketAddr,
    pub(super) share: Share,
}

/// How much of the time to connect an address may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of it.
    Whole,
    /// A part: an address of the other family has the rest.
    First,
    /// What the first family has left.
    Rest,
}

/// What a call has tried of a host's addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    /// The family of the address that was chosen last.
    chosen: Family,
    /// How many addresses of each family could not be connected to.
    ipv4: u8,
    ipv6: u8,
    /// Whether one of them took all the time that it was given.
    has_waited: bool,
}

/// What is known of a host's addresses.
#[derive(Clone, Debug)]
pub(super) struct Known {
    ipv4: Vec<SocketAddr>,
    ipv6: Vec<SocketAddr>,
    /// The family that the resolver put first.
    first: Family,
    /// The other, if it is tried first because that one did not work, and since when.
    worked: Option<(Family, Instant)>,
}

impl Family {
    pub(super) fn of(address: &SocketAddr) -> Family {
        match address {
            SocketAddr::V4(_) => Family::Ipv4,
            SocketAddr::V6(_) => Family::Ipv6,
        }
    }

    pub(super) fn other(self) -> Family {
        match self {
            Family::Ipv4 => Family::Ipv6,
            Family::Ipv6 => Family::Ipv4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        })
    }
}

impl Choice {
    /// How long a connection to it may take, of the time that a call has to connect.
    pub(crate) fn within(&self, whole: Duration) -> Duration {
        let first = whole / FIRST_PART;
        match self.share {
            Share::Whole => whole,
            Share::First => first,
            Share::Rest => whole.saturating_sub(first),
        }
    }
}

impl Tried {
    /// The address that was chosen last could not be connected to.
    pub(crate) fn failed(&mut self, error: &Error) {
        let failures = match self.chosen {
            Family::Ipv4 => &mut self.ipv4,
            Family::Ipv6 => &mut self.ipv6,
        };
        *failures = failures.saturating_add(1);
        self.has_waited |= matches!(
            error.etype(),
            ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout
        );
    }

    /// Whether any address could not be connected to.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures() > 0
    }

    pub(super) fn choose(&mut self, family: Family) {
        self.chosen = family;
    }

    /// The family that was chosen after the other had failed.
    pub(super) fn turned_to(&self) -> Option<Family> {
        (self.of(self.chosen.other()) > 0).then_some(self.chosen)
    }

    pub(super) fn failures(&self) -> usize {
        usize::from(self.ipv4).saturating_add(usize::from(self.ipv6))
    }

    fn of(&self, family: Family) -> usize {
        usize::from(match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        })
    }
}

impl Known {
    /// What the resolver has found. It puts first what this machine can reach best (RFC 6724); the other family stays if `has_route` says of
    /// its first address that this machine has a way there: where there is none, the first family has all the time.
    pub(super) fn of(found: Vec<SocketAddr>, has_route: impl FnOnce(SocketAddr) -> bool) -> Known {
        let first = found.first().map(Family::of).unwrap_or_default();
        let (mut ipv4, mut ipv6): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv4);
        let other = match first {
            Family::Ipv4 => &mut ipv6,
            Family::Ipv6 => &mut ipv4,
        };
        if other.first().is_some_and(|address| !has_route(*address)) {
            other.clear();
        }
        for addresses in [&mut ipv4, &mut ipv6] {
            addresses.sort();
            addresses.dedup();
        }
        Known {
            ipv4,
            ipv6,
            first,
            worked: None,
        }
    }

    /// Whether these are the same addresses.
    pub(super) fn is_at(&self, found: &Known) -> bool {
        (&self.ipv4, &self.ipv6, self.first) == (&found.ipv4, &found.ipv6, found.first)
    }

    /// These addresses, with what `before` knew of the families.
    pub(super) fn after(&self, before: &Known) -> Known {
        let known = self.clone();
        match before.worked {
            Some((family, at)) if family != known.first => Known {
                worked: Some((family, at)),
                ..known
            },
            Some(_) | None => known,
        }
    }

    /// The same, with this family tried first from `now` on.
    pub(super) fn prefer(&self, family: Family, now: Instant) -> Known {
        Known {
            worked: (family != self.first).then_some((family, now)),
            ..self.clone()
        }
    }

    /// The family that is tried first.
    pub(super) fn preferred(&self) -> Family {
        match self.worked {
            Some((family, _)) if !self.at(family).is_empty() => family,
            Some(_) | None => self.first,
        }
    }

    /// An address of the family that the resolver put first, when that was passed over for long: perhaps it works again.
    pub(super) fn to_look_at(&self, now: Instant) -> Option<SocketAddr> {
        let (_, at) = self.worked?;
        let is_old = now.saturating_duration_since(at) >= PASSED_OVER;
        self.at(self.first).first().copied().filter(|_| is_old)
    }

    /// The addresses of a family.
    pub(super) fn at(&self, family: Family) -> &[SocketAddr] {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// All of them, for the log.
    pub(super) fn all(&self) -> Vec<SocketAddr> {
        [self.at(self.first), self.at(self.first.other())].concat()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ipv4.is_empty() && self.ipv6.is_empty()
    }

    /// Whether there is an address that a call has not tried, as far as their number says it.
    pub(super) fn has_left(&self, tried: &Tried) -> bool {
        [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .any(|family| self.has_left_of(family, tried))
    }

    /// Whether no address of a family was tried that has some.
    pub(super) fn has_other_family(&self, tried: &Tried) -> bool {
        [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .any(|family| tried.of(family) == 0 && self.has_left_of(family, tried))
    }

    /// The family of which an address is tried next, and how long that may take: the one that has failed less, and of two that are equal
    /// the preferred one.
    pub(super) fn next(&self, tried: &Tried) -> (Family, Share) {
        let mut family = self.preferred();
        if tried.of(family.other()) < tried.of(family) {
            family = family.other();
        }
        let other = family.other();
        if self.at(family).is_empty() || (!self.has_left_of(family, tried) && self.has_left_of(other, tried)) {
            family = other;
        }
        let share = match tried.failures() {
            0 if !self.at(family.other()).is_empty() => Share::First,
            1 if tried.has_waited && tried.of(family) == 0 => Share::Rest,
            _ => Share::Whole,
        };
        (family, share)
    }

    fn has_left_of(&self, family: Family, tried: &Tried) -> bool {
        tried.of(family) < self.at(family).len()
    }
}

/// The first address has one part of so many of the time to connect, where an address of the other family has the rest. Of three seconds,
/// that leaves each time for a second packet, should the first be lost.
const FIRST_PART: u32 = 2;
/// How long a family that did not work is passed over before it is looked at again.
const PASSED_OVER: Duration = Duration::from_secs(10 * 60);
