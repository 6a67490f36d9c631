//! What another process has done while it had the ledger, and what is asked of it once alone.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{NOW, credits, open, request, rig};
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::embedded::Embedded;
use crate::ledger::journal::{Entry, LiveHold};
use crate::ledger::remote::{RemoteReply, RemoteReserve};
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::rig::key_create;
use crate::pure::account::{Denial, Look, ReserveRequest, Scope};
use crate::pure::ids::{ApiKey, KeyId, Tier};
use crate::pure::limits::{LimitOverrides, Limits};
use crate::pure::operator::{Role, token};

pub(super) fn terms(status: AccountStatus) -> AdminOp {
    let change = TermsChange {
        status: Some(status),
        ..TermsChange::default()
    };
    let account = "acme".parse().unwrap();
    AdminOp::Account(AccountOp::Terms { account, change })
}

/// A gateway is ready for as long as an upgrade takes where all is well.
#[test]
fn a_ledger_is_away_once_it_was_for_longer_than_an_upgrade_takes() {
    let rig = rig();
    let away_for = |seconds| {
        let since = crate::clock::monotonic().checked_sub(std::time::Duration::from_secs(seconds));
        *rig.store.shared.away_since.lock().unwrap() = Some(since.unwrap());
        rig.store.is_away()
    };
    assert!(!rig.store.is_away());
    assert_eq!((away_for(0), away_for(2)), (false, true));
    *rig.store.shared.away_since.lock().unwrap() = None;
    assert!(!rig.store.is_away());
}

#[test]
fn an_operator_that_the_successor_revoked_stays_revoked() {
    let rig = rig();
    let create = OperatorOp::Create {
        digest: token([1; 32]).digest().to_hex(),
        name: "anna".to_owned(),
        role: Role::Admin,
        expires_in_ms: None,
    };
    let AdminReply::Operator(anna) = rig.store.run_blocking(AdminOp::Operator(create)).unwrap() else {
        panic!("no operator");
    };
    rig.store.hand_over().unwrap();
    let successor = open(&rig.folder);
    let revoke = OperatorOp::Revoke { id: anna.id };
    successor.run_blocking(AdminOp::Operator(revoke)).unwrap();
    drop(successor);
    rig.store.take_back(|| {}).unwrap();
    let AdminReply::Operators { operators } = rig.store.run_blocking(AdminOp::Operator(OperatorOp::List)).unwrap()
    else {
        panic!("no operators");
    };
    assert_eq!(operators[0].revoked, Some(NOW));
}

#[test]
fn a_call_of_the_process_before_is_refused_for_a_stopped_account() {
    let rig = rig();
    let reserve = |n| {
        let reserve = RemoteReserve::of("acme".parse().unwrap(), &request(n, "1"));
        match rig.store.run_blocking(AdminOp::Reserve(reserve)).unwrap() {
            AdminReply::Reserved(reply) => reply,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(reserve(1), RemoteReply::Granted { .. }));
    for (n, status) in [(2, AccountStatus::Suspended), (3, AccountStatus::Closed)] {
        rig.store.run_blocking(terms(status)).unwrap();
        let is_closed = status == AccountStatus::Closed;
        assert_eq!(reserve(n), RemoteReply::Stopped { is_closed });
    }
}

/// A successor that takes a command and dies before it answers: whether that had its effect is not known, and it is not given again.
#[test]
fn a_command_that_writes_is_sent_to_the_successor_once() {
    let rig = rig();
    let store = Arc::clone(&rig.store);
    store.hand_over().unwrap();
    let socket = crate::ledger::control_socket::socket_path(store.path());
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let serve = move || {
        for stream in listener.incoming() {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.unwrap());
            reader.read_line(&mut line).unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            // Only now the connection ends, which is what the command waits for.
            drop(reader);
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    let set = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Lite),
        quota_pico: None,
        terms: Default::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(Embedded::run(&store, set));
    assert!(matches!(answer, Err(AdminError::Store(_))), "{answer:?}");
    assert_eq!(sent.load(Ordering::Relaxed), 1);
}

#[test]
fn what_the_successor_made_is_there_when_the_ledger_comes_back() {
    let rig = rig();
    rig.store.hand_over().unwrap();
    let successor = open(&rig.folder);
    let create = AdminOp::AccountCreate {
        account: "later".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: TermsChange::default(),
    };
    successor.run_blocking(create).unwrap();
    let digests = [("acme", 2), ("later", 3)].map(|(account, n)| {
        let digest = ApiKey::from_random("tg_", [n; 32]).digest();
        successor.run_blocking(key_create(account, &digest)).unwrap();
        digest
    });
    successor.run_blocking(AdminOp::Maintenance { on: true }).unwrap();
    drop(successor);
    assert!(!rig.store.in_maintenance());
    rig.store.take_back(|| {}).unwrap();
    assert!(rig.store.in_maintenance());
    for digest in &digests {
        assert!(rig.store.find_key(digest).is_some());
    }
    for (account, count) in [("acme", 2), ("later", 1)] {
        let account = account.parse().unwrap();
        let AdminReply::Keys { keys, .. } = rig.store.run_blocking(AdminOp::KeyList { account }).unwrap() else {
            panic!("no keys");
        };
        assert_eq!(keys.len(), count, "{keys:?}");
    }
}

/// Credit that came in there was not known here: the next end of it was told to nobody.
#[test]
fn what_was_told_of_refusals_is_as_the_file_has_it_when_the_ledger_comes_back() {
    let rig = rig();
    let cell = Arc::clone(&rig.store.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
    let denial = cell.state().reserve(&request(1, "100000"), NOW).unwrap_err();
    let tells = || cell.told.to_tell(&denial, credits("1"), NOW).is_some();
    assert_eq!([tells(), tells()], [true, false]);
    rig.store.hand_over().unwrap();
    drop(open(&rig.folder));
    rig.store.take_back(|| {}).unwrap();
    assert_eq!([tells(), tells()], [true, false]);
}

/// Whether this process has locks on the file: SQLite's, which say to other processes that it is open.
fn is_locked(path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of_file = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    // Not /proc/locks, which is read in parts while other processes' locks come and go.
    let fds = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let about = fds.filter_map(|fd| std::fs::read_to_string(fd.unwrap().path()).ok());
    about
        .flat_map(|about| about.lines().map(str::to_owned).collect::<Vec<String>>())
        .any(|line| line.starts_with("lock:") && line.contains(&of_file))
}

/// Another process that opened and closed the file beside one without locks would delete SQLite's log under it.
#[test]
fn a_ledger_that_came_back_is_locked_for_others() {
    let rig = rig();
    // Reports keep the file open, also while the ledger is another's.
    rig.store.run_blocking(AdminOp::Audit).unwrap();
    assert!(is_locked(rig.store.path()));
    for _ in 0..2 {
        rig.store.hand_over().unwrap();
        rig.store.take_back(|| {}).unwrap();
        assert!(is_locked(rig.store.path()));
        rig.store.run_blocking(AdminOp::Audit).unwrap();
    }
}

/// A key with limits of its own counts its own calls, and they do not count against the others of its account.
#[test]
fn a_call_of_the_process_before_counts_where_its_key_counts() {
    let rig = rig();
    let digest = ApiKey::from_random("tg_", [2; 32]).digest();
    let create = AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account: "acme".parse().unwrap(),
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits: LimitOverrides {
            concurrency: Some(1),
            ..LimitOverrides::default()
        },
        settings: Default::default(),
    };
    rig.store.run_blocking(create).unwrap();
    let cell = rig.store.place(&"acme".parse().unwrap()).unwrap();
    let is_full = |n, scope: Scope| {
        let asked = ReserveRequest {
            scope,
            limits: Limits {
                rpm: 1000,
                tpm: 1_000_000,
                concurrency: 1,
            },
            ..request(n, "1")
        };
        match rig.store.reserve(&cell, &asked, &mut Entry::none()).unwrap().unwrap() {
            Ok(_) => {
                cell.state().release(asked.id);
                false
            }
            Err(Denial::Concurrency(_)) => true,
            Err(other) => panic!("{other:?}"),
        }
    };
    let (own, others) = (KeyId::of(&digest), KeyId::of(&rig.key));
    let hold = |n, key: &KeyId| LiveHold {
        id: request(n, "1").id,
        account: "acme".parse().unwrap(),
        key: key.clone(),
        end_user: None,
        amount: credits("1"),
    };
    rig.store.hold_for_predecessor(&hold(1, &own));
    assert!(is_full(2, Scope::Key(own.clone())));
    assert!(!is_full(3, Scope::Account));
    rig.store.hold_for_predecessor(&hold(4, &others));
    assert!(is_full(5, Scope::Account));
    rig.store.predecessors_ended();
    assert!(!is_full(6, Scope::Key(own)));
    assert!(!is_full(7, Scope::Account));
}

/// Which of its calls have ended is found out once the call has its body and asks.
#[test]
fn no_call_whose_body_is_to_come_is_refused_for_calls_of_the_process_before() {
    let rig = rig();
    let cell = rig.store.place(&"acme".parse().unwrap()).unwrap();
    let look = |rpm| Look {
        scope: Scope::Account,
        limits: Limits {
            rpm,
            tpm: 1_000_000,
            concurrency: 1,
        },
        quota: credits("1000"),
        is_paid: true,
    };
    rig.store.hold_for_predecessor(&LiveHold {
        id: request(1, "1").id,
        account: "acme".parse().unwrap(),
        key: KeyId::of(&rig.key),
        end_user: None,
        amount: credits("1"),
    });
    assert_eq!(rig.store.look(&cell, &look(1000)), Ok(()));
    // They came in minutes of that process.
    assert_eq!(rig.store.look(&cell, &look(1)), Ok(()));
    rig.store.predecessors_ended();
    let own = rig.store.reserve(&cell, &request(2, "1"), &mut Entry::none());
    assert!(own.unwrap().unwrap().is_ok());
    assert!(matches!(
        rig.store.look(&cell, &look(1000)),
        Err(Denial::Concurrency(_))
    ));
}
