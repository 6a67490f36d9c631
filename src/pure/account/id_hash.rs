//! The hash of the table of open holds.

use std::hash::Hasher;

/// Request ids are UUIDv7: their last eight bytes are random, which is all the hash a table needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*last);
        }
    }
}
