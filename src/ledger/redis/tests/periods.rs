//! What a key with a limit counts by day, week and month is forgotten 62 days after the period's end, and its limit stays right.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use redis::Value;

use super::super::reply;
use super::book::RedisBook;
use crate::clock::Clock;
use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::ledger::redis::RedisLedger;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{
    NOW, audit, audit_is_clean, block_on, caller_of, credits, debit, patient, redis_of, request, request_at, run,
};
use crate::ledger::tests::sequences::Book;
use crate::ledger::{Caller, Debit, Ledger};
use crate::pure::account::{Denial, ReserveRequest, Settled, Settlement, Spent};
use crate::pure::ids::RequestId;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::spend::{Reset, SpendPeriod};
use crate::pure::time::{Day, Timestamp};

const DAY_MS: i64 = 86_400_000;

/// An account with one key, and its calls.
struct Calls {
    clock: Clock,
    ledger: Ledger,
    caller: Caller,
    book: RedisBook,
    asked: u64,
    settled: u64,
    server: RedisServer,
}

impl Calls {
    fn new() -> Calls {
        let server = RedisServer::start();
        let clock = Clock::manual(NOW);
        let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), patient(clock.clone())).unwrap());
        let caller = caller_of(&ledger, "acme", "1000", LimitOverrides::default());
        let book = RedisBook::new(&ledger, "acme");
        Calls {
            clock,
            ledger,
            caller,
            book,
            asked: 0,
            settled: 0,
            server,
        }
    }

    /// The key has a limit of each day from now on.
    fn limit(&mut self, amount: &str) {
        let change = KeyChange {
            limit: Some(AmountChange::To(credits(amount))),
            limit_reset: Some(Reset::Daily),
            ..KeyChange::default()
        };
        let op = AdminOp::KeySet {
            key: KeyRef::Id(self.caller.key.id.clone()),
            change: Box::new(change),
        };
        match run(&self.ledger, op).unwrap() {
            AdminReply::Key(record) => self.caller.key = Arc::new(record),
            other => panic!("{other:?}"),
        }
    }

    fn today(&self) -> Day {
        self.clock.now().day()
    }

    /// The reserve of a call that came `at`, and whose hold lives for so many days from now on.
    fn ask(&mut self, at: Timestamp, wanted: &str, days: i64) -> ReserveRequest {
        self.asked += 1;
        ReserveRequest {
            id: request_at(self.asked, at),
            spend: self.caller.key.settings.spend(&self.caller.key.id, None),
            expires: self.clock.now().plus_millis(days * DAY_MS),
            ..request(self.asked, wanted)
        }
    }

    fn settle(&mut self, hold: RequestId, cost: &str) {
        self.settled += 1;
        let settlement = Settlement {
            hold,
            cost: credits(cost),
            tokens: 2,
            number: CallNumber::new(ProducerId(7), self.settled),
        };
        let debit = Debit {
            key: self.caller.key.id.clone(),
            ..debit(cost)
        };
        let settled = self.book.settle(&settlement, &debit, None);
        assert!(matches!(settled, Settled::Now { .. }), "{settled:?}");
    }

    /// A call that came now.
    fn pay(&mut self) {
        let now = self.clock.now();
        let asked = self.ask(now, "0.2", 1);
        self.book.reserve(&asked).unwrap();
        self.settle(asked.id, "0.1");
    }

    /// A call on each of the next days.
    fn pay_daily(&mut self, days: i64) {
        for _ in 0..days {
            self.clock.advance(DAY_MS);
            self.pay();
        }
    }

    fn command(&self, words: &[&[u8]]) -> Value {
        let [name, arguments @ ..] = words else {
            panic!("no command")
        };
        let mut command = redis::cmd(std::str::from_utf8(name).unwrap());
        command.arg(arguments);
        let shared = &redis_of(&self.ledger).shared;
        block_on(async { shared.command(&shared.link(), command).await.unwrap() })
    }

    /// The periods that the key counts in.
    fn counted(&self) -> BTreeSet<String> {
        let key = &self.caller.key.id;
        let kinds = ["us", "uc"].map(|kind| format!("{kind}{key} "));
        let names = self.command(&[b"HKEYS", b"tg1:{acme}"]);
        // The names of holds are no texts.
        let names = reply::list(&names)
            .unwrap()
            .iter()
            .filter_map(|name| reply::text(name).ok());
        let periods = names.filter_map(|name| kinds.iter().find_map(|kind| name.strip_prefix(kind.as_str())));
        periods.map(str::to_owned).collect()
    }

    fn spent(&self, reset: Reset) -> Spent {
        self.book.spent(&self.caller.key.id, reset)
    }
}

/// Those periods of some days that are not over for more than 62 days.
fn kept(days: RangeInclusive<i64>, today: Day) -> BTreeSet<String> {
    let oldest = Day(today.0 - 62);
    let all = days.flat_map(|day| SpendPeriod::all_of(Day(day)));
    let kept = all.filter(|period| !period.is_before(oldest));
    kept.map(|period| period.to_string()).collect()
}

fn spent(amount: &str) -> Spent {
    Spent {
        spent: credits(amount),
        held: Credits::ZERO,
    }
}

#[test]
fn a_period_is_forgotten_62_days_after_its_end() {
    let mut calls = Calls::new();
    calls.limit("5");
    calls.pay();
    calls.pay_daily(150);
    let today = calls.today();
    assert_eq!(calls.counted(), kept(NOW.day().0..=today.0, today));
    assert_eq!(calls.spent(Reset::Daily), spent("0.1"));
    assert_eq!(calls.spent(Reset::None), spent("15.1"));
    audit_is_clean(&calls.ledger);
}

#[test]
fn a_key_that_was_not_used_for_long_forgets_at_its_next_use() {
    let mut calls = Calls::new();
    calls.limit("5");
    calls.pay();
    calls.pay_daily(9);
    calls.clock.advance(200 * DAY_MS);
    calls.pay();
    let today = calls.today();
    assert_eq!(calls.counted(), kept(today.0..=today.0, today));
    assert_eq!(calls.spent(Reset::None), spent("1.1"));
    audit_is_clean(&calls.ledger);
}

/// A reserve and a settlement look at 64 days each, so that nobody waits long for either.
#[test]
fn what_earlier_versions_counted_is_forgotten_by_and_by() {
    let mut calls = Calls::new();
    calls.limit("5");
    let key = calls.caller.key.id.clone();
    calls.server.ask(&format!("HDEL tg1:{{acme}} ud{key}"));
    let first = NOW.day();
    for day in 0..300 {
        let periods = SpendPeriod::all_of(Day(first.0 + day));
        let periods = periods.iter().filter(|period| **period != SpendPeriod::Life);
        let fields: Vec<String> = periods
            .map(|period| format!("\"uc{key} {period}\" 5 \"us{key} {period}\" 5"))
            .collect();
        calls.server.ask(&format!("HSET tg1:{{acme}} {}", fields.join(" ")));
    }
    let days_counted = |calls: &Calls| {
        let counted = calls.counted();
        counted.iter().filter(|period| period.starts_with('d')).count()
    };
    assert_eq!(days_counted(&calls), 300);
    calls.clock.advance(300 * DAY_MS);
    calls.pay();
    // It began a day before the account was made, and today is a new one.
    assert_eq!(days_counted(&calls), 300 - (2 * 64 - 1) + 1);
    calls.pay_daily(1);
    let today = calls.today();
    assert_eq!(calls.counted(), kept(first.0..=today.0, today));
    assert_eq!(calls.spent(Reset::None), spent("0.2"));
    audit_is_clean(&calls.ledger);
}

/// Such as one from the journal of a machine that was away.
#[test]
fn a_debit_of_a_forgotten_day_counts_and_is_forgotten_again() {
    let mut calls = Calls::new();
    calls.limit("5");
    let late = calls.ask(NOW, "0.7", 1);
    calls.book.reserve(&late).unwrap();
    calls.pay_daily(100);
    let day = NOW.day();
    let of_day = SpendPeriod::Day(day).to_string();
    assert!(!calls.counted().contains(&of_day));
    calls.settle(late.id, "0.5");
    assert!(calls.counted().contains(&of_day));
    assert_eq!(calls.spent(Reset::Daily), spent("0.1"));
    assert_eq!(calls.spent(Reset::None), spent("10.5"));
    audit_is_clean(&calls.ledger);
    calls.pay_daily(1);
    let today = calls.today();
    assert_eq!(calls.counted(), kept(day.0..=today.0, today));
    assert_eq!(calls.spent(Reset::None), spent("10.6"));
    audit_is_clean(&calls.ledger);
}

#[test]
fn a_day_of_which_a_call_still_holds_something_is_not_forgotten() {
    let mut calls = Calls::new();
    calls.limit("5");
    let long = calls.ask(NOW, "0.7", 200);
    calls.book.reserve(&long).unwrap();
    calls.pay_daily(100);
    let day = NOW.day();
    assert!(calls.counted().contains(&SpendPeriod::Day(day).to_string()));
    assert_eq!(calls.spent(Reset::None).held, credits("0.7"));
    audit_is_clean(&calls.ledger);
    calls.settle(long.id, "0.5");
    audit_is_clean(&calls.ledger);
    calls.pay_daily(1);
    let today = calls.today();
    assert_eq!(calls.counted(), kept(day.0..=today.0, today));
    assert_eq!(calls.spent(Reset::None), spent("10.6"));
    audit_is_clean(&calls.ledger);
}

/// A gateway of a version that knows no limits has freed the hold: what it took of them is left, also of a day that is long over.
#[test]
fn what_a_repair_frees_is_forgotten_after_it() {
    let mut calls = Calls::new();
    calls.limit("5");
    let left = calls.ask(NOW, "1", 200);
    calls.book.reserve(&left).unwrap();
    let field = [b"h".as_slice(), left.id.as_bytes()].concat();
    let steps: [&[&[u8]]; 5] = [
        &[b"HINCRBY", b"tg1:{acme}", b"avail", b"1000000000000"],
        &[b"HINCRBY", b"tg1:{acme}", b"committed", b"-1000000000000"],
        &[b"HSET", b"tg1:{acme}", b"w", b"0 0 0 0"],
        &[b"HDEL", b"tg1:{acme}", &field],
        &[b"ZREM", b"tg1:{acme}:expiry", left.id.as_bytes()],
    ];
    for step in steps {
        calls.command(step);
    }
    calls.pay_daily(100);
    let day = NOW.day();
    assert!(calls.counted().contains(&SpendPeriod::Day(day).to_string()));
    assert_eq!(audit(&calls.ledger).findings.len(), 1);
    run(&calls.ledger, AdminOp::Repair).unwrap();
    audit_is_clean(&calls.ledger);
    calls.pay_daily(1);
    let today = calls.today();
    assert_eq!(calls.counted(), kept(day.0..=today.0, today));
    audit_is_clean(&calls.ledger);
}

/// What was spent today must not be forgotten, whatever day it is for Redis, or for a gateway.
#[test]
fn one_clock_that_is_wrong_takes_nothing_from_a_limit() {
    let mut calls = Calls::new();
    calls.limit("1");
    let asked = calls.ask(NOW, "0.6", 1);
    calls.book.reserve(&asked).unwrap();
    calls.settle(asked.id, "0.6");
    let ahead = 400 * DAY_MS;
    // Redis' clock is wrong: the call comes on the next day.
    calls.clock.advance(ahead);
    let asked = calls.ask(NOW.plus_millis(DAY_MS), "0.1", 1);
    calls.book.reserve(&asked).unwrap();
    calls.clock.advance(-ahead);
    // The gateway's is.
    let asked = calls.ask(NOW.plus_millis(ahead), "0.1", 1);
    calls.book.reserve(&asked).unwrap();
    let more = calls.ask(NOW, "0.5", 1);
    let refused = calls.book.reserve(&more);
    assert!(matches!(refused, Err(Denial::Spent { .. })), "{refused:?}");
    let less = calls.ask(NOW, "0.4", 1);
    calls.book.reserve(&less).unwrap();
}

#[test]
fn a_limit_that_comes_late_counts_no_periods_of_long_ago() {
    let mut calls = Calls::new();
    calls.pay();
    calls.pay_daily(150);
    let (first, last) = (NOW.day().0, calls.today().0);
    calls.clock.advance(10 * DAY_MS);
    calls.limit("5");
    let of_last_days = kept(last - 62..=last, Day(last - 62));
    assert_eq!(calls.counted(), of_last_days);
    assert_eq!(calls.spent(Reset::None), spent("15.1"));
    audit_is_clean(&calls.ledger);
    calls.pay_daily(3);
    let today = calls.today();
    let expected = &kept(first..=last, today) | &kept(today.0 - 2..=today.0, today);
    assert_eq!(calls.counted(), expected);
    assert_eq!(calls.spent(Reset::None), spent("15.4"));
    audit_is_clean(&calls.ledger);
}
