//! Messages of Stripe's that this machine's clock takes for late.

use rust_decimal::Decimal;

use super::stripe::{COMPLETED, SECRET, checkout, signature, with_hook};
use super::*;

impl Desk {
    async fn late(&self, body: &str) -> Told {
        self.hook(&signature(SECRET, self.seconds() - 301, body), body).await
    }

    fn unassigned(&self) -> Decimal {
        self.gateway.metrics().sum("tollgate_payments_unassigned_total", &[])
    }
}

/// Stripe signs each try anew, so it is this machine's clock: until it gives up nobody heard of a dispute.
#[tokio::test]
async fn a_dispute_that_is_late_for_the_clocks_sake_is_counted() {
    let desk = Desk::with(GROUNDS[0], with_hook).await;
    let body = checkout("charge.dispute.created", "paid", "pi_1", "acme", 900);
    desk.hook(&signature(SECRET, desk.seconds() - 301, &body), &body)
        .await
        .error(400, "invalid_request_error");
    let counted = desk.gateway.metrics().sum("tollgate_disputes_total", &[]);
    assert_eq!(counted, Decimal::ONE);
}

/// Whoever has an old message may send it again and again.
#[tokio::test]
async fn a_late_message_is_counted_once_and_one_whose_payment_is_credited_never() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        let account = json!({ "name": "shop", "tier": "pro" });
        desk.admin("POST", "/v1/accounts", account).await.done(201);
        let paid = checkout(COMPLETED, "paid", "pi_1", "shop", 700);
        desk.signed(&paid).await.done(200);
        desk.late(&paid).await.error(400, "invalid_request_error");
        assert_eq!(desk.unassigned(), Decimal::ZERO, "it is credited");
        let missed = checkout(COMPLETED, "paid", "pi_2", "shop", 700);
        for _ in 0..3 {
            desk.late(&missed).await.error(400, "invalid_request_error");
            assert_eq!(desk.unassigned(), Decimal::ONE, "{ground:?}");
        }
        desk.hook(&signature(SECRET, desk.seconds() - 400, &missed), &missed)
            .await
            .error(400, "invalid_request_error");
        assert_eq!(desk.unassigned(), Decimal::TWO, "Stripe signs each try anew");
        let dispute = checkout("charge.dispute.created", "paid", "pi_1", "shop", 700);
        let then = desk.seconds();
        desk.signed(&dispute).await.done(200);
        desk.gateway.clock.advance(400_000);
        desk.hook(&signature(SECRET, then, &dispute), &dispute)
            .await
            .error(400, "invalid_request_error");
        let disputes = desk.gateway.metrics().sum("tollgate_disputes_total", &[]);
        assert_eq!(disputes, Decimal::ONE, "it was told in time");
    }
}

#[tokio::test]
async fn a_late_message_of_an_address_that_fails_too_often_is_not_counted() {
    let desk = Desk::with(GROUNDS[0], |conf| {
        with_hook(conf);
        conf["auth_failures_per_minute"] = json!(1);
    })
    .await;
    for (payment, status) in [("pi_1", 400), ("pi_2", 429)] {
        let body = checkout(COMPLETED, "paid", payment, "shop", 700);
        assert_eq!(desk.late(&body).await.status, status, "{payment}");
        assert_eq!(desk.unassigned(), Decimal::ONE, "{payment}");
    }
}
