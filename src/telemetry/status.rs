//! The gateway's state as one JSON object, for the status page and `tollgate top`. Amounts keep all their digits.

mod alarms;
mod losses;

use self::alarms::alarms;
use self::losses::Losses;
use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::counters::{Figures, TargetFigures};
use super::exposition::Gauges;
use super::record::{Outcome, TargetName};
use crate::pure::credit_sum::CreditSum;
use crate::pure::histogram::Histogram;
use crate::pure::money::Credits;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    at_ms: i64,
    uptime_ms: i64,
    listen: String,
    currency: String,
    ready: bool,
    maintenance: bool,
    in_flight: usize,
    totals: Totals,
    /// By model and provider, the dearest first.
    targets: Vec<TargetLine>,
    providers: Vec<ProviderLine>,
    denials: BTreeMap<&'static str, u64>,
    ledger: LedgerLine,
    catalogue: CatalogueLine,
    /// What somebody should look at, a sentence each.
    alarms: Vec<String>,
    series: Vec<Sample>,
}

/// What identifies the process, for [`Status::of`].
#[derive(Clone, Debug)]
pub struct Process {
    /// When it is, in milliseconds since 1970.
    pub at_ms: i64,
    /// How long it has run, in milliseconds.
    pub uptime_ms: i64,
    /// Where callers connect.
    pub listen: String,
    /// What one credit is.
    pub currency: String,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests that are over.
    pub requests: u64,
    /// Those that the gateway refused.
    pub denials: u64,
    /// Those that were answered with 500 or more or not at all, or whose answer was ended by the ledger or by a provider that failed and was not
    /// busy.
    pub errors: u64,
    /// Calls that were billed.
    pub debits: u64,
    /// Tokens that were billed.
    pub prompt_tokens: u64,
    /// Tokens that were billed.
    pub completion_tokens: u64,
    /// What they cost.
    pub cost: CreditSum,
}

/// The state at a moment of the past.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Sums since the start, then.
    pub totals: Totals,
    /// Requests under way.
    pub in_flight: usize,
    /// Open holds.
    pub holds: u64,
    /// What they held.
    pub held: Credits,
    /// Age of the oldest unsettled debit, in milliseconds.
    pub lag_ms: u64,
    /// Sum and number of the times to the first event, since the start.
    pub first_event_ms: (u64, u64),
    /// Targets that were passed over.
    pub breakers_open: usize,
    /// What was lost since the start, then.
    #[serde(skip)]
    losses: Losses,
}

#[derive(Debug, Serialize)]
struct TargetLine {
    model: String,
    provider: String,
    live: i64,
    requests: u64,
    errors: u64,
    debits: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost: CreditSum,
    #[serde(flatten)]
    times: Times,
}

#[derive(Debug, Default, Serialize)]
struct Times {
    first_events: u64,
    first_event_sum_ms: u64,
    first_event_p50_ms: Option<u64>,
    first_event_p95_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ProviderLine {
    provider: String,
    live: i64,
    requests: u64,
    /// Attempts that failed; not answers that are only doubted, or served by a tier without prices.
    faults: u64,
    breakers: usize,
    breakers_open: usize,
    #[serde(flatten)]
    times: Times,
}

#[derive(Debug, Serialize)]
struct LedgerLine {
    kind: &'static str,
    /// Another process has it and does not serve yet: the gateway is not ready, and does not stop.
    away: bool,
    holds_open: u64,
    held: Credits,
    unsettled: u64,
    lag_ms: u64,
    journal_depth: usize,
    journal_age_secs: i64,
    below_zero: Option<u64>,
    /// Null too where no audit has succeeded yet.
    audit_findings: Option<u64>,
    /// Accounts that the last audit could not check: whether the books balance is not known where there are any.
    audit_unchecked: Option<u64>,
    /// Of the last audit that succeeded, or of the process; null where the books are not audited.
    audit_age_secs: Option<i64>,
    overruns: u64,
}

#[derive(Debug, Serialize)]
struct CatalogueLine {
    models: usize,
    age_secs: Option<i64>,
    reload_refused: bool,
}

/// The last samples.
#[derive(Debug, Default)]
pub struct Series(VecDeque<Sample>);

impl Series {
    /// Adds a sample, and forgets what is older than the page shows.
    pub fn push(&mut self, sample: Sample) {
        self.0.push_back(sample);
        if self.0.len() > SAMPLES_MAX {
            self.0.pop_front();
        }
    }

    /// What had been lost when the page begins.
    fn losses(&self) -> Losses {
        let first = self.0.front().filter(|_| self.0.len() >= SAMPLES_MAX);
        first.map(|sample| sample.losses).unwrap_or_default()
    }

    fn samples(&self) -> Vec<Sample> {
        self.0.iter().copied().collect()
    }
}

impl Sample {
    /// The state now.
    pub fn of(figures: &Figures, gauges: &Gauges, at_ms: i64) -> Sample {
        let mut first = Times::default();
        figures
            .targets
            .values()
            .for_each(|target| first.add(&target.first_event));
        Sample {
            at_ms,
            totals: Totals::of(figures),
            in_flight: gauges.in_flight,
            holds: gauges.store_metrics.holds_open,
            held: gauges.store_metrics.held,
            lag_ms: millis(gauges.store_metrics.unsettled_age),
            first_event_ms: (first.first_event_sum_ms, first.first_events),
            breakers_open: gauges.breakers.iter().filter(|(_, _, open)| *open).count(),
            losses: Losses::of(figures, gauges),
        }
    }
}

impl Totals {
    fn of(figures: &Figures) -> Totals {
        let mut totals = Totals::default();
        let mut pico = 0i128;
        for target in figures.targets.values() {
            let sums = target.requests.iter();
            totals.requests = sums.fold(totals.requests, |sum, (_, count)| sum.saturating_add(*count));
            totals.errors = totals.errors.saturating_add(errors(target));
            totals.debits = totals.debits.saturating_add(target.debits);
            totals.prompt_tokens = totals.prompt_tokens.saturating_add(target.prompt_tokens);
            totals.completion_tokens = totals.completion_tokens.saturating_add(target.completion_tokens);
            pico = pico.saturating_add(target.cost_pico);
        }
        totals.denials = figures
            .denials
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count));
        totals.cost = CreditSum::from_pico(pico);
        totals
    }
}

impl Status {
    /// The state now.
    pub fn of(figures: &Figures, gauges: &Gauges, process: Process, series: &Series) -> Status {
        let mut targets: Vec<TargetLine> = figures
            .targets
            .iter()
            .filter(|(name, _)| !name.provider.is_empty())
            .map(|(name, target)| TargetLine::of(name, target))
            .collect();
        targets.sort_by(|a, b| (b.cost, &a.model, &a.provider).cmp(&(a.cost, &b.model, &b.provider)));
        let store_metrics = &gauges.store_metrics;
        let overruns = figures
            .targets
            .values()
            .fold(0u64, |sum, target| sum.saturating_add(target.overruns));
        Status {
            version: env!("CARGO_PKG_VERSION"),
            at_ms: process.at_ms,
            uptime_ms: process.uptime_ms,
            listen: process.listen,
            currency: process.currency,
            ready: gauges.ready,
            maintenance: gauges.maintenance,
            in_flight: gauges.in_flight,
            totals: Totals::of(figures),
            targets,
            providers: providers(figures, gauges),
            denials: figures.denials.clone(),
            ledger: LedgerLine {
                kind: store_metrics.kind,
                away: gauges.ledger_away,
                holds_open: store_metrics.holds_open,
                held: store_metrics.held,
                unsettled: store_metrics.unsettled,
                lag_ms: millis(store_metrics.unsettled_age),
                journal_depth: gauges.journal.0,
                journal_age_secs: gauges.journal_age_secs,
                below_zero: store_metrics.below_zero.or(gauges.below_zero),
                audit_findings: gauges.audit.and_then(|audit| audit.findings),
                audit_unchecked: gauges.audit.and_then(|audit| audit.unchecked),
                audit_age_secs: gauges.audit.map(|audit| audit.age_secs),
                overruns,
            },
            catalogue: CatalogueLine {
                models: gauges.models,
                age_secs: gauges.catalogue_age_secs,
                reload_refused: gauges.reload_refused,
            },
            alarms: alarms(figures, gauges, &series.losses()),
            series: series.samples(),
        }
    }
}

impl TargetLine {
    fn of(name: &TargetName, target: &TargetFigures) -> TargetLine {
        TargetLine {
            model: name.model.to_string(),
            provider: name.provider.to_string(),
            live: target.live,
            requests: requests(target),
            errors: errors(target),
            debits: target.debits,
            prompt_tokens: target.prompt_tokens,
            completion_tokens: target.completion_tokens,
            cost: CreditSum::from_pico(target.cost_pico),
            times: Times::of(&target.first_event),
        }
    }
}

impl Times {
    fn of(first_event: &Histogram) -> Times {
        Times {
            first_events: first_event.count(),
            first_event_sum_ms: first_event.sum_nanos() / NANOS_PER_MS,
            first_event_p50_ms: first_event.percentile(50).map(|nanos| nanos / NANOS_PER_MS),
            first_event_p95_ms: first_event.percentile(95).map(|nanos| nanos / NANOS_PER_MS),
        }
    }

    fn add(&mut self, first_event: &Histogram) {
        self.first_events = self.first_events.saturating_add(first_event.count());
        let millis = first_event.sum_nanos() / NANOS_PER_MS;
        self.first_event_sum_ms = self.first_event_sum_ms.saturating_add(millis);
    }
}

fn providers(figures: &Figures, gauges: &Gauges) -> Vec<ProviderLine> {
    let mut lines: BTreeMap<String, (ProviderLine, Option<Histogram>)> = BTreeMap::new();
    let new = |provider: &str| ProviderLine {
        provider: provider.to_owned(),
        live: 0,
        requests: 0,
        faults: 0,
        breakers: 0,
        breakers_open: 0,
        times: Times::default(),
    };
    for (provider, _, open) in &gauges.breakers {
        let (line, _) = lines.entry(provider.clone()).or_insert_with(|| (new(provider), None));
        line.breakers = line.breakers.saturating_add(1);
        line.breakers_open = line.breakers_open.saturating_add(usize::from(*open));
    }
    for (name, target) in figures.targets.iter().filter(|(name, _)| !name.provider.is_empty()) {
        let (line, times) = lines
            .entry(name.provider.to_string())
            .or_insert_with(|| (new(&name.provider), None));
        line.live = line.live.saturating_add(target.live);
        line.requests = line.requests.saturating_add(requests(target));
        match times {
            Some(times) => times.add(&target.first_event),
            None => *times = Some(target.first_event.clone()),
        }
    }
    for (fault, count) in figures.faults.iter().filter(|(fault, _)| fault.is_failure()) {
        if let Some((line, _)) = lines.get_mut(&*fault.provider) {
            line.faults = line.faults.saturating_add(*count);
        }
    }
    let lines = lines.into_values().map(|(line, times)| ProviderLine {
        times: times.as_ref().map(Times::of).unwrap_or_default(),
        ..line
    });
    lines.collect()
}

fn requests(target: &TargetFigures) -> u64 {
    target
        .requests
        .iter()
        .fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn errors(target: &TargetFigures) -> u64 {
    // As in the alert `TollgateErrors`, and of all routes: it is no share of anything. A provider that is busy is no failure: its client gets 429.
    let failed = |(_, status, outcome): &(_, u16, Outcome)| {
        let is_cut = matches!(outcome, Outcome::UpstreamFailed | Outcome::LedgerFailed);
        *status == 0 || *status >= 500 || (*status != 429 && is_cut)
    };
    let errors = target.requests.iter().filter(|(key, _)| failed(key));
    errors.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const NANOS_PER_MS: u64 = 1_000_000;
/// A lag that is an alarm.
const LAG_SECS_MAX: u64 = 10;
/// An age of the oldest call in the journal that is one.
const JOURNAL_SECS_MAX: i64 = 3_600;
/// Debits that wait for the ledger's store and are none yet.
const UNSETTLED_MAX: u64 = 5_000;
/// An age of the catalogue that is none yet: 45 days.
const CATALOGUE_SECS_MAX: i64 = 45 * 86_400;
/// An age of the oldest event that waits for a webhook that is none yet.
const EVENT_SECS_MAX: i64 = 3_600;
/// An age of the last audit that is one: so many times the time from one to the next, and the grace, for an audit takes its time.
const AUDIT_INTERVALS_MAX: i64 = 3;
const AUDIT_GRACE_SECS: i64 = 900;
/// What is left of a certificate's time that is none yet: 14 days.
const CERTIFICATE_SECS_MIN: i64 = 14 * 86_400;
/// Ten minutes of a sample every five seconds.
const SAMPLES_MAX: usize = 120;

#[cfg(test)]
mod tests;
