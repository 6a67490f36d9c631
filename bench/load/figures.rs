//! The figures of a run: each round as it was measured, and what is concluded from several.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    cli::Variant,
    disturbance::Disturbance,
    statistics::{Estimate, Percentiles},
    tally::Tally,
};

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
    /// Resident memory of the subject before its first request.
    pub(crate) memory_at_start_kib: Option<u64>,
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
    /// How late the load generator itself was, where it sends at given times.
    pub(crate) lag_us: Option<Percentiles>,
    /// Requests that were due when all connections were busy.
    pub(crate) queued: u64,
    pub(crate) memory_kib: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// None where the kernel does not show it.
    pub(crate) disturbance: Option<Disturbance>,
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

/// What several rounds of one subject say. Percentiles are those of all its rounds together.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) per_second: f64,
    /// Cores that the subject kept busy: at one for each of its threads it was saturated.
    pub(crate) cores: Option<f64>,
    /// CPU of the subject, of its store, and of both.
    pub(crate) cpu_us: Option<Estimate>,
    pub(crate) store_us: Option<Estimate>,
    pub(crate) both_us: Option<Estimate>,
    /// The kernel's share of the subject's, of all rounds together: of one it is too coarse.
    pub(crate) kernel_share: Option<f64>,
    /// Next to each baseline in the same rounds, in the order of [`BASELINES`].
    pub(crate) beside: Vec<Beside>,
    pub(crate) latency_us: Option<Percentiles>,
    pub(crate) lag_us: Option<Percentiles>,
    pub(crate) queued_share: Option<f64>,
    pub(crate) first_event_us: Option<Percentiles>,
    pub(crate) event_delay_us: Option<Percentiles>,
    /// Resident memory before the first request, and the most after a round.
    pub(crate) memory_at_start_kib: Option<u64>,
    pub(crate) memory_kib: Option<u64>,
    pub(crate) errors: u64,
    pub(crate) others_cores: Option<f64>,
}

/// What a subject is next to a baseline.
#[derive(Serialize)]
pub(crate) struct Beside {
    pub(crate) baseline: String,
    /// CPU of subject and store over the baseline's, with its store.
    pub(crate) both: Option<Estimate>,
    /// The subject's alone over the baseline's alone, where the subject has a store.
    pub(crate) alone: Option<Estimate>,
    /// What it adds to p50 and p99 of latency; only at a given rate, since latency in a closed loop is throughput said otherwise.
    pub(crate) latency_us: Option<[Estimate; 2]>,
    pub(crate) first_event_us: Option<[Estimate; 2]>,
    pub(crate) event_delay_us: Option<[Estimate; 2]>,
}

impl CpuTimes {
    /// Of the subject and its store.
    fn both(&self) -> Option<f64> {
        Some(self.subject? + self.store.unwrap_or_default())
    }
}

impl Beside {
    fn of(baseline: &str, pairs: &[(&Round, &Round)]) -> Self {
        let ratio = |of: fn(&CpuTimes) -> Option<f64>, to: fn(&CpuTimes) -> Option<f64>| {
            let ratio = |(r, b): &(&Round, &Round)| Some(of(&r.cpu_us)? / to(&b.cpu_us)?);
            Estimate::of(pairs.iter().filter_map(ratio))
        };
        let added = |of: fn(&Round) -> Option<Percentiles>| {
            let at = |point: fn(Percentiles) -> f64| {
                let difference = |(r, b): &(&Round, &Round)| Some(point(of(r)?) - point(of(b)?));
                Estimate::of(pairs.iter().filter_map(difference))
            };
            Some([at(|p| p.p50)?, at(|p| p.p99)?])
        };
        Self {
            baseline: baseline.to_owned(),
            both: ratio(CpuTimes::both, CpuTimes::both),
            alone: ratio(|cpu| cpu.store.and(cpu.subject), |cpu| cpu.subject),
            latency_us: added(|round| round.latency_us.filter(|_| round.lag_us.is_some())),
            first_event_us: added(|round| round.first_event_us),
            event_delay_us: added(|round| round.event_delay_us),
        }
    }
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

    /// What the rounds say, next to those of the baselines. None without rounds.
    fn summary(&self, baselines: &[&Self]) -> Option<Summary> {
        let rounds = &self.rounds;
        let cpu = |of: fn(&CpuTimes) -> Option<f64>| Estimate::of(rounds.iter().filter_map(|round| of(&round.cpu_us)));
        let beside = |baseline: &&Self| {
            let same = |round: &Round| baseline.rounds.iter().find(|other| other.round == round.round);
            let pairs: Vec<(&Round, &Round)> = rounds.iter().filter_map(|round| Some((round, same(round)?))).collect();
            Beside::of(&baseline.subject, &pairs)
        };
        let cores = |round: &Round| Some(round.cpu_us.subject? * self.per_second(round) / 1e6);
        let has = |what: fn(&Round) -> bool| rounds.iter().any(what);
        let (queued, sent) = (self.tally.queued, self.tally.queued + self.tally.lag.len());
        Some(Summary {
            per_second: Estimate::of(rounds.iter().map(|round| self.per_second(round)))?.median,
            cores: Estimate::of(rounds.iter().filter_map(cores)).map(|cores| cores.median),
            cpu_us: cpu(|cpu| cpu.subject),
            store_us: cpu(|cpu| cpu.store),
            both_us: cpu(CpuTimes::both),
            kernel_share: self.kernel_share(),
            beside: baselines.iter().map(beside).collect(),
            latency_us: Percentiles::of(&self.tally.latency).filter(|_| has(|round| round.latency_us.is_some())),
            lag_us: Percentiles::of(&self.tally.lag).filter(|_| has(|round| round.lag_us.is_some())),
            queued_share: (queued > 0)
                .then(|| queued as f64 / sent as f64)
                .filter(|_| has(|round| round.lag_us.is_some())),
            first_event_us: Percentiles::of(&self.tally.first_event),
            event_delay_us: Percentiles::of(&self.tally.event_delay),
            memory_at_start_kib: self.memory_at_start_kib,
            memory_kib: rounds.iter().filter_map(|round| round.memory_kib).max(),
            errors: rounds.iter().map(Round::errors).sum(),
            others_cores: Estimate::of(rounds.iter().filter_map(|round| Some(round.disturbance?.others_cores)))
                .map(|cores| cores.median),
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

/// Adds a round to the series it belongs to.
pub(crate) fn add(all: &mut Vec<Series>, place: &Place<'_>, round: Round, tally: &Tally) {
    let known = all
        .iter()
        .position(|series| series.is_of(place.scenario, place.part) && series.subject == place.subject);
    let at = known.unwrap_or_else(|| {
        all.push(Series {
            scenario: place.scenario.to_owned(),
            part: place.part.to_owned(),
            subject: place.subject.to_owned(),
            unit: place.unit,
            memory_at_start_kib: place.memory_at_start_kib,
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

/// Which series a round belongs to.
pub(crate) struct Place<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) part: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) unit: Unit,
    pub(crate) memory_at_start_kib: Option<u64>,
}

/// Concludes from the rounds of each series and those of the baselines under the same load.
pub(crate) fn summarise(all: &mut [Series]) {
    let summary = |series: &Series| {
        let is_base = |name: &String| {
            all.iter()
                .find(|other| other.is_of(&series.scenario, &series.part) && other.subject == *name)
        };
        let mut names: Vec<String> = BASELINES.iter().map(|variant| variant.name()).collect();
        // Of a pair, one is what the other would be without what it has.
        if let Some((usual, _)) = series.subject.split_once(WITH) {
            names = vec![usual.to_owned()];
        }
        // A baseline is one to those behind it.
        let before = names.iter().take_while(|name| **name != series.subject);
        series.summary(&before.filter_map(is_base).collect::<Vec<_>>())
    };
    let summaries: Vec<Option<Summary>> = all.iter().map(summary).collect();
    for (series, summary) in all.iter_mut().zip(summaries) {
        series.summary = summary;
    }
}

/// Between the name of a gateway and what it has that another one has not.
pub(crate) const WITH: &str = " with ";
/// What all others are compared with.
pub(crate) const BASELINES: [Variant; 2] = [Variant::Baseline, Variant::BaselineJemalloc];
