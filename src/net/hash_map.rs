//! Maps by numbers that are hashes already: to hash them again would spread them no better.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by a hash that nobody outside can choose: of a secret seed, or of what the configuration says.
pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// Passes a hash on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Not called for the keys of a [`ByHash`].
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn a_hash_is_passed_on_as_it_is() {
        let map = ByHash::<()>::default();
        for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(map.hasher().hash_one(hash), hash);
        }
    }
}
