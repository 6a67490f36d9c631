//! A slot of a cluster that is half moved, and stays so for long: what of an account waits for it, what does not, and what stands in the books
//! when it is closed.

use std::time::{Duration, Instant};

use super::book::RedisBook;
use super::spending::changed;
use super::{patient, request};
use crate::clock::Clock;
use crate::ledger::admin::{AccountView, AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{AmountChange, KeyChange};
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_group::RedisCluster;
use crate::ledger::tests::redis_server::until;
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit, request_at, run};
use crate::ledger::tests::sequences::Book;
use crate::ledger::{Caller, Debit, Hold, Ledger, StoreError};
use crate::pure::account::{ReserveRequest, Spent};
use crate::pure::ids::ApiKey;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::spend::{EndUserId, Reset};

const ACCOUNT: &str = "tg1:{acme}";
const ORDER: &str = "tg1:{acme}:expiry";

/// A cluster of three masters, and the account acme, whose slot is to move from one to another.
struct Ground {
    cluster: RedisCluster,
    ledger: Ledger,
    /// Another gateway's.
    other: Ledger,
    acme: Caller,
    slot: u64,
    from: usize,
    to: usize,
}

impl Ground {
    fn new(options: fn() -> Options) -> Ground {
        let cluster = RedisCluster::start();
        let [ledger, other] = [(); 2].map(|()| Ledger::Redis(RedisLedger::connect(&cluster.url(), options()).unwrap()));
        let acme = caller_of(&ledger, "acme", "100", LimitOverrides::default());
        let (slot, from) = (cluster.slot(ACCOUNT), cluster.master_of("acme"));
        Ground {
            to: (from + 1) % 3,
            cluster,
            ledger,
            other,
            acme,
            slot,
            from,
        }
    }

    /// Opens the slot, and moves some of its keys.
    fn open_and_move(&self, keys: &[&str]) {
        self.cluster.open_slot(self.slot, self.from, self.to);
        for key in keys {
            self.cluster.move_key(key, self.from, self.to);
        }
    }

    /// Moves the rest, and gives the slot to its new master.
    fn close(&self) {
        self.cluster.close_slot(self.slot, self.to);
    }

    /// Balance and what is held, once they are these.
    fn until_left(&self, balance: &str, held: &str) {
        let expected = (credits(balance), credits(held));
        until("the books are right", || {
            let figures = block_on(self.acme.figures());
            figures.is_ok_and(|figures| (figures.balance, figures.held) == expected)
        });
    }

    /// The account as another gateway sees it, which frees the holds whose time is over.
    fn seen_by_other(&self) -> AccountView {
        let account = self.acme.account.id.clone();
        match run(&self.other, AdminOp::AccountShow { account }).unwrap() {
            AdminReply::Account(view) => view,
            other => panic!("{other:?}"),
        }
    }
}

fn key_change(change: KeyChange) -> KeyChange {
    KeyChange {
        limit: Some(AmountChange::To(credits("50"))),
        ..change
    }
}

fn usage_of(caller: &Caller) -> String {
    format!("{ACCOUNT}:usage:{}", caller.key.id)
}

/// A request that comes now, of the end user anna where the key limits those, and whose hold lives for so long.
fn asked(caller: &Caller, n: u64, amount: &str, ttl_ms: i64) -> ReserveRequest {
    let now = Clock::System.now();
    ReserveRequest {
        id: request_at(n, now),
        expires: now.plus_millis(ttl_ms),
        spend: caller.key.settings.spend(&caller.key.id, Some(EndUserId::of("anna"))),
        ..request(n, amount)
    }
}

fn reserve(caller: &Caller, n: u64, amount: &str) -> Hold {
    let ttl_ms = caller.hold_expiry(Clock::System.now()).since(Clock::System.now());
    let asked = asked(caller, n, amount, ttl_ms);
    block_on(caller.reserve(&asked)).unwrap().unwrap()
}

fn debit_of(caller: &Caller, cost: &str) -> Debit {
    Debit {
        key: caller.key.id.clone(),
        ..debit(cost)
    }
}

/// A call that costs 1, and is debited.
fn pay(caller: &Caller, n: u64) {
    reserve(caller, n, "2").settle(debit_of(caller, "1"));
    block_on(caller.figures()).unwrap();
}

/// Holds that live for a moment only, and an age of debits that is soon too high.
fn short() -> Options {
    Options {
        hold_ttl: HOLD_TTL,
        unsettled_age_max: Duration::from_secs(2),
        ..patient()
    }
}

/// A busy machine may keep the ledger's thread from its renewals for two thirds of it.
const HOLD_TTL: Duration = Duration::from_secs(4);

/// Whoever moves the slot stops on half the way. The debit was in front of all others of its master then: after a while all its accounts were
/// refused, and the hold of the debit's call was free, for nobody renewed it.
#[test]
fn a_debit_whose_slot_stays_open_waits_alone_and_with_its_hold() {
    let ground = Ground::new(short);
    let (cluster, acme) = (&ground.cluster, &ground.acme);
    let mut names = (0..).map(|n| format!("account-{n}"));
    let is_beside = |name: &String| cluster.master_of(name) == ground.from && cluster.slot(name) != ground.slot;
    let beside = names.find(is_beside).unwrap();
    let beside = caller_of(&ground.ledger, &beside, "1000", LimitOverrides::default());
    pay(acme, 1);
    let hold = reserve(acme, 2, "2");
    // What its key has used is still at the old master.
    ground.open_and_move(&[ACCOUNT, ORDER]);
    hold.settle(debit_of(acme, "1"));

    let (began, mut calls) = (Instant::now(), 0);
    while began.elapsed() < 3 * HOLD_TTL {
        calls += 1;
        reserve(&beside, 100 + calls, "0.002").settle(debit_of(&beside, "0.001"));
        let left = credits("1000").pico() - i64::try_from(calls).unwrap() * credits("0.001").pico();
        let figures = block_on(beside.figures()).unwrap();
        assert_eq!(figures.balance, Credits::from_pico(left), "after {calls} calls");
    }
    let seen = ground.seen_by_other();
    assert_eq!((seen.open_holds, seen.figures.held), (1, credits("2")));
    assert_eq!(seen.figures.balance, credits("99"));
    // Debits that wait are not to become ever more: the account's own calls are refused.
    let refused = block_on(acme.reserve(&asked(acme, 3, "1", 1000)));
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let metrics = ground.ledger.store_metrics();
    assert_eq!(metrics.unsettled, 1);
    assert!(metrics.unsettled_age >= 2 * HOLD_TTL, "{metrics:?}");

    ground.close();
    ground.until_left("98", "0");
    pay(acme, 4);
    ground.until_left("97", "0");
    until("nothing waits any more", || {
        ground.ledger.store_metrics().unsettled_age.is_zero()
    });
    audit_is_clean(&ground.ledger);
}

/// A key with limits, of which the account and the hash where its end users count are at two masters: one call is given back, one is paid, and
/// the gateway of a third one is dead. The new master sees no hash yet, and took what the calls held of the limit for gone: it stayed held
/// for ever. The old master cannot reach it any more, and served the account no more.
fn what_an_end_user_has_is_exact(goes_first: fn(&str) -> bool) {
    let ground = Ground::new(patient);
    let change = key_change(KeyChange {
        end_user_limit: Some(AmountChange::To(credits("20"))),
        ..KeyChange::default()
    });
    let acme = &changed(&ground.ledger, &ground.acme, change);
    let (user, of_users) = (EndUserId::of("anna"), format!("{ACCOUNT}:spent:{}:t", acme.key.id));
    pay(acme, 1);
    let (given_back, paid) = (reserve(acme, 2, "2"), reserve(acme, 3, "4"));
    let (of_dead, ttl) = (RedisBook::new(&ground.other, "acme"), Duration::from_millis(400));
    let began = Instant::now();
    of_dead.reserve(&asked(acme, 4, "3", 400)).unwrap();
    let of_key = usage_of(acme);
    let mut keys = vec![ACCOUNT, ORDER, of_key.as_str(), of_users.as_str()];
    keys.retain(|key| goes_first(key));
    ground.open_and_move(&keys);
    given_back.release();
    paid.settle(debit_of(acme, "1"));
    until("the dead gateway's hold is over", || began.elapsed() > 2 * ttl);
    let seen = ground.seen_by_other();
    assert_eq!((seen.open_holds, seen.figures.held), (3, credits("9")));

    ground.close();
    ground.until_left("98", "0");
    let counts = || {
        let answer = ground
            .cluster
            .master(ground.to)
            .ask(&format!("HMGET {of_users} c{user} s{user}"));
        answer
            .into_iter()
            .filter(|line| !line.starts_with(['*', '$']))
            .collect::<Vec<_>>()
    };
    let two = credits("2").pico().to_string();
    assert_eq!(counts(), [two.clone(), two], "committed and spent");
    let expected = Spent {
        spent: credits("2"),
        held: Credits::ZERO,
    };
    assert_eq!(block_on(acme.key_spent(Reset::None)), Ok(expected));
    audit_is_clean(&ground.ledger);
}

#[test]
fn what_an_end_user_has_is_exact_where_the_account_moves_first() {
    what_an_end_user_has_is_exact(|key| !key.contains(":spent:"));
}

#[test]
fn what_an_end_user_has_is_exact_where_its_counts_move_first() {
    what_an_end_user_has_is_exact(|key| key.contains(":spent:"));
}

/// A key counts as the one that it came in place of, whose usage is still at the old master: a part of it was made at the new one, and was in
/// the way of the rest.
#[test]
fn what_a_key_in_place_of_another_spends_is_counted_there_once() {
    let ground = Ground::new(patient);
    let (ledger, cluster) = (&ground.ledger, &ground.cluster);
    let old = changed(ledger, &ground.acme, key_change(KeyChange::default()));
    pay(&old, 1);
    let digest = ApiKey::from_random("tg_", [200; 32]).digest();
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Id(old.key.id.clone()),
        digest: digest.to_hex(),
        overlap_ms: 3_600_000,
    };
    run(ledger, rotate).unwrap();
    let found = block_on(ledger.authenticate(&digest)).unwrap().unwrap();
    let new = found.checked(Clock::System.now()).unwrap();
    assert_eq!(new.key.settings.counts_as, Some(old.key.id.clone()));
    pay(&new, 2);
    let hold = reserve(&new, 3, "2");
    ground.open_and_move(&[ACCOUNT, ORDER, &usage_of(&new)]);
    let before = cluster.errors("TRYAGAIN");
    hold.settle(debit_of(&new, "1"));
    until("it is tried", || cluster.errors("TRYAGAIN") > before);
    cluster.move_key(&usage_of(&old), ground.from, ground.to);
    ground.close();
    ground.until_left("97", "0");
    let expected = Spent {
        spent: credits("3"),
        held: Credits::ZERO,
    };
    assert_eq!(block_on(old.key_spent(Reset::None)), Ok(expected));
    audit_is_clean(ledger);
}
