//! Money to the last digit: the formula of the interface, balance and usage as decimals.

use std::collections::{BTreeMap, HashMap};

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::harness::answer::number;
use crate::harness::catalogue::{EMBED, FREE, LARGE, SMALL, TWIN, cost};
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// Small, fast and the same everywhere: a test that fails says its seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// One call: what is asked, and what it must come to.
struct Call {
    path: &'static str,
    body: String,
    model: &'static str,
    /// Prompt and completion tokens that must be billed; none when it must cost nothing.
    owed: Option<(u64, u64)>,
    /// What stands in its own answer, and in no other.
    own: String,
}

impl Call {
    /// An answer's text is the answer to this call and to no other.
    #[track_caller]
    fn check_own(&self, text: &str) {
        let marks: Vec<&str> = text
            .match_indices("own-")
            .map(|(at, _)| &text[at..at + self.own.len()])
            .collect();
        let expected: &[&str] = if self.owed.is_some() { &[&self.own] } else { &[] };
        assert_eq!(marks, expected, "{} got {text}", self.body);
    }
}

/// Any call. What the upstream is to do stands in the call's own text.
fn any_call(random: &mut Random) -> Call {
    let model = [FREE, SMALL, LARGE, TWIN, EMBED][random.below(5) as usize];
    let (prompt, completion) = (random.below(3_000), random.below(2_000));
    let fate = ["answers", "answers", "answers", "refuses", "fails", "errs"][random.below(6) as usize];
    let own = format!("own-{:010}", random.below(1 << 31));
    let says = format!("{fate} {prompt} {completion} {own}");
    if model == EMBED {
        return Call {
            path: "/llm/embeddings",
            body: json!({ "model": model, "input": [says] }).to_string(),
            model,
            owed: (fate == "answers").then_some((prompt, 0)),
            own,
        };
    }
    let path = ["/llm/chat", "/llm/chat/stream", "/chat/completions"][random.below(3) as usize];
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": says }], "max_tokens": 2_000 });
    if random.below(2) == 0 {
        body["stream"] = json!(true);
    }
    Call {
        path,
        body: body.to_string(),
        model,
        owed: (fate == "answers").then_some((prompt, completion)),
        own,
    }
}

/// Does what the call's text says.
fn obey(body: &Value) -> Reply {
    let says = body["input"][0]
        .as_str()
        .or(body["messages"][0]["content"].as_str())
        .unwrap();
    let mut words = says.split(' ');
    let fate = words.next().unwrap();
    let mut next = || words.next().unwrap();
    let tokens = |word: &str| word.parse::<u64>().unwrap();
    let (prompt, completion, own) = (tokens(next()), tokens(next()), next());
    match fate {
        "refuses" => Reply::refusal(422, &[], "no"),
        "fails" => Reply::status(503),
        "errs" if body["stream"] == true => Reply::stream().role().close(),
        "errs" => Reply::default().close(),
        _ if body["input"].is_array() => Reply::json(&json!({
            "object": "list", "model": "up-embed", "usage": { "prompt_tokens": prompt, "total_tokens": prompt },
            "data": [{ "object": "embedding", "index": 0, "embedding": [0.25], "id": own }],
        })),
        _ if body["stream"] == true => Reply::stream_of(&["some words", &format!(" {own}")], prompt, completion),
        _ => Reply::chat(&format!("some words {own}"), prompt, completion),
    }
}

/// A gateway over an upstream that obeys; both of its targets do.
async fn obeyed() -> (Upstream, Gateway) {
    let upstream = Upstream::by(|_, seen| obey(&seen.json())).await;
    let setup = Setup::over(&upstream).spare(&upstream).credit("12345.678901234567");
    // It says any number of prompt tokens to a prompt of three words.
    let setup = setup.conf(|conf| {
        for provider in ["main", "spare"] {
            conf["providers"][provider]["prompt_overhead_tokens"] = 3_000.into();
        }
    });
    let gateway =
        setup.conf(|conf| conf["tiers"]["pro"] = json!({ "rpm": 100_000, "tpm": 1_000_000_000, "concurrency": 1_000 }));
    (upstream, gateway.start().await)
}

/// The books agree with what the calls owe: the balance, the month, the usage of each model, as the ledger keeps and as JSON shows them.
async fn check(gateway: &Gateway, calls: &[Call]) {
    let mut owed: BTreeMap<&str, (u64, u64, u64, Decimal)> = BTreeMap::new();
    for call in calls {
        if let Some((prompt, completion)) = call.owed {
            let sum = owed.entry(call.model).or_default();
            sum.0 += 1;
            sum.1 += prompt;
            sum.2 += completion;
            // Each call is rounded by itself, half to even at the twelfth decimal.
            sum.3 += cost(call.model, prompt, completion).round_dp(12);
        }
    }
    let total: Decimal = owed.values().map(|sum| sum.3).sum();
    assert_eq!(gateway.settled_balance().await, gateway.paid_in - total);
    let balance = gateway.http1.get("/llm/balance").await.ok();
    assert_eq!(
        balance.number("balance"),
        (gateway.paid_in - total).normalize().to_string()
    );
    assert_eq!(balance.number("monthly_used"), total.normalize().to_string());
    let usage = gateway.http1.get("/llm/usage").await.ok();
    assert_eq!(usage.number("total_cost"), total.normalize().to_string());
    assert_eq!(
        usage.json()["total_requests"],
        owed.values().map(|sum| sum.0).sum::<u64>()
    );
    assert_eq!(
        usage.json()["total_tokens"],
        owed.values().map(|sum| sum.1 + sum.2).sum::<u64>()
    );
    let object: HashMap<String, Box<RawValue>> = serde_json::from_str(usage.text()).unwrap();
    let rows: Vec<Box<RawValue>> = serde_json::from_str(object["by_model"].get()).unwrap();
    assert_eq!(rows.len(), owed.len());
    for (row, (model, (requests, prompt, completion, cost))) in rows.iter().zip(&owed) {
        let fields: Value = serde_json::from_str(row.get()).unwrap();
        assert_eq!(
            (&fields["model"], &fields["requests"]),
            (&json!(model), &json!(requests))
        );
        assert_eq!(fields["tokens"], prompt + completion);
        assert_eq!(number(row.get(), "cost"), cost.normalize().to_string());
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn after_any_mix_of_calls_the_balance_is_what_was_paid_in_less_the_formula() {
    for seed in [1, 2, 3] {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (_upstream, mut gateway) = obeyed().await;
        let mut calls = Vec::new();
        for number in 0..60 {
            let call = any_call(&mut random);
            let client = if random.below(2) == 0 {
                &gateway.http1
            } else {
                &gateway.h2c
            };
            let answer = client.post(call.path, call.body.clone()).await;
            let begun =
                call.body.contains("errs") && (call.body.contains("\"stream\":true") || call.path.ends_with("stream"));
            assert_eq!(
                answer.status == 200,
                call.owed.is_some() || begun,
                "{} {}",
                call.body,
                answer.text()
            );
            call.check_own(answer.text());
            calls.push(call);
            if number % 20 == 19 {
                gateway.pay_in("0.000000000001", &format!("again-{number}")).await;
            }
        }
        check(&gateway, &calls).await;
    }
}

#[tokio::test]
async fn calls_at_once_cost_what_they_cost_one_by_one() {
    let (_upstream, gateway) = obeyed().await;
    let mut random = Random(4);
    let calls: Vec<Call> = (0..150).map(|_| any_call(&mut random)).collect();
    let sent = calls.iter().enumerate().map(|(number, call)| {
        let client = if number % 2 == 0 { &gateway.http1 } else { &gateway.h2c };
        client.post(call.path, call.body.clone())
    });
    for (answer, call) in join_all(sent).await.iter().zip(&calls) {
        call.check_own(answer.text());
    }
    check(&gateway, &calls).await;
}

#[tokio::test]
async fn the_markup_is_taken_once() {
    let upstream = Upstream::always(Reply::chat("Hi", 1_000_000, 1_000_000)).await;
    let setup = Setup::over(&upstream).model(SMALL, |model| {
        model["context_length"] = 2_000_000.into();
        model["max_completion_tokens"] = 1_000_000.into();
    });
    let setup = setup.conf(|conf| conf["providers"]["main"]["prompt_overhead_tokens"] = 1_000_000.into());
    let gateway = setup.start().await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "x" }] }).to_string();
    gateway.http1.post("/llm/chat", body).await.ok();
    // A million tokens of each at 0.15 and 0.60 a million, and 15 % on top.
    assert_eq!(gateway.spent().await.to_string(), "0.8625");
    let listing = gateway.http1.get("/llm/models?search=small%20chat").await.ok().json();
    let price = |side: &str| {
        listing["models"][0]["pricing"][side]
            .as_str()
            .unwrap()
            .parse::<Decimal>()
            .unwrap()
    };
    let listed = (price("prompt") + price("completion")) * Decimal::from(1_000_000);
    assert_eq!(
        listed.normalize().to_string(),
        "0.8625",
        "what is listed is what is charged"
    );
}

#[tokio::test]
async fn the_usage_a_client_is_shown_is_what_it_pays() {
    let observed = crate::harness::simulated::start().await;
    let gateway = Setup::at(&observed.base_url()).start().await;
    let mut owed = Decimal::ZERO;
    for says in [
        "Hello",
        "simulate:tokens=321 Hello",
        "What is the weather in Paris?",
        "Grüße 👋 an alle",
    ] {
        let tool = json!({ "type": "function", "function": { "name": "get_weather", "parameters": { "type": "object", "properties": {} } } });
        let body = json!({ "model": LARGE, "messages": [{ "role": "user", "content": says }], "tools": [tool],
            "stream_options": { "include_usage": true } });
        for client in [&gateway.http1, &gateway.h2c] {
            let mut streamed = body.clone();
            streamed["stream"] = json!(true);
            let events = client.stream("/llm/chat", streamed.to_string()).await.ok().rest().await;
            let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
            let mut whole = body.clone();
            whole.as_object_mut().unwrap().remove("stream_options");
            let answer = client.post("/llm/chat", whole.to_string()).await.ok().json();
            for usage in [&usage["usage"], &answer["usage"]] {
                let tokens = |side: &str| usage[side].as_u64().unwrap();
                owed += cost(LARGE, tokens("prompt_tokens"), tokens("completion_tokens")).round_dp(12);
            }
        }
    }
    assert_eq!(gateway.spent().await, owed);
    assert_eq!(gateway.usage().await[0].requests, 16);
    gateway.check_books().await;
}
