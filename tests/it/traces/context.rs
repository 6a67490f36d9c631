//! The trace context of clients: taken over, told on, or passed by.

use serde_json::json;

use super::{SPAN, STATE, TRACE, id_of, malformed, traced_chat, traceparent};
use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::client::ask;
use crate::harness::collector::hex;
use crate::harness::{Collector, Gateway, Reply, Setup, Upstream};

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
