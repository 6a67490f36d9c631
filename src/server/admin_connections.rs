//! The connections of the listeners of the admin and of operators: at most so many, and for a new one the one that has been quiet for
//! longest makes room. So nobody who holds connections open keeps a probe from its answer.
//!
//! Operators come from elsewhere: of theirs at most so many are from one address, the one that leaves is of the address that has the most,
//! and it is never one whose request runs for an operator who is known.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::clock::monotonic;
use crate::net::client_ip;

/// Those that are open.
#[derive(Debug)]
pub(super) struct AdminConnections {
    open: Mutex<Open>,
    /// Most at once.
    most: usize,
    /// Most of them from one address; none: addresses do not count.
    of_one_address: Option<usize>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    address: IpAddr,
    /// When it was taken in, or answered last.
    active: Instant,
    /// Whether a request of an operator runs on it.
    is_busy: bool,
    /// None until its task runs.
    task: Option<AbortHandle>,
}

/// One of them, which is forgotten when this is dropped.
#[derive(Debug)]
pub(super) struct AdminConnectionPermit {
    connections: Arc<AdminConnections>,
    number: u64,
}

impl AdminConnections {
    /// Of the admin listener.
    pub(super) fn of_admin() -> AdminConnections {
        AdminConnections {
            open: Mutex::default(),
            most: ADMIN_MAX,
            of_one_address: None,
        }
    }

    /// Of the listener of operators.
    pub(super) fn of_operators() -> AdminConnections {
        AdminConnections {
            open: Mutex::default(),
            most: OPERATORS_MAX,
            of_one_address: Some(OF_ONE_ADDRESS_MAX),
        }
    }

    /// Takes in one from `address`; none when there is no room for it and nobody can make some. `is_proxy`: it brings many clients, so it
    /// counts in all alone.
    pub(super) fn enter(
        self: &Arc<AdminConnections>,
        address: IpAddr,
        is_proxy: bool,
    ) -> Option<AdminConnectionPermit> {
        let address = client_ip::group(address);
        let mut open = self.lock();
        let here = open.all.iter().filter(|one| one.address == address).count();
        let leaves = match self.of_one_address {
            Some(most) if !is_proxy && here >= most => Some(open.quietest(|one| one.address == address)?),
            _ if open.all.len() < self.most => None,
            Some(_) => Some(open.of_the_most()?),
            None => Some(open.quietest(|_| true)?),
        };
        if let Some(leaves) = leaves {
            let quiet = open.all.swap_remove(leaves);
            if let Some(task) = quiet.task {
                task.abort();
            }
        }
        let number = open.next;
        open.next = number.wrapping_add(1);
        open.all.push(Connection {
            number,
            address,
            active: monotonic(),
            is_busy: false,
            task: None,
        });
        Some(AdminConnectionPermit {
            connections: Arc::clone(self),
            number,
        })
    }

    /// This task serves the connection of that number.
    pub(super) fn runs(&self, number: u64, task: AbortHandle) {
        let mut open = self.lock();
        match open.all.iter_mut().find(|one| one.number == number) {
            Some(one) => one.task = Some(task),
            // It had to make room before its task was known.
            None => task.abort(),
        }
    }

    /// Returns once none is open, or after so long.
    pub(super) async fn empty(&self, at_most: Duration) {
        let began = monotonic();
        while !self.lock().all.is_empty() && began.elapsed() < at_most {
            tokio::time::sleep(EMPTY_EVERY).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Where the one stands that has been quiet for longest of those that are meant.
    fn quietest(&self, is_meant: impl Fn(&Connection) -> bool) -> Option<usize> {
        let all = self.all.iter().enumerate();
        let idle = all.filter(|(_, one)| !one.is_busy && is_meant(one));
        idle.min_by_key(|(_, one)| one.active).map(|(at, _)| at)
    }

    /// The same of the address that has the most of those that can make room.
    fn of_the_most(&self) -> Option<usize> {
        let mut idle: HashMap<IpAddr, usize> = HashMap::new();
        for one in self.all.iter().filter(|one| !one.is_busy) {
            let count = idle.entry(one.address).or_default();
            *count = count.saturating_add(1);
        }
        let most = idle.values().copied().max()?;
        self.quietest(|one| idle.get(&one.address) == Some(&most))
    }
}

impl AdminConnectionPermit {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A request of an operator who is known runs on it: it makes room for nobody.
    pub(super) fn works(&self) {
        self.change(|one| one.is_busy = true);
    }

    /// It has answered.
    pub(super) fn answered(&self) {
        self.change(|one| {
            one.is_busy = false;
            one.active = monotonic();
        });
    }

    fn change(&self, how: impl FnOnce(&mut Connection)) {
        let mut open = self.connections.lock();
        if let Some(one) = open.all.iter_mut().find(|one| one.number == self.number) {
            how(one);
        }
    }
}

impl Drop for AdminConnectionPermit {
    fn drop(&mut self) {
        self.connections.lock().all.retain(|one| one.number != self.number);
    }
}

/// How often it is looked whether none is open.
const EMPTY_EVERY: Duration = Duration::from_millis(10);
/// Most connections of the admin listener at once.
pub(super) const ADMIN_MAX: usize = 64;
/// Most connections of operators at once.
pub(super) const OPERATORS_MAX: usize = 256;
/// Most of them from one address.
const OF_ONE_ADDRESS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn from(number: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, number])
    }

    fn is_open(connections: &AdminConnections, permit: &AdminConnectionPermit) -> bool {
        connections.lock().all.iter().any(|one| one.number == permit.number)
    }

    #[test]
    fn of_the_admin_listener_the_quietest_makes_room_whoever_has_the_most() {
        let connections = Arc::new(AdminConnections::of_admin());
        let alone = connections.enter(from(1), false).unwrap();
        let many: Vec<AdminConnectionPermit> = (1..ADMIN_MAX)
            .map(|_| connections.enter(from(2), false).unwrap())
            .collect();
        many[0].answered();
        let newcomers = [(); 2].map(|()| connections.enter(from(2), false).unwrap());
        assert_eq!(connections.lock().all.len(), ADMIN_MAX);
        assert!(!is_open(&connections, &alone), "the first to come is the quietest");
        assert!(is_open(&connections, &many[0]) && !is_open(&connections, &many[1]));
        assert!(newcomers.iter().all(|one| is_open(&connections, one)));
    }

    #[test]
    fn an_address_makes_room_for_its_own_alone() {
        let connections = Arc::new(AdminConnections::of_operators());
        let other = connections.enter(from(1), false).unwrap();
        let first = connections.enter(from(2), false).unwrap();
        first.works();
        let many: Vec<AdminConnectionPermit> = (0..OF_ONE_ADDRESS_MAX * 3)
            .map(|_| connections.enter(from(2), false).unwrap())
            .collect();
        assert_eq!(connections.lock().all.len(), OF_ONE_ADDRESS_MAX + 1);
        assert!(is_open(&connections, &other) && is_open(&connections, &first));
        assert!(!is_open(&connections, &many[0]) && is_open(&connections, many.last().unwrap()));
    }

    #[test]
    fn the_address_with_the_most_makes_room_and_never_who_works() {
        let connections = Arc::new(AdminConnections::of_operators());
        let working = connections.enter(from(1), false).unwrap();
        working.works();
        let quiet = connections.enter(from(2), false).unwrap();
        let mut proxied: Vec<AdminConnectionPermit> = (2..OPERATORS_MAX)
            .map(|_| connections.enter(from(9), true).unwrap())
            .collect();
        let newcomer = connections.enter(from(3), false).unwrap();
        assert!(
            [&working, &quiet, &newcomer]
                .iter()
                .all(|one| is_open(&connections, one))
        );
        assert!(!is_open(&connections, &proxied[0]), "the quietest of the most");
        for permit in [&quiet, &newcomer].into_iter().chain(&proxied) {
            permit.works();
        }
        assert!(connections.enter(from(4), false).is_none(), "all of them work");
        proxied[5].answered();
        assert!(connections.enter(from(4), false).is_some());
        proxied.clear();
        drop((working, quiet, newcomer));
        assert!(connections.lock().all.is_empty());
    }
}
