//! What `--operator` says of a server with which no connection comes about: what to do, not a library's words.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use tollgate::pure::operator::Role;

use super::of;
use crate::harness::tls::{Authority, Identity};

/// A server that accepts with this identity, or says at once that it speaks something else.
async fn serve(identity: Option<Identity>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            match &identity {
                Some(identity) => drop(identity.acceptor().accept(stream).await),
                None => {
                    use tokio::io::AsyncWriteExt;
                    // The client may have hung up.
                    drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
                }
            }
        }
    });
    address
}

/// What a command says of the server there.
async fn said_of(url: &str, ca: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(["account", "list", "--operator", url])
        .env("TOLLGATE_OPERATOR_TOKEN", of(Role::Read))
        .stdin(Stdio::null());
    if let Some(pem) = ca {
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, pem).unwrap();
        command.arg("--ca").arg(path);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_no_connection_comes_about_and_what_to_do_is_told() {
    let (authority, other) = (Authority::new(), Authority::new());
    let dated = |from: i32, to: i32| {
        authority.identity_of(|params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        })
    };
    // What `openssl req -x509` makes: it signs itself, and may sign others.
    let its_own = {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), Identity::of(&certificate, &key))
    };
    let ca = Some(authority.pem.as_str());
    for (identity, ca, cause) in [
        (
            Some(authority.identity("127.0.0.1")),
            Some(other.pem.as_str()),
            "is not signed by the authority of --ca",
        ),
        (
            Some(authority.identity("127.0.0.1")),
            None,
            "name the authority's file with --ca",
        ),
        (Some(authority.identity("x.example")), ca, "for other names than this"),
        (Some(dated(2020, 2021)), ca, "its certificate has expired"),
        (Some(dated(2090, 2091)), ca, "its certificate is not valid yet"),
        (
            Some(its_own.1),
            Some(its_own.0.as_str()),
            "its certificate is an authority's (CA:TRUE)",
        ),
        (None, ca, "it does not speak TLS"),
    ] {
        let address = serve(identity).await;
        let said = said_of(&format!("https://127.0.0.1:{}", address.port()), ca).await;
        assert!(
            said.starts_with(&format!(
                "error: the gateway at 127.0.0.1:{} cannot be asked: ",
                address.port()
            )) && said.contains(cause)
                && !said.contains("context"),
            "{cause}: {said}"
        );
    }
}
