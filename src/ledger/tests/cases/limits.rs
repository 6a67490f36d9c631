//! Rate limits and usage.

use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, debit, request, request_id};
use crate::ledger::{Caller, Debit};
use crate::pure::account::{Denial, Look, ReserveRequest, Scope};
use crate::pure::ids::AccountId;
use crate::pure::limits::{LimitOverrides, Limits};
use crate::pure::money::Credits;
use crate::pure::time::{Day, Period};

pub(super) fn the_limits_are_exact(rig: &Rig) {
    let caller = rig.caller("100");
    let limits = Limits {
        rpm: 5,
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
        (4, 90, 60_000)
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
    let view = caller.rate(&Scope::Account, limits);
    assert_eq!((view.remaining_requests, view.reset_ms), (0, 59_000));
    rig.clock.advance(59_000);
    third.release();
    let again = rig.reserve(&caller, &ask(7, 1)).unwrap();
    assert_eq!(again.rate().remaining_requests, 4);
    again.release();
    // A second try whose first one counted in the window before: there are tokens in this one, and no requests.
    rig.clock.advance(60_000);
    let second_try = ReserveRequest {
        is_counted: true,
        ..ask(8, 10)
    };
    let granted = rig.reserve(&caller, &second_try).unwrap();
    let view = granted.rate();
    assert_eq!(
        (view.remaining_requests, view.remaining_tokens, view.reset_ms),
        (5, 90, 60_000)
    );
    granted.release();
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_refused_call_counts_for_the_limit_of_requests(rig: &Rig) {
    let caller = rig.caller("1");
    let limits = Limits {
        rpm: 5,
        tpm: 100,
        concurrency: 1,
    };
    let ask = |n, wanted| ReserveRequest {
        limits,
        ..request(n, wanted)
    };
    let first = rig.reserve(&caller, &ask(1, "0.1")).unwrap();
    assert!(
        matches!(rig.reserve(&caller, &ask(2, "0.1")), Err(Denial::Concurrency(rate)) if rate.remaining_requests == 3)
    );
    first.release();
    rig.figures(&caller);
    let many = ReserveRequest {
        tokens: 100,
        ..ask(3, "0.1")
    };
    let full = rig.reserve(&caller, &many).unwrap();
    assert_eq!(full.rate().remaining_requests, 2);
    full.release();
    rig.figures(&caller);
    let dear = rig.reserve(&caller, &ask(4, "2")).unwrap_err();
    assert!(
        matches!(dear, Denial::Credit { rate, .. } if rate.remaining_requests == 1),
        "{dear:?}"
    );
    let again = ReserveRequest {
        is_counted: dear.is_counted(),
        quota: credits("0.01"),
        ..ask(4, "0.1")
    };
    let quota = rig.reserve(&caller, &again).unwrap_err();
    assert!(
        matches!(quota, Denial::Quota { rate, .. } if rate.remaining_requests == 1),
        "the second try of a call is not counted: {quota:?}"
    );
    assert!(
        rig.reserve(&caller, &ask(5, "2"))
            .is_err_and(|denial| denial.is_counted())
    );
    for _ in 0..3 {
        let denial = rig.reserve(&caller, &ask(6, "0.1")).unwrap_err();
        assert!(matches!(denial, Denial::Requests(_)), "{denial:?}");
    }
    let last = ReserveRequest {
        is_counted: true,
        ..ask(5, "0.1")
    };
    rig.reserve(&caller, &last).unwrap().release();
    rig.clock.advance(60_000);
    assert_eq!(
        rig.reserve(&caller, &ask(7, "0.1")).unwrap().rate().remaining_requests,
        4
    );
}

pub(super) fn a_key_with_limits_counts_for_itself(rig: &Rig) {
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
    let ask = |n, caller: &crate::ledger::Caller| ReserveRequest {
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

pub(super) fn tokens_are_corrected_to_what_was_used(rig: &Rig) {
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

pub(super) fn usage_is_by_day_and_model(rig: &Rig) {
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
    assert!(block_on(rig.ledger.usage(&nobody, None, Period::All)).is_err());
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_keys_usage_is_its_own(rig: &Rig) {
    let callers = [rig.caller("10"), rig.caller("0"), rig.caller("0")];
    let mut n = 0;
    let mut use_model = |caller: &Caller, model: &str, cost: &str| {
        n += 1;
        let asked = ReserveRequest {
            expires: rig.clock.now().plus_millis(60_000),
            ..request(n, "1")
        };
        let debit = Debit {
            model: model.into(),
            key: caller.key.id.clone(),
            ..debit(cost)
        };
        rig.reserve(caller, &asked).unwrap().settle(debit);
        rig.figures(caller);
    };
    use_model(&callers[0], "a/one", "0.1");
    use_model(&callers[1], "a/one", "0.2");
    use_model(&callers[1], "b/two", "0.000000000001");
    rig.clock.advance(86_400_000);
    use_model(&callers[0], "a/one", "0.3");
    use_model(&callers[0], "a/one", "0.05");
    let of = |caller: &Caller, period: Period| -> Vec<_> {
        let rows = rig.usage_of_key(caller, period).into_iter();
        rows.map(|row| {
            (
                row.day.0 - NOW.day().0,
                row.model,
                row.requests,
                row.prompt_tokens,
                row.cost,
            )
        })
        .collect()
    };
    let row = |day: i64, model: &str, calls: u64, cost: &str| (day, model.to_owned(), calls, 3 * calls, credits(cost));
    assert_eq!(
        of(&callers[0], Period::All),
        [row(0, "a/one", 1, "0.1"), row(1, "a/one", 2, "0.35")]
    );
    assert_eq!(of(&callers[0], Period::Today), [row(1, "a/one", 2, "0.35")]);
    assert_eq!(
        of(&callers[1], Period::All),
        [row(0, "a/one", 1, "0.2"), row(0, "b/two", 1, "0.000000000001")]
    );
    assert_eq!(of(&callers[1], Period::Today), []);
    assert_eq!(of(&callers[2], Period::All), []);
    assert_eq!(rig.usage(&callers[0], Period::All).len(), 3);
    audit_is_clean(&rig.ledger);
}

/// Requests that are refused or repeated count as requests, and nothing else of them does.
pub(super) fn what_is_refused_or_repeated_counts_as_a_request(rig: &Rig) {
    let caller = rig.caller("1");
    let limits = Limits {
        rpm: 3,
        tpm: 100,
        concurrency: 2,
    };
    let look = Look {
        scope: Scope::Account,
        limits,
        quota: Credits::MAX,
        is_paid: true,
    };
    assert_eq!(caller.look(&look), Ok(()));
    let refused = |n| block_on(caller.count_refused(request_id(n), Scope::Account, limits));
    let repeated = |n| block_on(caller.count_repeated(request_id(n), Scope::Account, limits)).unwrap();
    let view = refused(1).unwrap();
    assert_eq!(
        (view.limits, view.remaining_requests, view.remaining_tokens),
        (limits, 2, 100)
    );
    let view = repeated(2).unwrap();
    assert_eq!(
        (view.limits, view.remaining_requests, view.remaining_tokens),
        (limits, 1, 100)
    );
    assert_eq!(caller.look(&look), Ok(()));
    assert_eq!(refused(3).unwrap().remaining_requests, 0);
    for n in 4..6 {
        let view = repeated(n).unwrap_err();
        assert_eq!((view.limits, view.remaining_requests), (limits, 0));
        assert_eq!(refused(n).unwrap().limits, limits);
        assert!(matches!(caller.look(&look), Err(Denial::Requests(view)) if view.remaining_requests == 0));
    }
    let shown = rig.show(&caller);
    assert_eq!(
        (shown.figures.balance, shown.figures.held, shown.open_holds),
        (credits("1"), Credits::ZERO, 0)
    );
    audit_is_clean(&rig.ledger);
}
