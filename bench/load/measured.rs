//! What scenarios measure beside rounds: what the report shows, and the figures keep.

use serde::Serialize;

use crate::figures::Unit;

/// What a subject held with so many streams open. Memory in KiB.
#[derive(Serialize)]
pub(crate) struct OpenStreams {
    pub(crate) subject: String,
    pub(crate) streams: usize,
    pub(crate) memory_kib: u64,
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

/// A long run of one subject.
#[derive(Serialize)]
pub(crate) struct LongRun {
    pub(crate) subject: String,
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) errors: std::collections::BTreeMap<String, u64>,
    pub(crate) samples: Vec<Sample>,
    /// Change of memory from the end of the first tenth to the end, in percent.
    pub(crate) memory_growth_percent: Option<f64>,
    /// What the audit of the ledger said; None for a subject without one.
    pub(crate) audit: Option<std::result::Result<String, String>>,
}

/// Memory and open files at one time.
#[derive(Serialize, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) memory_kib: u64,
    pub(crate) open_files: u64,
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
