//! Stripe's messages: what was paid there is credited here, once a payment.
//!
//! A message that is answered with anything but 200 is sent again for three days: so what somebody can mend meanwhile is refused, and what
//! nobody can is accepted and told in the log.

use http::HeaderName;
use serde::Serialize;

use crate::config::StripeHook;
use crate::failpoints::point;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost, Posted};
use crate::ledger::admin::operators::Actor;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::error::operator::OperatorError;
use crate::pure::error::{ApiError, KeyFault};
use crate::pure::ids::AccountId;
use crate::pure::operator::Role;
use crate::pure::stripe::{self, Notice, Payment};
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect, refused};

#[derive(Serialize)]
struct Heard {
    received: bool,
    /// Whether this message has credited something: false for one that came before, too.
    credited: bool,
}

pub(in crate::server::operator) async fn hear(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let hook = call.snapshot.config.stripe.as_ref();
    let hook = hook.ok_or_else(|| OperatorError::not_found("There is no such path: stripe is not configured."))?;
    let header = call.headers.get(SIGNATURE).and_then(|value| value.to_str().ok());
    let secret = hook.secret().map_err(|why| {
        log::error!("MONEY: Stripe's messages cannot be credited: {why}");
        OperatorError::Ledger("Stripe's messages cannot be checked right now.".to_owned())
    })?;
    let signed = stripe::verify(secret, header.unwrap_or_default(), &call.body, call.desk.clock().now());
    if let Err(fault) = signed {
        log::warn!("a message to Stripe's hook from {} is refused: {fault}", call.address);
        let most = call.snapshot.config.auth_failures_per_minute;
        return Err(match call.desk.throttle.failed(Some(call.address), most) {
            ApiError::Unauthenticated(KeyFault::Missing | KeyFault::Invalid) => {
                OperatorError::bad(format!("The message is not taken for Stripe's: {fault}."))
            }
            limited => OperatorError::Api(limited),
        });
    }
    let notice = stripe::read(&call.body);
    match notice.map_err(|error| OperatorError::bad(format!("The message cannot be read: {error}.")))? {
        Notice::Paid(payment) => credit(call, hook, payment).await,
        Notice::WentBack { event, kind, payment } => {
            let payment = payment.unwrap_or_else(|| "a payment that it does not name".to_owned());
            log::warn!(
                "MONEY: Stripe says {kind} of {payment} ({event}): nothing was taken from an account; \
                 post a refund with tollgate credits correct if it is due"
            );
            Ok(heard(false))
        }
        Notice::Other { event, kind, why } => {
            log::info!("Stripe's message {event} ({kind}) credits nothing: {why}");
            Ok(heard(false))
        }
    }
}

async fn credit(call: &Call<'_>, hook: &StripeHook, payment: Payment) -> Result<Answer, OperatorError> {
    let Payment {
        event,
        reference,
        account,
        currency,
        amount_minor,
    } = payment;
    let Some(account) = account else {
        log::error!(
            "MONEY: Stripe's payment {reference} ({event}) names no account: its checkout was made without a \
             client_reference_id, and it is credited to nobody"
        );
        return Ok(heard(false));
    };
    let Ok(account) = account.parse::<AccountId>() else {
        log::error!(
            "MONEY: Stripe's payment {reference} ({event}) has a client_reference_id that can be no account's name, and is \
             credited to nobody"
        );
        return Ok(heard(false));
    };
    let own = &call.snapshot.config.currency;
    if !currency.eq_ignore_ascii_case(own) {
        log::error!("MONEY: Stripe's payment {reference} ({event}) is in {currency:.8}, not in {own}: it is refused");
        return Err(OperatorError::Conflict(format!(
            "The payment's currency is not {own}, which accounts are in."
        )));
    }
    let amount = stripe::amount(amount_minor, hook.decimals)
        .ok_or_else(|| OperatorError::bad("The amount is beyond the range of a balance."))?;
    let op = AdminOp::Credit(CreditOp::Post(CreditPost {
        account,
        amount,
        reference,
        kind: CreditKind::TopUp,
        note: Some(format!("Stripe {event:.100}")),
        allow_negative: false,
    }));
    let actor = Actor {
        id: "stripe".to_owned(),
        name: "Stripe".to_owned(),
        role: Role::Billing,
        address: Some(call.address.to_string()),
    };
    let posted = call.run_as(actor, op).await?.map_err(|error| {
        log::error!("MONEY: Stripe's message {event} cannot be credited: {error}; Stripe sends it again");
        refused(&error)
    })?;
    point("stripe", "credited");
    let Posted { added, .. } = expect(posted, |reply| match reply {
        AdminReply::Posted(posted) => Some(posted),
        _ => None,
    })?;
    Ok(heard(added))
}

fn heard(credited: bool) -> Answer {
    let received = true;
    Answer::json(&Heard { received, credited })
}

const SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");
