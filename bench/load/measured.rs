//! What scenarios measure beside rounds: what the report shows, and the figures keep.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::figures::Unit;

/// What a subject held with so many streams open. Memory in KiB.
#[derive(Serialize)]
pub(crate) struct OpenStreams {
    pub(crate) subject: String,
    pub(crate) streams: usize,
    pub(crate) memory_kib: u64,
    /// Before the first request.
    pub(crate) memory_at_start_kib: Option<u64>,
    /// Warm, without streams.
    pub(crate) memory_before_kib: u64,
    /// What each stream added.
    pub(crate) kib_a_stream: f64,
    pub(crate) open_files: Option<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

/// Instructions of a subject, a request or an event.
#[derive(Serialize)]
pub(crate) struct Instructions {
    pub(crate) subject: String,
    pub(crate) part: String,
    pub(crate) unit: Unit,
    /// Requests or events counted.
    pub(crate) units: u64,
    pub(crate) a_unit: f64,
    /// By part of the program, the most first.
    pub(crate) by_part: Vec<(String, f64)>,
    /// What misses the simulated caches, in the same order; empty where they are not simulated.
    pub(crate) misses_by_part: Vec<(String, Misses)>,
}

/// Misses of a part of the program, a request or an event.
#[derive(Serialize)]
pub(crate) struct Misses {
    /// Of the first level, in what is executed.
    pub(crate) code: f64,
    /// And in what is read and written.
    pub(crate) data: f64,
    /// Of the last level that is simulated, in both.
    pub(crate) last: f64,
}

/// A long run of one gateway.
#[derive(Serialize)]
pub(crate) struct LongRun {
    pub(crate) subject: String,
    pub(crate) requests: u64,
    /// Of them, by what happened.
    pub(crate) by_kind: BTreeMap<String, u64>,
    pub(crate) seconds: f64,
    /// How often the gateway was killed.
    pub(crate) kills: usize,
    pub(crate) accounts: usize,
    /// Debits of all accounts as computed from what was sent and seen, in credits; two amounts where a kill left calls open.
    pub(crate) computed: String,
    /// And as the balances show them.
    pub(crate) seen: String,
    /// Calls that a kill left open: what they cost is known within bounds.
    pub(crate) open_calls: u64,
    /// Accounts whose debits differ, and how.
    pub(crate) differences: Vec<String>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) samples: Vec<Sample>,
    /// Change of memory over the last half, in which nothing is killed, in percent.
    pub(crate) memory_growth_percent: Option<f64>,
    /// What the audit of the ledger said; None for a subject without one.
    pub(crate) audit: Option<Result<String, String>>,
}

/// Memory and open files at one time.
#[derive(Serialize, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) memory_kib: u64,
    pub(crate) open_files: u64,
}

/// How long what operators ask for takes, one request after the other. Times in milliseconds.
#[derive(Serialize)]
pub(crate) struct Listed {
    pub(crate) subject: String,
    pub(crate) what: String,
    pub(crate) requests: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

/// System calls of a subject, a request or an event.
#[derive(Serialize)]
pub(crate) struct SystemCalls {
    pub(crate) subject: String,
    pub(crate) part: String,
    pub(crate) unit: Unit,
    /// Requests or events counted.
    pub(crate) units: u64,
    pub(crate) a_unit: f64,
    /// The most frequent first.
    pub(crate) by_name: Vec<(String, f64)>,
}
