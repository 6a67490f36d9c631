//! A histogram of durations as a value: fixed bounds, counts, and the sum, all of them integers.

/// The bounds of a histogram's buckets in nanoseconds, ascending; what lies above the last has a bucket of its own.
pub type Bounds = [u64; BOUNDS];

/// How many bounds every histogram has.
pub const BOUNDS: usize = 16;

/// Counts of durations by bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static Bounds,
    /// Not cumulative; the last counts what lies above all bounds.
    counts: [u64; BOUNDS + 1],
    sum_nanos: u64,
}

impl Histogram {
    /// An empty histogram.
    pub const fn new(bounds: &'static Bounds) -> Histogram {
        Histogram {
            bounds,
            counts: [0; BOUNDS + 1],
            sum_nanos: 0,
        }
    }

    /// Counts one duration.
    pub fn observe(&mut self, nanos: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < nanos);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }

    /// Adds another histogram of the same bounds.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.sum_nanos = self.sum_nanos.saturating_add(other.sum_nanos);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their sum in nanoseconds.
    pub fn sum_nanos(&self) -> u64 {
        self.sum_nanos
    }

    /// Each bound in nanoseconds, with how many durations lie at or below it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0u64, |sum, (bound, count)| {
            *sum = sum.saturating_add(*count);
            Some((*bound, *sum))
        })
    }

    /// The bound in nanoseconds at or below which at least `percent` of the durations lie; nothing when there are none, the last bound
    /// when they lie above it.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let wanted = self.count().saturating_mul(percent.min(100)).div_ceil(100).max(1);
        let last = self.bounds.last().copied();
        if self.count() == 0 {
            return None;
        }
        let found = self.cumulative().find(|(_, count)| *count >= wanted);
        found.map(|(bound, _)| bound).or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS_OF_TEN: Bounds = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160];

    #[test]
    fn a_duration_lies_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut histogram = Histogram::new(&BOUNDS_OF_TEN);
        for nanos in [0, 10, 11, 160, 161, u64::MAX] {
            histogram.observe(nanos);
        }
        let cumulative: Vec<(u64, u64)> = histogram.cumulative().collect();
        assert_eq!(cumulative[..3], [(10, 2), (20, 3), (30, 3)]);
        assert_eq!(cumulative[15], (160, 4));
        assert_eq!((histogram.count(), histogram.sum_nanos()), (6, u64::MAX));
    }

    #[test]
    fn percentiles_are_bounds() {
        let mut histogram = Histogram::new(&BOUNDS_OF_TEN);
        assert_eq!(histogram.percentile(50), None);
        (0..99).for_each(|_| histogram.observe(15));
        histogram.observe(1_000);
        assert_eq!(histogram.percentile(50), Some(20));
        assert_eq!(histogram.percentile(99), Some(20));
        assert_eq!(histogram.percentile(100), Some(160));
    }

    #[test]
    fn sums_are_of_both() {
        let (mut a, mut b) = (Histogram::new(&BOUNDS_OF_TEN), Histogram::new(&BOUNDS_OF_TEN));
        a.observe(5);
        b.observe(5);
        b.observe(500);
        a.add(&b);
        assert_eq!((a.count(), a.sum_nanos()), (3, 510));
    }
}
