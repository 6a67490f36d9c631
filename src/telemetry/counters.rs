//! The counts, by thread and in sum.
//!
//! Each thread counts in a shard of its own, under a lock that nobody else wants but a scrape: a request costs one look-up and a few
//! additions of plain integers, and no cache line goes from core to core. All of a request is counted in one step, so that no scrape
//! sees half of it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::record::{Discarded, Outcome, Raised, Record, RouteName, TargetName, UpstreamFault};
use crate::pure::histogram::{Bounds, Histogram};
use crate::pure::usage::Usage;

/// All counts of a thread, or of all of them together.
#[derive(Debug, Default)]
pub struct Figures {
    /// By where the requests ran.
    pub targets: HashMap<TargetName, TargetFigures, BuildHasherDefault<NameHasher>>,
    /// Requests that the gateway refused, by reason.
    pub denials: BTreeMap<&'static str, u64>,
    /// What went wrong with providers.
    pub faults: BTreeMap<UpstreamFault, u64>,
    /// Answers of earlier calls that were given again for an idempotency key.
    pub replays: u64,
    /// The gateway's own time, by route; see [`Record::overhead`].
    pub overheads: BTreeMap<RouteName, Histogram>,
}

/// The counts of one model at one provider.
#[derive(Clone, Debug)]
pub struct TargetFigures {
    /// By route, status and outcome.
    pub requests: Vec<((RouteName, u16, Outcome), u64)>,
    /// Calls under way.
    pub live: i64,
    /// The operation's name in OpenTelemetry's conventions.
    pub operation: &'static str,
    /// Calls that were billed.
    pub debits: u64,
    /// Tokens that were billed.
    pub prompt_tokens: u64,
    /// Tokens that were billed.
    pub completion_tokens: u64,
    /// What they cost, in 10^-12 credit.
    pub cost_pico: i128,
    /// Debits above what was held.
    pub overruns: u64,
    /// By how much, in 10^-12 credit.
    pub overrun_pico: i128,
    /// Attempts at another target after one that failed.
    pub failovers: u64,
    /// Answers that broke off before anything of them was passed on.
    pub discarded: u64,
    /// Their tokens at the models' list prices, with the markup, without kinds and tiers, in 10^-12 credit.
    pub discarded_pico: i128,
    /// Usage reports that were not believed.
    pub reports_rejected: u64,
    /// Tokens that reported totals had beyond both sides, which were not billed.
    pub beyond_sides: u64,
    /// Prompt tokens beyond what was admitted, which were not billed.
    pub lost_prompt_tokens: u64,
    /// Completion tokens beyond what was admitted, which were not billed.
    pub lost_completion_tokens: u64,
    /// What they would have cost, in 10^-12 credit.
    pub lost_pico: i128,
    /// Charges that were cut to what was held.
    pub cuts: u64,
    /// Holds that were to be raised while their answers ran, by what the store said ([`Raised`]).
    pub raised: [u64; Raised::COUNT],
    /// From a call's arrival to its end.
    pub duration: Histogram,
    /// From a call's arrival to the first piece of its answer.
    pub first_event: Histogram,
}

/// FNV-1a: the names are the operator's own, so nobody can choose them to collide, and they are hashed twice a call.
#[derive(Debug)]
pub struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> NameHasher {
        NameHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Figures {
    /// Counts a request.
    pub(super) fn count(&mut self, record: &Record, live: bool) {
        let overhead = self
            .overheads
            .entry(record.route)
            .or_insert_with(|| Histogram::new(&OVERHEAD));
        overhead.observe(nanos(record.overhead));
        if let Some(reason) = record.reason {
            add(self.denials.entry(reason).or_default(), 1);
        }
        add(&mut self.replays, u64::from(record.is_replay));
        for fault in &record.faults {
            add(self.faults.entry(fault.clone()).or_default(), 1);
        }
        for discarded in &record.discarded {
            let target = TargetName {
                model: Arc::clone(&record.target.model),
                provider: Arc::clone(&discarded.provider),
            };
            self.at(&target, |figures| figures.discard(discarded));
        }
        self.at(&record.target, |figures| figures.count(record, live));
    }

    /// A call is under way at a target, or no longer.
    pub(super) fn moved(&mut self, target: &TargetName, by: i64) {
        self.at(target, |figures| figures.live = figures.live.saturating_add(by));
    }

    /// Adds another thread's counts.
    pub(super) fn add(&mut self, other: &Figures) {
        for (name, figures) in &other.targets {
            self.at(name, |own| own.add(figures));
        }
        add(&mut self.replays, other.replays);
        for (reason, count) in &other.denials {
            add(self.denials.entry(reason).or_default(), *count);
        }
        for (fault, count) in &other.faults {
            add(self.faults.entry(fault.clone()).or_default(), *count);
        }
        for (route, histogram) in &other.overheads {
            let own = self.overheads.entry(*route);
            own.or_insert_with(|| Histogram::new(&OVERHEAD)).add(histogram);
        }
    }

    /// Writes to a target's counts.
    fn at(&mut self, name: &TargetName, write: impl FnOnce(&mut TargetFigures)) {
        if let Some(figures) = self.targets.get_mut(name) {
            return write(figures);
        }
        // The names are the catalogue's, so only reloads without number could make a set without bound; its last are counted together.
        let name = if self.targets.len() < TARGETS_MAX {
            name.clone()
        } else {
            other()
        };
        write(self.targets.entry(name).or_default());
    }
}

impl Default for TargetFigures {
    fn default() -> TargetFigures {
        TargetFigures {
            requests: Vec::new(),
            live: 0,
            operation: RouteName::Chat.operation(),
            debits: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            cost_pico: 0,
            overruns: 0,
            overrun_pico: 0,
            failovers: 0,
            discarded: 0,
            discarded_pico: 0,
            reports_rejected: 0,
            beyond_sides: 0,
            lost_prompt_tokens: 0,
            lost_completion_tokens: 0,
            lost_pico: 0,
            cuts: 0,
            raised: [0; Raised::COUNT],
            duration: Histogram::new(&DURATION),
            first_event: Histogram::new(&FIRST_EVENT),
        }
    }
}

impl TargetFigures {
    fn count(&mut self, record: &Record, live: bool) {
        self.requests_of((record.route, record.status, record.outcome), 1);
        if live {
            self.live = self.live.saturating_sub(1);
            self.operation = record.route.operation();
            self.duration.observe(nanos(record.duration));
        }
        if let Some(first) = record.first_event.filter(|_| record.outcome != Outcome::Refused) {
            self.first_event.observe(nanos(first));
        }
        add(&mut self.failovers, u64::from(record.attempts.saturating_sub(1)));
        add(&mut self.reports_rejected, record.reports_rejected);
        add(&mut self.beyond_sides, record.beyond_sides);
        add(&mut self.cuts, u64::from(record.cut));
        add_each(&mut self.raised, &record.raised);
        if let Some(lost) = &record.lost {
            add(&mut self.lost_prompt_tokens, lost.usage.prompt.0);
            add(&mut self.lost_completion_tokens, lost.usage.completion.0);
            self.lost_pico = self.lost_pico.saturating_add(i128::from(lost.cost.pico()));
        }
        if let Some(billed) = &record.billed {
            let Usage { prompt, completion } = billed.usage;
            add(&mut self.debits, 1);
            add(&mut self.prompt_tokens, prompt.0);
            add(&mut self.completion_tokens, completion.0);
            self.cost_pico = self.cost_pico.saturating_add(i128::from(billed.cost.pico()));
            let over = billed.cost.saturating_sub(billed.held).pico();
            if over > 0 {
                add(&mut self.overruns, 1);
                self.overrun_pico = self.overrun_pico.saturating_add(i128::from(over));
            }
        }
    }

    fn discard(&mut self, discarded: &Discarded) {
        add(&mut self.discarded, 1);
        let pico = i128::from(discarded.cost.pico());
        self.discarded_pico = self.discarded_pico.saturating_add(pico);
    }

    fn add(&mut self, other: &TargetFigures) {
        for (key, count) in &other.requests {
            self.requests_of(*key, *count);
        }
        if other.duration.count() > 0 {
            self.operation = other.operation;
        }
        self.live = self.live.saturating_add(other.live);
        add(&mut self.debits, other.debits);
        add(&mut self.prompt_tokens, other.prompt_tokens);
        add(&mut self.completion_tokens, other.completion_tokens);
        self.cost_pico = self.cost_pico.saturating_add(other.cost_pico);
        add(&mut self.overruns, other.overruns);
        self.overrun_pico = self.overrun_pico.saturating_add(other.overrun_pico);
        add(&mut self.failovers, other.failovers);
        add(&mut self.discarded, other.discarded);
        self.discarded_pico = self.discarded_pico.saturating_add(other.discarded_pico);
        add(&mut self.reports_rejected, other.reports_rejected);
        add(&mut self.beyond_sides, other.beyond_sides);
        add(&mut self.lost_prompt_tokens, other.lost_prompt_tokens);
        add(&mut self.lost_completion_tokens, other.lost_completion_tokens);
        self.lost_pico = self.lost_pico.saturating_add(other.lost_pico);
        add(&mut self.cuts, other.cuts);
        add_each(&mut self.raised, &other.raised);
        self.duration.add(&other.duration);
        self.first_event.add(&other.first_event);
    }

    /// The statuses of one target are few: a scan is cheaper than a map.
    fn requests_of(&mut self, key: (RouteName, u16, Outcome), count: u64) {
        match self.requests.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sum)) => add(sum, count),
            None => self.requests.push((key, count)),
        }
    }
}

fn other() -> TargetName {
    TargetName {
        model: "other".into(),
        provider: "other".into(),
    }
}

fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

fn add_each<const N: usize>(sums: &mut [u64; N], counts: &[u64; N]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        add(sum, *count);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Most targets that are counted apart.
const TARGETS_MAX: usize = 10_000;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The bounds that OpenTelemetry's conventions give `gen_ai.server.request.duration`, and two more for very long answers.
const DURATION: Bounds = [
    10 * MS,
    20 * MS,
    40 * MS,
    80 * MS,
    160 * MS,
    320 * MS,
    640 * MS,
    1_280 * MS,
    2_560 * MS,
    5_120 * MS,
    10_240 * MS,
    20_480 * MS,
    40_960 * MS,
    81_920 * MS,
    163_840 * MS,
    327_680 * MS,
];
/// Those of `gen_ai.server.time_to_first_token`.
const FIRST_EVENT: Bounds = [
    MS,
    5 * MS,
    10 * MS,
    20 * MS,
    40 * MS,
    60 * MS,
    80 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    750 * MS,
    1_000 * MS,
    2_500 * MS,
    5_000 * MS,
    7_500 * MS,
    10_000 * MS,
];
/// For the gateway's own time, and for the store's.
pub(crate) const OVERHEAD: Bounds = [
    25 * US,
    50 * US,
    100 * US,
    200 * US,
    400 * US,
    800 * US,
    1_600 * US,
    3_200 * US,
    6_400 * US,
    12_800 * US,
    25_600 * US,
    51_200 * US,
    102_400 * US,
    204_800 * US,
    409_600 * US,
    819_200 * US,
];
