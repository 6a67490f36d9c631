//! What is told of a message that comes too late, or too early, by this machine's clock.

use super::{actor, over};
use crate::ledger::admin::credits::CreditOp;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::AccountId;
use crate::pure::stripe::{self, Notice, Payment, Refund};
use crate::server::operator::call::Call;

/// Tells of a message that Stripe has signed, and that is not taken for the clock's sake. Stripe signs each try anew, so this machine's clock
/// may be wrong, and each is told; or somebody who has an old message sends it again: that is told once, and not if what it tells has counted.
pub(super) async fn late(call: &Call<'_>, signed_at: i64) {
    let read = stripe::read(&call.body);
    let event: &[u8] = match &read {
        Ok(notice) => event_of(notice).as_bytes(),
        Err(_) => &call.body,
    };
    if !call.api.stripe_events.is_new(event, signed_at) {
        return;
    }
    let payments = &call.api.admin.telemetry.payments;
    let what = match read {
        Ok(Notice::Paid(Payment { reference, account, .. })) => {
            let doubt = match credited(call, None, &reference).await {
                Ok(Some(_)) => return,
                Ok(None) => String::new(),
                Err(why) => format!(", unless it was before ({why})"),
            };
            payments.unassigned();
            let account = account.unwrap_or_default();
            format!("the payment {reference} for {account:?} is not credited{doubt}")
        }
        Ok(Notice::Refunded { refunds, .. }) => {
            if have_counted(call, &refunds).await {
                return;
            }
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
        "MONEY: a message that Stripe has signed is more than five minutes off this machine's clock: {what}; this machine's clock may be \
         wrong, or somebody sent an old message again"
    );
}

fn event_of(notice: &Notice) -> &str {
    match notice {
        Notice::Paid(Payment { event, .. }) | Notice::WentBack { event, .. } | Notice::Other { event, .. } => event,
        Notice::Refunded { refunds, .. } => refunds.first().map(|refund| refund.event.as_str()).unwrap_or_default(),
    }
}

/// Whether all of them stand in the ledger. One that cannot be looked up does not.
async fn have_counted(call: &Call<'_>, refunds: &[Refund]) -> bool {
    for refund in refunds {
        let Ok(Some(account)) = credited(call, None, &refund.payment).await else {
            return false;
        };
        let reference = match refund.is_void {
            true => format!("{} void", refund.reference),
            false => refund.reference.clone(),
        };
        if !matches!(credited(call, Some(account), &reference).await, Ok(Some(_))) {
            return false;
        }
    }
    true
}

/// The account that has an entry of this reference.
///
/// # Errors
/// Why the ledger does not say so.
async fn credited(call: &Call<'_>, account: Option<AccountId>, reference: &str) -> Result<Option<AccountId>, String> {
    let reference = reference.to_owned();
    let find = AdminOp::Credit(CreditOp::Find { account, reference });
    match call.run_as(actor(call), find).await {
        Ok(Ok(AdminReply::CreditFound { account, entry })) => Ok(account.filter(|_| entry.is_some())),
        Ok(Ok(_)) => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it cannot be looked up now".to_owned()),
    }
}
