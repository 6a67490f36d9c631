//! Messages of Stripe's that this machine's clock takes for late.

use super::stripe::{SECRET, checkout, signature, with_hook};
use super::*;

/// Stripe signs each try anew, so it is this machine's clock: until it gives up nobody heard of a dispute.
#[tokio::test]
async fn a_dispute_that_is_late_for_the_clocks_sake_is_counted() {
    let desk = Desk::with(GROUNDS[0], with_hook).await;
    let body = checkout("charge.dispute.created", "paid", "pi_1", "acme", 900);
    desk.hook(&signature(SECRET, desk.seconds() - 301, &body), &body)
        .await
        .error(400, "invalid_request_error");
    let counted = desk.gateway.metrics().sum("tollgate_disputes_total", &[]);
    assert_eq!(counted, rust_decimal::Decimal::ONE);
}
