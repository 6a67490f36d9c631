//! Rendezvous hashing with weights: which of some targets a conversation goes to, without anything that is kept.
//!
//! Each target draws a number from its own identity and the conversation, and the one wins whose number is the best for its weight. So a
//! conversation stays where it is for as long as its target is there; of one that goes, its conversations spread over all others by their
//! weights, and no other moves; a new one takes some from each. Shares are in proportion to the weights.

/// A target that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// A hash of what it is: [`hash_of`] its names.
    pub identity: u64,
    /// Its share; one without any gets nothing while there is another.
    pub weight: u64,
}

/// The position of the target that a conversation goes to. None when there is no target.
pub fn choose(conversation: u64, targets: impl IntoIterator<Item = Draw>) -> Option<usize> {
    let mut best: Option<(usize, u64, u64)> = None;
    for (position, Draw { identity, weight }) in targets.into_iter().enumerate() {
        let drawn = exponential(mix(identity ^ conversation));
        // The least of drawn / weight wins: it is exponentially distributed, at a rate that is the weight.
        let is_better = best.is_none_or(|(_, least, leading)| {
            u128::from(drawn).saturating_mul(u128::from(leading)) < u128::from(least).saturating_mul(u128::from(weight))
        });
        if is_better {
            best = Some((position, drawn, weight));
        }
    }
    best.map(|(position, ..)| position)
}

/// The negative binary logarithm of `uniform` as a fraction of 2^64, in units of 2^-32. In integers: every machine has the same.
fn exponential(uniform: u64) -> u64 {
    let uniform = uniform.max(1);
    let zeros = uniform.leading_zeros();
    let mut mantissa = u128::from(uniform << zeros);
    let mut fraction = 0_u64;
    for _ in 0..32 {
        mantissa = mantissa.saturating_mul(mantissa) >> 63;
        fraction <<= 1;
        if mantissa >> 64 > 0 {
            mantissa >>= 1;
            fraction |= 1;
        }
    }
    (u64::from(zeros).saturating_add(1) << 32).saturating_sub(fraction)
}

/// The hash of some names together.
pub fn hash_of(names: &[&str]) -> u64 {
    let mut hash = Hash::default();
    names.iter().for_each(|name| hash.add(name.as_bytes()));
    hash.end()
}

/// A hash that spreads evenly: words are folded in by multiplications, the end is that of SplitMix64. Whoever wants to can find texts
/// with the same hash, which gains nothing: they choose their own target.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(GOLDEN_RATIO)
    }
}

impl Hash {
    /// Adds a text: its length, and its first [`HASHED_BYTES_MAX`] bytes.
    pub fn add(&mut self, text: &[u8]) {
        self.word(u64::try_from(text.len()).unwrap_or(u64::MAX));
        let first = text.get(..HASHED_BYTES_MAX).unwrap_or(text);
        for chunk in first.chunks(8) {
            self.word(chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(GOLDEN_RATIO).rotate_left(29);
    }

    /// The hash of all that was added.
    pub fn end(self) -> u64 {
        mix(self.0)
    }
}

/// SplitMix64's end: each bit of the result depends on all of `hash`.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// How many bytes of a text are hashed: some hundred nanoseconds.
pub const HASHED_BYTES_MAX: usize = 4_096;
/// 2^64 divided by the golden ratio, which is odd.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(weights: &[u64]) -> Vec<Draw> {
        let target = |(n, weight): (usize, &u64)| Draw {
            identity: hash_of(&[&format!("provider-{n}"), "model"]),
            weight: *weight,
        };
        weights.iter().enumerate().map(target).collect()
    }

    fn conversation(n: u32) -> u64 {
        hash_of(&["acme", &format!("session-{n}")])
    }

    fn shares(conversations: u32, targets: &[Draw]) -> Vec<u32> {
        let mut shares = vec![0; targets.len()];
        for n in 0..conversations {
            shares[choose(conversation(n), targets.iter().copied()).unwrap()] += 1;
        }
        shares
    }

    #[test]
    fn shares_follow_the_weights_within_a_hundredth_of_all() {
        for weights in [
            &[1, 1, 1, 1][..],
            &[3, 1],
            &[1, 10, 100],
            &[5, 5, 5, 1, 1],
            &[u64::from(u32::MAX), u64::from(u32::MAX)],
        ] {
            let (all, sum) = (20_000_u32, weights.iter().sum::<u64>());
            for (share, weight) in shares(all, &targets(weights)).into_iter().zip(weights) {
                let expected = u32::try_from(u64::from(all) * weight / sum).unwrap();
                assert!(
                    share.abs_diff(expected) <= all / 100,
                    "{weights:?}: {share} and not {expected}"
                );
            }
        }
    }

    #[test]
    fn of_a_target_that_goes_its_share_spreads_evenly_and_the_others_stay() {
        let all = targets(&[1, 1, 1, 1]);
        for gone in 0..4 {
            let left: Vec<Draw> = all
                .iter()
                .enumerate()
                .filter(|(n, _)| *n != gone)
                .map(|(_, target)| *target)
                .collect();
            let (mut moved, mut total) = (vec![0_u32; 3], 0_u32);
            for n in 0..6_000 {
                let before = choose(conversation(n), all.iter().copied()).unwrap();
                let after = choose(conversation(n), left.iter().copied()).unwrap();
                match before == gone {
                    true => (moved[after], total) = (moved[after] + 1, total + 1),
                    false => assert_eq!(all[before], left[after], "conversation {n}"),
                }
            }
            assert!((1_400..1_600).contains(&total), "{total}");
            for share in moved {
                assert!(share.abs_diff(total / 3) < total / 10, "{share} of {total}");
            }
        }
    }

    #[test]
    fn the_order_of_targets_does_not_matter_and_none_is_none() {
        let all = targets(&[2, 1, 7]);
        for n in 0..500 {
            let forth = choose(conversation(n), all.iter().copied()).unwrap();
            let back = choose(conversation(n), all.iter().rev().copied()).unwrap();
            assert_eq!(forth, 2 - back);
        }
        assert_eq!(choose(1, []), None);
        assert_eq!(choose(1, targets(&[0])), Some(0));
    }

    #[test]
    fn the_logarithm_is_exact_where_it_is_known() {
        assert_eq!(exponential(1 << 63), 1 << 32);
        assert_eq!(exponential(1 << 62), 2 << 32);
        assert_eq!(exponential(1), 64 << 32);
        assert_eq!(exponential(0), 64 << 32);
        assert!(exponential(u64::MAX) <= 1);
        // 2^-0.5
        assert!(exponential(0xb504_f333_f9de_6484).abs_diff(1 << 31) <= 1);
        assert!(exponential(3 << 62) < exponential(1 << 63));
    }

    #[test]
    fn the_end_of_a_hash_is_splitmix64s() {
        // The first outputs of its reference implementation from seed 0.
        assert_eq!(mix(GOLDEN_RATIO), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(GOLDEN_RATIO.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn the_order_of_the_targets_decides_only_between_equals() {
        let (mut all, same) = (targets(&[1, 1, 1]), targets(&[1])[0]);
        for conversation in 0..64 {
            let one = choose(conversation, all.clone()).map(|at| all[at]);
            all.reverse();
            assert_eq!(
                choose(conversation, all.clone()).map(|at| all[at]),
                one,
                "{conversation}"
            );
            assert_eq!(choose(conversation, [same, same]), Some(0), "{conversation}");
        }
    }
}
