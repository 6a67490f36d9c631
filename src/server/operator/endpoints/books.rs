//! Whether the books balance.

use std::num::NonZeroU64;

use serde::Serialize;

use crate::ledger::admin::{AdminOp, AdminReply, AuditFinding};
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::AccountId;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::{Call, expect};
use crate::server::operator::shown::Amount;

#[derive(Serialize)]
struct AuditShown {
    balanced: bool,
    accounts: u64,
    at: String,
    findings: Vec<FindingShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unchecked: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why_unchecked: Vec<String>,
}

#[derive(Serialize)]
struct FindingShown {
    account: AccountId,
    rule: String,
    expected: Amount,
    found: Amount,
}

impl From<AuditFinding> for FindingShown {
    fn from(finding: AuditFinding) -> FindingShown {
        FindingShown {
            account: finding.account,
            rule: finding.rule,
            expected: finding.expected.into(),
            found: finding.found.into(),
        }
    }
}

pub(in crate::server::operator) async fn audit(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let report = expect(call.run(AdminOp::Audit).await?, |reply| match reply {
        AdminReply::Audit(report) => Some(report),
        _ => None,
    })?;
    Ok(Answer::json(&AuditShown {
        balanced: report.is_clean(),
        accounts: report.accounts,
        at: report.at.to_string(),
        findings: report.findings.into_iter().map(FindingShown::from).collect(),
        unchecked: NonZeroU64::new(report.unchecked),
        why_unchecked: report.why_unchecked,
    }))
}

#[derive(Serialize)]
struct Repaired {
    /// Counters as they were found, and as their entries say.
    mended: Vec<FindingShown>,
}

pub(in crate::server::operator) async fn repair(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let findings = expect(call.run(AdminOp::Repair).await?, |reply| match reply {
        AdminReply::Repaired { findings } => Some(findings),
        _ => None,
    })?;
    Ok(Answer::json(&Repaired {
        mended: findings.into_iter().map(FindingShown::from).collect(),
    }))
}
