//! What a command says and undoes where no server tells whether a replica has it.

use super::{node, parted, patient};
use crate::ledger::Ledger;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::redis::commands::key_id_key;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::reply;
use crate::ledger::redis::script;
use crate::ledger::redis::shared::key_name;
use crate::ledger::redis::unconfirmed::Left;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, credits, key_create, redis_of, run};
use crate::pure::ids::{ApiKey, KeyDigest, KeyId, Tier};
use crate::pure::operator::{Role, operator_id};

fn digest(number: u8) -> KeyDigest {
    ApiKey::from_random("tg_", [number; 32]).digest()
}

fn create() -> AdminOp {
    AdminOp::AccountCreate {
        account: "acme".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    }
}

fn add() -> AdminOp {
    AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: credits("5"),
        reference: "one".to_owned(),
    }
}

fn operator(digest: &KeyDigest) -> AdminOp {
    AdminOp::Operator(OperatorOp::Create {
        digest: digest.to_hex(),
        name: "anna".to_owned(),
        role: Role::Admin,
        expires_in_ms: None,
    })
}

fn not_confirmed(ledger: &Ledger, op: AdminOp) -> String {
    match run(ledger, op) {
        Err(AdminError::NotConfirmed(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn revoked(ledger: &Ledger) -> Vec<(KeyId, bool)> {
    let account = "acme".parse().unwrap();
    match run(ledger, AdminOp::KeyList { account }).unwrap() {
        AdminReply::Keys { keys, .. } => keys.into_iter().map(|key| (key.id, key.revoked.is_some())).collect(),
        other => panic!("{other:?}"),
    }
}

/// A server that takes writes and does not say whether it has replicas.
fn silent() -> RedisServer {
    RedisServer::start_with(&["--save", "", "--appendonly", "no", "--rename-command", "ROLE", ""])
}

#[test]
fn what_stands_unconfirmed_is_said_and_what_nobody_has_is_revoked() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    assert_eq!(server.ask("ACL SETUSER default -role"), ["+OK"]);
    let said = not_confirmed(&ledger, create());
    assert!(said.ends_with("make it again"), "{said}");
    let said = not_confirmed(&ledger, add());
    assert!(
        said.contains("; it is written; run it again, which counts once"),
        "{said}"
    );
    let (key, id) = (digest(7), KeyId::of(&digest(7)));
    let said = not_confirmed(&ledger, key_create("acme", &key));
    let made = "was made, and is revoked again, for nobody has its text: run it again";
    assert!(said.ends_with(&format!("; the key {id} {made}")), "{said}");
    assert_eq!(revoked(&ledger), [(id, true)]);
    let of = operator_id(&digest(8));
    let said = not_confirmed(&ledger, operator(&digest(8)));
    assert!(said.ends_with(&format!("; the operator {of} {made}")), "{said}");
    match run(&ledger, AdminOp::Operator(OperatorOp::List)).unwrap() {
        AdminReply::Operators { operators } => {
            let told: Vec<_> = operators.iter().map(|operator| operator.revoked.is_some()).collect();
            assert_eq!(told, [true]);
        }
        other => panic!("{other:?}"),
    }
}

/// In a cluster that may be another master than the key's own, and its account's.
#[test]
fn a_key_is_confirmed_also_where_it_is_found_by_its_id() {
    let (server, silent) = (RedisServer::start(), silent());
    let (key, id) = (digest(7), KeyId::of(&digest(7)));
    let shared = parted(&server, &silent, &key_id_key(&id));
    let run = |op| block_on(async { shared.execute(&shared.link(), op).await });
    run(create()).unwrap();
    let told = run(key_create("acme", &key));
    let revoked = format!("; the key {id} was made, and is revoked again");
    assert!(
        matches!(&told, Err(AdminError::NotConfirmed(text)) if text.contains(&revoked)),
        "{told:?}"
    );
}

#[test]
fn a_command_that_fails_says_whether_it_made_a_key() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    run(&ledger, create()).unwrap();
    let store = |op| match run(&ledger, op) {
        Err(AdminError::Store(text)) => text,
        other => panic!("{other:?}"),
    };
    // Its record is written, and the list of the account's keys cannot be.
    server.ask("SET tg1:{acme}:keys text");
    let said = store(key_create("acme", &digest(7)));
    let id = KeyId::of(&digest(7));
    assert!(
        said.contains(&format!("; the key {id} was made, and is revoked again")),
        "{said}"
    );
    server.ask("SET tg1:operators text");
    let said = store(operator(&digest(8)));
    assert!(
        said.contains(&format!(
            "whether the operator {} was made is not known",
            operator_id(&digest(8))
        )),
        "{said}"
    );
    // The account itself cannot be read: nothing was made.
    server.ask("DEL tg1:{acme}");
    server.ask("SET tg1:{acme} text");
    let said = store(key_create("acme", &digest(9)));
    assert!(said.ends_with("; no key was made: run it again"), "{said}");
    let said = store(add());
    assert!(!said.contains("it is written"), "{said}");
}

/// Whichever step it is that no replica confirms: a key that ended for another one leaves its customer the other.
#[test]
fn a_key_whose_predecessor_has_ended_is_answered_though_that_is_not_confirmed() {
    for overlap_ms in [0, 60_000] {
        let (server, other) = (RedisServer::start(), RedisServer::start());
        let (old, new) = (digest(7), digest(8));
        let shared = parted(&server, &other, &key_name(&old));
        let run = |op| block_on(async { shared.execute(&shared.link(), op).await });
        run(create()).unwrap();
        run(key_create("acme", &old)).unwrap();
        // Where the old key is, and not the new one.
        assert_eq!(other.ask("ACL SETUSER default -role"), ["+OK"]);
        let rotated = run(AdminOp::KeyRotate {
            key: KeyRef::Id(KeyId::of(&old)),
            digest: new.to_hex(),
            overlap_ms,
        });
        assert!(
            matches!(&rotated, Ok(AdminReply::Key(key)) if key.id == KeyId::of(&new) && key.revoked.is_none()),
            "{overlap_ms}: {rotated:?}"
        );
        let (record, _) = block_on(async { shared.record_of(&shared.link(), &new).await }).unwrap();
        assert!(record.revoked.is_none(), "{overlap_ms}");
    }
}

/// Its answer was lost, and so was that of the same step that was sent again: the old key says which one takes its place.
#[test]
fn a_key_that_was_given_an_end_for_another_leaves_that_though_nobody_heard_so() {
    for is_done in [true, false] {
        let server = RedisServer::start();
        let ledger = node(&server, patient());
        let (shared, link) = (&redis_of(&ledger).shared, Link::default());
        let (old, new) = (digest(7), digest(8));
        run(&ledger, create()).unwrap();
        run(&ledger, key_create("acme", &old)).unwrap();
        run(&ledger, key_create("acme", &new)).unwrap();
        if is_done {
            let (_, record) = block_on(shared.record_of(&link, &old)).unwrap();
            let arguments =
                [record.as_str(), &record, "channel", "message", KeyId::of(&new).as_str()].map(str::to_owned);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let set = block_on(shared.run_script(&link, &script::KEY_SET, &[&key_name(&old)], &arguments));
            assert_eq!(reply::text(&set.unwrap()).unwrap(), "set");
        }
        let left = Left::Successor(new, KeyRef::Id(KeyId::of(&old)));
        let said = block_on(shared.unconfirmed(&link, &left, AdminError::Store("no answer".to_owned())));
        assert_eq!(
            matches!(&said, Ok(AdminReply::Key(key)) if key.id == KeyId::of(&new)),
            is_done,
            "{said:?}"
        );
        let mut keys = revoked(&ledger);
        keys.sort_by_key(|(id, _)| *id != KeyId::of(&old));
        assert_eq!(keys, [(KeyId::of(&old), false), (KeyId::of(&new), !is_done)]);
    }
}

#[test]
fn a_rotation_gives_no_end_to_a_key_that_is_revoked_meanwhile() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let (shared, link, old) = (&redis_of(&ledger).shared, Link::default(), digest(7));
    run(&ledger, create()).unwrap();
    run(&ledger, key_create("acme", &old)).unwrap();
    let (_, record) = block_on(shared.record_of(&link, &old)).unwrap();
    run(
        &ledger,
        AdminOp::KeyRevoke {
            key: KeyRef::Id(KeyId::of(&old)),
        },
    )
    .unwrap();
    for (successor, expected) in [(Some("key_b"), "revoked"), (None, "set")] {
        let arguments: Vec<&str> = [record.as_str(), &record, "channel", "message"]
            .into_iter()
            .chain(successor)
            .collect();
        let set = block_on(shared.run_script(&link, &script::KEY_SET, &[&key_name(&old)], &arguments));
        assert_eq!(reply::text(&set.unwrap()).unwrap(), expected);
    }
    // What is set by one who has read it before is set by nobody's leave: another key has its place.
    let mut read = redis::cmd("HGET");
    read.arg(key_name(&old)).arg("revoked");
    let revoked = block_on(shared.command(&link, read)).unwrap();
    for (was_revoked, expected) in [("", "changed"), (reply::text(&revoked).unwrap(), "set")] {
        let arguments = [record.as_str(), &record, "channel", "message", "", was_revoked];
        let set = block_on(shared.run_script(&link, &script::KEY_SET, &[&key_name(&old)], &arguments));
        assert_eq!(reply::text(&set.unwrap()).unwrap(), expected);
    }
}
