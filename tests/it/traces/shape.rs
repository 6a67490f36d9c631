//! What spans a request leaves, and what stands in them.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{SPAN, STATE, TRACE, id_of, traced_chat, traceparent};
use crate::chat::{request, streaming};
use crate::embeddings;
use crate::harness::catalogue::{EMBED, SMALL, TWIN, cost};
use crate::harness::collector::{attribute, attributes, hex, is_error};
use crate::harness::{Collector, Cue, Reply, Setup, Upstream};

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
async fn a_client_that_leaves_has_its_trace_too() {
    let cue = Cue::new();
    let reply = Reply::stream()
        .role()
        .text("Hello")
        .text(" world")
        .wait(&cue)
        .finish()
        .done();
    let (upstream, collector) = (Upstream::always(reply).await, Collector::start().await);
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    let mut events = gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    drop(events);
    let trace = collector.trace(&id).await;
    assert_eq!(attribute(&trace.server, "tollgate.outcome"), "client_gone");
    assert!(!is_error(&trace.server), "that is no error of the server's");
    assert_eq!(attribute(trace.client(), "gen_ai.usage.output_tokens"), 2);
    assert_eq!(
        attribute(trace.client(), "gen_ai.response.finish_reasons"),
        json!(["error"])
    );
}

#[tokio::test]
async fn a_pooled_connection_that_was_closed_is_a_try_of_its_own() {
    let answer = || Reply::chat("Hi", 9, 1);
    let upstream = Upstream::of([answer(), Reply::default().close(), answer()]).await;
    let collector = Collector::start().await;
    let gateway = Setup::over(&upstream).traces(&collector).start().await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let again = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let trace = collector.trace(again.header("x-request-id")).await;
    let errors: Vec<Value> = trace.clients.iter().map(|span| attribute(span, "error.type")).collect();
    assert_eq!(errors, [json!("stale"), Value::Null]);
    // It is the same target, which has not failed.
    assert_eq!(attribute(&trace.server, "tollgate.attempts"), 1);
}
