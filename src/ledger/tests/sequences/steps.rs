//! The steps, and how they are drawn.

use proptest::prelude::*;

use crate::clock::Clock;
use crate::ledger::tests::rig::{NOW, request_at};
use crate::pure::account::Scope;
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::spend::{EndUserId, Reset};
use crate::pure::time::Day;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Reserve {
        slot: u8,
        wanted: i64,
        least_percent: u8,
        tokens: u64,
        scope: u8,
        tight: bool,
        quota: Quota,
        ttl_ms: i64,
        is_counted: bool,
        spend: Option<Spend>,
    },
    Settle {
        slot: u8,
        cost: Cost,
        tokens: u64,
        producer: u8,
        number: Number,
        known: Known,
        model: u8,
        end_user: Option<(u8, Reset)>,
    },
    Release(u8),
    /// A hold is to be raised by so much, or by so many percent of that.
    Extend {
        slot: u8,
        more: i64,
        least_percent: u8,
        quota: Quota,
    },
    Renew(u8, i64),
    Expire,
    TopUp(i64),
    /// A correction of so much, which may take more than is available.
    Correct {
        amount: i64,
        takes: bool,
        may_exceed: bool,
    },
    /// The same reference again, with the same or another amount.
    TopUpAgain(bool),
    Clock(Move),
    /// The last reserve or settlement once more, as after a lost answer.
    Again,
    Look,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Quota {
    Far,
    Near(i64),
    Zero,
}

/// Hard limits: of the key, and of one of its end users.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spend {
    pub(super) own: Option<(Quota, Reset)>,
    pub(super) end_user: Option<(u8, Quota, Reset)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    Zero,
    Below,
    Exactly,
    Above(i64),
    Any(i64),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Next,
    Before(u8),
    Ahead(u8),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Nothing,
    Truth,
    Lie,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    Forward(i64),
    Back(i64),
    /// One millisecond before the next midnight.
    ToMidnight,
    /// One millisecond before the next month.
    ToMonth,
}

/// Requests of the same day, the next, and of other weeks and months, whatever the clock says.
pub(super) fn hold_id(slot: u8) -> RequestId {
    let days = [0, 0, 0, 1, 7, 31].get(usize::from(slot)).copied().unwrap_or(0);
    request_at(u64::from(slot) + 1, NOW.plus_millis(days * 86_400_000))
}

/// The key of a slot's requests.
pub(super) fn key_of(slot: u8) -> KeyId {
    format!("key_x{}", slot % 2).into()
}

/// The end user of this number.
pub(super) fn end_user_of(number: u8) -> EndUserId {
    EndUserId::of(&number.to_string())
}

pub(super) fn scope_of(scope: u8) -> Scope {
    match scope {
        0 | 1 => Scope::Account,
        n => Scope::Key(format!("key_{n:016x}").into()),
    }
}

pub(super) fn move_clock(clock: &Clock, to: Move) {
    let now = clock.now();
    clock.advance(match to {
        Move::Forward(ms) => ms,
        Move::Back(ms) => -ms,
        Move::ToMidnight => (now.day().0 + 1) * 86_400_000 - 1 - now.0,
        Move::ToMonth => {
            let next = (1..=31).map(|days| Day(now.day().0 + days));
            let first = next.into_iter().find(|day| day.month() != now.month()).unwrap();
            first.0 * 86_400_000 - 1 - now.0
        }
    });
}

/// Amounts of every size: what a call costs, the smallest, those that a double cannot hold, and the largest.
pub(super) fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 1i64..2000,
        2 => Just(1i64),
        2 => (1i64 << 52)..(1 << 54),
        1 => Just(9_000_000_000_000_000_000i64),
        1 => 1i64..(1 << 62),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let slot = || 0u8..6;
    let ttl = || prop_oneof![3 => 1i64..120_000, 1 => Just(60_000i64), 1 => -5i64..5];
    let quota = || prop_oneof![4 => Just(Quota::Far), 2 => amount().prop_map(Quota::Near), 1 => Just(Quota::Zero)];
    let cost = prop_oneof![
        Just(Cost::Zero),
        Just(Cost::Below),
        Just(Cost::Exactly),
        amount().prop_map(Cost::Above),
        amount().prop_map(Cost::Any),
    ];
    let number = prop_oneof![
        4 => Just(Number::Next),
        3 => (0u8..12).prop_map(Number::Before),
        3 => (0u8..6).prop_map(Number::Ahead),
    ];
    let known = prop_oneof![1 => Just(Known::Nothing), 3 => Just(Known::Truth), 1 => Just(Known::Lie)];
    let clock = prop_oneof![
        3 => (1i64..20_000).prop_map(Move::Forward),
        1 => (55_000i64..65_000).prop_map(Move::Forward),
        1 => (1i64..90_000_000).prop_map(Move::Back),
        1 => Just(Move::ToMidnight),
        1 => Just(Move::ToMonth),
        1 => Just(Move::Forward(400 * 86_400_000)),
        1 => Just(Move::Back(400 * 86_400_000)),
    ];
    let wanted = prop_oneof![1 => Just(0i64), 6 => amount()];
    let reset = || proptest::sample::select(Reset::ALL.to_vec());
    let own = proptest::option::weighted(0.7, (quota(), reset()));
    let end_user = || proptest::option::weighted(0.6, (0u8..3, quota(), reset()));
    let spend = (own, end_user()).prop_map(|(own, end_user)| Spend { own, end_user });
    let spend = proptest::option::weighted(0.5, spend);
    let reserve = (
        slot(),
        wanted,
        0u8..=100,
        0u64..600,
        0u8..4,
        any::<bool>(),
        quota(),
        ttl(),
        any::<bool>(),
        spend,
    );
    let of_end_user = proptest::option::of((0u8..3, reset()));
    let settle = (slot(), cost, 0u64..600, 0u8..3, number, known, 0u8..3, of_end_user);
    prop_oneof![
        8 => reserve.prop_map(|(slot, wanted, least_percent, tokens, scope, tight, quota, ttl_ms, is_counted, spend)| Step::Reserve {
            slot, wanted, least_percent, tokens, scope, tight, quota, ttl_ms, is_counted, spend,
        }),
        6 => settle.prop_map(|(slot, cost, tokens, producer, number, known, model, end_user)| Step::Settle {
            slot, cost, tokens, producer, number, known, model, end_user,
        }),
        1 => slot().prop_map(Step::Release),
        2 => (slot(), prop_oneof![1 => Just(0i64), 6 => amount()], 0u8..=100, quota()).prop_map(|(slot, more, least_percent, quota)| {
            Step::Extend { slot, more, least_percent, quota }
        }),
        1 => (slot(), ttl()).prop_map(|(slot, ttl)| Step::Renew(slot, ttl)),
        1 => Just(Step::Expire),
        3 => amount().prop_map(Step::TopUp),
        2 => (amount(), any::<bool>(), any::<bool>()).prop_map(|(amount, takes, may_exceed)| Step::Correct {
            amount, takes, may_exceed,
        }),
        1 => any::<bool>().prop_map(Step::TopUpAgain),
        3 => clock.prop_map(Step::Clock),
        1 => Just(Step::Again),
        1 => Just(Step::Look),
    ]
}
