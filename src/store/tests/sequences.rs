//! Random sequences of steps: every store answers each of them as the reference does, and its books balance at the end.
//!
//! `TOLLGATE_LEDGER_SEQUENCES` is the number of sequences a store (500).

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::rig::{NOW, Rig, audit, request_id, run};
use crate::clock::Clock;
use crate::pure::account::{AccountState, Denial, Granted, ProducerId, ReserveRequest, Scope, Settled, Settlement};
use crate::pure::ids::{RequestId, Tier};
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::time::{Day, Period, Timestamp};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};
use crate::store::admin::{AdminError, AdminOp, AdminReply};
use crate::store::{Debit, Figures, Ledger, UsageRow};

/// One account of a store, with every step of the reference.
pub(in crate::store) trait Book {
    fn clock(&self) -> &Clock;
    fn reserve(&self, request: &ReserveRequest) -> Result<Granted, Denial>;
    /// `known` is what the sender believes of the hold; it need not be true.
    fn settle(&self, settlement: &Settlement, debit: &Debit, known: Option<&(Scope, Credits)>) -> Settled;
    fn release(&self, hold: RequestId) -> Option<Credits>;
    fn renew(&self, hold: RequestId, expires: Timestamp) -> bool;
    fn expire(&self) -> usize;
    fn rate(&self, scope: &Scope, limits: Limits) -> Option<RateView>;
    /// Figures and number of open holds, after what is over has expired.
    fn view(&self) -> (Figures, usize);
}

/// One step.
#[derive(Clone, Debug)]
enum Step {
    Reserve {
        slot: u8,
        wanted: i64,
        least_percent: u8,
        tokens: u64,
        scope: u8,
        tight: bool,
        quota: Quota,
        ttl_ms: i64,
    },
    Settle {
        slot: u8,
        cost: Cost,
        tokens: u64,
        producer: u8,
        number: Number,
        known: Known,
        model: u8,
    },
    Release(u8),
    Renew(u8, i64),
    Expire,
    TopUp(i64),
    /// The same reference again, with the same or another amount.
    TopUpAgain(bool),
    Clock(Move),
    /// The last reserve or settlement once more, as after a lost answer.
    Again,
    Look,
}

#[derive(Clone, Copy, Debug)]
enum Quota {
    Far,
    Near(i64),
    Zero,
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    Zero,
    Below,
    Exactly,
    Above(i64),
    Any(i64),
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Next,
    Before(u8),
    Ahead(u8),
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Nothing,
    Truth,
    Lie,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Forward(i64),
    Back(i64),
    /// One millisecond before the next midnight.
    ToMidnight,
    /// One millisecond before the next month.
    ToMonth,
}

/// The reference with what it does not keep: usage, top-ups and the steps that can be repeated.
struct Model {
    state: AccountState,
    usage: BTreeMap<(Day, String), (u64, u64, u64, Credits)>,
    holds: BTreeMap<u8, (Scope, Credits)>,
    /// Spent in the month of the last settlement.
    used: Credits,
    top_ups: Vec<i64>,
    last: Option<Last>,
}

enum Last {
    Reserve(ReserveRequest),
    Settle(Settlement, Debit),
}

#[test]
fn the_embedded_store_answers_as_the_reference_does() {
    let rig = Rig::embedded();
    all_sequences(&rig, |name| {
        Box::new(crate::store::embedded::book::EmbeddedBook::new(&rig.ledger, name))
    });
}

#[test]
fn the_scripts_in_redis_answer_as_the_reference_does() {
    let rig = Rig::redis();
    all_sequences(&rig, |name| {
        Box::new(crate::store::redis::tests::book::RedisBook::new(&rig.ledger, name))
    });
}

fn all_sequences(rig: &Rig, open: impl Fn(&str) -> Box<dyn Book>) {
    let cases = std::env::var("TOLLGATE_LEDGER_SEQUENCES").map_or(500, |text| text.parse().unwrap());
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let count = Cell::new(0u32);
    let outcome = runner.run(&prop::collection::vec(step(), 1..60), |steps| {
        count.set(count.get() + 1);
        let name = format!("account-{}", count.get());
        let create = AdminOp::AccountCreate {
            account: name.parse().unwrap(),
            tier: Tier::Free,
            quota_pico: None,
        };
        run(&rig.ledger, create).unwrap();
        rig.clock.advance(NOW.since(rig.clock.now()));
        sequence(&rig.ledger, &name, &*open(&name), &steps)?;
        // An audit looks at every account, so only now and then.
        if count.get().is_multiple_of(50) {
            prop_assert_eq!(audit(&rig.ledger).findings, []);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(audit(&rig.ledger).findings, []);
}

fn sequence(ledger: &Ledger, name: &str, book: &dyn Book, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model {
        state: AccountState::default(),
        usage: BTreeMap::new(),
        holds: BTreeMap::new(),
        used: Credits::ZERO,
        top_ups: Vec::new(),
        last: None,
    };
    for step in steps {
        take(ledger, name, book, &mut model, step)?;
    }
    look(book, &mut model)?;
    prop_assert_eq!(rows(ledger, name), model.rows());
    Ok(())
}

fn take(ledger: &Ledger, name: &str, book: &dyn Book, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    let now = book.clock().now();
    match step {
        Step::Reserve { .. } => {
            let Some(request) = model.request(step, now) else {
                return Ok(());
            };
            let expected = model.state.reserve(&request, now);
            prop_assert_eq!(book.reserve(&request), expected);
            if let (Ok(granted), Step::Reserve { slot, .. }) = (expected, step) {
                model.holds.insert(*slot, (request.scope.clone(), granted.amount));
            }
            if let Some(seen) = book.rate(&request.scope, request.limits) {
                prop_assert_eq!(seen, model.state.rate(&request.scope, request.limits, now));
            }
            model.last = Some(Last::Reserve(request));
        }
        Step::Settle { slot, known, .. } => {
            let Some((settlement, debit)) = model.settlement(step, now) else {
                return Ok(());
            };
            let believed = match known {
                Known::Nothing => None,
                Known::Truth => model.holds.get(slot).cloned(),
                Known::Lie => Some((Scope::Account, Credits::from_pico(77))),
            };
            let expected = model.settle(&settlement, &debit, now);
            prop_assert_eq!(book.settle(&settlement, &debit, believed.as_ref()), expected);
            model.last = Some(Last::Settle(settlement, debit));
        }
        Step::Release(slot) => {
            prop_assert_eq!(book.release(hold_id(*slot)), model.state.release(hold_id(*slot)));
        }
        Step::Renew(slot, ttl_ms) => {
            let expires = now.plus_millis(*ttl_ms);
            prop_assert_eq!(
                book.renew(hold_id(*slot), expires),
                model.state.renew(hold_id(*slot), expires)
            );
        }
        Step::Expire => prop_assert_eq!(book.expire(), model.state.expire(now)),
        Step::TopUp(amount) => {
            model.top_ups.push(*amount);
            let fits = model.state.top_up(Credits::from_pico(*amount));
            if !fits {
                model.top_ups.pop();
            }
            let reference = if fits { model.top_ups.len() } else { 0 };
            top_up(
                ledger,
                name,
                *amount,
                reference,
                model,
                if fits { Ok(true) } else { Err(()) },
            )?;
        }
        Step::TopUpAgain(same) => {
            if let Some(amount) = model.top_ups.last().copied() {
                let (amount, expected) = if *same {
                    (amount, Ok(false))
                } else {
                    (amount ^ 1, Err(()))
                };
                if amount > 0 {
                    top_up(ledger, name, amount, model.top_ups.len(), model, expected)?;
                }
            }
        }
        Step::Clock(to) => move_clock(book.clock(), *to),
        Step::Again => again(book, model, now)?,
        Step::Look => look(book, model)?,
    }
    Ok(())
}

fn again(book: &dyn Book, model: &mut Model, now: Timestamp) -> Result<(), TestCaseError> {
    match model.last.take() {
        Some(Last::Reserve(request)) => {
            prop_assert_eq!(book.reserve(&request), model.state.reserve(&request, now));
            model.last = Some(Last::Reserve(request));
        }
        Some(Last::Settle(settlement, debit)) => {
            let expected = model.settle(&settlement, &debit, now);
            prop_assert_eq!(book.settle(&settlement, &debit, None), expected);
            model.last = Some(Last::Settle(settlement, debit));
        }
        None => {}
    }
    Ok(())
}

fn look(book: &dyn Book, model: &mut Model) -> Result<(), TestCaseError> {
    let now = book.clock().now();
    model.state.expire(now);
    let expected = Figures {
        balance: model.state.balance(),
        held: model.state.held(),
        monthly_used: model.state.month_used(now),
    };
    prop_assert_eq!(book.view(), (expected, model.state.open_holds()));
    Ok(())
}

fn top_up(
    ledger: &Ledger,
    name: &str,
    amount: i64,
    reference: usize,
    model: &Model,
    expected: Result<bool, ()>,
) -> Result<(), TestCaseError> {
    let reply = run(
        ledger,
        AdminOp::CreditsAdd {
            account: name.parse().unwrap(),
            amount: Credits::from_pico(amount),
            reference: format!("reference {reference}"),
        },
    );
    match expected {
        Ok(added) => {
            let balance = model.state.balance();
            prop_assert_eq!(reply, Ok(AdminReply::Credited { added, balance }));
        }
        Err(()) => {
            let refused = matches!(reply, Err(AdminError::Invalid(_) | AdminError::ReferenceConflict(_)));
            prop_assert!(refused, "{:?}", reply);
        }
    }
    Ok(())
}

fn rows(ledger: &Ledger, name: &str) -> Vec<UsageRow> {
    let op = AdminOp::Usage {
        account: name.parse().unwrap(),
        period: Period::All,
    };
    match run(ledger, op).unwrap() {
        AdminReply::Usage { rows } => rows,
        other => panic!("{other:?}"),
    }
}

impl Model {
    fn request(&self, step: &Step, now: Timestamp) -> Option<ReserveRequest> {
        let Step::Reserve {
            slot,
            wanted,
            least_percent,
            tokens,
            scope,
            tight,
            quota,
            ttl_ms,
        } = *step
        else {
            return None;
        };
        let limits = if tight {
            Limits {
                rpm: 5,
                tpm: 500,
                concurrency: 3,
            }
        } else {
            Limits {
                rpm: 1000,
                tpm: 100_000,
                concurrency: 1000,
            }
        };
        // Beyond the range the stores may differ in what they refuse; a test of its own looks at that.
        self.used
            .checked_add(self.state.held())?
            .checked_add(Credits::from_pico(wanted))?;
        let used = self.state.month_used(now).pico();
        let at_least = i128::from(wanted) * i128::from(least_percent) / 100;
        Some(ReserveRequest {
            id: hold_id(slot),
            scope: scope_of(scope),
            limits,
            quota: Credits::from_pico(match quota {
                Quota::Far => i64::MAX,
                Quota::Near(more) => used.saturating_add(more),
                Quota::Zero => 0,
            }),
            wanted: Credits::from_pico(wanted),
            at_least: Credits::from_pico(i64::try_from(at_least).unwrap()),
            tokens,
            expires: now.plus_millis(ttl_ms),
        })
    }

    fn settlement(&self, step: &Step, now: Timestamp) -> Option<(Settlement, Debit)> {
        let Step::Settle {
            slot,
            cost,
            tokens,
            producer,
            number,
            model,
            ..
        } = *step
        else {
            return None;
        };
        let held = self.holds.get(&slot).map_or(0, |(_, amount)| amount.pico());
        let cost = match cost {
            Cost::Zero => 0,
            Cost::Below => held / 2,
            Cost::Exactly => held,
            Cost::Above(more) => held.saturating_add(more),
            Cost::Any(cost) => cost,
        };
        // Beyond the range the stores may differ in what they refuse; a test of its own looks at that.
        let (balance, held) = (self.state.balance().pico(), self.state.held().pico());
        let used = self.state.month_used(now).pico();
        let far = |sum: i128| sum.unsigned_abs() > 9_000_000_000_000_000_000;
        if far(i128::from(balance) - i128::from(held) - i128::from(cost))
            || far(i128::from(used) + i128::from(held) + i128::from(cost))
        {
            return None;
        }
        let producer = ProducerId(u64::MAX - u64::from(producer));
        let last = self.state.last_sequence(producer);
        let settlement = Settlement {
            hold: hold_id(slot),
            cost: Credits::from_pico(cost),
            tokens,
            producer,
            sequence: match number {
                Number::Next => last + 1,
                Number::Before(n) => last.saturating_sub(u64::from(n)),
                Number::Ahead(n) => last + 2 + u64::from(n),
            },
        };
        let debit = Debit {
            model: format!("provider/model-{model}").into(),
            key: "key_x".to_owned().into(),
            usage: Usage {
                prompt: PromptTokens(tokens / 3),
                completion: CompletionTokens(tokens - tokens / 3),
            },
            cost: settlement.cost,
        };
        Some((settlement, debit))
    }

    fn settle(&mut self, settlement: &Settlement, debit: &Debit, now: Timestamp) -> Settled {
        let settled = self.state.settle(settlement, now);
        if let Settled::Now { .. } = settled {
            self.used = self.state.month_used(now);
            let row = self.usage.entry((now.day(), debit.model.to_string())).or_default();
            row.0 += 1;
            row.1 += debit.usage.prompt.0;
            row.2 += debit.usage.completion.0;
            row.3 = row.3.checked_add(debit.cost).unwrap();
        }
        settled
    }

    fn rows(&self) -> Vec<UsageRow> {
        let row = |((day, model), sums): (&(Day, String), &(u64, u64, u64, Credits))| UsageRow {
            day: *day,
            model: model.clone(),
            requests: sums.0,
            prompt_tokens: sums.1,
            completion_tokens: sums.2,
            cost: sums.3,
        };
        self.usage.iter().map(row).collect()
    }
}

fn hold_id(slot: u8) -> RequestId {
    request_id(u64::from(slot) + 1)
}

fn scope_of(scope: u8) -> Scope {
    match scope {
        0 | 1 => Scope::Account,
        n => Scope::Key(format!("key_{n:016x}").into()),
    }
}

fn move_clock(clock: &Clock, to: Move) {
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
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 1i64..2000,
        2 => Just(1i64),
        2 => (1i64 << 52)..(1 << 54),
        1 => Just(9_000_000_000_000_000_000i64),
        1 => 1i64..(1 << 62),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let slot = || 0u8..6;
    let ttl = || prop_oneof![3 => 1i64..120_000, 1 => Just(60_000i64), 1 => -5i64..5];
    let quota = prop_oneof![4 => Just(Quota::Far), 2 => amount().prop_map(Quota::Near), 1 => Just(Quota::Zero)];
    let cost = prop_oneof![
        Just(Cost::Zero),
        Just(Cost::Below),
        Just(Cost::Exactly),
        amount().prop_map(Cost::Above),
        amount().prop_map(Cost::Any),
    ];
    let number = prop_oneof![
        8 => Just(Number::Next),
        1 => (0u8..3).prop_map(Number::Before),
        1 => (0u8..3).prop_map(Number::Ahead),
    ];
    let known = prop_oneof![1 => Just(Known::Nothing), 3 => Just(Known::Truth), 1 => Just(Known::Lie)];
    let clock = prop_oneof![
        3 => (1i64..20_000).prop_map(Move::Forward),
        1 => (55_000i64..65_000).prop_map(Move::Forward),
        1 => (1i64..90_000_000).prop_map(Move::Back),
        1 => Just(Move::ToMidnight),
        1 => Just(Move::ToMonth),
    ];
    let wanted = prop_oneof![1 => Just(0i64), 6 => amount()];
    let reserve = (
        slot(),
        wanted,
        0u8..=100,
        0u64..600,
        0u8..4,
        any::<bool>(),
        quota,
        ttl(),
    );
    let settle = (slot(), cost, 0u64..600, 0u8..3, number, known, 0u8..3);
    prop_oneof![
        8 => reserve.prop_map(|(slot, wanted, least_percent, tokens, scope, tight, quota, ttl_ms)| Step::Reserve {
            slot, wanted, least_percent, tokens, scope, tight, quota, ttl_ms,
        }),
        6 => settle.prop_map(|(slot, cost, tokens, producer, number, known, model)| Step::Settle {
            slot, cost, tokens, producer, number, known, model,
        }),
        1 => slot().prop_map(Step::Release),
        1 => (slot(), ttl()).prop_map(|(slot, ttl)| Step::Renew(slot, ttl)),
        1 => Just(Step::Expire),
        3 => amount().prop_map(Step::TopUp),
        1 => any::<bool>().prop_map(Step::TopUpAgain),
        3 => clock.prop_map(Step::Clock),
        1 => Just(Step::Again),
        1 => Just(Step::Look),
    ]
}
