//! Prices of single kinds of tokens (cache reads, cache writes, reasoning) as providers report them, and of long prompts.

use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::{Value, json};

use crate::harness::catalogue::{SMALL, cost};
use crate::harness::gateway::decimal;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// The base prices: prompt, completion, cache read, cache write, reasoning.
const PRICES: [&str; 5] = ["0.000003", "0.000015", "0.0000003", "0.00000375", "0.00001999"];

fn price(number: usize) -> Decimal {
    PRICES[number].parse::<Decimal>().unwrap()
}

/// What a provider reports: both sides, and of them cache reads, cache writes and reasoning.
#[derive(Clone, Copy)]
struct Reported {
    prompt: u64,
    completion: u64,
    kinds: [u64; 3],
}

impl Reported {
    /// What that must cost, computed without the code under test.
    fn cost(self) -> Decimal {
        let [read, write, reasoning] = self.kinds;
        let of = |tokens: u64, kind: usize| Decimal::from(tokens) * price(kind);
        let sum = of(self.prompt - read - write, 0)
            + of(self.completion - reasoning, 1)
            + of(read, 2)
            + of(write, 3)
            + of(reasoning, 4);
        (sum * Decimal::new(115, 2)).round_dp_with_strategy(12, RoundingStrategy::MidpointNearestEven)
    }

    fn openai(self) -> Value {
        let [read, write, reasoning] = self.kinds;
        json!({
            "prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": read, "cache_write_tokens": write, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": reasoning, "accepted_prediction_tokens": 0 },
        })
    }

    /// DeepSeek says it beside the sides, and what was no hit is what is left.
    fn deepseek(self) -> Value {
        let [read, _, reasoning] = self.kinds;
        json!({
            "prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": self.prompt + self.completion,
            "prompt_cache_hit_tokens": read, "prompt_cache_miss_tokens": self.prompt - read,
            "completion_tokens_details": { "reasoning_tokens": reasoning },
        })
    }
}

/// The answer to what the request itself asks for: its `metadata` has the usage.
async fn provider() -> Upstream {
    Upstream::by(|_, seen| {
        let asked = seen.json();
        let usage: Value = serde_json::from_str(asked["metadata"]["usage"].as_str().unwrap()).unwrap();
        if asked["stream"] == true {
            let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [], "usage": usage });
            return Reply::stream().role().text("Hi").finish().event(&chunk.to_string()).done();
        }
        let mut answer = crate::harness::reply::whole_chat("Hi", None);
        answer["usage"] = usage;
        Reply::json(&answer)
    })
    .await
}

/// A gateway in front of it, which sends it what the request's `metadata` says.
fn setup(upstream: &Upstream) -> Setup {
    Setup::over(upstream).conf(|conf| conf["providers"]["main"]["allow_fields"] = json!(["metadata"]))
}

async fn gateway(upstream: &Upstream) -> Gateway {
    let mut setup = setup(upstream);
    let [prompt, completion, read, write, reasoning] = PRICES;
    setup.catalogue["models"][1]["pricing"] = json!({
        "prompt": prompt, "completion": completion,
        "input_cache_read": read, "input_cache_write": write, "internal_reasoning": reasoning,
    });
    setup.start().await
}

fn asking(usage: &Value, stream: bool) -> String {
    json!({
        "model": SMALL, "max_tokens": 2_000, "stream": stream, "metadata": { "usage": usage.to_string() },
        "messages": [{ "role": "user", "content": "word ".repeat(2_000) }],
    })
    .to_string()
}

#[tokio::test]
async fn each_kind_costs_its_price_in_each_style_of_report_streamed_and_whole() {
    let upstream = provider().await;
    let gateway = gateway(&upstream).await;
    let mut expected = Decimal::ZERO;
    for kinds in [
        [0, 0, 0],
        [1_000, 0, 0],
        [0, 1_000, 0],
        [0, 0, 500],
        [900, 77, 499],
        [923, 77, 500],
        [1, 1, 1],
    ] {
        let reported = Reported {
            prompt: 1_000,
            completion: 500,
            kinds,
        };
        for usage in [reported.openai(), reported.deepseek()] {
            if usage["prompt_cache_hit_tokens"].is_u64() && kinds[1] > 0 {
                continue; // It has no word for it.
            }
            for stream in [false, true] {
                gateway.http1.post("/llm/chat", asking(&usage, stream)).await.ok();
                expected += reported.cost();
                assert_eq!(gateway.spent().await, expected, "{kinds:?}, stream {stream}: {usage}");
                let receipt = gateway.receipts().await.swap_remove(0).billed;
                assert_eq!(decimal(receipt.cost), reported.cost());
                assert!(receipt.held.unwrap() >= receipt.cost);
                let told = receipt.call.kinds.unwrap();
                let told = [told.cache_read_tokens, told.cache_write_tokens, told.reasoning_tokens];
                assert_eq!(told, kinds);
            }
        }
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn details_that_do_not_fit_are_not_believed_and_no_charge_is_above_its_hold() {
    let upstream = provider().await;
    let gateway = gateway(&upstream).await;
    let of_no_kind = |prompt, completion| Reported {
        prompt,
        completion,
        kinds: [0; 3],
    };
    let mut usage = of_no_kind(1_000, 500).openai();
    usage["prompt_tokens_details"] = json!({ "cached_tokens": 600, "cache_write_tokens": 401 });
    gateway.http1.post("/llm/chat", asking(&usage, false)).await.ok();
    assert_eq!(
        gateway.spent().await,
        of_no_kind(1_000, 500).cost(),
        "more details than tokens"
    );
    for field in ["cached_tokens", "cache_write_tokens"] {
        let before = gateway.spent().await;
        let mut usage = of_no_kind(4_000_000_000, 2_000).openai();
        usage["prompt_tokens_details"] = json!({ field: 4_000_000_000u64 });
        usage["completion_tokens_details"]["reasoning_tokens"] = json!(2_000);
        gateway.http1.post("/llm/chat", asking(&usage, true)).await.ok();
        let billed = gateway.receipts().await.swap_remove(0).billed;
        let (held, cost) = (decimal(billed.held.unwrap()), decimal(billed.cost));
        assert!(
            cost <= held && gateway.spent().await - before == cost,
            "{field}: {billed:?}"
        );
        let kinds = billed.call.kinds.unwrap();
        assert!(
            kinds.cache_read_tokens + kinds.cache_write_tokens <= billed.prompt_tokens,
            "{billed:?}"
        );
        // All of the prompt that was admitted, at the price of its kind.
        let [read, write] = [kinds.cache_read_tokens, kinds.cache_write_tokens];
        assert_eq!(
            billed.prompt_tokens,
            if field == "cached_tokens" { read } else { write }
        );
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn a_hold_covers_the_dearest_kind() {
    let upstream = provider().await;
    let (cheap, dear) = (setup(&upstream).start().await, gateway(&upstream).await);
    let usage = Reported {
        prompt: 1_000,
        completion: 500,
        kinds: [0; 3],
    }
    .openai();
    let mut tokens = Vec::new();
    for gateway in [&cheap, &dear] {
        gateway.http1.post("/llm/chat", asking(&usage, false)).await.ok();
        tokens.push(decimal(gateway.receipts().await.swap_remove(0).billed.held.unwrap()));
    }
    let prompt_bound = (tokens[0] - cost(SMALL, 0, 2_000)) / cost(SMALL, 1, 0);
    let dearest = (prompt_bound * price(3) + Decimal::from(2_000) * price(4)) * Decimal::new(115, 2);
    assert_eq!(tokens[1].normalize(), dearest.normalize());
}

#[tokio::test]
async fn a_model_with_two_prices_costs_the_formula_whatever_the_details() {
    let upstream = provider().await;
    let gateway = setup(&upstream).start().await;
    let reported = Reported {
        prompt: 1_000,
        completion: 500,
        kinds: [900, 50, 400],
    };
    for stream in [false, true] {
        gateway
            .http1
            .post("/llm/chat", asking(&reported.openai(), stream))
            .await
            .ok();
    }
    assert_eq!(gateway.spent().await, Decimal::TWO * cost(SMALL, 1_000, 500));
    assert!(
        gateway
            .receipts()
            .await
            .iter()
            .all(|receipt| receipt.billed.call.kinds.is_none())
    );
}

#[tokio::test]
async fn listings_show_each_price_with_the_markup() {
    let upstream = provider().await;
    let gateway = gateway(&upstream).await;
    for path in ["/llm/models", "/llm/public/models"] {
        let listed = gateway.http1.get(path).await.ok().json();
        let models = listed["models"].as_array().unwrap();
        let of = |id: &str| models.iter().find(|model| model["id"] == id).unwrap()["pricing"].clone();
        let own = of(SMALL);
        for (name, kind) in [
            ("input_cache_read", 2),
            ("input_cache_write", 3),
            ("internal_reasoning", 4),
        ] {
            let shown: Decimal = own[name].as_str().unwrap().parse().unwrap();
            assert_eq!(shown, price(kind) * Decimal::new(115, 2), "{name}");
        }
        assert_eq!(of("acme/free").as_object().unwrap().len(), 2, "two prices, as ever");
    }
}

#[tokio::test]
async fn a_long_prompt_has_the_row_that_its_provider_reported_it_for() {
    let upstream = provider().await;
    let mut setup = setup(&upstream);
    setup.catalogue["models"][1]["pricing"] = json!({
        "prompt": "0.000001", "completion": "0.000002", "input_cache_read": "0.0000001",
        "overrides": [
            { "min_prompt_tokens": 1_000, "prompt": "0.000003" },
            { "min_prompt_tokens": 2_000, "prompt": "0.000005", "completion": "0.000009", "input_cache_read": "0.0000005" },
        ],
    });
    let gateway = setup.start().await;
    let prices = |prompt: u64| match prompt {
        0..=1_000 => ["0.000001", "0.000002", "0.0000001"],
        1_001..=2_000 => ["0.000003", "0.000002", "0.0000001"],
        _ => ["0.000005", "0.000009", "0.0000005"],
    };
    let mut expected = Decimal::ZERO;
    for prompt in [999, 1_000, 1_001, 1_999, 2_000, 2_001] {
        for (cached, stream) in [(0, false), (0, true), (900, false), (900, true)] {
            let reported = Reported {
                prompt,
                completion: 7,
                kinds: [cached, 0, 0],
            };
            gateway
                .http1
                .post("/llm/chat", asking(&reported.openai(), stream))
                .await
                .ok();
            let [of_prompt, of_completion, of_read] = prices(prompt).map(|price| price.parse::<Decimal>().unwrap());
            let sum = Decimal::from(prompt - cached) * of_prompt
                + Decimal::from(cached) * of_read
                + Decimal::from(7) * of_completion;
            expected += sum * Decimal::new(115, 2);
            assert_eq!(
                gateway.spent().await,
                expected,
                "{prompt} tokens, {cached} cached, stream {stream}"
            );
            let billed = gateway.receipts().await.swap_remove(0).billed;
            assert!(billed.held.unwrap() >= billed.cost);
            let told: Decimal = billed.call.prompt_price.unwrap().to_string().parse().unwrap();
            assert_eq!(told, of_prompt * Decimal::new(115, 2));
        }
    }
    let listed = gateway.http1.get("/llm/models").await.ok().json();
    let models = listed["models"].as_array().unwrap();
    let own = &models.iter().find(|model| model["id"] == SMALL).unwrap()["pricing"]["overrides"];
    assert_eq!(own[1]["completion"], json!("0.00001035"));
    assert_eq!(own[0]["input_cache_read"], json!("0.000000115"));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_short_prompt_is_admitted_with_the_credit_of_its_own_row() {
    // Its bytes bound the prompt beyond the row's beginning; counted it is below, and that is what the account can pay.
    let upstream = provider().await;
    let mut setup = setup(&upstream).credit("5");
    setup.catalogue["models"][1]["pricing"] = json!({
        "prompt": "0.001", "completion": "0",
        "overrides": [{ "min_prompt_tokens": 5_000, "prompt": "0.01" }],
    });
    let gateway = setup.start().await;
    let reported = Reported {
        prompt: 2_000,
        completion: 1,
        kinds: [0; 3],
    };
    gateway
        .http1
        .post("/llm/chat", asking(&reported.openai(), false))
        .await
        .ok();
    assert_eq!(gateway.spent().await, Decimal::new(23, 1));
}
