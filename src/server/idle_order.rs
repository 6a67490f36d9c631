//! Which idle connection makes room for a new one: of the network that has the most of them, the one that has waited longest. So whoever
//! holds many open loses them first, from however few or many addresses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// The idle connections. Each is known by its number.
#[derive(Debug, Default)]
pub(super) struct IdleOrder {
    /// By network: since when each has waited. A network without any does not stand here.
    networks: HashMap<Option<IpAddr>, Waiting>,
    ranks: BTreeSet<Rank>,
    /// What is counted here in place of time.
    next: Since,
}

/// Connections of a network, in the order in which they began to wait.
type Waiting = BTreeMap<Since, u64>;
/// The greater one, the later it began.
pub(super) type Since = u64;
/// The greatest makes room first: how many a network has, since when the first of them has waited, and which it is.
type Rank = (usize, Reverse<Since>, Option<IpAddr>);

impl IdleOrder {
    /// A connection of this network begins to wait: since when it does.
    pub(super) fn add(&mut self, network: Option<IpAddr>, number: u64) -> Since {
        let since = self.next;
        self.next = since.wrapping_add(1);
        self.change(network, |waiting| waiting.insert(since, number));
        since
    }

    /// The one that has waited since then does so no longer.
    pub(super) fn remove(&mut self, network: Option<IpAddr>, since: Since) {
        self.change(network, |waiting| waiting.remove(&since));
    }

    /// The one that makes room first; none when none is idle.
    pub(super) fn first(&self) -> Option<u64> {
        let (_, _, network) = self.ranks.last()?;
        let (_, number) = self.networks.get(network)?.first_key_value()?;
        Some(*number)
    }

    fn change<T>(&mut self, network: Option<IpAddr>, how: impl FnOnce(&mut Waiting) -> T) {
        let waiting = self.networks.entry(network).or_default();
        let before = rank(network, waiting);
        how(waiting);
        let after = rank(network, waiting);
        if after.is_none() {
            self.networks.remove(&network);
        }
        if before != after {
            if let Some(before) = before {
                self.ranks.remove(&before);
            }
            self.ranks.extend(after);
        }
    }
}

fn rank(network: Option<IpAddr>, waiting: &Waiting) -> Option<Rank> {
    let (since, _) = waiting.first_key_value()?;
    Some((waiting.len(), Reverse(*since), network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_the_most_is_the_first_and_the_longest_of_all_where_all_have_as_many() {
        let [few, many] = [1, 2].map(|last| Some(IpAddr::from([203, 0, 113, last])));
        let mut order = IdleOrder::default();
        assert_eq!(order.first(), None);
        let mut since = vec![order.add(few, 10), order.add(many, 20)];
        assert_eq!(order.first(), Some(10));
        since.push(order.add(many, 21));
        assert_eq!(order.first(), Some(20));
        order.remove(many, since[1]);
        assert_eq!(order.first(), Some(10));
        order.remove(few, since[0]);
        assert_eq!(order.first(), Some(21));
        order.remove(many, since[2]);
        assert_eq!((order.first(), order.networks.len(), order.ranks.len()), (None, 0, 0));
    }
}
