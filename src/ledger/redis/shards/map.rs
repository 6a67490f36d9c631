//! The map of a cluster as this process knows it: whose the slots are, and which servers there are. `shards` keeps it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Shard;
use crate::ledger::redis::slots::{Layout, SLOTS};

/// Whose the slots are.
#[derive(Debug)]
pub(super) struct Map {
    first: Arc<Shard>,
    /// The number of each slot's shard.
    pub(super) owners: Vec<u16>,
    pub(super) shards: Vec<Arc<Shard>>,
    /// All servers of the cluster as the map was read last, replicas among them.
    pub(super) nodes: Vec<String>,
    /// The numbers of its masters as the map was read last. A slot that nobody has keeps its owner, who may have left the cluster.
    pub(super) masters: BTreeSet<usize>,
    is_closed: bool,
}

impl Map {
    /// One that was not read yet: all slots are the first shard's.
    pub(super) fn new(first: &Arc<Shard>) -> Map {
        Map {
            first: Arc::clone(first),
            owners: vec![0; usize::from(SLOTS)],
            shards: vec![Arc::clone(first)],
            nodes: Vec::new(),
            masters: BTreeSet::new(),
            is_closed: false,
        }
    }

    /// Adds a shard, closed where the others are: its settler would wait for ever for work.
    pub(super) fn add(&mut self, shard: Arc<Shard>) {
        if self.is_closed {
            shard.queue.close();
        }
        self.shards.push(shard);
    }

    /// Closes the queues of all shards, and of those that are added later.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        for shard in &self.shards {
            shard.queue.close();
        }
    }

    pub(super) fn shard(&self, number: usize) -> Arc<Shard> {
        Arc::clone(self.shards.get(number).unwrap_or(&self.first))
    }

    pub(super) fn owner(&self, slot: u16) -> Arc<Shard> {
        let owner = self.owners.get(usize::from(slot)).copied().unwrap_or_default();
        self.shard(usize::from(owner))
    }

    /// The number of the shard of this name.
    pub(super) fn place_of(&self, node: &str) -> Option<usize> {
        self.shards.iter().position(|shard| shard.address.is_node(node))
    }

    /// The servers say so now. The slots are given to their masters already.
    pub(super) fn laid_out(&mut self, layout: &Layout) {
        let masters: BTreeSet<&str> = layout.ranges.iter().map(|(_, _, node)| node.as_str()).collect();
        self.masters = masters.into_iter().filter_map(|node| self.place_of(node)).collect();
        self.nodes = layout.nodes.iter().cloned().collect();
    }
}
