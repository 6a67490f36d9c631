//! What is added to a piece of an answer behind its own bytes.

use bytes::{Bytes, BytesMut};

/// Puts `tail` after what passes.
pub(super) fn append(body: &mut Option<Bytes>, tail: Bytes) {
    if tail.is_empty() {
        return;
    }
    let chunk = body.take().unwrap_or_default();
    *body = Some(if chunk.is_empty() { tail } else { joined(&chunk, &tail) });
}

/// One after the other.
fn joined(head: &[u8], tail: &[u8]) -> Bytes {
    let mut joined = BytesMut::with_capacity(head.len().saturating_add(tail.len()));
    joined.extend_from_slice(head);
    joined.extend_from_slice(tail);
    joined.freeze()
}
