//! The bounds of the log of acts, and what it says of a command from its beginning.

use serde_json::{Value, json};

use super::acts::{act, log};
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost};
use crate::ledger::admin::operators::{Act, ActPage, ActQuery, OperatorOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::rig::{Rig, credits};
use crate::pure::ids::{KeyId, Tier};
use crate::pure::operator::{Role, token};

fn create(name: &str) -> AdminOp {
    AdminOp::AccountCreate {
        account: name.parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: TermsChange::default(),
    }
}

fn add(reference: &str) -> AdminOp {
    AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: credits("1"),
        reference: reference.to_owned(),
    }
}

pub(super) fn what_nothing_can_be_named_is_not_logged(rig: &Rig) {
    act(rig, create("acme")).unwrap();
    let big = "x".repeat(100_000);
    let revoke = |id: &str| AdminOp::Operator(OperatorOp::Revoke { id: id.to_owned() });
    let key = |id: &str| AdminOp::KeyRevoke {
        key: KeyRef::Id(KeyId::from(id.to_owned())),
    };
    let wrong = [
        add(&big),
        add(""),
        add("a\u{1b}[2J"),
        AdminOp::Credit(CreditOp::Post(CreditPost::top_up(
            "acme".parse().unwrap(),
            credits("1"),
            big.clone(),
        ))),
        revoke(&big),
        revoke("op_x"),
        revoke("op_0123456789abcde\n"),
        key(&big),
        key("key_0123456789ABCDEF"),
        key("key_\u{1b}[2J"),
    ];
    for op in wrong {
        let error = act(rig, op).unwrap_err();
        let text = error.to_string();
        assert!(!matches!(error, AdminError::Store(_)), "{text}");
        assert!(text.len() < 400 && !text.chars().any(char::is_control), "{text:?}");
        assert_eq!(log(rig).len(), 1, "{text}");
    }
    // An error may quote what was sent: it is cut off in the log.
    let digest = token([1; 32]).digest().to_hex();
    let post = AdminOp::Credit(CreditOp::Post(CreditPost {
        note: Some("\u{20ac}".repeat(100_000)),
        ..CreditPost::top_up("acme".parse().unwrap(), credits("1"), "R".to_owned())
    }));
    act(rig, post).unwrap_err();
    let made = AdminOp::Operator(OperatorOp::Create {
        digest,
        name: big,
        role: Role::Read,
        expires_in_ms: None,
    });
    act(rig, made).unwrap_err();
    for failed in log(rig).iter().take(2) {
        let bytes = serde_json::to_string(failed).unwrap().len();
        assert!(bytes < 2_000, "{bytes}");
        assert!(failed.request["bytes"].as_u64() > Some(100_000), "{}", failed.request);
    }
}

pub(super) fn a_page_of_the_log_has_its_bytes(rig: &Rig) {
    const LONG: usize = 200;
    act(rig, create("acme")).unwrap();
    // 8 kilobytes before, after, and asked for.
    let metadata = |n: usize| (0..16).map(move |field| (format!("f{field}"), Some(format!("{n}{}", "y".repeat(490)))));
    for n in 0..LONG {
        let terms = AdminOp::Account(crate::ledger::admin::accounts::AccountOp::Terms {
            account: "acme".parse().unwrap(),
            change: TermsChange {
                metadata: metadata(n).collect(),
                ..TermsChange::default()
            },
        });
        act(rig, terms).unwrap();
    }
    for account in [None, Some("acme".parse().unwrap())] {
        let (mut before, mut read, mut pages) = (None, Vec::new(), 0);
        loop {
            let query = ActQuery {
                limit: 1_000,
                before,
                account: account.clone(),
            };
            let page = match rig.run(AdminOp::Operator(OperatorOp::Log(query))).unwrap() {
                AdminReply::Acts(page) => page,
                other => panic!("{other:?}"),
            };
            let ActPage { acts, next } = page;
            let bytes = serde_json::to_string(&acts).unwrap().len();
            assert!(bytes < (1 << 20) + (100 << 10), "{bytes}");
            pages += 1;
            read.extend(acts.into_iter().map(|act| act.id));
            match next {
                Some(next) => before = Some(next),
                None => break,
            }
        }
        assert!(pages > 2, "{pages}");
        read.dedup();
        assert_eq!(read.len(), LONG + 1, "each act is on one page");
    }
}

pub(super) fn an_act_says_what_was_asked_for(rig: &Rig) {
    let asked = |op: AdminOp| {
        let done = act(rig, op);
        (log(rig).remove(0).request, done)
    };
    assert_eq!(asked(create("acme")).0, json!({ "tier": "pro", "monthly_quota": null }));
    let set = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: None,
        quota_pico: Some(Some(2_500_000_000_000)),
        terms: Default::default(),
    };
    assert_eq!(asked(set).0, json!({ "monthly_quota": "2.5" }));
    let post = AdminOp::Credit(CreditOp::Post(CreditPost {
        kind: CreditKind::Bonus,
        note: Some("thanks".to_owned()),
        ..CreditPost::top_up("nobody".parse().unwrap(), credits("3"), "R".to_owned())
    }));
    let (request, done) = asked(post);
    assert!(done.is_err());
    assert_eq!(
        request,
        json!({ "kind": "bonus", "amount": "3", "reference": "R", "note": "thanks" })
    );
    let change = Box::new(KeyChange {
        limit: Some(AmountChange::To(credits("0.5"))),
        ..KeyChange::default()
    });
    let key = KeyRef::Id(KeyId::from("key_0123456789abcdef".to_owned()));
    let (request, done) = asked(AdminOp::KeySet {
        key: key.clone(),
        change,
    });
    assert_eq!((done, request), (Err(AdminError::NoKey), json!({ "limit": "0.5" })));
    assert_eq!(asked(AdminOp::KeyRevoke { key }).0, Value::Null);
}

pub(super) fn an_act_says_what_was_taken_and_what_allowed_it(rig: &Rig) {
    act(rig, create("acme")).unwrap();
    let posted = |post: CreditPost| {
        act(rig, AdminOp::Credit(CreditOp::Post(post))).unwrap();
        let Act { request, after, .. } = log(rig).remove(0);
        let flags = ["allow_negative", "as_available", "is_payment"].map(|flag| request.get(flag).cloned());
        let amounts = [&request["amount"], &after["credit"]["amount"], &after["balance"]].map(Clone::clone);
        (flags, json!(amounts), after["credit"]["added"] == true)
    };
    let post = |kind, amount: &str, reference: &str| CreditPost {
        kind,
        ..CreditPost::top_up("acme".parse().unwrap(), credits(amount), reference.to_owned())
    };
    let set = Some(Value::Bool(true));
    let payment = CreditPost {
        is_payment: true,
        ..post(CreditKind::TopUp, "1.5", "pi_1")
    };
    let flags = [None, None, set.clone()];
    assert_eq!(posted(payment), (flags, json!(["1.5", "1.5", "1.5"]), true));
    let refund = CreditPost {
        as_available: true,
        ..post(CreditKind::Refund, "-10.5", "re_1")
    };
    for added in [true, false] {
        let flags = [None, set.clone(), None];
        let amounts = json!(["-10.5", "-1.5", "0"]);
        assert_eq!(posted(refund.clone()), (flags, amounts, added), "what was taken of it");
    }
    let chargeback = CreditPost {
        allow_negative: true,
        ..post(CreditKind::Correction, "-2", "dp_1")
    };
    assert_eq!(posted(chargeback), ([set, None, None], json!(["-2", "-2", "-2"]), true));
    let correction = post(CreditKind::Correction, "3", "FIX-7");
    assert_eq!(posted(correction), ([None, None, None], json!(["3", "3", "1"]), true));
}
