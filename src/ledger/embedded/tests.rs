//! The embedded ledger over its file: starts, groups, commands and hand-overs.

use std::os::unix::fs::PermissionsExt;

use super::shared::QueuedDebit;
use super::writer::Committer;
use super::*;
use crate::ledger::admin::{AuditReport, ReceiptQuery};
use crate::ledger::journal::Entry;
use crate::ledger::sqlite::Database;
use crate::ledger::{Caller, Debit, Ledger};
use crate::pure::account::ReserveRequest;
use crate::pure::ids::{AccountId, ApiKey, RequestId, Tier};
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, Numbers};
use crate::pure::time::{Period, Timestamp};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

mod accounts;
mod acts;
mod events;
mod given_back;
mod groups;
mod handover;
mod idempotency;
mod lines;
mod months;
mod moved;
mod posts;
mod spending;
mod standing;
mod starts;
mod successor;
mod taken_before;
mod thread;

const NOW: Timestamp = Timestamp(1_795_132_800_000);

struct Rig {
    folder: tempfile::TempDir,
    store: Arc<Embedded>,
    key: KeyDigest,
}

fn credits(text: &str) -> Credits {
    text.parse().unwrap()
}

fn open(folder: &tempfile::TempDir) -> Arc<Embedded> {
    Embedded::open(&folder.path().join("ledger.db"), Clock::manual(NOW)).unwrap()
}

fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let account: AccountId = "acme".parse().unwrap();
    let create = AdminOp::AccountCreate {
        account: account.clone(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    store.run_blocking(create).unwrap();
    let amount = credits("10");
    store
        .run_blocking(AdminOp::CreditsAdd {
            account: account.clone(),
            amount,
            reference: "A".into(),
        })
        .unwrap();
    let key = ApiKey::from_random("tg_", [1; 32]).digest();
    let create = AdminOp::KeyCreate {
        digest: key.to_hex(),
        account,
        tier: None,
        domains: vec!["*.example.com".parse().unwrap()],
        expires_in_ms: Some(1000),
        limits: Default::default(),
        settings: Default::default(),
    };
    store.run_blocking(create).unwrap();
    Rig { folder, store, key }
}

fn request(n: u8, wanted: &str) -> ReserveRequest {
    ReserveRequest {
        id: RequestId::from_bytes([n; 16]),
        scope: Scope::Account,
        limits: Limits {
            rpm: 1000,
            tpm: 1_000_000,
            concurrency: 1000,
        },
        quota: credits("1000"),
        wanted: credits(wanted),
        at_least: credits(wanted),
        tokens: 1,
        expires: NOW.plus_millis(60_000),
        is_counted: false,
        is_last: true,
        spend: None,
    }
}

fn debit(cost: &str) -> Debit {
    Debit {
        model: "a/m".into(),
        key: "key_x".to_owned().into(),
        usage: Usage {
            prompt: PromptTokens(3),
            completion: CompletionTokens(4),
        },
        cost: credits(cost),
        held: None,
        details: None,
        end_user: None,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn audit(store: &Embedded) -> AuditReport {
    match store.run_blocking(AdminOp::Audit).unwrap() {
        AdminReply::Audit(report) => report,
        other => panic!("{other:?}"),
    }
}

fn caller_of(store: &Arc<Embedded>, key: &KeyDigest) -> Caller {
    let found = block_on(Ledger::Embedded(Arc::clone(store)).authenticate(key)).unwrap();
    found.unwrap().checked(NOW).unwrap()
}

#[test]
fn debits_and_top_ups_survive_a_restart() {
    let rig = rig();
    let caller = caller_of(&rig.store, &rig.key);
    let hold = block_on(caller.reserve(&request(1, "2"))).unwrap().unwrap();
    hold.settle(debit("0.000000000001"));
    let hold = block_on(caller.reserve(&request(2, "2"))).unwrap().unwrap();
    hold.settle(debit("1.5"));
    let open_hold = block_on(caller.reserve(&request(3, "2"))).unwrap().unwrap();
    assert_eq!(block_on(caller.figures()).unwrap().held, credits("2"));
    assert!(audit(&rig.store).findings.is_empty());
    open_hold.release();
    drop(caller);
    let Rig { folder, store, key } = rig;
    drop(store);

    let store = open(&folder);
    let caller = caller_of(&store, &key);
    let figures = block_on(caller.figures()).unwrap();
    assert_eq!(figures.balance, credits("8.499999999999"));
    assert_eq!(figures.monthly_used, credits("1.500000000001"));
    assert_eq!(caller.key.domains.len(), 1);
    let rows =
        block_on(Ledger::Embedded(Arc::clone(&store)).usage(&caller.account.id, None, crate::pure::time::Period::All))
            .unwrap();
    assert_eq!(
        (
            rows.len(),
            rows[0].requests,
            rows[0].prompt_tokens,
            rows[0].completion_tokens
        ),
        (1, 2, 6, 8)
    );
    assert_eq!(rows[0].cost, credits("1.500000000001"));
    assert!(audit(&store).findings.is_empty());
}

#[test]
fn a_second_owner_is_refused() {
    let rig = rig();
    let error = Embedded::open(rig.store.path(), Clock::manual(NOW)).unwrap_err();
    assert!(error.to_string().contains("another process owns"), "{error}");
}

#[test]
fn a_reference_counts_once_and_not_with_another_amount() {
    let rig = rig();
    let account: AccountId = "acme".parse().unwrap();
    let add = |amount: &str| {
        let op = AdminOp::CreditsAdd {
            account: account.clone(),
            amount: credits(amount),
            reference: "A".into(),
        };
        rig.store.run_blocking(op)
    };
    assert_eq!(
        add("10"),
        Ok(AdminReply::Credited {
            added: false,
            balance: credits("10")
        })
    );
    assert_eq!(add("11"), Err(AdminError::ReferenceConflict("A".into())));
    let nobody = AdminOp::CreditsAdd {
        account: "nobody".parse().unwrap(),
        amount: credits("1"),
        reference: "B".into(),
    };
    assert!(matches!(rig.store.run_blocking(nobody), Err(AdminError::NoAccount(_))));
    assert!(audit(&rig.store).findings.is_empty());
}

/// The ledger holds key digests and what everybody spends.
#[test]
fn the_files_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let _store = open(&folder);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}

/// While reports are read, however many, commands run.
#[test]
fn reports_hold_nobody_up() {
    let rig = rig();
    let ledger = Ledger::Embedded(Arc::clone(&rig.store));
    let report = || block_on(ledger.usage(&"acme".parse().unwrap(), None, Period::All));
    std::thread::scope(|scope| {
        let reading = rig.store.reports.held_up();
        let reports = [(); 20].map(|()| scope.spawn(report));
        let top_up = AdminOp::CreditsAdd {
            account: "acme".parse().unwrap(),
            amount: credits("1"),
            reference: "B".into(),
        };
        assert!(rig.store.run_blocking(top_up).is_ok());
        assert!(reports.iter().all(|report| !report.is_finished()));
        drop(reading);
        for report in reports {
            assert_eq!(report.join().unwrap(), Ok(Vec::new()));
        }
    });
}

#[test]
fn a_dropped_hold_is_released() {
    let rig = rig();
    let caller = caller_of(&rig.store, &rig.key);
    drop(block_on(caller.reserve(&request(1, "2"))).unwrap().unwrap());
    assert_eq!(block_on(caller.figures()).unwrap().held, Credits::ZERO);
}

#[test]
fn a_revoked_key_stays_revoked_after_a_restart() {
    let rig = rig();
    let id = crate::pure::ids::KeyId::of(&rig.key);
    rig.store
        .run_blocking(AdminOp::KeyRevoke {
            key: crate::ledger::admin::KeyRef::Id(id),
        })
        .unwrap();
    assert!(rig.store.find_key(&rig.key).unwrap().key.revoked.is_some());
    let Rig { folder, store, key } = rig;
    drop(store);
    assert!(open(&folder).find_key(&key).unwrap().key.revoked.is_some());
}

#[test]
fn the_audit_names_an_account_whose_books_do_not_balance() {
    let Rig { folder, store, .. } = rig();
    drop(store);
    let path = folder.path().join("ledger.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute("UPDATE accounts SET balance = balance + 1", [])
        .unwrap();
    drop(connection);
    let findings = audit(&open(&folder)).findings;
    assert_eq!(findings.len(), 1);
    assert_eq!(
        (findings[0].account.as_str(), findings[0].rule.as_str()),
        ("acme", "top-ups - debits = balance")
    );
}

#[test]
fn many_callers_never_hold_more_than_there_is() {
    let rig = rig();
    let caller = caller_of(&rig.store, &rig.key);
    let won: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u8)
            .map(|n| {
                let caller = &caller;
                scope.spawn(move || {
                    let ask = |i: u8| {
                        let mut wants = request(n, "1");
                        wants.id = RequestId::from_bytes([n, i, 0, 0, 0, 0, 0, 0, n, i, 0, 0, 0, 0, 0, 1]);
                        block_on(caller.reserve(&wants)).unwrap()
                    };
                    (0..50)
                        .filter_map(|i| ask(i).ok())
                        .map(|hold| hold.settle(debit("1")))
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(won, 10);
    assert_eq!(block_on(caller.figures()).unwrap().balance, Credits::ZERO);
    assert!(audit(&rig.store).findings.is_empty());
}

/// A commit that reports an error although it is done: the debits in it count once, and those that came meanwhile too.
#[test]
fn a_group_whose_commit_failed_and_was_durable_counts_once() {
    let rig = rig();
    rig.store.close();
    let path = rig.folder.path().join("other.db");
    std::fs::copy(rig.folder.path().join("ledger.db"), &path).unwrap();
    let mut database = Database::open(&path).unwrap();
    database
        .keep_receipts(crate::ledger::sqlite::ReceiptBounds::days(30), NOW.day())
        .unwrap();
    let shared = Arc::new(Shared::load(&database, Clock::manual(NOW), take_lock(&path).unwrap()).unwrap());
    let (_commands, inbox) = std::sync::mpsc::channel();
    let mut committer = Committer::new(Arc::clone(&shared), database, path.clone(), inbox).unwrap();
    let cell = Arc::clone(&shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
    let queue = |cost: &str, sequence| {
        let debit = Debit {
            usage: Usage {
                prompt: PromptTokens(1),
                completion: CompletionTokens(1),
            },
            ..debit(cost)
        };
        shared.queue.lock().unwrap().push(QueuedDebit {
            is_tracked: false,
            cell: Arc::clone(&cell),
            debit: Some(debit),
            day: NOW.day(),
            month: NOW.month(),
            month_used: Credits::ZERO,
            number: CallNumber::new(shared.producer.current(), sequence),
            id: RequestId::from_bytes([1; 16]),
            numbers: Numbers::read(sequence, "").unwrap(),
            queued: NOW,
            entry: Entry::none(),
        });
    };
    queue("1", 1);
    committer.database.fails_after_commit = true;
    committer.commit().unwrap_err();
    queue("2", 2);
    committer.commit().unwrap();
    committer.commit().unwrap();
    let stored = committer.database.accounts().unwrap().remove(0);
    assert_eq!(stored.kept.balance, credits("7"));
    let query = crate::ledger::query::UsageQuery {
        account: stored.record.id.clone(),
        key: None,
        days: crate::pure::time::Period::Today.into(),
        by_key: false,
    };
    let reader = crate::ledger::sqlite::Reader::open(&path).unwrap();
    let calls = reader.usage(&query, NOW.day()).unwrap();
    assert_eq!(calls.iter().map(|keyed| keyed.row.requests).sum::<u64>(), 2);
    let query = ReceiptQuery::newest(&stored.record.id, 9);
    let receipts = reader.page(&query).unwrap().receipts;
    assert_eq!(
        receipts.iter().map(|receipt| receipt.billed.number).collect::<Vec<_>>(),
        [2, 1]
    );
}

/// The process before makes a hold while its journals are read: it is not among those that were read, and yet it runs.
#[test]
fn a_hold_that_came_after_the_look_is_not_taken_for_ended() {
    let rig = rig();
    let hold = |n| crate::ledger::journal::LiveHold {
        key: "key_x".to_owned().into(),
        end_user: None,
        id: RequestId::from_bytes([n; 16]),
        account: "acme".parse().unwrap(),
        amount: credits("1"),
    };
    rig.store.hold_for_predecessor(&hold(1));
    let reading = rig.store.begin_reading();
    rig.store.hold_for_predecessor(&hold(2));
    rig.store.predecessors_ended_of(reading, &Default::default());
    let cell = Arc::clone(&rig.store.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
    assert_eq!(cell.state().held(), credits("1"));
    assert_eq!(rig.store.holds_of_predecessors(), [hold(2).id].into());
}
