//! How many connections are open, in all and from one address. The listener asks for a permit for each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    /// Only addresses with an open connection stand here, so it is never larger than `total`.
    by_address: HashMap<IpAddr, usize>,
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
    /// None when it does not count by address.
    address: Option<IpAddr>,
}

impl Connections {
    /// A place for a connection from `address`; none when too many are open. Without an address it counts in the total alone.
    pub(crate) fn take(
        self: &Arc<Connections>,
        address: Option<IpAddr>,
        most: ConnectionLimits,
    ) -> Option<ConnectionPermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.total >= most.total {
            return None;
        }
        if let Some(address) = address {
            let here = open.by_address.entry(address).or_default();
            if *here >= most.per_address {
                return None;
            }
            *here = here.saturating_add(1);
        }
        open.total = open.total.saturating_add(1);
        Some(ConnectionPermit {
            connections: Arc::clone(self),
            address,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total = open.total.saturating_sub(1);
        let Some(address) = self.address else { return };
        if let Some(here) = open.by_address.get_mut(&address) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                open.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let connections = Arc::new(Connections::default());
        let most = ConnectionLimits {
            total: 3,
            per_address: 2,
        };
        let (a, b) = ("127.0.0.1".parse().ok(), "127.0.0.2".parse().ok());
        let first = connections.take(a, most).unwrap();
        let _second = connections.take(a, most).unwrap();
        assert!(connections.take(a, most).is_none(), "two from one address");
        let _third = connections.take(b, most).unwrap();
        assert!(connections.take(None, most).is_none(), "three in all");
        drop(first);
        let _fourth = connections.take(a, most).unwrap();
        assert!(connections.take(b, most).is_none());
        drop((_second, _third, _fourth));
        let open = connections.open.lock().unwrap();
        assert_eq!((open.total, open.by_address.len()), (0, 0));
    }
}
