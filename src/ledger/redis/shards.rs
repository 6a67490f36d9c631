//! The servers that hold the ledger: one, or the masters of a cluster, each a failure domain of its own.
//!
//! A shard has its breaker, its queue and its connections, so that one that does not answer is nothing to the accounts of the others. In
//! a cluster the slot of a key says whose it is. The map of the slots is read from the servers every now and then, whenever one fails,
//! and mended at once by what they answer (MOVED). A server that has once been in the map stays a shard: what its queue still has is
//! handed over to whoever has the slot now.

mod map;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::sync::Notify;

use self::map::Map;
use super::account::Account;
use super::admission_breaker::{AdmissionBreaker, millis};
use super::options::unavailable;
use super::queue::Queue;
use super::server_facts::{Eviction, ServerClock};
use super::slots::{Elsewhere, Layout};
use super::url::Address;
use crate::ledger::StoreError;

/// One server: a Redis, the master that Sentinels name, or one that is or was a master of a cluster.
#[derive(Debug)]
pub(super) struct Shard {
    /// Its place among the ledger's shards.
    pub(super) number: usize,
    pub(super) address: Address,
    pub(super) guard: AdmissionBreaker,
    pub(super) queue: Queue,
    /// Whether it may evict keys: then no calls are admitted.
    pub(super) eviction: Eviction,
    pub(super) clock: ServerClock,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Shards {
    first: Arc<Shard>,
    cluster: Option<Cluster>,
    /// When whatever is not sent is given up, once the ledger is closed.
    end_ms: OnceLock<u64>,
}

#[derive(Debug)]
struct Cluster {
    address: Address,
    waiting_max: usize,
    started: Instant,
    map: RwLock<Map>,
    /// Counts the changes of the map.
    generation: AtomicU64,
    /// How many masters the map named when it was read last. What one server says of a slot does not change it: in a fail-over the new master
    /// would count beside the old one for a moment.
    masters: AtomicUsize,
    /// Wakes when there is a new shard.
    added: Notify,
    /// Wakes when the map may be wrong.
    doubted: Notify,
}

/// What belongs to the first shard, which lives as long as the ledger, or to another.
#[derive(Debug)]
pub(super) enum Of<'a, T> {
    First(&'a T),
    Other(Arc<T>),
}

impl<T> Deref for Of<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Of::First(first) => first,
            Of::Other(other) => other,
        }
    }
}

impl Shard {
    fn new(number: usize, address: Address, waiting_max: usize, started: Instant) -> Arc<Shard> {
        Arc::new(Shard {
            number,
            address,
            guard: AdmissionBreaker::new(waiting_max, started),
            queue: Queue::new(),
            eviction: Eviction::default(),
            clock: ServerClock::default(),
        })
    }

    /// Where an answer of this server sends a command.
    pub(super) fn elsewhere(&self, error: &RedisError) -> Option<Elsewhere> {
        Elsewhere::of(error, self.address.nodes().first().map_or("", String::as_str))
    }
}

impl Shards {
    /// The one server of an address that is no cluster's.
    pub(super) fn one(address: Address, waiting_max: usize, started: Instant) -> Shards {
        Shards {
            first: Shard::new(0, address, waiting_max, started),
            cluster: None,
            end_ms: OnceLock::new(),
        }
    }

    /// The masters of a cluster.
    ///
    /// # Errors
    /// When the layout names none.
    pub(super) fn cluster(
        address: Address,
        layout: &Layout,
        waiting_max: usize,
        started: Instant,
    ) -> Result<Shards, StoreError> {
        let (_, _, name) = layout
            .ranges
            .first()
            .ok_or_else(|| unavailable("the cluster has no slots"))?;
        let first = Shard::new(0, address.node_of(name), waiting_max, started);
        let map = Map::new(&first);
        let shards = Shards {
            first,
            cluster: Some(Cluster {
                address,
                waiting_max,
                started,
                map: RwLock::new(map),
                generation: AtomicU64::new(0),
                masters: AtomicUsize::new(1),
                added: Notify::new(),
                doubted: Notify::new(),
            }),
            end_ms: OnceLock::new(),
        };
        shards.laid_out(layout);
        Ok(shards)
    }

    /// The ledger's address.
    pub(super) fn address(&self) -> &Address {
        match &self.cluster {
            None => &self.first.address,
            Some(cluster) => &cluster.address,
        }
    }

    /// Whether there may be several.
    pub(super) fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The shard of a slot.
    pub(super) fn of_slot(&self, slot: u16) -> Of<'_, Shard> {
        match &self.cluster {
            None => Of::First(&self.first),
            Some(cluster) => Of::Other(cluster.read().owner(slot)),
        }
    }

    /// The shard that an account's calls go to.
    pub(super) fn of(&self, account: &Account) -> Of<'_, Shard> {
        match &self.cluster {
            None => Of::First(&self.first),
            Some(_) => self.of_slot(account.slot()),
        }
    }

    /// The shard whose queue takes what an account has for it: its own, or while another's still has something of it, that one.
    pub(super) fn queue_of(&self, account: &Account) -> Of<'_, Shard> {
        let Some(cluster) = &self.cluster else {
            return Of::First(&self.first);
        };
        let map = cluster.read();
        if account.is_under_way()
            && let Some(shard) = map.shards.get(account.queued_at())
        {
            return Of::Other(Arc::clone(shard));
        }
        let shard = map.owner(account.slot());
        account.queues_at(shard.number);
        Of::Other(shard)
    }

    /// One that has slots and answers, as far as is known.
    pub(super) fn any(&self) -> Arc<Shard> {
        let all = self.all();
        let found = all
            .iter()
            .find(|shard| !shard.guard.is_open() && self.has_slots(shard.number));
        Arc::clone(found.unwrap_or(&self.first))
    }

    /// All of them, by number.
    pub(super) fn all(&self) -> Vec<Arc<Shard>> {
        match &self.cluster {
            None => vec![Arc::clone(&self.first)],
            Some(cluster) => cluster.read().shards.clone(),
        }
    }

    /// Whether any of the cluster's slots is this shard's.
    pub(super) fn has_slots(&self, number: usize) -> bool {
        !self.is_cluster() || self.first_slot(number).is_some()
    }

    /// The first of the cluster's slots that is this shard's.
    pub(super) fn first_slot(&self, number: usize) -> Option<u16> {
        let map = self.cluster.as_ref()?.read();
        let place = map.owners.iter().position(|owner| usize::from(*owner) == number)?;
        u16::try_from(place).ok()
    }

    /// Whether the map names this shard as a master, as it was read last. What is published in a cluster is heard at its servers alone.
    pub(super) fn is_master(&self, number: usize) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        cluster.read().masters.contains(&number)
    }

    /// The masters that the map names, as it was read last: first those that answer, as far as is known.
    pub(super) fn masters(&self) -> Vec<Arc<Shard>> {
        let mut masters = self.all();
        masters.retain(|shard| self.is_master(shard.number));
        masters.sort_by_key(|shard| shard.guard.is_open());
        masters
    }

    /// Changes when a slot gets another shard.
    pub(super) fn generation(&self) -> u64 {
        self.cluster
            .as_ref()
            .map_or(0, |cluster| cluster.generation.load(Ordering::Acquire))
    }

    /// The part of a bound that each shard has, so that none takes another's. It changes only when the map is read, and after the
    /// generation.
    pub(super) fn share(&self, all: usize) -> usize {
        match &self.cluster {
            None => all,
            Some(cluster) => all.div_ceil(cluster.masters.load(Ordering::Acquire).max(1)),
        }
    }

    /// Settlements that are not acknowledged.
    pub(super) fn unsettled(&self) -> usize {
        match &self.cluster {
            None => self.first.queue.unsettled(),
            Some(cluster) => cluster.read().shards.iter().map(|shard| shard.queue.unsettled()).sum(),
        }
    }

    /// For how long the oldest of them has waited.
    pub(super) fn oldest_age_ms(&self, now_ms: u64) -> u64 {
        let age = |shard: &Arc<Shard>| shard.queue.oldest_age_of_all_ms(now_ms);
        self.all().iter().map(age).max().unwrap_or(0)
    }

    /// No more calls are admitted, also by shards that come to be later.
    pub(super) fn close(&self) {
        match &self.cluster {
            None => self.first.queue.close(),
            Some(cluster) => cluster.write().close(),
        }
    }

    /// When a closed ledger gives up, in milliseconds of its clock: `within` after a settler first asked this. Then it is over for all of them.
    pub(super) fn end_ms(&self, now_ms: u64, within: Duration) -> u64 {
        *self.end_ms.get_or_init(|| now_ms.saturating_add(millis(within)))
    }

    /// The servers that may know the map, by name.
    pub(super) fn nodes(&self) -> Vec<String> {
        let Some(cluster) = &self.cluster else {
            return Vec::new();
        };
        let mut nodes: Vec<String> = cluster.address.nodes().to_vec();
        nodes.extend(cluster.read().nodes.iter().cloned());
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// A slot belongs to this server now, as another says.
    pub(super) fn moved(&self, slot: u16, node: &str) -> Of<'_, Shard> {
        self.doubt();
        let Some(cluster) = &self.cluster else {
            return Of::First(&self.first);
        };
        let owner = cluster.read().owner(slot);
        if owner.address.is_node(node) {
            return Of::Other(owner);
        }
        cluster.give(&[(slot, slot, node)]);
        Of::Other(cluster.read().owner(slot))
    }

    /// The server of this name, whatever it has.
    pub(super) fn named(&self, node: &str) -> Of<'_, Shard> {
        let Some(cluster) = &self.cluster else {
            return Of::First(&self.first);
        };
        let known = cluster.read().place_of(node);
        let number = known.unwrap_or_else(|| cluster.place_for(&mut cluster.write(), node));
        Of::Other(cluster.read().shard(number))
    }

    /// The map as most servers see it.
    pub(super) fn laid_out(&self, layout: &Layout) {
        let Some(cluster) = &self.cluster else { return };
        let ranges: Vec<_> = layout.ranges.iter().map(|(a, b, node)| (*a, *b, node)).collect();
        cluster.give(&ranges);
        let mut map = cluster.write();
        map.laid_out(layout);
        cluster.masters.store(map.masters.len(), Ordering::Release);
    }

    /// The map may be wrong: it is read again soon.
    pub(super) fn doubt(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.doubted.notify_one();
        }
    }

    /// Waits until the map may be wrong.
    pub(super) async fn doubted(&self) {
        match &self.cluster {
            None => std::future::pending().await,
            Some(cluster) => cluster.doubted.notified().await,
        }
    }

    /// Waits until there is a new shard.
    pub(super) async fn added(&self) {
        match &self.cluster {
            None => std::future::pending().await,
            Some(cluster) => cluster.added.notified().await,
        }
    }
}

impl Cluster {
    /// Gives ranges of slots to their masters.
    fn give<N: AsRef<str>>(&self, ranges: &[(u16, u16, N)]) {
        let mut map = self.write();
        let mut is_changed = false;
        for (first, last, node) in ranges {
            let place = self.place_for(&mut map, node.as_ref());
            let Ok(place) = u16::try_from(place) else { continue };
            let slots = map.owners.get_mut(usize::from(*first)..=usize::from(*last));
            for owner in slots.unwrap_or_default() {
                is_changed |= *owner != place;
                *owner = place;
            }
        }
        if is_changed {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The number of the shard of this name, which is made when there is none.
    fn place_for(&self, map: &mut Map, node: &str) -> usize {
        if let Some(known) = map.place_of(node) {
            return known;
        }
        let number = map.shards.len();
        if number >= SHARDS_MAX {
            log::error!(
                "{node} is not used: this process has met {SHARDS_MAX} masters already, and has to be restarted"
            );
            return 0;
        }
        log::debug!("{node} is a master of the cluster");
        let address = self.address.node_of(node);
        map.add(Shard::new(number, address, self.waiting_max, self.started));
        self.added.notify_one();
        number
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Masters that a process meets at most. A cluster has a thousand; where addresses change, a restart forgets those of long ago.
const SHARDS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
