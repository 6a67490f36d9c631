//! Which conversation a request is of.

use super::*;
use crate::pure::rendezvous::{Draw, choose, hash_of};

#[test]
fn a_conversation_is_named_by_its_session_its_key_or_its_first_messages() {
    let of = |members: &str, header: Option<&str>| {
        let text = format!(r#"{{"model":"m",{members}}}"#);
        let body = RequestBody::parse(Bytes::from(text), Endpoint::Chat).unwrap();
        body.conversation("acme", header).unwrap()
    };
    let long = "x".repeat(257);
    let first = r#""messages":[{"role":"system","content":"You help."},{"role":"user","content":"Hi"}]"#;
    let second = concat!(
        r#""messages":[{"role":"system","content":"You help."},{"role":"user","content":"Hi"},"#,
        r#"{"role":"assistant","content":"Hello."},{"role":"user","content":"Go on."}]"#
    );
    let other = r#""messages":[{"role":"system","content":"You help."},{"role":"user","content":"Ho"}]"#;
    let named = |name: &str, value: &str| format!(r#"{first},"{name}":"{value}""#);
    // The first messages, with each turn.
    assert_eq!(of(first, None), of(second, None));
    assert_ne!(of(first, None), of(other, None));
    // A name in place of them, by its rank.
    let session = of(&named("session_id", "a"), None);
    assert_ne!(session, of(first, None));
    assert_eq!(
        session,
        of(
            &format!(r#"{other},"session_id":"\u0061","prompt_cache_key":"b""#),
            Some("c")
        )
    );
    assert_eq!(session, of(&named("prompt_cache_key", "b"), Some("a")));
    assert_eq!(session, of(&named("prompt_cache_key", "a"), None));
    // What is no name is passed over.
    for none in ["", &long] {
        assert_eq!(of(&named("session_id", none), Some(none)), of(first, None));
        assert_eq!(of(&named("session_id", none), Some("a")), session);
    }
    assert_eq!(of(&format!(r#"{first},"session_id":7"#), None), of(first, None));
    assert_eq!(
        of(&named("session_id", &"x".repeat(256)), None),
        of(&named("session_id", &"x".repeat(256)), Some("a"))
    );
    // Another account's is another.
    let body = RequestBody::parse(Bytes::from(format!(r#"{{"model":"m",{first}}}"#)), Endpoint::Chat).unwrap();
    assert_ne!(
        body.conversation("acme", Some("a")),
        body.conversation("other", Some("a"))
    );
    let input = Bytes::from_static(br#"{"model":"m","input":"x","session_id":"a"}"#);
    let embeddings = RequestBody::parse(input, Endpoint::Embeddings).unwrap();
    assert_eq!(embeddings.conversation("acme", Some("a")), None);
}

/// A thousand conversations of 20 turns that grow, over four targets: each turn goes where the first went, and each target has its share.
#[test]
fn the_turns_of_a_conversation_go_to_one_target() {
    let target = |name: &&str| Draw {
        identity: hash_of(&[name, "model"]),
        weight: 1,
    };
    let targets: Vec<Draw> = ["a", "b", "c", "d"].iter().map(target).collect();
    let mut shares = [0; 4];
    for conversation in 0..1_000 {
        let mut messages = vec![r#"{"role":"system","content":"You help."}"#.to_owned()];
        let mut first = None;
        for turn in 0..20 {
            messages.push(format!(r#"{{"role":"user","content":"{conversation}, {turn}"}}"#));
            let text = format!(
                r#"{{"model":"m","temperature":{turn},"messages":[{}]}}"#,
                messages.join(",")
            );
            let body = RequestBody::parse(Bytes::from(text), Endpoint::ChatStream).unwrap();
            let hash = body.conversation("acme", None).unwrap();
            let chosen = choose(hash, targets.iter().copied()).unwrap();
            assert_eq!(
                chosen,
                *first.get_or_insert(chosen),
                "conversation {conversation}, turn {turn}"
            );
        }
        shares[first.unwrap()] += 1;
    }
    assert!(shares.iter().all(|share: &i32| share.abs_diff(250) <= 40), "{shares:?}");
}
