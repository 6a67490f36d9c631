//! What is said of an account when it is made, and what is changed of it, in the file.

use super::*;
use crate::ledger::admin::AdminReply;
use crate::ledger::terms::{AccountStatus, AccountTerms, TermsChange};

fn of_account(store: &Arc<Embedded>) -> (Tier, Option<Credits>) {
    let account = "acme".parse().unwrap();
    match store.run_blocking(AdminOp::AccountShow { account }).unwrap() {
        AdminReply::Account(view) => (view.record.tier, view.record.monthly_quota),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tier_and_a_quota_survive_a_restart_and_so_does_a_quota_that_is_gone() {
    let Rig { folder, mut store, .. } = rig();
    let set = |store: &Arc<Embedded>, tier, quota_pico| {
        let account = "acme".parse().unwrap();
        let op = AdminOp::AccountSet {
            account,
            tier,
            quota_pico,
            terms: Default::default(),
        };
        store.run_blocking(op).unwrap();
    };
    let quota = credits("7");
    for (tier, quota_pico, expected) in [
        (Some(Tier::Free), Some(Some(quota.pico())), (Tier::Free, Some(quota))),
        (None, None, (Tier::Free, Some(quota))),
        (Some(Tier::Pro), Some(None), (Tier::Pro, None)),
    ] {
        set(&store, tier, quota_pico);
        assert_eq!(of_account(&store), expected);
        drop(store);
        store = open(&folder);
        assert_eq!(of_account(&store), expected, "after a restart");
    }
}

#[test]
fn the_terms_that_an_account_is_made_with_survive_a_restart() {
    let Rig { folder, mut store, .. } = rig();
    let account: AccountId = "other".parse().unwrap();
    let create = AdminOp::AccountCreate {
        account: account.clone(),
        tier: Tier::Free,
        quota_pico: None,
        terms: TermsChange {
            status: Some(AccountStatus::Suspended),
            low_balance_pico: Some(Some(credits("5").pico())),
            metadata: [("crm".to_owned(), Some("4711".to_owned()))].into(),
        },
    };
    store.run_blocking(create).unwrap();
    drop(store);
    store = open(&folder);
    let AdminReply::Account(view) = store.run_blocking(AdminOp::AccountShow { account }).unwrap() else {
        panic!("no account");
    };
    let expected = AccountTerms {
        status: AccountStatus::Suspended,
        low_balance: Some(credits("5")),
        metadata: [("crm".to_owned(), "4711".to_owned())].into(),
    };
    assert_eq!(view.record.terms, expected);
}
