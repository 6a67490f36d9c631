//! Where a body is parsed and hashed.

use std::time::Duration;

use futures::FutureExt;

use super::*;

const NAME: KeyName = KeyName::from_bytes([1; 32]);

/// A call with a text of about so many bytes.
fn call(bytes: usize) -> Bytes {
    let text = "word ".repeat(bytes / 5);
    format!(r#"{{"model":"a/m","messages":[{{"role":"user","content":"{text}"}}]}}"#).into()
}

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
fn a_long_body_is_parsed_and_hashed_on_another_thread() {
    let body = call(16 << 20);
    assert!(is_long(body.len()));
    let before = worked();
    let expected = Fingerprint::of(Endpoint::Chat, &body);
    let hashing = worked().saturating_sub(before);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let before = worked();
    let parsed = runtime.block_on(parsed(body, Endpoint::Chat, Some(NAME))).unwrap();
    let here = worked().saturating_sub(before);
    assert_eq!(parsed.keyed, Some((NAME, expected)));
    assert!(here < hashing / 2, "{here:?} here, where the hash takes {hashing:?}");
}

#[test]
fn a_short_body_is_parsed_at_once_and_hashed_where_there_is_a_key() {
    let body = call(1_000);
    let expected = Fingerprint::of(Endpoint::Chat, &body);
    for name in [None, Some(NAME)] {
        let parsed = parsed(body.clone(), Endpoint::Chat, name).now_or_never();
        let parsed = parsed.unwrap().unwrap();
        assert_eq!(parsed.keyed, name.map(|name| (name, expected)));
        assert_eq!(parsed.body.bytes(), &body);
    }
}
