//! The figures of a run: each round as it was measured, and what is concluded from several.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::drive::Tally;

/// What a figure is counted in.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    Request,
    Event,
}

/// One measured round of one subject. Times in microseconds.
#[derive(Serialize, Clone)]
pub(crate) struct Round {
    pub(crate) scenario: String,
    pub(crate) part: String,
    pub(crate) subject: String,
    pub(crate) round: usize,
    pub(crate) unit: Unit,
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) events: u64,
    /// CPU a unit of each process; None where it cannot be read.
    pub(crate) cpu_us: CpuTimes,
    pub(crate) latency_us: Option<Percentiles>,
    pub(crate) first_event_us: Option<Percentiles>,
    pub(crate) event_delay_us: Option<Percentiles>,
    /// How late the load generator itself was.
    pub(crate) lag_us: Option<Percentiles>,
    pub(crate) memory_kib: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// Cores kept busy by processes that are not the bench's.
    pub(crate) others_busy: f64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) reconnects: u64,
    /// The same in full, for the plots.
    #[serde(skip)]
    pub(crate) tally: Tally,
}

/// CPU of the processes of a round, in microseconds a unit.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    pub(crate) subject: Option<f64>,
    pub(crate) upstream: f64,
    pub(crate) load: f64,
    pub(crate) store: Option<f64>,
}

/// The usual points of a distribution.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// A median of several rounds and how far they lie apart.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// What several rounds of one subject say. Percentiles are medians of the rounds' percentiles.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) scenario: String,
    pub(crate) part: String,
    pub(crate) subject: String,
    pub(crate) unit: Unit,
    pub(crate) per_second: f64,
    pub(crate) cpu_us: Option<Spread>,
    pub(crate) store_cpu_us: Option<f64>,
    /// CPU relative to the baseline's in the same round.
    pub(crate) cpu_ratio: Option<Spread>,
    pub(crate) latency_us: Option<Percentiles>,
    /// What it adds to the baseline's p50, p90 and p99 in the same round; only at a fixed rate, since latency in a
    /// closed loop is throughput said otherwise.
    pub(crate) added_us: Option<[Spread; 3]>,
    pub(crate) first_event_us: Option<Percentiles>,
    pub(crate) event_delay_us: Option<Percentiles>,
    pub(crate) memory_kib: Option<u64>,
    pub(crate) errors: u64,
    pub(crate) others_busy: f64,
}

impl Round {
    /// Units measured in it.
    pub(crate) fn units(&self) -> u64 {
        match self.unit {
            Unit::Request => self.requests,
            Unit::Event => self.events,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.units() as f64 / self.seconds
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl Percentiles {
    /// Of a histogram of nanoseconds. None when it is empty.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        let full = !histogram.is_empty();
        full.then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        })
    }

    fn median(of: &[Self]) -> Option<Self> {
        let point = |point: fn(&Self) -> f64| Spread::of(of.iter().map(point)).map(|spread| spread.median);
        Some(Self {
            p50: point(|p| p.p50)?,
            p90: point(|p| p.p90)?,
            p99: point(|p| p.p99)?,
            p999: point(|p| p.p999)?,
            max: point(|p| p.max)?,
        })
    }
}

impl Spread {
    /// None without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }
}

/// Summarises rounds, in the order in which their scenario, part and subject first appear.
pub(crate) fn summarise(rounds: &[Round], baseline: &str) -> Vec<Summary> {
    let mut seen: Vec<(&str, &str, &str)> = Vec::new();
    for round in rounds {
        let place = (round.scenario.as_str(), round.part.as_str(), round.subject.as_str());
        if !seen.contains(&place) {
            seen.push(place);
        }
    }
    let of = |scenario: &str, part: &str, subject: &str| -> Vec<&Round> {
        let is_one = |r: &&Round| r.scenario == scenario && r.part == part && r.subject == subject;
        rounds.iter().filter(is_one).collect()
    };
    seen.into_iter()
        .filter_map(|(scenario, part, subject)| {
            let base = if subject == baseline {
                Vec::new()
            } else {
                of(scenario, part, baseline)
            };
            summary(&of(scenario, part, subject), &base)
        })
        .collect()
}

/// None without rounds.
fn summary(rounds: &[&Round], base: &[&Round]) -> Option<Summary> {
    let first = rounds.first()?;
    let paired: Vec<(&Round, &Round)> = rounds
        .iter()
        .filter_map(|r| Some((*r, *base.iter().find(|b| b.round == r.round)?)))
        .collect();
    let percentiles = |of: fn(&Round) -> Option<Percentiles>| {
        Percentiles::median(&rounds.iter().filter_map(|round| of(round)).collect::<Vec<_>>())
    };
    let added = |point: fn(&Percentiles) -> f64| {
        let difference =
            |(r, b): &(&Round, &Round)| Some(point(r.latency_us.as_ref()?) - point(b.latency_us.as_ref()?));
        Spread::of(paired.iter().filter_map(difference))
    };
    let added_us = (|| Some([added(|p| p.p50)?, added(|p| p.p90)?, added(|p| p.p99)?]))();
    Some(Summary {
        scenario: first.scenario.clone(),
        part: first.part.clone(),
        subject: first.subject.clone(),
        unit: first.unit,
        per_second: Spread::of(rounds.iter().map(|round| round.per_second()))?.median,
        cpu_us: Spread::of(rounds.iter().filter_map(|round| round.cpu_us.subject)),
        store_cpu_us: Spread::of(rounds.iter().filter_map(|round| round.cpu_us.store)).map(|spread| spread.median),
        cpu_ratio: Spread::of(
            paired
                .iter()
                .filter_map(|(r, b)| Some(r.cpu_us.subject? / b.cpu_us.subject?)),
        ),
        latency_us: percentiles(|round| round.latency_us),
        added_us,
        first_event_us: percentiles(|round| round.first_event_us),
        event_delay_us: percentiles(|round| round.event_delay_us),
        memory_kib: rounds.iter().filter_map(|round| round.memory_kib).max(),
        errors: rounds.iter().map(|round| round.errors()).sum(),
        others_busy: Spread::of(rounds.iter().map(|round| round.others_busy))?.median,
    })
}
