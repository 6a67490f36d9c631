//! Maps whose keys no caller chooses: of accounts, keys, models and producers.
//!
//! The standard library's hash withstands callers who choose keys that collide. Here they cannot, and a tenth of its work will do.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A map by keys that an operator, the configuration or the gateway itself chooses. To look up what a caller sent is fine, to enter it is not.
pub(crate) type FastMap<K, V> = HashMap<K, V, RandomState>;
