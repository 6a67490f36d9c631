//! A cluster whose masters fail one by one: what one of them does not answer is nothing to the accounts of the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::request;
use crate::clock::Clock;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_group::RedisCluster;
use crate::ledger::tests::redis_server::until;
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit, key_create, run};
use crate::ledger::{Caller, Ledger, StoreError, Uncovered};
use crate::pure::account::ReserveRequest;
use crate::pure::ids::{ApiKey, KeyDigest};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;

/// A cluster of three masters that serves the slots it has, and accounts of each master.
struct Ground {
    cluster: RedisCluster,
    ledger: Ledger,
    /// By master.
    callers: [Vec<Caller>; 3],
}

impl Ground {
    fn new(options: Options) -> Ground {
        let cluster = RedisCluster::start();
        cluster.serve_what_is_left();
        let ledger = Ledger::Redis(RedisLedger::connect(&cluster.url(), options).unwrap());
        let mut callers: [Vec<Caller>; 3] = Default::default();
        for n in 0.. {
            let name = format!("account-{n}");
            let master = cluster.master_of(&name);
            if callers[master].len() < ACCOUNTS {
                callers[master].push(caller_of(&ledger, &name, BALANCE, LimitOverrides::default()));
            }
            if callers.iter().all(|callers| callers.len() == ACCOUNTS) {
                break;
            }
        }
        Ground {
            cluster,
            ledger,
            callers,
        }
    }

    /// Those of all masters but one.
    fn others(&self, silent: usize) -> Vec<&Caller> {
        let others = self.callers.iter().enumerate().filter(|(n, _)| *n != silent);
        others.flat_map(|(_, callers)| callers).collect()
    }

    fn request(&self, n: u64) -> ReserveRequest {
        ReserveRequest {
            expires: self.ledger.hold_expiry(Clock::System.now()),
            ..request(n, "0.002")
        }
    }

    fn reserve(&self, caller: &Caller, n: u64) -> crate::ledger::Hold {
        block_on(caller.reserve(&self.request(n))).unwrap().unwrap()
    }

    fn left(&self, caller: &Caller) -> Result<(Credits, Credits), StoreError> {
        block_on(caller.figures()).map(|figures| (figures.balance, figures.held))
    }

    /// A key of the caller's account whose record is kept by a master.
    fn key_at(&self, caller: &Caller, master: usize) -> KeyDigest {
        let is_there = |digest: &KeyDigest| {
            let slot = self.cluster.slot(&format!("tg1:key:{}", digest.to_hex()));
            self.cluster.first_owner(slot) == master
        };
        let digests = (100..=255).map(|byte| ApiKey::from_random("tg_", [byte; 32]).digest());
        let digest = digests.into_iter().find(is_there).unwrap();
        run(&self.ledger, key_create(caller.account.id.as_str(), &digest)).unwrap();
        digest
    }
}

/// What is left after so many debits of 0.001.
fn after(debits: i64) -> Credits {
    Credits::from_pico(credits(BALANCE).pico() - debits * credits("0.001").pico())
}

/// How long a master is silent: longer than holds live, and than settlements may wait before calls are refused.
fn outage(seconds: u64) -> Duration {
    let long = std::env::var_os("TOLLGATE_LONG").is_some();
    Duration::from_secs(if long { 120 } else { seconds })
}

fn short() -> Options {
    Options {
        hold_ttl: Duration::from_millis(2400),
        unsettled_age_max: Duration::from_secs(1),
        ..Options::default()
    }
}

/// While one master is silent, the calls of all other accounts go on as ever; its own are refused at once, and nothing of them is lost.
fn goes_silent(silent: usize) {
    let ground = Ground::new(short());
    let (ledger, others) = (&ground.ledger, ground.others(silent));
    let [first, ..] = others[..] else { panic!() };
    let digest = ground.key_at(first, silent);
    assert!(block_on(ledger.authenticate(&digest)).unwrap().is_some());
    let mine = &ground.callers[silent];

    // Calls that run when the outage begins: one of each goes on for longer than a hold lives, one is over soon.
    let mut ids = 0..;
    let mut hold = |caller: &Caller| ground.reserve(caller, ids.next().unwrap());
    let running: Vec<_> = others.iter().map(|caller| hold(caller)).collect();
    let lost: Vec<_> = mine.iter().map(&mut hold).collect();
    let over: Vec<_> = mine.iter().map(&mut hold).collect();
    ground.cluster.master(silent).freeze();
    for hold in over {
        hold.settle(debit("0.001"));
    }

    let (began, is_over) = (Instant::now(), AtomicBool::new(false));
    let refused = std::thread::scope(|scope| {
        // Whoever has an account of the silent master goes on calling.
        let callers = scope.spawn(|| {
            let (mut refused, mut slow) = (0, 0);
            for n in 1_000_000.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let caller = &mine[usize::try_from(n).unwrap() % mine.len()];
                let start = Instant::now();
                let answer = block_on(caller.reserve(&ground.request(n)));
                assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
                slow += usize::from(start.elapsed() > Duration::from_millis(100));
                refused += 1;
                std::thread::yield_now();
            }
            (refused, slow)
        });
        let _over = Over(&is_over);
        let (mut rounds, mut slowest) = (0, Duration::ZERO);
        while began.elapsed() < outage(6) {
            rounds += 1;
            for caller in &others {
                let start = Instant::now();
                hold(caller).settle(debit("0.001"));
                slowest = slowest.max(start.elapsed());
                // It waits for the debit, and fails when that takes longer than a call may.
                let held = credits("0.002");
                assert_eq!(ground.left(caller), Ok((after(rounds), held)), "in round {rounds}");
            }
            let start = Instant::now();
            assert!(block_on(ledger.authenticate(&digest)).unwrap().is_some());
            slowest = slowest.max(start.elapsed());
        }
        assert!(slowest < Duration::from_millis(400), "a call waited for {slowest:?}");
        // The others' holds have been renewed, those of the silent master have not.
        assert!(running.iter().all(|hold| hold.uncovered().is_none()));
        assert!(lost.iter().all(|hold| hold.uncovered() == Some(Uncovered::NoAnswer)));
        for (caller, hold) in others.iter().zip(running) {
            hold.settle(debit("0.001"));
            assert_eq!(ground.left(caller), Ok((after(rounds + 1), Credits::ZERO)));
        }
        is_over.store(true, Ordering::SeqCst);
        callers.join().unwrap()
    });
    let (refused, slow) = refused;
    let tries = began.elapsed().as_millis() / 500;
    assert!(
        u128::try_from(slow).unwrap() <= 5 + tries && refused > 10 * slow,
        "{slow} of {refused} refused calls waited"
    );

    for hold in lost {
        hold.settle(debit("0.001"));
    }
    ground.cluster.master(silent).thaw();
    for caller in mine {
        until("its debits are there, each once", || {
            ground.left(caller) == Ok((after(2), Credits::ZERO))
        });
    }
    audit_is_clean(ledger);
}

#[test]
fn the_first_master_is_silent_and_the_accounts_of_the_others_are_untouched() {
    goes_silent(0);
}

#[test]
fn the_last_master_is_silent_and_the_accounts_of_the_others_are_untouched() {
    goes_silent(2);
}

/// A master that was away for longer than acknowledged settlements are kept comes back without its last moments. They are sent again,
/// however many settlements of the others were acknowledged meanwhile.
#[test]
fn what_a_master_lost_is_kept_while_the_others_go_on() {
    // What a busy machine adds makes no call late, and no debit old before its master is silent.
    let replay = Duration::from_secs(3);
    let mut ground = Ground::new(Options {
        replay,
        timeout: replay,
        ..Options::default()
    });
    let mut ids = 0..;
    let mut pay = |ground: &Ground, caller: &Caller| {
        ground.reserve(caller, ids.next().unwrap()).settle(debit("0.001"));
        ground.left(caller).unwrap()
    };
    for caller in &ground.callers[0] {
        pay(&ground, caller);
    }
    assert_eq!(ground.cluster.master(0).ask("SAVE"), ["+OK"]);
    for caller in &ground.callers[0] {
        pay(&ground, caller);
    }
    ground.cluster.master(0).freeze();
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < 2 * replay {
        rounds += 1;
        for caller in ground.others(0) {
            assert_eq!(pay(&ground, caller), (after(rounds), Credits::ZERO));
        }
    }
    ground.cluster.restart_first();
    for caller in &ground.callers[0] {
        until("nothing is missing", || {
            ground.left(caller) == Ok((after(2), Credits::ZERO))
        });
    }
    audit_is_clean(&ground.ledger);
}

/// Ends the callers when the test ends, by a panic too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Accounts of each master.
const ACCOUNTS: usize = 2;
const BALANCE: &str = "1000";
