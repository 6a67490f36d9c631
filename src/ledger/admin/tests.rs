//! Commands as they pass over the control socket.

use super::credits::{CreditEntry, CreditKind, CreditPage, CreditPost, NOTE_BYTES_MAX, closed_to_credit};
use super::*;
use crate::ledger::terms::AccountStatus;
use crate::ledger::tests::rig::credits;
use crate::pure::time::{Day, Timestamp};

#[test]
fn a_quota_that_goes_back_to_the_tiers_is_another_than_one_that_stays() {
    for quota_pico in [None, Some(None), Some(Some(0)), Some(Some(5))] {
        let op = AdminOp::AccountSet {
            account: "acme".parse().unwrap(),
            tier: None,
            quota_pico,
            terms: Default::default(),
        };
        let text = serde_json::to_string(&op).unwrap();
        match serde_json::from_str(&text).unwrap() {
            AdminOp::AccountSet {
                quota_pico: received, ..
            } => assert_eq!(received, quota_pico, "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_bound_of_low_credit_that_is_taken_away_is_another_than_one_that_stays() {
    for low_balance_pico in [None, Some(None), Some(Some(0)), Some(Some(5))] {
        let change = TermsChange {
            low_balance_pico,
            ..TermsChange::default()
        };
        let text = serde_json::to_string(&change).unwrap();
        assert_eq!(serde_json::from_str::<TermsChange>(&text).unwrap(), change, "{text}");
    }
}

/// Earlier versions send a new account without terms, and refuse no field that they do not know.
#[test]
fn a_new_account_names_terms_only_where_it_has_some() {
    let low = TermsChange {
        low_balance_pico: Some(Some(5)),
        ..TermsChange::default()
    };
    for (terms, is_named) in [(TermsChange::default(), false), (low, true)] {
        let op = AdminOp::AccountCreate {
            account: "acme".parse().unwrap(),
            tier: Tier::Pro,
            quota_pico: None,
            terms,
        };
        let value = serde_json::to_value(&op).unwrap();
        assert_eq!(value.get("terms").is_some(), is_named, "{value}");
        assert_eq!(serde_json::from_value::<AdminOp>(value).unwrap(), op);
    }
}

#[test]
fn a_changed_account_names_terms_only_where_some_change() {
    let suspended = TermsChange {
        status: Some(AccountStatus::Suspended),
        ..TermsChange::default()
    };
    for (terms, is_named) in [(TermsChange::default(), false), (suspended, true)] {
        let op = AdminOp::AccountSet {
            account: "acme".parse().unwrap(),
            tier: Some(Tier::Pro),
            quota_pico: None,
            terms,
        };
        let value = serde_json::to_value(&op).unwrap();
        assert_eq!(value.get("terms").is_some(), is_named, "{value}");
        assert_eq!(serde_json::from_value::<AdminOp>(value).unwrap(), op);
    }
}

/// Earlier versions read no kind of error that they do not know.
#[test]
fn a_conflict_is_told_to_earlier_versions_as_they_tell_it() {
    let why = || "the account is closed".to_owned();
    let told = serde_json::to_string(&AdminError::Conflict(why())).unwrap();
    assert_eq!(told, r#"{"error":"invalid","text":"the account is closed"}"#);
    let read: AdminError = serde_json::from_str(&told).unwrap();
    assert_eq!(read, AdminError::Invalid(why()));
}

#[test]
fn usage_is_asked_for_as_earlier_versions_know_it_where_that_is_enough() {
    let query = |days, by_key| UsageQuery {
        account: "acme".parse().unwrap(),
        key: None,
        days,
        by_key,
    };
    let span = Days::Span {
        from: Day(1),
        to: Day(2),
    };
    let period = Days::Period(Period::Month);
    let is_earlier = |query: UsageQuery| match query.clone().op() {
        AdminOp::Usage { account, key, period } => {
            assert_eq!(UsageQuery::of_period(account, key, period), query);
            true
        }
        AdminOp::UsageOf(asked) => {
            assert_eq!(asked, query);
            false
        }
        other => panic!("{other:?}"),
    };
    assert!(is_earlier(query(period, false)));
    assert!(!is_earlier(query(period, true)));
    assert!(!is_earlier(query(span, false)));
}

#[test]
fn a_command_that_only_reads_writes_nothing() {
    assert!(AdminOp::Maintenance { on: true }.writes());
    assert!(!AdminOp::Audit.writes() && AdminOp::Audit.only_reads());
    assert!(!AdminOp::Repair.writes() && !AdminOp::Repair.only_reads());
}

fn post(kind: CreditKind, amount: &str) -> CreditPost {
    CreditPost {
        kind,
        ..CreditPost::top_up("acme".parse().unwrap(), credits(amount), "R".to_owned())
    }
}

#[test]
fn an_entry_of_credit_has_an_amount_and_a_note_within_bounds() {
    let smallest = "0.000000000001";
    assert_eq!(post(CreditKind::TopUp, smallest).check(), Ok(()));
    assert_eq!(post(CreditKind::Refund, "-0.000000000001").check(), Ok(()));
    for (kind, amount, why) in [
        (CreditKind::TopUp, "0", "the amount must be above 0, not 0"),
        (CreditKind::Bonus, "-1", "the amount must be above 0, not -1"),
        (CreditKind::Refund, "0", "the amount of a refund must not be 0"),
    ] {
        assert_eq!(post(kind, amount).check(), Err(why.to_owned()));
    }
    let with_note = |bytes| CreditPost {
        note: Some("a".repeat(bytes)),
        ..post(CreditKind::TopUp, "1")
    };
    assert_eq!(with_note(NOTE_BYTES_MAX).check(), Ok(()));
    assert!(with_note(NOTE_BYTES_MAX + 1).check().is_err());
}

#[test]
fn what_is_said_of_credit_that_is_refused() {
    let text = post(CreditKind::TopUp, "2.5").out_of_range();
    assert_eq!(text, "2.5 would take the balance beyond its range");
    let closed = "the account is closed: only corrections and refunds are possible";
    assert_eq!(closed_to_credit(), closed);
}

/// As earlier versions know it, which refuse no field that they do not know.
#[test]
fn a_post_names_only_what_it_asks_for() {
    for (as_available, is_payment) in [(false, false), (true, false), (false, true)] {
        let post = CreditPost {
            as_available,
            is_payment,
            ..post(CreditKind::TopUp, "1")
        };
        let value = serde_json::to_value(&post).unwrap();
        assert_eq!(value.get("as_available").is_some(), as_available);
        assert_eq!(value.get("is_payment").is_some(), is_payment);
        assert_eq!(serde_json::from_value::<CreditPost>(value).unwrap(), post);
    }
}

#[test]
fn a_page_of_credit_ends_with_its_limit() {
    let entry = |n: u32| CreditEntry {
        at: Timestamp(1),
        kind: CreditKind::TopUp,
        amount: credits("1"),
        reference: n.to_string(),
        note: None,
        balance: None,
    };
    for (found, next) in [(1, None), (2, None), (3, Some("1"))] {
        let page = CreditPage::of((0..found).map(entry).collect(), 2);
        assert_eq!(page.entries.len(), usize::try_from(found.min(2)).unwrap());
        assert_eq!(page.next.as_deref(), next, "{found}");
    }
}
