//! How a command names a key.

use serde::{Deserialize, Serialize};

use crate::pure::ids::{KeyDigest, KeyId};

/// How a command names a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRef {
    /// By its public id.
    Id(KeyId),
    /// By its text's digest, hexadecimal.
    Digest(String),
}

impl KeyRef {
    /// Whether this names the key of `digest`.
    pub fn names(&self, digest: &KeyDigest) -> bool {
        match self {
            KeyRef::Id(id) => *id == KeyId::of(digest),
            KeyRef::Digest(hex) => *hex == digest.to_hex(),
        }
    }
}
