//! What an account, a key and an end user may spend, when many calls ask for the last of it at once at three gateways of one Redis.
//!
//! The model has a price per request and none per token, so that each call holds what it will cost: exactly as many get through as the
//! tightest of the three allows.

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::PROMPT;
use crate::harness::catalogue::{SMALL, catalogue};
use crate::harness::client::Client;
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream};

/// How many calls the tightest, the next and the widest allow.
const ALLOWED: [u64; 3] = [50, 60, 70];
/// What a call costs: 0.01 and the markup of 15 %.
const EACH: &str = "0.0115";
/// All orders of account, key and end user.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn racers() -> usize {
    let told = std::env::var("TOLLGATE_RACERS");
    told.map_or(300, |text| text.parse().unwrap())
}

/// One call; `None` where the gateway says that it may succeed later: others hold what is left, or the store was late.
async fn race(client: &Client, body: &str) -> Option<bool> {
    let answer = client.post("/llm/chat", body.to_owned()).await;
    match answer.status {
        200 => Some(true),
        402 => {
            let reason = answer.json()["error"]["metadata"]["reason"].clone();
            (reason != "in_flight").then_some(false)
        }
        503 => None,
        status => panic!("{status}: {}", answer.text()),
    }
}

#[tokio::test]
async fn exactly_as_many_racers_get_through_as_the_tightest_limit_allows() {
    let redis = RedisServer::start();
    let upstream = Upstream::always(Reply::chat("Hi", PROMPT, 50)).await;
    let tiers = json!({ "pro": { "rpm": 1_000_000, "tpm": 1_000_000_000_000_u64, "concurrency": 100_000, "monthly_quota": "1000000" } });
    let mut sold = catalogue();
    let models = sold["models"].as_array_mut().unwrap();
    let fixed = models.iter_mut().find(|model| model["id"] == SMALL).unwrap();
    fixed["pricing"] = json!({ "prompt": "0", "completion": "0", "request": "0.01" });
    let fleet = Fleet::selling(&sold, 3, &redis.url(), tiers, &upstream).await;
    let (fleet, each) = (&fleet, EACH.parse::<Decimal>().unwrap());
    let race = ORDERS.map(|order| async move {
        let name = format!("order-{}{}{}", order[0], order[1], order[2]);
        let [account, key, user] = order.map(|place| each * Decimal::from(ALLOWED[place]));
        fleet.account(&name, "pro", account).await;
        let (key, user) = (key.to_string(), user.to_string());
        let limits = ["--limit", &key, "--end-user-limit", &user, "--limit-reset", "monthly"];
        let words = [["key", "create", "--account", &name].as_slice(), &limits].concat();
        let made: Value = serde_json::from_str(&fleet.command(&words).await).unwrap();
        let clients = fleet.h2c(4, made["key"].as_str().unwrap());
        let messages = json!([{ "role": "user", "content": "Hello" }]);
        let body = json!({ "model": SMALL, "messages": messages, "max_tokens": 50, "user": "anna" }).to_string();
        let (mut racers, mut served) = (racers(), 0);
        while racers > 0 {
            let calls = (0..racers).map(|n| race(&clients[n % clients.len()], &body));
            let ends = join_all(calls).await;
            served += ends.iter().filter(|end| **end == Some(true)).count() as u64;
            racers = ends.iter().filter(|end| end.is_none()).count();
            let left = fleet.settled_balance(&name).await;
            assert_eq!(account - left, each * Decimal::from(served), "{name}");
        }
        assert_eq!(served, ALLOWED[0], "{name}");
    });
    join_all(race).await;
}
