//! Keys that expire soon: each is told once, however many an account has.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;

use super::replicas::with_replica;
use super::{node, parted, patient};
use crate::clock::{Clock, monotonic};
use crate::ledger::Ledger;
use crate::ledger::admin::events::{Event, EventKind, EventOp};
use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::events::Room;
use crate::ledger::redis::script;
use crate::ledger::redis::shared::key_name;
use crate::ledger::tests::cases::events::told;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{NOW, block_on, caller_of, key_create, patient as by_hand, redis_of, run};
use crate::pure::ids::{ApiKey, KeyDigest, KeyId};
use crate::pure::limits::LimitOverrides;

const DAY_MS: i64 = 86_400_000;

fn digest(number: u16) -> KeyDigest {
    let [high, low] = number.to_be_bytes();
    let mut random = [77; 32];
    (random[0], random[1]) = (high, low);
    ApiKey::from_random("tg_", random).digest()
}

/// Makes a key of acme that expires in three days.
fn create(digest: &KeyDigest) -> AdminOp {
    create_for("acme", digest)
}

fn create_for(account: &str, digest: &KeyDigest) -> AdminOp {
    let mut create = key_create(account, digest);
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(3 * DAY_MS);
    }
    create
}

fn make(ledger: &Ledger, digests: &[KeyDigest]) {
    for some in digests.chunks(50) {
        let made = block_on(join_all(some.iter().map(|digest| ledger.run(create(digest)))));
        assert!(made.iter().all(Result::is_ok), "{made:?}");
    }
}

/// Looks at all keys, as a gateway does an hour later.
fn look(server: &RedisServer, ledger: &Ledger) {
    server.ask("DEL tg1:events:keys");
    assert_eq!(
        run(ledger, AdminOp::Event(EventOp::RaiseExpiring)),
        Ok(AdminReply::Done)
    );
}

fn keys_of(events: &[Event]) -> Vec<String> {
    let of_keys = events.iter().filter(|event| event.kind == EventKind::KeyExpiring);
    of_keys
        .map(|event| event.data["key"].as_str().unwrap().to_owned())
        .collect()
}

/// The account's ids of events are known of 1,000, and it has room for 1,000 events.
#[test]
fn of_more_keys_than_an_account_has_room_for_each_is_told_once_and_no_other_event_is_dropped() {
    const KEYS: u16 = 1_100;
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let digests: Vec<KeyDigest> = (0..KEYS).map(digest).collect();
    make(&ledger, &digests);
    let (mut keys, mut credit) = (Vec::new(), 0);
    for _ in 0..3 {
        look(&server, &ledger);
        let events = told(&ledger, &caller);
        let told_now = keys_of(&events);
        assert!(told_now.len() <= usize::try_from(Room::Made.open_of_keys_max()).unwrap());
        credit += events.len() - told_now.len();
        keys.extend(told_now);
    }
    assert_eq!(credit, 1, "the account's own event was open, and is told");
    keys.sort();
    let mut expected: Vec<String> = digests
        .iter()
        .map(|digest| KeyId::of(digest).as_str().to_owned())
        .collect();
    expected.sort();
    assert_eq!(keys, expected, "each of them, once");
    for _ in 0..2 {
        look(&server, &ledger);
        assert_eq!(told(&ledger, &caller), []);
    }
}

/// The account's list of ids is that of an account with very many other keys.
#[test]
fn a_changed_expiry_is_told_again_and_the_same_is_not() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let (old, new) = (digest(1), digest(2));
    run(&ledger, create(&old)).unwrap();
    told(&ledger, &caller);
    let told_of = || {
        server.ask("HDEL tg1:{acme} uek");
        look(&server, &ledger);
        let mut keys = keys_of(&told(&ledger, &caller));
        keys.sort();
        keys
    };
    let [of_old, of_new] = [old, new].map(|digest| KeyId::of(&digest).as_str().to_owned());
    assert_eq!(told_of(), std::slice::from_ref(&of_old));
    assert_eq!(told_of(), [""; 0]);
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Id(KeyId::of(&old)),
        digest: new.to_hex(),
        overlap_ms: DAY_MS,
    };
    run(&ledger, rotate).unwrap();
    let mut both = [of_old, of_new];
    both.sort();
    assert_eq!(
        told_of(),
        both,
        "the old one ends sooner, the new one expires as it did"
    );
    assert_eq!(told_of(), [""; 0]);
}

/// One of an earlier build goes by ids alone: it finds the id of what this one has told, and this one finds its.
#[test]
fn a_gateway_of_an_earlier_build_and_this_one_tell_a_key_once() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let digest = digest(1);
    run(&ledger, create(&digest)).unwrap();
    look(&server, &ledger);
    let events = told(&ledger, &caller);
    let [event] = events
        .iter()
        .filter(|event| event.kind == EventKind::KeyExpiring)
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let known = server.ask("HGET tg1:{acme} uek").concat();
    assert!(known.contains(&event.id), "{known}");
    // It leaves no note at the key.
    server.ask(&format!("HDEL {} told", key_name(&digest)));
    look(&server, &ledger);
    assert_eq!(told(&ledger, &caller), []);
    server.ask("HDEL tg1:{acme} uek");
    look(&server, &ledger);
    assert_eq!(told(&ledger, &caller), [], "it is noted since");
}

/// It went between the look and the note.
#[test]
fn a_key_that_is_gone_leaves_nothing_behind() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let shared = &redis_of(&ledger).shared;
    let name = key_name(&digest(1));
    let note = || {
        let noted = block_on(async {
            shared
                .run_script(&shared.link(), &script::KEY_TOLD, &[&name], &["5"])
                .await
        });
        noted.unwrap()
    };
    assert_eq!(note(), redis::Value::Int(0));
    assert_eq!(server.ask(&format!("EXISTS {name}")), [":0"]);
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    run(&ledger, create(&digest(1))).unwrap();
    assert_eq!(note(), redis::Value::Int(1));
}

/// Milliseconds until keys may be looked at again.
fn turn_left(server: &RedisServer) -> i64 {
    let left = server.ask("PTTL tg1:events:keys").concat();
    left.strip_prefix(':').unwrap().parse().unwrap()
}

#[test]
fn a_look_that_is_given_up_leaves_its_turn_to_the_next() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    run(&ledger, create(&digest(1))).unwrap();
    told(&ledger, &caller);
    let looked = |is_given_up: bool| block_on(ledger.raise_expiring(&AtomicBool::new(is_given_up)));
    assert_eq!(looked(true), Ok(false));
    assert_eq!((told(&ledger, &caller), turn_left(&server)), (Vec::new(), -2));
    assert_eq!(looked(false), Ok(true));
    assert_eq!(keys_of(&told(&ledger, &caller)).len(), 1);
    assert!((3_000_000..=3_500_000).contains(&turn_left(&server)));
    assert_eq!(looked(true), Ok(false), "it is looked again later");
    assert!(turn_left(&server) > 3_000_000);
}

/// A gateway of an earlier build has it, for example, which writes another text.
#[test]
fn while_another_gateway_has_the_turn_no_key_is_looked_at_and_the_turn_stays() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "0", LimitOverrides::default());
    run(&ledger, create(&digest(1))).unwrap();
    server.ask("SET tg1:events:keys 1 PX 3500000");
    for is_given_up in [false, true] {
        let looked = block_on(ledger.raise_expiring(&AtomicBool::new(is_given_up)));
        assert_eq!((looked, told(&ledger, &caller)), (Ok(false), Vec::new()));
    }
    assert!((3_000_000..=3_500_000).contains(&turn_left(&server)));
    assert_eq!(server.ask("GET tg1:events:keys"), ["$1", "1"]);
}

/// It is given up once the first event is raised.
#[test]
fn a_look_that_is_cut_tells_what_it_has_looked_at_and_leaves_the_others_to_the_next() {
    const KEYS: u16 = 200;
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let caller = caller_of(&ledger, "acme", "0", LimitOverrides::default());
    let digests: Vec<KeyDigest> = (0..KEYS).map(digest).collect();
    make(&ledger, &digests);
    let is_given_up = AtomicBool::new(false);
    let looked = block_on(async {
        let mut look = pin!(ledger.raise_expiring(&is_given_up));
        poll_fn(|context| {
            let looked = look.as_mut().poll(context);
            // A key is noted after its event, and the next are looked at after that: it is seen in time.
            if server.ask("HEXISTS tg1:{acme} uei") == [":1"] {
                is_given_up.store(true, Ordering::Relaxed);
            }
            looked
        })
        .await
    });
    assert_eq!((looked, turn_left(&server)), (Ok(false), -2));
    let first = keys_of(&told(&ledger, &caller));
    assert!((1..=64).contains(&first.len()), "{}", first.len());
    look(&server, &ledger);
    let others = keys_of(&told(&ledger, &caller));
    let all: BTreeSet<&String> = first.iter().chain(&others).collect();
    assert_eq!(
        (first.len() + others.len(), all.len()),
        (200, 200),
        "each of them, once"
    );
}

/// The names of all accounts are at a server that takes connections and answers nothing: a stop would wait until that is given up.
#[test]
fn a_look_that_waits_for_a_server_ends_when_it_is_given_up() {
    let (first, mut second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "tg1:accounts");
    second.kill();
    let silent = TcpListener::bind(("127.0.0.1", second.port())).unwrap();
    let is_given_up = Arc::new(AtomicBool::new(false));
    let gives_up = Arc::clone(&is_given_up);
    // What it has accepted is open for as long as this is there.
    let _accepted = std::thread::spawn(move || {
        let accepted = silent.accept().unwrap();
        gives_up.store(true, Ordering::Relaxed);
        (accepted, silent)
    });
    let began = monotonic();
    let looked = block_on(async { shared.raise_expiring(&shared.link(), &is_given_up).await });
    assert_eq!((looked, turn_left(&first)), (Ok(false), -2));
    assert!(began.elapsed() < shared.options.timeout / 2, "{:?}", began.elapsed());
}

/// Whether the next look is due in some minutes, and not at once: each of many gateways would look at all keys.
fn is_due_in_minutes(server: &RedisServer) -> bool {
    (200_000..=240_000).contains(&turn_left(server))
}

/// Beta's keys are at a master that is away.
#[test]
fn a_look_to_which_a_server_did_not_answer_is_made_again_in_some_minutes() {
    let (first, mut second) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&first, &second, "tg1:{beta}");
    first.ask("SADD tg1:accounts acme beta");
    second.kill();
    let looked = block_on(async { shared.raise_expiring(&shared.link(), &AtomicBool::new(false)).await });
    let refused = looked.unwrap_err().to_string();
    assert!(refused.contains("the keys of beta"), "{refused}");
    assert!(is_due_in_minutes(&first));
}

/// The server serves otherwise: by what it answered last, nothing was missed. What cannot be read is no better in some minutes.
#[test]
fn who_was_refused_an_answer_looks_again_in_some_minutes_and_who_cannot_read_it_in_an_hour() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "0", LimitOverrides::default());
    let digest = digest(1);
    run(&ledger, create(&digest)).unwrap();
    let fails = || {
        server.ask("DEL tg1:events:keys");
        block_on(ledger.raise_expiring(&AtomicBool::new(false))).unwrap_err()
    };
    for command in ["sscan", "smembers", "hmget"] {
        server.ask(&format!("ACL SETUSER default -{command}"));
        let refused = fails();
        server.ask(&format!("ACL SETUSER default +{command}"));
        assert!(is_due_in_minutes(&server), "{command}: {refused}");
    }
    server.ask(&format!("HSET {} record broken", key_name(&digest)));
    fails();
    assert!(turn_left(&server) > 3_000_000);
    server.ask(&format!("DEL {}", key_name(&digest)));
    fails();
    assert!(turn_left(&server) > 3_000_000);
}

/// A fail-over may follow: in a cluster the event would be gone, and the note at its key would keep it from ever being told.
#[test]
fn a_key_is_noted_only_once_a_replica_has_its_event() {
    let (server, replica, ledger, caller) = with_replica();
    let digest = digest(1);
    run(&ledger, create(&digest)).unwrap();
    let is_noted = || server.ask(&format!("HEXISTS {} told", key_name(&digest))) == [":1"];
    replica.freeze();
    look(&server, &ledger);
    assert!(!is_noted());
    replica.thaw();
    look(&server, &ledger);
    assert!(is_noted());
    assert_eq!(keys_of(&told(&ledger, &caller)).len(), 1);
}

/// Beta's master has no replica, and acme's has one that is away: that stopped the notes of all keys, also of those that were looked at later.
#[test]
fn a_master_that_confirms_nothing_keeps_no_key_of_anothers_accounts_from_being_noted() {
    let (first, second, replica) = (RedisServer::start(), RedisServer::start(), RedisServer::start());
    let [of_acme, of_beta] = [digest(1), digest(2)];
    let node = |server: &RedisServer| node(server, by_hand(Clock::manual(NOW)));
    let on_first = node(&first);
    for (name, digest) in [("acme", &of_acme), ("beta", &of_beta)] {
        caller_of(&on_first, name, "0", LimitOverrides::default());
        run(&on_first, create_for(name, digest)).unwrap();
    }
    // What the account has is at the one, and its key's record at the other.
    let on_second = node(&second);
    caller_of(&on_second, "beta", "0", LimitOverrides::default());
    second.ask("DEL tg1:{beta}:keys");
    second.ask(&format!("SADD tg1:{{beta}}:keys {}", of_beta.to_hex()));
    drop((on_first, on_second));
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", first.port()));
    until("the replica follows", || {
        let replication = first.ask("INFO replication");
        replication.iter().any(|line| line.contains("state=online"))
    });
    replica.freeze();
    first.ask("DEL tg1:events:keys");
    let mut shared = Arc::into_inner(parted(&first, &second, "tg1:{beta}")).unwrap();
    shared.options.timeout = Duration::from_secs(1);
    let looked = block_on(async { shared.raise_expiring(&shared.link(), &AtomicBool::new(false)).await });
    assert_eq!(looked, Ok(true));
    let is_told = |server: &RedisServer, name: &str| server.ask(&format!("HEXISTS tg1:{{{name}}} uei")) == [":1"];
    assert!(is_told(&first, "acme") && is_told(&second, "beta"));
    let is_noted = |digest: &KeyDigest| first.ask(&format!("HEXISTS {} told", key_name(digest))) == [":1"];
    assert_eq!((is_noted(&of_acme), is_noted(&of_beta)), (false, true));
    replica.thaw();
}
