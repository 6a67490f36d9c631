//! The memory that request bodies take: how much is held in all, by each key and from each address.
//!
//! A body has a [`BodyPermit`] that grows as it arrives and is given back with its last reference: the body is kept for as long as its request
//! may be sent to another target, and until its prompt is counted.

use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::config::BodyMemoryLimits;
use crate::net::client_ip;
use crate::net::hash_map::ByHash;
use crate::pure::error::{ApiError, LimitKind};
use crate::pure::ids::KeyId;

/// What is held.
#[derive(Debug, Default)]
pub(crate) struct BodyMemory {
    bytes: AtomicU64,
    keys: Shares,
    addresses: Shares,
    hasher: RandomState,
}

/// Whose bodies they are, by hashes with the process' own seed.
#[derive(Clone, Debug)]
pub(crate) struct BodyOwner {
    memory: Arc<BodyMemory>,
    key: u64,
    /// None when it does not count by address.
    address: Option<u64>,
}

/// The memory that one body may take, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    owner: BodyOwner,
    /// Bytes that are counted: at least those that are held.
    taken: u64,
}

/// A limit that a body does not fit in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// That of its key, in bytes.
    Key(u64),
    /// That of its address, in bytes.
    Address(u64),
    /// That of the process.
    Process,
}

impl From<Full> for ApiError {
    fn from(full: Full) -> ApiError {
        let limited = |limit, value| ApiError::RateLimited {
            limit,
            value,
            retry_after_secs: RETRY_AFTER_SECS,
        };
        match full {
            Full::Key(max) => limited(LimitKind::BodyMemoryOfKey, max),
            Full::Address(max) => limited(LimitKind::BodyMemoryOfAddress, max),
            Full::Process => ApiError::BodyMemoryFull {
                retry_after_secs: RETRY_AFTER_SECS,
            },
        }
    }
}

impl BodyMemory {
    /// Bytes that are counted now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The owner of bodies that come with this key; without an address they count for the key and in all alone.
    pub(crate) fn owner(self: &Arc<BodyMemory>, key: &KeyId, address: Option<IpAddr>) -> BodyOwner {
        BodyOwner {
            memory: Arc::clone(self),
            key: self.hasher.hash_one(key.as_str()),
            address: address.map(|address| self.hasher.hash_one(number(address))),
        }
    }
}

impl BodyOwner {
    /// A permit for a body of which nothing has come yet.
    pub(crate) fn room(&self) -> BodyPermit {
        BodyPermit {
            owner: self.clone(),
            taken: 0,
        }
    }

    /// Counts a copy that was made of an admitted body for as long as it is held. It is not refused: its call was admitted.
    pub(crate) fn keep_copy(&self, copy: Bytes) -> Bytes {
        let bytes = count(copy.len());
        if bytes <= SMALL_BYTES_MAX {
            return copy; // As many as there are calls at once: not worth the count.
        }
        let mut room = self.room();
        room.add(bytes);
        room.keep(copy)
    }
}

impl BodyPermit {
    /// Whether a body of so many bytes would fit by what is held now.
    ///
    /// # Errors
    /// [`Full`] when it would not.
    pub(crate) fn look(&self, bytes: u64, limits: &BodyMemoryLimits) -> Result<(), Full> {
        let BodyOwner { memory, key, address } = &self.owner;
        let fits = |held: u64, max: u64| held.saturating_add(bytes) <= max;
        if !fits(memory.keys.held(*key), limits.per_key) {
            return Err(Full::Key(limits.per_key));
        }
        if address.is_some_and(|address| !fits(memory.addresses.held(address), limits.per_address)) {
            return Err(Full::Address(limits.per_address));
        }
        if !fits(memory.bytes(), limits.total) {
            return Err(Full::Process);
        }
        Ok(())
    }

    /// Takes room for a body that has come to `bytes`, in steps.
    ///
    /// # Errors
    /// [`Full`] when there is none; what was taken before stays taken.
    pub(crate) fn grow(&mut self, bytes: u64, limits: &BodyMemoryLimits) -> Result<(), Full> {
        if bytes <= self.taken {
            return Ok(());
        }
        let rounded = rounded(bytes);
        match self.take(rounded.saturating_sub(self.taken), limits) {
            // What is left may be less than a step.
            Err(_) if rounded > bytes => self.take(bytes.saturating_sub(self.taken), limits),
            taken => taken,
        }
    }

    /// Gives back what a body of `bytes` does not need.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.give_back(self.taken.saturating_sub(rounded(bytes)));
    }

    /// The bytes of a body that has come whole: they hold the room.
    pub(crate) fn keep(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(HeldBody { bytes, _room: self })
    }

    fn take(&mut self, more: u64, limits: &BodyMemoryLimits) -> Result<(), Full> {
        let BodyOwner { memory, key, address } = &self.owner;
        if !memory.keys.take(*key, more, limits.per_key) {
            return Err(Full::Key(limits.per_key));
        }
        if let Some(address) = *address
            && !memory.addresses.take(address, more, limits.per_address)
        {
            memory.keys.give_back(*key, more);
            return Err(Full::Address(limits.per_address));
        }
        let held = memory.bytes.fetch_add(more, Ordering::Relaxed);
        self.taken = self.taken.saturating_add(more);
        if held.saturating_add(more) > limits.total {
            self.give_back(more);
            return Err(Full::Process);
        }
        Ok(())
    }

    /// Counts bytes that are held already.
    fn add(&mut self, more: u64) {
        let BodyOwner { memory, key, address } = &self.owner;
        memory.keys.take(*key, more, u64::MAX);
        if let Some(address) = *address {
            memory.addresses.take(address, more, u64::MAX);
        }
        memory.bytes.fetch_add(more, Ordering::Relaxed);
        self.taken = self.taken.saturating_add(more);
    }

    fn give_back(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let BodyOwner { memory, key, address } = &self.owner;
        // In the opposite order of taking it: no other body of the key takes what the sum still has.
        memory.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(address) = *address {
            memory.addresses.give_back(address, bytes);
        }
        memory.keys.give_back(*key, bytes);
        self.taken = self.taken.saturating_sub(bytes);
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

/// A body with its room: both end with the last reference.
struct HeldBody<B> {
    bytes: B,
    _room: BodyPermit,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for HeldBody<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// What each key, or each address, holds. Only those that hold something stand here.
#[derive(Debug, Default)]
struct Shares([Mutex<ByHash<u64>>; SHARDS]);

impl Shares {
    /// False, and nothing taken, when the owner would hold more than `max`.
    fn take(&self, owner: u64, bytes: u64, max: u64) -> bool {
        let mut shard = self.shard(owner);
        match shard.entry(owner) {
            Entry::Occupied(mut held) => {
                let more = held.get().saturating_add(bytes);
                if more > max {
                    return false;
                }
                held.insert(more);
            }
            Entry::Vacant(_) if bytes > max => return false,
            Entry::Vacant(none) => {
                none.insert(bytes);
            }
        }
        true
    }

    fn give_back(&self, owner: u64, bytes: u64) {
        let mut shard = self.shard(owner);
        if let Entry::Occupied(mut held) = shard.entry(owner) {
            let less = held.get().saturating_sub(bytes);
            if less == 0 {
                held.remove();
            } else {
                held.insert(less);
            }
        }
    }

    fn held(&self, owner: u64) -> u64 {
        self.shard(owner).get(&owner).copied().unwrap_or(0)
    }

    fn shard(&self, owner: u64) -> MutexGuard<'_, ByHash<u64>> {
        let [first, ..] = &self.0;
        // Neither the lowest bits nor the highest: by those the map of a shard spreads its own.
        let index = usize::from(owner.to_le_bytes()[4]) % SHARDS;
        let shard = self.0.get(index).unwrap_or(first);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address as a number, as limits count it: an IPv4 address stands where no network of IPv6 is given out.
fn number(address: IpAddr) -> u64 {
    match client_ip::group(address) {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => network(v6),
    }
}

fn network(address: Ipv6Addr) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = address.octets();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// What a body of so many bytes counts as.
fn rounded(bytes: u64) -> u64 {
    let step = if bytes <= SMALL_BYTES_MAX { SMALL_STEP } else { STEP };
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Bodies up to this many bytes are small: they come with their head, or nearly so, and cost little to take.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 << 10;
/// The step in which room for a small body is taken, in bytes; also what the smallest counts as, with what is kept beside it.
const SMALL_STEP: u64 = 4 << 10;
/// The step of larger ones.
const STEP: u64 = 64 << 10;
/// Maps that owners are spread over, so that threads seldom want the same one.
const SHARDS: usize = 16;
/// When it makes sense to come back: bodies go as fast as their calls.
const RETRY_AFTER_SECS: u64 = 2;

#[cfg(test)]
mod tests;
