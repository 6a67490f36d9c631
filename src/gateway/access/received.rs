//! A body that has come: in one piece, or, when it is long, in those that it was read into. They are joined where the body is parsed, for the
//! streams of the thread that reads it do not wait for a copy of all of it.

use bytes::Bytes;

use super::body_memory::BodyPermit;

/// A body that has come whole.
pub(in crate::gateway) enum Received {
    /// In one piece, which holds its room.
    Whole(Bytes),
    /// One that is longer than [`PIECE_BYTES`].
    InPieces(Box<InPieces>),
}

/// A long body, with the room that it takes.
pub(in crate::gateway) struct InPieces {
    pieces: Pieces,
    room: BodyPermit,
}

/// The pieces of a body in their order, each of [`PIECE_BYTES`] but the last.
#[derive(Default)]
pub(super) struct Pieces(Vec<Vec<u8>>);

impl Received {
    /// What was read into these pieces, and the room that they take.
    pub(super) fn in_pieces(pieces: Pieces, room: BodyPermit) -> Received {
        Received::InPieces(Box::new(InPieces { pieces, room }))
    }

    /// Its length in bytes.
    pub(in crate::gateway) fn length(&self) -> usize {
        match self {
            Received::Whole(bytes) => bytes.len(),
            Received::InPieces(body) => body.pieces.length(),
        }
    }

    /// The body in one piece. Copies one that came in several.
    pub(in crate::gateway) fn joined(self) -> Bytes {
        match self {
            Received::Whole(bytes) => bytes,
            Received::InPieces(body) => body.joined(),
        }
    }
}

impl InPieces {
    fn joined(self) -> Bytes {
        let InPieces {
            pieces: Pieces(pieces),
            mut room,
        } = self;
        let length: usize = pieces.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(length);
        // Each goes once it was copied, so that there is never much more than the room that was taken.
        for piece in pieces {
            bytes.extend_from_slice(&piece);
        }
        room.shrink(u64::try_from(bytes.capacity()).unwrap_or(u64::MAX));
        room.keep(bytes)
    }
}

impl Pieces {
    /// Adds the next one.
    pub(super) fn push(&mut self, piece: Vec<u8>) {
        self.0.push(piece);
    }

    /// Bytes of all of them.
    pub(super) fn length(&self) -> usize {
        match self.0.as_slice() {
            [] => 0,
            [full @ .., last] => full.len().saturating_mul(PIECE_BYTES).saturating_add(last.len()),
        }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.0.iter()
    }
}

/// Longer bodies come in pieces of this many bytes, and what reads or copies all of one is done on a thread of its own.
pub(in crate::gateway) const PIECE_BYTES: usize = 256 << 10;
