//! Many calls of all sorts at once, on either store: what their answers told of their costs is what was debited, to the last digit.

use std::collections::HashMap;

use futures::future::join_all;
use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::{Value, json};

use crate::harness::catalogue::{EMBED, FREE, HUGE, LARGE, SMALL, TWIN};
use crate::harness::client::Client;
use crate::harness::gateway::decimal;
use crate::harness::redis_server::RedisServer;
use crate::harness::reply::whole_chat;
use crate::harness::told::told_cost;
use crate::harness::{Answer, Gateway, Reply, Setup, Upstream};
use crate::money::Random;

/// How many calls are made on each store. `TOLLGATE_MIXED` says another number.
fn calls() -> usize {
    std::env::var("TOLLGATE_MIXED").map_or(400, |text| text.parse().unwrap())
}

/// Base prices: of a token of the prompt, of the completion, that was read from the cache, that was written to it, of reasoning; of a call.
type Row = [&'static str; 6];

const FREE_ROW: Row = ["0"; 6];
/// Every kind has a price of its own.
const KINDS: Row = [
    "0.000003000000000001",
    "0.000015",
    "0.0000003",
    "0.00000375",
    "0.00002",
    "0.000123456789",
];
/// By the usual tier, flex and priority.
const TIERS: [Row; 3] = [
    [
        "0.000003",
        "0.00001512345",
        "0.0000003",
        "0.000003",
        "0.00001512345",
        "0",
    ],
    [
        "0.0000015",
        "0.000007561725",
        "0.0000003",
        "0.0000015",
        "0.000007561725",
        "0",
    ],
    ["0.000006", "0.0000302469", "0.0000006", "0.000006", "0.0000302469", "0"],
];
/// Of short, long and very long prompts.
const LENGTHS: [Row; 3] = [
    ["0.000001", "0.000002", "0.000001", "0.000001", "0.000002", "0"],
    ["0.0000025", "0.000002", "0.0000025", "0.0000025", "0.000002", "0"],
    ["0.000004", "0.000009", "0.000004", "0.000004", "0.000011", "0"],
];
const EMBED_ROW: Row = ["0.00000002", "0", "0.00000002", "0.00000002", "0", "0"];
const LONG: u64 = 1_000;
const VERY_LONG: u64 = 2_000;

/// The same prices as the catalogue has them: a kind is left out whose price is its side's.
fn priced(setup: Setup) -> Setup {
    let [prompt, completion, read, write, reasoning, request] = KINDS;
    let kinds = json!({ "prompt": prompt, "completion": completion, "input_cache_read": read, "input_cache_write": write,
        "internal_reasoning": reasoning, "request": request });
    let [usual, flex, priority] = TIERS;
    let tiers = json!({ "prompt": usual[0], "completion": usual[1], "input_cache_read": usual[2], "tiers": {
        "flex": { "prompt": flex[0], "completion": flex[1] },
        "priority": { "prompt": priority[0], "completion": priority[1], "input_cache_read": priority[2] },
    } });
    let [short, long, very_long] = LENGTHS;
    let lengths = json!({ "prompt": short[0], "completion": short[1], "overrides": [
        { "min_prompt_tokens": LONG, "prompt": long[0] },
        { "min_prompt_tokens": VERY_LONG, "prompt": very_long[0], "completion": very_long[1], "internal_reasoning": very_long[4] },
    ] });
    let of = |model: &str| match model {
        SMALL => kinds.clone(),
        LARGE => tiers.clone(),
        _ => lengths.clone(),
    };
    [SMALL, LARGE, TWIN]
        .into_iter()
        .fold(setup, |setup, id| setup.model(id, |model| model["pricing"] = of(id)))
}

/// What a provider counts: both sides, and of them those that were read from the cache, those that were written to it, and reasoning.
#[derive(Clone, Copy)]
struct Counted {
    prompt: u64,
    completion: u64,
    kinds: [u64; 3],
}

impl Counted {
    fn any(random: &mut Random, has_completion: bool) -> Counted {
        let prompt = 1 + random.below(3_000);
        let completion = if has_completion { random.below(2_000) } else { 0 };
        let read = random.below(prompt + 1);
        let kinds = [read, random.below(prompt - read + 1), random.below(completion + 1)];
        Counted {
            prompt,
            completion,
            kinds,
        }
    }

    fn report(self) -> Value {
        let [read, write, reasoning] = self.kinds;
        json!({
            "prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": read, "cache_write_tokens": write },
            "completion_tokens_details": { "reasoning_tokens": reasoning },
        })
    }

    /// What that must cost, computed without the code under test.
    fn cost(self, model: &str, tier: &str) -> Decimal {
        let [read, write, reasoning] = self.kinds;
        let row = match model {
            FREE => FREE_ROW,
            SMALL => KINDS,
            LARGE => {
                TIERS[["default", "flex", "priority"]
                    .iter()
                    .position(|name| *name == tier)
                    .unwrap()]
            }
            TWIN => LENGTHS[usize::from(self.prompt > LONG) + usize::from(self.prompt > VERY_LONG)],
            _ => EMBED_ROW,
        };
        let tokens = [
            self.prompt - read - write,
            self.completion - reasoning,
            read,
            write,
            reasoning,
            1,
        ];
        let parts = tokens.iter().zip(row);
        let sum: Decimal = parts
            .map(|(tokens, price)| Decimal::from(*tokens) * price.parse::<Decimal>().unwrap())
            .sum();
        (sum * Decimal::new(115, 2)).round_dp_with_strategy(12, RoundingStrategy::MidpointNearestEven)
    }
}

/// What a call must cost.
#[derive(Debug)]
enum Owed {
    Exactly(Decimal),
    /// Its provider reports nothing: what the gateway counts.
    AsCounted,
    /// It is refused, or fails before its text: its answer tells nothing, and there is no receipt.
    Nothing,
}

struct Call {
    path: &'static str,
    body: String,
    owed: Owed,
}

/// Any call. What the upstream is to do stands in the call's own text.
fn any_call(random: &mut Random) -> Call {
    let model = [FREE, SMALL, LARGE, TWIN, EMBED][random.below(5) as usize];
    let is_chat = model != EMBED;
    let tier = if model == LARGE {
        ["default", "flex", "priority"][random.below(3) as usize]
    } else {
        "default"
    };
    let counted = Counted::any(random, is_chat);
    let owed = Owed::Exactly(counted.cost(model, tier));
    let (fate, owed) = match random.below(16) {
        0 => ("refuses", Owed::Nothing),
        1 => ("fails", Owed::Nothing),
        2 => ("ends", Owed::Nothing),
        // The gateway refuses these: nobody sells it, the account's tier may not use it, nobody sells that tier of it.
        3 => ("unsold", Owed::Nothing),
        4 => ("above", Owed::Nothing),
        5 if is_chat => ("scale", Owed::Nothing),
        6 if is_chat => ("silent", Owed::AsCounted),
        _ => ("answers", owed),
    };
    let says = json!({ "fate": fate, "usage": counted.report(), "tier": tier }).to_string();
    let mut body = match is_chat {
        true => json!({ "messages": [{ "role": "user", "content": says }], "max_tokens": 2_000 }),
        false => json!({ "input": [says] }),
    };
    body["model"] = match fate {
        "unsold" => "acme/none".into(),
        "above" if is_chat => HUGE.into(),
        "above" => FREE.into(), // A model that is none for vectors.
        _ => model.into(),
    };
    if fate == "scale" || model == LARGE {
        body["service_tier"] = if fate == "scale" { fate } else { tier }.into();
    }
    if is_chat && random.below(2) == 0 {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    let path = if is_chat { "/llm/chat" } else { "/llm/embeddings" };
    Call {
        path,
        body: body.to_string(),
        owed,
    }
}

/// Does what the call's text says.
fn obey(body: &Value) -> Reply {
    let says = body["input"][0].as_str().or(body["messages"][0]["content"].as_str());
    let said: Value = serde_json::from_str(says.unwrap()).unwrap();
    let streams = body["stream"] == true;
    match said["fate"].as_str().unwrap() {
        "refuses" => Reply::refusal(422, &[], "no"),
        "fails" => Reply::status(503),
        "ends" if streams => Reply::stream().role().close(),
        "ends" => Reply::default().close(),
        _ if body["input"].is_array() => Reply::json(&json!({
            "object": "list", "model": "up-embed", "data": [{ "object": "embedding", "index": 0, "embedding": [0.25] }],
            "usage": { "prompt_tokens": said["usage"]["prompt_tokens"], "total_tokens": said["usage"]["prompt_tokens"] },
        })),
        fate if streams => {
            let stream = Reply::stream().role().text("some").text(" words").finish();
            let usage = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [],
                "service_tier": said["tier"], "usage": said["usage"] });
            if fate == "silent" {
                stream
            } else {
                stream.event(&usage.to_string())
            }
            .done()
        }
        fate => {
            let mut answer = whole_chat("some words", None);
            answer["service_tier"] = said["tier"].clone();
            if fate == "answers" {
                answer["usage"] = said["usage"].clone();
            }
            Reply::json(&answer)
        }
    }
}

impl Call {
    /// The request's id and the cost that its answer tells, which has to be what the call owes.
    #[track_caller]
    fn told(&self, answer: &Answer) -> Option<(String, Decimal)> {
        let told = told_cost(answer.text());
        let context = || format!("{} got {} {}", self.body, answer.status, answer.text());
        match self.owed {
            Owed::Exactly(owed) => assert_eq!(told, Some(owed), "{}", context()),
            Owed::AsCounted => assert!(told.is_some(), "{}", context()),
            Owed::Nothing => assert_eq!(told, None, "{}", context()),
        }
        // A stream that ends too early had begun.
        let begun = self.body.contains("ends") && self.body.contains("\"stream\":true");
        assert_eq!(answer.status == 200, told.is_some() || begun, "{}", context());
        told.map(|told| (answer.header("x-request-id").to_owned(), told))
    }
}

/// A client whose connection no other call has.
fn alone(gateway: &Gateway) -> Client {
    Client::http1(gateway.address).with_key(&gateway.key)
}

/// Makes the calls, very many at once: the request's ids, and the costs that the answers told.
async fn made(gateway: &Gateway, calls: &[Call]) -> HashMap<String, Decimal> {
    const LANES: usize = 64;
    let lane = async |lane: usize| {
        let client = if lane.is_multiple_of(2) {
            &gateway.http1
        } else {
            &gateway.h2c
        };
        let mut told = Vec::new();
        for call in calls.iter().skip(lane).step_by(LANES) {
            // A connection of HTTP/1.1 is closed behind a stream that ended too early, which its head could not say.
            let answer = match call.body.contains("ends") {
                true => alone(gateway).post(call.path, call.body.clone()).await,
                false => client.post(call.path, call.body.clone()).await,
            };
            told.extend(call.told(&answer));
        }
        told
    };
    join_all((0..LANES).map(lane)).await.into_iter().flatten().collect()
}

/// The sum of `usage.cost` = the sum of receipts = debits = the difference of balances; and call by call, told is what the receipt says.
async fn told_is_debited(setup: Setup) {
    let setup = priced(setup).credit("12345.678901234567").conf(|conf| {
        conf["tiers"]["pro"] =
            json!({ "rpm": 100_000, "tpm": 1_000_000_000, "concurrency": 1_000, "monthly_quota": "1000000" });
        conf["receipts"]["per_account_max"] = 100_000.into();
        // It says any number of prompt tokens to a prompt of few words.
        for provider in ["main", "spare"] {
            conf["providers"][provider]["prompt_overhead_tokens"] = 3_000.into();
        }
    });
    let gateway = setup.start().await;
    let mut random = Random(6);
    let calls: Vec<Call> = (0..calls()).map(|_| any_call(&mut random)).collect();
    let owing = calls.iter().filter(|call| !matches!(call.owed, Owed::Nothing)).count();
    let told = made(&gateway, &calls).await;
    assert_eq!(told.len(), owing);
    let sum: Decimal = told.values().sum();
    let spent = gateway.spent().await;
    println!("{} calls, {owing} of them owe", calls.len());
    assert_eq!(sum, spent, "told, and taken from the balance");
    let receipts = gateway.receipts().await;
    assert_eq!(receipts.len(), owing, "one receipt each");
    for receipt in &receipts {
        let (id, cost) = (receipt.billed.id.to_string(), decimal(receipt.billed.cost));
        assert_eq!(told.get(&id), Some(&cost), "told, and on the receipt {receipt:?}");
    }
    let debits: Decimal = gateway.usage().await.iter().map(|row| decimal(row.cost)).sum();
    assert_eq!(debits, spent, "debits");
    let usage = gateway.http1.get("/llm/usage").await.ok();
    assert_eq!(usage.number("total_cost"), spent.normalize().to_string());
    let balance = gateway.http1.get("/llm/balance").await.ok();
    assert_eq!(
        balance.number("balance"),
        (gateway.paid_in - spent).normalize().to_string()
    );
    gateway.check_books().await;
}

async fn upstream() -> Upstream {
    Upstream::by(|_, seen| obey(&seen.json())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_mix_of_calls_at_once_what_is_told_is_what_is_debited_on_sqlite() {
    let upstream = upstream().await;
    told_is_debited(Setup::over(&upstream).spare(&upstream)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_mix_of_calls_at_once_what_is_told_is_what_is_debited_on_redis() {
    let server = RedisServer::start();
    let upstream = upstream().await;
    told_is_debited(Setup::over(&upstream).spare(&upstream).redis(&server.url())).await;
}
