//! How a body is kept that comes bit by bit.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::gateway::access::body_memory::BodyMemory;
use crate::pure::ids::KeyId;

/// So many bytes, no two pieces of which are alike.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

fn incoming(memory: &Arc<BodyMemory>, length: Option<u64>, config: &'static Config) -> Incoming<'static> {
    Incoming {
        full: None,
        bytes: Vec::new(),
        length,
        is_checked: true,
        room: memory.owner(&KeyId::from("key_1".to_owned()), None).room(),
        config,
    }
}

fn config(text: &str) -> &'static Config {
    let config = Config::parse(Path::new("t.yaml"), text, &|_| None).unwrap();
    Box::leak(Box::new(config))
}

#[test]
fn a_long_body_is_kept_in_pieces_of_which_none_is_copied_again() {
    let memory = Arc::new(BodyMemory::default());
    for length in [PIECE_BYTES + 1, 3 * PIECE_BYTES, 10 * PIECE_BYTES + 77_777] {
        let text = text(length);
        for announced in [None, Some(count(length))] {
            let mut body = incoming(&memory, announced, config(""));
            let (mut came, mut places) = (0, Vec::new());
            for bytes in text.chunks(50_001) {
                body.add(bytes).unwrap();
                came += bytes.len();
                assert_eq!(body.came(), came);
                // What is counted is what is allocated, and little more than what came.
                let full = body.full.iter().flat_map(|pieces| pieces.iter());
                let allocated = full.map(Vec::capacity).sum::<usize>() + body.bytes.capacity();
                assert!(count(allocated) <= memory.bytes(), "{allocated} of {came}");
                assert!(memory.bytes() <= count(came + 2 * PIECE_BYTES), "{came}");
                let full = body.full.iter().flat_map(|pieces| pieces.iter());
                let now: Vec<*const u8> = full.map(|piece| piece.as_ptr()).collect();
                assert_eq!(now[..places.len()], places[..], "a full piece has moved");
                places = now;
            }
            assert_eq!(places.len(), (length - 1) / PIECE_BYTES);
            let received = body.end();
            assert!(matches!(received, Received::InPieces(_)));
            assert_eq!(received.length(), length);
            let joined = received.joined();
            assert!(joined == text, "{length} bytes, {announced:?} announced");
            assert!(memory.bytes() < count(length + PIECE_BYTES));
            drop(joined);
            assert_eq!(memory.bytes(), 0);
        }
    }
}

#[test]
fn a_body_that_is_not_long_is_in_one_piece() {
    let memory = Arc::new(BodyMemory::default());
    for length in [0, 1, 5_000, 100_000, PIECE_BYTES] {
        let text = text(length);
        let mut body = incoming(&memory, None, config(""));
        text.chunks(7_000).for_each(|bytes| body.add(bytes).unwrap());
        let received = body.end();
        assert!(matches!(received, Received::Whole(_)), "{length}");
        assert!(received.joined() == text, "{length}");
        assert_eq!(memory.bytes(), 0);
    }
}

#[test]
fn a_long_body_gets_the_last_bytes_that_its_key_may_hold_and_no_more() {
    const MIB: usize = 1 << 20;
    let memory = Arc::new(BodyMemory::default());
    let limits = config("body_bytes_max: 2097152\nbody_memory_bytes_per_key_max: 2097152");
    let mut other = incoming(&memory, None, limits);
    other.add(&text(100_000)).unwrap();
    let left = 2 * MIB - usize::try_from(memory.bytes()).unwrap();
    let mut body = incoming(&memory, None, limits);
    let text = text(left);
    for bytes in text.chunks(30_000) {
        body.add(bytes).unwrap();
    }
    assert_eq!(memory.bytes(), count(2 * MIB));
    assert!(body.add(b"x").is_err());
    assert!(body.end().joined() == text);
}
