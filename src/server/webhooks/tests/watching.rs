//! Keys that expire are looked for beside what is told.

use futures::FutureExt;

use super::*;
use crate::gateway::upstream::providers::Upstreams;
use crate::ledger::tests::rig::key_create;
use crate::pure::ids::ApiKey;

const CATALOGUE: &str = r#"
models:
  - id: a/m
    name: M
    provider: A
    modality: text->text
    tier: free
    context_length: 1000
    max_completion_tokens: 100
    pricing: { prompt: "0.000001", completion: "0.000002" }
    purposes: [chat]
    targets: [{ provider: main, model: m }]
"#;

/// That of a gateway with a webhook.
fn snapshot(folder: &Path) -> Snapshot {
    let catalogue = folder.join("catalogue.yaml");
    std::fs::write(&catalogue, CATALOGUE).unwrap();
    let conf = serde_json::json!({
        "catalogue": catalogue, "data_dir": folder,
        "providers": { "main": { "base_url": "http://127.0.0.1:1/v1" } },
        "webhooks": [{ "url": "http://127.0.0.1:1/x", "secret_env": "A", "allow_private": true }],
    });
    let secret = |_: &str| Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
    let config = crate::config::Config::parse(Path::new("t.yaml"), &conf.to_string(), &secret).unwrap();
    Snapshot::load(config, &Upstreams::default()).unwrap()
}

/// What is due was claimed and sent only once all keys were looked at, and a stop waited for that.
#[tokio::test]
async fn a_look_at_keys_is_waited_for_by_nobody() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    teller.make_account().await;
    let mut create = key_create("acme", &ApiKey::from_random("tg_", [7; 32]).digest());
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(3 * 86_400_000);
    }
    teller.run(create).await;
    let (snapshot, stops) = (snapshot(folder.path()), Arc::default());
    let mut watch = Watch::default();
    let looked = watch.look(&snapshot, (&teller.ledger, &clock), &stops).now_or_never();
    assert_eq!(looked, Some(()), "the ledger has not answered yet");
    watch.end().await;
    assert_eq!(teller.open().await, 1);
}
