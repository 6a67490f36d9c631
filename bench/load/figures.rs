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

/// All rounds of one subject under one kind of load.
#[derive(Serialize)]
pub(crate) struct Series {
    pub(crate) scenario: String,
    pub(crate) part: String,
    pub(crate) subject: String,
    pub(crate) unit: Unit,
    /// Set by [`summarise`].
    pub(crate) summary: Option<Summary>,
    pub(crate) rounds: Vec<Round>,
    /// What all rounds recorded together.
    #[serde(skip)]
    pub(crate) tally: Tally,
}

/// One measured round. Times in microseconds.
#[derive(Serialize, Clone)]
pub(crate) struct Round {
    pub(crate) round: usize,
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
}

/// CPU of the processes of a round, in microseconds a unit.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    pub(crate) subject: Option<f64>,
    /// What of it was the kernel's, as far as that is known: see [`crate::process::Ticks`].
    pub(crate) kernel: Option<f64>,
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

/// A median of several rounds and how far they lie apart: half of them between the quartiles.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) quartiles: [f64; 2],
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// What several rounds of one subject say. Percentiles are those of all its rounds together.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: Option<Spread>,
    /// The kernel's share of it, of all rounds together: of one it is too coarse.
    pub(crate) kernel_share: Option<f64>,
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

impl Series {
    /// Whether it is of this load.
    pub(crate) fn is_of(&self, scenario: &str, part: &str) -> bool {
        self.scenario == scenario && self.part == part
    }

    fn per_second(&self, round: &Round) -> f64 {
        self.unit.of(round) as f64 / round.seconds
    }

    fn kernel_share(&self) -> Option<f64> {
        let split = |round: &Round| Some((round.cpu_us.subject?, round.cpu_us.kernel?, self.unit.of(round) as f64));
        let (all, kernel) = self
            .rounds
            .iter()
            .filter_map(split)
            .fold((0.0, 0.0), |(all, kernel), (subject, its_kernel, units)| {
                (all + subject * units, kernel + its_kernel * units)
            });
        (all > 0.0).then(|| kernel / all)
    }

    /// What the rounds say, next to the baseline's. None without rounds.
    fn summary(&self, baseline: Option<&Self>) -> Option<Summary> {
        let rounds = &self.rounds;
        let base = baseline.map_or(&[][..], |baseline| &baseline.rounds);
        let paired: Vec<(&Round, &Round)> = rounds
            .iter()
            .filter_map(|r| Some((r, base.iter().find(|b| b.round == r.round)?)))
            .collect();
        let added = |point: fn(&Percentiles) -> f64| {
            let difference = |(r, b): &(&Round, &Round)| {
                let is_open = r.lag_us.is_some();
                is_open.then_some(point(r.latency_us.as_ref()?) - point(b.latency_us.as_ref()?))
            };
            Spread::of(paired.iter().filter_map(difference))
        };
        let ratio = |(r, b): &(&Round, &Round)| Some(r.cpu_us.subject? / b.cpu_us.subject?);
        let has_latency = rounds.iter().any(|round| round.latency_us.is_some());
        Some(Summary {
            per_second: Spread::of(rounds.iter().map(|round| self.per_second(round)))?.median,
            cpu_us: Spread::of(rounds.iter().filter_map(|round| round.cpu_us.subject)),
            kernel_share: self.kernel_share(),
            store_cpu_us: Spread::of(rounds.iter().filter_map(|round| round.cpu_us.store)).map(|spread| spread.median),
            cpu_ratio: Spread::of(paired.iter().filter_map(ratio)),
            latency_us: Percentiles::of(&self.tally.latency).filter(|_| has_latency),
            added_us: (|| Some([added(|p| p.p50)?, added(|p| p.p90)?, added(|p| p.p99)?]))(),
            first_event_us: Percentiles::of(&self.tally.first_event),
            event_delay_us: Percentiles::of(&self.tally.event_delay),
            memory_kib: rounds.iter().filter_map(|round| round.memory_kib).max(),
            errors: rounds.iter().map(Round::errors).sum(),
            others_busy: Spread::of(rounds.iter().map(|round| round.others_busy))?.median,
        })
    }
}

impl Unit {
    /// How many a round has measured.
    pub(crate) fn of(self, round: &Round) -> u64 {
        match self {
            Self::Request => round.requests,
            Self::Event => round.events,
        }
    }

    /// The word for one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Event => "event",
        }
    }
}

impl Round {
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
}

impl Spread {
    /// None without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        // Between two values the point is where a line between them is.
        let at = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
            low + (high - low) * place.fract()
        };
        Some(Self {
            median: at(0.5),
            quartiles: [at(0.25), at(0.75)],
            min,
            max,
        })
    }
}

/// Adds a round to the series it belongs to.
pub(crate) fn add(all: &mut Vec<Series>, place: (&str, &str, &str), unit: Unit, round: Round, tally: &Tally) {
    let (scenario, part, subject) = place;
    let known = all
        .iter()
        .position(|series| series.is_of(scenario, part) && series.subject == subject);
    let at = known.unwrap_or_else(|| {
        let (scenario, part, subject) = (scenario.to_owned(), part.to_owned(), subject.to_owned());
        all.push(Series {
            scenario,
            part,
            subject,
            unit,
            summary: None,
            rounds: Vec::new(),
            tally: Tally::new(),
        });
        all.len() - 1
    });
    let series = &mut all[at];
    series.rounds.push(round);
    series.tally.add(tally);
}

/// Concludes from the rounds of each series and those of the subject `baseline` under the same load.
pub(crate) fn summarise(all: &mut [Series], baseline: &str) {
    let summaries: Vec<Option<Summary>> = all
        .iter()
        .map(|series| {
            let is_base = |other: &&Series| other.is_of(&series.scenario, &series.part) && other.subject == baseline;
            series.summary(all.iter().find(is_base).filter(|_| series.subject != baseline))
        })
        .collect();
    for (series, summary) in all.iter_mut().zip(summaries) {
        series.summary = summary;
    }
}
