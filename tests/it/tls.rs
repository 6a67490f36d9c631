//! Upstreams over TLS: a private authority, server names, and what a certificate that does not fit comes to.

use std::path::PathBuf;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::server::reload::Reloaded;

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{LARGE, SMALL, TWIN, cost};
use crate::harness::tls::Authority;
use crate::harness::upstream::Seen;
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

/// In a URL and in `Host` it stands in brackets, in a certificate it does not, and it is no name that a handshake could ask for.
#[tokio::test]
async fn an_ipv6_address_in_the_place_of_a_name_must_stand_in_the_certificate() {
    for (name, is_trusted) in [("::1", true), ("127.0.0.1", false)] {
        let authority = Authority::new();
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let answer = |_: usize, _: &Seen| Reply::chat("Hi", 9, 1);
        let upstream = Upstream::on(listener, answer, Some(authority.identity(name).acceptor()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, &authority.pem).unwrap();
        let provider = json!({ "base_url": upstream.base_url_at("[::1]"), "api_key_env": "SET_MAIN", "ca_file": file });
        let gateway = Setup::over(&upstream).provider("main", provider).start().await;
        let told = gateway.http1.post("/llm/chat", request(SMALL)).await;
        if !is_trusted {
            told.error(502, "upstream_error");
            assert!(upstream.seen().is_empty());
            continue;
        }
        told.ok();
        let host = format!("[::1]:{}", upstream.address.port());
        assert_eq!(upstream.asked(1).await.header("host"), Some(host.as_str()));
        assert_eq!(upstream.server_names(), [None::<String>]);
    }
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

#[tokio::test]
async fn a_pooled_connection_that_is_closed_without_the_end_of_its_session_is_no_failure() {
    let chat = || Reply::chat("Hi", 9, 1);
    let part = Reply::default().bytes("HTTP/1.1 200 O").dropped();
    let authority = Authority::new();
    let replies = [chat(), Reply::default().dropped(), chat(), part];
    let upstream = Upstream::tls_of(&authority.identity("localhost"), replies).await;
    let ca = CaFile::of(&authority);
    let provider = ca.provider(&upstream.base_url_at("localhost"));
    let gateway = Setup::over(&upstream).provider("main", provider).start().await;
    for _ in 0..2 {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    }
    assert_eq!((upstream.seen().len(), upstream.connections()), (3, 2));
    // Of this one a part came: work had begun.
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    answer.error(502, "upstream_error");
    assert_eq!((upstream.seen().len(), upstream.connections()), (4, 2));
    assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));
}

#[tokio::test]
async fn a_connection_is_used_again_for_those_alone_who_trust_the_same_authority() {
    for http2 in [true, false] {
        let authority = Authority::new();
        let upstream = Upstream::tls(&authority.identity("localhost"), Reply::chat("Hi", 9, 1)).await;
        let ca = CaFile::of(&authority);
        let base_url = upstream.base_url_at("localhost");
        let mut trusting = ca.provider(&base_url);
        trusting["http2"] = http2.into();
        let setup = Setup::over(&upstream)
            .provider("main", trusting)
            .provider(
                "spare",
                json!({ "base_url": base_url, "http2": http2, "api_key_env": "SET_SPARE" }),
            )
            .model(LARGE, |model| model["targets"][0]["provider"] = "spare".into());
        let mut gateway = setup.start().await;
        for _ in 0..2 {
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
            let answer = gateway.http1.post("/llm/chat", request(LARGE)).await;
            answer.error(502, "upstream_error");
        }
        assert_eq!(upstream.seen().len(), 2);
        // Whose authority is trusted no more is asked no more, at once.
        std::fs::write(&ca.path, &Authority::new().pem).unwrap();
        assert!(matches!(gateway.check_files(), Reloaded::Changed));
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
        assert_eq!(upstream.seen().len(), 2);
        std::fs::write(&ca.path, &authority.pem).unwrap();
        assert!(matches!(gateway.check_files(), Reloaded::Changed));
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    }
}

/// A file with an authority's certificate.
struct CaFile {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl CaFile {
    fn of(authority: &Authority) -> CaFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, &authority.pem).unwrap();
        CaFile { _folder: folder, path }
    }

    fn provider(&self, base_url: &str) -> Value {
        json!({ "base_url": base_url, "api_key_env": "SET_MAIN", "ca_file": self.path.to_str().unwrap() })
    }
}
