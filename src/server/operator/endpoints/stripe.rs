//! Stripe's messages: what was paid there is credited here, once a payment, and what went back is taken, once a refund.
//!
//! A message that is answered with anything but 200 is sent again for three days: so what somebody can mend meanwhile is refused, and what
//! nobody can is accepted and told in the log.

mod late;

use http::HeaderName;
use serde::Serialize;

use self::late::late;
use crate::config::StripeHook;
use crate::failpoints::point;
use crate::ledger::admin::credits::{CreditEntry, CreditKind, CreditOp, CreditPost, Posted};
use crate::ledger::admin::operators::Actor;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::pure::error::operator::OperatorError;
use crate::pure::error::{ApiError, KeyFault};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::operator::Role;
use crate::pure::stripe::{self, Notice, Payment, Refund, SignatureFault};
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect, refused};
use crate::server::operator::shown::Amount;

#[derive(Serialize)]
struct Heard {
    received: bool,
    /// Whether this message has credited something: false for one that came before, too.
    credited: bool,
    /// What this message has taken for a refund.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<Amount>,
    /// What of it could not be taken, for it was spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<Amount>,
}

pub(in crate::server::operator) async fn hear(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let hook = call.snapshot.config.stripe.as_ref();
    let hook = hook.ok_or_else(|| OperatorError::not_found("There is no such path: stripe is not configured."))?;
    let header = call.headers.get(SIGNATURE).and_then(|value| value.to_str().ok());
    let secret = hook.secret().map_err(|why| {
        log::error!("MONEY: Stripe's messages cannot be credited: {why}");
        OperatorError::Ledger("Stripe's messages cannot be checked right now.".to_owned())
    })?;
    let signed = stripe::verify(secret, header.unwrap_or_default(), &call.body, call.api.clock().now());
    let signed_at = match signed {
        Ok(signed_at) => signed_at,
        Err(fault) => return Err(not_stripes(call, fault).await),
    };
    let notice = stripe::read(&call.body).map_err(|error| {
        log::error!(
            "MONEY: a message that Stripe has signed cannot be read, and nothing was credited or taken for it: {error}"
        );
        call.api.admin.telemetry.payments.unassigned();
        OperatorError::bad(format!("The message cannot be read: {error}."))
    });
    match notice? {
        Notice::Paid(payment) => credit(call, hook, payment).await,
        Notice::Refunded { refunds, has_more } => {
            if let (true, Some(Refund { event, payment, .. })) = (has_more, refunds.first()) {
                call.api.admin.telemetry.payments.refund_unassigned();
                log::error!(
                    "MONEY: Stripe's message {event} has a part of the refunds of {payment} alone: nothing is taken for the others, unless \
                     refund.created tells of them"
                );
            }
            take_back(call, hook, refunds).await
        }
        Notice::WentBack {
            event,
            kind,
            payment,
            disputed,
        } => {
            // Where somebody sends it again later, it is none that nobody heard of.
            call.api.stripe_events.is_new(event.as_bytes(), signed_at);
            if kind == stripe::DISPUTE_CREATED {
                call.api.admin.telemetry.payments.disputed();
            }
            let payment = match payment {
                Some(payment) => format!("{payment}, {},", whose(call, &payment).await),
                None => "a payment that it does not name".to_owned(),
            };
            log::warn!(
                "MONEY: Stripe says {kind}{} of {payment} ({event}), and names no refund: nothing was taken from an account; \
                 refunds are taken by refund.created and refund.updated, and what else is due by tollgate credits correct",
                over(disputed)
            );
            Ok(heard(false))
        }
        Notice::Other { event, kind, why } => {
            log::info!("Stripe's message {event} ({kind}) credits nothing: {why}");
            Ok(heard(false))
        }
    }
}

/// A message that is not taken for Stripe's.
async fn not_stripes(call: &Call<'_>, fault: SignatureFault) -> OperatorError {
    log::warn!("a message to Stripe's hook from {} is refused: {fault}", call.address);
    let most = call.snapshot.config.auth_failures_per_minute;
    match call.api.throttle.failed(Some(call.address), most) {
        ApiError::Unauthenticated(KeyFault::Missing | KeyFault::Invalid) => {
            if let SignatureFault::Late { signed_at } = fault {
                late(call, signed_at).await;
            }
            OperatorError::bad(format!("The message is not taken for Stripe's: {fault}."))
        }
        limited => OperatorError::Api(limited),
    }
}

/// Credits a payment. One that is credited to nobody, for whatever reason but the ledger's own, counts as such each time that it comes: whether
/// somebody mends it before Stripe gives it up, nobody knows.
async fn credit(call: &Call<'_>, hook: &StripeHook, payment: Payment) -> Result<Answer, OperatorError> {
    let Payment {
        event,
        reference,
        account,
        currency,
        amount_minor,
    } = payment;
    let unassigned = || call.api.admin.telemetry.payments.unassigned();
    let Some(account) = account else {
        unassigned();
        log::error!(
            "MONEY: Stripe's payment {reference} ({event}) names no account: its checkout was made without a \
             client_reference_id, and it is credited to nobody"
        );
        return Ok(heard(false));
    };
    let Ok(account) = account.parse::<AccountId>() else {
        unassigned();
        log::error!(
            "MONEY: Stripe's payment {reference} ({event}) has a client_reference_id that can be no account's name, and is \
             credited to nobody"
        );
        return Ok(heard(false));
    };
    let what = format!("payment {reference} ({event})");
    let checked = check_currency(call, &currency, &what);
    let amount = checked.and_then(|()| amount_of(hook, amount_minor, &what));
    let amount = amount.inspect_err(|_| unassigned())?;
    let post = CreditPost {
        note: Some(format!("Stripe {event:.100}")),
        is_payment: true,
        ..CreditPost::top_up(account, amount, reference)
    };
    let Posted { added, .. } = post_as_stripe(call, &what, post).await?;
    Ok(heard(added))
}

/// What refunds of one message took, and gave again.
#[derive(Default)]
struct Taken {
    taken: Credits,
    short: Credits,
    credited: bool,
}

/// Takes what went back, refund by refund. One that cannot be taken, or not yet, holds up none behind it: its message comes again, and what was
/// taken counts once.
///
/// # Errors
/// The first of them.
async fn take_back(call: &Call<'_>, hook: &StripeHook, refunds: Vec<Refund>) -> Result<Answer, OperatorError> {
    let (mut sums, mut failed) = (Taken::default(), None);
    for refund in refunds {
        if let Err(error) = take_one(call, hook, &refund, &mut sums).await {
            let is_over = matches!(error, OperatorError::Ledger(_));
            failed = failed.or(Some(error));
            // Each of the others would wait for the ledger as long.
            if is_over {
                break;
            }
        }
    }
    let Taken { taken, short, credited } = sums;
    match failed {
        Some(error) => Err(error),
        None => Ok(Answer::json(&Heard {
            received: true,
            credited,
            taken: Some(taken.into()),
            short: Some(short.into()),
        })),
    }
}

/// Takes what went back from the account that had paid it, and gives it again where it came to nothing.
///
/// It takes the balance at once, also what running calls hold of it: what is left out would be spent, or come back with the call for good. What
/// those calls cost may bring the balance below zero.
async fn take_one(call: &Call<'_>, hook: &StripeHook, refund: &Refund, sums: &mut Taken) -> Result<(), OperatorError> {
    let (event, id) = (&refund.event, &refund.reference);
    let (Some(account), Some(_)) = found(call, None, &refund.payment).await? else {
        // Nobody's money here, unless the payment's own message is still to come: then this one comes again after it.
        let payment = &refund.payment;
        call.api.admin.telemetry.payments.refund_unassigned();
        log::warn!(
            "MONEY: Stripe's refund {id} ({event}) is of {payment}, which was not credited here, or not yet: nothing is taken, and \
             Stripe sends it again for three days"
        );
        return Err(OperatorError::not_found("The payment of this refund was not credited."));
    };
    let what = format!("refund {id} ({event})");
    check_currency(call, &refund.currency, &what)?;
    let amount = amount_of(hook, refund.amount_minor, &what)?;
    if refund.is_void {
        sums.credited |= give_again(call, refund, account).await?;
        return Ok(());
    }
    let post = CreditPost {
        kind: CreditKind::Refund,
        note: Some(format!("Stripe {event:.100}: {amount} of {}", refund.payment)),
        allow_negative: hook.allow_negative,
        as_available: true,
        ..CreditPost::top_up(account.clone(), negated(amount)?, id.clone())
    };
    let Posted { added, entry, .. } = post_as_stripe(call, &what, post).await?;
    let (took, missing) = (negated(entry.amount)?, amount.saturating_add(entry.amount));
    if added {
        sums.taken = sums.taken.saturating_add(took);
        sums.short = sums.short.saturating_add(missing);
        call.api.admin.telemetry.refunds.short(missing);
    }
    if missing > Credits::ZERO {
        // Each time: whoever was to say so at first may have died.
        log::error!(
            "MONEY: of Stripe's refund {id} ({event}) {took} of {amount} was taken from {account}: {missing} is spent, and \
             is your loss unless the account pays it"
        );
    }
    Ok(())
}

/// A refund came to nothing: what was taken for it is given again. Whether this message did so.
async fn give_again(call: &Call<'_>, refund: &Refund, account: AccountId) -> Result<bool, OperatorError> {
    let Refund { event, reference, .. } = refund;
    let Some(entry) = found(call, Some(account.clone()), reference).await?.1 else {
        // Messages come in any order: what says that it is taken may still be on its way.
        let unknown = "Nothing was taken for this refund, or not yet.";
        return Err(OperatorError::not_found(unknown));
    };
    let amount = negated(entry.amount)?;
    if entry.kind != CreditKind::Refund || amount <= Credits::ZERO {
        return Ok(false);
    }
    let post = CreditPost {
        kind: CreditKind::Refund,
        note: Some(format!("Stripe {event:.100}: the refund {reference} came to nothing")),
        ..CreditPost::top_up(account, amount, format!("{reference} void"))
    };
    let what = format!("refund {reference} ({event}), which came to nothing,");
    Ok(post_as_stripe(call, &what, post).await?.added)
}

/// An entry, and whose it is.
async fn found(
    call: &Call<'_>,
    account: Option<AccountId>,
    reference: &str,
) -> Result<(Option<AccountId>, Option<CreditEntry>), OperatorError> {
    let (reference, sought) = (reference.to_owned(), reference);
    let find = AdminOp::Credit(CreditOp::Find { account, reference });
    let reply = call.run_as(actor(call), find).await?.map_err(|error| {
        log::error!("MONEY: Stripe's {sought} cannot be looked up: {error}; Stripe sends its message again");
        if matches!(error, AdminError::Invalid(_)) {
            // Several were given it by hand: a refund of it is taken from nobody.
            call.api.admin.telemetry.payments.refund_unassigned();
        }
        refused(&error)
    })?;
    let (account, entry) = expect(reply, |reply| match reply {
        AdminReply::CreditFound { account, entry } => Some((account, entry)),
        _ => None,
    })?;
    // Without an entry nothing was paid: the process that was to post it may have died.
    let account = account.filter(|_| entry.is_some());
    Ok((account, entry))
}

/// How much is in dispute, in words: it may be a part of what was paid. Nothing where that is not told.
fn over(disputed: Option<(i64, String)>) -> String {
    let read = disputed.and_then(|(minor, currency)| {
        let amount = stripe::amount(minor, stripe::decimals(&currency).ok()?)?;
        Some(format!(" over {amount} {}", currency.to_ascii_uppercase()))
    });
    read.unwrap_or_default()
}

/// What is known here of a payment, in words: for who has to look at it.
async fn whose(call: &Call<'_>, payment: &str) -> String {
    let find = AdminOp::Credit(CreditOp::Find {
        account: None,
        reference: payment.to_owned(),
    });
    match call.run_as(actor(call), find).await {
        Ok(Ok(AdminReply::CreditFound {
            account: Some(account),
            entry: Some(entry),
        })) => format!("by which {} was credited to {account}", entry.amount),
        Ok(Ok(_)) => "which was credited to nobody here".to_owned(),
        Ok(Err(error)) => format!("whose account cannot be looked up ({error})"),
        Err(_) => "whose account cannot be looked up now".to_owned(),
    }
}

async fn post_as_stripe(call: &Call<'_>, what: &str, post: CreditPost) -> Result<Posted, OperatorError> {
    let is_payment = post.is_payment;
    let op = AdminOp::Credit(CreditOp::Post(post));
    let posted = call.run_as(actor(call), op).await?.map_err(|error| {
        log::error!("MONEY: Stripe's {what} cannot be posted: {error}; Stripe sends it again");
        if is_payment && is_refusal(&error) {
            call.api.admin.telemetry.payments.unassigned();
        }
        refused(&error)
    })?;
    point("stripe", "credited");
    expect(posted, |reply| match reply {
        AdminReply::Posted(posted) => Some(posted),
        _ => None,
    })
}

/// Whether the ledger works, and does not take it: the same will be said of it until somebody has mended the reason.
fn is_refusal(error: &AdminError) -> bool {
    !matches!(
        error,
        AdminError::Store(_) | AdminError::NotConfirmed(_) | AdminError::Busy(_)
    )
}

fn actor(call: &Call<'_>) -> Actor {
    Actor {
        id: "stripe".to_owned(),
        name: "Stripe".to_owned(),
        role: Role::Billing,
        address: Some(call.address.to_string()),
    }
}

/// # Errors
/// 409 for another currency than accounts have.
fn check_currency(call: &Call<'_>, currency: &str, what: &str) -> Result<(), OperatorError> {
    let own = &call.snapshot.config.currency;
    if currency.eq_ignore_ascii_case(own) {
        return Ok(());
    }
    log::error!("MONEY: Stripe's {what} is in {currency:.8}, not in {own}: it is refused");
    Err(OperatorError::Conflict(format!(
        "The payment's currency is not {own}, which accounts are in."
    )))
}

/// # Errors
/// 400 beyond the range of a balance.
fn amount_of(hook: &StripeHook, minor: i64, what: &str) -> Result<Credits, OperatorError> {
    stripe::amount(minor, hook.decimals).ok_or_else(|| {
        log::error!("MONEY: Stripe's {what} is of an amount beyond the range of a balance: it is refused");
        out_of_range()
    })
}

fn negated(amount: Credits) -> Result<Credits, OperatorError> {
    Credits::ZERO.checked_sub(amount).ok_or_else(out_of_range)
}

fn out_of_range() -> OperatorError {
    OperatorError::bad("The amount is beyond the range of a balance.")
}

fn heard(credited: bool) -> Answer {
    Answer::json(&Heard {
        received: true,
        credited,
        taken: None,
        short: None,
    })
}

const SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");
