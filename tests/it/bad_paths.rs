//! Unknown paths and wrong methods.

use reqwest::Method;

use crate::harness::client::ask;
use crate::harness::{Gateway, Upstream};

/// All paths of the interface and the aliases for OpenAI's clients, with the methods that they take.
pub(crate) const PATHS: [(&str, &str); 20] = [
    ("/openapi.json", "GET, HEAD, OPTIONS"),
    ("/llm/chat/stream", "POST, OPTIONS"),
    ("/llm/chat", "POST, OPTIONS"),
    ("/llm/embeddings", "POST, OPTIONS"),
    ("/llm/balance", "GET, HEAD, OPTIONS"),
    ("/llm/usage", "GET, HEAD, OPTIONS"),
    ("/key", "GET, HEAD, OPTIONS"),
    ("/llm/generation", "GET, HEAD, OPTIONS"),
    ("/llm/generations", "GET, HEAD, OPTIONS"),
    ("/generation", "GET, HEAD, OPTIONS"),
    ("/llm/models", "GET, HEAD, OPTIONS"),
    ("/llm/models/purposes", "GET, HEAD, OPTIONS"),
    ("/llm/public/models", "GET, HEAD, OPTIONS"),
    ("/llm/health", "GET, HEAD, OPTIONS"),
    ("/chat/completions", "POST, OPTIONS"),
    ("/embeddings", "POST, OPTIONS"),
    ("/models", "GET, HEAD, OPTIONS"),
    ("/models/acme/small", "GET, HEAD, OPTIONS"),
    ("/wallet", "GET, HEAD, OPTIONS"),
    ("/prices", "GET, HEAD, OPTIONS"),
];

#[tokio::test]
async fn a_wrong_method_is_405_and_says_which_are_allowed() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for (path, allowed) in PATHS {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            if allowed.contains(method.as_str()) {
                continue;
            }
            for client in [&gateway.http1, &gateway.h2c] {
                let answer = ask(client.request(method.clone(), path)).await;
                answer.error(405, "invalid_request_error");
                assert_eq!(answer.header("allow"), allowed, "{method} {path}");
            }
        }
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn a_path_outside_the_interface_is_404() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    for path in [
        "//",
        "//api",
        "//api/v1",
        "//api/v2/llm/health",
        "//llm/health",
        "//v1/chat/completions",
        "/",
        "/llm",
        "/llm/",
        "/llm/chat/",
        "/llm/chat/stream/",
        "/llm/Chat",
        "/llm/health/x",
        "/llm/public",
        "/llm/models/acme/small",
        "/llm/credits",
        "/llm/topup",
        "/completions",
        "/responses",
        "/messages",
        "/models/",
        "/llm/%63hat/none",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            for client in [&gateway.http1, &gateway.h2c, &gateway.http1.with_key("")] {
                ask(client.request(method.clone(), path).body(""))
                    .await
                    .error(404, "not_found_error");
            }
        }
    }
    gateway.check_untouched(&upstream).await;
}

#[tokio::test]
async fn the_base_path_is_the_configured_one() {
    let upstream = Upstream::unused().await;
    for (base_path, good, bad) in [
        ("/gate/v1/", "//gate/v1/llm/health", "//api/v1/llm/health"),
        ("", "//llm/health", "//api/v1/llm/health"),
    ] {
        let gateway = crate::harness::Setup::over(&upstream)
            .conf(|conf| conf["base_path"] = base_path.into())
            .start()
            .await;
        gateway.http1.get(good).await.ok();
        gateway.http1.get(bad).await.error(404, "not_found_error");
    }
}
