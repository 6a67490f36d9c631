//! What an entry says of each command: what was asked for, and what is there after it.

use serde_json::{Value, json};

use super::entry_of;
use crate::ledger::KeyRecord;
use crate::ledger::acts::request::request_of;
use crate::ledger::acts::{ROTATE, number_before};
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::operators::{ActQuery, OperatorOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, AuditFinding, KeyRef, RecoverReport};
use crate::ledger::key_settings::{AmountChange, KeyChange, KeySettings};
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::rig::credits;
use crate::pure::ids::{KeyDigest, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::operator::Role;
use crate::pure::spend::{Reset, SpendLimit};
use crate::pure::time::Timestamp;

fn settings() -> KeySettings {
    let limit = |amount, reset| {
        Some(SpendLimit {
            amount: credits(amount),
            reset,
        })
    };
    KeySettings {
        label: Some("web".to_owned()),
        limit: limit("2.5", Reset::Daily),
        end_user_limit: limit("0.5", Reset::None),
        models: vec!["gpt-*".parse().unwrap()],
        addresses: vec!["10.0.0.0/8".parse().unwrap()],
        counts_as: None,
        replaced: None,
    }
}

fn key() -> KeyRecord {
    KeyRecord {
        id: KeyId::from("key_0123456789abcdef".to_owned()),
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Free),
        domains: vec!["app.example.com".parse().unwrap()],
        expires: Some(Timestamp(2_000)),
        limits: LimitOverrides {
            rpm: Some(1),
            tpm: Some(2),
            concurrency: Some(3),
        },
        revoked: None,
        created: Timestamp(1_000),
        settings: settings(),
    }
}

fn key_shown() -> Value {
    json!({
        "id": "key_0123456789abcdef", "account": "acme", "label": "web", "tier": "free", "domains": ["app.example.com"],
        "rpm": 1, "tpm": 2, "concurrency": 3, "limit": { "amount": "2.5", "reset": "daily" },
        "end_user_limit": { "amount": "0.5", "reset": "none" }, "models": ["gpt-*"], "addresses": ["10.0.0.0/8"],
        "created_at": "1970-01-01T00:00:01Z", "expires_at": "1970-01-01T00:00:02Z", "revoked_at": null,
    })
}

fn rotate() -> AdminOp {
    AdminOp::KeyRotate {
        key: KeyRef::Id(key().id),
        digest: KeyDigest::from_bytes([7; 32]).to_hex(),
        overlap_ms: 5,
    }
}

#[test]
fn each_command_says_what_it_asks_for() {
    let account = || "acme".parse().unwrap();
    let new = KeyDigest::from_bytes([7; 32]);
    let terms = |change| {
        AdminOp::Account(AccountOp::Terms {
            account: account(),
            change,
        })
    };
    let set = |change| AdminOp::KeySet {
        key: KeyRef::Id(key().id),
        change: Box::new(change),
    };
    for (op, asked) in [
        (
            AdminOp::AccountCreate {
                account: account(),
                tier: Tier::Pro,
                quota_pico: Some(2_500_000_000_000),
                terms: TermsChange::default(),
            },
            json!({ "tier": "pro", "monthly_quota": "2.5" }),
        ),
        (
            AdminOp::AccountCreate {
                account: account(),
                tier: Tier::Pro,
                quota_pico: None,
                terms: TermsChange {
                    status: Some(AccountStatus::Suspended),
                    low_balance_pico: Some(Some(1_000_000_000_000)),
                    metadata: [("team".to_owned(), Some("a".to_owned()))].into(),
                },
            },
            json!({
                "tier": "pro", "monthly_quota": null, "status": "suspended", "low_balance": "1", "metadata": { "team": "a" },
            }),
        ),
        (
            AdminOp::AccountSet {
                account: account(),
                tier: Some(Tier::Free),
                quota_pico: Some(None),
                terms: Default::default(),
            },
            json!({ "tier": "free", "monthly_quota": null }),
        ),
        (
            AdminOp::AccountSet {
                account: account(),
                tier: None,
                quota_pico: Some(Some(2_500_000_000_000)),
                terms: TermsChange {
                    low_balance_pico: Some(None),
                    ..TermsChange::default()
                },
            },
            json!({ "monthly_quota": "2.5", "low_balance": null }),
        ),
        (
            terms(TermsChange {
                status: Some(AccountStatus::Suspended),
                low_balance_pico: Some(Some(1_000_000_000_000)),
                metadata: [("team".to_owned(), Some("a".to_owned()))].into(),
            }),
            json!({ "status": "suspended", "low_balance": "1", "metadata": { "team": "a" } }),
        ),
        (terms(TermsChange::default()), json!({})),
        (
            AdminOp::KeyCreate {
                digest: new.to_hex(),
                account: account(),
                tier: Some(Tier::Free),
                domains: vec!["app.example.com".parse().unwrap()],
                expires_in_ms: Some(7),
                limits: key().limits,
                settings: Box::new(settings()),
            },
            json!({
                "tier": "free", "domains": ["app.example.com"], "expires_in_ms": 7,
                "limits": { "rpm": 1, "tpm": 2, "concurrency": 3 }, "label": "web",
                "limit": { "amount": "2.5", "reset": "daily" }, "models": ["gpt-*"], "addresses": ["10.0.0.0/8"],
                "end_user_limit": { "amount": "0.5", "reset": "none" },
            }),
        ),
        (
            set(KeyChange {
                label: Some("new".to_owned()),
                limit: Some(AmountChange::Removed),
                limit_reset: Some(Reset::Monthly),
                end_user_limit: Some(AmountChange::To(credits("3"))),
                end_user_limit_reset: Some(Reset::Weekly),
                models: Some(vec!["gpt-*".parse().unwrap()]),
                addresses: Some(Vec::new()),
            }),
            json!({
                "label": "new", "limit": null, "limit_reset": "monthly", "end_user_limit": "3",
                "end_user_limit_reset": "weekly", "models": ["gpt-*"], "addresses": [],
            }),
        ),
        (rotate(), json!({ "new": KeyId::of(&new).to_string(), "overlap_ms": 5 })),
        (
            AdminOp::Operator(OperatorOp::Create {
                digest: new.to_hex(),
                name: "anna".to_owned(),
                role: Role::Billing,
                expires_in_ms: None,
            }),
            json!({ "name": "anna", "role": "billing", "expires_in_ms": null }),
        ),
        (AdminOp::Maintenance { on: true }, json!({ "on": true })),
        (AdminOp::Repair, Value::Null),
    ] {
        assert_eq!(request_of(&op), asked, "{op:?}");
    }
}

#[test]
fn of_a_request_that_is_too_long_only_its_length_is_kept() {
    let of_length = |bytes: usize| {
        let frame = json!({ "label": "" }).to_string().len();
        let change = KeyChange {
            label: Some("a".repeat(bytes - frame)),
            ..KeyChange::default()
        };
        request_of(&AdminOp::KeySet {
            key: KeyRef::Id(key().id),
            change: Box::new(change),
        })
    };
    assert!(of_length(16 << 10)["label"].is_string());
    assert_eq!(of_length((16 << 10) + 1), json!({ "bytes": (16 << 10) + 1 }));
}

/// What an entry has in the end, if it is kept.
fn ended(op: &AdminOp, reply: AdminReply, looked: Value) -> Option<Value> {
    let mut entry = entry_of(op);
    let is_kept = entry.ends(&Ok(reply), looked);
    assert_eq!(entry.act.error, None);
    is_kept.then_some(entry.act.after)
}

#[test]
fn a_key_is_told_whole_and_after_a_rotation_both() {
    let set = AdminOp::KeySet {
        key: KeyRef::Id(key().id),
        change: Box::default(),
    };
    assert_eq!(ended(&set, AdminReply::Key(key()), json!("looked")), Some(key_shown()));
    let both = json!({ "key": key_shown(), "old": "looked" });
    assert_eq!(ended(&rotate(), AdminReply::Key(key()), json!("looked")), Some(both));
    for (op, is_looked_for) in [(set, false), (rotate(), true)] {
        let entry = entry_of(&op);
        assert_eq!(entry.act.action == ROTATE, is_looked_for);
        assert_eq!(entry.needs_look(&Ok(AdminReply::Key(key()))), is_looked_for);
        assert!(!entry.needs_look(&Err(AdminError::NoKey)));
    }
}

#[test]
fn a_repair_is_kept_when_it_mended_something() {
    let finding = AuditFinding {
        account: "acme".parse().unwrap(),
        rule: "rule".to_owned(),
        expected: credits("1"),
        found: credits("2"),
    };
    let mended = |findings| ended(&AdminOp::Repair, AdminReply::Repaired { findings }, Value::Null);
    assert_eq!(mended(Vec::new()), None);
    let told = json!({ "mended": [{ "account": "acme", "rule": "rule", "found": "2", "expected": "1" }] });
    assert_eq!(mended(vec![finding]), Some(told));
}

#[test]
fn a_recovery_is_kept_when_it_changed_something() {
    let recovered = |settled, already, released| {
        let report = RecoverReport {
            settled,
            already,
            released,
            ..RecoverReport::default()
        };
        ended(&AdminOp::Recover, AdminReply::Recovered(report), Value::Null)
    };
    assert_eq!(recovered(0, 7, 0), None);
    for (settled, released) in [(1, 0), (0, 1), (2, 3)] {
        let told = json!({ "settled": settled, "already": 7, "released": released });
        assert_eq!(recovered(settled, 7, released), Some(told));
    }
}

#[test]
fn acts_have_numbers_from_one() {
    let before = |before: Option<&str>| {
        number_before(&ActQuery {
            limit: 1,
            before: before.map(str::to_owned),
            account: None,
        })
    };
    assert_eq!(before(None), Ok(None));
    assert_eq!(before(Some("1")), Ok(Some(1)));
    for wrong in ["0", "-1", "a", ""] {
        assert!(matches!(before(Some(wrong)), Err(AdminError::Invalid(_))), "{wrong}");
    }
}
