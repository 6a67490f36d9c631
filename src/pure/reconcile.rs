//! A provider's export held against receipts: what is missing, doubled, different or not listed.
//!
//! The rows come first, then the receipts, in any order; what is kept is bounded by [`ROWS_MAX`], however many receipts there are.

mod finding;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub use self::finding::{Finding, ReceiptName, Tokens};
use super::receipt::Receipt;
use super::time::Timestamp;
use super::usage::{CompletionTokens, PromptTokens, Usage};

/// A call as an export lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRow {
    /// The answer's own id, or the request's.
    pub id: String,
    /// Its tokens.
    pub usage: Usage,
    /// Where the row begins in the export, from 1.
    pub line: u64,
}

/// Which receipts the export is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Whose export it is. Receipts that say another provider are not looked at.
    pub provider: Option<String>,
    /// What time it covers. With a provider, its receipts of that time are looked for in the export.
    pub window: Option<Window>,
}

/// A time from the first moment to before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment in it.
    pub from: Timestamp,
    /// The first moment behind it.
    pub to: Timestamp,
}

/// An export whose rows are read, while the receipts come.
#[derive(Debug)]
pub struct Reconciliation {
    scope: Scope,
    calls: HashMap<Box<str>, Call>,
    rows: u64,
    /// The first line of an id, and one where it stands again.
    again: Vec<(u64, u64)>,
    /// The first line of an id, and a receipt after its first one.
    others: Vec<(u64, ReceiptName)>,
    findings: Vec<Finding>,
    receipts: u64,
    unnamed: u64,
    oldest: Option<Timestamp>,
    unlisted: u64,
}

/// What the rows with one id say, and the receipts that it names.
#[derive(Debug)]
struct Call {
    line: u64,
    usage: Usage,
    receipts: u64,
    first: Option<ReceiptName>,
    /// Whether there are more rows or receipts with the id.
    is_doubled: bool,
    /// Whether its first row and its first receipt are all there is, and agree.
    agrees: bool,
}

/// An export has more rows than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {ROWS_MAX} rows: hold the export against the receipts in parts, such as a day each")]
pub struct TooManyRows;

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// Rows of the export.
    pub rows: u64,
    /// Receipts that were looked at.
    pub receipts: u64,
    /// Those of them that do not know their answer's own id: its gateway ended before the call did. They may be what is missing.
    pub unnamed: u64,
    /// When the oldest of them was resolved.
    pub oldest: Option<Timestamp>,
    /// Rows that agree with the one receipt that they name.
    pub matched: u64,
    /// Calls without a receipt.
    pub missing: u64,
    /// Calls that are listed more than once, or have several receipts.
    pub doubled: u64,
    /// Calls with other tokens.
    pub different: u64,
    /// Receipts that the export does not list; none when they were not looked for.
    pub unlisted: Option<u64>,
    /// In the order of the export's lines, then what it does not list, of which at most [`UNLISTED_MAX`] are here.
    pub findings: Vec<Finding>,
}

impl Reconciliation {
    /// Begins with an export of no rows.
    pub fn new(scope: Scope) -> Reconciliation {
        Reconciliation {
            scope,
            calls: HashMap::new(),
            rows: 0,
            again: Vec::new(),
            others: Vec::new(),
            findings: Vec::new(),
            receipts: 0,
            unnamed: 0,
            oldest: None,
            unlisted: 0,
        }
    }

    /// Adds a row of the export. All rows come before the first receipt.
    ///
    /// # Errors
    /// When there are more than [`ROWS_MAX`].
    pub fn row(&mut self, row: ExportRow) -> Result<(), TooManyRows> {
        if self.rows >= ROWS_MAX {
            return Err(TooManyRows);
        }
        self.rows = self.rows.saturating_add(1);
        match self.calls.entry(row.id.into_boxed_str()) {
            Entry::Vacant(entry) => {
                entry.insert(Call {
                    line: row.line,
                    usage: row.usage,
                    receipts: 0,
                    first: None,
                    is_doubled: false,
                    agrees: false,
                });
            }
            Entry::Occupied(mut entry) => {
                let call = entry.get_mut();
                call.is_doubled = true;
                self.again.push((call.line, row.line));
            }
        }
        Ok(())
    }

    /// How many rows the export has so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Looks for a receipt among the rows.
    pub fn receipt(&mut self, receipt: &Receipt) {
        let facts = &receipt.billed.call;
        let provider = (self.scope.provider.as_deref(), facts.provider.as_deref());
        if let (Some(wanted), Some(other)) = provider
            && wanted != other
        {
            return;
        }
        self.receipts = self.receipts.saturating_add(1);
        self.unnamed = self.unnamed.saturating_add(u64::from(facts.upstream_id.is_none()));
        self.oldest = Some(
            self.oldest
                .map_or(receipt.resolved, |oldest| oldest.min(receipt.resolved)),
        );
        let request = receipt.billed.id.to_string();
        let by_answer = facts.upstream_id.as_deref().filter(|id| *id != request);
        let is_named = [by_answer, Some(request.as_str())].map(|id| id.is_some_and(|id| self.names(id, receipt)));
        match (is_named, by_answer) {
            ([true, true], Some(answer)) => self.named_twice([answer, &request], receipt),
            ([false, false], _) if self.is_expected(receipt) => self.not_listed(receipt),
            _ => {}
        }
    }

    /// Whether a row has this id of a receipt, which is held against it.
    fn names(&mut self, id: &str, receipt: &Receipt) -> bool {
        let Some(call) = self.calls.get_mut(id) else {
            return false;
        };
        call.receipts = call.receipts.saturating_add(1);
        if call.first.is_some() {
            call.is_doubled = true;
            if call.receipts <= NAMED_MAX {
                self.others.push((call.line, ReceiptName::of(receipt)));
            }
            return true;
        }
        call.first = Some(ReceiptName::of(receipt));
        let found = figures(receipt);
        call.agrees = found == call.usage;
        if !call.agrees {
            self.findings.push(Finding::Different {
                id: id.to_owned(),
                line: call.line,
                export: call.usage.into(),
                receipt: found.into(),
                name: ReceiptName::of(receipt),
            });
        }
        true
    }

    /// The export lists a call by the answer's id and by the request's.
    fn named_twice(&mut self, ids: [&str; 2], receipt: &Receipt) {
        let mut lines = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(call) = self.calls.get_mut(id) {
                call.agrees = false;
                lines.push(call.line);
            }
        }
        lines.sort_unstable();
        self.findings.push(Finding::Doubled {
            ids: ids.map(str::to_owned).into(),
            lines,
            receipts: 1,
            named: vec![ReceiptName::of(receipt)],
        });
    }

    /// Whether an export of this provider and time has the call: one that lies across an edge is nobody's to say.
    fn is_expected(&self, receipt: &Receipt) -> bool {
        let (Some(provider), Some(window)) = (self.scope.provider.as_deref(), self.scope.window) else {
            return false;
        };
        let facts = &receipt.billed.call;
        let begun = facts.created.unwrap_or(receipt.resolved);
        let ended = facts.ended.unwrap_or(receipt.resolved);
        facts.provider.as_deref() == Some(provider) && window.from <= begun && ended < window.to
    }

    fn not_listed(&mut self, receipt: &Receipt) {
        self.unlisted = self.unlisted.saturating_add(1);
        if self.unlisted <= UNLISTED_MAX {
            self.findings.push(Finding::Unlisted {
                id: receipt.billed.call.upstream_id.clone(),
                receipt: figures(receipt).into(),
                name: ReceiptName::of(receipt),
            });
        }
    }

    /// What came out, when there are no more receipts.
    pub fn finish(mut self) -> Reconciled {
        let looked_for = self.scope.provider.is_some() && self.scope.window.is_some();
        let mut doubled: HashMap<u64, (Vec<u64>, Vec<ReceiptName>)> = HashMap::new();
        for (first, line) in self.again {
            doubled.entry(first).or_default().0.push(line);
        }
        for (first, name) in self.others {
            doubled.entry(first).or_default().1.push(name);
        }
        let mut matched = 0u64;
        for (id, call) in self.calls {
            let id = id.into_string();
            if call.agrees && !call.is_doubled {
                matched = matched.saturating_add(1);
            }
            if call.receipts == 0 {
                self.findings.push(Finding::Missing {
                    id: id.clone(),
                    line: call.line,
                    export: call.usage.into(),
                });
            }
            if call.is_doubled {
                let (more, others) = doubled.remove(&call.line).unwrap_or_default();
                self.findings.push(Finding::Doubled {
                    ids: vec![id],
                    lines: [vec![call.line], more].concat(),
                    receipts: call.receipts,
                    named: call.first.into_iter().chain(others).collect(),
                });
            }
        }
        self.findings.sort_by_key(Finding::place);
        let count = |is: fn(&Finding) -> bool| {
            u64::try_from(self.findings.iter().filter(|finding| is(finding)).count()).unwrap_or(u64::MAX)
        };
        Reconciled {
            rows: self.rows,
            receipts: self.receipts,
            unnamed: self.unnamed,
            oldest: self.oldest,
            matched,
            missing: count(|finding| matches!(finding, Finding::Missing { .. })),
            doubled: count(|finding| matches!(finding, Finding::Doubled { .. })),
            different: count(|finding| matches!(finding, Finding::Different { .. })),
            unlisted: looked_for.then_some(self.unlisted),
            findings: self.findings,
        }
    }
}

/// The figures of a receipt that its provider's export should have.
fn figures(receipt: &Receipt) -> Usage {
    let facts = &receipt.billed.call;
    let prompt = facts.reported_prompt_tokens.unwrap_or(receipt.billed.prompt_tokens);
    let completion = facts.reported_completion_tokens;
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion.unwrap_or(receipt.billed.completion_tokens)),
    }
}

/// The most rows of an export.
pub const ROWS_MAX: u64 = 2_000_000;
/// The most receipts that an export lacks and that are named; all are counted.
pub const UNLISTED_MAX: u64 = 100_000;
/// The most receipts that are named of those that have one id; all are counted.
const NAMED_MAX: u64 = 10;

#[cfg(test)]
mod tests;
