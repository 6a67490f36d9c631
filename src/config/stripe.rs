//! `stripe:`: the secret by which Stripe's messages of payments are known.

use std::fmt;

use serde::Deserialize;

use super::variable;
use crate::pure::stripe;

/// What messages of Stripe's need to be credited. It has no secret in its `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct StripeHook {
    /// Or why there is none: a start says so, and commands beside it need none.
    secret: Result<String, String>,
    /// Decimals of the smallest unit of the configuration's currency.
    pub decimals: u32,
    /// Whether a refund takes all of its amount, also below zero, and not the balance at most, of which what running calls hold is a part.
    pub allow_negative: bool,
}

impl StripeHook {
    /// What messages are signed with.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn secret(&self) -> Result<&[u8], &str> {
        self.secret.as_deref().map(str::as_bytes).map_err(String::as_str)
    }
}

impl fmt::Debug for StripeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripeHook").field("decimals", &self.decimals).finish()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStripe {
    secret_env: String,
    #[serde(default)]
    allow_negative: bool,
}

/// What was written, checked; `environment` gives the secret.
pub(super) fn checked(
    raw: RawStripe,
    currency: &str,
    has_listener: bool,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<StripeHook, String> {
    if !has_listener {
        return Err("stripe: there is no operator_listen that its messages could come to".to_owned());
    }
    let name = variable::checked(raw.secret_env).map_err(|error| format!("stripe.secret_env: {error}"))?;
    let secret = environment(&name).map(|secret| secret.trim().to_owned());
    let secret = match secret.filter(|secret| !secret.is_empty()) {
        None => Err(variable::not_set(&name)),
        Some(secret) if secret.len() < SECRET_BYTES_MIN => Err(format!(
            "the secret in {name} has fewer than {SECRET_BYTES_MIN} bytes: it is none of Stripe's"
        )),
        Some(secret) => Ok(secret),
    };
    let decimals = stripe::decimals(currency).map_err(|error| format!("stripe: currency: {error}"))?;
    Ok(StripeHook {
        secret,
        decimals,
        allow_negative: raw.allow_negative,
    })
}

/// Stripe's secrets are longer; one that can be guessed is worse than none.
const SECRET_BYTES_MIN: usize = 16;
