//! What every client received, and what its account may have been billed for it.

use rust_decimal::Decimal;
use tollgate::pure::money::Credits;

use super::load::{CREDIT, account};
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
    calls: Vec<Vec<Call>>,
}

/// What an account may have spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub least: Decimal,
    pub most: Decimal,
}

impl Record {
    pub fn new(workers: usize) -> Record {
        Record {
            calls: vec![Vec::new(); workers],
        }
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
        }
        range
    }

    /// Whether every account has spent what its calls cost, and holds nothing. The first that has not, as a sentence.
    pub fn check(&self, ledger: &Books, provider: &Provider) -> Result<(), String> {
        for worker in 0..self.calls.len() {
            let name = account(worker);
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
        }
        let report = audit(ledger);
        if report.findings.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", report.findings))
        }
    }
}

/// What has been taken from an account that began with [`CREDIT`].
fn spent(balance: Credits) -> Decimal {
    CREDIT.parse::<Decimal>().unwrap() - balance.to_string().parse::<Decimal>().unwrap()
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
