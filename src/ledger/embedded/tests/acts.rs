//! The log of acts in its file: over a restart, when it cannot be written, and against whoever would change it.

use std::time::Duration;

use super::{open, rig};
use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::{Act, ActQuery, Actor, OperatorOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::embedded::Embedded;
use crate::pure::ids::Tier;
use crate::pure::operator::{Role, token};

fn by(op: AdminOp) -> AdminOp {
    let actor = Actor {
        id: "cli".to_owned(),
        name: "anna".to_owned(),
        role: Role::Admin,
        address: None,
    };
    AdminOp::By(Box::new(Acted { actor, op }))
}

fn set(tier: Tier) -> AdminOp {
    AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(tier),
        quota_pico: None,
        terms: Default::default(),
    }
}

fn log(store: &Embedded) -> Vec<Act> {
    let query = ActQuery {
        limit: 100,
        ..ActQuery::default()
    };
    match store.run_blocking(AdminOp::Operator(OperatorOp::Log(query))).unwrap() {
        AdminReply::Acts(page) => page.acts,
        other => panic!("{other:?}"),
    }
}

fn tier(store: &Embedded) -> Tier {
    let account = "acme".parse().unwrap();
    match store.run_blocking(AdminOp::AccountShow { account }).unwrap() {
        AdminReply::Account(view) => view.record.tier,
        other => panic!("{other:?}"),
    }
}

#[test]
fn operators_and_their_acts_outlive_a_restart() {
    let rig = rig();
    let digest = token([1; 32]).digest().to_hex();
    let create = OperatorOp::Create {
        digest: digest.clone(),
        name: "anna".to_owned(),
        role: Role::Admin,
        expires_in_ms: Some(9),
    };
    let AdminReply::Operator(anna) = rig.store.run_blocking(by(AdminOp::Operator(create))).unwrap() else {
        panic!("no operator");
    };
    rig.store.run_blocking(by(set(Tier::Lite))).unwrap();
    let id = anna.id.clone();
    rig.store
        .run_blocking(by(AdminOp::Operator(OperatorOp::Revoke { id })))
        .unwrap();
    let acts = log(&rig.store);
    assert_eq!(acts.len(), 3);
    rig.store.close();
    drop(rig.store);
    let store = open(&rig.folder);
    assert_eq!(log(&store), acts);
    let found = store
        .run_blocking(AdminOp::Operator(OperatorOp::Find { digest }))
        .unwrap();
    let AdminReply::Operators { operators } = found else {
        panic!("no operators");
    };
    let [found] = operators.as_slice() else {
        panic!("{operators:?}");
    };
    assert_eq!(
        (found.name.as_str(), found.expires, found.revoked),
        ("anna", anna.expires, Some(anna.created))
    );
}

#[test]
fn what_cannot_be_logged_is_not_done() {
    let rig = rig();
    rig.store.run_blocking(by(set(Tier::Lite))).unwrap();
    let file = rusqlite::Connection::open(rig.folder.path().join("ledger.db")).unwrap();
    let full = "CREATE TRIGGER full BEFORE INSERT ON acts BEGIN SELECT raise(ABORT, 'no room'); END";
    file.execute_batch(full).unwrap();
    let refused = rig.store.run_blocking(by(set(Tier::Free))).unwrap_err();
    assert!(
        matches!(&refused, AdminError::Store(text) if text.contains("cannot be logged") && text.contains("no room")),
        "{refused}"
    );
    assert_eq!(tier(&rig.store), Tier::Lite);
    file.execute_batch("DROP TRIGGER full").unwrap();
    rig.store.run_blocking(by(set(Tier::Free))).unwrap();
    assert_eq!(tier(&rig.store), Tier::Free);
    assert_eq!(log(&rig.store).len(), 2);
}

#[test]
fn nobody_changes_or_deletes_what_is_logged() {
    let rig = rig();
    rig.store.run_blocking(by(set(Tier::Lite))).unwrap();
    let before = log(&rig.store);
    let file = rusqlite::Connection::open(rig.folder.path().join("ledger.db")).unwrap();
    for sql in [
        "DELETE FROM acts",
        "UPDATE acts SET act = replace(act, 'anna', 'bea')",
        "UPDATE acts SET id = 7",
    ] {
        let error = file.execute_batch(sql).unwrap_err().to_string();
        assert!(error.contains("only added to"), "{sql}: {error}");
    }
    assert_eq!(log(&rig.store), before);
}

/// Whoever has closed the ledger may end the process: the answer to a command that was done is written by then.
#[test]
fn a_close_waits_for_the_answer_that_is_being_written() {
    let rig = rig();
    let (closed, ends) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let answering = rig.store.answering();
        scope.spawn(|| {
            rig.store.close();
            closed.send(()).unwrap();
        });
        // Time enough for a close that does not wait.
        let early = ends.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "it has not waited");
        drop(answering);
        ends.recv().unwrap();
    });
}
