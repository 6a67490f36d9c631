//! The cases: each runs on both stores.

use futures::future::join_all;

use super::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, on_workers, request};
use crate::pure::account::{Denial, ReserveRequest, Scope};
use crate::pure::ids::{AccountId, ApiKey, KeyId, Tier};
use crate::pure::limits::{LimitOverrides, Limits};
use crate::pure::money::Credits;
use crate::pure::time::{Day, Period};
use crate::store::admin::{AdminError, AdminOp, AdminReply, KeyRef};

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        mod on_embedded {
            $(#[test] fn $name() { super::$name(&super::Rig::embedded()); })+
        }
        mod on_redis {
            $(#[test] fn $name() { super::$name(&super::Rig::redis()); })+
        }
    };
}

cases! {
    a_settlement_takes_the_cost_and_gives_the_rest_back,
    an_overrun_is_taken_whole,
    a_released_or_dropped_hold_leaves_nothing,
    what_is_held_cannot_be_held_again,
    a_denial_says_what_there_is,
    a_hold_may_shrink_to_what_there_is,
    the_quota_counts_by_the_month,
    a_call_that_costs_nothing_needs_no_credit,
    the_limits_are_exact,
    a_key_with_limits_counts_for_itself,
    tokens_are_corrected_to_what_was_used,
    a_hold_that_nobody_renews_expires_and_its_settlement_counts,
    usage_is_by_day_and_model,
    a_reference_counts_once,
    the_smallest_and_the_largest_amounts_are_exact,
    a_balance_cannot_leave_its_range,
    keys_are_listed_found_and_revoked,
    a_key_cannot_be_above_its_account,
    an_account_changes_at_once,
    names_are_taken_once,
    maintenance_is_switched,
    the_same_request_holds_once,
    of_many_callers_as_many_win_as_there_is_credit_for,
}

fn a_settlement_takes_the_cost_and_gives_the_rest_back(rig: &Rig) {
    let caller = rig.caller("10");
    let hold = rig.reserve(&caller, &request(1, "4")).unwrap();
    assert_eq!(hold.amount(), credits("4"));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("10"), credits("4")));
    hold.settle(debit("1.000000000001"));
    let figures = rig.figures(&caller);
    assert_eq!(figures.balance, credits("8.999999999999"));
    assert_eq!(figures.held, Credits::ZERO);
    assert_eq!(figures.monthly_used, credits("1.000000000001"));
    audit_is_clean(&rig.ledger);
}

fn an_overrun_is_taken_whole(rig: &Rig) {
    let caller = rig.caller("1");
    rig.reserve(&caller, &request(1, "1")).unwrap().settle(debit("2.5"));
    assert_eq!(rig.figures(&caller).balance, credits("-1.5"));
    let denial = rig.reserve(&caller, &request(2, "0.1")).unwrap_err();
    assert!(
        matches!(denial, Denial::Credit { available, .. } if available == credits("-1.5")),
        "{denial:?}"
    );
    audit_is_clean(&rig.ledger);
}

fn a_released_or_dropped_hold_leaves_nothing(rig: &Rig) {
    let caller = rig.caller("1");
    rig.reserve(&caller, &request(1, "1")).unwrap().release();
    drop(rig.reserve(&caller, &request(2, "1")).unwrap());
    let view = rig.show(&caller);
    assert_eq!((view.figures.held, view.open_holds), (Credits::ZERO, 0));
    assert!(rig.usage(&caller, Period::All).is_empty());
    audit_is_clean(&rig.ledger);
}

fn what_is_held_cannot_be_held_again(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "0.7")).unwrap();
    assert!(rig.reserve(&caller, &request(2, "0.7")).is_err());
    let other = rig.reserve(&caller, &request(3, "0.3")).unwrap();
    hold.release();
    let again = rig.reserve(&caller, &request(4, "0.7")).unwrap();
    assert_eq!(rig.figures(&caller).held, credits("1"));
    again.release();
    other.release();
}

fn a_denial_says_what_there_is(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "0.25")).unwrap();
    let denial = rig.reserve(&caller, &request(2, "0.9")).unwrap_err();
    assert!(
        matches!(denial, Denial::Credit { available, held, .. } if available == credits("0.75") && held == credits("0.25")),
        "{denial:?}"
    );
    hold.settle(debit("0.2"));
    let quota = ReserveRequest {
        quota: credits("0.5"),
        ..request(3, "0.4")
    };
    let denial = rig.reserve(&caller, &quota).unwrap_err();
    assert!(
        matches!(denial, Denial::Quota { used, held, .. } if used == credits("0.2") && held == Credits::ZERO),
        "{denial:?}"
    );
}

fn a_hold_may_shrink_to_what_there_is(rig: &Rig) {
    let caller = rig.caller("1");
    let range = |n, quota: &str, at_least: &str| ReserveRequest {
        at_least: credits(at_least),
        quota: credits(quota),
        ..request(n, "5")
    };
    let hold = rig.reserve(&caller, &range(1, "100", "0.5")).unwrap();
    assert_eq!(hold.amount(), credits("1"));
    hold.release();
    let hold = rig.reserve(&caller, &range(2, "0.300000000001", "0.3")).unwrap();
    assert_eq!(hold.amount(), credits("0.300000000001"));
    hold.release();
    assert!(rig.reserve(&caller, &range(3, "100", "1.000000000001")).is_err());
}

fn the_quota_counts_by_the_month(rig: &Rig) {
    let caller = rig.caller("100");
    let monthly = |n, wanted: &str| ReserveRequest {
        quota: credits("10"),
        expires: rig.clock.now().plus_millis(60_000),
        ..request(n, wanted)
    };
    rig.reserve(&caller, &monthly(1, "8")).unwrap().settle(debit("8"));
    let hold = rig.reserve(&caller, &monthly(2, "2")).unwrap();
    assert!(matches!(
        rig.reserve(&caller, &monthly(3, "1")),
        Err(Denial::Quota { .. })
    ));
    // Eleven days later it is December, and the hold of November has expired.
    rig.clock.advance(11 * 86_400_000);
    hold.settle(debit("3"));
    assert_eq!(rig.figures(&caller).monthly_used, credits("3"));
    let hold = rig.reserve(&caller, &monthly(4, "7")).unwrap();
    assert!(matches!(
        rig.reserve(&caller, &monthly(5, "0.1")),
        Err(Denial::Quota { .. })
    ));
    hold.settle(debit("7"));
    assert_eq!(rig.figures(&caller).monthly_used, credits("10"));
    audit_is_clean(&rig.ledger);
}

fn a_call_that_costs_nothing_needs_no_credit(rig: &Rig) {
    let caller = rig.caller("0");
    let free = ReserveRequest {
        quota: Credits::ZERO,
        ..request(1, "0")
    };
    let hold = rig.reserve(&caller, &free).unwrap();
    assert_eq!(rig.show(&caller).open_holds, 1);
    hold.settle(debit("0"));
    assert_eq!(rig.show(&caller).open_holds, 0);
    let rows = rig.usage(&caller, Period::Today);
    assert_eq!((rows.len(), rows[0].requests, rows[0].cost), (1, 1, Credits::ZERO));
    audit_is_clean(&rig.ledger);
}

fn the_limits_are_exact(rig: &Rig) {
    let caller = rig.caller("100");
    let limits = Limits {
        rpm: 3,
        tpm: 100,
        concurrency: 2,
    };
    let ask = |n, tokens| ReserveRequest {
        limits,
        tokens,
        ..request(n, "1")
    };
    let first = rig.reserve(&caller, &ask(1, 10)).unwrap();
    assert_eq!(
        (
            first.rate().remaining_requests,
            first.rate().remaining_tokens,
            first.rate().reset_ms
        ),
        (2, 90, 60_000)
    );
    let second = rig.reserve(&caller, &ask(2, 10)).unwrap();
    assert!(matches!(rig.reserve(&caller, &ask(3, 10)), Err(Denial::Concurrency(_))));
    first.release();
    rig.clock.advance(1000);
    assert!(matches!(rig.reserve(&caller, &ask(4, 91)), Err(Denial::Tokens(view)) if view.remaining_tokens == 90));
    let third = rig.reserve(&caller, &ask(5, 10)).unwrap();
    second.release();
    let denial = rig.reserve(&caller, &ask(6, 1)).unwrap_err();
    assert!(
        matches!(denial, Denial::Requests(view) if view.reset_ms == 59_000 && view.remaining_requests == 0),
        "{denial:?}"
    );
    let view = rig.ledger.rate(&caller, &Scope::Account, limits);
    assert_eq!((view.remaining_requests, view.reset_ms), (0, 59_000));
    rig.clock.advance(59_000);
    third.release();
    let again = rig.reserve(&caller, &ask(7, 1)).unwrap();
    assert_eq!(again.rate().remaining_requests, 2);
    again.release();
    audit_is_clean(&rig.ledger);
}

fn a_key_with_limits_counts_for_itself(rig: &Rig) {
    let own = LimitOverrides {
        concurrency: Some(1),
        ..LimitOverrides::default()
    };
    let shared = rig.caller("10");
    let single = rig.caller_of("acme", "0", own);
    let limits = Limits {
        rpm: 10,
        tpm: 1000,
        concurrency: 1,
    };
    let ask = |n, caller: &crate::store::Caller| ReserveRequest {
        limits,
        scope: Scope::of(&caller.key.id, &caller.key.limits),
        ..request(n, "1")
    };
    let of_account = rig.reserve(&shared, &ask(1, &shared)).unwrap();
    let of_key = rig.reserve(&single, &ask(2, &single)).unwrap();
    assert!(matches!(
        rig.reserve(&shared, &ask(3, &shared)),
        Err(Denial::Concurrency(_))
    ));
    assert!(matches!(
        rig.reserve(&single, &ask(4, &single)),
        Err(Denial::Concurrency(_))
    ));
    assert_eq!(rig.figures(&single).held, credits("2"), "both hold of one account");
    of_account.release();
    assert!(rig.reserve(&single, &ask(5, &single)).is_err());
    of_key.settle(debit("1"));
    rig.reserve(&single, &ask(6, &single)).unwrap().release();
    audit_is_clean(&rig.ledger);
}

fn tokens_are_corrected_to_what_was_used(rig: &Rig) {
    let caller = rig.caller("10");
    let limits = Limits {
        rpm: 100,
        tpm: 100,
        concurrency: 10,
    };
    let ask = |n, tokens| ReserveRequest {
        limits,
        tokens,
        ..request(n, "1")
    };
    let large = rig.reserve(&caller, &ask(1, 9000)).unwrap();
    assert_eq!(
        large.rate().remaining_tokens,
        0,
        "one large call passes through an empty window"
    );
    large.settle(debit("1"));
    let next = rig.reserve(&caller, &ask(2, 93)).unwrap();
    assert_eq!(next.rate().remaining_tokens, 0, "seven were used");
    next.release();
    assert!(
        rig.reserve(&caller, &ask(3, 93))
            .is_ok_and(|hold| hold.rate().remaining_tokens == 0)
    );
}

fn a_hold_that_nobody_renews_expires_and_its_settlement_counts(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    rig.clock.advance(59_999);
    assert!(rig.reserve(&caller, &request(2, "1")).is_err());
    rig.clock.advance(1);
    assert_eq!(rig.figures(&caller).held, Credits::ZERO);
    let later = ReserveRequest {
        expires: NOW.plus_millis(120_000),
        ..request(3, "1")
    };
    let other = rig.reserve(&caller, &later).unwrap();
    hold.settle(debit("0.75"));
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("0.25"), credits("1")));
    other.release();
    audit_is_clean(&rig.ledger);
}

fn usage_is_by_day_and_model(rig: &Rig) {
    let caller = rig.caller("10");
    let mut n = 0;
    let mut use_model = |model: &str, cost: &str| {
        n += 1;
        let asked = ReserveRequest {
            expires: rig.clock.now().plus_millis(60_000),
            ..request(n, "1")
        };
        let mut debit = debit(cost);
        debit.model = model.into();
        rig.reserve(&caller, &asked).unwrap().settle(debit);
        rig.figures(&caller);
    };
    use_model("z/late", "0.1");
    use_model("a/early", "0.2");
    rig.clock.advance(86_400_000 - 1);
    use_model("a/early", "0.3");
    rig.clock.advance(1);
    use_model("a/early", "0.000000000001");
    let today = NOW.day();
    let rows = rig.usage(&caller, Period::All);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.day, row.model.as_str(), row.requests, row.prompt_tokens, row.cost))
        .collect();
    let tomorrow = Day(today.0 + 1);
    assert_eq!(
        seen,
        [
            (today, "a/early", 2, 6, credits("0.5")),
            (today, "z/late", 1, 3, credits("0.1")),
            (tomorrow, "a/early", 1, 3, credits("0.000000000001")),
        ]
    );
    assert_eq!(rig.usage(&caller, Period::Today).len(), 1);
    rig.clock.advance(6 * 86_400_000);
    assert_eq!(rig.usage(&caller, Period::Today), []);
    assert_eq!(rig.usage(&caller, Period::Week).len(), 1);
    assert_eq!(rig.usage(&caller, Period::Month).len(), 3);
    let nobody: AccountId = "nobody".parse().unwrap();
    assert!(block_on(rig.ledger.usage(&nobody, Period::All)).is_err());
    audit_is_clean(&rig.ledger);
}

fn a_reference_counts_once(rig: &Rig) {
    let caller = rig.caller("0");
    let credited = |added, balance: &str| {
        Ok(AdminReply::Credited {
            added,
            balance: credits(balance),
        })
    };
    assert_eq!(rig.credit(&caller, "10", "A 1"), credited(true, "10"));
    assert_eq!(rig.credit(&caller, "10", "A 1"), credited(false, "10"));
    assert_eq!(
        rig.credit(&caller, "11", "A 1"),
        Err(AdminError::ReferenceConflict("A 1".to_owned()))
    );
    assert_eq!(rig.credit(&caller, "0.5", "A 2"), credited(true, "10.5"));
    assert!(matches!(rig.credit(&caller, "0", "A 3"), Err(AdminError::Invalid(_))));
    assert!(matches!(rig.credit(&caller, "1", ""), Err(AdminError::Invalid(_))));
    let nobody = AdminOp::CreditsAdd {
        account: "nobody".parse().unwrap(),
        amount: credits("1"),
        reference: "B".to_owned(),
    };
    assert!(matches!(rig.run(nobody), Err(AdminError::NoAccount(_))));
    audit_is_clean(&rig.ledger);
}

fn the_smallest_and_the_largest_amounts_are_exact(rig: &Rig) {
    let rich = rig.caller_of("rich", "9000000", LimitOverrides::default());
    let poor = rig.caller_of("poor", "0.000000000001", LimitOverrides::default());
    rig.reserve(&rich, &request(1, "8999999.999999999999"))
        .unwrap()
        .settle(debit("0.000000000001"));
    assert_eq!(rig.figures(&rich).balance, credits("8999999.999999999999"));
    let hold = rig.reserve(&rich, &request(2, "8999999.999999999999")).unwrap();
    assert!(rig.reserve(&rich, &request(3, "0.000000000001")).is_err());
    hold.settle(debit("8999999.999999999998"));
    assert_eq!(rig.figures(&rich).balance, credits("0.000000000001"));
    let hold = rig.reserve(&poor, &request(4, "0.000000000001")).unwrap();
    assert!(rig.reserve(&poor, &request(5, "0.000000000001")).is_err());
    hold.settle(debit("0.000000000001"));
    assert_eq!(rig.figures(&poor).balance, Credits::ZERO);
    audit_is_clean(&rig.ledger);
}

fn a_balance_cannot_leave_its_range(rig: &Rig) {
    let caller = rig.caller("9000000");
    let hold = rig.reserve(&caller, &request(1, "9000000")).unwrap();
    let error = rig.credit(&caller, "300000", "too much").unwrap_err();
    assert!(matches!(error, AdminError::Invalid(_)), "{error}");
    hold.release();
    assert!(rig.credit(&caller, "223372.036854775807", "to the brim").is_ok());
    assert_eq!(rig.figures(&caller).balance, Credits::MAX);
    assert!(rig.credit(&caller, "0.000000000001", "a drop more").is_err());
    audit_is_clean(&rig.ledger);
}

fn keys_are_listed_found_and_revoked(rig: &Rig) {
    rig.caller("0");
    let digest = ApiKey::from_random("tg_", [200; 32]).digest();
    assert!(block_on(rig.ledger.authenticate(&digest)).unwrap().is_none());
    rig.clock.advance(5);
    let create = AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Lite),
        domains: vec!["*.example.com".parse().unwrap()],
        expires_in_ms: Some(1000),
        limits: LimitOverrides {
            rpm: Some(7),
            ..LimitOverrides::default()
        },
    };
    let AdminReply::Key(made) = rig.run(create).unwrap() else {
        panic!("no key");
    };
    assert_eq!(made.expires, Some(NOW.plus_millis(1005)));
    let caller = block_on(rig.ledger.authenticate(&digest)).unwrap().unwrap();
    assert_eq!((&*caller.key, caller.tier()), (&made, Tier::Lite));
    let list = AdminOp::KeyList {
        account: "acme".parse().unwrap(),
    };
    let AdminReply::Keys { keys } = rig.run(list).unwrap() else {
        panic!("no keys");
    };
    assert_eq!((keys.len(), &keys[1]), (2, &made));
    let revoke = |key| rig.run(AdminOp::KeyRevoke { key });
    let AdminReply::Key(revoked) = revoke(KeyRef::Id(KeyId::of(&digest))).unwrap() else {
        panic!("no key");
    };
    assert_eq!(revoked.revoked, Some(NOW.plus_millis(5)));
    let caller = block_on(rig.ledger.authenticate(&digest)).unwrap().unwrap();
    assert!(caller.key.revoked.is_some());
    rig.clock.advance(5);
    assert_eq!(
        revoke(KeyRef::Digest(digest.to_hex())),
        Ok(AdminReply::Key(revoked)),
        "for good"
    );
    let unknown = ApiKey::from_random("tg_", [201; 32]).digest();
    assert_eq!(revoke(KeyRef::Digest(unknown.to_hex())), Err(AdminError::NoKey));
    assert_eq!(revoke(KeyRef::Id(KeyId::of(&unknown))), Err(AdminError::NoKey));
    assert_eq!(rig.show(&caller).keys.len(), 2);
}

fn a_key_cannot_be_above_its_account(rig: &Rig) {
    rig.caller("0");
    let create = |account: &str, tier, limits| {
        rig.run(AdminOp::KeyCreate {
            digest: ApiKey::from_random("tg_", [202; 32]).digest().to_hex(),
            account: account.parse().unwrap(),
            tier,
            domains: Vec::new(),
            expires_in_ms: None,
            limits,
        })
    };
    let none = LimitOverrides::default();
    assert!(matches!(
        create("acme", Some(Tier::Enterprise), none),
        Err(AdminError::Invalid(_))
    ));
    assert!(matches!(create("nobody", None, none), Err(AdminError::NoAccount(_))));
    let zero = LimitOverrides { tpm: Some(0), ..none };
    assert!(matches!(create("acme", None, zero), Err(AdminError::Invalid(_))));
}

fn an_account_changes_at_once(rig: &Rig) {
    let digest = ApiKey::from_random("tg_", [203; 32]).digest();
    rig.caller("0");
    let create = AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account: "acme".parse().unwrap(),
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits: LimitOverrides::default(),
    };
    rig.run(create).unwrap();
    let set = |tier, quota_pico| {
        rig.run(AdminOp::AccountSet {
            account: "acme".parse().unwrap(),
            tier,
            quota_pico,
        })
    };
    let record = || block_on(rig.ledger.authenticate(&digest)).unwrap().unwrap().account;
    assert_eq!((record().tier, record().monthly_quota), (Tier::Pro, None));
    set(Some(Tier::Free), Some(Some(5))).unwrap();
    assert_eq!(
        (record().tier, record().monthly_quota),
        (Tier::Free, Some(Credits::from_pico(5)))
    );
    set(None, None).unwrap();
    assert_eq!((record().tier, record().monthly_quota.is_some()), (Tier::Free, true));
    set(Some(Tier::Lite), Some(None)).unwrap();
    assert_eq!((record().tier, record().monthly_quota), (Tier::Lite, None));
    assert!(matches!(set(None, Some(Some(-1))), Err(AdminError::Invalid(_))));
}

fn names_are_taken_once(rig: &Rig) {
    let create = |name: &str, quota_pico| {
        rig.run(AdminOp::AccountCreate {
            account: name.parse().unwrap(),
            tier: Tier::Free,
            quota_pico,
        })
    };
    let AdminReply::Account(view) = create("zoe", Some(7)).unwrap() else {
        panic!("no account");
    };
    assert_eq!(
        (view.record.created, view.record.monthly_quota),
        (NOW, Some(Credits::from_pico(7)))
    );
    assert!(matches!(create("zoe", None), Err(AdminError::AccountExists(_))));
    assert!(matches!(create("abe", Some(-7)), Err(AdminError::Invalid(_))));
    create("abe", None).unwrap();
    let AdminReply::Accounts { accounts } = rig.run(AdminOp::AccountList).unwrap() else {
        panic!("no accounts");
    };
    let names: Vec<_> = accounts.iter().map(|view| view.record.id.as_str()).collect();
    assert_eq!(names, ["abe", "zoe"]);
    let show = AdminOp::AccountShow {
        account: "nobody".parse().unwrap(),
    };
    assert!(matches!(rig.run(show), Err(AdminError::NoAccount(_))));
}

fn maintenance_is_switched(rig: &Rig) {
    for on in [true, false] {
        assert_eq!(rig.run(AdminOp::Maintenance { on }), Ok(AdminReply::Maintenance { on }));
        assert_eq!(rig.ledger.in_maintenance(), on);
    }
}

fn the_same_request_holds_once(rig: &Rig) {
    let caller = rig.caller("1");
    let hold = rig.reserve(&caller, &request(1, "0.6")).unwrap();
    let again = rig.reserve(&caller, &request(1, "0.6")).unwrap();
    assert_eq!((hold.amount(), again.amount()), (credits("0.6"), credits("0.6")));
    assert_eq!(rig.show(&caller).open_holds, 1);
    again.settle(debit("0.5"));
    hold.release();
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (credits("0.5"), Credits::ZERO));
}

/// 2,000 callers want one credit each, and there are 300: exactly 300 pay, and nobody is refused while credit is free.
fn of_many_callers_as_many_win_as_there_is_credit_for(rig: &Rig) {
    const WORKERS: usize = 4;
    const CALLERS: usize = 2000;
    let caller = rig.caller("300");
    let won: usize = on_workers(WORKERS, |worker| {
        let call = async |n: usize| {
            let n = u64::try_from(worker * CALLERS + n).unwrap();
            let hold = rig.ledger.reserve(&caller, &request(n, "1")).await.unwrap();
            hold.map(|hold| hold.settle(debit("1"))).is_ok()
        };
        let all = block_on(join_all((0..CALLERS / WORKERS).map(call)));
        all.into_iter().filter(|paid| *paid).count()
    })
    .into_iter()
    .sum();
    assert_eq!(won, 300);
    let figures = rig.figures(&caller);
    assert_eq!((figures.balance, figures.held), (Credits::ZERO, Credits::ZERO));
    assert_eq!(rig.usage(&caller, Period::Today)[0].requests, 300);
    audit_is_clean(&rig.ledger);
}
