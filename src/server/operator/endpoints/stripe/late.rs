//! What is told of a message that comes too late, or too early, by this machine's clock.

use super::over;
use crate::pure::stripe::{self, Notice, Payment};
use crate::server::operator::call::Call;

/// Tells of a message that Stripe has signed, and that is not taken for the clock's sake: Stripe signs each try anew, so it is this machine's.
pub(super) fn late(call: &Call<'_>) {
    let payments = &call.api.admin.telemetry.payments;
    let what = match stripe::read(&call.body) {
        Ok(Notice::Paid(Payment { reference, account, .. })) => {
            payments.unassigned();
            let account = account.unwrap_or_default();
            format!("the payment {reference} for {account:?} is not credited")
        }
        Ok(Notice::Refunded { .. }) => {
            payments.refund_unassigned();
            "a refund is not taken".to_owned()
        }
        Ok(Notice::WentBack {
            kind,
            payment,
            disputed,
            ..
        }) => {
            if kind == stripe::DISPUTE_CREATED {
                payments.disputed();
            }
            let payment = payment.unwrap_or_else(|| "a payment that it does not name".to_owned());
            format!("it says {kind}{} of {payment}", over(disputed))
        }
        Ok(Notice::Other { .. }) => return,
        Err(error) => {
            payments.unassigned();
            format!("nothing is credited for it, and it cannot be read ({error})")
        }
    };
    log::error!(
        "MONEY: a message that Stripe has signed is more than five minutes off this machine's clock: {what}; set the clock right"
    );
}
