//! How an entry ends when the store fails.

mod requests;

use serde_json::{Value, json};

use super::Entry;
use crate::ledger::admin::operators::Actor;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::pure::money::Credits;
use crate::pure::operator::Role;
use crate::pure::time::Timestamp;

fn entry_of(op: &AdminOp) -> Entry {
    let actor = Actor {
        id: "cli".to_owned(),
        name: "anna".to_owned(),
        role: Role::Admin,
        address: None,
    };
    Entry::of(actor, op).unwrap().unwrap()
}

fn entry() -> Entry {
    let mut entry = entry_of(&AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: Credits::from_pico(5_000_000_000_000),
        reference: "R".to_owned(),
    });
    entry.begins(Timestamp(1), json!({ "balance": "1" }));
    entry
}

#[test]
fn of_a_store_that_fails_the_end_is_unknown_and_what_is_there_is_told() {
    let mut entry = entry();
    assert_eq!(entry.act.request["amount"], "5", "before it runs");
    let failed = Err(AdminError::Store("x".repeat(10_000)));
    assert!(entry.needs_look(&failed));
    assert!(entry.ends(&failed, json!({ "balance": "6" })));
    let error = entry.act.error.unwrap();
    assert!(
        error.starts_with("unknown: the store failed: xx") && error.len() <= 300,
        "{error}"
    );
    assert_eq!(entry.act.after, json!({ "balance": "6" }));
}

#[test]
fn what_was_posted_is_told_though_the_account_cannot_be_read() {
    let mut entry = entry();
    let posted = Ok(AdminReply::Credited {
        added: true,
        balance: Credits::ZERO,
    });
    assert!(entry.ends(&posted, Value::Null));
    assert_eq!(
        (
            &entry.act.after["credit"]["amount"],
            &entry.act.after["credit"]["added"]
        ),
        (&json!("5"), &json!(true))
    );
    assert_eq!(entry.act.error, None);
}

#[test]
fn what_changes_something_is_an_act_and_what_reads_is_none() {
    let account = || "acme".parse().unwrap();
    assert!(AdminOp::Maintenance { on: true }.is_act());
    assert!(AdminOp::Repair.is_act());
    assert!(!AdminOp::AccountShow { account: account() }.is_act());
    assert!(!AdminOp::Audit.is_act());
}
