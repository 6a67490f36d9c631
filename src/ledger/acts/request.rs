//! What a command asks for, as its entry says it from the beginning: of an act whose end is not known, nothing else tells what it was.

use serde_json::{Value, json};

use super::key_id;
use super::shapes::limit_value;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost};
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::key_settings::AmountChange;
use crate::ledger::terms::TermsChange;
use crate::pure::money::Credits;

/// What is asked for, without keys, tokens and their digests. Null for a command that says nothing beside its name and its subject.
pub(super) fn request_of(op: &AdminOp) -> Value {
    let asked = match op {
        AdminOp::AccountCreate {
            tier,
            quota_pico,
            terms,
            ..
        } => {
            let asked = json!({ "tier": tier.name(), "monthly_quota": quota_pico.map(amount) });
            with_terms(asked, terms)
        }
        AdminOp::AccountSet {
            tier,
            quota_pico,
            terms,
            ..
        } => {
            let asked = named([
                ("tier", tier.map(|tier| tier.name().into())),
                ("monthly_quota", quota_pico.map(|quota| json!(quota.map(amount)))),
            ]);
            with_terms(asked, terms)
        }
        AdminOp::Account(AccountOp::Terms { change, .. }) => with_terms(json!({}), change),
        AdminOp::CreditsAdd { .. } => credit_of(op).unwrap_or_default(),
        AdminOp::Credit(CreditOp::Post(post)) => with_flags(credit_of(op).unwrap_or_default(), post),
        AdminOp::KeyCreate {
            tier,
            domains,
            expires_in_ms,
            limits,
            settings,
            ..
        } => json!({
            "tier": tier.map(|tier| tier.name()), "domains": domains, "expires_in_ms": expires_in_ms, "limits": limits,
            "label": settings.label, "limit": limit_value(settings.limit), "models": settings.models, "addresses": settings.addresses,
            "end_user_limit": limit_value(settings.end_user_limit),
        }),
        AdminOp::KeySet { change, .. } => named([
            ("label", change.label.as_deref().map(Value::from)),
            ("limit", change.limit.map(limit)),
            ("limit_reset", change.limit_reset.map(|reset| reset.name().into())),
            ("end_user_limit", change.end_user_limit.map(limit)),
            (
                "end_user_limit_reset",
                change.end_user_limit_reset.map(|reset| reset.name().into()),
            ),
            ("models", change.models.as_ref().map(|models| json!(models))),
            ("addresses", change.addresses.as_ref().map(|addresses| json!(addresses))),
        ]),
        AdminOp::KeyRotate { digest, overlap_ms, .. } => json!({ "new": key_id(digest), "overlap_ms": overlap_ms }),
        AdminOp::Operator(OperatorOp::Create {
            name,
            role,
            expires_in_ms,
            ..
        }) => json!({ "name": name, "role": role.name(), "expires_in_ms": expires_in_ms }),
        AdminOp::Maintenance { on } => json!({ "on": on }),
        _ => Value::Null,
    };
    match asked.to_string().len() {
        bytes if bytes > REQUEST_BYTES_MAX => json!({ "bytes": bytes }),
        _ => asked,
    }
}

/// What is said of an entry of credit, before it is posted and after it.
pub(super) fn credit_of(op: &AdminOp) -> Option<Value> {
    match op {
        AdminOp::CreditsAdd { amount, reference, .. } => Some(json!({
            "kind": CreditKind::TopUp.name(), "amount": amount.to_string(), "reference": reference, "note": null,
        })),
        AdminOp::Credit(CreditOp::Post(post)) => Some(json!({
            "kind": post.kind.name(), "amount": post.amount.to_string(), "reference": post.reference, "note": post.note,
        })),
        _ => None,
    }
}

/// Adds what is asked for of an account's terms.
fn with_terms(mut asked: Value, change: &TermsChange) -> Value {
    let terms = named([
        ("status", change.status.map(|status| status.name().into())),
        ("low_balance", change.low_balance_pico.map(|low| json!(low.map(amount)))),
        (
            "metadata",
            Some(json!(change.metadata)).filter(|_| !change.metadata.is_empty()),
        ),
    ]);
    if let (Some(fields), Value::Object(terms)) = (asked.as_object_mut(), terms) {
        fields.extend(terms);
    }
    asked
}

/// Adds how an entry of credit is to be posted, where that is not as most are.
fn with_flags(mut asked: Value, post: &CreditPost) -> Value {
    let flags = [
        ("allow_negative", post.allow_negative),
        ("as_available", post.as_available),
        ("is_payment", post.is_payment),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        if let Some(fields) = asked.as_object_mut() {
            fields.insert(name.to_owned(), true.into());
        }
    }
    asked
}

/// An object of what is there.
fn named<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let given = fields.into_iter();
    Value::Object(
        given
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect(),
    )
}

fn limit(change: AmountChange) -> Value {
    match change {
        AmountChange::Removed => Value::Null,
        AmountChange::To(amount) => amount.to_string().into(),
    }
}

fn amount(pico: i64) -> String {
    Credits::from_pico(pico).to_string()
}

/// The longest request that an entry takes: of a longer one it says only how long it is.
const REQUEST_BYTES_MAX: usize = 16 << 10;
