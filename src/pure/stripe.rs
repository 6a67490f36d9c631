//! What Stripe tells its webhook, as values: whether a message is Stripe's, and which payment it is about.
//!
//! A message is signed with a secret that only Stripe and this gateway know: `Stripe-Signature: t=<seconds>,v1=<hexadecimal>` is the
//! HMAC-SHA256 of `<seconds>.<body>`, of which there are several while a secret is changed. One that is older than [`TOLERANCE_SECONDS`] is
//! refused, so that what somebody has recorded is of no use later.

use hmac::{Hmac, Mac};
use serde::Deserialize;
use sha2::Sha256;

use super::ids::unhex;
use super::money::Credits;
use super::time::Timestamp;

/// Why a message is not taken for Stripe's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// There is no header, or it has another form.
    #[error("the Stripe-Signature header is missing or malformed")]
    Malformed,
    /// None of its signatures is right.
    #[error("no signature of the message is right")]
    Forged,
    /// It was signed too long ago, or in the future.
    #[error("the message was signed more than {TOLERANCE_SECONDS} seconds ago, or ahead of time")]
    Late {
        /// When, in seconds since 1970.
        signed_at: i64,
    },
}

/// Checks that `body`, as it came, was signed with `secret` a moment ago. When it was, in seconds since 1970.
///
/// # Errors
/// When it was not.
pub fn verify(secret: &[u8], header: &str, body: &[u8], now: Timestamp) -> Result<i64, SignatureFault> {
    let (mut at, mut signatures) = (None, Vec::new());
    if header.len() > HEADER_BYTES_MAX {
        return Err(SignatureFault::Malformed);
    }
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", text)) if at.is_none() => at = Some(text),
            Some(("t", _)) | None => return Err(SignatureFault::Malformed),
            Some(("v1", text)) => signatures.extend(unhex::<32>(text)),
            // Schemes of other versions.
            Some(_) => {}
        }
    }
    let text = at.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let text = text.ok_or(SignatureFault::Malformed)?;
    let seconds: i64 = text.parse().map_err(|_| SignatureFault::Malformed)?;
    if signatures.is_empty() {
        return Err(SignatureFault::Malformed);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|_| SignatureFault::Forged)?;
    mac.update(text.as_bytes());
    mac.update(b".");
    mac.update(body);
    // Compared in a time that says nothing of where they differ.
    let is_signed = signatures
        .iter()
        .any(|signature| mac.clone().verify_slice(signature).is_ok());
    if !is_signed {
        return Err(SignatureFault::Forged);
    }
    let age = now.0.div_euclid(1_000).saturating_sub(seconds);
    match age.unsigned_abs() <= TOLERANCE_SECONDS {
        true => Ok(seconds),
        false => Err(SignatureFault::Late { signed_at: seconds }),
    }
}

/// What a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A checkout was paid.
    Paid(Payment),
    /// What was paid goes back, or could not go back after all. Never empty.
    Refunded {
        /// Those that the message has.
        refunds: Vec<Refund>,
        /// There are more of that charge, which it has not.
        has_more: bool,
    },
    /// Money is in dispute, or went back in a way that cannot be told apart: somebody has to look at it.
    WentBack {
        /// Of the message.
        event: String,
        /// The kind of message, such as `charge.refunded`.
        kind: String,
        /// The payment that it is about, where that is told.
        payment: Option<String>,
        /// How much is in dispute, in the currency's smallest unit, and the currency; where both are told.
        disputed: Option<(i64, String)>,
    },
    /// Nothing that is credited.
    Other {
        /// Of the message.
        event: String,
        /// The kind of message.
        kind: String,
        /// Why it is not.
        why: &'static str,
    },
}

/// A checkout that was paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Of the message.
    pub event: String,
    /// The payment intent's id: what the credit is known by.
    pub reference: String,
    /// What the checkout was given as its client's reference: the account's name, if it is ours.
    pub account: Option<String>,
    /// Three letters, as Stripe writes them.
    pub currency: String,
    /// In the currency's smallest unit; above 0.
    pub amount_minor: i64,
}

/// Money that goes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Of the message.
    pub event: String,
    /// The refund's id: what is taken for it is known by.
    pub reference: String,
    /// The id of the payment that it is of.
    pub payment: String,
    /// Three letters, as Stripe writes them.
    pub currency: String,
    /// In the currency's smallest unit; above 0.
    pub amount_minor: i64,
    /// Whether it came to nothing: the money is still there.
    pub is_void: bool,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    /// Of the events of a connected account, and of no others.
    #[serde(default)]
    account: Option<String>,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    object: serde_json::Value,
}

#[derive(Deserialize)]
struct Checkout {
    payment_status: String,
    payment_intent: Option<Intent>,
    client_reference_id: Option<String>,
    amount_total: Option<i64>,
    currency: Option<String>,
}

/// By its id, or whole.
#[derive(Deserialize)]
#[serde(untagged)]
enum Intent {
    Id(String),
    Whole { id: String },
}

#[derive(Deserialize)]
struct RefundObject {
    id: String,
    payment_intent: Option<Intent>,
    currency: String,
    amount: i64,
    status: Option<String>,
}

#[derive(Deserialize)]
struct Charge {
    payment_intent: Option<Intent>,
    #[serde(default)]
    refunds: Option<RefundList>,
}

#[derive(Deserialize)]
struct RefundList {
    data: Vec<RefundObject>,
    #[serde(default)]
    has_more: bool,
}

impl RefundObject {
    /// None where it is of no payment of its own.
    fn read(self, event: &str) -> Result<Option<Refund>, String> {
        let Some(payment) = self.payment_intent.map(Intent::id) else {
            return Ok(None);
        };
        if !is_id(&self.id) || !is_id(&payment) || self.amount <= 0 {
            return Err("a refund has an id, a payment_intent and an amount above 0".to_owned());
        }
        Ok(Some(Refund {
            event: event.to_owned(),
            reference: self.id,
            payment,
            currency: self.currency,
            amount_minor: self.amount,
            is_void: matches!(self.status.as_deref(), Some("failed" | "canceled")),
        }))
    }
}

impl Intent {
    fn id(self) -> String {
        match self {
            Intent::Id(id) | Intent::Whole { id } => id,
        }
    }
}

fn is_id(text: &str) -> bool {
    (1..=REFERENCE_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A message about a refund, or about a charge with its refunds.
fn refunded(event: String, kind: String, object: serde_json::Value) -> Result<Notice, String> {
    let mut has_more = false;
    let refunds = match kind.as_str() {
        CHARGE_REFUNDED => {
            let charge: Charge = serde_json::from_value(object).map_err(|error| error.to_string())?;
            match charge.refunds {
                // How much went back in all says not which refunds those are: each has a message of its own.
                Some(list) if !list.data.is_empty() => {
                    has_more = list.has_more;
                    list.data
                }
                _ => {
                    let payment = charge.payment_intent.map(Intent::id);
                    return Ok(Notice::WentBack {
                        event,
                        kind,
                        payment,
                        disputed: None,
                    });
                }
            }
        }
        _ => vec![serde_json::from_value(object).map_err(|error| error.to_string())?],
    };
    let read: Result<Option<Vec<Refund>>, String> = refunds.into_iter().map(|refund| refund.read(&event)).collect();
    Ok(match read? {
        Some(refunds) => Notice::Refunded { refunds, has_more },
        None => Notice::WentBack {
            event,
            kind,
            payment: None,
            disputed: None,
        },
    })
}

/// Reads a message whose signature was right.
///
/// # Errors
/// Says what cannot be read.
pub fn read(body: &[u8]) -> Result<Notice, String> {
    let Event {
        id: event,
        kind,
        account,
        data,
    } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if account.is_some() {
        // Its money is another's; and those of its tests come signed like all others.
        let why = "it is about a connected account, whose payments are not yours";
        return Ok(Notice::Other { event, kind, why });
    }
    match kind.as_str() {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {}
        CHARGE_REFUNDED | "refund.created" | "refund.updated" | "refund.failed" | "charge.refund.updated" => {
            return refunded(event, kind, data.object);
        }
        DISPUTE_CREATED => {
            let text = |field| {
                data.object
                    .get(field)
                    .and_then(serde_json::Value::as_str)
                    .map(str::to_owned)
            };
            let minor = data.object.get("amount").and_then(serde_json::Value::as_i64);
            return Ok(Notice::WentBack {
                event,
                kind,
                payment: text("payment_intent"),
                disputed: minor.zip(text("currency")),
            });
        }
        _ => {
            let why = "this kind of message is none of a payment";
            return Ok(Notice::Other { event, kind, why });
        }
    }
    let checkout: Checkout = serde_json::from_value(data.object).map_err(|error| error.to_string())?;
    if checkout.payment_status != "paid" {
        let why = "it is not paid, or not yet";
        return Ok(Notice::Other { event, kind, why });
    }
    let reference = match checkout.payment_intent {
        Some(intent) => intent.id(),
        None => {
            let why = "it has no payment of its own: a subscription's, say";
            return Ok(Notice::Other { event, kind, why });
        }
    };
    let amount_minor = checkout.amount_total.filter(|amount| *amount > 0);
    match (checkout.currency, amount_minor) {
        (Some(currency), Some(amount_minor)) if is_id(&reference) => Ok(Notice::Paid(Payment {
            event,
            reference,
            account: checkout.client_reference_id,
            currency,
            amount_minor,
        })),
        _ => Err("a checkout that is paid has a payment_intent, a currency and an amount_total above 0".to_owned()),
    }
}

/// How many decimals the smallest unit of a currency has where Stripe tells amounts.
///
/// # Errors
/// For what is no code of a currency, and for one whose amounts Stripe writes in two ways.
pub fn decimals(currency: &str) -> Result<u32, String> {
    let code = currency.to_ascii_uppercase();
    if code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(format!(
            "{currency:?} is not a currency's code of three letters, such as USD"
        ));
    }
    // <https://docs.stripe.com/currencies>; ISK and the others of its special cases are told with two decimals.
    match code.as_str() {
        "BIF" | "CLP" | "DJF" | "GNF" | "JPY" | "KMF" | "KRW" | "MGA" | "PYG" | "RWF" | "VND" | "VUV" | "XAF"
        | "XOF" | "XPF" => Ok(0),
        "BHD" | "JOD" | "KWD" | "OMR" | "TND" => Ok(3),
        "UGX" => Err("amounts in UGX are told with and without decimals: they cannot be taken".to_owned()),
        _ => Ok(2),
    }
}

/// An amount of the smallest unit of a currency with so many decimals. None beyond the range of a balance.
pub fn amount(minor: i64, decimals: u32) -> Option<Credits> {
    let unit = 10_i64.checked_pow(PICO_DECIMALS.checked_sub(decimals)?)?;
    minor.checked_mul(unit).map(Credits::from_pico)
}

/// The kind of message that says that somebody disputes a payment with their bank.
pub const DISPUTE_CREATED: &str = "charge.dispute.created";
/// How old a signature may be, and how far ahead a clock, in seconds.
pub const TOLERANCE_SECONDS: u64 = 300;
/// The longest header, in bytes: Stripe sends two signatures at most.
const HEADER_BYTES_MAX: usize = 2_048;
/// A reference of a credit entry may have 200; what says that a refund failed stands behind one of Stripe's.
const REFERENCE_BYTES_MAX: usize = 180;
const CHARGE_REFUNDED: &str = "charge.refunded";
/// A credit has 10^12 parts.
const PICO_DECIMALS: u32 = 12;

#[cfg(test)]
mod tests;
