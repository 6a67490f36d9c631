//! What the log of the real binary has of the secrets that pass it, whatever `RUST_LOG` asks for.

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::operator::Process;
use crate::harness::{Reply, Upstream};

const CREDENTIAL: &str = "credential-of-the-provider";

/// Pingora writes whole heads of requests at these levels, and a directive for one of its modules counts for more than ours for all of them.
#[tokio::test]
async fn no_directive_has_a_key_or_a_credential_written() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = Process::prepare(&upstream, |conf| {
        conf["providers"]["main"]["api_key_env"] = "SET_MAIN".into();
    });
    let conf = gateway.path("tollgate.yaml").to_str().unwrap().to_owned();
    let credential = format!("SET_MAIN={CREDENTIAL}");
    let words = [
        "env",
        "RUST_LOG=info,pingora_core::protocols=trace",
        &credential,
        env!("CARGO_BIN_EXE_tollgate"),
        "serve",
        "--conf",
        &conf,
    ];
    gateway.start_with(&words.map(str::to_owned)).await;
    gateway.client.post("/llm/chat", request(SMALL)).await.ok();

    assert!(upstream.seen()[0].head.contains(CREDENTIAL));
    let log = std::fs::read_to_string(gateway.path("log")).unwrap();
    assert!(log.contains("INFO"), "what is asked for beside is logged: {log}");
    for secret in [CREDENTIAL, &gateway.client.key] {
        assert!(!log.contains(secret), "{log}");
    }
}
