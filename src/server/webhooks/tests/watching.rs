//! Keys that expire are looked for beside what is told.

use futures::FutureExt;

use super::*;
use crate::gateway::upstream::providers::Upstreams;
use crate::ledger::redis::RedisLedger;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, caller_of, key_create, patient, run};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;

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

/// Makes a key of acme that expires in three days.
fn expiring_key() -> AdminOp {
    let mut create = key_create("acme", &ApiKey::from_random("tg_", [7; 32]).digest());
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(3 * 86_400_000);
    }
    create
}

/// In how many minutes keys are looked at next.
fn due_in_minutes(watch: &Watch) -> u64 {
    let due = watch.keys_due.unwrap();
    due.saturating_duration_since(crate::clock::monotonic())
        .as_secs()
        .div_ceil(60)
}

/// What is due was claimed and sent only once all keys were looked at, and a stop waited for that.
#[tokio::test]
async fn a_look_at_keys_is_waited_for_by_nobody() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    teller.make_account().await;
    teller.run(expiring_key()).await;
    let (snapshot, stops) = (snapshot(folder.path()), Arc::default());
    let mut watch = Watch::default();
    let looked = watch.look(&snapshot, (&teller.ledger, &clock), &stops).now_or_never();
    assert_eq!(looked, Some(()), "the ledger has not answered yet");
    watch.end().await;
    assert_eq!((teller.open().await, due_in_minutes(&watch)), (1, 60));
    // Where it cannot look, it tries again soon.
    teller.ledger.close();
    watch.keys_due = None;
    watch.look(&snapshot, (&teller.ledger, &clock), &stops).await;
    watch.end().await;
    assert_eq!(due_in_minutes(&watch), 5);
}

/// Each try had an id of its own: a ledger that has the event, and whose answer is late, had one outage as several.
#[tokio::test]
async fn what_the_ledger_does_not_answer_is_raised_again_as_the_same_event() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let (snapshot, stops) = (snapshot(folder.path()), Arc::default());
    let failing = || {
        for target in snapshot.candidates.values().flat_map(|targets| targets.all()) {
            let fails = |secs| target.breaker.failed(target.breaker.admit_anyway(&clock), &clock, secs);
            fails(Some(60));
            (0..5).for_each(|_| fails(None));
        }
    };
    failing();
    let mut watch = Watch::default();
    let closed = Teller::start(&folder.path().join("closed.db"), &clock);
    closed.ledger.close();
    watch.look(&snapshot, (&closed.ledger, &clock), &stops).await;
    let id = watch.raising["main"].0.id.clone();
    // Its pause ends, and it fails again: the outage is the same.
    clock.advance(120_000);
    watch.look(&snapshot, (&closed.ledger, &clock), &stops).await;
    failing();
    watch.look(&snapshot, (&closed.ledger, &clock), &stops).await;
    assert_eq!(watch.raising["main"].0.id, id);
    // It is told though the pause has ended, and the provider answers by then.
    clock.advance(120_000);
    let targets = snapshot.candidates.values().flat_map(|targets| targets.all());
    targets.for_each(|target| target.breaker.succeeded(target.breaker.admit_anyway(&clock), &clock));
    let teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    for _ in 0..2 {
        watch.look(&snapshot, (&teller.ledger, &clock), &stops).await;
    }
    assert_eq!((teller.open().await, watch.raising.len()), (1, 0));
    // The next one is another.
    failing();
    for _ in 0..2 {
        watch.look(&snapshot, (&teller.ledger, &clock), &stops).await;
    }
    watch.end().await;
    assert_eq!(teller.open().await, 2);
}

/// It asked again after an hour, though the other one may die before it has looked at all keys.
#[test]
fn who_finds_that_another_gateway_looks_asks_again_in_five_minutes() {
    let (server, folder) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let clock = Clock::manual(NOW);
    let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), patient(clock.clone())).unwrap());
    caller_of(&ledger, "acme", "0", LimitOverrides::default());
    run(&ledger, expiring_key()).unwrap();
    let (snapshot, stops) = (snapshot(folder.path()), Arc::default());
    let mut watch = Watch::default();
    let mut look = || {
        block_on(async {
            watch.keys_due = None;
            watch.look(&snapshot, (&ledger, &clock), &stops).await;
            watch.end().await;
            due_in_minutes(&watch)
        })
    };
    let is_told = || server.ask("HEXISTS tg1:{acme} uei") == [":1"];
    server.ask("SET tg1:events:keys another PX 3500000");
    assert_eq!((look(), is_told()), (5, false));
    server.ask("DEL tg1:events:keys");
    assert_eq!((look(), is_told()), (60, true));
}
