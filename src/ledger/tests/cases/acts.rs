//! Operators, and the log of what they do.

use serde_json::{Value, json};

use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::{Act, ActPage, ActQuery, Actor, OperatorOp, OperatorRecord};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::KeyChange;
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, credits, request};
use crate::pure::ids::{AccountId, ApiKey, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::operator::{Role, operator_id, token};

fn actor() -> Actor {
    Actor {
        id: "op_0123456789abcdef".to_owned(),
        name: "Anna Ω".to_owned(),
        role: Role::Billing,
        address: Some("192.0.2.7".to_owned()),
    }
}

pub(super) fn act(rig: &Rig, op: AdminOp) -> Result<AdminReply, AdminError> {
    rig.run(AdminOp::By(Box::new(Acted { actor: actor(), op })))
}

fn page(rig: &Rig, query: ActQuery) -> ActPage {
    match rig.run(AdminOp::Operator(OperatorOp::Log(query))).unwrap() {
        AdminReply::Acts(page) => page,
        other => panic!("{other:?}"),
    }
}

/// The newest acts.
pub(super) fn log(rig: &Rig) -> Vec<Act> {
    let limit = 1_000;
    page(
        rig,
        ActQuery {
            limit,
            ..ActQuery::default()
        },
    )
    .acts
}

fn newest(rig: &Rig) -> Act {
    log(rig).remove(0)
}

fn create(name: &str) -> AdminOp {
    AdminOp::AccountCreate {
        account: name.parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    }
}

fn add(name: &str, amount: &str, reference: &str) -> AdminOp {
    AdminOp::CreditsAdd {
        account: name.parse().unwrap(),
        amount: credits(amount),
        reference: reference.to_owned(),
    }
}

fn make_operator(digest: &str, name: &str, role: Role, expires_in_ms: Option<i64>) -> AdminOp {
    AdminOp::Operator(OperatorOp::Create {
        digest: digest.to_owned(),
        name: name.to_owned(),
        role,
        expires_in_ms,
    })
}

fn operator(reply: Result<AdminReply, AdminError>) -> OperatorRecord {
    match reply.unwrap() {
        AdminReply::Operator(record) => record,
        other => panic!("{other:?}"),
    }
}

fn operators(rig: &Rig, op: OperatorOp) -> Vec<OperatorRecord> {
    match rig.run(AdminOp::Operator(op)).unwrap() {
        AdminReply::Operators { operators } => operators,
        other => panic!("{other:?}"),
    }
}

pub(super) fn operators_are_made_found_and_revoked(rig: &Rig) {
    let [first, second, unknown] = [1, 2, 3].map(|n| token([n; 32]).digest());
    let find = |digest: &str| {
        let digest = digest.to_owned();
        operators(rig, OperatorOp::Find { digest })
    };
    assert_eq!(find(&first.to_hex()), []);
    let made = operator(rig.run(make_operator(&first.to_hex(), "Anna", Role::Admin, None)));
    let expected = OperatorRecord {
        id: operator_id(&first),
        name: "Anna".to_owned(),
        role: Role::Admin,
        created: NOW,
        expires: None,
        revoked: None,
    };
    assert_eq!(made, expected);
    rig.clock.advance(5);
    let other = operator(rig.run(make_operator(&second.to_hex(), "Anna", Role::Read, Some(1000))));
    assert_eq!(other.expires, Some(NOW.plus_millis(1005)));
    assert!(other.is_good(NOW.plus_millis(1004)) && !other.is_good(NOW.plus_millis(1005)));
    assert_eq!(find(&first.to_hex()), std::slice::from_ref(&made));
    assert_eq!(find(&second.to_hex()), std::slice::from_ref(&other));
    // The id says half of the digest, and opens nothing.
    let mut near = first.to_hex();
    near.replace_range(63.., if near.ends_with('0') { "1" } else { "0" });
    for wrong in [near.as_str(), &unknown.to_hex(), "", "op_", &made.id] {
        assert_eq!(find(wrong), [], "{wrong}");
    }
    assert_eq!(operators(rig, OperatorOp::List), [made.clone(), other.clone()]);

    let again = rig.run(make_operator(&first.to_hex(), "Bea", Role::Read, None));
    let taken = "the token is an operator's already".to_owned();
    assert_eq!(again, Err(AdminError::Invalid(taken)));
    for name in ["", "  ", "a\nb", &"x".repeat(65)] {
        let made = rig.run(make_operator(&unknown.to_hex(), name, Role::Read, None));
        assert!(matches!(made, Err(AdminError::Invalid(_))), "{name:?}");
    }
    let revoke = |id: &str| rig.run(AdminOp::Operator(OperatorOp::Revoke { id: id.to_owned() }));
    let revoked = operator(revoke(&made.id));
    assert_eq!(revoked.revoked, Some(NOW.plus_millis(5)));
    assert!(!revoked.is_good(NOW));
    assert_eq!(find(&first.to_hex()), std::slice::from_ref(&revoked));
    rig.clock.advance(5);
    assert_eq!(operator(revoke(&made.id)), revoked, "for good");
    assert_eq!(revoke("op_x"), Err(AdminError::NoOperator("op_x".to_owned())));
    assert_eq!(operators(rig, OperatorOp::List), [revoked, other]);
}

pub(super) fn each_act_is_logged_with_before_and_after(rig: &Rig) {
    act(rig, create("acme")).unwrap();
    let made = newest(rig);
    let account: AccountId = "acme".parse().unwrap();
    assert_eq!(
        (made.actor, made.at, made.action.as_str(), made.account, made.subject),
        (actor(), NOW, "account.create", Some(account.clone()), None)
    );
    assert_eq!((&made.before, &made.error), (&Value::Null, &None));
    let view = json!({
        "name": "acme", "tier": "pro", "status": "active", "balance": "0", "held": "0", "monthly_quota": null,
        "monthly_used": "0", "low_balance": null, "metadata": {}, "created_at": NOW.to_string(),
    });
    assert_eq!(made.after, view);

    act(rig, add("acme", "10.5", "A 1")).unwrap();
    let paid = newest(rig);
    assert_eq!(
        (paid.action.as_str(), paid.subject.as_deref()),
        ("credits.post", Some("A 1"))
    );
    assert_eq!((&paid.before, &paid.after["balance"]), (&view, &json!("10.5")));
    let credit = json!({ "kind": "top_up", "amount": "10.5", "reference": "A 1", "note": null, "added": true });
    assert_eq!(paid.after["credit"], credit);
    act(rig, add("acme", "10.5", "A 1")).unwrap();
    assert_eq!(newest(rig).after["credit"]["added"], false);

    let set = AdminOp::AccountSet {
        account: account.clone(),
        tier: Some(Tier::Free),
        quota_pico: Some(Some(2_500_000_000_000)),
        terms: Default::default(),
    };
    act(rig, set).unwrap();
    let set = newest(rig);
    assert_eq!(
        (&set.before["tier"], &set.before["monthly_quota"]),
        (&json!("pro"), &Value::Null)
    );
    assert_eq!(
        (&set.after["tier"], &set.after["monthly_quota"]),
        (&json!("free"), &json!("2.5"))
    );
    keys_are_logged(rig, &account);

    let digest = token([9; 32]).digest();
    let bea = operator(act(rig, make_operator(&digest.to_hex(), "Bea", Role::Read, None)));
    let made = newest(rig);
    assert_eq!(
        (made.action.as_str(), made.subject.as_ref()),
        ("operator.create", Some(&bea.id))
    );
    assert_eq!((made.before, &made.after["role"]), (Value::Null, &json!("read")));
    act(rig, AdminOp::Operator(OperatorOp::Revoke { id: bea.id.clone() })).unwrap();
    let revoked = newest(rig);
    assert_eq!(
        (revoked.action.as_str(), revoked.subject),
        ("operator.revoke", Some(bea.id))
    );
    assert_eq!(revoked.before, made.after);
    assert_eq!(revoked.after["revoked_at"], json!(NOW.to_string()));

    for on in [true, false] {
        act(rig, AdminOp::Maintenance { on }).unwrap();
        let switched = newest(rig);
        assert_eq!(
            (switched.before, switched.after),
            (json!({ "on": !on }), json!({ "on": on }))
        );
    }
    audit_is_clean(&rig.ledger);
}

fn keys_are_logged(rig: &Rig, account: &AccountId) {
    let digest = ApiKey::from_random("tg_", [200; 32]).digest();
    let create = AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account: account.clone(),
        tier: None,
        domains: vec!["*.example.com".parse().unwrap()],
        expires_in_ms: Some(1000),
        limits: LimitOverrides::default(),
        settings: Default::default(),
    };
    let AdminReply::Key(key) = act(rig, create).unwrap() else {
        panic!("no key");
    };
    let made = newest(rig);
    let id = Some(key.id.to_string());
    assert_eq!(
        (made.action.as_str(), &made.account, &made.subject),
        ("key.create", &Some(account.clone()), &id)
    );
    assert_eq!(
        (&made.after["id"], &made.after["domains"]),
        (&json!(id), &json!(["*.example.com"]))
    );
    let change = Box::new(KeyChange {
        label: Some("shop".to_owned()),
        ..KeyChange::default()
    });
    let by_id = KeyRef::Id(key.id.clone());
    act(rig, AdminOp::KeySet { key: by_id, change }).unwrap();
    let set = newest(rig);
    assert_eq!((&set.before, &set.after["label"]), (&made.after, &json!("shop")));
    // Named by its digest, it is logged by its id.
    let by_digest = KeyRef::Digest(digest.to_hex());
    act(rig, AdminOp::KeyRevoke { key: by_digest }).unwrap();
    let revoked = newest(rig);
    assert_eq!(
        (revoked.action.as_str(), &revoked.account, &revoked.subject),
        ("key.revoke", &Some(account.clone()), &id)
    );
    assert_eq!(
        (&revoked.before, &revoked.before["revoked_at"]),
        (&set.after, &Value::Null)
    );
    assert_eq!(revoked.after["revoked_at"], json!(NOW.to_string()));
    let all = serde_json::to_string(&log(rig)).unwrap();
    assert!(!all.contains(&digest.to_hex()), "a digest is in the log");
}

pub(super) fn an_act_that_fails_says_why(rig: &Rig) {
    act(rig, create("acme")).unwrap();
    let unknown = ApiKey::from_random("tg_", [201; 32]).digest();
    let wrong = [
        (create("acme"), "account.create", "already"),
        (add("nobody", "1", "R"), "credits.post", "no account is named nobody"),
        (add("acme", "0", "R"), "credits.post", "above 0"),
        (
            AdminOp::KeyRevoke {
                key: KeyRef::Digest(unknown.to_hex()),
            },
            "key.revoke",
            "no such key",
        ),
        (
            AdminOp::Operator(OperatorOp::Revoke {
                id: "op_0123456789abcdef".to_owned(),
            }),
            "operator.revoke",
            "op_0123456789abcdef",
        ),
    ];
    for (op, action, why) in wrong {
        let error = act(rig, op).unwrap_err().to_string();
        let failed = newest(rig);
        assert_eq!((failed.action.as_str(), &failed.after), (action, &Value::Null));
        assert_eq!(failed.error.as_ref(), Some(&error));
        assert!(error.contains(why), "{error}");
    }
    let all = serde_json::to_string(&log(rig)).unwrap();
    assert!(!all.contains(&unknown.to_hex()), "a digest is in the log");
}

pub(super) fn what_changes_nothing_is_not_logged(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    let account = caller.account.id.clone();
    let key = KeyRef::Id(caller.key.id.clone());
    let reads = [
        AdminOp::AccountShow {
            account: account.clone(),
        },
        AdminOp::AccountList,
        AdminOp::KeyList { account },
        AdminOp::KeyShow { key },
        AdminOp::Audit,
        AdminOp::Operator(OperatorOp::List),
        AdminOp::Operator(OperatorOp::Log(ActQuery::default())),
        AdminOp::Repair,
        AdminOp::Recover,
    ];
    for op in reads {
        act(rig, op.clone()).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        assert_eq!(log(rig), [], "{op:?}");
    }
    hold.release();
    // Without somebody who gives it, nothing is logged; and nobody gives what somebody else gives.
    rig.run(create("other")).unwrap();
    let nested = AdminOp::By(Box::new(Acted {
        actor: actor(),
        op: create("third"),
    }));
    assert!(matches!(act(rig, nested), Err(AdminError::Invalid(_))));
    assert_eq!(log(rig), []);
    // An act's number is not given again after one was withdrawn.
    act(rig, create("third")).unwrap();
    act(rig, AdminOp::Repair).unwrap();
    act(rig, create("fourth")).unwrap();
    let numbers: Vec<u64> = log(rig).iter().map(|act| act.id.parse().unwrap()).collect();
    assert!(numbers.len() == 2 && numbers[0] > numbers[1] + 1, "{numbers:?}");
}

pub(super) fn the_log_is_read_page_by_page_and_by_account(rig: &Rig) {
    for name in ["a", "ab", "a.b"] {
        act(rig, create(name)).unwrap();
    }
    for n in 0..20 {
        act(rig, add(["a", "ab", "a.b"][n % 3], "1", &format!("R{n}"))).unwrap();
    }
    act(rig, AdminOp::Maintenance { on: true }).unwrap();
    let all = log(rig);
    assert_eq!(all.len(), 24);
    assert!(all.windows(2).all(|pair| number(&pair[0]) > number(&pair[1])));
    for account in [None, Some("a"), Some("ab"), Some("a.b"), Some("nobody")] {
        let account: Option<AccountId> = account.map(|name| name.parse().unwrap());
        let expected: Vec<&Act> = all
            .iter()
            .filter(|act| account.is_none() || act.account == account)
            .collect();
        for limit in [1, 3, 4, 1_000] {
            let (mut before, mut read, mut pages) = (None, Vec::new(), 0);
            loop {
                let page = page(
                    rig,
                    ActQuery {
                        limit,
                        before: before.clone(),
                        account: account.clone(),
                    },
                );
                assert!(page.acts.len() <= usize::try_from(limit).unwrap());
                pages += 1;
                read.extend(page.acts);
                match page.next {
                    Some(next) => before = Some(next),
                    None => break,
                }
            }
            assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{account:?} by {limit}");
            let whole = expected.len().div_ceil(usize::try_from(limit).unwrap()).max(1);
            assert_eq!(pages, whole, "{account:?} by {limit}");
        }
    }
    let query = ActQuery {
        before: Some("x".to_owned()),
        ..ActQuery::default()
    };
    let wrong = rig.run(AdminOp::Operator(OperatorOp::Log(query)));
    assert!(matches!(wrong, Err(AdminError::Invalid(_))));
}

fn number(act: &Act) -> u64 {
    act.id.parse().unwrap()
}
