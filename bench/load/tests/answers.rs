//! An answer to another request is no right answer.

use std::{collections::BTreeSet, ops::ControlFlow, time::Duration};

use bytes::Bytes;

use super::simulated::{answering, plan, provider, subject};
use crate::{
    answers::Answers,
    client::{Arrived, Connection, Expect, Listener, Shot},
    drive,
    events::Events,
    request::{self, KILOBYTE, Shape},
    script::{Form, Script},
    tag::Tag,
};

#[test]
fn a_tag_has_always_as_many_digits() {
    assert_eq!(Tag::of(7).bytes(), b"0000000007");
    assert_eq!(Tag::of(u32::MAX).bytes(), b"4294967295");
}

#[test]
fn each_request_of_a_list_has_a_tag_of_its_own_and_sends_it() {
    let subject = subject(([127, 0, 0, 1], 1).into(), 300);
    let shots = Shape::Whole { bytes: KILOBYTE }.shots(&subject);
    let tags: BTreeSet<&[u8]> = shots.iter().map(|shot| shot.tag.as_ref().unwrap().bytes()).collect();
    assert_eq!(tags.len(), 300);
    for shot in &shots {
        let tag = String::from_utf8(shot.tag.unwrap().bytes().to_vec()).unwrap();
        let sent = String::from_utf8(shot.bytes.to_vec()).unwrap();
        assert!(sent.contains(&format!(" tag={tag};")), "{sent}");
    }
}

#[test]
fn answers_of_all_kinds_carry_the_tag_of_their_request() {
    let subject = subject(provider(), 20);
    let of_form = |form| {
        let script = Script {
            form,
            ..Script::stream(7)
        };
        Shape::Stream(script).shots(&subject)
    };
    let lists = [vec![request::mixed(&subject)], Form::ALL.map(of_form).into()].concat();
    for shots in lists {
        let outcome = drive::run(plan(subject.address, shots, 40), || (), drive::to_the_end).unwrap();
        assert!(outcome.tally.errors.is_empty(), "{:?}", outcome.tally.errors);
        assert!(outcome.requests >= 40, "{}", outcome.requests);
    }
}

/// Whole, embeddings and a stream, with this tag.
fn rendered(tag: u32) -> [Vec<u8>; 3] {
    let answers = Answers::new();
    let script = Script {
        tag,
        ..Script::stream(3)
    };
    let [mut whole, mut embeddings] = [Vec::new(), Vec::new()];
    answers.whole.push(&mut whole, script);
    answers.embeddings.push(&mut embeddings, script);
    [whole, embeddings, stream(&answers, [tag; 3], script)]
}

/// A stream whose events have these tags.
fn stream(answers: &Answers, tags: [u32; 3], script: Script) -> Vec<u8> {
    let (mut out, parts) = (answers.stream_head.clone(), answers.stream(Form::Plain).unwrap());
    for (number, tag) in (0..).zip(tags) {
        parts.push(&mut out, number, Tag::of(tag));
    }
    parts.finish.push(&mut out, script);
    answers.usage.push(&mut out, script);
    out.extend_from_slice(&answers.done);
    out
}

struct Nobody;

impl Listener for Nobody {
    fn events(&mut self, _: &Arrived<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// What one that waits for an answer with the tag 7 finds wrong with this one.
fn wrong(answer: Vec<u8>, expect: Expect) -> Option<String> {
    let address = answering(answer, Duration::ZERO);
    let shot = Shot {
        bytes: Bytes::from_static(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
        expect,
        tag: Some(Tag::of(7)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut connection = Connection::open(address).await.unwrap();
        let result = connection.exchange(&shot, &mut Nobody).await;
        result.err().map(|failure| failure.to_string())
    })
}

#[test]
fn an_answer_to_another_request_is_wrong() {
    let expected = [Expect::Json, Expect::Json, Expect::Stream { events: None }];
    for ((ours, others), expect) in rendered(7).into_iter().zip(rendered(8)).zip(expected) {
        assert_eq!(wrong(ours, expect.clone()), None);
        let told = wrong(others, expect);
        assert_eq!(told.as_deref(), Some("an answer to another request"));
    }
    let script = Script {
        tag: 7,
        ..Script::stream(3)
    };
    let mixed = stream(&Answers::new(), [7, 7, 8], script);
    let told = wrong(mixed, Expect::Stream { events: None });
    assert_eq!(told.as_deref(), Some("an answer to another request"));
}

#[test]
fn the_tag_of_an_event_is_found_wherever_it_stands() {
    let ours = r#""system_fingerprint":"fp_0000000007","#;
    let others = r#""system_fingerprint":"fp_0000000008","#;
    let event =
        |before: &str, tag: &str| format!("data: {{{before}{tag}\"obfuscation\":\"00000000000000000009\"}}\n\n");
    for (text, foreign) in [
        (event("", ours) + &event(r#""id":"longer","#, ours), false),
        (event("", ours) + &event("", others), true),
        (event("", others), true),
        // Content without any.
        (event("", ""), true),
        // What ends a stream may be the gateway's.
        (event("", ours) + "data: {\"usage\":{}}\n\ndata: [DONE]\n\n", false),
    ] {
        let (mut events, mut any) = (Events::tagged(Some(Tag::of(7))), Events::default());
        events.feed(text.as_bytes(), |_| {});
        any.feed(text.as_bytes(), |_| {});
        assert_eq!((events.foreign, any.foreign), (foreign, false), "{text}");
    }
}
