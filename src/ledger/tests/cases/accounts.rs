//! Terms of accounts, and pages of many.

use std::collections::BTreeMap;

use serde_json::json;

use super::acts::{act, log};
use super::events::told;
use crate::config::SuspendedStreams;
use crate::ledger::admin::accounts::{ACCOUNTS_MAX, AccountOp, AccountPage, AccountQuery};
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::journal::Entry;
use crate::ledger::terms::{AccountStatus, AccountTerms, METADATA_MAX, TermsChange};
use crate::ledger::tests::rig::{Rig, audit_is_clean, block_on, credits, debit, key_create, request, request_id};
use crate::ledger::{AccountRecord, Hold, Uncovered};
use crate::pure::account::Denial;
use crate::pure::error::AccountStop;
use crate::pure::ids::{AccountId, ApiKey, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::Period;

pub(super) fn change(rig: &Rig, change: TermsChange) -> Result<AccountRecord, AdminError> {
    let account = "acme".parse().unwrap();
    match rig.run(AdminOp::Account(AccountOp::Terms { account, change }))? {
        AdminReply::Account(view) => Ok(view.record),
        other => panic!("{other:?}"),
    }
}

pub(super) fn status(rig: &Rig, status: AccountStatus) -> Result<AccountRecord, AdminError> {
    let status = Some(status);
    change(
        rig,
        TermsChange {
            status,
            ..TermsChange::default()
        },
    )
}

fn metadata(pairs: &[(&str, Option<&str>)]) -> TermsChange {
    let pairs = pairs.iter();
    TermsChange {
        metadata: pairs
            .map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)))
            .collect(),
        ..TermsChange::default()
    }
}

pub(super) fn terms_are_kept_and_seen_at_once(rig: &Rig) {
    let digest = ApiKey::from_random("tg_", [210; 32]).digest();
    let caller = rig.caller("3");
    rig.run(key_create("acme", &digest)).unwrap();
    let seen = || {
        block_on(rig.ledger.authenticate(&digest))
            .unwrap()
            .unwrap()
            .account
            .terms
            .clone()
    };
    assert_eq!(seen(), AccountTerms::default());
    let stopped = || {
        let accounts = ["acme", "nobody"].map(|name| name.parse().unwrap()).to_vec();
        match rig.run(AdminOp::Account(AccountOp::Stopped { accounts })).unwrap() {
            AdminReply::Accounts { accounts } => accounts.iter().map(|view| view.record.id.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    };
    let none: Vec<String> = stopped();
    assert!(none.is_empty(), "{none:?}");
    let low = |low_balance_pico| TermsChange {
        low_balance_pico: Some(low_balance_pico),
        ..TermsChange::default()
    };
    status(rig, AccountStatus::Suspended).unwrap();
    assert_eq!(seen().status, AccountStatus::Suspended);
    assert_eq!(stopped(), ["acme"]);
    change(rig, low(Some(1_500_000_000_000))).unwrap();
    change(
        rig,
        metadata(&[("crm id", Some("4 \"x\" closed")), ("status", Some("closed"))]),
    )
    .unwrap();
    let expected = AccountTerms {
        status: AccountStatus::Suspended,
        low_balance: Some(credits("1.5")),
        metadata: BTreeMap::from([
            ("crm id".to_owned(), "4 \"x\" closed".to_owned()),
            ("status".to_owned(), "closed".to_owned()),
        ]),
    };
    assert_eq!(seen(), expected);
    assert_eq!(rig.show(&caller).record.terms, expected, "what is not said stays");
    let set = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Free),
        quota_pico: None,
        terms: Default::default(),
    };
    rig.run(set).unwrap();
    assert_eq!(rig.show(&caller).record.terms, expected);
    assert!(
        rig.credit(&caller, "1", "top-up").is_ok(),
        "a suspended account gets credit, whatever its metadata say"
    );
    change(rig, metadata(&[("status", None), ("unknown", None)])).unwrap();
    change(rig, low(None)).unwrap();
    let record = status(rig, AccountStatus::Active).unwrap();
    assert_eq!((record.terms.metadata.len(), record.terms.low_balance), (1, None));
    assert_eq!(seen(), record.terms);

    let before = seen();
    assert!(matches!(change(rig, low(Some(-1))), Err(AdminError::Invalid(_))));
    let many: Vec<String> = (0..METADATA_MAX).map(|n| n.to_string()).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), Some("x"))).collect();
    assert!(
        matches!(change(rig, metadata(&many)), Err(AdminError::Invalid(_))),
        "one too many"
    );
    assert!(matches!(
        change(rig, metadata(&[("", Some("x"))])),
        Err(AdminError::Invalid(_))
    ));
    assert_eq!(seen(), before);
    let nobody = AdminOp::Account(AccountOp::Terms {
        account: "nobody".parse().unwrap(),
        change: TermsChange::default(),
    });
    assert!(matches!(rig.run(nobody), Err(AdminError::NoAccount(_))));
    audit_is_clean(&rig.ledger);
}

/// In one step: a process that ended between two would leave an account without what was agreed, whose name is taken by then.
pub(super) fn an_account_is_made_with_its_terms(rig: &Rig) {
    let create = |terms| AdminOp::AccountCreate {
        account: "acme".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms,
    };
    let low = |pico| TermsChange {
        low_balance_pico: Some(Some(pico)),
        ..metadata(&[("crm", Some("4711"))])
    };
    for terms in [low(-1), metadata(&[("", Some("x"))])] {
        let refused = act(rig, create(terms));
        assert!(matches!(refused, Err(AdminError::Invalid(_))), "{refused:?}");
    }
    let none = AdminReply::Accounts { accounts: Vec::new() };
    assert_eq!(rig.run(AdminOp::AccountList), Ok(none));
    act(rig, create(low(1_500_000_000_000))).unwrap();
    let made = log(rig).remove(0);
    let asked = json!({ "tier": "pro", "monthly_quota": null, "low_balance": "1.5", "metadata": { "crm": "4711" } });
    assert_eq!((made.request, made.error), (asked, None));
    assert_eq!(
        (&made.after["low_balance"], &made.after["metadata"]),
        (&json!("1.5"), &json!({ "crm": "4711" }))
    );
    let again = act(rig, create(low(7)));
    assert!(matches!(again, Err(AdminError::AccountExists(_))), "{again:?}");
    let expected = AccountTerms {
        low_balance: Some(credits("1.5")),
        metadata: BTreeMap::from([("crm".to_owned(), "4711".to_owned())]),
        ..AccountTerms::default()
    };
    let caller = rig.caller("2");
    assert_eq!(caller.account.terms, expected);
    assert_eq!(rig.show(&caller).record.terms, expected);
    told(&rig.ledger, &caller);
    rig.reserve(&caller, &request(1, "1")).unwrap().settle(debit("1"));
    let events = told(&rig.ledger, &caller);
    let data: Vec<_> = events.iter().map(|event| &event.data).collect();
    assert_eq!(
        data,
        [&json!({ "account": "acme", "balance": "1", "low_balance": "1.5" })]
    );
    audit_is_clean(&rig.ledger);
}

/// In one step as well: where the terms are refused, tier and quota stay as they are.
pub(super) fn an_account_changes_with_its_terms(rig: &Rig) {
    let caller = rig.caller("3");
    let set = |terms| AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Lite),
        quota_pico: Some(Some(7_000_000_000_000)),
        terms,
    };
    let low = |pico| TermsChange {
        status: Some(AccountStatus::Suspended),
        low_balance_pico: Some(Some(pico)),
        ..metadata(&[("crm", Some("4711"))])
    };
    let before = rig.show(&caller).record;
    for terms in [low(-1), metadata(&[("", Some("x"))])] {
        let refused = act(rig, set(terms));
        assert!(matches!(refused, Err(AdminError::Invalid(_))), "{refused:?}");
        assert_eq!(rig.show(&caller).record, before);
    }
    let negative = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: None,
        quota_pico: Some(Some(-1)),
        terms: low(1),
    };
    assert!(matches!(act(rig, negative), Err(AdminError::Invalid(_))));
    assert_eq!(rig.show(&caller).record, before);
    act(rig, set(low(1_500_000_000_000))).unwrap();
    let acts = log(rig);
    let asked = json!({
        "tier": "lite", "monthly_quota": "7", "status": "suspended", "low_balance": "1.5", "metadata": { "crm": "4711" },
    });
    assert_eq!((acts[0].action.as_str(), &acts[0].request), ("account.set", &asked));
    assert_eq!(acts[0].error, None);
    let expected = AccountRecord {
        tier: Tier::Lite,
        monthly_quota: Some(credits("7")),
        terms: AccountTerms {
            status: AccountStatus::Suspended,
            low_balance: Some(credits("1.5")),
            metadata: BTreeMap::from([("crm".to_owned(), "4711".to_owned())]),
        },
        ..before
    };
    assert_eq!(rig.show(&caller).record, expected);
    let refused = rig.reserve(&caller, &request(1, "1"));
    assert_eq!(refused.err(), Some(Denial::Stopped(AccountStop::Suspended)));
    // Its tier's quota, and its terms but for one name, which goes.
    let set = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: None,
        quota_pico: Some(None),
        terms: metadata(&[("crm", None)]),
    };
    act(rig, set).unwrap();
    let record = rig.show(&caller).record;
    assert_eq!((record.tier, record.monthly_quota), (Tier::Lite, None));
    assert_eq!(record.terms.low_balance, expected.terms.low_balance);
    assert!(record.terms.metadata.is_empty(), "{record:?}");
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_closed_account_keeps_its_books_and_gets_nothing_more(rig: &Rig) {
    let caller = rig.caller("10");
    rig.reserve(&caller, &request(1, "2")).unwrap().settle(debit("2"));
    let before = ApiKey::from_random("tg_", [212; 32]).digest();
    rig.run(key_create("acme", &before)).unwrap();
    status(rig, AccountStatus::Closed).unwrap();
    for again in [AccountStatus::Active, AccountStatus::Suspended] {
        assert!(matches!(status(rig, again), Err(AdminError::Invalid(_))), "{again}");
    }
    status(rig, AccountStatus::Closed).unwrap();
    let digest = ApiKey::from_random("tg_", [211; 32]).digest();
    assert!(matches!(
        rig.run(key_create("acme", &digest)),
        Err(AdminError::Conflict(_))
    ));
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Digest(before.to_hex()),
        digest: digest.to_hex(),
        overlap_ms: 0,
    };
    assert!(matches!(rig.run(rotate), Err(AdminError::Conflict(_))));
    assert!(block_on(rig.ledger.authenticate(&digest)).unwrap().is_none());
    assert!(matches!(rig.credit(&caller, "1", "late"), Err(AdminError::Conflict(_))));
    // The debit is in the store, whose balance the next answer has.
    block_on(caller.figures()).unwrap();
    let again = AdminReply::Credited {
        added: false,
        balance: credits("8"),
    };
    assert_eq!(rig.credit(&caller, "10", "first"), Ok(again), "what was paid was paid");
    let post = |kind, amount: &str| {
        rig.run(AdminOp::Credit(CreditOp::Post(CreditPost {
            kind,
            ..CreditPost::top_up("acme".parse().unwrap(), credits(amount), format!("{kind} {amount}"))
        })))
    };
    assert!(matches!(post(CreditKind::Bonus, "1"), Err(AdminError::Conflict(_))));
    post(CreditKind::Correction, "0.5").unwrap();
    post(CreditKind::Refund, "-8.5").unwrap();
    assert_eq!(rig.figures(&caller).balance, Credits::ZERO);
    assert_eq!(rig.usage(&caller, Period::All)[0].cost, credits("2"));
    assert_eq!(rig.show(&caller).record.terms.status, AccountStatus::Closed);
    audit_is_clean(&rig.ledger);
}

pub(super) fn accounts_are_given_page_by_page_and_found(rig: &Rig) {
    let names = ["Zoe", "abe", "acme", "acme-2", "b.acme", "bob", "carol@x"];
    for name in names.iter().rev() {
        let create = AdminOp::AccountCreate {
            account: name.parse().unwrap(),
            tier: Tier::Free,
            quota_pico: Some(7),
            terms: TermsChange::default(),
        };
        rig.run(create).unwrap();
    }
    let page = |after: Option<&str>, limit, search: Option<&str>| {
        let query = AccountQuery {
            after: after.map(|name| name.parse().unwrap()),
            limit,
            search: search.map(str::to_owned),
        };
        let AdminReply::AccountPage(AccountPage { accounts, next }) =
            rig.run(AdminOp::Account(AccountOp::Page(query))).unwrap()
        else {
            panic!("no page");
        };
        let ids = accounts
            .iter()
            .map(|view| view.record.id.to_string())
            .collect::<Vec<_>>();
        (ids, next.map(|next: AccountId| next.to_string()))
    };
    let told = |names: &[&str], next: Option<&str>| {
        (
            names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
            next.map(str::to_owned),
        )
    };
    assert_eq!(page(None, 100, None), told(&names, None));
    assert_eq!(page(None, 3, None), told(&names[..3], Some("acme")));
    assert_eq!(page(Some("acme"), 3, None), told(&names[3..6], Some("bob")));
    assert_eq!(page(Some("bob"), 3, None), told(&names[6..], None));
    assert_eq!(page(Some("carol@x"), 3, None), told(&[], None));
    assert_eq!(
        page(Some("acme-1"), 1, None),
        told(&["acme-2"], Some("acme-2")),
        "of a name that is none"
    );
    assert_eq!(page(None, 2, Some("ACME")), told(&["acme", "acme-2"], Some("acme-2")));
    assert_eq!(page(Some("acme-2"), 2, Some("ACME")), told(&["b.acme"], None));
    assert_eq!(page(None, 9, Some("zO")), told(&["Zoe"], None));
    assert_eq!(page(None, 9, Some("nobody*")), told(&[], None));
    assert_eq!(page(None, 0, Some("")), told(&["Zoe"], Some("Zoe")), "at least one");
    assert_eq!(page(None, ACCOUNTS_MAX + 1, None).0.len(), names.len());
    let caller = rig.caller_of("new", "2.5", LimitOverrides::default());
    let hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    assert_eq!(page(Some("carol@x"), 3, None), told(&["new"], None), "made since");
    let query = AccountQuery {
        search: Some("new".to_owned()),
        ..AccountQuery::default()
    };
    let AdminReply::AccountPage(found) = rig.run(AdminOp::Account(AccountOp::Page(query))).unwrap() else {
        panic!("no page");
    };
    let mut shown = rig.show(&caller);
    shown.keys.clear();
    assert_eq!(found.accounts, [shown]);
    hold.release();
}

pub(super) fn calls_that_are_to_end_with_their_account_do(rig: &Rig) {
    let caller = rig.caller("10");
    let call = |n, on_stop| -> Hold {
        let wanted = request(n, "1");
        let held = block_on(caller.reserve_until(&wanted, Entry::none(), on_stop));
        held.unwrap().unwrap()
    };
    let goes_on = call(1, SuspendedStreams::Finish);
    let ends: Vec<Hold> = (2..5).map(|n| call(n, SuspendedStreams::End)).collect();
    assert!(ends.iter().all(|hold| hold.uncovered().is_none()));
    status(rig, AccountStatus::Suspended).unwrap();
    let why = Some(Uncovered::Stopped(AccountStop::Suspended));
    assert!(ends.iter().all(|hold| hold.uncovered() == why));
    assert_eq!(goes_on.uncovered(), None);
    // Its key was looked up before, and its hold would be made after.
    let refused = |n| rig.reserve(&caller, &request(n, "1")).unwrap_err();
    assert_eq!(refused(5), Denial::Stopped(AccountStop::Suspended));
    let rate = block_on(caller.count_repeated(
        request_id(50),
        crate::pure::account::Scope::Account,
        request(50, "1").limits,
    ));
    assert!(matches!(rate, Ok(Ok(_))), "{rate:?}");
    for hold in ends {
        hold.settle(debit("0.5"));
    }
    status(rig, AccountStatus::Active).unwrap();
    let after = call(6, SuspendedStreams::End);
    assert_eq!(after.uncovered(), None);
    status(rig, AccountStatus::Closed).unwrap();
    assert_eq!(after.uncovered(), Some(Uncovered::Stopped(AccountStop::Closed)));
    assert_eq!(refused(7), Denial::Stopped(AccountStop::Closed));
    after.release();
    goes_on.settle(debit("1"));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("7.5"), Credits::ZERO));
    audit_is_clean(&rig.ledger);
}
