//! What is not there, or cannot be read.

use std::time::{Duration, Instant};

use super::{node, on_node, patient, request};
use crate::config::SuspendedStreams;
use crate::ledger::Uncovered;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::CreditOp;
use crate::ledger::admin::{AdminError, AdminOp, ReceiptQuery};
use crate::ledger::journal::Entry;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, caller_of, redis_of, run};
use crate::pure::error::AccountStop;
use crate::pure::ids::AccountId;
use crate::pure::limits::LimitOverrides;
use crate::pure::time::{Day, Period};

#[test]
fn an_account_that_is_not_there_is_not_remembered() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let account: AccountId = "nobody".parse().unwrap();
    let list = CreditOp::List {
        account: account.clone(),
        limit: 9,
        before: None,
    };
    let statement = CreditOp::Statement {
        account: account.clone(),
        from: Day(20_000),
        to: Day(20_001),
    };
    let ops = [
        AdminOp::AccountShow {
            account: account.clone(),
        },
        AdminOp::Credit(list),
        AdminOp::Credit(statement),
        AdminOp::Receipts(ReceiptQuery::newest(&account, 9)),
        AdminOp::Usage {
            account: account.clone(),
            key: None,
            period: Period::All,
        },
    ];
    for op in ops {
        let answer = run(&ledger, op.clone());
        assert_eq!(answer, Err(AdminError::NoAccount(account.clone())), "{op:?}");
        assert!(
            redis_of(&ledger).shared.cache.known_account(&account).is_none(),
            "{op:?}"
        );
    }
}

/// Of 20 accounts with calls that are to end, 19 cannot be read: the other one is stopped all the same, also after the subscription was lost,
/// and that lives.
#[test]
fn accounts_that_cannot_be_read_hold_up_no_other() {
    let server = RedisServer::start();
    let (one, two) = (node(&server, patient()), node(&server, patient()));
    let call = |name: &str, n| {
        let caller = on_node(&two, &caller_of(&one, name, "10", LimitOverrides::default()));
        block_on(caller.reserve_until(&request(n, "1"), Entry::none(), SuspendedStreams::End))
            .unwrap()
            .unwrap()
    };
    let mut others = Vec::new();
    for n in 1..20 {
        let name = format!("broken-{n}");
        others.push(call(&name, n));
        server.ask(&format!("HSET tg1:{{{name}}} tier nonsense"));
    }
    let ends = call("acme", 20);
    server.ask("CLIENT KILL TYPE pubsub");
    until("both are subscribed again", || {
        server.ask("PUBSUB NUMSUB tg1:changed").last().map(String::as_str) == Some(":2")
    });
    let change = TermsChange {
        status: Some(AccountStatus::Suspended),
        ..TermsChange::default()
    };
    let account = "acme".parse().unwrap();
    run(&one, AdminOp::Account(AccountOp::Terms { account, change })).unwrap();
    let start = Instant::now();
    until("its call ends", || {
        ends.uncovered() == Some(Uncovered::Stopped(AccountStop::Suspended))
    });
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    ends.release();
    others.into_iter().for_each(crate::ledger::Hold::release);
}

/// The switch is set where this process does not hear of it.
#[test]
fn whether_there_is_maintenance_is_asked_until_redis_says_it() {
    let server = RedisServer::start();
    server.ask("HSET tg1:maintenance on 1");
    let ledger = node(&server, patient());
    until("it was asked in vain", || {
        let errors = server.ask("INFO errorstats");
        errors.iter().any(|line| line.starts_with("errorstat_WRONGTYPE:"))
    });
    server.ask("SET tg1:maintenance on");
    let start = Instant::now();
    until("it is known", || {
        ledger.in_maintenance() || start.elapsed() > Duration::from_secs(5)
    });
    assert!(ledger.in_maintenance());
}
