//! A target that has failed is passed over, at almost no cost, and found again.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{request, streaming};
use crate::harness::broken::BlackHole;
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::metrics::Metrics;
use crate::harness::operator::Process;
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream, eventually};

mod late_answers;
mod refusals;
mod unread;
mod whole_answers;

#[tokio::test]
async fn after_five_failures_in_a_row_a_target_is_passed_over_for_ten_seconds() {
    // One that asks for no pause has failed as any other.
    for refused in [Reply::status(500), Reply::refusal(503, &[("retry-after", "0")], "x")] {
        let main = Upstream::always(refused).await;
        let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for _ in 0..8 {
            gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        }
        assert_eq!((main.seen().len(), spare.seen().len()), (5, 8));
        gateway.clock.advance(9_999);
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(main.seen().len(), 5);
        gateway.clock.advance(1);
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(main.seen().len(), 6, "it is tried again");
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        assert!(
            answer.status >= 500,
            "a model of the same provider is asked for: {answer:?}"
        );
        assert_eq!(main.seen().len(), 7);
    }
}

#[tokio::test]
async fn a_retry_after_opens_the_breaker_for_as_long_as_it_says() {
    for said in [
        ("retry-after", "30"),
        ("retry-after", "29.5"),
        ("retry-after", "Fri, 20 Nov 2026 10:00:30 GMT"),
        ("retry-after-ms", "29001"),
    ] {
        let main = Upstream::of([Reply::refusal(429, &[said], "x"), Reply::chat("Hi", 9, 1)]).await;
        let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for (pause, from_main, from_spare) in [(0, 1, 1), (29_999, 1, 2), (1, 2, 2), (0, 3, 2)] {
            gateway.clock.advance(pause);
            gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
            let seen = (main.seen().len(), spare.seen().len());
            assert_eq!(seen, (from_main, from_spare), "{said:?}");
        }
    }
}

#[tokio::test]
async fn when_every_target_is_down_the_least_bad_is_tried() {
    let main = Upstream::always(Reply::refusal(429, &[("retry-after", "60")], "x")).await;
    let spare = Upstream::of([
        Reply::refusal(429, &[("retry-after", "30")], "x"),
        Reply::chat("Hi", 9, 1),
    ])
    .await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    gateway
        .http1
        .post("/llm/chat", request(TWIN))
        .await
        .error(429, "rate_limit_error");
    gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    assert_eq!((main.seen().len(), spare.seen().len()), (1, 2));
}

#[tokio::test]
async fn a_refusal_by_the_client_itself_keeps_the_breaker_closed() {
    let main = Upstream::always(Reply::refusal(400, &[], "bad")).await;
    let spare = Upstream::unused().await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..10 {
        gateway
            .http1
            .post("/llm/chat", request(TWIN))
            .await
            .error(400, "invalid_request_error");
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (10, 0));
}

/// What has come of a stream, and an error event of this code as its end.
fn with_error(begun: Reply, code: impl Into<Value>) -> Reply {
    let code: Value = code.into();
    let error = json!({ "error": { "message": "Overloaded", "type": "overloaded_error", "code": code } });
    begun.event(&error.to_string()).end()
}

fn breaker_of_main(metrics: &Metrics) -> Decimal {
    let labels = [("provider", "main"), ("upstream_model", "up-twin")];
    metrics.sum("tollgate_breaker_open", &labels)
}

/// Their heads counted as answers: each ended the row of failures, so all clients were sent there for as long as it failed.
#[tokio::test]
async fn after_five_streams_in_a_row_that_fail_behind_their_head_a_target_is_passed_over() {
    let role = || Reply::stream().role();
    for (name, reply) in [
        ("it closes behind the head", Reply::stream().close()),
        ("it ends without an event", Reply::stream().end()),
        ("an error event", with_error(Reply::stream(), 529)),
        ("one without a code", with_error(Reply::stream(), Value::Null)),
        ("one that says that it is busy", with_error(Reply::stream(), 429)),
        ("a role, and an error event", with_error(role(), 529)),
        ("a role, and it closes", role().close()),
        ("a role, and its end", role().end()),
        ("a text, and an error event", with_error(role().text("Hello"), 529)),
        ("a text, and it closes", role().text("Hello").close()),
    ] {
        let main = Upstream::always(reply).await;
        let spare = Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        for call in 0..8 {
            let answer = gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
            let text = answer.text();
            assert!(call < 5 || !text.contains("\"error\""), "{name}, call {call}: {text}");
        }
        assert_eq!(main.seen().len(), 5, "{name}");
        assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE, "{name}");
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_stream_that_comes_to_its_end_ends_a_row_of_failures() {
    let main = Upstream::by(|number, _| match number % 5 {
        4 => Reply::stream_of(&["Hi"], 9, 1),
        _ => with_error(Reply::stream().role(), 529),
    })
    .await;
    let spare = Upstream::unused().await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..14 {
        gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (14, 0));
    assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ZERO);
}

/// It was a complete answer to metrics and access log, and no error of its provider.
#[tokio::test]
async fn a_stream_that_ends_with_an_error_event_has_failed_or_was_refused() {
    for (code, outcome, kind) in [
        (Value::Null, "upstream_failed", Some("status_5xx")),
        (json!(529), "upstream_failed", Some("status_5xx")),
        (json!(429), "upstream_failed", Some("status_429")),
        (json!(400), "refused", None),
        (json!(404), "refused", None),
        (json!(413), "refused", None),
        (json!(422), "refused", None),
    ] {
        let main = Upstream::always(with_error(Reply::stream().role(), code.clone())).await;
        let mut gateway = Gateway::over(&main).await;
        let calls = 6;
        for _ in 0..calls {
            gateway.http1.post("/llm/chat", streaming(SMALL)).await.ok();
        }
        gateway.counted(calls).await;
        let metrics = gateway.metrics();
        let of_outcome = [("status", "200"), ("outcome", outcome)];
        assert_eq!(
            metrics.sum("tollgate_requests_total", &of_outcome),
            calls.into(),
            "{code}"
        );
        let errors = |labels: &[(&str, &str)]| metrics.sum("tollgate_upstream_errors_total", labels);
        let of_kind = kind.map_or(Decimal::ZERO, |kind| errors(&[("provider", "main"), ("kind", kind)]));
        let expected = if kind.is_some() { calls } else { 0 };
        assert_eq!((of_kind, errors(&[])), (expected.into(), expected.into()), "{code}");
        assert_eq!(gateway.spent().await, Decimal::ZERO, "{code}");
        let lines = gateway.access_log();
        let told = format!("\"outcome\":\"{outcome}\"");
        assert!(lines.iter().all(|line| line.contains(&told)), "{code}: {lines:?}");
    }
}

#[tokio::test]
async fn an_error_event_that_the_request_is_to_blame_for_keeps_the_breaker_closed() {
    let main = Upstream::always(with_error(Reply::stream().role(), 400)).await;
    let spare = Upstream::unused().await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..10 {
        gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (10, 0));
    assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ZERO);
}

/// Nothing of it has left: its status is what the client gets, and whether the target works it does not say.
#[tokio::test]
async fn an_error_event_at_a_streams_start_that_the_request_is_to_blame_for_ends_no_row_of_failures() {
    let main = Upstream::by(|number, _| match number % 5 {
        4 => with_error(Reply::stream(), 400),
        _ => with_error(Reply::stream(), 529),
    })
    .await;
    let spare = Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for number in 0..14 {
        let status = if number == 4 { 400 } else { 200 };
        let answer = gateway.http1.post("/llm/chat", streaming(TWIN)).await;
        assert_eq!(answer.status, status, "{number}: {}", answer.text());
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (6, 13));
    assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE);
}

/// Makes all the calls, some at once, while twenty seconds pass, so that the target is tried again in between.
async fn calls(gateway: &Arc<Gateway>) {
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let gateway = Arc::clone(gateway);
        callers.spawn(async move {
            for _ in 0..CALLS / AT_ONCE {
                gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
                gateway.clock.advance(20);
            }
        });
    }
    callers.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_in_a_black_hole_costs_a_thousand_calls_less_than_5_percent_and_is_found_again() {
    let hole = BlackHole::new().await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1).after(THINKS)).await;
    let provider = json!({ "base_url": hole.base_url(), "api_key_env": "SET_MAIN" });
    let setup = Setup::over(&spare).spare(&spare).provider("main", provider);
    let setup = setup.tier(tollgate::pure::ids::Tier::Enterprise);
    let gateway = setup.conf(|conf| conf["timeouts"] = json!({ "connect_ms": CONNECT.as_millis() as u64 }));
    let gateway = Arc::new(gateway.start().await);

    calls(&gateway).await;
    // Each call that goes to the black hole waits there for as long as a connection may take. Counted, not timed: what a busy machine
    // adds to the calls is not the breaker's.
    gateway.counted(CALLS as u64).await;
    let waited = gateway.metrics().sum("tollgate_failovers_total", &[]);
    let added = waited * Decimal::from(CONNECT.as_millis());
    let whole = Decimal::from(THINKS.as_millis()) * Decimal::from(CALLS);
    println!("{waited} of {CALLS} calls waited: {added} ms added to {whole} ms");
    assert!(waited >= 5.into(), "the target is tried until its breaker opens");
    assert!(added * Decimal::from(20) < whole, "{added} ms added to {whole} ms");
    assert_eq!(spare.seen().len(), CALLS);

    let main = hole.returns(Reply::chat("Hi", 9, 1)).await;
    gateway.clock.advance(10_000);
    for _ in 0..3 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    assert_eq!(
        (main.seen().len(), spare.seen().len()),
        (3, CALLS),
        "found within its cool-down"
    );
    assert_eq!(gateway.spent().await, cost(TWIN, 9 * 1_003, 1_003));
}

#[tokio::test]
async fn one_call_at_a_time_finds_out_whether_a_target_is_back() {
    let cue = Cue::new();
    let probed = Reply::chat("Hi", 9, 1).once(&cue);
    let main = Upstream::of((0..5).map(|_| Reply::status(500)).chain([probed])).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..5 {
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    }
    gateway.clock.advance(10_000);
    let calls = (0..20).map(|_| gateway.http1.post("/llm/chat", request(TWIN)));
    let answered = async {
        eventually("the others went elsewhere", async || {
            (spare.seen().len() == 5 + 19).then_some(())
        })
        .await;
        cue.give_all();
    };
    let (answers, ()) = futures::join!(futures::future::join_all(calls), answered);
    for answer in answers {
        answer.ok();
    }
    assert_eq!(main.seen().len(), 6, "one of the twenty went there");
    gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    assert_eq!(main.seen().len(), 7, "and then the next");
}

const CALLS: usize = 1_000;
const AT_ONCE: usize = 5;
/// How long the upstream takes for an answer: a twentieth of what a language model takes, as is the time to connect of its default.
const THINKS: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_start_without_the_credentials_of_its_providers_is_an_alarm_on_the_status_page() {
    let upstream = Upstream::unused().await;
    let alarms = async |is_set: bool| {
        let process = Process::start(&upstream, |conf| {
            for provider in ["main", "spare"].into_iter().filter(|_| !is_set) {
                conf["providers"][provider]["api_key_env"] = json!("TOLLGATE_TEST_NEVER_SET");
            }
        })
        .await;
        process.admin.get("//status.json").await.json()["alarms"].clone()
    };
    assert_eq!(alarms(true).await, json!([]));
    assert_eq!(alarms(false).await, json!(["no model is on sale: every call gets 404"]));
}

#[tokio::test]
async fn a_provider_that_refuses_the_gateways_own_credential_is_an_alarm_until_it_takes_it() {
    let refusals = [401, 402, 403].map(|status| Reply::refusal(status, &[], "Incorrect API key"));
    let answers = refusals.into_iter().chain([Reply::chat("Hi", 9, 1)]);
    let upstream = Upstream::of(answers).await;
    let process = Process::start(&upstream, |_| ()).await;
    let log = || std::fs::read_to_string(process.path("log")).unwrap();
    let figures = async || {
        let metrics = Metrics::read(process.admin.get("//metrics").await.text());
        let status = process.admin.get("//status.json").await.json();
        let alarms = status["alarms"].to_string();
        (
            metrics.sum("tollgate_credential_refused", &[("provider", "main")]),
            alarms.contains("main refuses the gateway's own credential for up-small"),
        )
    };
    assert_eq!(figures().await, (Decimal::ZERO, false));
    for _ in 0..3 {
        let answer = process.client.post("/llm/chat", request(SMALL)).await;
        assert_eq!(answer.status, 500, "{}", answer.text());
        assert_eq!(figures().await, (Decimal::ONE, true));
    }
    let told = log().lines().filter(|line| line.contains(" ERROR ")).count();
    assert_eq!(told, 1, "{}", log());
    process.client.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(figures().await, (Decimal::ZERO, false));
    assert!(
        log().contains("main takes the gateway's credential for up-small again"),
        "{}",
        log()
    );
}
