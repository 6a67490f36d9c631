//! What stands in the journal of a process whose ledger is in Redis.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{node, patient};
use crate::clock::Clock;
use crate::ledger::journal::{Entry, Intent, Journal};
use crate::ledger::redis::Options;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, caller_of, credits, debit, request_at};
use crate::ledger::{Caller, Hold, Ledger, StoreError};
use crate::pure::account::{Denial, ReserveRequest};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::{ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::request_body::{Endpoint, PromptLimits};

/// A gateway with a journal, and an account with one credit.
struct Gateway {
    server: RedisServer,
    ledger: Ledger,
    caller: Caller,
    journal: Arc<Journal>,
    folder: tempfile::TempDir,
}

impl Gateway {
    fn new(options: Options) -> Gateway {
        let (server, folder) = (RedisServer::start(), tempfile::tempdir().unwrap());
        let ledger = node(&server, options);
        let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
        Gateway {
            server,
            ledger,
            caller,
            journal: Journal::open(folder.path()),
            folder,
        }
    }

    fn begin(&self, request: &ReserveRequest) -> Entry {
        let free: ListPrice = "0".parse::<ProviderPrice>().unwrap().with_markup(Markup::default());
        let intent = Intent {
            id: request.id,
            account: &self.caller.account.id,
            key: &self.caller.key.id,
            model: "a/m",
            pricing: Pricing {
                prompt: free,
                completion: free,
            },
            limits: PromptLimits {
                image_tokens_each: 1000,
                context_length: 8192,
            },
            endpoint: Endpoint::Chat,
            end_user: None,
        };
        self.journal.begin(&intent, b"{}").unwrap()
    }

    fn reserve(&self, n: u64, wanted: &str) -> Result<Result<Hold, Denial>, StoreError> {
        let request = ReserveRequest {
            id: request_at(n, Clock::System.now()),
            ..super::request(n, wanted)
        };
        block_on(self.caller.reserve_journaled(&request, self.begin(&request)))
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

#[test]
fn a_call_that_is_refused_leaves_nothing() {
    let gateway = Gateway::new(patient());
    assert!(gateway.reserve(1, "2").unwrap().is_err());
    assert_eq!(gateway.journal.depth(), 0);
}

#[test]
fn a_call_that_gets_nothing_leaves_nothing() {
    let mut gateway = Gateway::new(patient());
    assert!(gateway.reserve(1, "2").unwrap().is_err());
    assert_eq!(gateway.journal.depth(), 0);
    // Nobody takes what it gives back, so what is doubtful stays.
    gateway.server.kill();
    // The connection that there was may have taken the first; the second finds none.
    assert!(gateway.reserve(2, "0.1").is_err());
    let doubtful = gateway.journal.depth();
    assert!(gateway.reserve(3, "0.1").is_err());
    assert_eq!(gateway.journal.depth(), doubtful);
}

/// What Redis has acknowledged stands there for as long as Redis may lose it.
#[test]
fn what_redis_has_leaves_the_journal_after_a_while_and_at_the_end() {
    let brief = Options {
        replay: Duration::from_millis(1),
        ..patient()
    };
    for (options, ends) in [(brief, false), (patient(), true)] {
        let gateway = Gateway::new(options);
        let settle = |n| {
            let hold = gateway.reserve(n, "0.1").unwrap().unwrap();
            hold.settle(debit("0.1"));
        };
        settle(1);
        until("Redis has it", || gateway.journal.depth() == 0);
        assert_eq!(block_on(gateway.caller.figures()).unwrap().balance, credits("0.9"));
        if ends {
            gateway.journal.close();
            assert_eq!(gateway.files().len(), 2, "Redis may still lose it");
            gateway.ledger.close();
            gateway.journal.close();
            assert_eq!(gateway.files(), [""; 0].map(PathBuf::from));
        } else {
            until("it has left", || {
                gateway.journal.close();
                gateway.files().is_empty()
            });
        }
    }
}
