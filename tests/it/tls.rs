//! Upstreams over TLS: a private authority, server names, and what a certificate that does not fit comes to.

use rust_decimal::Decimal;
use serde_json::json;

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::tls::Authority;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// An upstream with a certificate for `name`, and a gateway that reaches it as `host` and trusts `trusted`.
async fn secure(name: &str, host: &str, trusted: Trusted, reply: Reply) -> (Upstream, Gateway) {
    secure_by(name, host, trusted, reply, true).await
}

/// The same, and whether HTTP/2 is offered.
async fn secure_by(name: &str, host: &str, trusted: Trusted, reply: Reply, http2: bool) -> (Upstream, Gateway) {
    let (authority, other) = (Authority::new(), Authority::new());
    let upstream = Upstream::tls(&authority.identity(name), reply).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let mut provider = json!({ "base_url": upstream.base_url_at(host), "api_key_env": "SET_MAIN", "http2": http2 });
    match trusted {
        Trusted::System => {}
        Trusted::Private => std::fs::write(&file, &authority.pem).unwrap(),
        Trusted::Other => std::fs::write(&file, &other.pem).unwrap(),
    }
    if trusted != Trusted::System {
        provider["ca_file"] = file.to_str().unwrap().into();
    }
    let gateway = Setup::over(&upstream).provider("main", provider).start().await;
    (upstream, gateway)
}

/// Whose certificates the provider's configuration says to trust.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trusted {
    System,
    Private,
    Other,
}

#[tokio::test]
async fn a_private_authority_is_trusted_and_the_server_is_named() {
    for http2 in [true, false] {
        let reply = Reply::chat("Hi", 9, 1);
        let (upstream, gateway) = secure_by("localhost", "localhost", Trusted::Private, reply, http2).await;
        for client in [&gateway.http1, &gateway.h2c, &gateway.http1] {
            client.post("/llm/chat", request(SMALL)).await.ok();
        }
        assert_eq!(
            upstream.server_names(),
            [Some("localhost".to_owned())],
            "one handshake, with the name"
        );
        assert_eq!(gateway.spent().await, cost(SMALL, 27, 3));
    }
}

#[tokio::test]
async fn an_address_in_the_place_of_a_name_must_stand_in_the_certificate() {
    let (_upstream, gateway) = secure("127.0.0.1", "127.0.0.1", Trusted::Private, Reply::chat("Hi", 9, 1)).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    let (upstream, gateway) = secure("localhost", "127.0.0.1", Trusted::Private, Reply::chat("Hi", 9, 1)).await;
    gateway
        .http1
        .post("/llm/chat", request(SMALL))
        .await
        .error(502, "upstream_error");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_certificate_that_cannot_be_trusted_is_502_and_nothing_is_sent() {
    for (name, trusted) in [
        ("localhost", Trusted::System),
        ("localhost", Trusted::Other),
        ("other.example", Trusted::Private),
        ("*.localhost", Trusted::Private),
    ] {
        let (upstream, gateway) = secure(name, "localhost", trusted, Reply::chat("Hi", 9, 1)).await;
        for body in [request(SMALL), crate::chat::streaming(SMALL)] {
            let answer = gateway.http1.post("/llm/chat", body).await;
            answer.error(502, "upstream_error");
            assert!(
                !answer.text().to_lowercase().contains("certificate"),
                "{}",
                answer.text()
            );
        }
        assert!(upstream.seen().is_empty(), "{name}");
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_target_with_a_bad_certificate_is_passed_over() {
    let upstream = Upstream::tls(&Authority::new().identity("localhost"), Reply::chat("Hi", 9, 1)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let bad = json!({ "base_url": upstream.base_url_at("localhost") });
    let gateway = Setup::over(&spare).spare(&spare).provider("main", bad).start().await;
    gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    assert_eq!(spare.only().json()["model"], "up-twin-2");
}

#[tokio::test]
async fn a_plain_server_behind_https_is_502() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let wrong = json!({ "base_url": upstream.base_url_at("localhost").replace("http:", "https:") });
    let gateway = Setup::over(&upstream).provider("main", wrong).start().await;
    gateway
        .http1
        .post("/llm/chat", request(SMALL))
        .await
        .error(502, "upstream_error");
    assert_eq!(gateway.spent().await, Decimal::ZERO);
}

#[tokio::test]
async fn a_tls_stream_that_ends_without_its_close_is_a_failure() {
    let cut = Reply::stream().role().text("Hello").text(" world").reset();
    let (_upstream, gateway) = secure("localhost", "localhost", Trusted::Private, cut).await;
    let events = gateway
        .http1
        .stream("/llm/chat/stream", request(SMALL))
        .await
        .ok()
        .rest()
        .await;
    assert!(
        events[events.len() - 2].contains("\"finish_reason\":\"error\""),
        "{events:?}"
    );
    assert_eq!(gateway.spent().await, cost(SMALL, PROMPT, 2));
}
