//! JSON, as its head says, in the place of a stream: nobody could read it as one, so no head leaves before it is judged by what it says.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::stream_starts::{error_event, over, spare};
use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Raw, Reply, Setup, Upstream};

/// JSON with status 200.
fn json_of(body: &str) -> Reply {
    Reply::new(200, &[("content-type", "application/json; charset=utf-8")], body)
}

/// A whole answer with words that no client may see.
fn whole() -> String {
    whole_chat("overloaded with words", Some((9, 2))).to_string()
}

fn discarded(gateway: &Gateway) -> Decimal {
    gateway.metrics().sum("tollgate_discarded_answers_total", &[])
}

/// Whether another target could be waited for or not.
#[tokio::test]
async fn an_error_has_the_status_that_it_has_in_a_whole_answer() {
    for (code, status) in [
        (json!("context_length_exceeded"), 400),
        (json!("content_filter"), 400),
        (json!(400), 400),
        (json!(404), 404),
        (json!(413), 413),
        (json!(422), 422),
        (json!(429), 429),
        (json!(408), 502),
        (json!(401), 500),
        (json!(402), 500),
        (json!(529), 500),
        (Value::Null, 500),
    ] {
        let upstream = Upstream::always(json_of(&error_event(code.clone()))).await;
        for first_event_ms in [0, 1_000] {
            let setup =
                Setup::over(&upstream).conf(|conf| conf["timeouts"] = json!({ "first_event_ms": first_event_ms }));
            let gateway = setup.start().await;
            for client in [&gateway.http1, &gateway.h2c] {
                let whole = client.post("/llm/chat", request(SMALL)).await;
                let own = whole.json();
                let told = own["error"]["type"].as_str().unwrap();
                whole.error(status, told);
                for _ in 0..3 {
                    let streamed = client.post("/llm/chat", streaming(SMALL)).await;
                    streamed.error(status, told);
                    assert_eq!(
                        streamed.header("x-should-retry"),
                        whole.header("x-should-retry"),
                        "{code}"
                    );
                    assert!(!streamed.text().contains("verloaded"), "{}", streamed.text());
                }
            }
            assert_eq!(gateway.spent().await, Decimal::ZERO, "{code}");
            assert_eq!(gateway.usage().await, [], "{code}");
            gateway.counted(8).await;
            assert_eq!(
                discarded(&gateway),
                Decimal::ZERO,
                "{code}: who sends an error charges nothing"
            );
            if status < 429 {
                let open = gateway.metrics().sum("tollgate_breaker_open", &[("provider", "main")]);
                assert_eq!(open, Decimal::ZERO, "{code}: the target works");
            }
            gateway.check_books().await;
        }
    }
}

#[tokio::test]
async fn the_next_target_is_asked() {
    let half = whole().len() / 2;
    let broken = || Reply::json_head(whole().len()).bytes(&whole()[..half]);
    for (name, failure, is_charged) in [
        ("an error", json_of(&error_event(529)), false),
        ("one that says that it is busy", json_of(&error_event(429)), false),
        ("one that refuses the credential", json_of(&error_event(401)), false),
        (
            "one that goes on",
            Reply::json_head(5_000).bytes(error_event(503)).silence(),
            false,
        ),
        ("a whole answer", json_of(&whole()), true),
        ("it closes", broken().close(), true),
        ("it is reset", broken().reset(), true),
        ("it is silent", broken().silence(), true),
        ("nothing", json_of(""), true),
        ("events", json_of("data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), true),
    ] {
        println!("{name}");
        let (main, spare) = (Upstream::always(failure).await, spare().await);
        let gateway = over(&main, &spare).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", streaming(TWIN)).await.ok();
            assert_eq!(answer.header("content-type"), "text/event-stream");
            assert!(
                answer.text().contains("\"content\":\"Hi\""),
                "{name}: {}",
                answer.text()
            );
            assert!(answer.text().ends_with("data: [DONE]\n\n"), "{name}: {}", answer.text());
            assert!(!answer.text().contains("verloaded"), "{name}: {}", answer.text());
        }
        assert_eq!((main.seen().len(), spare.seen().len()), (2, 2), "{name}");
        assert_eq!(gateway.spent().await, cost(TWIN, 18, 2), "{name}");
        gateway.counted(2).await;
        assert_eq!(discarded(&gateway), Decimal::from(2 * u8::from(is_charged)), "{name}");
        let errors = [("provider", "main")];
        let errors = gateway.metrics().sum("tollgate_upstream_errors_total", &errors);
        assert_eq!(errors, Decimal::TWO, "{name}");
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_error_that_blames_the_request_is_its_status_though_another_target_is_left() {
    for code in [400, 404, 413, 422] {
        let (main, spare) = (
            Upstream::always(json_of(&error_event(code))).await,
            Upstream::unused().await,
        );
        let gateway = over(&main, &spare).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", streaming(TWIN)).await;
            assert_eq!((answer.status, answer.header("x-should-retry")), (code, "false"));
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

/// What it was used for is the operator's loss.
#[tokio::test]
async fn a_whole_answer_to_who_asked_for_a_stream_is_an_error_and_free() {
    let half = whole().len() / 2;
    for (reply, status) in [
        (json_of(&whole()), 500),
        (json_of("<html>overloaded</html>"), 500),
        (Reply::json_head(whole().len()).bytes(&whole()[..half]).close(), 502),
        (json_of(""), 502),
    ] {
        let upstream = Upstream::always(reply).await;
        let gateway = Gateway::over(&upstream).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", streaming(SMALL)).await;
            answer.error(status, "upstream_error");
            assert!(!answer.text().contains("overloaded"), "{}", answer.text());
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        assert_eq!(gateway.usage().await, []);
        gateway.counted(2).await;
        assert_eq!(discarded(&gateway), Decimal::TWO);
        gateway.check_books().await;
    }
    let upstream = Upstream::always(json_of(&whole())).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.http1.post("/llm/chat", streaming(SMALL)).await;
    gateway.counted(1).await;
    let credits = gateway.metrics().sum("tollgate_discarded_credits_total", &[]);
    assert_eq!(credits, cost(SMALL, 9, 2));
}

/// Its head leaves then, as that of a stream which does not begin.
#[tokio::test]
async fn an_error_that_takes_longer_than_an_answer_is_gathered_is_told_within_the_stream() {
    let (cue, error) = (Cue::new(), error_event(429));
    let (first, second) = error.split_at(error.len() / 2);
    let reply = Reply::json_head(error.len()).bytes(first).wait(&cue).bytes(second);
    let upstream = Upstream::always(reply).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"] = json!({ "whole_gather_ms": 40 }));
    let gateway = setup.start().await;
    let mut raw = Raw::posted(&gateway, "/llm/chat", &streaming(SMALL)).await;
    let head = raw.head().await;
    assert_eq!((head.status, head.header("content-type")), (200, "text/event-stream"));
    cue.give();
    let mut came = String::new();
    while !came.contains("[DONE]") {
        came.push_str(std::str::from_utf8(&raw.chunk().await).unwrap());
    }
    assert!(came.contains("\"code\":429") && !came.contains("verloaded"), "{came}");
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    gateway.check_books().await;
}
