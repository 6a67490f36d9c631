//! Every history of a few calls: whatever is lost, doubled, late, killed, restored or forgotten, a number moves the balance once.

mod producers;
mod world;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use self::world::{Bounds, World};
use super::*;

/// Explores every history within the bounds. The number of states, or what was found wrong first.
///
/// Of a state that was seen two hashes of 64 bits are kept, for whole states take more memory than a machine has. Of 100 million states one
/// is taken for another with a chance of one in 10^22; the seeds are others in each run.
fn explore(rules: &Rules, bounds: &Bounds) -> Result<usize, String> {
    let (one, other) = (RandomState::new(), RandomState::new());
    let fingerprint = |world: &World| (one.hash_one(world), other.hash_one(world));
    let first = World::new(bounds);
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut waiting = vec![first];
    while let Some(world) = waiting.pop() {
        world.end_is_right(rules)?;
        for next in world.steps(rules, bounds)? {
            if seen.insert(fingerprint(&next)) {
                waiting.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// What is explored always, and what only on request: [`LONG`].
const SHORT: [Bounds; 4] = [
    Bounds {
        gateways: &[0, 1],
        kills: 2,
        losses: 0,
        restores: 2,
        forgets: true,
    },
    Bounds {
        gateways: &[0, 0],
        kills: 1,
        losses: 1,
        restores: 1,
        forgets: true,
    },
    Bounds {
        gateways: &[0, 0, 1],
        kills: 1,
        losses: 0,
        restores: 0,
        forgets: true,
    },
    Bounds {
        gateways: &[0, 0, 0],
        kills: 1,
        losses: 0,
        restores: 1,
        forgets: false,
    },
];

/// Minutes of an optimised build: `TOLLGATE_HISTORIES=long cargo nextest run --release --lib history`.
const LONG: [Bounds; 4] = [
    Bounds {
        gateways: &[0, 0, 0, 0],
        kills: 1,
        losses: 0,
        restores: 0,
        forgets: false,
    },
    Bounds {
        gateways: &[0, 0, 1],
        kills: 2,
        losses: 0,
        restores: 2,
        forgets: true,
    },
    Bounds {
        gateways: &[0, 0, 1],
        kills: 2,
        losses: 1,
        restores: 1,
        forgets: true,
    },
    Bounds {
        gateways: &[0, 0, 1, 1],
        kills: 1,
        losses: 0,
        restores: 1,
        forgets: true,
    },
];

#[test]
fn no_history_moves_a_balance_twice_or_loses_a_number() {
    let long = std::env::var("TOLLGATE_HISTORIES").is_ok_and(|which| which == "long");
    for bounds in SHORT.iter().chain(LONG.iter().filter(|_| long)) {
        let started = std::time::Instant::now();
        let states = explore(&RULES, bounds).unwrap_or_else(|wrong| panic!("{bounds:?}: {wrong}"));
        println!("{bounds:?}: {states} states, {:?}", started.elapsed());
        assert!(states > 1_000);
    }
}

/// A name, and the rules with one of them changed.
fn mutations() -> Vec<(&'static str, Rules)> {
    fn only_high(numbers: &mut Numbers, number: u64) {
        numbers.high = numbers.high.max(number);
    }
    vec![
        (
            "a number closes those before it",
            Rules {
                resolve: |numbers, number| {
                    let new = number > numbers.high;
                    only_high(numbers, number);
                    new
                },
                ..RULES
            },
        ),
        (
            "a call that is still open counts as closed",
            Rules {
                resolve: |numbers, number| {
                    let closed = number <= numbers.high;
                    numbers.resolve(number);
                    !closed
                },
                ..RULES
            },
        ),
        (
            "a resolved number stays open",
            Rules {
                resolve: |numbers, number| {
                    let open = !numbers.is_closed(number);
                    numbers.touch(number);
                    open
                },
                ..RULES
            },
        ),
        (
            "a closed number opens again",
            Rules {
                resolve: |numbers, number| {
                    if number < numbers.high && numbers.run_of(number).is_err() {
                        numbers.open.push((number, number));
                        numbers.open.sort_unstable();
                    }
                    numbers.resolve(number)
                },
                ..RULES
            },
        ),
        (
            "a number closes the rest of its run",
            Rules {
                resolve: |numbers, number| {
                    numbers.touch(number);
                    let Ok(run) = numbers.run_of(number) else {
                        return false;
                    };
                    numbers.open.remove(run);
                    true
                },
                ..RULES
            },
        ),
        (
            "numbers that were passed over are closed",
            Rules {
                resolve: |numbers, number| {
                    if number > numbers.high {
                        only_high(numbers, number);
                        return true;
                    }
                    numbers.resolve(number)
                },
                ..RULES
            },
        ),
        (
            "the latest one forgotten is taken for new",
            Rules {
                is_stale: |born, forgotten| forgotten.is_some_and(|latest| born < latest),
                ..RULES
            },
        ),
        (
            "nobody remembers who was forgotten",
            Rules {
                forget: |forgotten, _| forgotten,
                ..RULES
            },
        ),
        (
            "the last one forgotten stands for all",
            Rules {
                forget: |_, born| Some(born),
                ..RULES
            },
        ),
        (
            "a producer is forgotten at once",
            Rules {
                may_forget: |_| true,
                ..RULES
            },
        ),
        (
            "who is unknown is taken for forgotten",
            Rules {
                is_stale: |_, _| true,
                ..RULES
            },
        ),
        (
            "a debit that may have been taken gets another number",
            Rules {
                may_renumber: |_| true,
                ..RULES
            },
        ),
        (
            "a debit that was never sent gets no other number",
            Rules {
                may_renumber: |_| false,
                ..RULES
            },
        ),
        (
            "a new producer is as old as the clock says",
            Rules {
                born: |now, _| now,
                ..RULES
            },
        ),
    ]
}

#[test]
fn every_mutation_of_the_rules_is_found() {
    for (name, rules) in mutations() {
        let found = SHORT.iter().find_map(|bounds| explore(&rules, bounds).err());
        assert!(found.is_some(), "not found: {name}");
        println!("{name}: {}", found.unwrap_or_default());
    }
}

#[test]
fn what_is_not_ascending_and_apart_is_not_believed() {
    assert_eq!(Numbers::restored(9, vec![(2, 3), (5, 9)]).unwrap().high(), 9);
    for (high, open) in [
        (9, vec![(0, 3)]),
        (9, vec![(3, 2)]),
        (9, vec![(2, 3), (4, 5)]),
        (9, vec![(5, 6), (2, 3)]),
        (9, vec![(5, 10)]),
    ] {
        assert_eq!(Numbers::restored(high, open.clone()), None, "{open:?}");
    }
}

/// Against a set of every number, in random orders.
#[test]
fn numbers_are_a_set_of_what_is_open() {
    use proptest::prelude::*;
    proptest!(|(steps in proptest::collection::vec((0u8..2, 1u64..40), 1..80))| {
        let mut numbers = Numbers::default();
        let (mut high, mut open) = (0, std::collections::BTreeSet::new());
        for (kind, number) in steps {
            let touch = |high: &mut u64, open: &mut std::collections::BTreeSet<u64>, number: u64| {
                open.extend(*high + 1..=number);
                *high = (*high).max(number);
            };
            match kind {
                0 => {
                    numbers.touch(number);
                    touch(&mut high, &mut open, number);
                }
                _ => {
                    touch(&mut high, &mut open, number);
                    prop_assert_eq!(numbers.resolve(number), open.remove(&number));
                }
            }
            let counted: Vec<u64> = numbers.open().iter().flat_map(|(first, last)| *first..=*last).collect();
            prop_assert_eq!(counted, open.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers.high(), high);
            prop_assert_eq!(Numbers::restored(high, numbers.open().to_vec()), Some(numbers.clone()));
            prop_assert_eq!(Numbers::read(high, &numbers.open_text()), Some(numbers.clone()));
        }
    });
}
