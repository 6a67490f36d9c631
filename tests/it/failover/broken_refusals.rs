//! A refusal whose words break off or do not end is a refusal all the same: the client gets its status, and no other target is asked.

use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::{request, streaming};
use crate::harness::catalogue::TWIN;
use crate::harness::{Reply, Setup, Upstream};

/// What the client is told where the provider's own words cannot be read.
const OURS: &str = "The model's provider refused the request.";
const CALLS: usize = 4;

/// The head of a refusal of 5,000 bytes, and these of them.
fn begun(words: &str) -> Reply {
    let head = "HTTP/1.1 422 No\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n";
    Reply::default().bytes([head, words].concat())
}

/// Each call that is refused so, whole and streamed, gets the status and this message, costs nothing, and is no failure of its target.
async fn check(refusal: Reply, message: &str) {
    let main = Upstream::always(refusal).await;
    let spare = Upstream::unused().await;
    let setup = Setup::over(&main).spare(&spare);
    let gateway = setup
        .conf(|conf| conf["timeouts"]["idle_ms"] = 300.into())
        .start()
        .await;
    for client in [&gateway.http1, &gateway.h2c] {
        for body in [request(TWIN), streaming(TWIN)] {
            let answer = client.post("/llm/chat", body).await;
            assert_eq!(answer.error(422, "invalid_request_error")["message"], message);
            assert_eq!(answer.header("x-should-retry"), "false");
        }
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (CALLS, 0));
    gateway.counted(CALLS as u64).await;
    for failures in ["tollgate_upstream_errors_total", "tollgate_failovers_total"] {
        assert_eq!(gateway.metrics().sum(failures, &[]), Decimal::ZERO, "{failures}");
    }
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    assert_eq!(gateway.usage().await, []);
    gateway.check_books().await;
}

#[tokio::test]
async fn a_refusal_that_is_longer_than_what_is_read_of_it_is_a_refusal() {
    let words = json!({ "error": { "message": "x".repeat(100_000) } }).to_string();
    check(Reply::new(422, &[("content-type", "application/json")], words), OURS).await;
}

#[tokio::test]
async fn a_refusal_that_breaks_off_is_a_refusal() {
    check(begun(&"x".repeat(100)).close(), OURS).await;
    check(begun(r#"{"error":{"message":"not"#).close(), OURS).await;
    check(begun("").close(), OURS).await;
    let words = r#"{"error":{"message":"not like this"}}"#;
    check(begun(words).close(), "not like this").await;
}

#[tokio::test]
async fn a_refusal_that_stops_coming_is_a_refusal() {
    check(begun(r#"{"error":{"message":"not"#).silence(), OURS).await;
}
