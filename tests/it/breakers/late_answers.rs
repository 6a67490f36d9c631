//! Answers that are not streamed have a time of their own to begin.

use serde_json::json;

use super::*;

/// How long an answer is waited for.
const WITHIN_MS: u64 = 300;
/// How long one takes that does not begin within that.
const THINKS_FOR: Duration = Duration::from_millis(2 * WITHIN_MS);
const PATIENCE_MS: u64 = 20_000;

#[tokio::test]
async fn an_answer_that_is_not_streamed_has_a_time_of_its_own_to_begin() {
    for (stream_ms, whole_ms, stream_status, whole_status) in
        [(WITHIN_MS, PATIENCE_MS, 502, 200), (PATIENCE_MS, WITHIN_MS, 200, 502)]
    {
        let upstream = Upstream::by(|_, seen| match seen.json()["stream"].as_bool() {
            Some(true) => Reply::stream_of(&["Hi"], 9, 1).after(THINKS_FOR),
            _ => Reply::chat("Hi", 9, 1).after(THINKS_FOR),
        })
        .await;
        let setup = Setup::over(&upstream);
        let gateway = setup
            .conf(|conf| conf["timeouts"] = json!({ "first_byte_ms": stream_ms, "whole_first_byte_ms": whole_ms }))
            .start()
            .await;
        for (body, status) in [(streaming(SMALL), stream_status), (request(SMALL), whole_status)] {
            assert_eq!(gateway.http1.post("/llm/chat", body).await.status, status);
        }
        gateway.check_books().await;
    }
}
