//! Who called, and how chance has it, in the day that `tollgate demo --with-traffic` begins with.

use crate::pure::ids::Tier;

/// An account of the demo, and how much it calls.
pub(super) struct Customer {
    /// Its name.
    pub(super) name: &'static str,
    /// Its tier.
    pub(super) tier: Tier,
    /// Top-ups: hours after the day's begin, and whole credits.
    pub(super) paid: &'static [(i64, i64)],
    /// Labels of its keys.
    pub(super) keys: &'static [&'static str],
    /// Calls in the day, roughly.
    pub(super) calls: u32,
    /// Which models, by their place among those that its tier may use: of as many calls.
    pub(super) taste: &'static [usize],
}

pub(super) const CUSTOMERS: [Customer; 9] = [
    Customer {
        name: "demo",
        tier: Tier::Pro,
        paid: &[(0, 10)],
        keys: &["first key"],
        calls: 160,
        taste: &[0, 0, 2, 2, 4],
    },
    Customer {
        name: "acme",
        tier: Tier::Enterprise,
        paid: &[(0, 50), (15, 25)],
        keys: &["backend", "batch", "staging"],
        calls: 420,
        taste: &[0, 2, 2, 3, 4],
    },
    Customer {
        name: "bluebird",
        tier: Tier::Pro,
        paid: &[(0, 20)],
        keys: &["website"],
        calls: 260,
        taste: &[0, 0, 0, 1, 2],
    },
    Customer {
        name: "cedar-labs",
        tier: Tier::Pro,
        paid: &[(1, 30)],
        keys: &["research", "notebooks"],
        calls: 180,
        taste: &[2, 2, 3, 4],
    },
    Customer {
        name: "dune.io",
        tier: Tier::Lite,
        paid: &[(2, 5)],
        keys: &["app"],
        calls: 150,
        taste: &[0, 0, 1],
    },
    Customer {
        name: "elm_street",
        tier: Tier::Lite,
        paid: &[(0, 2), (9, 2)],
        keys: &["bot"],
        calls: 90,
        taste: &[0, 1],
    },
    Customer {
        name: "fjord",
        tier: Tier::Pro,
        paid: &[(3, 1)],
        keys: &["trial"],
        calls: 400,
        taste: &[2],
    },
    Customer {
        name: "grove",
        tier: Tier::Free,
        paid: &[],
        keys: &["first"],
        calls: 60,
        taste: &[1, 3],
    },
    Customer {
        name: "harbour",
        tier: Tier::Enterprise,
        paid: &[(0, 100)],
        keys: &["search", "support-desk"],
        calls: 240,
        taste: &[0, 2, 3, 4, 4],
    },
];

/// The same numbers each time: the demo looks the same for everybody (xorshift, Marsaglia).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below the bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(bound).unwrap_or(0)
    }

    /// One of them; none of none.
    pub(super) fn one_of<'t, T>(&mut self, of: &'t [T]) -> Option<&'t T> {
        let place = self.below(u64::try_from(of.len()).ok()?);
        of.get(usize::try_from(place).ok()?)
    }
}
