//! Domain locks and cross-origin requests.

mod shortages;

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{EMBED, SMALL};
use crate::harness::client::{Client, ask};
use crate::harness::{Answer, Gateway, KeySpec, Reply, Upstream};

/// A gateway and a client whose key is locked to these hosts.
async fn locked(upstream: &Upstream, domains: &'static [&'static str]) -> (Gateway, Client) {
    let gateway = Gateway::over(upstream).await;
    let spec = KeySpec {
        domains,
        ..KeySpec::default()
    };
    let client = gateway.http1.with_key(&gateway.new_key(spec).await);
    (gateway, client)
}

fn with(request: RequestBuilder, headers: &[(&str, &str)]) -> RequestBuilder {
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
}

#[tokio::test]
async fn a_locked_key_works_from_its_domains_alone() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let (_gateway, client) = locked(&upstream, &["app.example.com", "*.wild.example", "localhost"]).await;
    let allowed: &[&[(&str, &str)]] = &[
        &[("origin", "https://app.example.com")],
        &[("origin", "http://app.example.com")],
        &[("origin", "https://app.example.com:8443")],
        &[("origin", "https://APP.Example.COM")],
        &[("origin", "https://a.wild.example")],
        &[("origin", "https://a.b.WILD.example:1")],
        &[("origin", "http://localhost:3000")],
        &[("referer", "https://app.example.com/page?x=1#y")],
        &[("referer", "https://app.example.com")],
        &[
            ("origin", "https://app.example.com"),
            ("referer", "https://evil.example/"),
        ],
        &[
            ("origin", "https://app.example.com"),
            ("referer", "https://app.example.com/"),
            ("referer", "https://evil.example/"),
        ],
    ];
    let refused: &[&[(&str, &str)]] = &[
        &[],
        &[("origin", "null")],
        &[("origin", "")],
        &[("origin", "app.example.com")],
        &[("origin", "https://example.com")],
        &[("origin", "https://app.example.com.evil.example")],
        &[("origin", "https://evilapp.example.com")],
        &[("origin", "https://wild.example")],
        &[("origin", "https://notwild.example")],
        &[("origin", "https://app.example.com@evil.example")],
        &[
            ("origin", "https://evil.example"),
            ("referer", "https://app.example.com/"),
        ],
        &[("origin", "null"), ("referer", "https://app.example.com/")],
        &[("referer", "https://evil.example/https://app.example.com/")],
        &[
            ("origin", "https://app.example.com"),
            ("origin", "https://evil.example"),
        ],
        &[
            ("origin", "https://app.example.com"),
            ("origin", "https://app.example.com"),
        ],
        &[
            ("referer", "https://app.example.com/"),
            ("referer", "https://evil.example/"),
        ],
        &[("host", "app.example.com")],
        &[("x-forwarded-host", "app.example.com")],
    ];
    for headers in allowed {
        println!("{headers:?}");
        ask(with(client.post_request("/llm/chat", request(SMALL)), headers))
            .await
            .ok();
        ask(with(client.request(Method::GET, "/llm/balance"), headers))
            .await
            .ok();
    }
    assert_eq!(upstream.seen().len(), allowed.len());
    for headers in refused {
        println!("{headers:?}");
        for call in [
            client.post_request("/llm/chat", request(SMALL)),
            client.post_request("/llm/chat/stream", request(SMALL)),
            client.post_request("/chat/completions", streaming(SMALL)),
            client.post_request("/llm/embeddings", json!({ "model": EMBED, "input": "x" }).to_string()),
            client.request(Method::GET, "/llm/balance"),
            client.request(Method::GET, "/llm/usage"),
            client.request(Method::GET, "/llm/generation?id=x"),
            client.request(Method::GET, "/llm/generations"),
            client.request(Method::GET, "/generation?id=x"),
            client.request(Method::GET, "/llm/models"),
            client.request(Method::GET, "/llm/models/purposes"),
            client.request(Method::GET, "/models"),
        ] {
            let error = ask(with(call, headers)).await.error(403, "permission_error");
            assert!(error["message"].as_str().unwrap().contains("domain"), "{error}");
        }
    }
    assert_eq!(upstream.seen().len(), allowed.len());
}

#[tokio::test]
async fn a_locked_key_is_told_what_is_its_own() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let (gateway, locked) = locked(&upstream, &["app.example.com"]).await;
    let from_page = |request| with(request, &[("origin", "https://app.example.com")]);
    for _ in 0..3 {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    }
    let figures = async |path: &str| ask(from_page(locked.request(Method::GET, path))).await.ok().json();
    let usage = figures("/llm/usage?period=all").await;
    assert_eq!((&usage["total_requests"], &usage["total_cost"]), (&json!(0), &json!(0)));
    let untouched = figures("/llm/balance").await;
    for name in ["balance", "held", "monthly_used"] {
        assert_eq!(untouched[name], json!(0), "{name}");
    }
    ask(from_page(locked.post_request("/llm/chat", request(SMALL))))
        .await
        .ok();
    let own = figures("/llm/usage?period=all").await;
    assert_eq!(own["total_requests"], json!(1));
    assert_eq!(figures("/llm/balance").await["monthly_used"], own["total_cost"]);
    let all = gateway.http1.get("/llm/usage").await.ok().json();
    assert_eq!(all["total_requests"], json!(4));
    assert!(
        gateway.http1.get("/llm/balance").await.ok().json()["balance"]
            .as_f64()
            .unwrap()
            > 1.0
    );
}

#[tokio::test]
async fn a_key_without_a_lock_works_from_everywhere() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    for origin in ["https://any.example", "null", "nonsense"] {
        ask(gateway
            .http1
            .post_request("/llm/chat", request(SMALL))
            .header("origin", origin))
        .await
        .ok();
    }
}

/// What a script of a page may see of an answer.
fn check_readable(answer: &Answer, origin: &str) {
    assert_eq!(
        answer.header("access-control-allow-origin"),
        origin,
        "{} {}",
        answer.status,
        answer.text()
    );
    assert!(answer.header("vary").contains("Origin"), "{}", answer.header("vary"));
    let exposed = answer.header("access-control-expose-headers");
    for name in [
        "x-request-id",
        "retry-after",
        "x-ratelimit-limit-requests",
        "x-ratelimit-reset-tokens",
    ] {
        assert!(exposed.contains(name), "{name} in {exposed}");
    }
}

#[tokio::test]
async fn every_answer_can_be_read_by_the_page_that_asked() {
    let upstream = Upstream::of([
        Reply::chat("Hi", 9, 1),
        Reply::stream_of(&["Hi"], 9, 1),
        Reply::refusal(400, &[], "x"),
        Reply::status(500),
    ])
    .await;
    let (gateway, _client) = locked(&upstream, &["app.example.com"]).await;
    let (origin, nobody) = ("https://app.example.com", gateway.http1.with_key(""));
    for (status, call) in [
        (200, gateway.http1.post_request("/llm/chat", request(SMALL))),
        (200, gateway.http1.post_request("/llm/chat/stream", request(SMALL))),
        (400, gateway.http1.post_request("/llm/chat", request(SMALL))),
        (500, gateway.http1.post_request("/llm/chat", request(SMALL))),
        (400, gateway.http1.post_request("/llm/chat", "{}")),
        (404, gateway.http1.post_request("/llm/chat", request("no/such"))),
        (404, gateway.http1.request(Method::GET, "/llm/nothing")),
        (405, gateway.http1.request(Method::GET, "/llm/chat")),
        (401, nobody.request(Method::GET, "/llm/balance")),
        (200, nobody.request(Method::GET, "/llm/health")),
        (200, nobody.request(Method::GET, "/llm/public/models")),
        (200, gateway.http1.request(Method::GET, "/llm/models")),
        (200, gateway.h2c.request(Method::GET, "/llm/usage")),
    ] {
        let answer = ask(call.header("origin", origin)).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        check_readable(&answer, origin);
    }
    let refused = ask(_client
        .request(Method::GET, "/llm/balance")
        .header("origin", "https://evil.example"))
    .await;
    assert_eq!(refused.status, 403);
    check_readable(&refused, "https://evil.example");
    let plain = gateway.http1.get("/llm/balance").await.ok();
    assert_eq!(plain.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn a_preflight_is_answered_without_a_key() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let origin = "https://app.example.com";
    for client in [gateway.http1.with_key(""), gateway.h2c.with_key("")] {
        for (path, method) in [
            ("/llm/chat/stream", "POST"),
            ("/llm/embeddings", "POST"),
            ("/llm/balance", "GET"),
            ("/key", "GET"),
            ("/models", "GET"),
        ] {
            let asked = "authorization, content-type, x-stainless-lang";
            let preflight = client
                .request(Method::OPTIONS, path)
                .header("origin", origin)
                .header("access-control-request-method", method)
                .header("access-control-request-headers", asked);
            let answer = ask(preflight).await;
            assert_eq!((answer.status, answer.body.len()), (204, 0), "{path}");
            check_readable(&answer, origin);
            assert!(answer.header("access-control-allow-methods").contains(method));
            assert_eq!(answer.header("access-control-allow-headers"), asked);
            assert!(answer.header("access-control-max-age").parse::<u64>().unwrap() > 0);
            crate::harness::answer::check_request_id(&answer.headers);
        }
        let unknown = || client.request(Method::OPTIONS, "/llm/nothing").header("origin", origin);
        ask(unknown()).await.error(404, "not_found_error");
        // A page has to be let through to read that.
        let answer = ask(unknown().header("access-control-request-method", "GET")).await;
        assert_eq!(answer.status, 204);
        check_readable(&answer, origin);
    }
    gateway.check_untouched(&upstream).await;
}
