//! Whole answers that begin to pass before it is known whether they are any.

use rust_decimal::Decimal;

use super::*;

/// A target that gives this answer, of which something passes, is asked for the first five calls alone. `is_framed`: its framing ends well.
async fn is_passed_over_after_five(answer: Reply, is_framed: bool) {
    let main = Upstream::always(answer).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&main).spare(&spare);
    let gateway = setup
        .conf(|conf| conf["whole_answer_bytes_max"] = 1_024.into())
        .start()
        .await;
    for call in 0..8 {
        let answer = gateway
            .http1
            .post_request("/llm/chat", request(TWIN))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "call {call}");
        assert_eq!(answer.bytes().await.is_ok(), call >= 5 || is_framed, "call {call}");
    }
    assert_eq!(main.seen().len(), 5);
    assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE);
    gateway.check_books().await;
}

/// That it began to pass counted as an answer: each ended the row of failures.
#[tokio::test]
async fn after_five_whole_answers_in_a_row_that_break_off_as_they_pass_a_target_is_passed_over() {
    let body = whole_chat(&" word".repeat(2_000), Some((9, 5))).to_string();
    is_passed_over_after_five(Reply::json_head(body.len()).bytes(&body[..4_000]).close(), false).await;
}

/// Their framing ends well, and they are too long to be gathered. Each ended the row of failures.
#[tokio::test]
async fn after_five_whole_answers_in_a_row_that_pass_and_are_none_a_target_is_passed_over() {
    for body in [json!({ "x": long() }), late_error(529), late_error(Value::Null)] {
        let body = body.to_string();
        is_passed_over_after_five(Reply::json_head(body.len()).bytes(&body), true).await;
    }
}

/// It ends no row of failures. Where it was to find out whether its target is back, the others waited for it in vain.
#[tokio::test]
async fn a_whole_answer_that_passes_and_refuses_the_request_is_neither_a_failure_nor_an_answer() {
    let refusal = late_error(400).to_string();
    let main = Upstream::by(move |number, _| match number {
        4 | 6 => Reply::json_head(refusal.len()).bytes(&refusal),
        _ => Reply::status(500),
    })
    .await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&main).spare(&spare);
    let gateway = setup
        .conf(|conf| conf["whole_answer_bytes_max"] = 1_024.into())
        .start()
        .await;
    for _ in 0..14 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    assert_eq!(main.seen().len(), 6);
    assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE);
    gateway.clock.advance(10_000);
    for seen in [7, 8, 8] {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(main.seen().len(), seen, "the next call finds out, and no other");
    }
    gateway.check_books().await;
}

/// A text that is too long to be gathered.
fn long() -> String {
    " word".repeat(200_000)
}

/// An error of this code, of which is known only behind a long text that it is one.
fn late_error(code: impl Into<Value>) -> Value {
    let code: Value = code.into();
    json!({ "a": long(), "error": { "message": "No", "type": "some_error", "code": code } })
}
