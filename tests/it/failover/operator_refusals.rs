//! A refusal that speaks of the operator's key or account with the provider is no fault of the request, whatever its status: the next
//! target is asked, the operator is told, and the client reads none of it.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

const JSON: (&str, &str) = ("content-type", "application/json");
const CALLS: u64 = 4;

/// Refusals as providers write them, with their statuses.
fn refusals() -> Vec<(u16, Value)> {
    let google = |message: &str, details: Value| {
        let status = "INVALID_ARGUMENT";
        json!([{ "error": { "code": 400, "message": message, "status": status, "details": details } }])
    };
    let reason = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID" }]);
    let credit = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade.";
    let unverified =
        "Your organization must be verified to stream this model. Please go to: https://example.com/settings";
    let policy =
        "No endpoints found matching your data policy (Free model publication). Configure: https://example.com/privacy";
    let quota = "You exceeded your current quota, please check your plan and billing details.";
    let restricted = "Organization has been restricted. Please reach out to support.";
    let zhipu = "Insufficient balance or no resource package. Please recharge.";
    let limit = json!({ "error": { "message": "Billing hard limit has been reached", "type": "invalid_request_error",
        "param": null, "code": "billing_hard_limit_reached" } });
    let behind = json!({ "error": { "message": "API key expired. Please renew the API key." } }).to_string();
    vec![
        (400, google("Missing or invalid Authorization header.", json!([]))),
        (
            400,
            google("API key not valid. Please pass a valid API key.", json!([])),
        ),
        (400, google("Said in another language.", reason)),
        (400, google("API key expired. Please renew the API key.", json!([]))),
        (
            400,
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": credit } }),
        ),
        (402, json!({ "error": { "message": "Insufficient Balance" } })),
        (
            400,
            json!({ "error": { "message": restricted, "type": "invalid_request_error", "code": "organization_restricted" } }),
        ),
        (429, json!({ "error": { "code": "1113", "message": zhipu } })),
        (
            429,
            json!({ "error": { "code": "1113", "message": "余额不足或无可用资源包,请充值。" } }),
        ),
        (
            400,
            json!({ "error": { "message": unverified, "param": "stream", "code": "unsupported_value" } }),
        ),
        (404, json!({ "error": { "message": policy, "code": 404 } })),
        (
            429,
            json!({ "error": { "message": quota, "type": "insufficient_quota", "code": "insufficient_quota" } }),
        ),
        (
            429,
            json!({ "error": { "message": quota, "type": "insufficient_quota", "code": null } }),
        ),
        (400, limit.clone()),
        (429, limit),
        (
            400,
            json!({ "code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***" }),
        ),
        (
            400,
            json!({ "error": { "message": "Provider returned error", "code": 400, "metadata": { "raw": behind } } }),
        ),
    ]
}

/// How many targets of this provider refuse the gateway's credential or account.
fn refused(gateway: &Gateway, provider: &str) -> Decimal {
    let metrics = gateway.metrics();
    metrics.sum("tollgate_credential_refused", &[("provider", provider)])
}

/// An upstream that answers, whole or streamed.
async fn answering() -> Upstream {
    Upstream::by(|_, seen| match seen.json()["stream"] {
        Value::Bool(true) => Reply::stream_of(&["Hi"], 9, 1),
        _ => Reply::chat("Hi", 9, 1),
    })
    .await
}

/// Each call, whole and streamed, over a model whose first target gives this reply, is answered by the second.
async fn check_next_target(reply: Reply) {
    let (main, spare) = (Upstream::always(reply).await, answering().await);
    let setup = Setup::over(&main).spare(&spare);
    let gateway = setup
        .conf(|conf| conf["timeouts"]["idle_ms"] = 300.into())
        .start()
        .await;
    for client in [&gateway.http1, &gateway.h2c] {
        client.post("/llm/chat", request(TWIN)).await.ok();
        let events = client.stream("/llm/chat", streaming(TWIN)).await.ok().rest().await;
        assert_eq!(events.last().unwrap(), "[DONE]");
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (4, 4));
    let figures = (refused(&gateway, "main"), refused(&gateway, "spare"));
    assert_eq!(figures, (Decimal::ONE, Decimal::ZERO));
    gateway.counted(CALLS).await;
    let failovers = gateway.metrics().sum("tollgate_failovers_total", &[]);
    assert_eq!(failovers, Decimal::from(CALLS));
    assert_eq!(gateway.spent().await, cost(TWIN, 9 * CALLS, CALLS));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_refusal_of_the_operators_key_or_account_is_tried_elsewhere_and_alarms() {
    for (status, body) in refusals() {
        println!("{status} {body}");
        check_next_target(Reply::new(status, &[JSON], body.to_string())).await;
    }
}

#[tokio::test]
async fn one_that_does_not_end_is_decided_by_what_came_of_it() {
    let words = json!({ "error": { "message": "API key not valid." } }).to_string();
    for status in [400, 429] {
        let head = format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n");
        let begun = || Reply::default().bytes([head.as_str(), words.as_str()].concat());
        check_next_target(begun().close()).await;
        check_next_target(begun().silence()).await;
    }
}

#[tokio::test]
async fn without_another_target_the_client_is_told_what_a_403_is_told() {
    let failed =
        json!({ "error": { "code": 500, "message": "The model's provider failed.", "type": "upstream_error" } });
    let forbidden = (403, json!({ "error": { "message": "Forbidden" } }));
    for (status, body) in refusals().into_iter().chain([forbidden]) {
        println!("{status} {body}");
        let main = Upstream::always(Reply::new(status, &[JSON], body.to_string())).await;
        let gateway = Gateway::over(&main).await;
        for client in [&gateway.http1, &gateway.h2c] {
            for body in [request(SMALL), streaming(SMALL)] {
                let answer = client.post("/llm/chat", body).await;
                answer.error(500, "upstream_error");
                assert_eq!(answer.json(), failed);
                assert_eq!(answer.header("x-should-retry"), "false", "only the operator can help");
                assert_eq!(answer.header("retry-after"), "");
            }
        }
        gateway.counted(CALLS).await;
        let kind = [("kind", "status_401_403")];
        let failures = gateway.metrics().sum("tollgate_upstream_errors_total", &kind);
        assert_eq!(failures, Decimal::from(if status == 402 { 0 } else { CALLS }));
        assert_eq!(refused(&gateway, "main"), Decimal::ONE);
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

/// Behind the head of a stream the number in an error event says no more than a status does: such words count before it.
#[tokio::test]
async fn within_a_stream_such_words_alarm_and_blame_no_request() {
    // One of them says so by its status alone, which a stream has not.
    for (_, body) in refusals().into_iter().filter(|(status, _)| *status != 402) {
        println!("{body}");
        let event = body.to_string();
        let main = Upstream::always(Reply::stream().role().text("Hello").event(&event).end()).await;
        let gateway = Gateway::over(&main).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat/stream", request(SMALL)).await.ok();
            let text = answer.text();
            let told = "\"error\":{\"code\":502,";
            assert!(text.contains("Hello") && text.contains(told), "{text}");
        }
        gateway.counted(2).await;
        let kind = [("kind", "status_401_403")];
        let failures = gateway.metrics().sum("tollgate_upstream_errors_total", &kind);
        assert_eq!(failures, Decimal::TWO);
        assert_eq!(refused(&gateway, "main"), Decimal::ONE);
        gateway.check_books().await;

        // Before its first event another target is asked.
        let main = Upstream::always(Reply::stream().event(&event).end()).await;
        let spare = answering().await;
        let setup = Setup::over(&main).spare(&spare);
        let gateway = setup
            .conf(|conf| conf["timeouts"]["first_event_ms"] = 60_000.into())
            .start()
            .await;
        let events = gateway.http1.stream("/llm/chat", streaming(TWIN)).await.ok();
        assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
        assert_eq!((main.seen().len(), spare.seen().len()), (1, 1));
        assert_eq!(refused(&gateway, "main"), Decimal::ONE);
    }
}

#[tokio::test]
async fn a_retry_may_help_where_one_target_failed_otherwise() {
    let refuses = || Reply::new(401, &[JSON], r#"{"error":{"message":"Unauthorized"}}"#);
    for (main, spare, hint) in [
        (refuses(), refuses(), "false"),
        (refuses(), Reply::status(500), ""),
        (Reply::status(500), refuses(), ""),
    ] {
        let (main, spare) = (Upstream::always(main).await, Upstream::always(spare).await);
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for body in [request(TWIN), streaming(TWIN)] {
            let answer = gateway.http1.post("/llm/chat", body).await;
            answer.error(500, "upstream_error");
            assert_eq!(answer.header("x-should-retry"), hint);
        }
        assert_eq!((main.seen().len(), spare.seen().len()), (2, 2));
    }
}

#[tokio::test]
async fn its_breaker_opens_as_by_a_403() {
    let words = json!({ "error": { "message": "API key not valid." } }).to_string();
    let (main, spare) = (
        Upstream::always(Reply::new(400, &[JSON], words)).await,
        answering().await,
    );
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..8 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (5, 8));
}

/// It was taken for the operator's: a prompt rang the alarm, shut its target for others, and its client was told 500.
#[tokio::test]
async fn a_403_for_what_the_request_says_is_the_clients() {
    let told = "The model's provider refused the request for its content.";
    let moderated = json!({ "error": { "code": 403, "message": "SECRET requires moderation on OpenAI. Your input was flagged for \"violence\".",
        "metadata": { "reasons": ["violence"], "flagged_input": "SECRET", "provider_name": "OpenAI" } } });
    let violates = json!({ "code": "The caller does not have permission to execute the specified operation",
        "error": "Content violates usage guidelines. Team: SECRET, API key ID: SECRET, Failed check: SAFETY_CHECK_TYPE_BIO" });
    let filtered = json!({ "error": { "message": "SECRET", "code": "content_filter" } });
    for words in [moderated, violates, filtered] {
        println!("{words}");
        let main = Upstream::always(Reply::new(403, &[JSON], words.to_string())).await;
        let spare = Upstream::unused().await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for client in [&gateway.http1, &gateway.h2c] {
            for body in [request(TWIN), streaming(TWIN), request(TWIN)] {
                let answer = client.post("/llm/chat", body).await;
                assert_eq!(answer.error(400, "invalid_request_error")["message"], told);
                assert!(!answer.text().contains("SECRET"));
            }
        }
        assert_eq!(
            (main.seen().len(), spare.seen().len()),
            (6, 0),
            "its breaker stays closed"
        );
        assert_eq!(refused(&gateway, "main"), Decimal::ZERO);
        check_content_refused(&gateway, 6).await;

        // The same behind the head of a stream.
        let event = words.to_string();
        let main = Upstream::always(Reply::stream().role().event(&event).end()).await;
        let gateway = Gateway::over(&main).await;
        let answer = gateway.http1.post("/llm/chat/stream", request(SMALL)).await.ok();
        assert!(answer.text().contains("\"error\":{\"code\":400,"), "{}", answer.text());
        check_content_refused(&gateway, 1).await;
        gateway.check_books().await;

        // And in the place of a whole answer.
        let main = Upstream::always(Reply::json(&words)).await;
        let gateway = Gateway::over(&main).await;
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(400, "invalid_request_error");
        check_content_refused(&gateway, 1).await;
        gateway.check_books().await;
    }
}

/// So many calls are over, and each was refused for what it says.
async fn check_content_refused(gateway: &Gateway, calls: u64) {
    gateway.counted(calls).await;
    let kind = [("kind", "content_refused")];
    let refused = gateway.metrics().sum("tollgate_upstream_errors_total", &kind);
    assert_eq!(refused, Decimal::from(calls));
}

/// Its words have the operator's organization in them, and another target's limit may be higher.
#[tokio::test]
async fn a_limit_by_time_that_comes_as_413_is_tried_elsewhere() {
    let words = json!({ "error": { "message": "Request too large for model `m` in organization `org_SECRET` on tokens per minute (TPM): \
        Limit 6000, Requested 12328", "type": "tokens", "code": "rate_limit_exceeded" } });
    let too_large = || Reply::new(413, &[JSON], words.to_string());
    let (main, spare) = (Upstream::always(too_large()).await, answering().await);
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..8 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    // One account's long prompts pass the target over for nobody.
    assert_eq!((main.seen().len(), spare.seen().len()), (8, 8));
    assert_eq!(refused(&gateway, "main"), Decimal::ZERO);
    gateway.check_books().await;

    let main = Upstream::always(too_large()).await;
    let gateway = Gateway::over(&main).await;
    for body in [request(SMALL), streaming(SMALL)] {
        let answer = gateway.http1.post("/llm/chat", body).await;
        answer.error(429, "rate_limit_error");
        assert!(!answer.text().contains("SECRET"));
    }
    assert_eq!(gateway.spent().await, Decimal::ZERO);
}

#[tokio::test]
async fn a_refusal_that_repeats_such_words_of_the_client_is_the_clients() {
    let phrase = "API key not valid. Please pass a valid API key.";
    let quoted = format!("\"{phrase}\" is not one of: system, user, assistant");
    let behind = format!("role: {phrase}");
    let extra = "Extra inputs are not permitted";
    for (body, message) in [
        (
            json!({ "error": { "message": quoted, "code": "invalid_value", "param": "insufficient_quota" } }),
            &quoted,
        ),
        (
            json!([{ "error": { "message": behind, "details": [{ "field": "API_KEY_INVALID" }] } }]),
            &behind,
        ),
        (
            json!({ "detail": [{ "loc": [phrase], "msg": extra }] }),
            &format!("{phrase}: {extra}"),
        ),
    ] {
        let main = Upstream::always(Reply::new(400, &[JSON], body.to_string())).await;
        let spare = Upstream::unused().await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for client in [&gateway.http1, &gateway.h2c] {
            for body in [request(TWIN), streaming(TWIN)] {
                let answer = client.post("/llm/chat", body).await;
                assert_eq!(&answer.error(400, "invalid_request_error")["message"], message);
            }
        }
        assert_eq!((main.seen().len(), spare.seen().len()), (4, 0));
        assert_eq!(refused(&gateway, "main"), Decimal::ZERO);
        assert_eq!(gateway.spent().await, Decimal::ZERO);
    }
}
