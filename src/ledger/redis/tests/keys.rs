//! Idempotency keys where Redis has replicas, and where what is asked gets no answer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;

use super::{node, on_node, patient, request};
use crate::config::Idempotency;
use crate::ledger::idempotency::call::{Found, KeyEnd};
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_group::RedisUnderSentinels;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, caller_of, debit, request_id};
use crate::ledger::{Caller, KeyedCall, Ledger, StoreError, TakenKey, Taking};
use crate::pure::account::Denial;
use crate::pure::idempotency::{Answer, Fingerprint, KeyName, KeyRefusal, Repeated, State};
use crate::pure::limits::LimitOverrides;

const SAME: Fingerprint = Fingerprint::from_bytes([1; 32]);

fn call(caller: &Caller, n: u64) -> KeyedCall {
    KeyedCall {
        key: caller.key.id.clone(),
        name: KeyName::of(&caller.key.id, b"one").unwrap(),
        fingerprint: SAME,
        request: request_id(n),
        limits: Idempotency::default(),
    }
}

fn take(caller: &Caller, n: u64) -> Result<Taking, StoreError> {
    block_on(caller.take_key(call(caller, n)))
}

#[track_caller]
fn taken(caller: &Caller, n: u64) -> Box<TakenKey> {
    match take(caller, n).unwrap() {
        Taking::Taken(key) => key,
        other => panic!("{other:?}"),
    }
}

/// A master and its replica, and a caller of a gateway there.
fn with_replica(options: Options) -> (RedisServer, RedisServer, Ledger, Caller) {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    until("the replica follows", || {
        let state = server.ask("INFO replication");
        state.iter().any(|line| line.contains("state=online"))
    });
    (server, replica, ledger, caller)
}

/// A fail-over may follow at once: a call whose key no replica has is not sent.
#[test]
fn a_call_is_sent_once_a_replica_has_its_key() {
    let options = Options {
        timeout: Duration::from_millis(800),
        ..patient()
    };
    let (_server, replica, _ledger, caller) = with_replica(options);
    replica.freeze();
    let key = taken(&caller, 1);
    let mut hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    block_on(hold.send_under_key(key)).unwrap_err();
    hold.release();
    replica.thaw();
    // What was not sent has freed its key.
    let mut key = None;
    until("the key is free", || {
        key = match take(&caller, 2).unwrap() {
            Taking::Taken(key) => Some(key),
            _ => None,
        };
        key.is_some()
    });
    let mut hold = block_on(caller.reserve(&request(2, "1"))).unwrap().unwrap();
    block_on(hold.send_under_key(key.unwrap())).unwrap();
    hold.release();
}

/// What waits for a replica holds up all that comes after it on its connection. Other calls of the same worker are on another.
#[test]
fn a_call_that_waits_for_a_replica_holds_up_no_other() {
    let (server, replica, _ledger, caller) = with_replica(patient());
    let key = taken(&caller, 1);
    let mut hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    replica.freeze();
    let waits = || {
        server
            .ask("INFO clients")
            .iter()
            .any(|line| line == "blocked_clients:1")
    };
    let other = async {
        while !waits() {
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        let held = caller.reserve(&request(2, "1")).await.unwrap();
        let (took, still_waits) = (began.elapsed(), waits());
        replica.thaw();
        held.unwrap().release();
        (took, still_waits)
    };
    let (sent, (took, still_waits)) = block_on(futures::future::join(hold.send_under_key(key), other));
    // A replica is waited for eight seconds each time.
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(still_waits, "the other call was answered once nothing waited any more");
    sent.unwrap();
    hold.release();
}

/// The master dies while a call runs: whoever repeats it at the new one, by whatever gateway, is told that it runs.
#[test]
fn a_new_master_knows_the_keys_of_running_calls() {
    let mut servers = RedisUnderSentinels::start();
    let options = || Options {
        timeout: Duration::from_secs(2),
        ..Options::default()
    };
    let nodes = [(); 2].map(|()| Ledger::Redis(RedisLedger::connect(&servers.url(), options()).unwrap()));
    let caller = caller_of(&nodes[0], "acme", "10", LimitOverrides::default());
    let other = on_node(&nodes[1], &caller);
    let key = taken(&caller, 1);
    let mut hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    block_on(hold.send_under_key(key)).unwrap();
    servers.kill_master();
    until("the replica leads", || servers.replica_leads());
    let began = Instant::now();
    let known = loop {
        match take(&other, 2) {
            Ok(Taking::Known(record)) => break record,
            Ok(taking) => panic!("the key was forgotten: {taking:?}"),
            Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
        }
    };
    assert_eq!(known.request, request_id(1));
    assert_eq!(known.repeated(&SAME), Repeated::Refused(KeyRefusal::InProgress));
    hold.release();
}

/// Whoever asks for a key and hears nothing leaves it free, whether Redis has taken it or not.
#[test]
fn a_key_whose_taking_had_no_answer_is_free_again() {
    let server = RedisServer::start();
    let options = Options {
        timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    server.freeze();
    take(&caller, 1).unwrap_err();
    server.thaw();
    until("the key is free", || matches!(take(&caller, 2), Ok(Taking::Taken(_))));
}

/// A ledger whose thread, which would tell Redis how calls under a key ended, does not run.
fn without_thread(server: &RedisServer) -> RedisLedger {
    without_thread_of(server, patient())
}

fn without_thread_of(server: &RedisServer, options: Options) -> RedisLedger {
    let (shared, runtime) = RedisLedger::reach(&server.url(), options).unwrap();
    RedisLedger {
        shared,
        settler: Mutex::new(None),
        commands: Mutex::new(Some(runtime)),
    }
}

fn call_of_nobody(n: u64) -> KeyedCall {
    let key = "key_x".to_owned().into();
    KeyedCall {
        name: KeyName::of(&key, b"one").unwrap(),
        key,
        fingerprint: SAME,
        request: request_id(n),
        limits: Idempotency::default(),
    }
}

#[test]
fn whoever_goes_before_a_taking_is_answered_gives_the_key_back() {
    let server = RedisServer::start();
    for is_answered in [true, false] {
        let ledger = without_thread(&server);
        let (account, call) = (ledger.place(&"acme".parse().unwrap()), call_of_nobody(1));
        let answer = block_on(async {
            let takes = ledger.take_key(&account, &call);
            match is_answered {
                true => Some(takes.await),
                false => takes.now_or_never(),
            }
        });
        let is_taken = matches!(answer, Some(Ok(Found::Nothing)));
        assert_eq!(is_taken, is_answered, "{answer:?}");
        let key_ends = &ledger.shared.key_ends;
        key_ends.close();
        let shard = block_on(key_ends.shard());
        let end = shard.and_then(|shard| key_ends.next(shard)).map(|ended| ended.end);
        assert_eq!(matches!(end, Some(KeyEnd::Unsent)), !is_answered, "{end:?}");
    }
}

/// It was taken, and free only once the ledger's thread had told Redis so.
#[test]
fn a_key_that_is_looked_at_is_free_although_redis_hears_nothing_more() {
    let server = RedisServer::start();
    let ledger = without_thread(&server);
    let account = ledger.place(&"acme".parse().unwrap());
    let looks = |n| block_on(ledger.known_key(&account, &call_of_nobody(n))).unwrap();
    assert_eq!((looks(1), looks(2)), (None, None));
    let taken = block_on(ledger.take_key(&account, &call_of_nobody(3)));
    assert!(matches!(taken, Ok(Found::Nothing)), "{taken:?}");
    let known = looks(4).map(|record| (record.request, record.state));
    assert_eq!(known, Some((request_id(3), State::Taken)));
    ledger.shared.key_ends.close();
    assert_eq!(block_on(ledger.shared.key_ends.shard()), None);
}

/// A server whose clock is behind counts a life from then on: the keys of before would end with it when it is set right.
#[test]
fn a_new_key_shortens_the_life_of_none() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let kept = || {
        let names = server.ask("KEYS tg1:{acme}*");
        names.into_iter().filter(|line| line.starts_with("tg1:"))
    };
    let others: Vec<String> = kept().collect();
    let first = taken(&caller, 1);
    let new: Vec<String> = kept().filter(|name| !others.contains(name)).collect();
    assert_eq!(new.len(), 2, "{new:?}");
    for name in &new {
        assert_eq!(server.ask(&format!("PEXPIRE {name} 200000000")), [":1"]);
    }
    let another = KeyedCall {
        name: KeyName::of(&caller.key.id, b"another").unwrap(),
        ..call(&caller, 2)
    };
    assert!(matches!(block_on(caller.take_key(another)), Ok(Taking::Taken(_))));
    for name in &new {
        let left = server.ask(&format!("PTTL {name}")).pop().unwrap();
        let left: u64 = left.trim_start_matches(':').parse().unwrap();
        assert!(left > 86_460_000, "{name}: {left}");
    }
    drop(first);
}

/// An eviction, or an operator who removes the texts, takes one of a key's records alone: a script that looks for what is not there never ends,
/// and with it the server.
#[test]
fn answers_that_are_gone_make_room() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let named = |n: u64| KeyedCall {
        name: KeyName::of(&caller.key.id, n.to_string().as_bytes()).unwrap(),
        limits: Idempotency {
            bytes_per_key_max: 20,
            ..Idempotency::default()
        },
        ..call(&caller, n)
    };
    let answer = || Answer {
        streamed: false,
        body: b"0123456789".as_slice().into(),
    };
    let billed = |n: u64| {
        let Taking::Taken(key) = block_on(caller.take_key(named(n))).unwrap() else {
            panic!("{n} is known");
        };
        let mut hold = block_on(caller.reserve(&request(n, "1"))).unwrap().unwrap();
        block_on(hold.send_under_key(key)).unwrap();
        hold.keep_answer(answer());
        hold.settle(debit("0.1"));
        let replayed = Repeated::Replayed {
            answer: answer(),
            original: request_id(n),
        };
        until("the answer is kept", || {
            match block_on(caller.take_key(named(n))).unwrap() {
                Taking::Known(record) => record.repeated(&SAME) == replayed,
                other => panic!("{other:?}"),
            }
        });
    };
    billed(1);
    billed(2);
    let answers = format!("tg1:{{acme}}:idempotency:{}:answers", caller.key.id);
    assert_eq!(server.ask(&format!("UNLINK {answers}")), [":1"]);
    billed(3);
    // And there is room for as many as before.
    billed(4);
    assert_eq!(server.ask(&format!("HLEN {answers}")), [":2"]);
    billed(5);
    assert_eq!(server.ask(&format!("HLEN {answers}")), [":2"]);
}

/// What a call gives back is on its way for longer than a call may wait: nobody knows whether there is credit.
#[test]
fn a_call_is_not_refused_for_what_is_still_on_its_way() {
    let server = RedisServer::start();
    let other = node(&server, patient());
    let caller = caller_of(&other, "acme", "1", LimitOverrides::default());
    let options = Options {
        timeout: Duration::from_millis(800),
        ..patient()
    };
    let caller = on_node(&Ledger::Redis(Arc::new(without_thread_of(&server, options))), &caller);
    block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap().release();
    let refused = block_on(caller.reserve(&request(2, "1")));
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(_))),
        "{:?}",
        refused.map(|held| held.err())
    );
    // Nothing that is given back changes how many requests there were.
    let mut beyond = request(3, "1");
    beyond.limits.rpm = 1;
    let refused = block_on(caller.reserve(&beyond)).unwrap();
    assert!(matches!(refused.err(), Some(Denial::Requests(_))));
    let (scope, limits) = (beyond.scope.clone(), request(4, "1").limits);
    let repeated = block_on(caller.count_repeated(request_id(4), scope, limits));
    assert!(matches!(repeated, Ok(Ok(_))), "{repeated:?}");
}
