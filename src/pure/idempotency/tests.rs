//! Every state of a record against every kind of call, and the texts that are keys.

use super::*;
use crate::pure::error::ApiError;

const ONE: Fingerprint = Fingerprint::from_bytes([1; 32]);
const OTHER: Fingerprint = Fingerprint::from_bytes([2; 32]);
const REQUEST: RequestId = RequestId::from_bytes([7; 16]);

fn answer() -> Answer {
    Answer {
        streamed: true,
        body: Bytes::from_static(b"data: [DONE]\n\n"),
    }
}

fn states() -> Vec<(State, Repeated)> {
    let running = || Repeated::Refused(KeyRefusal::InProgress);
    let unavailable = || Repeated::Refused(KeyRefusal::Unavailable(REQUEST));
    let replayed = Repeated::Replayed {
        answer: answer(),
        original: REQUEST,
    };
    vec![
        (State::Taken, running()),
        (State::Sent(Owner::Runs), running()),
        (State::Sent(Owner::Missing(0)), running()),
        (State::Sent(Owner::Missing(MISSING_MS - 1)), running()),
        (State::Sent(Owner::Missing(MISSING_MS)), unavailable()),
        (State::Sent(Owner::Missing(u64::MAX)), unavailable()),
        (State::Sent(Owner::Gone), unavailable()),
        (State::NotStored, unavailable()),
        (State::Stored(answer()), replayed),
    ]
}

#[test]
fn every_state_has_its_answer_and_another_request_conflicts_once_the_first_is_sent() {
    for (state, expected) in states() {
        let record = Record {
            fingerprint: ONE,
            request: REQUEST,
            state: state.clone(),
        };
        assert_eq!(record.clone().repeated(&ONE), expected, "{state:?}");
        let other = match state {
            State::Taken => KeyRefusal::InProgress,
            State::Sent(_) | State::Stored(_) | State::NotStored => KeyRefusal::Conflict,
        };
        assert_eq!(record.repeated(&OTHER), Repeated::Refused(other), "{state:?}");
    }
}

#[test]
fn a_key_is_visible_ascii_and_not_too_long() {
    let key = KeyId::from("key_1".to_owned());
    let longest = "x".repeat(TEXT_BYTES_MAX);
    for good in ["a", "!~", "550e8400-e29b-41d4-a716-446655440000", &longest] {
        assert!(KeyName::of(&key, good.as_bytes()).is_ok(), "{good}");
    }
    let too_long = "x".repeat(TEXT_BYTES_MAX + 1);
    for bad in ["", " ", "a b", "a\tb", "\u{7f}", "ä", &too_long] {
        assert_eq!(KeyName::of(&key, bad.as_bytes()), Err(BadKey), "{bad}");
    }
}

#[test]
fn names_differ_by_key_and_text() {
    let names = [("key_1", "ab"), ("key_1", "b"), ("key_1a", "b"), ("key_2", "ab")];
    let names: std::collections::BTreeSet<_> = names
        .iter()
        .map(|(key, text)| KeyName::of(&KeyId::from((*key).to_owned()), text.as_bytes()).unwrap())
        .collect();
    assert_eq!(names.len(), 4);
}

#[test]
fn fingerprints_differ_by_endpoint_and_by_each_byte() {
    let of = Fingerprint::of;
    assert_eq!(of(Endpoint::Chat, b"{}"), of(Endpoint::Chat, b"{}"));
    assert_ne!(of(Endpoint::Chat, b"{}"), of(Endpoint::Chat, b"{ }"));
    assert_ne!(of(Endpoint::Chat, b"{}"), of(Endpoint::ChatStream, b"{}"));
    assert_ne!(of(Endpoint::Chat, b"{}"), of(Endpoint::Embeddings, b"{}"));
}

#[test]
fn the_wire_says_whether_a_retry_makes_sense() {
    let running = ApiError::KeyRepeated(KeyRefusal::InProgress).to_wire();
    assert_eq!((running.status, running.retry_after_secs), (409, Some(1)));
    assert_eq!(running.should_retry, None);
    let conflict = ApiError::KeyRepeated(KeyRefusal::Conflict).to_wire();
    assert_eq!((conflict.status, conflict.kind), (409, "idempotency_key_conflict"));
    assert_eq!((conflict.should_retry, conflict.retry_after_secs), (Some(false), None));
    let unavailable = ApiError::KeyRepeated(KeyRefusal::Unavailable(REQUEST)).to_wire();
    assert_eq!(unavailable.should_retry, Some(false));
    let metadata = format!("{{\"request_id\":\"{REQUEST}\"}}");
    assert_eq!(unavailable.metadata, Some(metadata));
}

#[test]
fn a_key_is_known_for_a_day() {
    assert_eq!(KEPT_MS, 86_400_000);
}
