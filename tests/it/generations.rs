//! What calls cost, told to who pays: `GET /llm/generation`, `GET /llm/generations`, and usage of chosen days.

mod another_gateway;
mod by_kind;
mod chosen_days;
mod end_users;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{FREE, LARGE, SMALL, cost};
use crate::harness::client::{Client, ask};
use crate::harness::gateway::decimal;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Answer, Cue, Gateway, KeySpec, Reply, Setup, Upstream, eventually};

/// An object's fields as they were written.
pub type Fields = BTreeMap<String, Box<RawValue>>;

/// The fields of an answer about one call.
pub fn one(text: &str) -> Fields {
    #[derive(serde::Deserialize)]
    struct One {
        data: Fields,
    }
    serde_json::from_str::<One>(text)
        .unwrap_or_else(|error| panic!("{error}: {text}"))
        .data
}

/// Those of a page of calls, and where the next begins.
pub fn page(text: &str) -> (Vec<Fields>, Option<String>) {
    #[derive(serde::Deserialize)]
    struct Page {
        data: Vec<Fields>,
        next: Option<String>,
    }
    let page: Page = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (page.data, page.next)
}

/// An amount, which has to stand there as an exact number.
pub fn amount(fields: &Fields, name: &str) -> Decimal {
    let text = fields[name].get();
    text.parse().unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

pub fn text(fields: &Fields, name: &str) -> String {
    serde_json::from_str(fields[name].get()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn id_of(answer: &Answer) -> String {
    answer.header("x-request-id").to_owned()
}

async fn told(client: &Client, id: &str) -> Fields {
    one(client.get(&format!("/llm/generation?id={id}")).await.ok().text())
}

#[tokio::test]
async fn what_a_call_cost_is_told_under_both_its_names_and_at_both_paths() {
    let upstream = Upstream::by(|_, seen| match seen.json()["stream"] == true {
        true => Reply::stream_of(&["Hel", "lo"], 9, 3),
        false => Reply::chat("Hello", 9, 2),
    })
    .await;
    let gateway = Gateway::over(&upstream).await;
    for (path, streamed, completion) in [("/llm/chat", false, 2), ("/llm/chat/stream", true, 3)] {
        let id = id_of(&gateway.http1.post(path, request(SMALL)).await.ok());
        let spent = cost(SMALL, 9, completion).normalize();
        for asked in [
            format!("/llm/generation?id={id}"),
            format!("/generation?id={id}"),
            "/llm/generation?id=chatcmpl-1".to_owned(),
        ] {
            let answer = gateway.http1.get(&asked).await.ok();
            let fields = one(answer.text());
            assert_eq!(
                (text(&fields, "id"), text(&fields, "request_id")),
                (id.clone(), id.clone()),
                "{asked}"
            );
            assert_eq!(
                (amount(&fields, "total_cost"), amount(&fields, "usage")),
                (spent, spent)
            );
            assert!(amount(&fields, "hold") > spent);
            let data = &answer.json()["data"];
            for (name, value) in [
                ("status", json!("done")),
                ("billed_by", json!("report")),
                ("upstream_id", json!("chatcmpl-1")),
                ("model", json!(SMALL)),
                ("provider_name", json!("main")),
                ("upstream_model", json!("up-small")),
                ("api_type", json!("completions")),
                ("streamed", json!(streamed)),
                ("cancelled", json!(false)),
                ("ending", json!("complete")),
                ("tokens_prompt", json!(9)),
                ("tokens_completion", json!(completion)),
                ("native_tokens_prompt", json!(9)),
                ("native_tokens_completion", json!(completion)),
                ("native_tokens_cached", Value::Null),
                ("finish_reason", Value::Null),
                ("is_byok", json!(false)),
                ("app_id", Value::Null),
                // OpenRouter's clients take no null for these.
                ("origin", json!("")),
                ("data_region", json!("global")),
            ] {
                assert_eq!(data[name], value, "{name}");
            }
            let price = |name: &str| data["prices"][name].as_str().unwrap().parse::<Decimal>().unwrap();
            // The bill can be made again from what is told.
            assert_eq!(
                (price("prompt") * Decimal::from(9) + price("completion") * Decimal::from(completion)).normalize(),
                spent
            );
            for name in ["created_at", "resolved_at"] {
                let at = data[name].as_str().unwrap();
                assert!(at.starts_with("2026-") && at.ends_with('Z'), "{at}");
            }
            for name in ["latency", "generation_time"] {
                assert!(data[name].as_u64().is_some(), "{name}: {data}");
            }
        }
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn a_call_of_another_account_is_as_unknown_as_one_that_never_was() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    gateway.create_account("other", tollgate::pure::ids::Tier::Pro).await;
    let other = gateway
        .http1
        .with_key(&gateway.new_key_of("other", KeySpec::default()).await);
    let id = id_of(&gateway.http1.post("/llm/chat", request(SMALL)).await.ok());
    assert_eq!(text(&told(&gateway.http1, &id).await, "id"), id);
    let of = async |client: &Client, name: &str| {
        let answer = client.get(&format!("/llm/generation?id={name}")).await;
        answer.error(404, "not_found_error")["message"].clone()
    };
    let unknown = of(&gateway.http1, "none").await;
    let never = uuid::Uuid::now_v7().to_string();
    for (client, name) in [
        (&other, id.as_str()),
        (&other, "chatcmpl-1"),
        (&gateway.http1, &never),
        (&gateway.http1, "%00"),
        (&gateway.http1, &"x".repeat(256)),
    ] {
        assert_eq!(of(client, name).await, unknown, "{name}");
    }
    assert_eq!(
        other.get("/llm/generations").await.ok().json(),
        json!({ "data": [], "next": null })
    );
    for bad in ["", "?id=", "?id=a&id=b", &format!("?id={}", "x".repeat(257))] {
        let answer = gateway.http1.get(&format!("/llm/generation{bad}")).await;
        answer.error(400, "invalid_request_error");
    }
}

#[tokio::test]
async fn a_locked_key_is_told_of_its_own_calls_alone() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let spec = KeySpec {
        domains: &["app.example.com"],
        ..KeySpec::default()
    };
    let locked = gateway.http1.with_key(&gateway.new_key(spec).await);
    let from_page = async |path: &str| {
        let call = locked.request(reqwest::Method::GET, path);
        ask(call.header("origin", "https://app.example.com")).await
    };
    let foreign = id_of(&gateway.http1.post("/llm/chat", request(LARGE)).await.ok());
    let own = ask(locked
        .post_request("/llm/chat", request(SMALL))
        .header("origin", "https://app.example.com"))
    .await
    .ok();
    let own = id_of(&own);
    let path = |id: &str| format!("/llm/generation?id={id}");
    from_page(&path(&foreign)).await.error(404, "not_found_error");
    assert_eq!(text(&one(from_page(&path(&own)).await.ok().text()), "id"), own);
    let (calls, next) = page(from_page("/llm/generations").await.ok().text());
    assert_eq!((calls.len(), next), (1, None));
    assert_eq!(text(&calls[0], "id"), own);
    let usage = from_page("/llm/usage?group_by=key").await.ok().json();
    assert_eq!(usage["groups"].as_array().unwrap().len(), 1, "{usage}");
    assert_eq!(usage["groups"][0]["cost"], usage["total_cost"]);
    // An unlocked key of the account sees both.
    assert_eq!(page(gateway.http1.get("/llm/generations").await.ok().text()).0.len(), 2);
    let usage = gateway.http1.get("/llm/usage?group_by=key").await.ok().json();
    assert_eq!(usage["groups"].as_array().unwrap().len(), 2, "{usage}");
}

/// A call that runs is waited for up to a quarter of a second; the rest is for a busy machine. This one would run for ever.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// While it runs, and after its client has left.
async fn a_call_that_runs(setup: Setup) {
    let gateway = setup.start().await;
    let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
    let id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    let asked = Instant::now();
    let fields = told(&gateway.http1, &id).await;
    assert!(asked.elapsed() < TOLD_WITHIN, "{:?}", asked.elapsed());
    assert_eq!(
        (text(&fields, "status"), text(&fields, "id")),
        ("running".to_owned(), id.clone())
    );
    assert_eq!(amount(&fields, "hold"), gateway.held().await);
    for name in ["total_cost", "usage", "model", "billed_by", "resolved_at"] {
        assert_eq!(fields[name].get(), "null", "{name}");
    }
    assert_eq!(page(gateway.http1.get("/llm/generations").await.ok().text()).0.len(), 0);
    // Many that wait at once hold each other up no longer than one.
    let asked = (0..12).map(|_| told(&gateway.http1, &id));
    let running = futures::future::join_all(asked).await;
    assert!(running.iter().all(|fields| text(fields, "status") == "running"));
    drop(events);
    let fields = eventually("its receipt", async || {
        let fields = told(&gateway.http1, &id).await;
        (text(&fields, "status") == "done").then_some(fields)
    })
    .await;
    assert_eq!(amount(&fields, "total_cost"), gateway.spent().await);
    assert_eq!(amount(&fields, "total_cost"), cost(SMALL, PROMPT, 2).normalize());
    let data = gateway.http1.get(&format!("/llm/generation?id={id}")).await.ok().json();
    let data = &data["data"];
    assert_eq!(
        (&data["ending"], &data["cancelled"]),
        (&json!("client_gone"), &json!(true))
    );
    assert_eq!(
        (&data["billed_by"], &data["native_tokens_completion"]),
        (&json!("count"), &Value::Null)
    );
    // One receipt.
    assert_eq!(page(gateway.http1.get("/llm/generations").await.ok().text()).0.len(), 1);
    gateway.check_books().await;
}

#[tokio::test]
async fn a_call_that_runs_is_told_with_its_hold_and_then_with_its_cost_on_sqlite() {
    let upstream = Upstream::always(Reply::stream().role().text("Hello").text(" world").wait(&Cue::new())).await;
    a_call_that_runs(Setup::over(&upstream)).await;
}

#[tokio::test]
async fn a_call_that_runs_is_told_with_its_hold_and_then_with_its_cost_on_redis() {
    let server = RedisServer::start();
    let upstream = Upstream::always(Reply::stream().role().text("Hello").text(" world").wait(&Cue::new())).await;
    a_call_that_runs(Setup::over(&upstream).redis(&server.url())).await;
}

#[tokio::test]
async fn calls_are_listed_newest_first_page_by_page() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let mut ids = Vec::new();
    for n in 0..25 {
        let model = if n % 5 == 0 { FREE } else { SMALL };
        ids.insert(0, id_of(&gateway.http1.post("/llm/chat", request(model)).await.ok()));
        // They are listed in the order in which they were billed.
        gateway.settled_balance().await;
    }
    let all = async |parameters: &str, limit: usize| {
        let (mut seen, mut before) = (Vec::new(), String::new());
        loop {
            let path = format!("/llm/generations?{parameters}{before}");
            let (calls, next) = page(gateway.http1.get(&path).await.ok().text());
            assert!(calls.len() <= limit, "{path}");
            seen.extend(calls.iter().map(|call| text(call, "id")));
            match next {
                Some(next) => before = format!("&before={next}"),
                None => return seen,
            }
        }
    };
    assert_eq!(all("", 20).await, ids);
    assert_eq!(all("limit=7", 7).await, ids);
    assert_eq!(all("limit=1000", 1000).await, ids);
    let free: Vec<String> = ids.iter().rev().step_by(5).rev().cloned().collect();
    assert_eq!(all(&format!("limit=2&model={FREE}"), 2).await, free);
    assert_eq!(all("model=none", 0).await, Vec::<String>::new());
    for bad in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=1&limit=1",
        "before=",
        "before=x",
        "before=1.2.3",
        "before=-1.2.3.4",
        "before=1.2.3.4x",
    ] {
        let answer = gateway.http1.get(&format!("/llm/generations?{bad}")).await;
        answer.error(400, "invalid_request_error");
    }
}

#[tokio::test]
async fn a_free_call_is_told_at_no_cost_and_a_refused_one_is_none() {
    let upstream = Upstream::by(|_, seen| match seen.json()["model"].as_str() {
        Some("up-free") => Reply::chat("Hi", 9, 1),
        _ => Reply::refusal(400, &[], "no"),
    })
    .await;
    let gateway = Gateway::over(&upstream).await;
    let free = id_of(&gateway.http1.post("/llm/chat", request(FREE)).await.ok());
    assert_eq!(amount(&told(&gateway.http1, &free).await, "total_cost"), Decimal::ZERO);
    let refused = gateway.http1.post("/llm/chat", request(SMALL)).await;
    let refused = gateway
        .http1
        .get(&format!("/llm/generation?id={}", id_of(&refused)))
        .await;
    refused.error(404, "not_found_error");
    assert_eq!(decimal(gateway.account().await.figures.balance), gateway.paid_in);
}
