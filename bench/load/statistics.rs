//! What several rounds say together: a median, how sure it is, and the usual points of a distribution.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::random::Random;

/// A median of several rounds and its interval: with 95 % confidence the median of all rounds that could have been lies in it.
///
/// The interval is that of the percentile bootstrap (Efron, 1979): the rounds are drawn from themselves, with repeats, again and again, and
/// 95 % of the medians of these draws lie between its ends.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// None of fewer rounds than [`ROUNDS_MIN`]: they cannot be so sure.
    pub(crate) interval: Option<[f64; 2]>,
}

impl Estimate {
    /// None without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        Some(Self {
            median: median(&mut values)?,
            interval: (values.len() >= ROUNDS_MIN).then(|| interval(&values)).flatten(),
        })
    }
}

/// The middle of the values, or the mean of the two in the middle. None without values; their order is lost.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    let (middle, is_odd) = (values.len() / 2, !values.len().is_multiple_of(2));
    if values.is_empty() {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_odd {
        return Some(*upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(lower + (*upper - lower) / 2.0)
}

fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let mut random = Random::new(SEED);
    let mut draw = Vec::with_capacity(values.len());
    let mut medians = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        draw.clear();
        for _ in values {
            let place = usize::try_from(random.below(values.len() as u64)).ok()?;
            draw.push(values[place]);
        }
        medians.push(median(&mut draw)?);
    }
    medians.sort_unstable_by(f64::total_cmp);
    let outside = DRAWS * 25 / 1000;
    Some([medians[outside], medians[DRAWS - 1 - outside]])
}

/// The usual points of a distribution, in microseconds.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
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

/// Of five values the extremes themselves enclose the median with 93.75 % only.
pub(crate) const ROUNDS_MIN: usize = 6;
const DRAWS: usize = 10_000;
/// So the same rounds always give the same interval.
const SEED: u64 = 20_240_117;
