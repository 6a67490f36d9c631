//! What is confirmed of a command that has nothing to write any more, and by whom.

use super::replicas::with_replica;
use super::{node, patient};
use crate::ledger::admin::credits::{CreditOp, CreditPost};
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::redis::confirm::confirm_key;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::payments::payment_key;
use crate::ledger::redis::server_health::operators_key;
use crate::ledger::redis::shared::{accounts_key, key_name};
use crate::ledger::redis::slots::slot_of;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, credits, key_create, redis_of, run};
use crate::pure::ids::ApiKey;
use crate::pure::operator::{Role, operator_id, token};

/// Why a command was not confirmed. What comes before a payment is credited is a failure of the store.
fn refusal(answer: Result<AdminReply, AdminError>) -> String {
    match answer {
        Err(AdminError::NotConfirmed(why) | AdminError::Store(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// From version 7.2 on, WAIT waits for what its own connection wrote last, and for nothing where that wrote nothing: what is done already
/// would be confirmed by nobody. The installed server may be older and wait for everything; so each command also has to leave on the replica
/// what it wrote to be waited for.
#[test]
fn what_was_done_before_is_confirmed_by_a_replica_too() {
    let (server, replica, ledger, caller) = with_replica();
    let account = &caller.account.id;
    let (key, operator) = (ApiKey::from_random("tg_", [7; 32]).digest(), token([8; 32]).digest());
    run(&ledger, key_create(account.as_str(), &key)).unwrap();
    let make = OperatorOp::Create {
        digest: operator.to_hex(),
        name: "anna".to_owned(),
        role: Role::Admin,
        expires_in_ms: None,
    };
    run(&ledger, AdminOp::Operator(make)).unwrap();
    let revoke_key = AdminOp::KeyRevoke {
        key: KeyRef::Digest(key.to_hex()),
    };
    let revoke_operator = AdminOp::Operator(OperatorOp::Revoke {
        id: operator_id(&operator),
    });
    let pay = AdminOp::Credit(CreditOp::Post(CreditPost {
        is_payment: true,
        ..CreditPost::top_up(account.clone(), credits("5"), "paid".to_owned())
    }));
    let ops = [
        (revoke_key, key_name(&key)),
        (revoke_operator, operators_key()),
        (pay, payment_key("paid")),
    ];
    for (op, written) in &ops {
        run(&ledger, op.clone()).unwrap();
        let mark = confirm_key(slot_of(written.as_bytes()));
        server.ask(&format!("DEL {mark}"));
        run(&ledger, op.clone()).unwrap();
        assert_eq!(replica.ask(&format!("EXISTS {mark}")), [":1"], "{op:?}");
    }
    replica.freeze();
    std::thread::scope(|threads| {
        let asked = ops.each_ref().map(|(op, _)| threads.spawn(|| run(&ledger, op.clone())));
        for ((op, _), asked) in ops.iter().zip(asked) {
            let why = refusal(asked.join().unwrap());
            assert!(why.contains("no replica has it yet"), "{op:?}: {why}");
        }
    });
    replica.thaw();
    for (op, _) in &ops {
        run(&ledger, op.clone()).unwrap();
    }
}

/// It was the master when it was written to, and another one is now.
#[test]
fn a_server_that_became_a_replica_confirms_nothing() {
    let (server, master) = (RedisServer::start(), RedisServer::start());
    let ledger = node(&server, patient());
    let shared = &redis_of(&ledger).shared;
    let link = Link::default();
    let confirm = || block_on(async { shared.confirm(&link, &[&accounts_key()]).await });
    assert_eq!(confirm(), Ok(()));
    server.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let told = confirm();
    assert!(
        matches!(&told, Err(AdminError::NotConfirmed(why)) if why.contains("is a replica now")),
        "{told:?}"
    );
}
