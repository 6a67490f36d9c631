//! What is rendered once and answered often: a body and its entity tag.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::pure::ids::hex;

/// A rendered body with its entity tag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) body: Bytes,
    pub(crate) etag: String,
}

impl Document {
    pub(crate) fn new(body: String) -> Document {
        let digest = hex(&Sha256::digest(body.as_bytes()));
        Document {
            etag: format!("\"{}\"", digest.get(..16).unwrap_or_default()),
            body: Bytes::from(body),
        }
    }
}
