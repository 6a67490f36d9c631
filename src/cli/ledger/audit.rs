//! What `tollgate ledger audit` and `tollgate ledger repair` show.

use serde::Serialize;

use super::waiting;
use crate::cli::output::{Align, Show, Table, counted, line};
use crate::config::Config;
use crate::ledger::admin::{AuditFinding, AuditReport};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;

#[derive(Serialize)]
pub(super) struct Audit {
    balanced: bool,
    accounts: u64,
    at: String,
    findings: Vec<Finding>,
    #[serde(flatten)]
    unchecked: Unchecked,
    /// What the calls in them owe is in no book yet. This and the next two are none for a gateway elsewhere: they are not known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    journals_waiting: Option<u64>,
    /// What Redis has acknowledged stands in them, to be asked for once more; nobody has them in hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    journals_acknowledged: Option<u64>,
    /// Files with what could not be billed.
    #[serde(skip_serializing_if = "Option::is_none")]
    journals_refused: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Finding {
    account: AccountId,
    rule: String,
    expected: Credits,
    found: Credits,
}

impl Audit {
    pub(super) fn of(report: AuditReport, config: &Config) -> Audit {
        Audit {
            balanced: report.is_clean(),
            accounts: report.accounts,
            at: report.at.to_string(),
            findings: report.findings.into_iter().map(Finding::of).collect(),
            unchecked: Unchecked {
                unchecked: report.unchecked,
                why_unchecked: report.why_unchecked,
            },
            journals_waiting: waiting::waiting_of(config),
            journals_acknowledged: waiting::acknowledged_of(config),
            journals_refused: waiting::refused_of(config),
        }
    }
}

/// Accounts of which nothing is known.
#[derive(Serialize)]
struct Unchecked {
    #[serde(skip_serializing_if = "is_zero")]
    unchecked: u64,
    /// Of some of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why_unchecked: Vec<String>,
}

impl Unchecked {
    fn tell(&self, text: &mut String) {
        if self.unchecked == 0 {
            return;
        }
        line(
            text,
            format_args!("\n{} could not be checked:", counted(self.unchecked, "account")),
        );
        for why in &self.why_unchecked {
            line(text, format_args!("{why}"));
        }
        let others = self
            .unchecked
            .saturating_sub(u64::try_from(self.why_unchecked.len()).unwrap_or(u64::MAX));
        if others > 0 {
            line(text, format_args!("and {others} more"));
        }
    }

    fn problem(&self) -> Option<String> {
        (self.unchecked > 0).then(|| format!("{} could not be checked", counted(self.unchecked, "account")))
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Show for Audit {
    fn text(&self) -> String {
        let checked = format!("{} checked at {}", counted(self.accounts, "account"), self.at);
        let mut text = match self.balanced {
            true => format!("the books balance: {checked}\n"),
            false if self.findings.is_empty() => format!("{checked}\n"),
            false => format!("{checked}\n\n{}", table(&self.findings).text()),
        };
        self.unchecked.tell(&mut text);
        waiting::tell_unknown(&mut text, self.journals_waiting);
        waiting::tell_waiting(&mut text, self.journals_waiting);
        waiting::tell_acknowledged(&mut text, self.journals_acknowledged.unwrap_or(0));
        for path in self.journals_refused.iter().flatten() {
            line(
                &mut text,
                format_args!("kept aside, for it could not be billed: {path}"),
            );
        }
        text
    }

    fn problems(&self) -> Vec<String> {
        let findings = u64::try_from(self.findings.len()).unwrap_or(u64::MAX);
        let found = (findings > 0).then(|| format!("the books do not balance: {}", counted(findings, "finding")));
        found.into_iter().chain(self.unchecked.problem()).collect()
    }
}

impl Finding {
    fn of(finding: AuditFinding) -> Finding {
        Finding {
            account: finding.account,
            rule: finding.rule,
            expected: finding.expected,
            found: finding.found,
        }
    }
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&[
        ("ACCOUNT", Align::Left),
        ("RULE", Align::Left),
        ("EXPECTED", Align::Point),
        ("FOUND", Align::Point),
    ]);
    for finding in findings {
        table.row(vec![
            finding.account.to_string(),
            finding.rule.clone(),
            finding.expected.to_string(),
            finding.found.to_string(),
        ]);
    }
    table
}

#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Repaired(Vec<Finding>);

impl Repaired {
    pub(super) fn of(findings: Vec<AuditFinding>) -> Repaired {
        Repaired(findings.into_iter().map(Finding::of).collect())
    }
}

impl Show for Repaired {
    fn text(&self) -> String {
        if self.0.is_empty() {
            return "nothing had to be mended\n".to_owned();
        }
        format!("mended:\n\n{}", table(&self.0).text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::json_line;

    fn shown(report: AuditReport) -> Audit {
        Audit {
            balanced: report.is_clean(),
            accounts: report.accounts,
            at: report.at.to_string(),
            findings: report.findings.into_iter().map(Finding::of).collect(),
            unchecked: Unchecked {
                unchecked: report.unchecked,
                why_unchecked: report.why_unchecked,
            },
            journals_waiting: Some(0),
            journals_acknowledged: Some(0),
            journals_refused: None,
        }
    }

    #[test]
    fn accounts_that_could_not_be_checked_are_a_problem_and_are_named() {
        let mut report = AuditReport {
            accounts: 5,
            ..AuditReport::default()
        };
        let clean = shown(report.clone());
        assert!(
            clean
                .text()
                .starts_with("the books balance: 5 accounts checked at 1970-01-01T00:00:00Z\n")
        );
        assert!(clean.problems().is_empty());
        assert!(!json_line(&clean).unwrap().contains("unchecked"));
        for _ in 0..22 {
            report.pass_over(&"acme".parse().unwrap(), "it does not answer");
        }
        let partly = shown(report);
        let text = partly.text();
        assert!(text.starts_with("5 accounts checked at"), "{text}");
        assert!(
            text.contains("\n22 accounts could not be checked:\nacme: it does not answer\n"),
            "{text}"
        );
        assert!(text.contains("\nand 2 more\n"), "{text}");
        assert_eq!(partly.problems(), ["22 accounts could not be checked"]);
        let json = json_line(&partly).unwrap();
        assert!(json.starts_with(r#"{"balanced":false,"accounts":5,"#), "{json}");
        assert!(
            json.contains(r#""unchecked":22,"why_unchecked":["acme: it does not answer","#),
            "{json}"
        );
    }
}
