//! What every client received, and what its account may have been billed for it.

use std::collections::{BTreeMap, BTreeSet};

use rust_decimal::Decimal;
use tollgate::ledger::admin::{AdminOp, AdminReply};
use tollgate::pure::money::Credits;
use tollgate::pure::receipt::Receipt;
use tollgate::pure::time::{Day, Period};

use super::load::CREDIT;
use super::process::{Books, audit, view};
use super::upstream::{MODEL, Provider};
use crate::harness::catalogue::cost;

/// One call as its client saw it.
#[derive(Clone, Debug)]
pub struct Call {
    pub number: u64,
    pub prompt: u64,
    pub outcome: Outcome,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No answer came, and no connection perhaps.
    Unanswered,
    /// An answer that is none.
    Refused(u16),
    /// An answer that began and stopped in the middle.
    Cut { received: u64 },
    /// A stream that ended with an error event.
    Failed { received: u64 },
    /// An answer to its end.
    Whole { received: u64 },
}

/// All calls, by worker.
pub struct Record {
    name: String,
    calls: Vec<Vec<Call>>,
}

/// What an account may have spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub least: Decimal,
    pub most: Decimal,
    /// Requests of its usage.
    pub requests_least: u64,
    pub requests_most: u64,
}

impl Record {
    pub fn new(name: &str, workers: usize) -> Record {
        Record {
            name: format!("{name}-"),
            calls: vec![Vec::new(); workers],
        }
    }

    /// The name of a worker's account.
    pub fn account(&self, worker: usize) -> String {
        format!("{}{worker}", self.name)
    }

    pub fn keep(&mut self, worker: usize, calls: Vec<Call>) {
        self.calls[worker].extend(calls);
    }

    pub fn all(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().flatten()
    }

    fn range(&self, worker: usize, provider: &Provider) -> Range {
        let mut range = Range::default();
        for call in &self.calls[worker] {
            let (least, most) = bounds(call, provider);
            range.least += least;
            range.most += most;
            // A call that costs something is one request, and no call is two.
            range.requests_least += u64::from(least > Decimal::ZERO);
            range.requests_most += u64::from(most > Decimal::ZERO);
        }
        range
    }

    /// Whether every account has spent what its calls cost, and holds nothing. The first that has not, as a sentence.
    pub fn check(&self, ledger: &Books, provider: &Provider) -> Result<(), String> {
        let in_files = ledger.receipts_in_files(&self.name);
        for worker in 0..self.calls.len() {
            let name = self.account(worker);
            let figures = view(ledger, &name);
            let (spent, range) = (spent(figures.figures.balance), self.range(worker, provider));
            if figures.open_holds > 0 || figures.figures.held > Credits::ZERO {
                return Err(format!("{name} has {} open holds", figures.open_holds));
            }
            if spent < range.least || spent > range.most {
                let cut: Vec<&Call> = self.calls[worker]
                    .iter()
                    .filter(|call| bounds(call, provider).0 != bounds(call, provider).1)
                    .collect();
                let sent: Vec<_> = cut.iter().map(|call| provider.sent(call.number)).collect();
                return Err(format!(
                    "{name} spent {spent}, not {range:?}; cut: {cut:?}, sent: {sent:?}"
                ));
            }
            let requests = check_receipts(ledger, &in_files, &name, spent)?;
            if requests < range.requests_least || requests > range.requests_most {
                return Err(format!("{name} has {requests} requests of usage, not {range:?}"));
            }
        }
        let report = audit(ledger);
        if report.findings.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", report.findings))
        }
    }
}

/// Each number has one receipt, and the receipts are what the usage rows say and what was spent; so are those in the files. How many
/// requests the usage has.
fn check_receipts(ledger: &Books, in_files: &[Receipt], name: &str, spent: Decimal) -> Result<u64, String> {
    let receipts = ledger.receipts(name);
    let numbers: BTreeSet<_> = receipts.iter().map(|r| (r.billed.producer, r.billed.number)).collect();
    if numbers.len() != receipts.len() {
        return Err(format!("{name} has a number with two receipts"));
    }
    let mut sums: BTreeMap<(Day, String), [Decimal; 4]> = BTreeMap::new();
    for Receipt { resolved, billed } in &receipts {
        let sum = sums.entry((resolved.day(), billed.model.to_string())).or_default();
        let figures = [
            Decimal::ONE,
            billed.prompt_tokens.into(),
            billed.completion_tokens.into(),
            decimal(billed.cost),
        ];
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    let (account, period) = (name.parse().unwrap(), Period::All);
    let AdminReply::Usage { rows, .. } = ledger
        .run(AdminOp::Usage {
            account,
            key: None,
            period,
        })
        .unwrap()
    else {
        panic!("no usage");
    };
    let rows: BTreeMap<_, _> = rows
        .into_iter()
        .map(|row| {
            let counts = [row.requests, row.prompt_tokens, row.completion_tokens].map(Decimal::from);
            let [requests, prompt, completion] = counts;
            ((row.day, row.model), [requests, prompt, completion, decimal(row.cost)])
        })
        .collect();
    if sums != rows {
        return Err(format!("the receipts of {name} are {sums:?}, its usage {rows:?}"));
    }
    let all: Decimal = receipts.iter().map(|r| decimal(r.billed.cost)).sum();
    if all != spent {
        return Err(format!("the receipts of {name} cost {all}, it spent {spent}"));
    }
    let written: BTreeSet<_> = in_files
        .iter()
        .filter(|r| r.billed.account.as_str() == name)
        .map(|r| (r.billed.producer, r.billed.number))
        .collect();
    if written != numbers {
        let (lost, foreign): (Vec<_>, Vec<_>) = (
            numbers.difference(&written).collect(),
            written.difference(&numbers).collect(),
        );
        return Err(format!("the files lack {lost:?} of {name}, and have {foreign:?}"));
    }
    let requests: Decimal = rows.values().map(|[requests, ..]| *requests).sum();
    requests.try_into().map_err(|error| format!("{requests}: {error}"))
}

fn decimal(credits: Credits) -> Decimal {
    credits.to_string().parse().unwrap()
}

/// What has been taken from an account that began with [`CREDIT`].
fn spent(balance: Credits) -> Decimal {
    CREDIT.parse::<Decimal>().unwrap() - decimal(balance)
}

/// Between what the client had received and what the provider had sent. Nothing is owed for what the provider never saw.
fn bounds(call: &Call, provider: &Provider) -> (Decimal, Decimal) {
    let sent = provider.sent(call.number);
    let cost = |completion| cost(MODEL, call.prompt, completion);
    let most = sent.map_or(Decimal::ZERO, cost);
    match call.outcome {
        Outcome::Whole { received } => {
            assert_eq!(Some(received), sent, "{call:?}");
            (most, most)
        }
        Outcome::Cut { received: 0 } | Outcome::Failed { received: 0 } | Outcome::Unanswered => (Decimal::ZERO, most),
        Outcome::Refused(_) => (Decimal::ZERO, Decimal::ZERO),
        Outcome::Cut { received } | Outcome::Failed { received } => {
            assert!(Some(received) <= sent, "{call:?}");
            (cost(received), most)
        }
    }
}
