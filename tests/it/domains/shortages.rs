//! What a key that is locked to domains is told when its account cannot pay: whether to wait, and no figure of the account's, for everybody
//! who reads the page has the key.

use rust_decimal::Decimal;
use serde_json::json;

use crate::bounds::on_both;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::client::{Client, ask};
use crate::harness::gateway::decimal;
use crate::harness::{Cue, Events, Gateway, KeySpec, Reply, Setup, Upstream};

const PAGE: &str = "https://app.example.com";
/// What the account has, by its credit or by its quota: enough for one call with a maximum of 1,000, and not for two at once.
const ENOUGH: &str = "0.001234567891";
/// Where the other of both is not what is short.
const PLENTY: &str = "73.19";

fn call(max_tokens: u64) -> String {
    let messages = json!([{ "role": "user", "content": "Hello" }]);
    json!({ "model": SMALL, "messages": messages, "max_tokens": max_tokens }).to_string()
}

async fn open(client: &Client) -> Events {
    let call = client.post_request("/llm/chat/stream", call(1_000));
    Events::of(call.header("origin", PAGE)).await.ok()
}

/// Checks that a call is refused for this reason, that a retry is asked for where it may help, and what else is told.
async fn check_refused(gateway: &Gateway, client: &Client, max_tokens: u64, (kind, reason): (&str, &str)) {
    let call = client.post_request("/llm/chat", call(max_tokens));
    let answer = ask(call.header("origin", PAGE)).await;
    let error = answer.error(402, kind);
    let metadata = &error["metadata"];
    let needed = &metadata["needed"];
    assert!(needed.as_f64().is_some_and(|needed| needed > 0.0), "{error}");
    let expected = json!({ "scope": "account", "needed": needed, "reason": reason });
    assert_eq!(*metadata, expected);
    let hints = (answer.header("retry-after"), answer.header("x-should-retry"));
    match reason {
        "in_flight" => {
            assert!(hints.0.parse::<u64>().is_ok_and(|secs| secs > 0), "{hints:?}");
            assert_eq!(hints.1, "true");
        }
        _ => assert_eq!(hints, ("", "false")),
    }
    let figures = gateway.account().await.figures;
    let [balance, held, used] = [figures.balance, figures.held, figures.monthly_used].map(decimal);
    let whole: Decimal = ENOUGH.parse().unwrap();
    for figure in [balance, held, used, balance - held, whole, whole - used - held] {
        let figure = figure.normalize().to_string();
        let is_told = figure != "0" && answer.text().contains(&figure);
        assert!(!is_told, "{figure}: {}", answer.text());
    }
}

/// Refusals of a locked key for want of `kind`, before, while and after a stream of its own holds most of what there is.
async fn check_shortages(kind: &str, short: impl Fn(Setup) -> Setup) {
    let cue = Cue::new();
    let begun = Reply::stream().role().wait(&cue);
    let upstream = Upstream::always(begun.text("Hi").finish().usage(9, 1).done()).await;
    for (gateway, _redis) in on_both(|| short(Setup::over(&upstream))).await {
        let spec = KeySpec {
            domains: &["app.example.com"],
            ..KeySpec::default()
        };
        let client = gateway.http1.with_key(&gateway.new_key(spec).await);
        check_refused(&gateway, &client, 4_000, (kind, kind)).await;

        let mut events = open(&client).await;
        events.next().await.unwrap();
        check_refused(&gateway, &client, 1_000, (kind, "in_flight")).await;
        // All of it would not do.
        check_refused(&gateway, &client, 4_000, (kind, kind)).await;
        cue.give();
        assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
        gateway.settled_balance().await;

        check_refused(&gateway, &client, 4_000, (kind, kind)).await;
        cue.give();
        open(&client).await.rest().await;
        assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
        gateway.check_books().await;
    }
    assert_eq!(upstream.seen().len(), 4, "a refused call is not sent");
}

#[tokio::test]
async fn a_locked_key_is_told_of_its_accounts_lack_of_credit_whether_to_wait_and_no_figure() {
    check_shortages("insufficient_credits", |setup| setup.credit(ENOUGH)).await;
}

#[tokio::test]
async fn a_locked_key_is_told_of_its_accounts_spent_quota_whether_to_wait_and_no_figure() {
    let short = |setup: Setup| {
        let setup = setup.credit(PLENTY);
        setup.conf(|conf| conf["tiers"]["pro"] = json!({ "monthly_quota": ENOUGH }))
    };
    check_shortages("quota_exceeded", short).await;
}
