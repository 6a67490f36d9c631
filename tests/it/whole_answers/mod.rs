//! Answers that are not streamed are whole or free: one that breaks off is a failed target, however much of it came. Beyond the bounds of
//! what is gathered they pass as they come.

mod bounds;
mod memory;

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{EMBED, SMALL, TWIN, cost};
use crate::harness::reply::whole_chat;
use crate::harness::told::without_cost;
use crate::harness::{Answer, Cue, Gateway, Raw, Reply, Setup, Upstream};

/// The ways in which an answer says where it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framed {
    /// A chunk for each piece.
    Chunks,
    /// By a length.
    Length,
    /// Not at all.
    UntilClosed,
}

const FRAMINGS: [Framed; 3] = [Framed::Chunks, Framed::Length, Framed::UntilClosed];

/// The head of a whole answer of so many bytes.
fn head(framed: Framed, length: usize) -> Reply {
    let framing = match framed {
        Framed::Chunks => "transfer-encoding: chunked".to_owned(),
        Framed::Length => format!("content-length: {length}"),
        Framed::UntilClosed => "connection: close".to_owned(),
    };
    Reply::default().bytes(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
    ))
}

/// An answer of which these pieces come, each by itself.
fn pieces(framed: Framed, length: usize, pieces: &[&str]) -> Reply {
    let begun = head(framed, length);
    pieces
        .iter()
        .filter(|piece| !piece.is_empty())
        .fold(begun, |reply, piece| match framed {
            Framed::Chunks => reply.chunk(piece),
            Framed::Length | Framed::UntilClosed => reply.bytes(piece),
        })
}

const USAGE: (u64, u64) = (50, 30);

/// An answer with a text of so many words.
fn answer(words: usize) -> String {
    whole_chat(&" word".repeat(words), Some(USAGE)).to_string()
}

/// How many ways there are to break off an answer of so many bytes. Of one in chunks also its last byte is not its end.
fn cuts(framed: Framed, length: usize) -> usize {
    match framed {
        Framed::Chunks => length + 1,
        Framed::Length | Framed::UntilClosed => length,
    }
}

/// Waits until the gateway has read what its upstreams have sent it: it runs on this test's thread.
async fn settled(gateway: &Gateway) {
    for _ in 0..5 {
        gateway.http1.get("/llm/health").await.ok();
    }
}

/// Asks for a whole answer over a connection that is read by hand.
async fn ask(gateway: &Gateway, model: &str) -> Raw {
    Raw::posted(gateway, "/llm/chat", &request(model)).await
}

#[tokio::test]
async fn an_answer_that_breaks_off_after_any_byte_is_given_by_the_next_target() {
    let body = answer(3);
    for framed in FRAMINGS {
        for resets in [false, true] {
            let broken = |bytes: usize| {
                let (first, second) = body[..bytes].split_at(bytes / 2);
                let begun = pieces(framed, body.len(), &[first, second]);
                if resets { begun.reset() } else { begun.close() }
            };
            let cuts = cuts(framed, body.len());
            let main = Upstream::of((0..cuts).map(broken)).await;
            let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
            let gateway = Setup::over(&main).spare(&spare).start().await;
            for bytes in 0..cuts {
                let client = [&gateway.http1, &gateway.h2c][bytes % 2];
                let answer = client.post("/llm/chat", request(TWIN)).await.ok();
                assert_eq!(
                    answer.json()["choices"][0]["message"]["content"],
                    "Ho",
                    "{framed:?}, {bytes}"
                );
                assert_eq!(answer.header("content-length"), answer.body.len().to_string());
                // The breaker of a target that always fails would pass it over.
                gateway.clock.advance(10_000);
            }
            assert_eq!((main.seen().len(), spare.seen().len()), (cuts, cuts));
            let calls = u64::try_from(cuts).unwrap();
            assert_eq!(gateway.spent().await, cost(TWIN, 9 * calls, calls));
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_after_any_byte_with_no_target_left_is_502_and_free() {
    let body = answer(3);
    for framed in FRAMINGS {
        let broken = |bytes: usize| pieces(framed, body.len(), &[&body[..bytes]]).close();
        let cuts = cuts(framed, body.len());
        let upstream = Upstream::of((0..cuts).map(broken)).await;
        let gateway = Gateway::over(&upstream).await;
        for bytes in 0..cuts {
            let client = [&gateway.http1, &gateway.h2c][bytes % 2];
            let answer = client.post("/llm/chat", request(SMALL)).await;
            answer.error(502, "upstream_error");
            assert_eq!(
                answer.header("x-should-retry"),
                "",
                "a retry may help, and costs nothing"
            );
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        assert_eq!(gateway.usage().await, []);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn what_came_of_a_broken_answer_is_counted_for_the_operator() {
    let body = answer(40);
    let upstream = Upstream::always(pieces(Framed::Chunks, 0, &[&body[..body.len() - 90]]).close()).await;
    let gateway = Gateway::over(&upstream).await;
    gateway
        .http1
        .post("/llm/chat", request(SMALL))
        .await
        .error(502, "upstream_error");
    gateway.check_books().await;
    gateway.counted(1).await;
    let target = [("model", SMALL), ("provider", "main")];
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("tollgate_discarded_answers_total", &target), Decimal::ONE);
    let credits = metrics.sum("tollgate_discarded_credits_total", &target);
    assert_eq!(credits, cost(SMALL, PROMPT, 40));
    assert_eq!(metrics.sum("tollgate_debits_total", &target), Decimal::ZERO);
}

#[tokio::test]
async fn what_is_no_answer_is_not_passed_on_however_late_that_shows() {
    let text = answer(30);
    let open = text.strip_suffix('}').unwrap();
    let cases = [
        (r#"{"error":{"message":"overloaded","code":503}}"#.to_owned(), 500),
        (
            format!(r#"{open},"error":{{"message":"overloaded","code":503}}}}"#),
            500,
        ),
        (format!(r#"{open},"error":{{"message":"slow down","code":429}}}}"#), 429),
        ("<!doctype html><title>502 Bad Gateway</title>".repeat(40), 500),
        (format!("{text}{text}"), 500),
        (format!("{open},}}"), 500),
        // Errors in words of the provider's own: there are no choices, or one of them is none.
        ("{}".to_owned(), 500),
        (r#"{"code":500,"msg":"SECRET","success":false}"#.to_owned(), 500),
        (
            r#"{"choices":null,"base_resp":{"status_code":1008,"status_msg":"SECRET"},"usage":{"prompt_tokens":9,"completion_tokens":0}}"#.to_owned(),
            500,
        ),
        (
            r#"{"choices":[{"error":{"code":502,"message":"SECRET"},"finish_reason":"error","message":{"content":""}}]}"#.to_owned(),
            500,
        ),
        (r#"{"object":"list","data":[]}"#.to_owned(), 500),
    ];
    for (body, status) in cases {
        for framed in FRAMINGS {
            let (first, second) = body.split_at(body.len() / 2);
            let reply = pieces(framed, body.len(), &[first, second]);
            let reply = if framed == Framed::Chunks {
                reply.end()
            } else {
                reply.close()
            };
            let main = Upstream::always(reply).await;
            let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
            let gateway = Setup::over(&main).spare(&spare).start().await;
            let failed = gateway.http1.post("/llm/chat", request(SMALL)).await;
            assert_eq!(failed.status, status, "{framed:?} {body}");
            assert!(!failed.text().contains("SECRET"), "{}", failed.text());
            assert_eq!(gateway.spent().await, Decimal::ZERO);
            gateway.h2c.post("/llm/chat", request(TWIN)).await.ok();
            assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn embeddings_that_break_off_are_502_and_free() {
    let body = json!({ "object": "list", "data": [{ "object": "embedding", "index": 0, "embedding": [0.25, -0.5] }],
        "model": "up", "usage": { "prompt_tokens": 5, "total_tokens": 5 } })
    .to_string();
    let cuts = (0..body.len()).map(|bytes| pieces(Framed::Length, body.len(), &[&body[..bytes]]).close());
    let upstream = Upstream::of(cuts.chain([Reply::embeddings(1, 5)])).await;
    let gateway = Gateway::over(&upstream).await;
    let ask = || {
        gateway.http1.post(
            "/llm/embeddings",
            json!({ "model": EMBED, "input": "Hello" }).to_string(),
        )
    };
    for _ in 0..body.len() {
        ask().await.error(502, "upstream_error");
    }
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    ask().await.ok();
    assert_eq!(gateway.spent().await, cost(EMBED, 5, 0));
    gateway.check_books().await;
}

#[tokio::test]
async fn embeddings_without_vectors_are_no_answer_and_free() {
    for body in [
        json!({ "code": 500, "msg": "SECRET" }),
        whole_chat("SECRET", Some((9, 1))),
    ] {
        let upstream = Upstream::always(Reply::json(&body)).await;
        let gateway = Gateway::over(&upstream).await;
        let asked = json!({ "model": EMBED, "input": "Hello" }).to_string();
        for client in [&gateway.http1, &gateway.h2c] {
            let failed = client.post("/llm/embeddings", asked.clone()).await;
            assert_eq!(failed.status, 500, "{body}");
            assert!(!failed.text().contains("SECRET"), "{}", failed.text());
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

/// Many clients take it. It is the provider's to send, and no part of the JSON.
#[tokio::test]
async fn an_answer_behind_a_byte_order_mark_is_billed_as_it_is_without_and_passes_with_it() {
    let body = answer(3);
    let own = format!("\u{feff}{body}");
    for framed in FRAMINGS {
        let reply = pieces(framed, own.len(), &["\u{feff}", &body]);
        let reply = match framed {
            Framed::Chunks => reply.end(),
            Framed::Length | Framed::UntilClosed => reply.close(),
        };
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", request(SMALL)).await.ok();
            assert_eq!(without_cost(answer.text()), own, "{framed:?}");
        }
        let (prompt, completion) = USAGE;
        assert_eq!(
            gateway.spent().await,
            cost(SMALL, 2 * prompt, 2 * completion),
            "{framed:?}"
        );
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_target_whose_answers_break_off_five_times_in_a_row_is_passed_over() {
    let main = Upstream::always(Reply::json_head(100).bytes("{").close()).await;
    let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..8 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (5, 8));
}

#[tokio::test]
async fn a_gathered_answer_leaves_at_its_end_with_its_length() {
    let body = answer(2_000);
    let (first, second) = body.split_at(5_000);
    let cue = Cue::new();
    let begun = |framed| pieces(framed, body.len() + 2, &["\n\n", first]).wait(&cue);
    for reply in [
        begun(Framed::Chunks).chunk(second).end(),
        begun(Framed::Length).bytes(second),
        begun(Framed::UntilClosed).bytes(second).close(),
    ] {
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        let mut raw = ask(&gateway, SMALL).await;
        upstream.asked(1).await;
        settled(&gateway).await;
        assert!(!raw.is_closed(), "nothing has left");
        cue.give();
        let got = raw.answer().await.ok();
        assert_eq!(got.header("content-length"), got.body.len().to_string());
        assert_eq!(without_cost(got.text()), format!("\n\n{body}"));
        assert_eq!(gateway.spent().await, cost(SMALL, USAGE.0, USAGE.1));
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_its_answer_is_gathered_owes_the_prompt() {
    let body = answer(300);
    for over_h2 in [false, true] {
        let upstream = Upstream::always(pieces(Framed::Length, body.len(), &[&body[..1_000]]).silence()).await;
        let gateway = Gateway::over(&upstream).await;
        let client = [&gateway.http1, &gateway.h2c][usize::from(over_h2)];
        tokio::select! {
            answer = client.post_request("/llm/chat", request(SMALL)).send() => panic!("an answer came: {answer:?}"),
            () = async { upstream.asked(1).await; settled(&gateway).await } => {}
        }
        upstream.hung_up().await;
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 0));
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_dropped_with_its_gateway_while_it_is_gathered_is_free() {
    let body = answer(300);
    let upstream = Upstream::always(pieces(Framed::Length, body.len(), &[&body[..1_000]]).silence()).await;
    let gateway = Gateway::over(&upstream).await;
    let raw = ask(&gateway, SMALL).await;
    upstream.asked(1).await;
    settled(&gateway).await;
    gateway.drop_requests();
    upstream.hung_up().await;
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    gateway.check_books().await;
    raw.close();
}

#[tokio::test]
async fn answers_of_every_size_and_in_any_pieces_leave_whole() {
    for bytes in [0, 1, 4_095, 4_096, 16_384, 65_536, 300_000] {
        let text = "x".repeat(bytes);
        let body = whole_chat(&text, Some(USAGE)).to_string();
        for size in [1_000, 5_000, 70_000] {
            let pieces = body.as_bytes().chunks(size);
            let reply = pieces
                .fold(head(Framed::Chunks, 0), |reply, piece| reply.chunk(piece))
                .end();
            let upstream = Upstream::always(reply).await;
            let gateway = Gateway::over(&upstream).await;
            for client in [&gateway.http1, &gateway.h2c] {
                let got: Answer = client.post("/llm/chat", request(SMALL)).await.ok();
                assert_eq!(got.header("content-length"), got.body.len().to_string());
                assert!(without_cost(got.text()) == body, "{bytes} in pieces of {size}");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_leaves_with_its_length() {
    let upstream = Upstream::always(Reply::refusal(400, &[], "temperature must be below 2")).await;
    let gateway = Gateway::over(&upstream).await;
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    let error: Value = answer.error(400, "invalid_request_error");
    assert_eq!(error["message"], "temperature must be below 2");
    assert_eq!(answer.header("content-length"), answer.body.len().to_string());
}
