//! Upstreams over HTTP/2 (used where it is offered).

use futures::future::join_all;
use h2::Reason;
use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::h2_upstream::{Frame, H2Upstream};
use crate::harness::reply::{Cue, Reply, whole_chat};
use crate::harness::tls::Authority;
use crate::harness::told::without_cost;
use crate::harness::{Gateway, Raw, Setup, Upstream, deltas, eventually};

const WHOLE: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const WORLD: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" world\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// A gateway over an upstream that gives these answers.
async fn over(answers: Vec<crate::harness::h2_upstream::Answer>) -> (H2Upstream, Gateway) {
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let authority = Authority::new();
    let upstream = H2Upstream::of(&authority.identity("localhost"), answers).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &authority.pem).unwrap();
    let provider =
        json!({ "base_url": upstream.base_url(), "api_key_env": "SET_MAIN", "ca_file": file.to_str().unwrap() });
    let gateway = Setup::over(&spare)
        .spare(&spare)
        .provider("main", provider)
        .start()
        .await;
    (upstream, gateway)
}

#[tokio::test]
async fn calls_at_once_share_one_connection() {
    let cue = Cue::new();
    let gated = vec![Frame::Wait(cue.clone()), Frame::Own, Frame::End];
    let (upstream, gateway) = over(vec![(JSON, vec![Frame::Data(WHOLE), Frame::End]), (JSON, gated)]).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let own = |number: usize| format!("call {number} of 20");
    let calls = (0..20).map(|number| {
        let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": own(number) }] });
        gateway.http1.post("/llm/chat", body.to_string())
    });
    // None is answered before all have been asked.
    let all_asked = async {
        eventually("all are asked", async || (upstream.seen().len() == 21).then_some(())).await;
        cue.give_all();
    };
    let (answers, ()) = futures::join!(join_all(calls), all_asked);
    for (number, answer) in answers.into_iter().enumerate() {
        let expected = whole_chat(&own(number), Some((9, 1))).to_string();
        assert_eq!(
            without_cost(answer.ok().text()),
            expected,
            "it is another call's answer"
        );
    }
    assert_eq!(upstream.connections(), 1);
    for (head, body) in upstream.seen() {
        assert_eq!(head.uri.path(), "/v1/chat/completions");
        assert_eq!(head.uri.host(), Some("localhost"));
        assert_eq!(head.headers["authorization"], "Bearer credential-SET_MAIN");
        assert_eq!(head.headers["content-length"], body.len().to_string());
        assert!(!head.headers.contains_key("connection") && !head.headers.contains_key("host"));
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 189, 21));
}

#[tokio::test]
async fn events_pass_when_they_come_and_a_reset_becomes_an_error_event() {
    let cue = Cue::new();
    let wait = || Frame::Wait(cue.clone());
    let (_upstream, gateway) = over(vec![
        (
            EVENTS,
            vec![
                Frame::Data(HELLO),
                wait(),
                Frame::Data(WORLD),
                wait(),
                Frame::Data(USAGE),
                Frame::End,
            ],
        ),
        (
            EVENTS,
            vec![Frame::Data(HELLO), wait(), Frame::Reset(Reason::INTERNAL_ERROR)],
        ),
    ])
    .await;
    let mut events = gateway.h2c.stream("/llm/chat/stream", request(SMALL)).await.ok();
    for text in ["Hello", " world"] {
        assert_eq!(events.next_json().await["choices"][0]["delta"]["content"], text);
        cue.give();
    }
    assert_eq!(events.rest().await, ["[DONE]"], "the upstream sent none");
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 2));
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    events.next().await.unwrap();
    cue.give();
    let rest = events.rest().await;
    assert!(
        rest[0].contains("\"finish_reason\":\"error\"") && deltas(&rest).is_empty(),
        "{rest:?}"
    );
    assert_eq!(rest[1], "[DONE]");
    assert_eq!(gateway.spent().await, cost(SMALL, 9 + PROMPT, 3));
}

#[tokio::test]
async fn a_client_that_leaves_resets_the_upstreams_stream_and_keeps_the_connection() {
    let cue = Cue::new();
    let (upstream, gateway) = over(vec![
        (EVENTS, vec![Frame::Data(HELLO), Frame::Wait(cue.clone()), Frame::End]),
        (JSON, vec![Frame::Data(WHOLE), Frame::End]),
    ])
    .await;
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    events.next().await.unwrap();
    drop(events);
    assert_eq!(upstream.cancelled().await, Reason::CANCEL);
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 1));
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_reset_before_the_answer_goes_to_the_next_target() {
    for reason in [
        Reason::REFUSED_STREAM,
        Reason::INTERNAL_ERROR,
        Reason::ENHANCE_YOUR_CALM,
    ] {
        let (upstream, gateway) = over(vec![("", vec![Frame::Reset(reason)])]).await;
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert!(!upstream.seen().is_empty());
        assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
        gateway
            .http1
            .post("/llm/chat", request(SMALL))
            .await
            .error(502, "upstream_error");
        assert_eq!(gateway.spent().await - cost(TWIN, 9, 1), Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_body_of_2_mb_passes_over_http2() {
    let (upstream, gateway) = over(vec![(JSON, vec![Frame::Data(WHOLE), Frame::End])]).await;
    let text = "All work and no play. ".repeat(100_000);
    let body = |model: &str| format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    gateway.h2c.post("/llm/chat", body(SMALL)).await.ok();
    assert!(upstream.seen()[0].1 == body("up-small"));
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_the_answer_of_an_upstream_over_http_2() {
    let (_upstream, gateway) = over(vec![(JSON, vec![Frame::Data(WHOLE), Frame::End])]).await;
    let body = request(SMALL);
    let mut raw = Raw::posted_as(&gateway, "/llm/chat", "HTTP/1.0", body.len(), &body).await;
    assert_eq!(without_cost(raw.until_closed().await.ok().text()), WHOLE);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_after_any_byte_is_the_next_targets_or_502_and_free() {
    for end in [
        Frame::Reset(Reason::INTERNAL_ERROR),
        Frame::Reset(Reason::NO_ERROR),
        Frame::End,
    ] {
        let cuts = || (0..WHOLE.len()).map(|bytes| WHOLE.split_at(bytes).0);
        let broken = |cut: &'static str| {
            let (first, second) = cut.split_at(cut.len() / 2);
            (JSON, vec![Frame::Data(first), Frame::Data(second), end.clone()])
        };
        let (upstream, gateway) = over(cuts().chain(cuts()).map(broken).collect()).await;
        for cut in cuts() {
            let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
            assert!(answer.text().contains("chatcmpl-1"), "{end:?} {cut}: {}", answer.text());
            // The breaker of a target that always fails would pass it over.
            gateway.clock.advance(10_000);
        }
        let calls = u64::try_from(WHOLE.len()).unwrap();
        let spent = cost(TWIN, 9 * calls, calls);
        assert_eq!(gateway.spent().await, spent);
        for _ in cuts() {
            let answer = gateway.h2c.post("/llm/chat", request(SMALL)).await;
            answer.error(502, "upstream_error");
        }
        assert_eq!(upstream.seen().len(), 2 * WHOLE.len());
        assert_eq!(gateway.spent().await, spent);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_upstream_that_asks_for_http_1_and_speaks_http2_alone_is_asked_over_http2_again() {
    let refused = ("", vec![Frame::Reset(Reason::HTTP_1_1_REQUIRED)]);
    let good = (JSON, vec![Frame::Data(WHOLE), Frame::End]);
    let (upstream, gateway) = over(vec![refused, good]).await;
    // Over HTTP/1.1 it cannot be reached at all.
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    answer.error(502, "upstream_error");
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(upstream.seen().len(), 2);
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
}
