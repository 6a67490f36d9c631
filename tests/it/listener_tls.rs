//! The gateway's own TLS (`tls` of the configuration): what it speaks, and certificates that change under it.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tollgate::config::Config;
use tollgate::gateway::snapshot::Snapshot;
use tollgate::gateway::upstream::providers::Upstreams;
use tollgate::net::dns::Resolver;
use tollgate::pure::time::Day;
use tollgate::server::reload::Reloaded;

use crate::harness::tls::Authority;
use crate::harness::{Gateway, Raw, Setup, Upstream, within};

/// The files that the configuration names.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, certificate: &str, key: &str) {
        std::fs::write(self.0.path().join("cert.pem"), certificate).unwrap();
        std::fs::write(self.0.path().join("key.pem"), key).unwrap();
    }

    async fn gateway(&self, upstream: &Upstream) -> Gateway {
        self.gateway_within(upstream, json!({})).await
    }

    /// The same with these time-outs.
    async fn gateway_within(&self, upstream: &Upstream, timeouts: Value) -> Gateway {
        let path = |name: &str| self.0.path().join(name).to_str().unwrap().to_owned();
        let setup = Setup::over(upstream).conf(|conf| {
            conf["tls"] = json!({ "cert": path("cert.pem"), "key": path("key.pem") });
            conf["timeouts"] = timeouts;
        });
        setup.start().await
    }
}

/// A connection of a client that trusts this authority and offers these protocols.
pub async fn connect(
    address: SocketAddr,
    authority: &Authority,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let socket = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    within(
        "a handshake",
        TlsConnector::from(Arc::new(config)).connect(name, socket),
    )
    .await
}

/// Sends a request that closes the connection, and gives all that comes back.
pub async fn exchange(stream: &mut TlsStream<TcpStream>, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while matches!(within("an answer", stream.read_buf(&mut answer)).await, Ok(read) if read > 0) {}
    String::from_utf8(answer).unwrap()
}

async fn check_healthy(stream: &mut TlsStream<TcpStream>) {
    stream
        .write_all(b"GET /api/v1/llm/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"{\"status\":\"ok\"}") {
        assert!(
            within("an answer", stream.read_buf(&mut answer)).await.unwrap() > 0,
            "{answer:?}"
        );
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn the_listener_speaks_tls_with_http1_and_http2() {
    let (authority, files, upstream) = (Authority::new(), Files::new(), Upstream::unused().await);
    let (certificate, key) = authority.pem_of("localhost");
    files.write(&certificate, &key);
    let gateway = files.gateway(&upstream).await;
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let mut stream = connect(gateway.address, &authority, offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes));
        if chosen != Some("h2") {
            check_healthy(&mut stream).await;
            check_healthy(&mut stream).await;
            continue;
        }
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let driver = tokio::spawn(connection);
        let request = http::Request::get("https://localhost/api/v1/llm/health")
            .body(())
            .unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        assert_eq!(within("an answer", answer).await.unwrap().status(), 200);
        driver.abort();
    }
}

#[tokio::test]
async fn what_is_no_tls_is_closed() {
    let (authority, files, upstream) = (Authority::new(), Files::new(), Upstream::unused().await);
    let (certificate, key) = authority.pem_of("localhost");
    files.write(&certificate, &key);
    let hasty = files.gateway_within(&upstream, json!({ "head_ms": 500 })).await;
    for bytes in ["", "\x16", "\x16\x03\x01\x02"] {
        let mut raw = Raw::connect(hasty.address).await;
        raw.send(bytes).await;
        raw.closed().await;
    }
    // A handshake has its time, however busy the machine is.
    let gateway = files.gateway(&upstream).await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    // An alert at most, and no answer in clear text.
    let said = raw.try_take(20).await;
    assert!(said.is_none(), "{said:?}");
    assert!(
        connect(gateway.address, &Authority::new(), &[]).await.is_err(),
        "a client that does not trust it"
    );
    check_healthy(&mut connect(gateway.address, &authority, &[]).await.unwrap()).await;
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_a_broken_one_for_none() {
    let (old, new, files, upstream) = (
        Authority::new(),
        Authority::new(),
        Files::new(),
        Upstream::unused().await,
    );
    let (certificate, key) = old.pem_of("localhost");
    files.write(&certificate, &key);
    let mut gateway = files.gateway(&upstream).await;
    let mut kept = connect(gateway.address, &old, &[]).await.unwrap();
    check_healthy(&mut kept).await;

    let (next, next_key) = new.pem_of("localhost");
    // Another's key, no key, half a certificate, nothing.
    for (bad, bad_key) in [
        (next.as_str(), key.as_str()),
        (&next, ""),
        (&next[..200], &next_key),
        ("", &next_key),
    ] {
        files.write(bad, bad_key);
        match gateway.check_files() {
            Reloaded::Refused(error) => assert!(error.problem.contains("tls."), "{error}"),
            other => panic!("{other:?} to {bad}"),
        }
        check_healthy(&mut connect(gateway.address, &old, &[]).await.unwrap()).await;
    }

    files.write(&next, &next_key);
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    check_healthy(&mut connect(gateway.address, &new, &[]).await.unwrap()).await;
    assert!(connect(gateway.address, &old, &[]).await.is_err());
    check_healthy(&mut kept).await;
}

/// It was taken without a word, and all that an operator saw was that no client came.
#[tokio::test]
async fn a_certificate_that_has_expired_is_served_and_told() {
    let (authority, files, upstream) = (Authority::new(), Files::new(), Upstream::unused().await);
    let expired = include_str!("../fixtures/expired.pem");
    files.write(expired, expired);
    let mut gateway = files.gateway(&upstream).await;
    // A start and a reload have a line in the log for each.
    let warnings = |gateway: &Gateway| {
        let config = Config::parse("tollgate.yaml".as_ref(), &gateway.conf_text(), &|_| None).unwrap();
        let warnings = Snapshot::load(config, &Upstreams::new(Resolver::system()))
            .unwrap()
            .warnings;
        let of_certificate = warnings.into_iter().filter(|warning| warning.contains("tls.cert"));
        of_certificate.collect::<Vec<String>>()
    };
    let left = |gateway: &Gateway| {
        let labels = [("listener", "listen")];
        gateway.metrics().sum("tollgate_certificate_remaining_seconds", &labels)
    };
    let cert = files.0.path().join("cert.pem").display().to_string();
    let told = format!("tls.cert: {cert}: it expired at 2021-01-01T00:00:00Z, and clients refuse it");
    assert_eq!(warnings(&gateway), [told]);
    let since = gateway.clock.now().since(Day::parse("2021-01-01").unwrap().start()) / 1000;
    assert_eq!(left(&gateway), (-since).into());

    let (certificate, key) = authority.pem_of("localhost");
    files.write(&certificate, &key);
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    assert_eq!(warnings(&gateway), [""; 0]);
    assert!(left(&gateway) > (14 * 86_400).into());
}

/// A reload says that this waits for the next start. Until then keys must not come in clear text, and plain clients not be cut off.
#[tokio::test]
async fn only_a_start_switches_tls_on_or_off() {
    let (authority, files, upstream) = (Authority::new(), Files::new(), Upstream::unused().await);
    let (certificate, key) = authority.pem_of("localhost");
    files.write(&certificate, &key);
    let mut secure = files.gateway(&upstream).await;
    let with_tls = secure.conf_text();
    let mut conf: Value = serde_json::from_str(&with_tls).unwrap();
    let tls = conf.as_object_mut().unwrap().remove("tls").unwrap();
    secure.write_conf(&conf.to_string());
    assert!(matches!(secure.check_files(), Reloaded::Changed));
    check_healthy(&mut connect(secure.address, &authority, &[]).await.unwrap()).await;
    let mut raw = Raw::connect(secure.address).await;
    raw.send("GET /api/v1/llm/health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let said = raw.try_take(20).await;
    assert!(said.is_none(), "{said:?}");
    // Named again, it is exchanged as before.
    let new = Authority::new();
    let (certificate, key) = new.pem_of("localhost");
    files.write(&certificate, &key);
    secure.write_conf(&with_tls);
    assert!(matches!(secure.check_files(), Reloaded::Changed));
    check_healthy(&mut connect(secure.address, &new, &[]).await.unwrap()).await;

    let mut plain = Setup::over(&upstream).start().await;
    let mut conf: Value = serde_json::from_str(&plain.conf_text()).unwrap();
    conf["tls"] = tls;
    plain.write_conf(&conf.to_string());
    assert!(matches!(plain.check_files(), Reloaded::Changed));
    let healthy = json!({ "status": "ok" });
    assert_eq!(plain.http1.get("/llm/health").await.json(), healthy as Value);
}
