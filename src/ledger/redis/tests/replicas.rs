//! A master with a replica that does not follow.

use std::time::Duration;

use super::{node, patient};
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::{CreditOp, CreditPost};
use crate::ledger::admin::operators::{Actor, OperatorOp};
use crate::ledger::admin::{Acted, AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::redis::Options;
use crate::ledger::redis::account::account_keys;
use crate::ledger::redis::commands::written_keys;
use crate::ledger::redis::payments::{giver_key, payment_key};
use crate::ledger::redis::shared::accounts_key;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{caller_of, credits, run};
use crate::ledger::{Caller, Ledger};
use crate::pure::ids::{AccountId, ApiKey, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::operator::{Role, token};

/// A fail-over may follow at once: what no replica has is not acknowledged.
#[test]
fn an_administrative_write_is_acknowledged_once_a_replica_has_it() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    let options = Options {
        timeout: Duration::from_millis(800),
        ..patient()
    };
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    until("the replica follows", || {
        server
            .ask("INFO replication")
            .iter()
            .any(|line| line.contains("state=online"))
    });
    let add = |reference: &str| {
        run(
            &ledger,
            AdminOp::CreditsAdd {
                account: caller.account.id.clone(),
                amount: credits("5"),
                reference: reference.to_owned(),
            },
        )
    };
    let revoke = || {
        let key = KeyRef::Id(caller.key.id.clone());
        run(&ledger, AdminOp::KeyRevoke { key })
    };
    assert!(matches!(
        add("first payment"),
        Ok(AdminReply::Credited { added: true, .. })
    ));
    replica.freeze();
    assert!(matches!(add("second payment"), Err(AdminError::NotConfirmed(_))));
    assert!(
        matches!(add("second payment"), Err(AdminError::NotConfirmed(_))),
        "nor the second time"
    );
    assert!(matches!(revoke(), Err(AdminError::NotConfirmed(_))));
    // Without an entry that outlives a fail-over, nothing is done in somebody's name.
    let actor = Actor {
        id: "cli".to_owned(),
        name: "anna".to_owned(),
        role: Role::Admin,
        address: None,
    };
    let op = AdminOp::CreditsAdd {
        account: caller.account.id.clone(),
        amount: credits("7"),
        reference: "third payment".to_owned(),
    };
    let acted = Acted { actor, op };
    let acted = run(&ledger, AdminOp::By(Box::new(acted)));
    assert!(
        matches!(&acted, Err(AdminError::Store(text)) if text.contains("nothing was done")),
        "{acted:?}"
    );
    replica.thaw();
    let again = add("second payment");
    assert!(
        matches!(&again, Ok(AdminReply::Credited { added: false, balance }) if *balance == credits("11")),
        "{again:?}"
    );
    revoke().unwrap();
}

/// A ledger whose master has a replica.
pub(super) fn with_replica() -> (RedisServer, RedisServer, Ledger, Caller) {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    let options = Options {
        timeout: Duration::from_secs(1),
        ..patient()
    };
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    until("the replica follows", || {
        let replication = server.ask("INFO replication");
        replication.iter().any(|line| line.contains("state=online"))
    });
    (server, replica, ledger, caller)
}

/// It was acknowledged as if a replica had it, and a line in the log was all that said so.
#[test]
fn what_its_user_may_not_have_confirmed_is_not_acknowledged() {
    for right in ["role", "wait"] {
        let (server, _replica, ledger, caller) = with_replica();
        assert_eq!(server.ask(&format!("ACL SETUSER default -{right}")), ["+OK"]);
        let add = || {
            let add = AdminOp::CreditsAdd {
                account: caller.account.id.clone(),
                amount: credits("5"),
                reference: "a payment".to_owned(),
            };
            run(&ledger, add)
        };
        let refused = add();
        let named = |text: &String| text.contains("needs +role, +wait and +set");
        assert!(
            matches!(&refused, Err(AdminError::NotConfirmed(text)) if named(text)),
            "{right}: {refused:?}"
        );
        assert_eq!(server.ask(&format!("ACL SETUSER default +{right}")), ["+OK"]);
        assert!(
            matches!(add(), Ok(AdminReply::Credited { added: false, .. })),
            "{right}"
        );
    }
}

fn new_key(number: u8) -> (String, KeyId) {
    let digest = ApiKey::from_random("tg_", [number; 32]).digest();
    (digest.to_hex(), KeyId::of(&digest))
}

fn create(caller: &Caller, digest: &str) -> AdminOp {
    AdminOp::KeyCreate {
        digest: digest.to_owned(),
        account: caller.account.id.clone(),
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits: LimitOverrides::default(),
        settings: Box::default(),
    }
}

/// Which of the account's keys are good.
fn good_keys(ledger: &Ledger, caller: &Caller) -> Vec<KeyId> {
    let account = caller.account.id.clone();
    let Ok(AdminReply::Keys { keys, .. }) = run(ledger, AdminOp::KeyList { account }) else {
        panic!("no keys");
    };
    let good = keys
        .into_iter()
        .filter(|key| key.revoked.is_none() && key.expires.is_none());
    good.map(|key| key.id).collect()
}

fn unconfirmed(answer: Result<AdminReply, AdminError>) -> String {
    match answer {
        Err(AdminError::NotConfirmed(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// Its text is shown with the answer alone: a key of which nobody heard is no key, and the same command again makes the one that is used.
#[test]
fn what_was_made_and_not_confirmed_is_revoked_again() {
    let (_server, replica, ledger, caller) = with_replica();
    let first = good_keys(&ledger, &caller);
    let ((lost, lost_id), (made, made_id)) = (new_key(1), new_key(2));
    replica.freeze();
    let said = unconfirmed(run(&ledger, create(&caller, &lost)));
    assert!(
        said.contains(&format!("the key {lost_id} was made, and is revoked again")),
        "{said}"
    );
    let operator = |number: u8| {
        AdminOp::Operator(OperatorOp::Create {
            digest: token([number; 32]).digest().to_hex(),
            name: "anna".to_owned(),
            role: Role::Admin,
            expires_in_ms: None,
        })
    };
    let said = unconfirmed(run(&ledger, operator(1)));
    assert!(
        said.contains("the operator op_") && said.contains("is revoked again"),
        "{said}"
    );
    assert_eq!(good_keys(&ledger, &caller), first);
    replica.thaw();
    assert!(matches!(run(&ledger, create(&caller, &made)), Ok(AdminReply::Key(_))));
    assert!(matches!(run(&ledger, operator(2)), Ok(AdminReply::Operator(_))));
    let mut both = [first, vec![made_id]].concat();
    both.sort();
    let mut good = good_keys(&ledger, &caller);
    good.sort();
    assert_eq!(good, both);
    let Ok(AdminReply::Operators { operators }) = run(&ledger, AdminOp::Operator(OperatorOp::List)) else {
        panic!("no operators");
    };
    let revoked: Vec<bool> = operators.iter().map(|operator| operator.revoked.is_some()).collect();
    assert_eq!(revoked.iter().filter(|revoked| **revoked).count(), 1, "{operators:?}");
}

/// A key is ended when a fail-over cannot lose the one in its place: until then it holds on.
#[test]
fn a_rotation_that_is_not_confirmed_leaves_the_old_key_as_it_was() {
    let (_server, replica, ledger, caller) = with_replica();
    let old = caller.key.id.clone();
    let rotate = |digest: &str, overlap_ms: i64| AdminOp::KeyRotate {
        key: KeyRef::Id(old.clone()),
        digest: digest.to_owned(),
        overlap_ms,
    };
    replica.freeze();
    for (number, overlap_ms) in [(1, 0), (2, 60_000)] {
        let (digest, id) = new_key(number);
        let said = unconfirmed(run(&ledger, rotate(&digest, overlap_ms)));
        assert!(
            said.contains(&format!("the new key {id} was made, and is revoked again")),
            "{said}"
        );
        assert_eq!(good_keys(&ledger, &caller), std::slice::from_ref(&old), "{overlap_ms}");
    }
    replica.thaw();
    let (digest, id) = new_key(3);
    assert!(matches!(run(&ledger, rotate(&digest, 0)), Ok(AdminReply::Key(_))));
    assert_eq!(good_keys(&ledger, &caller), [id]);
}

/// In somebody's name nothing is made without an entry in the log that a fail-over does not lose.
#[test]
fn a_key_is_made_in_nobodys_name_before_the_log_is_confirmed() {
    let (_server, replica, ledger, caller) = with_replica();
    let actor = Actor {
        id: "cli".to_owned(),
        name: "anna".to_owned(),
        role: Role::Admin,
        address: None,
    };
    let (digest, id) = new_key(1);
    let act = AdminOp::By(Box::new(Acted {
        actor,
        op: create(&caller, &digest),
    }));
    replica.freeze();
    let refused = run(&ledger, act.clone());
    assert!(
        matches!(&refused, Err(AdminError::Store(text)) if text.contains("nothing was done")),
        "{refused:?}"
    );
    assert!(!good_keys(&ledger, &caller).contains(&id));
    replica.thaw();
    assert!(matches!(run(&ledger, act), Ok(AdminReply::Key(_))));
    assert!(good_keys(&ledger, &caller).contains(&id));
}

/// Whatever it is that a command writes.
#[test]
fn each_command_that_writes_waits_for_a_replica() {
    let (server, replica, _patient, caller) = with_replica();
    // One waits for a replica after the other: not for long each.
    let ledger = node(&server, Options::default());
    let account = &caller.account.id;
    let post = CreditPost::top_up(account.clone(), credits("3"), "posted".to_owned());
    let payment = CreditPost {
        is_payment: true,
        reference: "paid".to_owned(),
        ..post.clone()
    };
    let ops = [
        AdminOp::AccountCreate {
            account: "later".parse().unwrap(),
            tier: Tier::Pro,
            quota_pico: None,
            terms: TermsChange::default(),
        },
        AdminOp::AccountSet {
            account: account.clone(),
            tier: Some(Tier::Lite),
            quota_pico: None,
            terms: Default::default(),
        },
        AdminOp::Account(AccountOp::Terms {
            account: account.clone(),
            change: TermsChange {
                status: Some(AccountStatus::Suspended),
                ..TermsChange::default()
            },
        }),
        AdminOp::Credit(CreditOp::Post(post)),
        AdminOp::Credit(CreditOp::Post(payment)),
        AdminOp::Maintenance { on: false },
    ];
    replica.freeze();
    std::thread::scope(|threads| {
        let asked = ops.each_ref().map(|op| threads.spawn(|| run(&ledger, op.clone())));
        for (op, asked) in ops.iter().zip(asked) {
            let answer = asked.join().unwrap();
            let why = match &answer {
                Err(AdminError::NotConfirmed(why)) => why,
                // Whose payment it is stands elsewhere, and first.
                Err(AdminError::Store(why)) => why,
                _ => panic!("{op:?}: {answer:?}"),
            };
            assert!(why.contains("no replica has it yet"), "{op:?}: {why}");
        }
    });
    replica.thaw();
}

#[test]
fn a_command_names_each_key_that_it_writes() {
    let account: AccountId = "acme".parse().unwrap();
    let [name, _] = account_keys(&account);
    let post = CreditPost::top_up(account.clone(), credits("3"), "paid".to_owned());
    let written = |is_payment| {
        let post = CreditPost {
            is_payment,
            ..post.clone()
        };
        written_keys(&AdminOp::Credit(CreditOp::Post(post)))
    };
    assert_eq!(written(false), std::slice::from_ref(&name));
    assert_eq!(written(true), [name.clone(), payment_key("paid"), giver_key("paid")]);
    // By hand under a payment's id.
    let by_hand = CreditPost::top_up(account.clone(), credits("3"), "pi_1".to_owned());
    let add = AdminOp::CreditsAdd {
        account: account.clone(),
        amount: credits("3"),
        reference: "pi_1".to_owned(),
    };
    for op in [AdminOp::Credit(CreditOp::Post(by_hand)), add] {
        let keys = [name.clone(), payment_key("pi_1"), giver_key("pi_1")];
        assert_eq!(written_keys(&op), keys, "{op:?}");
    }
    let create = AdminOp::AccountCreate {
        account: account.clone(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: TermsChange::default(),
    };
    assert_eq!(written_keys(&create), [name, accounts_key()]);
    assert_eq!(written_keys(&AdminOp::AccountShow { account }), [""; 0]);
}
