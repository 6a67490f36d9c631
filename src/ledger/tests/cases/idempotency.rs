//! Idempotency keys: what each step of one call says to the next with the same key.

use bytes::Bytes;

use crate::config::Idempotency;
use crate::ledger::tests::rig::{Rig, audit_is_clean, block_on, debit, on_workers, request, request_id};
use crate::ledger::{Caller, Hold, KeyedCall, TakenKey, Taking};
use crate::pure::idempotency::{Answer, Fingerprint, KEPT_MS, KeyName, KeyRefusal, MISSING_MS, Repeated, TAKEN_MS};

const SAME: Fingerprint = Fingerprint::from_bytes([1; 32]);
const OTHER: Fingerprint = Fingerprint::from_bytes([2; 32]);

fn call(caller: &Caller, name: &str, n: u64) -> KeyedCall {
    KeyedCall {
        key: caller.key.id.clone(),
        name: KeyName::of(&caller.key.id, name.as_bytes()).unwrap(),
        fingerprint: SAME,
        request: request_id(n),
        limits: Idempotency {
            bytes_per_key_max: 30,
            bytes_max: 60,
            keys_per_key_max: 20,
            ..Idempotency::default()
        },
    }
}

fn answer(text: &str) -> Answer {
    Answer {
        streamed: text.starts_with("data:"),
        body: Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn take(caller: &Caller, call: KeyedCall) -> Taking {
    block_on(caller.take_key(call)).unwrap()
}

#[track_caller]
fn taken(caller: &Caller, call: KeyedCall) -> Box<TakenKey> {
    match take(caller, call) {
        Taking::Taken(key) => key,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn repeated(caller: &Caller, call: KeyedCall) -> Repeated {
    let fingerprint = call.fingerprint;
    match take(caller, call) {
        Taking::Known(record) => record.repeated(&fingerprint),
        other => panic!("{other:?}"),
    }
}

/// What a call gets that only looks; none where nothing is known.
fn looked_at(caller: &Caller, call: KeyedCall) -> Option<Repeated> {
    let record = block_on(caller.known_key(&call)).unwrap();
    record.map(|record| record.repeated(&call.fingerprint))
}

/// How a key is ended is told behind a call: asks until it is no longer said to run.
fn settled(caller: &Caller, call: &KeyedCall) -> Repeated {
    for _ in 0..2_000 {
        match repeated(caller, call.clone()) {
            Repeated::Refused(KeyRefusal::InProgress) => std::thread::sleep(std::time::Duration::from_millis(2)),
            other => return other,
        }
    }
    panic!("the key is said to run for ever");
}

/// A call that was sent under a key.
fn sent(rig: &Rig, caller: &Caller, call: KeyedCall, n: u64) -> Hold {
    let key = taken(caller, call);
    let mut hold = rig.reserve(caller, &request(n, "1")).unwrap();
    block_on(hold.send_under_key(key)).unwrap();
    hold
}

fn billed(rig: &Rig, caller: &Caller, call: KeyedCall, n: u64, text: Option<&str>) {
    let mut hold = sent(rig, caller, call, n);
    if let Some(text) = text {
        hold.keep_answer(answer(text));
    }
    hold.settle(debit("0.5"));
}

#[track_caller]
fn is_replayed(repeated: Repeated, text: &str, n: u64) {
    let expected = Repeated::Replayed {
        answer: answer(text),
        original: request_id(n),
    };
    assert_eq!(repeated, expected);
}

fn unavailable(n: u64) -> Repeated {
    Repeated::Refused(KeyRefusal::Unavailable(request_id(n)))
}

const RUNS: Repeated = Repeated::Refused(KeyRefusal::InProgress);
const CONFLICTS: Repeated = Repeated::Refused(KeyRefusal::Conflict);

pub(super) fn a_key_says_how_its_call_stands(rig: &Rig) {
    let caller = rig.caller("10");
    let again = |n| call(&caller, "a", n);
    let other = |n| KeyedCall {
        fingerprint: OTHER,
        ..again(n)
    };
    // Whoever has it and has sent nothing may yet be refused: then it is another request's that comes back.
    let key = taken(&caller, again(1));
    assert_eq!(repeated(&caller, again(2)), RUNS);
    assert_eq!(repeated(&caller, other(2)), RUNS);
    let mut hold = rig.reserve(&caller, &request(1, "1")).unwrap();
    block_on(hold.send_under_key(key)).unwrap();
    assert_eq!(repeated(&caller, again(3)), RUNS);
    assert_eq!(repeated(&caller, other(3)), CONFLICTS);
    hold.keep_answer(answer("data: 1"));
    hold.settle(debit("0.5"));
    is_replayed(settled(&caller, &again(4)), "data: 1", 1);
    assert_eq!(repeated(&caller, other(5)), CONFLICTS);
    // It is another key's own.
    drop(taken(&caller, call(&caller, "b", 6)));
    let colleague = rig.caller_of("acme", "0", Default::default());
    let mut of_colleague = again(7);
    of_colleague.key = colleague.key.id.clone();
    drop(taken(&colleague, of_colleague));
    audit_is_clean(&rig.ledger);
}

/// A call that would not be made took its key for a moment, in which others were told that it ran.
pub(super) fn a_key_that_is_looked_at_is_not_taken(rig: &Rig) {
    let caller = rig.caller("10");
    let again = |n| call(&caller, "a", n);
    let other = |n| KeyedCall {
        fingerprint: OTHER,
        ..again(n)
    };
    for n in [1, 2] {
        assert_eq!(looked_at(&caller, again(n)), None);
    }
    let key = taken(&caller, again(3));
    let looks = |n| [again(n), other(n)].map(|call| looked_at(&caller, call));
    assert_eq!(looks(4), [Some(RUNS), Some(RUNS)]);
    let mut hold = rig.reserve(&caller, &request(3, "1")).unwrap();
    block_on(hold.send_under_key(key)).unwrap();
    assert_eq!(looks(5), [Some(RUNS), Some(CONFLICTS)]);
    hold.keep_answer(answer("data: 1"));
    hold.settle(debit("0.5"));
    is_replayed(settled(&caller, &again(6)), "data: 1", 3);
    let [same, conflicts] = looks(7);
    is_replayed(same.unwrap(), "data: 1", 3);
    assert_eq!(conflicts, Some(CONFLICTS));
    rig.clock.advance(KEPT_MS);
    assert_eq!(looks(8), [None, None]);
    drop(taken(&caller, again(9)));
}

pub(super) fn a_key_whose_call_was_not_billed_is_free(rig: &Rig) {
    let caller = rig.caller("10");
    let again = |n| call(&caller, "a", n);
    let free = |n| {
        for _ in 0..2_000 {
            if let Taking::Taken(key) = take(&caller, again(n)) {
                return key;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        panic!("the key is not free");
    };
    drop(taken(&caller, again(1))); // As where nothing could be held.
    let key = free(2);
    let mut hold = rig.reserve(&caller, &request(2, "1")).unwrap();
    block_on(hold.send_under_key(key)).unwrap();
    hold.release();
    let key = free(3);
    let mut hold = rig.reserve(&caller, &request(3, "1")).unwrap();
    block_on(hold.send_under_key(key)).unwrap();
    drop(hold);
    drop(free(4));
}

pub(super) fn an_answer_that_is_not_kept_is_said_to_be_missing(rig: &Rig) {
    let caller = rig.caller("10");
    let again = |n| call(&caller, "a", n);
    billed(rig, &caller, again(1), 1, None);
    assert_eq!(settled(&caller, &again(2)), unavailable(1));
    // Longer than all that the API key may keep.
    let long = |n| call(&caller, "long", n);
    billed(rig, &caller, long(3), 3, Some(&"x".repeat(31)));
    assert_eq!(settled(&caller, &long(4)), unavailable(3));
}

pub(super) fn the_oldest_answers_make_room(rig: &Rig) {
    let caller = rig.caller("10");
    for n in 1..=4 {
        let name = n.to_string();
        billed(rig, &caller, call(&caller, &name, n), n, Some("123456789!"));
        is_replayed(settled(&caller, &call(&caller, &name, 99)), "123456789!", n);
        rig.clock.advance(1);
    }
    // 30 bytes: three of them.
    assert_eq!(repeated(&caller, call(&caller, "1", 99)), unavailable(1));
    for n in 2..=4 {
        is_replayed(repeated(&caller, call(&caller, &n.to_string(), 99)), "123456789!", n);
    }
    billed(rig, &caller, call(&caller, "5", 5), 5, Some(&"x".repeat(25)));
    is_replayed(settled(&caller, &call(&caller, "5", 99)), &"x".repeat(25), 5);
    for n in 2..=4 {
        assert_eq!(repeated(&caller, call(&caller, &n.to_string(), 99)), unavailable(n));
    }
}

pub(super) fn keys_are_counted_and_expire(rig: &Rig) {
    let caller = rig.caller("100");
    for n in 1..=20 {
        let name = n.to_string();
        let text = (n == 1).then_some("kept");
        billed(rig, &caller, call(&caller, &name, n), n, text);
        let said = settled(&caller, &call(&caller, &name, 99));
        assert_ne!(said, CONFLICTS);
    }
    assert!(matches!(take(&caller, call(&caller, "21", 21)), Taking::Full(20)));
    assert_eq!(looked_at(&caller, call(&caller, "21", 21)), None);
    // What is known is known all the same.
    is_replayed(repeated(&caller, call(&caller, "1", 99)), "kept", 1);
    rig.clock.advance(KEPT_MS - 1);
    is_replayed(repeated(&caller, call(&caller, "1", 99)), "kept", 1);
    rig.clock.advance(1);
    billed(rig, &caller, call(&caller, "1", 30), 30, Some("new"));
    is_replayed(settled(&caller, &call(&caller, "1", 99)), "new", 30);
    billed(rig, &caller, call(&caller, "21", 31), 31, None);
    assert_eq!(settled(&caller, &call(&caller, "21", 99)), unavailable(31));
}

pub(super) fn of_many_at_once_one_has_the_key(rig: &Rig) {
    let caller = rig.caller("10");
    let taken = on_workers(8, |worker| {
        (0..10)
            .filter_map(|n| {
                let n = u64::try_from(worker * 10 + n + 1).unwrap();
                match take(&caller, call(&caller, "a", n)) {
                    Taking::Taken(key) => Some(key),
                    Taking::Known(record) => {
                        assert_eq!(record.repeated(&SAME), RUNS);
                        None
                    }
                    Taking::Full(_) => panic!("full"),
                }
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 1);
}

/// Each of them asks before any is answered. That one asks is nothing which others are told.
pub(super) fn those_who_ask_for_an_answer_at_once_all_get_it(rig: &Rig) {
    let caller = rig.caller("10");
    let again = |n| call(&caller, "a", n);
    billed(rig, &caller, again(1), 1, Some("data: 1"));
    is_replayed(settled(&caller, &again(2)), "data: 1", 1);
    let asked = (10..18).map(|n| KeyedCall {
        fingerprint: if n % 3 == 0 { OTHER } else { SAME },
        ..again(n)
    });
    let asked: Vec<KeyedCall> = asked.collect();
    let answers = block_on(futures::future::join_all(
        asked.iter().map(|call| caller.take_key(call.clone())),
    ));
    for (call, answer) in asked.iter().zip(answers) {
        let Taking::Known(record) = answer.unwrap() else {
            panic!("it was called");
        };
        match record.repeated(&call.fingerprint) {
            CONFLICTS if call.fingerprint == OTHER => {}
            repeated => is_replayed(repeated, "data: 1", 1),
        }
    }
    // Of those who ask for what nobody has, one has it.
    let unknown = |n| {
        caller.take_key(KeyedCall {
            fingerprint: if n % 2 == 0 { OTHER } else { SAME },
            ..call(&caller, "b", n)
        })
    };
    let answers = block_on(futures::future::join_all((20..28).map(unknown)));
    let is_taken = |answer: &&Result<Taking, _>| matches!(answer, Ok(Taking::Taken(_)));
    assert_eq!(answers.iter().filter(is_taken).count(), 1);
}

/// In Redis a key outlives its process; in the embedded ledger what is in memory does not.
#[test]
fn a_dead_owner_does_not_block_a_key_for_ever_in_redis() {
    let rig = Rig::redis();
    let caller = rig.caller("10");
    let again = |n| call(&caller, "a", n);
    // It dies before anything is sent.
    std::mem::forget(taken(&caller, again(1)));
    rig.clock.advance(TAKEN_MS - 1);
    assert_eq!(repeated(&caller, again(2)), RUNS);
    rig.clock.advance(1);
    // It dies after that: for as long as anything is held for it, it may run.
    let hold = sent(&rig, &caller, again(3), 3);
    assert_eq!(repeated(&caller, again(4)), RUNS);
    hold.forget();
    assert_eq!(repeated(&caller, again(5)), RUNS);
    rig.book(&caller).release(request_id(3));
    // From the first look on nothing is held for it.
    assert_eq!(looked_at(&caller, again(6)), Some(RUNS));
    rig.clock.advance(i64::try_from(MISSING_MS).unwrap() - 1);
    assert_eq!(repeated(&caller, again(7)), RUNS);
    rig.clock.advance(1);
    assert_eq!(looked_at(&caller, again(8)), Some(unavailable(3)));
    assert_eq!(repeated(&caller, again(9)), unavailable(3));
}
