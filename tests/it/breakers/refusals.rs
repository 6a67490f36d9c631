//! Refusals for which the request is to blame, and answers to calls from before a target failed: neither says that it works now.

use serde_json::json;

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Refusals of the request, each with the status that a client gets whose model has another target.
fn refusals() -> Vec<(u16, Reply)> {
    let limit = json!({ "error": { "message": "Request too large", "code": "rate_limit_exceeded" } });
    let flagged = json!({ "error": { "message": "No", "code": "content_filter" } });
    vec![
        (400, Reply::refusal(400, &[], "no")),
        (404, Reply::refusal(404, &[], "no")),
        (200, Reply::new(413, &[JSON], limit.to_string())),
        (400, Reply::new(403, &[JSON], flagged.to_string())),
        (400, with_error(Reply::stream(), 400)),
    ]
}

/// A client that sent a malformed request before each fifth failure had all others wait for the target, and one that sent such a request
/// once its pause was over had the target taken for one that works.
#[tokio::test]
async fn a_refusal_of_the_request_keeps_no_breaker_closed_and_closes_none() {
    for (status, refusal) in refusals() {
        println!("{refusal:?}");
        let said = refusal.clone();
        let main = Upstream::by(move |number, _| match number {
            4 | 6 => said.clone(),
            _ => Reply::status(500),
        })
        .await;
        let spare = Upstream::by(|_, seen| match seen.json()["stream"].as_bool() {
            Some(true) => Reply::stream_of(&["Hi"], 9, 1),
            _ => Reply::chat("Hi", 9, 1),
        })
        .await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        let ask = async || gateway.http1.post("/llm/chat", streaming(TWIN)).await.status;
        for number in 0..8 {
            assert_eq!(ask().await, if number == 4 { status } else { 200 }, "{number}");
        }
        assert_eq!(main.seen().len(), 6, "the refusal is none of the five failures");
        assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE);
        gateway.clock.advance(10_000);
        assert_eq!(ask().await, status);
        assert_eq!(main.seen().len(), 7);
        for _ in 0..3 {
            assert_eq!(ask().await, 200);
            assert_eq!(
                main.seen().len(),
                8,
                "the next call finds out, and it fails: one is enough"
            );
        }
        gateway.check_books().await;
    }
}

/// A stream from before the outage that came to its end closed the breaker of a target that failed all the while.
#[tokio::test]
async fn an_answer_to_a_call_from_before_an_outage_ends_none() {
    let cue = Cue::new();
    let begun = Reply::stream().role().text("Hello").wait(&cue);
    let long = begun.finish().usage(9, 1).done();
    let main = Upstream::by(move |number, _| match number {
        0 => long.clone(),
        _ => Reply::status(500),
    })
    .await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    let mut events = gateway.http1.stream("/llm/chat", streaming(TWIN)).await.ok();
    events.next().await.unwrap();
    for _ in 0..6 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    assert_eq!(main.seen().len(), 1 + 5);
    gateway.clock.advance(10_000);
    cue.give();
    assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    for _ in 0..3 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(main.seen().len(), 1 + 5 + 1, "one call finds out, and it fails");
    }
    gateway.check_books().await;
}
