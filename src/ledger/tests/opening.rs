//! The ledger that a configuration names is opened, and tried before.

use std::path::Path;

use super::redis_server::RedisServer;
use super::rig::{block_on, caller_of, debit, receipts_of, request};
use crate::config::Config;
use crate::ledger::{Ledger, StoreError, open, preflight};

fn config(store: &str) -> Config {
    let text = format!("store: \"{store}\"\nreceipts: {{ keep_days: 3, per_account_max: 7 }}");
    Config::parse(Path::new("t.yaml"), &text, &|_| None).unwrap()
}

#[test]
fn what_cannot_be_opened_is_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let port = super::redis_server::free_port();
    for store in [
        format!("sqlite://{}", file.join("ledger.db").display()),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let told = preflight(&config(&store)).unwrap_err();
        assert!(matches!(told, StoreError::Unavailable(_)), "{told}");
        let opened = open(&config(&store)).map(drop).unwrap_err();
        assert!(matches!(opened, StoreError::Unavailable(_)), "{opened}");
    }
}

#[test]
fn what_can_be_opened_is_as_it_was_after_it_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start();
    let path = folder.path().join("data/ledger.db");
    let embedded = config(&format!("sqlite://{}", path.display()));
    let redis = config(&server.url());
    for config in [&embedded, &redis] {
        preflight(config).unwrap();
        assert!(!path.exists());
    }
    for (config, is_embedded) in [(&redis, false), (&embedded, true)] {
        let ledger = open(config).unwrap();
        assert_eq!(ledger.embedded().is_some(), is_embedded);
        let caller = caller_of(&ledger, "acme", "1", Default::default());
        let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
        hold.settle(debit("0.5"));
        assert_eq!(receipts_of(&ledger, &caller.account.id).len(), 1);
        assert!(matches!(ledger, Ledger::Embedded(_)) == is_embedded);
        ledger.close();
    }
    assert!(path.exists());
}
