//! The endpoints that need no upstream, without the listings: balance, usage, health.

use serde_json::json;
use tollgate::pure::ids::Tier;

use crate::chat::request;
use crate::harness::answer::number;
use crate::harness::catalogue::{FREE, LARGE, SMALL, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

#[tokio::test]
async fn balance_has_the_fields_of_the_interface_with_exact_decimals() {
    let upstream = Upstream::always(Reply::chat("Hi", 7, 3)).await;
    let gateway = Setup::over(&upstream).credit("10.50").start().await;
    let answer = gateway.http1.get("/llm/balance").await.ok();
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(
        answer.text(),
        r#"{"balance":10.5,"currency":"USD","monthly_quota":1000,"monthly_used":0,"tier":"Pro","held":0}"#
    );
    gateway.http1.post("/llm/chat", request(LARGE)).await.ok();
    // 7 × 0.000003 + 3 × 0.00001512345 = 0.00006637035; × 1.15 = 0.0000763259025, of which 12 decimals are kept, half to even.
    assert_eq!(gateway.spent().await.to_string(), "0.000076325902");
    let answer = gateway.http1.get("/llm/balance").await.ok();
    assert_eq!(answer.number("balance"), "10.499923674098");
    assert_eq!(answer.number("monthly_used"), "0.000076325902");
}

#[tokio::test]
async fn the_monthly_quota_is_the_accounts_own_or_its_tiers() {
    let upstream = Upstream::unused().await;
    for (tier, quota) in [
        (Tier::Free, "10"),
        (Tier::Lite, "100"),
        (Tier::Pro, "1000"),
        (Tier::Enterprise, "100000"),
    ] {
        let gateway = Setup::over(&upstream).tier(tier).start().await;
        assert_eq!(
            gateway.http1.get("/llm/balance").await.ok().number("monthly_quota"),
            quota
        );
        gateway.set_quota("0.000000000001").await;
        assert_eq!(
            gateway.http1.get("/llm/balance").await.ok().number("monthly_quota"),
            "0.000000000001"
        );
    }
    let configured = Setup::over(&upstream).conf(|conf| {
        conf["tiers"]["pro"] = json!({ "monthly_quota": "12.25" });
        conf["currency"] = "EUR".into();
    });
    let answer = configured.start().await.http1.get("/llm/balance").await.ok();
    assert_eq!(answer.number("monthly_quota"), "12.25");
    assert_eq!(answer.json()["currency"], "EUR");
}

#[tokio::test]
async fn monthly_used_begins_again_with_the_utc_month() {
    let upstream = Upstream::always(Reply::chat("Hi", 100, 0)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let once = cost(SMALL, 100, 0).normalize().to_string();
    gateway.settled_balance().await;
    assert_eq!(
        gateway.http1.get("/llm/balance").await.ok().number("monthly_used"),
        once
    );
    // From 20 November, 10:00, to the last millisecond of the month, and one further.
    gateway.clock.advance((10 * 24 + 14) * 3_600_000 - 1);
    assert_eq!(
        gateway.http1.get("/llm/balance").await.ok().number("monthly_used"),
        once
    );
    gateway.clock.advance(1);
    assert_eq!(gateway.http1.get("/llm/balance").await.ok().number("monthly_used"), "0");
    assert_eq!(
        gateway.http1.get("/llm/usage?period=30d").await.ok().json()["total_requests"],
        1
    );
}

#[tokio::test]
async fn usage_sums_the_period_by_model_and_defaults_to_today() {
    let upstream = Upstream::always(Reply::chat("Hi", 100, 10)).await;
    let gateway = Gateway::over(&upstream).await;
    // 40, 29, 6, 1 and 0 days ago.
    let mut calls = [1, 2, 3, 4, 5].into_iter();
    for pause in [0, 11, 23, 5, 1] {
        gateway.clock.advance(pause * 86_400_000);
        for _ in 0..calls.next().unwrap() {
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        }
        gateway.http1.post("/llm/chat", request(LARGE)).await.ok();
        gateway.settled_balance().await;
    }
    for (query, period, small, large) in [
        ("", "today", 5, 1),
        ("?period=today", "today", 5, 1),
        ("?period=7d", "7d", 12, 3),
        ("?period=30d", "30d", 14, 4),
        ("?period=all", "all", 15, 5),
        ("?other=1&period=7d", "7d", 12, 3),
    ] {
        let answer = gateway.http1.get(&format!("/llm/usage{query}")).await.ok();
        let body = answer.json();
        assert_eq!(body["period"], period);
        assert_eq!(body["total_requests"], small + large, "{query}");
        assert_eq!(body["total_tokens"], 110 * (small + large));
        let (small_cost, large_cost) = (
            cost(SMALL, 100 * small, 10 * small),
            cost(LARGE, 100 * large, 10 * large),
        );
        assert_eq!(
            answer.number("total_cost"),
            (small_cost + large_cost).normalize().to_string()
        );
        let rows = body["by_model"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        for (row, (model, requests)) in rows.iter().zip([(LARGE, large), (SMALL, small)]) {
            assert_eq!(row["model"], model);
            assert_eq!(row["requests"], requests);
            assert_eq!(row["tokens"], 110 * requests);
            assert_eq!(row.as_object().unwrap().len(), 4);
        }
        let object: std::collections::HashMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(answer.text()).unwrap();
        let rows: Vec<Box<serde_json::value::RawValue>> = serde_json::from_str(object["by_model"].get()).unwrap();
        assert_eq!(number(rows[0].get(), "cost"), large_cost.normalize().to_string());
        assert_eq!(number(rows[1].get(), "cost"), small_cost.normalize().to_string());
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn usage_of_an_account_that_asked_nothing_is_all_zeros() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let answer = gateway.http1.get("/llm/usage").await.ok();
    assert_eq!(
        answer.text(),
        r#"{"period":"today","total_requests":0,"total_tokens":0,"total_cost":0,"by_model":[]}"#
    );
}

#[tokio::test]
async fn a_free_model_counts_in_usage_at_no_cost() {
    let upstream = Upstream::always(Reply::chat("Hi", 5, 5)).await;
    let gateway = Setup::over(&upstream).credit("0").start().await;
    gateway.http1.post("/llm/chat", request(FREE)).await.ok();
    gateway.settled_balance().await;
    let answer = gateway.http1.get("/llm/usage").await.ok();
    assert_eq!(
        answer.json(),
        json!({ "period": "today", "total_requests": 1, "total_tokens": 10, "total_cost": 0,
            "by_model": [{ "model": FREE, "requests": 1, "tokens": 10, "cost": 0 }] })
    );
    assert_eq!(gateway.http1.get("/llm/balance").await.ok().number("balance"), "0");
}

#[tokio::test]
async fn usage_an_unknown_period_is_400_and_the_allowed_ones_are_named() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for period in ["", "Today", "1d", "7", "week", "all%20", "today&period=all"] {
        let error = gateway
            .http1
            .get(&format!("/llm/usage?period={period}"))
            .await
            .error(400, "invalid_request_error");
        let message = error["message"].as_str().unwrap();
        if !period.contains('&') {
            assert!(message.contains("today, 7d, 30d, all"), "{message}");
        }
    }
}

/// It was 200 with another answer than was asked for: that of today for `Period=7d`.
#[tokio::test]
async fn a_parameter_that_is_misspelt_is_400_and_named() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for (path, name, meant) in [
        ("/llm/usage?Period=7d", "Period", "period"),
        ("/llm/usage?period=7d&groupby=day", "groupby", "group_by"),
        ("/llm/usage?form=2026-11-01&to=2026-11-02", "form", "from"),
        ("/llm/generations?limits=5", "limits", "limit"),
        ("/llm/generation?ID=x", "ID", "id"),
    ] {
        let error = gateway.http1.get(path).await.error(400, "invalid_request_error");
        let message = format!("There is no parameter \"{name}\" (did you mean {meant}?).");
        assert_eq!(error["message"], message, "{path}");
    }
    // Other names mean nothing, as on any page.
    for path in ["/llm/usage?_=1&tz=UTC&t=2&page=3", "/key?id=x", "/llm/models?Search=x"] {
        gateway.http1.get(path).await.ok();
    }
}

#[tokio::test]
async fn health_is_an_object_with_the_status_ok() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let answer = client.with_key("").get("/llm/health").await.ok();
        assert_eq!(answer.json(), json!({ "status": "ok" }));
        assert_eq!(answer.header("content-type"), "application/json");
    }
}

#[tokio::test]
async fn maintenance_is_503_for_calls_to_models_alone() {
    use tollgate::ledger::admin::AdminOp;
    let upstream = Upstream::always(Reply::chat("Hi", 1, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.run(AdminOp::Maintenance { on: true }).await;
    for path in [
        "/llm/chat",
        "/llm/chat/stream",
        "/llm/embeddings",
        "/chat/completions",
        "/embeddings",
    ] {
        let answer = gateway.http1.post(path, request(SMALL)).await;
        answer.error(503, "service_unavailable");
        assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
    }
    for path in [
        "/llm/balance",
        "/llm/usage",
        "/llm/generations",
        "/key",
        "/llm/models",
        "/llm/health",
        "/llm/public/models",
        "/models",
        "/wallet",
        "/prices",
    ] {
        gateway.http1.get(path).await.ok();
    }
    gateway.check_untouched(&upstream).await;
    gateway.run(AdminOp::Maintenance { on: false }).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
}
