//! Rate limits: who gets 429, and when they may come back.

use bytes::Bytes;
use serde_json::json;
use tollgate::ledger::key_settings::KeySettings;
use tollgate::pure::limits::LimitOverrides;
use tollgate::pure::spend::{Reset, SpendLimit};

use crate::bounds::on_both;
use crate::chat::{request, streaming};
use crate::harness::catalogue::{FREE, SMALL, cost};
use crate::harness::{Answer, Cue, Gateway, KeySpec, Reply, Setup, Upstream};

/// The six headers: limit, remaining and reset, of requests and of tokens.
fn headers(answer: &Answer) -> [String; 6] {
    [
        "limit-requests",
        "remaining-requests",
        "reset-requests",
        "limit-tokens",
        "remaining-tokens",
        "reset-tokens",
    ]
    .map(|name| answer.header(&format!("x-ratelimit-{name}")).to_owned())
}

/// A gateway with these limits for the tier Pro.
async fn limited(upstream: &Upstream, rpm: u64, tpm: u64, concurrency: u64) -> Gateway {
    let limits = json!({ "rpm": rpm, "tpm": tpm, "concurrency": concurrency });
    Setup::over(upstream)
        .conf(|conf| conf["tiers"]["pro"] = limits)
        .start()
        .await
}

#[tokio::test]
async fn requests_a_minute_429_says_when_to_come_back() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = limited(&upstream, 3, 100_000, 10).await;
    for left in ["2", "1", "0"] {
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        let [limit, remaining, reset, ..] = headers(&answer);
        assert_eq!((limit.as_str(), remaining.as_str(), reset.as_str()), ("3", left, "60s"));
        gateway.settled_balance().await;
    }
    gateway.clock.advance(18_500);
    for path in ["/llm/chat", "/llm/chat/stream"] {
        let answer = gateway.http1.post(path, request(SMALL)).await;
        let error = answer.error(429, "rate_limit_error");
        assert_eq!(error["metadata"], json!({ "limit": "requests_per_minute", "value": 3 }));
        assert_eq!(answer.header("retry-after"), "42");
        let [limit, remaining, reset, ..] = headers(&answer);
        assert_eq!((limit.as_str(), remaining.as_str(), reset.as_str()), ("3", "0", "42s"));
    }
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(
        gateway.spent().await,
        cost(SMALL, 27, 3),
        "a refused call costs nothing"
    );
    gateway.clock.advance(41_499);
    gateway
        .http1
        .post("/llm/chat", request(SMALL))
        .await
        .error(429, "rate_limit_error");
    gateway.clock.advance(1);
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
}

#[tokio::test]
async fn tokens_a_minute_count_what_was_really_used() {
    let upstream = Upstream::always(Reply::chat("Hi", 350, 150)).await;
    let gateway = limited(&upstream, 100, 1_200, 10).await;
    let body =
        json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 150 }).to_string();
    for _ in 0..2 {
        gateway.http1.post("/llm/chat", body.clone()).await.ok();
        gateway.settled_balance().await;
    }
    // Two calls used 500 each: a call that may use 150 more and has a prompt still fits, one that may use 200 does not.
    let large = body.replace("150", "200");
    let answer = gateway.http1.post("/llm/chat", large.clone()).await;
    let error = answer.error(429, "rate_limit_error");
    assert_eq!(
        error["metadata"],
        json!({ "limit": "tokens_per_minute", "value": 1_200 })
    );
    assert_eq!(answer.header("retry-after"), "60");
    let [.., limit, remaining, reset] = headers(&answer);
    assert_eq!(
        (limit.as_str(), remaining.as_str(), reset.as_str()),
        ("1200", "200", "60s")
    );
    gateway.http1.post("/llm/chat", body).await.ok();
    gateway.settled_balance().await;
    gateway.clock.advance(60_000);
    gateway.http1.post("/llm/chat", large).await.ok();
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn calls_at_once_are_limited_and_free_again_when_they_end() {
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done()).await;
    let gateway = limited(&upstream, 100, 100_000, 2).await;
    let first = gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
    let second = gateway.h2c.stream("/llm/chat", streaming(FREE)).await.ok();
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    let error = answer.error(429, "rate_limit_error");
    assert_eq!(error["metadata"], json!({ "limit": "concurrent_requests", "value": 2 }));
    assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
    assert_eq!(upstream.seen().len(), 2);
    cue.give();
    cue.give();
    for events in [first, second] {
        assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    }
    gateway.settled_balance().await;
    cue.give_all();
    gateway
        .http1
        .stream("/llm/chat", streaming(SMALL))
        .await
        .ok()
        .rest()
        .await;
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
    gateway.check_books().await;
}

/// `Retry-After` was 1: who obeyed had no request left when the calls had ended, and was out for the rest of the minute.
#[tokio::test]
async fn who_comes_back_as_told_while_calls_run_has_a_request_left_until_the_minute_ends() {
    let cue = Cue::new();
    let upstream = Upstream::always(Reply::stream().role().wait(&cue).text("Hi").finish().usage(9, 1).done()).await;
    let limits = json!({ "rpm": 6, "tpm": 100_000, "concurrency": 1 });
    let setup = || Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = limits.clone());
    for (gateway, redis) in on_both(setup).await {
        let running = gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
        let refused = async || {
            let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
            let error = answer.error(429, "rate_limit_error");
            assert_eq!(error["metadata"], json!({ "limit": "concurrent_requests", "value": 1 }));
            answer.header("retry-after").parse::<i64>().unwrap()
        };
        // Four requests are left for what is left of the minute.
        let mut wait = refused().await;
        assert!((2..=12).contains(&wait), "{wait}");
        // Redis' time is not the test's.
        let mut passed = wait;
        while redis.is_none() && passed < 60 {
            gateway.clock.advance(wait * 1_000);
            wait = refused().await;
            passed += wait;
        }
        cue.give();
        assert_eq!(running.rest().await.last().unwrap(), "[DONE]");
        gateway.settled_balance().await;
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_keys_own_limits_are_its_own_and_other_keys_share_the_accounts() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = limited(&upstream, 2, 100_000, 10).await;
    let own = LimitOverrides {
        rpm: Some(1),
        ..LimitOverrides::default()
    };
    let limited = KeySpec {
        limits: own,
        ..KeySpec::default()
    };
    let limited = gateway.http1.with_key(&gateway.new_key(limited).await);
    let sister = gateway.http1.with_key(&gateway.new_key(KeySpec::default()).await);
    limited.post("/llm/chat", request(SMALL)).await.ok();
    limited
        .post("/llm/chat", request(SMALL))
        .await
        .error(429, "rate_limit_error");
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    sister.post("/llm/chat", request(SMALL)).await.ok();
    for client in [&gateway.http1, &sister] {
        client
            .post("/llm/chat", request(SMALL))
            .await
            .error(429, "rate_limit_error");
    }
    assert_eq!(
        limited
            .get("/llm/balance")
            .await
            .ok()
            .header("x-ratelimit-limit-requests"),
        "1"
    );
    assert_eq!(
        sister
            .get("/llm/balance")
            .await
            .ok()
            .header("x-ratelimit-remaining-requests"),
        "0"
    );
}

#[tokio::test]
async fn every_answer_to_a_known_caller_has_the_headers() {
    let upstream = Upstream::of([
        Reply::chat("Hi", 9, 1),
        Reply::stream_of(&["Hi"], 9, 1),
        Reply::refusal(400, &[], "x"),
        Reply::status(500),
    ])
    .await;
    let gateway = limited(&upstream, 50, 5_000, 10).await;
    let mut answers = vec![
        gateway.http1.post("/llm/chat", request(SMALL)).await,
        gateway.http1.post("/llm/chat", streaming(SMALL)).await,
        gateway.http1.post("/llm/chat", request(SMALL)).await,
        gateway.http1.post("/llm/chat", request(SMALL)).await,
    ];
    for path in [
        "/llm/balance",
        "/llm/usage",
        "/key",
        "/llm/generation?id=x",
        "/llm/generations",
        "/generation",
        "/llm/models",
        "/llm/models/purposes",
        "/models",
        "/models/acme/small",
        "/models/none",
    ] {
        answers.push(gateway.h2c.get(path).await);
    }
    let calls = answers.len();
    for answer in answers {
        let found = headers(&answer);
        assert_eq!(
            (found[0].as_str(), found[3].as_str()),
            ("50", "5000"),
            "{}",
            answer.text()
        );
        assert!(found.iter().all(|value| !value.is_empty()), "{found:?}");
    }
    let last = gateway.http1.get("/llm/balance").await.ok();
    assert_eq!(
        last.header("x-ratelimit-remaining-requests"),
        "46",
        "of {calls} answers only the calls to models count"
    );
}

#[tokio::test]
async fn bad_requests_use_up_no_limit() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = limited(&upstream, 1, 100_000, 1).await;
    for body in ["", "{}", "not json", r#"{"model":"no/such","messages":[{}]}"#] {
        assert!(gateway.http1.post("/llm/chat", body).await.status >= 400);
    }
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
}

#[tokio::test]
async fn calls_that_are_refused_for_credit_count_for_the_requests_of_their_key_on_either_store() {
    let upstream = Upstream::unused().await;
    let limits = json!({ "rpm": 3, "tpm": 100_000_000, "concurrency": 10 });
    let setup = || {
        Setup::over(&upstream)
            .credit("0")
            .conf(|conf| conf["tiers"]["pro"] = limits.clone())
    };
    let long =
        json!({ "model": SMALL, "messages": [{ "role": "user", "content": "four words of text ".repeat(60_000) }] });
    let body = Bytes::from(long.to_string());
    for (gateway, _redis) in on_both(setup).await {
        for left in ["2", "1", "0"] {
            let answer = gateway.http1.post("/llm/chat", body.clone()).await;
            answer.error(402, "insufficient_credits");
            assert_eq!(answer.header("x-ratelimit-remaining-requests"), left);
        }
        for _ in 0..2 {
            let answer = gateway.h2c.post("/llm/chat", body.clone()).await;
            let error = answer.error(429, "rate_limit_error");
            assert_eq!(error["metadata"], json!({ "limit": "requests_per_minute", "value": 3 }));
            assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
        }
        gateway.check_untouched(&upstream).await;
    }
}

/// All that comes before was done for it, and nothing bounded how often.
#[tokio::test]
async fn a_call_that_no_account_could_pay_counts_as_a_request_on_either_store() {
    let upstream = Upstream::unused().await;
    let limits = json!({ "rpm": 3, "tpm": 100_000_000, "concurrency": 10 });
    let setup = || Setup::over(&upstream).conf(|conf| conf["tiers"]["pro"] = limits.clone());
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let huge = json!({ "model": SMALL, "messages": messages, "max_tokens": u32::MAX, "n": u32::MAX }).to_string();
    for (gateway, _redis) in on_both(setup).await {
        for left in ["2", "1", "0"] {
            let answer = gateway.http1.post("/llm/chat", huge.clone()).await;
            answer.error(400, "invalid_request_error");
            assert_eq!(answer.header("x-ratelimit-remaining-requests"), left);
        }
        for body in [huge.clone(), request(SMALL)] {
            let answer = gateway.http1.post("/llm/chat", body).await;
            let error = answer.error(429, "rate_limit_error");
            assert_eq!(error["metadata"], json!({ "limit": "requests_per_minute", "value": 3 }));
            assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
        }
        gateway.check_untouched(&upstream).await;
    }
}

/// Whatever it was refused for at first: the credit, the quota, or a hard limit of the key's or its end user's.
#[tokio::test]
async fn a_call_that_is_refused_and_paid_once_its_prompt_is_counted_counts_as_one_request() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    // The bound of the prompt is a token a byte: with the text counted it is a quarter of that.
    let call = |times: usize| {
        let messages = json!([{ "role": "user", "content": "four words of text ".repeat(times) }]);
        json!({ "model": SMALL, "messages": messages, "max_tokens": 10, "user": "anna" }).to_string()
    };
    let enough = cost(SMALL, 12_000, 10).normalize().to_string();
    let limit = SpendLimit {
        amount: enough.parse().unwrap(),
        reset: Reset::Daily,
    };
    let of_key = KeySettings {
        limit: Some(limit),
        ..KeySettings::default()
    };
    let of_end_user = KeySettings {
        end_user_limit: Some(limit),
        ..KeySettings::default()
    };
    for (by, credit, quota, settings) in [
        ("credit", enough.as_str(), "1000", KeySettings::default()),
        ("quota", "100", enough.as_str(), KeySettings::default()),
        ("key", "100", "1000", of_key),
        ("end user", "100", "1000", of_end_user),
    ] {
        let tier = json!({ "rpm": 3, "tpm": 100_000_000, "concurrency": 10, "monthly_quota": quota });
        let setup = || {
            Setup::over(&upstream)
                .credit(credit)
                .conf(|conf| conf["tiers"]["pro"] = tier.clone())
        };
        for (gateway, _redis) in on_both(setup).await {
            let spec = KeySpec {
                settings: settings.clone(),
                ..KeySpec::default()
            };
            let client = gateway.http1.with_key(&gateway.new_key(spec).await);
            let answer = client.post("/llm/chat", call(1_000)).await.ok();
            assert_eq!(answer.header("x-ratelimit-remaining-requests"), "2", "{by}");
            assert_eq!(gateway.spent().await, cost(SMALL, 9, 1), "{by}");
            // This one is too dear when it is counted, too.
            let refused = client.post("/llm/chat", call(4_000)).await;
            assert_eq!(refused.status, 402, "{by}: {}", refused.text());
            assert_eq!(refused.header("x-ratelimit-remaining-requests"), "1", "{by}");
            assert_eq!(gateway.spent().await, cost(SMALL, 9, 1), "{by}");
            gateway.check_books().await;
        }
    }
    assert_eq!(upstream.seen().len(), 8);
}
