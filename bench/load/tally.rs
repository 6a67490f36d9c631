//! What the connections of the load generator recorded.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// What the connections recorded; times in nanoseconds.
#[derive(Clone)]
pub(crate) struct Tally {
    pub(crate) latency: Histogram<u64>,
    pub(crate) first_event: Histogram<u64>,
    /// From the upstream's write of an event to its arrival.
    pub(crate) event_delay: Histogram<u64>,
    /// How late the generator itself sent what a free connection could take.
    pub(crate) lag: Histogram<u64>,
    /// Requests that were due when no connection was free: these waited for an answer, which is in their latency.
    pub(crate) queued: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) reconnects: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let empty = || Histogram::new_with_max(LATENCY_MAX_NS, 3).unwrap_or_else(|e| unreachable!("valid bounds: {e}"));
        Self {
            latency: empty(),
            first_event: empty(),
            event_delay: empty(),
            lag: empty(),
            queued: 0,
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            reconnects: 0,
        }
    }

    /// Counts as errors the answers of another status than the one that is measured, where they are many: those that come before a limit
    /// begins are few.
    pub(crate) fn expect_status(&mut self, status: u16) {
        let all: u64 = self.statuses.values().sum();
        let others = all - self.statuses.get(&status).copied().unwrap_or_default();
        if others > all / OTHERS_PART {
            self.errors
                .insert(format!("an answer of another status than {status}"), others);
        }
    }

    /// Adds what another recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            latency,
            first_event,
            event_delay,
            lag,
            queued,
            statuses,
            errors,
            reconnects,
        } = other;
        let pairs = [
            (&mut self.latency, latency),
            (&mut self.first_event, first_event),
            (&mut self.event_delay, event_delay),
            (&mut self.lag, lag),
        ];
        for (mine, theirs) in pairs {
            mine.add(theirs)
                .unwrap_or_else(|e| unreachable!("all have the same bounds: {e}"));
        }
        for (status, n) in statuses {
            *self.statuses.entry(*status).or_default() += n;
        }
        for (kind, n) in errors {
            *self.errors.entry(kind.clone()).or_default() += n;
        }
        self.queued += queued;
        self.reconnects += reconnects;
    }
}

const LATENCY_MAX_NS: u64 = 120_000_000_000;
/// Of so many answers one may have another status.
const OTHERS_PART: u64 = 10;
