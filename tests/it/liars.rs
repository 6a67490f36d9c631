//! Providers that lie, die and ignore what they are told, and clients that leave: any mix of them takes no balance below zero, charges no
//! call more than could be held for it, and none less than the text that nobody reported.
//!
//! `TOLLGATE_LIARS` is the number of cases a store (500). A nightly run: `TOLLGATE_LIARS=10000 cargo nextest run --test it liars`.

mod cases;

use std::sync::{Arc, Mutex};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rust_decimal::Decimal;
use serde_json::json;
use tollgate::ledger::admin::{AdminOp, AdminReply, RECEIPTS_MAX, ReceiptQuery};
use tollgate::pure::money::Credits;
use tollgate::pure::time::Period;

use self::cases::{Case, MAXIMA, case, model};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::gateway::account;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// What all cases come to.
#[derive(Debug, Default)]
struct Sums {
    /// What their clients were told, who read their answers to the end.
    told: Decimal,
    /// What the balance fell by in those calls.
    taken_of_told: Decimal,
    /// What it fell by in all.
    taken: Decimal,
}

/// Checks that nothing of what must hold is broken by the case; the gateway goes on to the next.
async fn check(gateway: &mut Gateway, says: &Mutex<Reply>, number: usize, case: &Case, sums: &mut Sums) {
    *says.lock().unwrap() = case.reply();
    if case.credit > 0 {
        let credit = Decimal::new(case.credit as i64, 7);
        gateway.pay_in(&credit.to_string(), &format!("case {number}")).await;
    }
    let before = gateway.settled_balance().await;
    let (read, told) = case.run(gateway).await;
    let after = gateway.settled_balance().await;
    let charge = before - after;
    assert!(after >= Decimal::ZERO, "{after}: {case:?}");
    assert!(charge >= Decimal::ZERO, "{charge}: {case:?}");
    assert!(
        told.is_none_or(|told| told == charge),
        "{told:?} told, {charge} taken: {case:?}"
    );
    sums.taken += charge;
    if let Some(told) = told {
        sums.told += told;
        sums.taken_of_told += charge;
    }
    if let Some((max, _)) = case.max {
        let bound = cost(SMALL, case.body().len() as u64 + 256 + 16, max * case.choices);
        assert!(charge <= bound.round_dp(12), "{charge} above {bound}: {case:?}");
    }
    if case.is_unreported() {
        let admitted = case.max.map_or(read, |(max, _)| read.min(max * case.choices));
        // Without a maximum of the client's, the credit was the limit.
        let least = cost(SMALL, 0, admitted).min(before - cost(SMALL, 600, 2));
        assert!(
            charge >= least.round_dp(12),
            "{charge} below {least} for {read} words: {case:?}"
        );
    }
}

async fn nothing_is_broken_on(redis: Option<&RedisServer>) {
    let says = Arc::new(Mutex::new(Reply::status(500)));
    let upstream = Upstream::by({
        let says = Arc::clone(&says);
        move |_, _| says.lock().unwrap().clone()
    })
    .await;
    let mut setup = Setup::over(&upstream).credit("0.0005").conf(|conf| {
        conf["tiers"]["pro"] = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000, "concurrency": 1_000 });
        conf["receipts"] = json!({ "per_account_max": 1_000_000 });
    });
    let models = setup.catalogue["models"].as_array_mut().unwrap();
    let small = models.iter().find(|model| model["id"] == SMALL).unwrap().clone();
    models.extend((0..MAXIMA.len()).map(|index| {
        let mut model_of = small.clone();
        model_of["id"] = model(index).into();
        model_of["max_completion_tokens"] = MAXIMA[index].into();
        model_of
    }));
    if let Some(redis) = redis {
        setup = setup.redis(&redis.url());
    }
    let mut gateway = setup.start().await;
    let cases = std::env::var("TOLLGATE_LIARS").map_or(500, |cases| cases.parse().unwrap());
    // The same cases each time: which they are is in the code.
    let mut runner = TestRunner::deterministic();
    let mut sums = Sums::default();
    for number in 0..cases {
        let case = case().new_tree(&mut runner).unwrap().current();
        check(&mut gateway, &says, number, &case, &mut sums).await;
        gateway.clock.advance(20_000);
    }
    gateway.check_books().await;
    assert!(sums.told > Decimal::ZERO && sums.told == sums.taken_of_told, "{sums:?}");
    assert_eq!(all_receipts(&gateway).await, sums.taken, "{sums:?}");
    assert_eq!(all_debits(&gateway).await, sums.taken, "{sums:?}");
}

/// What all receipts add up to.
async fn all_receipts(gateway: &Gateway) -> Decimal {
    let mut query = ReceiptQuery::newest(&account(), RECEIPTS_MAX);
    let mut sum = Decimal::ZERO;
    loop {
        let AdminReply::Receipts(page) = gateway.run(AdminOp::Receipts(query.clone())).await else {
            panic!("no receipts");
        };
        assert_eq!(page.unreadable, 0);
        sum += page
            .receipts
            .iter()
            .map(|receipt| decimal(receipt.billed.cost))
            .sum::<Decimal>();
        match page.next {
            Some(next) => query.before = Some(next),
            None => return sum,
        }
    }
}

/// What the usage of all days and models adds up to.
async fn all_debits(gateway: &Gateway) -> Decimal {
    let usage = AdminOp::Usage {
        account: account(),
        key: None,
        period: Period::All,
    };
    let AdminReply::Usage { rows } = gateway.run(usage).await else {
        panic!("no usage");
    };
    rows.iter().map(|row| decimal(row.cost)).sum()
}

fn decimal(credits: Credits) -> Decimal {
    credits.to_string().parse().unwrap()
}

#[tokio::test]
async fn no_lie_of_a_provider_overdraws_a_balance_or_charges_beyond_what_was_held() {
    nothing_is_broken_on(None).await;
}

#[tokio::test]
async fn no_lie_of_a_provider_overdraws_a_balance_or_charges_beyond_what_was_held_on_redis() {
    nothing_is_broken_on(Some(&RedisServer::start())).await;
}
