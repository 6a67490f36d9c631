//! What stands in the journal of a process whose ledger is in Redis.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{node, on_node, patient};
use crate::clock::Clock;
use crate::ledger::admin::{AdminOp, KeyRef, RecoverReport};
use crate::ledger::journal::recover::{
    acknowledged, kept, kept_but, recover, recover_by_hand, recover_others, recover_with, waiting,
};
use crate::ledger::journal::{Entry, Intent, Journal, UnknownKeys};
use crate::ledger::redis::Options;
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit, request_at, run};
use crate::ledger::{Caller, Hold, Ledger, StoreError};
use crate::pure::account::{Denial, ReserveRequest};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::{Credits, ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::numbers::{Birth, CallNumber, ProducerId};
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
            text_bytes: 0,
            endpoint: Endpoint::Chat,
            end_user: None,
        };
        self.journal.begin(&intent, b"{}").unwrap()
    }

    /// So many calls of a process that died have ended, and Redis was not told.
    fn owe_and_die(&self, calls: u64, cost: &str) {
        let now = Clock::System.now();
        let producer = ProducerId::new(Birth::at(now), 7);
        for n in 1..=calls {
            let request = ReserveRequest {
                id: request_at(n, now),
                ..super::request(n, cost)
            };
            let mut entry = self.begin(&request);
            entry.owe(&debit(cost), CallNumber::new(producer, n));
        }
    }

    fn reserve(&self, n: u64, wanted: &str) -> Result<Result<Hold, Denial>, StoreError> {
        let request = ReserveRequest {
            id: request_at(n, Clock::System.now()),
            ..super::request(n, wanted)
        };
        block_on(self.caller.reserve_journaled(&request, self.begin(&request)))
    }

    /// It has ended: its Redis, its caller, and what it left.
    fn ended(self) -> (RedisServer, Caller, tempfile::TempDir) {
        self.ledger.close();
        self.journal.close();
        (self.server, self.caller, self.folder)
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
fn what_redis_has_leaves_the_journal_after_a_while() {
    let gateway = Gateway::new(brief());
    let hold = gateway.reserve(1, "0.1").unwrap().unwrap();
    hold.settle(debit("0.1"));
    until("Redis has it", || gateway.journal.depth() == 0);
    assert_eq!(block_on(gateway.caller.figures()).unwrap().balance, credits("0.9"));
    until("it has left", || {
        gateway.journal.close();
        extensions(gateway.folder.path()).is_empty()
    });
}

/// A stop is no reason to let go of it earlier.
#[test]
fn what_redis_loses_after_a_stop_is_taken_by_the_next_start() {
    let gateway = Gateway::new(patient());
    assert_eq!(gateway.server.ask("SAVE"), ["+OK"]);
    let hold = gateway.reserve(1, "0.1").unwrap().unwrap();
    hold.settle(debit("0.1"));
    until("Redis has it", || gateway.journal.depth() == 0);
    assert_eq!(extensions(gateway.folder.path()), ["journal", "prompts"]);
    let Gateway {
        server,
        ledger,
        caller,
        journal,
        folder,
    } = gateway;
    ledger.close();
    journal.close();
    drop(journal);
    is_taken_after_each_loss(server, &caller, folder.path());
}

/// The same for what a dead process owed, once whoever took it over has stopped, or a recovery by hand is over.
#[test]
fn what_redis_loses_after_a_recovery_is_taken_by_the_next_start() {
    let gateway = Gateway::new(patient());
    assert_eq!(gateway.server.ask("SAVE"), ["+OK"]);
    gateway.owe_and_die(1, "0.1");
    let Gateway {
        server,
        ledger,
        caller,
        journal,
        folder,
    } = gateway;
    ledger.close();
    drop(journal);
    assert_eq!(extensions(folder.path()), ["journal", "prompts"]);
    let next = node(&server, patient());
    let report = recover(folder.path(), &next);
    assert_eq!((report.journals, report.settled, report.already), (1, 1, 0));
    next.close();
    is_taken_after_each_loss(server, &caller, folder.path());
}

/// Those of a busy gateway are as many as may wait in all.
#[test]
fn what_dead_processes_left_keeps_no_calls_from_being_admitted() {
    let gateway = Gateway::new(patient());
    gateway.owe_and_die(20, "0.01");
    let Gateway {
        server,
        ledger,
        caller,
        journal,
        folder,
    } = gateway;
    ledger.close();
    drop(journal);
    let few = Options {
        unsettled_max: 10,
        ..patient()
    };
    let next = node(&server, few);
    // Redis takes no writes for a moment.
    assert_eq!(server.ask("CLIENT PAUSE 300 WRITE"), ["+OK"]);
    assert_eq!(recover(folder.path(), &next).settled, 20);
    let hold = block_on(on_node(&next, &caller).reserve(&super::request(50, "0.1")));
    hold.unwrap().unwrap().release();
    let figures = block_on(on_node(&next, &caller).figures()).unwrap();
    assert_eq!((figures.balance, figures.held), (credits("0.8"), Credits::ZERO));
    audit_is_clean(&next);
}

/// A Redis that was put in the place of another often has accounts of the same names, such as a test's.
#[test]
fn an_account_of_the_same_name_in_another_redis_is_billed_nothing() {
    let gateway = Gateway::new(patient());
    gateway.owe_and_die(1, "0.1");
    let (server, caller, folder) = gateway.ended();
    let other = RedisServer::start();
    let theirs = node(&other, patient());
    let their_caller = caller_of(&theirs, "acme", "1", LimitOverrides::default());
    let own = Journal::open(folder.path());
    for told in [1, 0] {
        let mut report = RecoverReport::default();
        let lines = logged(|| report = recover_others(&own, &theirs));
        let is_told = |line: &&String| {
            line.starts_with("ERROR MONEY: ")
                && line.contains(": calls of accounts or keys that are not in this ledger: 1, such as one of acme; ")
                && line.ends_with("tollgate ledger recover --unknown-keys")
        };
        assert_eq!(lines.iter().filter(is_told).count(), told, "{lines:?}");
        assert_eq!((report.settled, report.refused.len()), (0, told));
    }
    own.close();
    assert_eq!(waiting(folder.path()), 1);
    assert_eq!(block_on(their_caller.figures()).unwrap().balance, credits("1"));

    // Its own Redis has the key still, which has been revoked.
    let next = node(&server, patient());
    let key = KeyRef::Id(caller.key.id.clone());
    run(&next, AdminOp::KeyRevoke { key }).unwrap();
    let report = recover(folder.path(), &next);
    assert_eq!((report.settled, report.refused), (1, Vec::new()));
    let figures = block_on(on_node(&next, &caller).figures()).unwrap();
    assert_eq!(figures.balance, credits("0.9"));
    audit_is_clean(&next);
}

/// Nor is it sent what that one had acknowledged, and may lose.
#[test]
fn what_another_redis_had_acknowledged_waits_for_that_one() {
    let gateway = Gateway::new(patient());
    let hold = gateway.reserve(1, "0.1").unwrap().unwrap();
    hold.settle(debit("0.1"));
    until("Redis has it", || gateway.journal.depth() == 0);
    let (server, caller, folder) = gateway.ended();
    let other = RedisServer::start();
    let theirs = node(&other, patient());
    let their_caller = caller_of(&theirs, "acme", "1", LimitOverrides::default());
    let (report, wait) = recover_by_hand(folder.path(), &theirs, UnknownKeys::Wait);
    assert_eq!((report.journals, report.settled, report.already), (0, 0, 0));
    assert_eq!(report.refused.len(), 1, "{:?}", report.refused);
    // It waits for longer than its own Redis may lose it.
    assert_eq!(kept(folder.path()).map(|(debits, _)| debits), Some(1));
    assert_eq!(kept_but(folder.path(), &wait), None);
    assert_eq!((acknowledged(folder.path()), waiting(folder.path())), (1, 0));
    assert_eq!(block_on(their_caller.figures()).unwrap().balance, credits("1"));
    assert_eq!(extensions(folder.path()), ["acknowledged"]);

    let next = node(&server, brief());
    let report = recover(folder.path(), &next);
    assert_eq!((report.already, report.refused), (1, Vec::new()));
    until("it has left", || extensions(folder.path()).is_empty());
    let figures = block_on(on_node(&next, &caller).figures()).unwrap();
    assert_eq!(figures.balance, credits("0.9"));
}

/// Who restored a backup of before the key was made can say so. Whoever looks at the journal once more finds that this Redis has it all.
#[test]
fn calls_of_a_key_that_redis_lost_are_billed_where_somebody_says_so() {
    let gateway = Gateway::new(patient());
    gateway.owe_and_die(2, "0.1");
    let (_server, _caller, folder) = gateway.ended();
    let restored = RedisServer::start();
    let ledger = node(&restored, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let report = recover(folder.path(), &ledger);
    assert_eq!((report.settled, report.refused.len()), (0, 1));
    let report = recover_with(folder.path(), &ledger, UnknownKeys::Bill);
    assert_eq!((report.settled, report.refused), (2, Vec::new()));
    assert_eq!(block_on(caller.figures()).unwrap().balance, credits("0.8"));
    audit_is_clean(&ledger);
    ledger.close();

    let next = node(&restored, brief());
    let report = recover(folder.path(), &next);
    assert_eq!((report.settled, report.already, report.refused), (0, 2, Vec::new()));
    until("it has left", || extensions(folder.path()).is_empty());
    let figures = block_on(on_node(&next, &caller).figures()).unwrap();
    assert_eq!(figures.balance, credits("0.8"));
}

/// That Redis does not answer says neither that it has the key nor that it has not.
#[test]
fn calls_wait_while_redis_cannot_be_asked_for_their_key() {
    let gateway = Gateway::new(patient());
    assert_eq!(gateway.server.ask("SAVE"), ["+OK"]);
    gateway.owe_and_die(2, "0.1");
    let (mut server, caller, folder) = gateway.ended();
    let next = node(&server, patient());
    let own = Journal::open(folder.path());
    server.kill();
    for told in [1, 0] {
        let mut report = RecoverReport::default();
        let lines = logged(|| report = recover_others(&own, &next));
        let is_told = |line: &&String| {
            line.starts_with("ERROR MONEY: ")
                && line.contains(": the store did not say whether it has the keys of calls: 2, such as one of acme: ")
        };
        assert_eq!(lines.iter().filter(is_told).count(), told, "{lines:?}");
        assert_eq!((report.journals, report.settled), (u64::from(told > 0), 0));
        assert_eq!(report.refused.len(), told, "{:?}", report.refused);
    }
    assert_eq!(waiting(folder.path()), 1);
    server.restart();
    until("they are billed", || recover_others(&own, &next).settled == 2);
    let figures = block_on(on_node(&next, &caller).figures()).unwrap();
    assert_eq!(figures.balance, credits("0.8"));
    audit_is_clean(&next);
    own.close();
}

/// The server comes back as it was saved, again and again. Once it can lose the debit no more, nothing is left in the folder.
fn is_taken_after_each_loss(mut server: RedisServer, caller: &Caller, folder: &Path) {
    for _ in 0..2 {
        assert_eq!(extensions(folder), ["acknowledged"], "Redis may still lose it");
        assert_eq!(kept(folder).map(|(debits, _)| debits), Some(1));
        server.restart();
        let next = node(&server, patient());
        let report = recover(folder, &next);
        assert_eq!((report.journals, report.settled, report.already), (0, 0, 1));
        let figures = block_on(on_node(&next, caller).figures()).unwrap();
        assert_eq!((figures.balance, figures.held), (credits("0.9"), Credits::ZERO));
        next.close();
    }
    let next = node(&server, brief());
    recover(folder, &next);
    until("it has left", || extensions(folder).is_empty());
    assert_eq!(kept(folder), None);
    let figures = block_on(on_node(&next, caller).figures()).unwrap();
    assert_eq!(figures.balance, credits("0.9"));
    audit_is_clean(&next);
}

/// Redis is not thought to lose what it had for this long.
fn brief() -> Options {
    Options {
        replay: Duration::from_millis(1),
        ..patient()
    }
}

fn extensions(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let extension = |path: PathBuf| path.extension().unwrap().to_str().unwrap().to_owned();
    let mut extensions: Vec<String> = entries.map(|entry| extension(entry.unwrap().path())).collect();
    extensions.sort();
    extensions
}
