//! Payments by Stripe that are credited to nobody: each is counted, for whatever reason, and no other. And whose those are that are disputed.

use rust_decimal::Decimal;
use serde_json::json;

use super::stripe::{COMPLETED, SECRET, checkout, listens, prepared, send, signature, with_hook, words};
use super::{Desk, GROUNDS};
use crate::harness::Upstream;

#[tokio::test]
async fn a_payment_that_is_refused_is_counted_each_time_and_one_that_is_credited_never() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        let paid = |payment: &str, account: &str, cents: i64| checkout(COMPLETED, "paid", payment, account, cents);
        let counted = || desk.gateway.metrics().sum("tollgate_payments_unassigned_total", &[]);
        let early = paid("pi_1", "shop", 700);
        for times in 1..=2 {
            desk.signed(&early).await.error(404, "not_found_error");
            assert_eq!(counted(), Decimal::from(times), "no account");
        }
        for name in ["shop", "other"] {
            let account = json!({ "name": name, "tier": "pro" });
            desk.admin("POST", "/v1/accounts", account).await.done(201);
        }
        for is_credited in [true, false] {
            assert_eq!(desk.signed(&early).await.done(200)["credited"], is_credited);
            assert_eq!(counted(), Decimal::from(2), "it is credited");
        }
        let euros = paid("pi_2", "shop", 700).replace("\"usd\"", "\"eur\"");
        for (body, status, why) in [
            (euros, 409, "another currency"),
            (paid("pi_1", "shop", 701), 409, "another amount"),
            (paid("pi_1", "other", 700), 409, "another's"),
            (paid("pi_3", "shop", i64::MAX), 400, "out of range"),
            // Beside what it has.
            (paid("pi_4", "shop", 922_337_203), 400, "out of range with the balance"),
        ] {
            let before = counted();
            assert_eq!(desk.signed(&body).await.status, status, "{why}");
            assert_eq!(counted(), before + Decimal::ONE, "{why} {ground:?}");
        }
        let unreadable = paid("pi_6", "shop", 700).replace("\"amount_total\"", "\"amount\"");
        let before = counted();
        desk.signed(&unreadable).await.error(400, "invalid_request_error");
        assert_eq!(counted(), before + Decimal::ONE, "it cannot be read");
        // Either clock may be wrong: a message that nobody signed says nothing.
        for (payment, secret, off_seconds, is_counted) in [
            ("pi_7", SECRET, -400, true),
            ("pi_8", SECRET, 400, true),
            ("pi_9", "another", 0, false),
        ] {
            let fresh = paid(payment, "shop", 700);
            let before = counted();
            let signature = signature(secret, desk.seconds() + off_seconds, &fresh);
            desk.hook(&signature, &fresh).await.error(400, "invalid_request_error");
            assert_eq!(
                counted(),
                before + Decimal::from(u8::from(is_counted)),
                "{off_seconds} {ground:?}"
            );
        }
        let before = counted();
        let closed = json!({ "status": "closed" });
        desk.admin("PATCH", "/v1/accounts/shop", closed).await.done(200);
        let late = desk.signed(&paid("pi_5", "shop", 700)).await;
        assert_eq!(late.status, 409, "{late:?}");
        assert_eq!(counted(), before + Decimal::ONE, "a closed account");
        // It was credited before.
        assert_eq!(desk.signed(&early).await.done(200)["credited"], false);
        assert_eq!(counted(), before + Decimal::ONE);
        assert_eq!(desk.balance("shop").await, "7");
    }
}

/// Whoever is told of a dispute looks for the account that is to be suspended.
#[tokio::test]
async fn a_dispute_is_told_with_the_account_that_was_credited() {
    let upstream = Upstream::unused().await;
    let (mut process, port) = prepared(&upstream, None);
    let conf = process.path("tollgate.yaml");
    process.start_with(&words(&conf, "")).await;
    listens(port).await;
    let message = |kind: &str, payment: &str| checkout(kind, "paid", payment, "acme", 1234);
    assert_eq!(send(port, &message(COMPLETED, "pi_1")).await.unwrap()["credited"], true);
    for (payment, whose, amount, over) in [
        ("pi_1", "by which 12.34 was credited to acme", json!(500), " over 5 USD"),
        ("pi_2", "which was credited to nobody here", json!(null), ""),
    ] {
        let dispute = json!({ "id": "dp_1", "object": "dispute", "payment_intent": payment, "amount": amount, "currency": "usd" });
        let kind = "charge.dispute.created";
        let message = json!({ "id": format!("evt_{payment}"), "type": kind, "data": { "object": dispute } });
        send(port, &message.to_string()).await.unwrap();
        let log = std::fs::read_to_string(process.path("log")).unwrap();
        let told = format!("MONEY: Stripe says charge.dispute.created{over} of {payment}, {whose}, (");
        assert!(log.contains(&told), "{log}");
    }
}
