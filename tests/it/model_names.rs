//! What a request's `model` may be beside an id: an alias, and a purpose that perhaps no model serves.

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::config::Config;
use tollgate::gateway::snapshot::Snapshot;
use tollgate::gateway::upstream::providers::Upstreams;
use tollgate::net::dns::Resolver;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{HUGE, SMALL, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

fn with_aliases(upstream: &Upstream) -> Setup {
    Setup::over(upstream)
        .model(SMALL, |model| {
            model["aliases"] = json!(["gpt-4o-mini", "other/small:x"])
        })
        .model(HUGE, |model| model["aliases"] = json!(["huge"]))
}

#[tokio::test]
async fn an_alias_is_billed_and_logged_as_its_model_and_never_sent_on() {
    let upstream = Upstream::by(|_, seen| match seen.json()["stream"] == true {
        true => Reply::stream_of(&["Hi"], 9, 1),
        false => Reply::chat("Hi", 9, 1),
    })
    .await;
    let mut gateway = with_aliases(&upstream).start().await;
    gateway.http1.post("/llm/chat", request("gpt-4o-mini")).await.ok();
    let streamed = gateway.http1.stream("/llm/chat", streaming("other/small:x")).await;
    streamed.ok().rest().await;
    for seen in upstream.seen() {
        assert_eq!(seen.json()["model"], "up-small");
        assert!(!seen.json().to_string().contains("gpt-4o-mini"));
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 1) * Decimal::TWO);
    let usage = gateway.usage().await;
    assert!(usage.iter().all(|row| row.model == SMALL), "{usage:?}");
    let receipts = gateway.receipts().await;
    assert_eq!(receipts.len(), 2);
    assert!(receipts.iter().all(|receipt| receipt.billed.model.as_ref() == SMALL));
    gateway.counted(2).await;
    for line in gateway.access_log() {
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["model"], SMALL);
    }
    assert!(!gateway.metrics_page().contains("gpt-4o-mini"));
    gateway
        .http1
        .post("/llm/chat", request("huge"))
        .await
        .error(403, "permission_error");
    gateway.check_books().await;
}

#[tokio::test]
async fn openai_clients_find_a_model_by_its_alias_and_listings_have_ids_alone() {
    let upstream = Upstream::unused().await;
    let plain = Gateway::over(&upstream).await;
    let gateway = with_aliases(&upstream).start().await;
    for path in [
        "/models/gpt-4o-mini",
        "/models/other/small:x",
        "/models/other%2Fsmall%3Ax",
    ] {
        assert_eq!(gateway.http1.get(path).await.ok().json()["id"], SMALL, "{path}");
    }
    for unknown in ["/models/huge", "/models/purpose/chat"] {
        gateway.http1.get(unknown).await.error(404, "not_found_error");
    }
    for path in ["/models", "/llm/models", "/llm/public/models", "/llm/models/purposes"] {
        let (ours, theirs) = (gateway.http1.get(path).await.ok(), plain.http1.get(path).await.ok());
        assert_eq!(ours.text(), theirs.text(), "{path}");
    }
}

#[tokio::test]
async fn one_model_can_be_sold_alone() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut setup = Setup::over(&upstream);
    let mut alone = setup.catalogue["models"][1].clone();
    assert_eq!(alone["id"], SMALL);
    alone["purposes"] = json!(["chat"]);
    setup.catalogue = json!({ "models": [alone] });
    let gateway = setup.start().await;
    let config = Config::parse("tollgate.yaml".as_ref(), &gateway.conf_text(), &|_| None).unwrap();
    let warnings = Snapshot::load(config, &Upstreams::new(Resolver::system()))
        .unwrap()
        .warnings;
    let unserved = warnings.iter().filter(|warning| warning.contains("404: vision, code"));
    assert_eq!(unserved.count(), 1, "a line in the log of a start: {warnings:?}");
    let purposes = gateway.http1.get("/llm/models/purposes").await.ok().json();
    assert_eq!(purposes.as_object().unwrap().len(), 11);
    assert_eq!((&purposes["chat"], &purposes["slide"]), (&json!(SMALL), &Value::Null));
    for name in [SMALL, "purpose/chat"] {
        gateway.http1.post("/llm/chat", request(name)).await.ok();
    }
    let refused = gateway.http1.post("/llm/chat", request("purpose/slide")).await;
    let error = refused.error(404, "not_found_error");
    assert_eq!(error["message"], "There is no model for the purpose slide.");
    assert_eq!(
        gateway.http1.get("/llm/models?purpose=slide").await.ok().json()["total"],
        0
    );
    gateway.check_books().await;
}
