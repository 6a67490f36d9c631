//! Collectors that are away, refuse, or hang.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{traced_chat, traceparent};
use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::collector::attributes;
use crate::harness::operator::Process;
use crate::harness::{Collector, Reply, Setup, Upstream, eventually};

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
