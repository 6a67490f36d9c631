//! How a shard's settler works: what it does at the end, how long it waits, where it asks, and what it tells.

use futures::FutureExt;

use super::known::{balance, send_all};
use super::*;
use crate::config::Idempotency;
use crate::ledger::idempotency::call::{KeyEnd, KeyedCall};
use crate::ledger::journal::{Intent, Journal};
use crate::ledger::redis::key_ends::Ended;
use crate::ledger::tests::logged::logged;
use crate::pure::idempotency::{Fingerprint, KeyName};
use crate::pure::ids::KeyId;
use crate::pure::money::{ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::request_body::{Endpoint, PromptLimits};

fn hold(shared: &Shared, account: &Arc<Account>, n: u64) {
    let held = block_on(shared.try_reserve(&Link::default(), account, (&request(n, "2"), true), &mut None));
    held.unwrap().unwrap();
}

/// Makes a hold known that was made when the ledger was opened.
fn open(shared: &Shared, account: &Arc<Account>, n: u64, ttl_ms: u64) {
    let hold = open_hold(account, "2", ttl_ms);
    shared.holds.insert(request_id(n), hold);
}

fn queue_release(settler: &Settler, account: &Arc<Account>, n: u64) {
    let queue = &settler.shard.queue;
    queue.release(account, request_id(n), None, ReleaseKind::Sure, Entry::none());
}

fn work_to_the_end(settler: Settler) {
    settler.shard.queue.close();
    block_on(settler.work());
}

fn errors(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|line| line.starts_with("ERROR")).collect()
}

#[test]
fn what_is_queued_at_the_end_is_sent() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    hold(&shared, &acme, 1);
    let settler = settler(&shared);
    queue_release(&settler, &acme, 1);
    work_to_the_end(settler);
    assert!(!acme.is_under_way());
    let view = block_on(shared.view(&Link::default(), acme.id())).unwrap();
    assert_eq!((view.open_holds, view.figures.held), (0, Credits::ZERO));
}

#[test]
fn holds_are_looked_through_while_the_settler_works() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    hold(&shared, &acme, 1);
    open(&shared, &acme, 1, 24_000);
    let settler = settler(&shared);
    queue_release(&settler, &acme, 2);
    work_to_the_end(settler);
    let renewed_ms = shared.holds.known(request_id(1)).map(|hold| hold.renewed_ms);
    assert!(renewed_ms.is_some_and(|at| at >= 10_000), "{renewed_ms:?}");
}

pub(super) fn journaled(journal: &Journal, account: &Account) -> Entry {
    let free: ListPrice = "0".parse::<ProviderPrice>().unwrap().with_markup(Markup::default());
    let intent = Intent {
        id: request_id(1),
        account: account.id(),
        key: &KeyId::from("key_x".to_owned()),
        model: "a/m",
        pricing: Pricing {
            prompt: free,
            completion: free,
        },
        limits: PromptLimits {
            image_tokens_each: 1000,
            context_length: 8192,
        },
        text_bytes: 0,
        endpoint: Endpoint::Chat,
        end_user: None,
    };
    journal.begin(&intent, b"{}").unwrap()
}

/// Time is over at once, whether all was sent or not.
#[test]
fn what_redis_may_still_lose_stays_in_the_journal_at_the_end_and_is_not_told() {
    let server = RedisServer::start();
    for is_left in [false, true] {
        let mut shared = opened(&server);
        let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
        of_test.options.close_within = Duration::ZERO;
        let acme = account(&shared, "acme");
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path());
        let mut settler = settler(&shared);
        let mut entry = journaled(&journal, &acme);
        entry.keep(NOW);
        let acknowledged = QueuedDebit {
            entry,
            ..settlement(&acme, 1)
        };
        settler.ring.push(acknowledged, shared.now_ms());
        if is_left {
            settler.shard.queue.settle(settlement(&acme, 2));
        }
        work_to_the_end(settler);
        assert_eq!(logged(|| journal.close()), [""; 0]);
        let files = std::fs::read_dir(folder.path()).unwrap();
        let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert!(
            paths.len() == 1 && paths[0].extension().is_some_and(|found| found == "acknowledged"),
            "{paths:?}"
        );
    }
}

#[test]
fn a_batch_waits_for_more_only_where_another_was_sent_a_moment_ago() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let waits = |sent: Option<Instant>| {
        let mut settler = settler(&shared);
        settler.sent = sent;
        block_on(async { settler.gather().now_or_never().is_none() })
    };
    let now = crate::clock::monotonic();
    // Nothing has passed since a moment that is to come.
    let later = now.checked_add(Duration::from_secs(60));
    assert!(waits(later));
    assert!(!waits(None));
    assert!(!waits(now.checked_sub(Duration::from_secs(1))));
    shared.shards.close();
    assert!(!waits(later), "the ledger ends");
}

#[test]
fn a_server_that_is_away_is_asked_less_and_less_often() {
    let mut server = RedisServer::start();
    let mut shared = opened(&server);
    let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
    of_test.options.close_within = Duration::from_millis(100);
    let acme = account(&shared, "acme");
    let settler = settler(&shared);
    settler.shard.queue.settle(settlement(&acme, 1));
    server.kill();
    let lines = logged(|| work_to_the_end(settler));
    // At once, after 20 ms and after 40 more; a pause of 80 ms is longer than what is left.
    let asked = lines.iter().filter(|line| line.starts_with("DEBUG Redis: ")).count();
    assert!((1..=3).contains(&asked), "{asked}");
}

/// Each call that asked for figures of an account of a silent server left one until that server answered.
#[test]
fn nothing_is_kept_of_those_who_waited_for_a_server_that_is_away() {
    let mut server = RedisServer::start();
    let mut shared = opened(&server);
    let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
    of_test.options.close_within = Duration::from_millis(100);
    let acme = account(&shared, "acme");
    let (shard, mut settler) = (shared.shards.all().remove(0), settler(&shared));
    shard.queue.settle(settlement(&acme, 1));
    server.kill();
    shard.queue.close();
    let barrier = || shard.queue.barrier(&acme, Duration::from_secs(60));
    block_on(async {
        let mut waits = pin!(barrier());
        assert!(waits.as_mut().now_or_never().is_none());
        for _ in 0..1_000 {
            assert!(barrier().now_or_never().is_none());
        }
        settler.turns().await;
    });
    assert_eq!(settler.backlog.len(), 2, "the debit, and who waits for it");
}

/// Other debits are taken, so that this one's batch is no failure.
#[test]
fn nothing_is_kept_of_those_who_waited_for_a_debit_that_is_not_taken() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let [acme, other] = ["acme", "other"].map(|name| account(&shared, name));
    let mut settler = settler(&shared);
    let answer = |text: &str| Some(redis::parse_redis_value(text.as_bytes()).unwrap());
    let barrier = |reached| Work::Barrier {
        account: acme.id().clone(),
        reached,
    };
    let (gone, (reached, _waits)) = (tokio::sync::oneshot::channel().0, tokio::sync::oneshot::channel());
    for account in [&acme, &other] {
        settler.shard.queue.settle(settlement(account, 1));
    }
    let mut batch = settler.shard.queue.take();
    batch.extend([barrier(gone), barrier(reached)]);
    let answers = vec![answer("-ERR no\r\n"), answer("$8\r\nsettled \r\n")];
    assert_eq!(settler.read_answers(batch, answers, 0), Outcome::Progress);
    assert_eq!(settler.backlog.len(), 2, "the debit, and who waits for it");
}

#[test]
fn what_redis_takes_is_a_sign_of_life() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "10");
    let mut settler = settler(&shared);
    block_on(settler.connection()).unwrap();
    (1..FAILURES_MAX).for_each(|_| settler.shard.guard.failed("test"));
    acme.begin();
    settler.backlog.push_back(release(&acme, ReleaseKind::Sure));
    while !settler.backlog.is_empty() {
        assert_eq!(block_on(settler.send_batch()), Outcome::Progress);
    }
    settler.shard.guard.failed("test");
    assert!(!settler.shard.guard.is_open(), "it is the first in a row");
}

#[test]
fn settlements_that_are_lost_for_good_are_told() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = account(&shared, "acme");
    let told = |kept: u64| {
        let mut settler = settler(&shared);
        for number in 1..=kept {
            settler.ring.push(settlement(&acme, number), shared.now_ms());
        }
        errors(logged(|| settler.send_lost(&acme, ProducerId(5), &[1, 2])))
    };
    assert_eq!(told(2), [""; 0]);
    assert_eq!(told(1), ["ERROR MONEY: Redis has lost 1 settlements of acme for good"]);
}

#[test]
fn calls_that_end_for_want_of_a_renewal_are_told() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = account(&shared, "acme");
    let mut settler = settler(&shared);
    let mut told = || errors(logged(|| block_on(settler.renew(0))));
    assert_eq!(told(), [""; 0]);
    open(&shared, &acme, 1, 3_000);
    let ended = "ERROR 1 calls are ended: Redis did not renew what they hold in time";
    assert_eq!(told(), [ended]);
}

#[test]
fn a_renewal_goes_where_the_server_sends_it_and_any_other_error_ends_it() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let mut settler = settler(&shared);
    let (mut connection, _) = block_on(settler.connection()).unwrap();
    let mut sent = |error: &str| {
        server.ask("DEL tg1:probe");
        let text = format!("if redis.call('INCR', KEYS[1]) == 1 then return redis.error_reply('{error}') end return 7");
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(1).arg("tg1:probe");
        let answer = block_on(settler.send(&mut connection, command)).ok();
        (answer, server.ask("GET tg1:probe").pop())
    };
    let moved = format!("MOVED 5 127.0.0.1:{}", server.port());
    assert_eq!(sent(&moved), (Some(redis::Value::Int(7)), Some("2".to_owned())));
    assert_eq!(sent("ERR no"), (None, Some("1".to_owned())));
}

#[test]
fn how_a_call_under_a_key_ended_is_told_for_a_minute_and_that_it_cost_nothing_for_a_day() {
    let mut server = RedisServer::start();
    let mut shared = opened(&server);
    let of_test = Arc::get_mut(&mut shared).expect("nobody else has it");
    of_test.started = of_test.started.checked_sub(Duration::from_secs(100_000)).unwrap();
    server.kill();
    shared.key_ends.close();
    let key = KeyId::from("key_x".to_owned());
    let goes_on = |end: KeyEnd, ago_ms: u64, within: Duration| {
        let ended = Ended {
            account: account(&shared, "acme"),
            call: KeyedCall {
                key: key.clone(),
                name: KeyName::of(&key, b"one").unwrap(),
                fingerprint: Fingerprint::from_bytes([1; 32]),
                request: request_id(1),
                limits: Idempotency::default(),
            },
            end,
            queued_ms: shared.now_ms() - ago_ms,
        };
        shared.key_ends.push(&shared.shards, ended);
        block_on(async {
            tokio::time::timeout(within, keys::run(Arc::clone(&shared)))
                .await
                .is_err()
        })
    };
    let [long, a_moment] = [Duration::from_secs(5), Duration::from_millis(20)];
    let [minute_ms, day_ms] = [60_000, 86_400_000];
    assert!(
        !goes_on(KeyEnd::Billed(None), minute_ms + 1_000, long),
        "it is given up"
    );
    assert!(goes_on(KeyEnd::Billed(None), 0, a_moment));
    drop(std::iter::from_fn(|| shared.key_ends.next(0)).collect::<Vec<_>>());
    for freed in [KeyEnd::Freed, KeyEnd::Unsent] {
        assert!(!goes_on(freed, day_ms + 1_000, long), "its key is not known any more");
    }
    assert!(goes_on(KeyEnd::Freed, 2 * minute_ms, a_moment));
}

/// Beside what it holds there is no room for what its month has used. Its debit was taken for one that leaves the range, and became 0.
#[test]
fn a_debit_waits_where_its_month_cannot_be_counted() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    let held = block_on(shared.try_reserve(&Link::default(), &acme, (&request(1, "5"), true), &mut None));
    held.unwrap().unwrap();
    let used_today = |pico: i64| {
        let day = NOW.day().0;
        let fields = format!("month 190001 d{day} a/m \"c{day} a/m\" {pico}");
        server.ask(&format!("HSET tg1:{{acme}} {fields}"));
    };
    used_today(i64::MAX);
    let mut told = || {
        errors(logged(|| {
            settler.shard.queue.settle(settlement(&acme, 1));
            send_all(&mut settler, &server);
        }))
    };
    let waits =
        "ERROR MONEY: what acme has used in the month is not in range beside what it holds; its settlements wait";
    assert_eq!(told(), [waits]);
    assert_eq!(
        (settler.backlog.len(), settler.later.len()),
        (0, 1),
        "it holds up nobody else"
    );
    used_today(0);
    settler.later.iter_mut().for_each(|(due_ms, _)| *due_ms = 0);
    send_all(&mut settler, &server);
    assert_eq!(balance(&shared, &acme), credits("99"));
    assert_eq!((settler.later.len(), settler.shard.queue.unsettled()), (0, 0));
}

/// Only those whose first number was a settlement were remembered, so where every first call failed no producer was ever forgotten.
#[test]
fn an_account_is_met_by_its_first_number_whatever_became_of_it() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let acme = make(&shared, "100");
    for number in [1, 2] {
        for is_settled in [true, false] {
            let mut settler = settler(&shared);
            let number = CallNumber::new(ProducerId(u64::from(is_settled)), number);
            match is_settled {
                true => settler.shard.queue.settle(QueuedDebit {
                    number,
                    ..settlement(&acme, 1)
                }),
                false => {
                    let queue = &settler.shard.queue;
                    queue.release(&acme, request_id(2), Some(number), ReleaseKind::Sure, Entry::none());
                }
            }
            send_all(&mut settler, &server);
            assert_eq!(settler.met.len(), usize::from(number.number == 1), "{number:?}");
        }
    }
}

/// As many names may be there as before, and others among them.
#[test]
fn a_server_that_is_replaced_leaves_no_names_known() {
    let server = RedisServer::start();
    let shared = opened(&server);
    let mut settler = settler(&shared);
    let known = || shared.names.get().len();
    shared.names.set(Arc::new(vec!["acme".parse().unwrap()]), 0);
    settler.asked_server("one".to_owned());
    assert_eq!(known(), 1);
    settler.asked_server("another".to_owned());
    assert_eq!(known(), 0);
}
