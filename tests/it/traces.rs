//! Traces over OTLP: their shape, who is whose parent, and that no collector can do harm.

use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{request, streaming};
use crate::embeddings;
use crate::harness::catalogue::{EMBED, SMALL, TWIN, cost};
use crate::harness::client::ask;
use crate::harness::collector::{attribute, attributes, hex, is_error};
use crate::harness::operator::Process;
use crate::harness::{Collector, Gateway, Reply, Setup, Upstream, eventually};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// A chat whose client is part of a trace itself.
async fn traced_chat(gateway: &Gateway, traceparent: &str) -> crate::harness::Answer {
    let request = gateway.http1.post_request("/llm/chat", request(SMALL));
    ask(request.header("traceparent", traceparent).header("tracestate", STATE)).await
}

/// What stands in the request's id, as the trace's id would be written.
fn id_of(request_id: &str) -> String {
    request_id.replace('-', "")
}

#[tokio::test]
async fn a_whole_chat_in_the_trace_of_its_client() {
    let (upstream, collector) = (
        Upstream::always(Reply::chat("Hi there", 9, 3)).await,
        Collector::start().await,
    );
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let answer = traced_chat(&gateway, &traceparent("01")).await.ok();
    let id = answer.header("x-request-id");
    let trace = collector.trace(id).await;
    let (server, client) = (&trace.server, trace.client());

    for span in [server, client] {
        assert_eq!(
            (hex(&span.trace_id).as_str(), span.trace_state.as_str()),
            (TRACE, STATE)
        );
    }
    assert_eq!(hex(&server.parent_span_id), SPAN);
    assert_ne!(server.span_id, client.span_id);
    // Bit 8 says that the next is known, bit 9 that the parent is of another process; bit 0 that it is sampled.
    assert_eq!((server.flags, client.flags), (0x301, 0x101));
    let seen = upstream.only();
    let told = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    assert_eq!(
        (seen.header("traceparent"), seen.header("tracestate")),
        (Some(told.as_str()), Some(STATE))
    );

    assert_eq!(
        (server.name.as_str(), client.name.as_str()),
        ("POST /api/v1/llm/chat", "chat up-small")
    );
    let mut said = attributes(&server.attributes);
    for time in ["tollgate.overhead_ms", "tollgate.first_event_ms"] {
        assert!(said.remove(time).unwrap().as_f64().unwrap() > 0.0, "{time}");
    }
    let key_id = said.remove("tollgate.key_id").unwrap();
    assert!(key_id.as_str().unwrap().starts_with("key_"), "{key_id}");
    assert!(
        said.remove("tollgate.held")
            .unwrap()
            .as_str()
            .unwrap()
            .parse::<Decimal>()
            .unwrap()
            > Decimal::ZERO
    );
    let cost = gateway.spent().await.to_string();
    assert_eq!(
        Value::Object(said),
        json!({
            "http.request.method": "POST", "url.path": "/api/v1/llm/chat", "http.route": "/api/v1/llm/chat",
            "http.response.status_code": 200, "tollgate.request_id": id, "tollgate.route": "chat", "tollgate.outcome": "complete",
            "tollgate.account": "acme", "tollgate.model": SMALL, "tollgate.attempts": 1, "tollgate.cost": cost,
        })
    );
    assert_eq!(
        Value::Object(attributes(&client.attributes)),
        json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "main", "gen_ai.request.model": "up-small",
            "gen_ai.response.id": "chatcmpl-1", "gen_ai.response.model": "up", "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 3,
            "server.address": "127.0.0.1", "server.port": upstream.address.port(),
            "http.request.method": "POST", "http.response.status_code": 200,
            "tollgate.provider": "main", "tollgate.model": SMALL,
        })
    );
    assert!(!is_error(server) && !is_error(client));
    let resource = attributes(&collector.resource().attributes);
    assert_eq!(
        (&resource["service.name"], &resource["service.version"]),
        (&json!("tollgate"), &json!("0.1.0"))
    );
    gateway.check_books().await;
}

#[tokio::test]
async fn a_streamed_chat_whose_trace_begins_here() {
    let (upstream, collector) = (
        Upstream::always(Reply::stream_of(&["Hi", "!"], 9, 2)).await,
        Collector::start().await,
    );
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let body = json!({
        "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "stream": true, "n": 2, "max_tokens": 50,
    });
    let events = gateway.h2c.stream("/llm/chat", body.to_string()).await.ok();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    events.rest().await;
    let trace = collector.trace(&id).await;
    let (server, client) = (&trace.server, trace.client());
    // Who has the request's id has the trace's.
    assert_eq!(hex(&server.trace_id), id_of(&id));
    assert!(server.parent_span_id.is_empty() && server.trace_state.is_empty());
    let told = format!("00-{}-{}-01", id_of(&id), hex(&client.span_id));
    assert_eq!(upstream.only().header("traceparent"), Some(told.as_str()));
    assert_eq!(upstream.only().header("tracestate"), None);
    for (name, value) in [
        ("gen_ai.request.stream", json!(true)),
        ("gen_ai.request.choice.count", json!(2)),
        ("gen_ai.request.max_tokens", json!(50)),
        ("gen_ai.usage.input_tokens", json!(9)),
        ("gen_ai.usage.output_tokens", json!(2)),
        ("gen_ai.response.model", json!("up")),
        // The second choice was expected, and never ended.
        ("gen_ai.response.finish_reasons", json!(["stop", "error"])),
    ] {
        assert_eq!(attribute(client, name), value, "{name}");
    }
    let first = attribute(client, "gen_ai.response.time_to_first_chunk")
        .as_f64()
        .unwrap();
    assert!(first > 0.0 && first < 20.0, "{first}");
}

#[tokio::test]
async fn each_try_is_a_span_of_its_own() {
    let main = Upstream::always(Reply::status(503)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let collector = Collector::start().await;
    let gateway = Setup::over(&main).spare(&spare).traces(&collector).start().await;
    let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    let trace = collector.trace(answer.header("x-request-id")).await;
    let [failed, answered] = &trace.clients[..] else {
        panic!("{:#?}", trace.clients);
    };
    for (upstream, span) in [(&main, failed), (&spare, answered)] {
        let told = format!("00-{}-{}-01", hex(&trace.server.trace_id), hex(&span.span_id));
        assert_eq!(upstream.only().header("traceparent"), Some(told.as_str()));
        assert_eq!(attribute(span, "server.port"), upstream.address.port());
        assert_eq!(attribute(span, "tollgate.model"), TWIN);
    }
    assert!(is_error(failed) && !is_error(answered) && !is_error(&trace.server));
    assert!(failed.end_time_unix_nano <= answered.start_time_unix_nano);
    let of = |name: &str| [failed, answered].map(|span| attribute(span, name));
    assert_eq!(of("gen_ai.request.model"), [json!("up-twin"), json!("up-twin-2")]);
    assert_eq!(of("http.response.status_code"), [json!(503), json!(200)]);
    assert_eq!(of("error.type"), [json!("503"), Value::Null]);
    assert_eq!(of("http.request.resend_count"), [Value::Null, json!(1)]);
    assert_eq!(of("gen_ai.usage.input_tokens"), [Value::Null, json!(9)]);
    assert_eq!(attribute(&trace.server, "tollgate.attempts"), 2);
}

#[tokio::test]
async fn a_try_that_reaches_nobody_says_why() {
    let (spare, collector) = (
        Upstream::always(Reply::chat("Hi", 9, 1)).await,
        Collector::start().await,
    );
    let setup = Setup::at("http://127.0.0.1:1/v1").spare(&spare).traces(&collector);
    let gateway = setup.start().await;
    let answer = gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    let trace = collector.trace(answer.header("x-request-id")).await;
    assert_eq!(attribute(&trace.clients[0], "error.type"), "connect");
    assert_eq!(attribute(&trace.clients[0], "http.response.status_code"), Value::Null);
    assert_eq!(trace.clients.len(), 2);
}

#[tokio::test]
async fn a_stream_that_breaks_is_an_error_of_both() {
    let reply = Reply::stream().role().text("It").text(" breaks").reset();
    let (upstream, collector) = (Upstream::always(reply).await, Collector::start().await);
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let events = gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    events.rest().await;
    let trace = collector.trace(&id).await;
    let client = trace.client();
    assert!(is_error(&trace.server) && is_error(client));
    assert_eq!(attribute(&trace.server, "error.type"), "upstream_failed");
    assert_eq!(attribute(&trace.server, "http.response.status_code"), 200);
    assert!(attribute(client, "error.type").is_string());
    assert_eq!(attribute(client, "gen_ai.response.finish_reasons"), json!(["error"]));
    // What was delivered is billed, and stands here as it stands in the books.
    let tokens = ["input", "output"].map(|side| attribute(client, &format!("gen_ai.usage.{side}_tokens")));
    let [prompt, completion] = tokens.map(|tokens| tokens.as_u64().unwrap());
    assert_eq!(gateway.spent().await, cost(SMALL, prompt, completion));
    assert_eq!(
        attribute(&trace.server, "tollgate.cost"),
        gateway.spent().await.to_string()
    );
}

#[tokio::test]
async fn a_denied_request_is_one_span() {
    let (upstream, collector) = (Upstream::unused().await, Collector::start().await);
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let unknown = gateway.http1.post("/llm/chat", request("no/such-model")).await;
    let stranger = gateway
        .http1
        .with_key("tg_nonsense")
        .post("/llm/chat", request(SMALL))
        .await;
    let nowhere = gateway.http1.get("/llm/sk-secret-in-a-path").await;
    let listed = gateway.http1.get("/models/acme%2Fsmall").await.ok();
    let cases = [
        (&unknown, json!(404), json!("not_found"), "POST /api/v1/llm/chat"),
        (&stranger, json!(401), json!("key_invalid"), "POST /api/v1/llm/chat"),
        (&nowhere, json!(404), json!("not_found"), "GET"),
        (&listed, json!(200), Value::Null, "GET /api/v1/models/{id}"),
    ];
    for (answer, status, reason, name) in cases {
        let trace = collector.trace(answer.header("x-request-id")).await;
        assert_eq!(trace.server.name, name);
        assert_eq!(trace.clients.len(), 0);
        assert_eq!(attribute(&trace.server, "http.response.status_code"), status);
        assert_eq!(attribute(&trace.server, "tollgate.reason"), reason);
        // A client's mistake is no error of the server's.
        assert!(!is_error(&trace.server) && attribute(&trace.server, "error.type").is_null());
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn embeddings_have_input_tokens_alone() {
    let (upstream, collector) = (
        Upstream::always(Reply::embeddings(1, 4)).await,
        Collector::start().await,
    );
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let body = embeddings::request(&json!("one text"));
    let answer = gateway.http1.post("/llm/embeddings", body).await.ok();
    let trace = collector.trace(answer.header("x-request-id")).await;
    let client = trace.client();
    assert_eq!(client.name, "embeddings up-embed");
    assert_eq!(attribute(client, "gen_ai.operation.name"), "embeddings");
    assert_eq!(attribute(client, "gen_ai.usage.input_tokens"), 4);
    for name in [
        "gen_ai.usage.output_tokens",
        "gen_ai.response.finish_reasons",
        "gen_ai.request.stream",
    ] {
        assert_eq!(attribute(client, name), Value::Null, "{name}");
    }
    assert_eq!(attribute(&trace.server, "tollgate.model"), EMBED);
}

#[tokio::test]
async fn nothing_secret_is_in_a_trace() {
    let (upstream, collector) = (
        Upstream::always(Reply::chat("a confidential answer", 9, 3)).await,
        Collector::start().await,
    );
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "an intimate question" }], "user": "jane@doe.example" });
    let answer = gateway
        .http1
        .post("/llm/chat?token=in-the-query", body.to_string())
        .await
        .ok();
    collector.trace(answer.header("x-request-id")).await;
    for seen in collector.seen() {
        let text = String::from_utf8_lossy(&seen.body);
        let secrets = [
            "intimate",
            "confidential",
            "jane@doe",
            "in-the-query",
            "credential-SET_MAIN",
            &gateway.key,
        ];
        for secret in secrets {
            assert!(!text.contains(secret) && !seen.head.contains(secret), "{secret}");
        }
    }
}

#[tokio::test]
async fn the_clients_flag_decides_and_else_the_sample() {
    let (upstream, collector) = (
        Upstream::always(Reply::chat("Hi", 9, 1)).await,
        Collector::start().await,
    );
    let setup = Setup::over(&upstream).traces(&collector);
    let gateway = setup
        .conf(|conf| conf["traces"]["sample_ratio"] = json!(0))
        .start()
        .await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    traced_chat(&gateway, &traceparent("00")).await.ok();
    let sampled = traced_chat(&gateway, &traceparent("01")).await.ok();
    collector.trace(sampled.header("x-request-id")).await;
    assert_eq!(collector.spans().len(), 2);
    // What is not recorded is told on as that, by a span of the gateway's.
    let seen = upstream.seen();
    let told: Vec<&str> = seen.iter().map(|seen| seen.header("traceparent").unwrap()).collect();
    assert!(
        told[0].ends_with("-00") && told[1].ends_with("-00") && told[2].ends_with("-01"),
        "{told:?}"
    );
    for told in &told[1..] {
        assert!(
            told.starts_with(&format!("00-{TRACE}-")) && !told.contains(SPAN),
            "{told}"
        );
    }
}

/// Headers of a client's that are no trace context.
fn malformed() -> Vec<String> {
    let good = traceparent("01");
    let zeros = "0".repeat(32);
    vec![
        good.to_uppercase(),
        format!("{good}-more"),
        format!("ff{}", &good[2..]),
        format!("00-{zeros}-{SPAN}-01"),
        format!("00-{TRACE}-{}-01", &zeros[..16]),
        "nonsense".to_owned(),
        String::new(),
    ]
}

#[tokio::test]
async fn what_is_malformed_begins_a_new_trace() {
    let (upstream, collector) = (
        Upstream::always(Reply::chat("Hi", 9, 1)).await,
        Collector::start().await,
    );
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let mut ids = Vec::new();
    for traceparent in malformed() {
        let answer = traced_chat(&gateway, &traceparent).await.ok();
        ids.push(answer.header("x-request-id").to_owned());
    }
    let twice = gateway.http1.post_request("/llm/chat", request(SMALL));
    let twice = twice
        .header("traceparent", traceparent("01"))
        .header("traceparent", traceparent("00"));
    ids.push(ask(twice).await.ok().header("x-request-id").to_owned());
    for id in ids {
        let trace = collector.trace(&id).await;
        assert_eq!(hex(&trace.server.trace_id), id_of(&id));
        assert!(trace.server.parent_span_id.is_empty() && trace.server.trace_state.is_empty());
    }
    assert!(upstream.seen().iter().all(|seen| seen.header("tracestate").is_none()));
}

#[tokio::test]
async fn without_traces_the_clients_headers_pass_unchanged() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let future = format!("cc-{TRACE}-{SPAN}-07-what-the-future-brings");
    for good in [traceparent("00"), traceparent("01"), traceparent("03"), future] {
        traced_chat(&gateway, &good).await.ok();
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(
            (seen.header("traceparent"), seen.header("tracestate")),
            (Some(good.as_str()), Some(STATE))
        );
    }
    for bad in malformed() {
        traced_chat(&gateway, &bad).await.ok();
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(
            (seen.header("traceparent"), seen.header("tracestate")),
            (None, None),
            "{bad}"
        );
    }
    let request = gateway.http1.post_request("/llm/chat", request(SMALL));
    let request = request
        .header("traceparent", traceparent("01"))
        .header("tracestate", "No=Good");
    ask(request.header("baggage", "user=jane").header("x-b3-traceid", TRACE))
        .await
        .ok();
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(seen.header("traceparent"), Some(traceparent("01").as_str()));
    for other in ["tracestate", "baggage", "x-b3-traceid"] {
        assert_eq!(seen.header(other), None, "{other}");
    }
}

#[tokio::test]
async fn what_the_collector_may_take_later_is_sent_again() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let replies = [Reply::status(503), Reply::default().close(), Collector::takes(0)];
    let collector = Collector::answering(replies).await;
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let id = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    eventually("the spans are exported", async || {
        let exported = gateway
            .metrics()
            .sum("tollgate_trace_spans_total", &[("result", "exported")]);
        (exported == 2.into()).then_some(())
    })
    .await;
    assert_eq!(collector.seen().len(), 3);
    collector.trace(id.header("x-request-id")).await;
    assert_eq!(gateway.metrics().sum("tollgate_trace_spans_total", &[]), 2.into());
}

#[tokio::test]
async fn what_the_collector_refuses_is_counted_and_not_sent_again() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let collector = Collector::answering([Reply::status(400), Collector::takes(1)]).await;
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let count = |result: &str| {
        gateway
            .metrics()
            .sum("tollgate_trace_spans_total", &[("result", result)])
    };
    for (failed, exported) in [(2, 0), (3, 1)] {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        eventually("the spans are counted", async || {
            ((count("failed"), count("exported")) == (failed.into(), exported.into())).then_some(())
        })
        .await;
    }
    assert_eq!(collector.seen().len(), 2);
}

#[tokio::test]
async fn a_collector_that_is_down_or_hangs_holds_up_no_caller() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let hanging = Collector::answering([Reply::default().silence()]).await;
    for endpoint in [hanging.endpoint(), "http://127.0.0.1:1".to_owned()] {
        let setup = Setup::over(&upstream).conf(|conf| conf["traces"] = json!({ "endpoint": endpoint }));
        let mut gateway = setup.start().await;
        for _ in 0..20 {
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        }
        gateway.check_books().await;
        let started = Instant::now();
        gateway.close_traces();
        assert!(
            started.elapsed() < Duration::from_secs(4),
            "{endpoint}: {:?}",
            started.elapsed()
        );
    }
}

#[tokio::test]
async fn a_stop_sends_what_is_left_and_waits_for_no_collector_that_hangs() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    for (reply, arrives) in [(Collector::takes(0), true), (Reply::default().silence(), false)] {
        let collector = Collector::answering([reply]).await;
        let traces = json!({ "endpoint": collector.endpoint(), "service_name": "mine" });
        let mut process = Process::start(&upstream, |conf| conf["traces"] = traces).await;
        let answer = process.client.post("/llm/chat", request(SMALL)).await.ok();
        let started = Instant::now();
        process.signal("TERM");
        assert!(process.ended().await.success());
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        if arrives {
            collector.trace(answer.header("x-request-id")).await;
            let resource = attributes(&collector.resource().attributes);
            assert_eq!(resource["service.name"], "mine");
        }
        assert!(process.command(&["ledger", "audit"]).contains("balance"));
    }
}

#[tokio::test]
async fn headers_for_the_collector_come_from_the_environment() {
    let (upstream, collector) = (
        Upstream::always(Reply::chat("Hi", 9, 1)).await,
        Collector::start().await,
    );
    let traces = json!({ "endpoint": collector.endpoint(), "headers_env": { "x-api-key": "SET_COLLECTOR" } });
    let gateway = Setup::over(&upstream)
        .conf(|conf| conf["traces"] = traces.clone())
        .start()
        .await;
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    collector.trace(answer.header("x-request-id")).await;
    assert_eq!(
        collector.seen()[0].header("x-api-key"),
        Some("credential-SET_COLLECTOR")
    );
    // Without its value they are off, and the gateway runs.
    let unset = json!({ "endpoint": collector.endpoint(), "headers_env": { "x-api-key": "UNSET" } });
    let gateway = Setup::over(&upstream).conf(|conf| conf["traces"] = unset).start().await;
    traced_chat(&gateway, &traceparent("01")).await.ok();
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(seen.header("traceparent"), Some(traceparent("01").as_str()));
}
