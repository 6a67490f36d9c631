//! Metrics and the access log: what they say is what was done.

mod told;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::Value;

use self::told::{check_told, faulty, mixed_load};
use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN};
use crate::harness::metrics::Metrics;
use crate::harness::operator::Process;
use crate::harness::{Cue, Gateway, KeySpec, Raw, Reply, Setup, Upstream, eventually};

/// The fields of the access log, in their order.
const FIELDS: [&str; 18] = [
    "time",
    "request_id",
    "route",
    "status",
    "outcome",
    "reason",
    "account",
    "key_id",
    "model",
    "provider",
    "upstream_model",
    "attempts",
    "prompt_tokens",
    "completion_tokens",
    "cost",
    "duration_ms",
    "first_event_ms",
    "overhead_ms",
];

/// A line's figure, exactly as it is written; nothing for null.
fn figure(line: &str, name: &str) -> Option<Decimal> {
    let object: HashMap<String, Box<serde_json::value::RawValue>> = serde_json::from_str(line).unwrap();
    let text = object[name].get();
    (text != "null").then(|| text.parse().unwrap())
}

#[tokio::test]
async fn metrics_access_log_usage_and_ledger_agree_after_a_mixed_load_with_faults() {
    let answer = |number: usize, seen: &crate::harness::upstream::Seen| {
        let body = seen.json();
        match body.get("input") {
            Some(_) => Reply::embeddings(2, 4),
            None => faulty(number, body["stream"] == Value::Bool(true)),
        }
    };
    let (main, spare) = (Upstream::by(answer).await, Upstream::by(answer).await);
    let mut gateway = Setup::over(&main).spare(&spare).start().await;
    let other = gateway.new_key(KeySpec::default()).await;
    let told = mixed_load(&gateway, &other).await;
    let sent = told.len() as u64;
    gateway.counted(sent).await;
    gateway.check_books().await;

    let (rows, spent) = (gateway.usage().await, gateway.spent().await);
    let usage = gateway.http1.get("/llm/usage?period=all").await.ok();
    gateway.counted(sent + 1).await;
    let metrics = gateway.metrics();
    let lines = gateway.access_log();
    assert!(
        spent > Decimal::ZERO && rows.len() >= 4,
        "the load was too small: {rows:?}"
    );

    check_told(&told, &lines, &metrics);
    // The access log has a line for each request, and each line has all fields.
    assert_eq!(lines.len() as u64, sent + 1);
    for line in &lines {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value.as_object().unwrap().len(), FIELDS.len());
        FIELDS
            .iter()
            .for_each(|name| assert!(value.get(*name).is_some(), "{name}: {line}"));
        assert!(
            !line.contains("Hello") && !line.contains(&gateway.key) && !line.contains(&other),
            "{line}"
        );
    }
    let of = |model: &str| {
        let model = format!("\"model\":\"{model}\"");
        lines.iter().filter(move |line| line.contains(&model)).cloned()
    };
    let sum = |lines: &mut dyn Iterator<Item = String>, name: &str| -> Decimal {
        lines.filter_map(|line| figure(&line, name)).sum()
    };

    // By model: ledger, metrics and access log.
    for row in &rows {
        let model = row.model.as_str();
        let cost = crate::harness::gateway::decimal(row.cost);
        for (kind, field, tokens) in [
            ("prompt", "prompt_tokens", row.prompt_tokens),
            ("completion", "completion_tokens", row.completion_tokens),
        ] {
            assert_eq!(
                metrics.sum("tollgate_tokens_total", &[("model", model), ("type", kind)]),
                tokens.into(),
                "{model}"
            );
            assert_eq!(sum(&mut of(model), field), tokens.into(), "{model}");
        }
        assert_eq!(
            metrics.sum("tollgate_debited_credits_total", &[("model", model)]),
            cost,
            "{model}"
        );
        assert_eq!(sum(&mut of(model), "cost"), cost, "{model}");
        assert_eq!(
            metrics.sum("tollgate_debits_total", &[("model", model)]),
            row.requests.into(),
            "{model}"
        );
    }

    // In all: balance, usage as the client sees it, metrics, access log.
    assert_eq!(metrics.sum("tollgate_debited_credits_total", &[]), spent);
    assert_eq!(sum(&mut lines.iter().cloned(), "cost"), spent);
    assert_eq!(usage.number("total_cost").parse::<Decimal>().unwrap(), spent);
    let tokens = metrics.sum("tollgate_tokens_total", &[]);
    assert_eq!(usage.number("total_tokens").parse::<Decimal>().unwrap(), tokens);

    // Every request is counted once, under the status that stands in its line.
    assert_eq!(metrics.sum("tollgate_requests_total", &[]), (sent + 1).into());
    for status in ["200", "401", "422", "429", "500", "502"] {
        let logged = lines
            .iter()
            .filter(|line| line.contains(&format!("\"status\":{status},")))
            .count() as u64;
        assert_eq!(
            metrics.sum("tollgate_requests_total", &[("status", status)]),
            logged.into(),
            "{status}"
        );
    }
    let reasons = lines
        .iter()
        .filter(|line| line.contains("\"reason\":\"key_invalid\""))
        .count() as u64;
    assert_eq!(
        metrics.sum("tollgate_denials_total", &[("reason", "key_invalid")]),
        reasons.into()
    );
    assert!(metrics.sum("tollgate_failovers_total", &[("model", TWIN)]) > Decimal::ZERO);
    assert!(metrics.sum("tollgate_upstream_errors_total", &[("kind", "status_5xx")]) > Decimal::ZERO);
    // Nothing is under way or held any more.
    for gauge in [
        "tollgate_calls_in_flight",
        "tollgate_holds_open",
        "tollgate_held_credits",
        "tollgate_requests_in_flight",
    ] {
        assert_eq!(metrics.sum(gauge, &[]), Decimal::ZERO, "{gauge}");
    }
}

#[tokio::test]
async fn no_label_comes_from_a_caller() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = Gateway::over(&upstream).await;
    for model in ["evil/model", "x\"} 1\n", ""] {
        gateway.http1.post("/llm/chat", request(model)).await;
    }
    gateway.http1.get("/llm/evil").await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    gateway.counted(5).await;
    let metrics = gateway.metrics();
    let models = metrics.values("tollgate_requests_total", "model");
    assert!(models.iter().all(|model| ["", SMALL].contains(model)), "{models:?}");
    assert_eq!(
        metrics.sum("tollgate_denials_total", &[("reason", "not_found")]),
        3.into()
    );
    let lines = gateway.access_log();
    assert!(lines.iter().all(|line| !line.contains("evil")), "{lines:?}");
}

#[tokio::test]
async fn times_of_a_call_are_counted_once() {
    let upstream = Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway
        .http1
        .stream("/llm/chat", streaming(SMALL))
        .await
        .ok()
        .rest()
        .await;
    gateway.counted(1).await;
    let metrics = gateway.metrics();
    for name in [
        "gen_ai_server_request_duration_seconds",
        "gen_ai_server_time_to_first_token_seconds",
    ] {
        let labels = [
            ("gen_ai_request_model", SMALL),
            ("gen_ai_operation_name", "chat"),
            ("gen_ai_provider_name", "main"),
        ];
        assert_eq!(metrics.sum(&format!("{name}_count"), &labels), 1.into());
        let seconds = metrics.sum(&format!("{name}_sum"), &labels);
        assert!(seconds > Decimal::ZERO && seconds < 20.into(), "{name}: {seconds}");
    }
    assert_eq!(
        metrics.sum("tollgate_overhead_seconds_count", &[("route", "chat")]),
        1.into()
    );
}

#[tokio::test]
async fn waiting_for_a_body_that_never_came_is_not_the_gateways_own_time() {
    let upstream = Upstream::unused().await;
    let begun = async |gateway: &Gateway| {
        let fields = "HTTP/1.1\r\nhost: x\r\nexpect: 100-continue";
        let mut raw = Raw::posted_as(gateway, "/llm/chat", fields, 100, "").await;
        assert_eq!(raw.head().await.status, 100);
        (raw, Instant::now())
    };
    let check_told = |gateway: &mut Gateway, status: u16| {
        let lines = gateway.access_log();
        let mut of_status = lines
            .iter()
            .filter(|line| line.contains(&format!("\"status\":{status},")));
        let line = of_status.next().unwrap();
        let [all, own] = ["duration_ms", "overhead_ms"].map(|name| figure(line, name).unwrap());
        assert!(own * Decimal::TWO < all, "{line}");
    };
    // A client that leaves in its body after a while, where a body has all the time that it may need.
    let mut gateway = Gateway::over(&upstream).await;
    let (left, since) = begun(&gateway).await;
    let mut asked = 0;
    while since.elapsed() < WAITED {
        gateway.http1.get("/llm/health").await.ok();
        asked += 1;
    }
    left.close();
    gateway.counted(asked + 1).await;
    check_told(&mut gateway, 499);
    gateway.check_untouched(&upstream).await;

    // One whose time is over.
    let body_ms = u64::try_from(WAITED.as_millis()).unwrap();
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["body_ms"] = body_ms.into());
    let mut gateway = setup.start().await;
    let (mut late, _) = begun(&gateway).await;
    late.answer().await.error(408, "invalid_request_error");
    late.close();
    gateway.counted(1).await;
    check_told(&mut gateway, 408);
    gateway.check_untouched(&upstream).await;
}

/// How long a body is waited for: far longer than a busy machine needs for the rest of a call.
const WAITED: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_refused_reload_shows_until_a_good_one() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = Gateway::over(&upstream).await;
    let good = gateway.conf_text();
    gateway.write_conf("threads: 0");
    gateway.check_files();
    assert_eq!(gateway.metrics().sum("tollgate_reload_refused", &[]), 1.into());
    gateway.write_conf(&good);
    gateway.check_files();
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("tollgate_reload_refused", &[]), 0.into());
    for result in ["refused", "changed"] {
        assert_eq!(metrics.sum("tollgate_reloads_total", &[("result", result)]), 1.into());
    }
}

#[tokio::test]
async fn readiness_says_503_until_the_last_call_of_a_stop_has_ended() {
    let cue = Cue::new();
    let reply = Reply::stream().role().text("Hi").wait(&cue).finish().usage(9, 1).done();
    let upstream = Upstream::always(reply).await;
    let mut process = Process::start(&upstream, |_| ()).await;
    assert_eq!(process.admin.get("//readyz").await.text(), "ready\n");
    let mut events = process.client.stream("/llm/chat", streaming(SMALL)).await.ok();
    events.next().await;
    let metrics = Metrics::read(process.admin.get("//metrics").await.text());
    assert_eq!(metrics.sum("tollgate_calls_in_flight", &[("model", SMALL)]), 1.into());
    assert_eq!(metrics.sum("tollgate_holds_open", &[]), 1.into());

    process.signal("TERM");
    eventually("the gateway is not ready", async || {
        let answer = process.admin.get("//readyz").await;
        (answer.status == 503).then(|| assert_eq!(answer.text(), "stopping\n"))
    })
    .await;
    assert_eq!(process.admin.get("//healthz").await.status, 200);
    eventually("the listener is closed", async || {
        (!process.client.listens().await).then_some(())
    })
    .await;
    assert_eq!(process.admin.get("//readyz").await.status, 503);

    cue.give();
    assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    assert!(process.ended().await.success());
    let log = std::fs::read_to_string(process.path("access.log")).unwrap();
    let line = log.lines().find(|line| line.contains(SMALL)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["outcome"], &line["completion_tokens"]),
        (&"complete".into(), &1.into())
    );
}
