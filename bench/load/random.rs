//! A small generator of random numbers with a seed: the same numbers on every machine, so that a run can be repeated.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each as likely (to 2^-64 of `bound`). 0 where there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.number()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// A number above 0, at most 1.
    fn share(&mut self) -> f64 {
        ((self.number() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// The time from one arrival to the next of a Poisson process with one arrival in each unit of time.
    pub(crate) fn gap(&mut self) -> f64 {
        -self.share().ln()
    }
}
