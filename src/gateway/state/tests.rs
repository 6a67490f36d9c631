//! How a gateway is closed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::ledger::tests::rig::Rig;

/// Whoever closes second may end the process, so it returns no sooner than the first.
#[test]
fn a_second_close_waits_for_the_first() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("catalogue.yaml"), CATALOGUE).unwrap();
    let conf = serde_json::json!({ "catalogue": folder.path().join("catalogue.yaml"), "data_dir": folder.path(),
            "providers": { "main": { "base_url": "http://127.0.0.1:1/v1" } } });
    let config = Config::parse(Path::new("t.yaml"), &conf.to_string(), &|_| None).unwrap();
    let (snapshot, rig) = (Snapshot::load(config, &Upstreams::default()).unwrap(), Rig::embedded());
    let (snapshot, journal) = (Arc::new(ArcSwap::from_pointee(snapshot)), Journal::open(folder.path()));
    let tollgate = Tollgate::over(
        snapshot,
        rig.ledger.clone(),
        journal,
        rig.clock.clone(),
        &Arc::default(),
    );
    let (is_done, (begins, begun)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let done = Arc::clone(&is_done);
    tollgate.closed_by(Box::new(move |_| {
        begins.send(()).unwrap();
        // Sleeps: what is to be written takes its time.
        std::thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::SeqCst);
    }));
    std::thread::scope(|scope| {
        scope.spawn(|| tollgate.close());
        begun.recv().unwrap();
        tollgate.close();
        assert!(is_done.load(Ordering::SeqCst));
    });
}

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
