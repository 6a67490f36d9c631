//! Where a body is parsed and hashed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;

use super::*;
use crate::gateway::access::body_memory::BodyMemory;
use crate::gateway::access::received::Pieces;
use crate::pure::ids::KeyId;

const NAME: KeyName = KeyName::from_bytes([1; 32]);

/// A call with a text of about so many bytes.
fn call(bytes: usize) -> Bytes {
    let text = "word ".repeat(bytes / 5);
    format!(r#"{{"model":"a/m","messages":[{{"role":"user","content":"{text}"}}]}}"#).into()
}

/// The same bytes as they are when they were read in pieces.
fn in_pieces(body: &Bytes) -> Received {
    let room = Arc::new(BodyMemory::default())
        .owner(&KeyId::from("key_1".to_owned()), None)
        .room();
    let mut pieces = Pieces::default();
    body.chunks(PIECE_BYTES).for_each(|piece| pieces.push(piece.to_vec()));
    Received::in_pieces(pieces, room)
}

/// What `work` has this thread do.
pub(in crate::gateway) fn working<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = worked();
    let done = work();
    (done, worked().saturating_sub(before))
}

/// The run of some in which this thread had to do least: a machine whose processors others have as well may count theirs as its work.
pub(in crate::gateway) fn least<T>(mut run: impl FnMut() -> (T, Duration)) -> (T, Duration) {
    let runs = (0..RUNS).map(|_| run());
    runs.min_by_key(|(_, work)| *work).unwrap()
}

const RUNS: usize = 3;

/// What this thread has worked so far.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time, for which there is room.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(told, 0);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

#[test]
fn a_long_body_is_joined_parsed_and_hashed_on_another_thread() {
    let body = call(16 << 20);
    assert!(is_long(body.len()));
    let (joined, joining) = least(|| {
        let received = in_pieces(&body);
        working(|| received.joined())
    });
    assert_eq!(joined, body);
    let (expected, hashing) = working(|| Fingerprint::of(Endpoint::Chat, &body));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (parsed, here) = least(|| {
        let received = in_pieces(&body);
        working(|| runtime.block_on(parsed(received, Endpoint::Chat, Some(NAME))))
    });
    let parsed = parsed.unwrap();
    assert_eq!(parsed.keyed, Some((NAME, expected)));
    assert_eq!(parsed.body.bytes(), &body);
    let least = joining.min(hashing);
    assert!(
        here < least / 2,
        "{here:?} here, where to join takes {joining:?} and the hash {hashing:?}"
    );
}

#[test]
fn a_short_body_is_parsed_at_once_and_hashed_where_there_is_a_key() {
    let body = call(1_000);
    let expected = Fingerprint::of(Endpoint::Chat, &body);
    for name in [None, Some(NAME)] {
        let parsed = parsed(Received::Whole(body.clone()), Endpoint::Chat, name).now_or_never();
        let parsed = parsed.unwrap().unwrap();
        assert_eq!(parsed.keyed, name.map(|name| (name, expected)));
        assert_eq!(parsed.body.bytes(), &body);
    }
}
