//! How the log shows things: as the operator's interface does, amounts as texts, without keys, tokens and their digests.

use serde_json::{Value, json};

use crate::ledger::KeyRecord;
use crate::ledger::admin::operators::OperatorRecord;
use crate::ledger::admin::{AccountView, AuditFinding};
use crate::pure::spend::SpendLimit;
use crate::pure::time::Timestamp;

/// An account without its keys.
pub(in crate::ledger) fn account_value(view: &AccountView) -> Value {
    let (record, figures) = (&view.record, &view.figures);
    json!({
        "name": record.id,
        "tier": record.tier.name(),
        "status": record.terms.status.name(),
        "balance": figures.balance.to_string(),
        "held": figures.held.to_string(),
        "monthly_quota": record.monthly_quota.map(|quota| quota.to_string()),
        "monthly_used": figures.monthly_used.to_string(),
        "low_balance": record.terms.low_balance.map(|low| low.to_string()),
        "metadata": record.terms.metadata,
        "created_at": record.created.to_string(),
    })
}

/// A key.
pub(in crate::ledger) fn key_value(key: &KeyRecord) -> Value {
    let settings = &key.settings;
    json!({
        "id": key.id,
        "account": key.account,
        "label": settings.label,
        "tier": key.tier.map(|tier| tier.name()),
        "domains": key.domains,
        "rpm": key.limits.rpm,
        "tpm": key.limits.tpm,
        "concurrency": key.limits.concurrency,
        "limit": limit_value(settings.limit),
        "end_user_limit": limit_value(settings.end_user_limit),
        "models": settings.models,
        "addresses": settings.addresses,
        "created_at": key.created.to_string(),
        "expires_at": text(key.expires),
        "revoked_at": text(key.revoked),
    })
}

/// A limit of what may be spent.
pub(super) fn limit_value(limit: Option<SpendLimit>) -> Option<Value> {
    limit.map(|limit| json!({ "amount": limit.amount.to_string(), "reset": limit.reset.name() }))
}

/// An operator.
pub(in crate::ledger) fn operator_value(operator: &OperatorRecord) -> Value {
    json!({
        "id": operator.id,
        "name": operator.name,
        "role": operator.role.name(),
        "created_at": operator.created.to_string(),
        "expires_at": text(operator.expires),
        "revoked_at": text(operator.revoked),
    })
}

/// What was mended.
pub(super) fn findings_value(findings: &[AuditFinding]) -> Value {
    let each = |finding: &AuditFinding| {
        json!({
            "account": finding.account,
            "rule": finding.rule,
            "found": finding.found.to_string(),
            "expected": finding.expected.to_string(),
        })
    };
    json!({ "mended": findings.iter().map(each).collect::<Vec<_>>() })
}

fn text(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}
