//! Pieces of an answer that are there together.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use pingora::Error;

use super::carried::Carried;
use super::downstream::Downstream;
use super::upstream_session::{Piece, UpstreamSession};
use super::write_batch::BYTES_MAX;

/// A piece and those behind it that are there already, as one, and what failed behind them: a provider that sends an event a chunk costs
/// one turn through the filters for as many as have come.
pub(super) async fn join<P: Carried + Sync>(
    client: &mut Downstream<'_, P>,
    upstream: &mut UpstreamSession,
    first: Piece,
) -> (Piece, Option<Box<Error>>) {
    let Piece { bytes, mut ends } = first;
    let first = bytes.unwrap_or_default();
    let mut joined = BytesMut::new();
    while !ends && first.len().max(joined.len()) < BYTES_MAX {
        let piece = match client.at_once(pin!(upstream.piece())).await {
            None => break,
            Some(Ok(piece)) => piece,
            Some(Err(error)) => return (piece_of(first, joined, false), Some(error)),
        };
        ends = piece.ends;
        let Some(bytes) = piece.bytes.filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        if joined.is_empty() {
            joined.reserve(BYTES_MAX.saturating_add(bytes.len()));
            joined.extend_from_slice(&first);
        }
        joined.extend_from_slice(&bytes);
    }
    (piece_of(first, joined, ends), None)
}

/// The first piece, or it and those behind it.
fn piece_of(first: Bytes, joined: BytesMut, ends: bool) -> Piece {
    let bytes = if joined.is_empty() { first } else { joined.freeze() };
    Piece {
        bytes: (!bytes.is_empty()).then_some(bytes),
        ends,
    }
}
