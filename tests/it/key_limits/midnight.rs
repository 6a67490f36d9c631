//! Streams that are open at midnight on several nodes of one Redis, with a key's daily limit.

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::ledger::key_settings::KeySettings;
use tollgate::pure::spend::Reset;

use super::{key_with, limit, number};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::Client;
use crate::harness::redis_server::RedisServer;
use crate::harness::told::told_cost;
use crate::harness::{Cue, Events, Gateway, Reply, Setup, Upstream};

/// Streams that a day's limit allows at once.
const ALLOWED: u64 = 6;

/// A stream that will report so many tokens, of two digits each, so that all hold the same.
#[derive(Clone, Copy)]
struct Asked {
    prompt: u64,
    completion: u64,
}

impl Asked {
    fn body(self) -> String {
        let messages = json!([{ "role": "user", "content": format!("{} {}", self.prompt, self.completion) }]);
        json!({ "model": SMALL, "messages": messages, "max_tokens": 100, "stream_options": { "include_usage": true } })
            .to_string()
    }

    fn cost(self) -> Decimal {
        cost(SMALL, self.prompt, self.completion)
    }

    fn of(n: u64) -> Asked {
        Asked {
            prompt: 10 + n,
            completion: 20 + 3 * n,
        }
    }
}

/// Begins to answer, waits for the cue, and reports what the request says.
async fn upstream(cue: &Cue) -> Upstream {
    let cue = cue.clone();
    Upstream::by(move |_, seen| {
        let body = seen.json();
        let says = body["messages"][0]["content"].as_str().unwrap();
        let (prompt, completion) = says.split_once(' ').unwrap();
        let (prompt, completion) = (prompt.parse().unwrap(), completion.parse().unwrap());
        let begun = Reply::stream().role().text("Hi").wait(&cue);
        begun.text("!").finish().usage(prompt, completion).done()
    })
    .await
}

/// Opens these streams, one at each node in turn; after them there is room for none at either.
async fn open(nodes: &[Client], asked: &[Asked]) -> Vec<(Events, Asked)> {
    let mut open = Vec::new();
    for (n, asked) in asked.iter().enumerate() {
        let stream = nodes[n % nodes.len()].stream("/llm/chat/stream", asked.body()).await;
        let mut stream = stream.ok();
        stream.next().await.unwrap();
        open.push((stream, *asked));
    }
    for node in nodes {
        let refused = node.post("/llm/chat/stream", Asked::of(0).body()).await;
        refused.error(402, "insufficient_credits");
        let metadata = &refused.json()["error"]["metadata"];
        assert_eq!(
            (&metadata["scope"], &metadata["reason"]),
            (&json!("key"), &json!("in_flight"))
        );
    }
    open
}

/// Reads them to their ends; each tells what it costs.
async fn end(streams: Vec<(Events, Asked)>) -> Decimal {
    let mut sum = Decimal::ZERO;
    for (stream, asked) in streams {
        let rest = stream.rest().await.join("\n");
        assert_eq!(told_cost(&rest), Some(asked.cost()), "{rest}");
        sum += asked.cost();
    }
    sum
}

/// What a stream with this key holds.
async fn held_by_one(gateway: &Gateway, asked: Asked, cue: &Cue) -> Decimal {
    let mut stream = gateway.http1.stream("/llm/chat/stream", asked.body()).await.ok();
    stream.next().await.unwrap();
    let held = gateway.held().await;
    cue.give();
    end(vec![(stream, asked)]).await;
    held
}

#[tokio::test]
async fn streams_that_are_open_on_two_nodes_at_midnight_lose_and_double_nothing_on_redis() {
    let redis = RedisServer::start();
    let cue = Cue::new();
    let upstream = upstream(&cue).await;
    let setup = || Setup::over(&upstream).redis(&redis.url());
    let one = setup().start().await;
    let two = setup().beside(&one).start().await;
    let probe = Asked::of(0);
    let held = held_by_one(&one, probe, &cue).await;
    let whole = held * Decimal::from(ALLOWED) + (held / Decimal::TWO).round_dp(12);
    let settings = KeySettings {
        limit: limit(&whole.to_string(), Reset::Daily),
        ..KeySettings::default()
    };
    let key = key_with(&one, settings).await;
    let nodes = [one.http1.with_key(&key), two.http1.with_key(&key)];

    let now = one.clock.now();
    one.clock.advance(now.day().next().start().since(now) - 1);
    let of_yesterday: Vec<Asked> = (1..=ALLOWED).map(Asked::of).collect();
    let of_today: Vec<Asked> = (ALLOWED + 1..=2 * ALLOWED).map(Asked::of).collect();
    let before = open(&nodes, &of_yesterday).await;
    one.clock.advance(1);
    // The new day has its whole limit, though all of yesterday's still run, and no more than that.
    let after = open(&nodes, &of_today).await;
    assert_eq!(one.held().await, held * Decimal::from(2 * ALLOWED));
    cue.give_all();
    let (yesterday, today) = (end(before).await, end(after).await);
    let spent = yesterday + today;

    let balance = one.settled_balance().await;
    assert_eq!(one.paid_in - balance, probe.cost() + spent);
    for node in &nodes {
        let told = node.get("/key").await.ok();
        let figure = |name: &str| number(told.text(), name).parse::<Decimal>().unwrap();
        assert_eq!(
            figure("limit_remaining"),
            whole - today,
            "yesterday's count on yesterday: {}",
            told.text()
        );
        assert_eq!(figure("usage"), spent, "{}", told.text());
    }
    let receipts = one.receipts().await;
    assert_eq!(receipts.len() as u64, 1 + 2 * ALLOWED, "one receipt each");
    // What is left of the new day is what its own streams left: calls come through at both nodes until a hold does not fit.
    let mut left = whole - today;
    for n in 0.. {
        let asked = Asked::of(1 + n % 20);
        let node = &nodes[usize::from(n % 2 == 1)];
        let answer = node.post("/llm/chat/stream", asked.body()).await;
        if answer.status != 200 {
            assert!(left < held, "{left} of {held}: {}", answer.text());
            let metadata: &Value = &answer.json()["error"]["metadata"];
            let expected = (&json!("key"), &json!("limit_spent"));
            assert_eq!((&metadata["scope"], &metadata["reason"]), expected);
            break;
        }
        left -= asked.cost();
        assert!(left >= Decimal::ZERO, "{left}");
        one.settled_balance().await;
    }
    one.check_books().await;
    two.check_books().await;
}
